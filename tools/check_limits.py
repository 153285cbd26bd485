#!/usr/bin/env python3
"""The table of shared limits in docs/operations.md says what the constants of type struct limit_kind say, which stand at each limit's owner:
each limit has one row, with its words and its option, and each option exists.

usage: check_limits.py      (in the source tree)
"""
import os
import re
import sys

KIND = re.compile(r'const struct limit_kind kind_of_\w+ =\s*\{\s*"([^"]+)",\s*(?:NULL|"(--[\w-]+)")')
FOLDERS = ("agents", "base", "batching", "compute", "server", "worlds")
ROW = re.compile(r"^\| ([^|]+?) \| (`--[\w-]+`|built in) \| ([^|]+?) \| ([^|]+?) \|$", re.M)


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


def sources(root):
    for folder in FOLDERS:
        for at, _, files in os.walk(os.path.join(root, folder)):
            yield from (os.path.join(at, name) for name in files if name.endswith(".c"))


def differences(root):
    texts = [read(path) for path in sources(root)]
    kinds = {noun: option or "built in" for text in texts for noun, option in KIND.findall(text)}
    section = read(root, "docs", "operations.md").partition("\n## Shared limits\n")[2].partition("\n## ")[0]
    rows = {what: option.strip("`") for what, option, _, _ in ROW.findall(section)}
    options = set(re.findall(r'\.flag = "(--[\w-]+)"', read(root, "server", "config", "options.c")))
    if len(kinds) != sum(text.count("const struct limit_kind kind_of_") for text in texts):
        yield "two limits have the same words, or this check cannot read one"
    for noun in sorted(kinds.keys() | rows.keys()):
        if kinds.get(noun) != rows.get(noun):
            yield f"docs/operations.md: '{noun}' is {rows.get(noun, 'missing')}, its owner has {kinds.get(noun, 'no such limit')}"
    for option in sorted(set(kinds.values()) - options - {"built in"}):
        yield f"a limit names {option}, and there is no such option"


if __name__ == "__main__":
    found = list(differences(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")))
    print(*found, sep="\n")
    sys.exit(1 if found else 0)
