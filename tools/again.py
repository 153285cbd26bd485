#!/usr/bin/env python3
"""The tests of a run that are worth a second try, alone: a name each line.

usage: tools/again.py TESTLOG

TESTLOG is meson's JSON log of a run. A test that waits for other programs can lose to a busy machine; one such failure in
four hundred tests would hide what the other tests say. Nothing is printed where more than three tests failed, since that
is no accident, nor for a test that was stopped by its time limit, nor where an output has a sanitizer's report: what a
sanitizer has seen once is wrong.
"""
import json
import sys

MOST = 3
REPORTS = "Sanitizer", "runtime error:"


def main():
    tests = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
    bad = [test for test in tests if test["result"] not in ("OK", "EXPECTEDFAIL", "SKIP")]
    if len(bad) > MOST:
        return
    for test in bad:
        said = test.get("stdout", "") + test.get("stderr", "")
        if test["result"] != "FAIL" or any(report in said for report in REPORTS):
            return
    for test in bad:
        print(test["name"].split(" / ", 1)[-1])


if __name__ == "__main__":
    main()
