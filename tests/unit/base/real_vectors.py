#!/usr/bin/env python3
"""Writes real_vectors.inc: arguments, and the doubles nearest to what functions are there, from 100 decimal digits.

usage: real_vectors.py > real_vectors.inc
"""
import random
from decimal import Decimal as D
from decimal import getcontext

getcontext().prec = 120
LEAST = D(10) ** -115


def series(term, step):
    total, n = D(0), 0
    while abs(term) > LEAST:
        total += term
        term = step(term, n)
        n += 1
    return total


def arctangent(x):
    total, power, n = D(0), x, 0
    while abs(power) > LEAST:
        total += power / (2 * n + 1)
        power, n = -power * x * x, n + 1
    return total


PI = 4 * (4 * arctangent(D(1) / 5) - arctangent(D(1) / 239))


def sine(x):
    x = x % (2 * PI)
    return series(x, lambda t, n: -t * x * x / ((2 * n + 2) * (2 * n + 3)))


def main():
    draw = random.Random(1)
    cases = {
        "exp": (lambda x: x.exp(), lambda: draw.uniform(-700, 700) * draw.random() ** 4),
        "log": (lambda x: x.ln(), lambda: draw.choice([2.0 ** draw.uniform(-1000, 1000), draw.uniform(0.5, 2)])),
        "sin": (sine, lambda: draw.uniform(-1, 1) * 10.0 ** draw.uniform(-8, 15)),
        "cos": (lambda x: sine(x + PI / 2), lambda: draw.uniform(-1, 1) * 10.0 ** draw.uniform(-8, 15)),
    }
    for name, (function, argument) in cases.items():
        for _ in range(60):
            x = argument()
            print(f"{{real_{name}, {x.hex()}, {float(function(D(x))).hex()}}},")


main()
