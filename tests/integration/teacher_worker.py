#!/usr/bin/env python3
"""A teacher for test_attach.py: so many episodes of one turn, whose texts are so long, and odd. usage: teacher_worker.py ADDRESS [HOLD]
HOLD: before that episode it says so, and waits for a line of its standard input."""
import sys

import parley

hold = int(sys.argv[2]) if sys.argv[2:] else -1


@parley.teacher("long")
def long(fold, argument):
    n, length = map(int, argument.split("x"))
    for i in range(n):
        if i == hold:
            print("it holds", flush=True)
            sys.stdin.readline()
        yield {"text": f'{fold} {i} "\u2028\n' + "w " * (length // 2), "labels": [str(i)], "reward": i / 2}
        if i % 10 == 0:
            yield []  # no episode


parley.serve(long, sys.argv[1])
