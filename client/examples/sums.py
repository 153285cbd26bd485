#!/usr/bin/env python3
"""A teacher of one's own, which asks for sums: parley eval -t attached:sums. usage: sums.py [ADDRESS [NAME]]"""
import sys

import parley


@parley.teacher("sums")
def sums(fold, argument):
    for a in range(int(argument or 100)):
        yield [(f"What is {a} and 1?", str(a + 1)), ("And one more?", str(a + 2))]


parley.serve(sums, *sys.argv[1:])
