#!/usr/bin/env python3
"""The table of shared limits in docs/operations.md says what base/shared_limit.c says: each limit has one row, with its words and its option,
and each option exists.

usage: check_limits.py      (in the source tree)
"""
import os
import re
import sys

KIND = re.compile(r'\[(LIMIT_\w+)\] =\s*\{\s*"([^"]+)",\s*(NULL|"(--[\w-]+)")', re.S)
ROW = re.compile(r"^\| ([^|]+?) \| (`--[\w-]+`|built in) \| ([^|]+?) \| ([^|]+?) \|$", re.M)


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


def differences(root):
    kinds = {noun: option or "built in" for _, noun, _, option in KIND.findall(read(root, "base", "shared_limit.c"))}
    section = read(root, "docs", "operations.md").partition("\n## Shared limits\n")[2].partition("\n## ")[0]
    rows = {what: option.strip("`") for what, option, _, _ in ROW.findall(section)}
    options = set(re.findall(r'\.flag = "(--[\w-]+)"', read(root, "server", "config", "options.c")))
    if len(kinds) != len(re.findall(r"^    LIMIT_", read(root, "base", "shared_limit.h"), re.M)):
        yield "base/shared_limit.c: a limit has no row, or this check cannot read it"
    for noun in sorted(kinds.keys() | rows.keys()):
        if kinds.get(noun) != rows.get(noun):
            yield f"docs/operations.md: '{noun}' is {rows.get(noun, 'missing')}, base/shared_limit.c has {kinds.get(noun, 'no such limit')}"
    for option in sorted(set(kinds.values()) - options - {"built in"}):
        yield f"base/shared_limit.c: there is no option {option}"


if __name__ == "__main__":
    found = list(differences(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")))
    print(*found, sep="\n")
    sys.exit(1 if found else 0)
