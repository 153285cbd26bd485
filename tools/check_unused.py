#!/usr/bin/env python3
"""Each function with external linkage is used by the product.

usage: check_unused.py [--root DIR]

Prints each function that only tests or nobody uses as FILE:LINE: WHY, and exits 1 if there is any. tools/unused.txt names
the exceptions. It parses as much C as the layout of ./run format allows: a function's definition begins a line, and so does the brace of its body.
"""
import argparse
import collections
import os
import re
import sys

sys.dont_write_bytecode = True  # tools/ stays as it is
from check_includes import Tree, covers  # noqa: E402
from check_names import ATTRIBUTE, DIRECTIVE  # noqa: E402

RULES = "tools/unused.txt"
TESTS = ["tests"]
FUNCTION = re.compile(r"^(?!static\b|typedef\b|#|\s)[^;{}()=]*?\b(\w+)\([^;{}]*\)\s*\n\{", re.M)
NAME = re.compile(r"\w+")


def read_rules(path):
    """name or pattern -> False: not met yet."""
    with open(path, encoding="utf-8") as lines:
        return {word: False for line in lines for word in line.split("#")[0].split()}


def names_of(path, source):
    """How often each name occurs. In a header a declaration is no use, but what inline functions and macros name is."""
    code = ATTRIBUTE.sub("", source.code)
    if path.endswith(".h"):
        code = re.sub(r"^(?!static|#|\s|[{}]).*?;", "", code, flags=re.M | re.S)
    return collections.Counter(NAME.findall(code))


def functions_of(source):
    """(line, name) of each definition with external linkage."""
    code = DIRECTIVE.sub("", ATTRIBUTE.sub(lambda a: "\n" * a[0].count("\n"), source.code))
    for found in FUNCTION.finditer(code):
        if not found[1].isupper() and not re.search(r"\bstatic\b", found[0]):
            yield code.count("\n", 0, found.start(1)) + 1, found[1]


def violations(tree, rules):
    names = {path: names_of(path, source) for path, source in tree.sources.items()}
    is_test = {path: any(covers(folder, path) for folder in TESTS) for path in names}
    users = {}  # name -> the files of the product that have it
    for path in names:
        for name in names[path] if not is_test[path] else ():
            users.setdefault(name, set()).add(path)
    for path, line, name in ((path, *f) for path, s in tree.sources.items() if path.endswith(".c") and not is_test[path] for f in functions_of(s)):
        if len(users[name]) > 1 or names[path][name] > 1:
            continue
        exceptions = [rule for rule in rules if re.fullmatch(re.escape(rule).replace(r"\*", r"\w*"), name) or covers(rule, path)]
        for rule in exceptions:
            rules[rule] = True
        if not exceptions:
            yield path, line, f"nothing of the product uses {name}()"
    for rule, is_met in rules.items():
        if not is_met:
            yield RULES, 1, f"the exception '{rule}' is not needed any more: take it out"


def main(argv=None):
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    args = args.parse_args(argv)
    found = list(violations(Tree(args.root), read_rules(os.path.join(args.root, RULES))))
    for path, line, why in found:
        print(f"{path}:{line}: {why}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
