#!/usr/bin/env python3
"""What CI spends, in processor seconds: each suite of tests beside its budget in tests/minutes.txt.

usage: tools/minutes.py suites STEP TESTLOG TIMES   add up one run of `meson test`: a line "STEP SUITE SECONDS" each
       tools/minutes.py report STEPS SUITES         print a table; STEPS has "STEP USER SYS" lines, SUITES those above, or
                                                "STEP SUITE USER SYS" as GNU time writes them
       tools/minutes.py check                       whether the budgets are within their sum

TESTLOG is meson's JSON log of a run, TIMES what GNU time wrote of its tests, a line "USER SYS COMMAND" each. A figure
above its budget fails nothing, since machines differ; whoever raises a budget lowers another by as much.
"""
import collections
import json
import pathlib
import sys

BUDGETS = pathlib.Path(__file__).parent.parent / "tests" / "minutes.txt"


def budgets():
    """The sum that the file promises, and {(step, suite): seconds}."""
    rows = [line.split("#")[0].split() for line in BUDGETS.read_text().splitlines()]
    rows = [row for row in rows if row]
    return int(rows[0][1]), {(step, suite): int(seconds) for step, suite, seconds in rows[1:]}


def suites(step, log, times):
    """A test counts for the first suite that it names."""
    spent = {}
    for line in open(times, encoding="utf-8", errors="surrogateescape"):
        user, system, command = line.rstrip("\n").split(" ", 2)
        spent.setdefault(command, []).append(float(user) + float(system))
    sums = collections.Counter()
    for line in open(log, encoding="utf-8"):
        test = json.loads(line)
        command = " ".join(test["command"])
        here = next((own for own in spent if command.endswith(own)), None)
        if here is None:
            continue  # killed by its time limit, with who measured it
        name = test["name"]
        suite = name.split(" / ")[0].split(":")[-1].split("+")[0]
        sums[suite] += spent[here].pop()
        if not spent[here]:
            del spent[here]
    for suite, seconds in sorted(sums.items()):
        print(step, suite, round(seconds))


def report(steps, by_suite):
    _, budget = budgets()
    seen = {}
    for line in open(by_suite, encoding="utf-8"):
        step, suite, *seconds = line.split()
        seen[step, suite] = round(sum(map(float, seconds)))
    print(f"{'step':8}{'suite':14}{'seconds':>8}{'budget':>8}   (of processors)")
    total = 0
    for line in open(steps, encoding="utf-8"):
        step, user, system = line.split()
        spent = round(float(user) + float(system))
        total += spent
        tests = {suite: seconds for (of, suite), seconds in seen.items() if of == step}
        for suite, seconds in tests.items():
            print(f"{step:8}{suite:14}{seconds:8}{budget.get((step, suite), 0):8}")
        print(f"{step:8}{'all the rest':14}{spent - sum(tests.values()):8}")
    print(f"{'all':22}{total:8}{sum(budget.values()):8}   (the budgets are of tests)")


def check():
    limit, budget = budgets()
    spent = sum(budget.values())
    if spent > limit:
        sys.exit(f"tests/minutes.txt: the budgets sum up to {spent} s, and {limit} s are there: take from another suite")


if __name__ == "__main__":
    verbs = {"suites": suites, "report": report, "check": check}
    if len(sys.argv) < 2 or sys.argv[1] not in verbs:
        sys.exit(__doc__)
    verbs[sys.argv[1]](*sys.argv[2:])
