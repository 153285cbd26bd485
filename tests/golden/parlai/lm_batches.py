#!/usr/bin/env python3
"""Writes long_tail.txt and lm_batches.jsonl: the batches that the tutorial's rules make of it for a language model that packs rows.

full: longest first, as long as the sum of words is within the budget of (text_truncate + label_truncate) * batchsize, at most 1,021 rows. batchsort: longest first,
at most batchsize rows within the same budget. none: in the order of the data. Lengths are tokens of the tests' tiny model, by `parley tokenize`.

usage: lm_batches.py PARLEY TINY_MODEL.gguf [TEXT_TRUNCATE LABEL_TRUNCATE BATCHSIZE]
"""
import json
import os
import random
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def tokens(parley, model, texts):
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    done = subprocess.run([parley, "tokenize", "--model", model, "--json"], input=lines, stdout=subprocess.PIPE, text=True, check=True)
    return [len(json.loads(line)["ids"]) for line in done.stdout.splitlines()]


def main():
    parley, model = sys.argv[1:3]
    text_truncate, label_truncate, size = map(int, sys.argv[3:] or (60, 12, 4))
    chance = random.Random(5)
    data = []
    for i in range(48):  # no two texts are equal
        n = min(11, int(1.5 * chance.paretovariate(1.0)))
        data.append((" ".join([f"{i}"] + [chance.choice(["sea", "a", "ship", "is", "on", "storm"]) for _ in range(n)]), chance.choice(["yes", "no", "a ship"])))
    with open(f"{HERE}/long_tail.txt", "w") as out:
        for text, label in data:
            out.write(f"text:{text}\tlabels:{label}\tepisode_done:True\n")
    lengths = [
        (min(a, text_truncate), min(b, label_truncate))
        for a, b in zip(tokens(parley, model, [t for t, _ in data]), tokens(parley, model, [b for _, b in data]))
    ]
    order = sorted(range(len(data)), key=lambda i: (*lengths[i], i), reverse=True)
    budget = (text_truncate + label_truncate) * size
    with open(f"{HERE}/lm_batches.jsonl", "w") as out:
        out.write(json.dumps({"text_truncate": text_truncate, "label_truncate": label_truncate, "batchsize": size}) + "\n")
        for kind, most in (("none", size), ("batchsort", size), ("full", 1021)):
            batches, words = [], 0
            for i in range(len(data)) if kind == "none" else order:
                if not batches or len(batches[-1]) == most or (kind != "none" and words + sum(lengths[i]) > budget):
                    batches.append([])
                    words = 0
                batches[-1].append(i)
                words += sum(lengths[i])
            cells = sum(len(b) * (max(lengths[i][0] for i in b) + max(lengths[i][1] for i in b)) for b in batches)
            out.write(json.dumps({"kind": kind, "batches": batches, "words": sum(map(sum, lengths)), "cells": cells}) + "\n")


main()
