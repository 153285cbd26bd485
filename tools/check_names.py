#!/usr/bin/env python3
"""Each struct has a name of its own in the tree, and each static function among the .c files.

usage: check_names.py [--root DIR]

Prints each definition whose name an earlier file defines, too, as FILE:LINE: WHY, and exits 1 if there is any.
tools/names.txt names the exceptions. It parses as much C as the layout of ./run format allows: a function's
definition begins a line, and so does the brace of its body.
"""
import argparse
import fnmatch
import os
import re
import sys

sys.dont_write_bytecode = True  # tools/ stays as it is
from check_includes import Tree, covers  # noqa: E402

RULES = "tools/names.txt"
IGNORED = ["tests"]
DIRECTIVE = re.compile(r"^[ \t]*#[^\n]*", re.M)
ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)")
STRUCT = re.compile(r"\b(?:struct|union)\s+(\w+)\s*\{")
STATIC = re.compile(r"^[ \t]*static\b[^;{}=]*?\b(\w+)\([^;{}]*\)\s*\n\{", re.M)


def read_rules(path):
    """The patterns of each section."""
    rules = {"structs": [], "statics": []}
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            line = line.split("#")[0].strip()
            if line.startswith("["):
                section = line[1:-1]
                if section not in rules:
                    raise ValueError(f"{path}:{number}: there is no section '{section}'")
            elif line:
                rules[section] += line.split()
    return rules


def definitions(source, pattern):
    """(line, name) of each; comments, strings, directives and attributes are blanked."""
    code = DIRECTIVE.sub("", source.code)
    code = ATTRIBUTE.sub(lambda a: "\n" * a[0].count("\n"), code)
    for found in pattern.finditer(code):
        yield code.count("\n", 0, found.start(1)) + 1, found[1]


def repeated(sources, pattern, allowed, kind):
    first, needed = {}, set()
    for path, source in sources:
        for line, name in definitions(source, pattern):
            at = first.setdefault(name, path)
            if at == path:
                continue
            exceptions = {entry for entry in allowed if fnmatch.fnmatchcase(name, entry)}
            needed |= exceptions
            if not exceptions:
                yield path, line, f"{kind} '{name}' is defined in {at}, too"
    for entry in allowed:
        if entry not in needed:
            yield RULES, 1, f"the exception '{entry}' is not needed any more: take it out"


def violations(tree, rules):
    sources = [(path, source) for path, source in tree.sources.items() if not any(covers(folder, path) for folder in IGNORED)]
    yield from repeated(sources, STRUCT, rules["structs"], "struct")
    yield from repeated([(path, source) for path, source in sources if path.endswith(".c")], STATIC, rules["statics"], "static function")


def main(argv=None):
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    args = args.parse_args(argv)
    try:
        found = list(violations(Tree(args.root), read_rules(os.path.join(args.root, RULES))))
    except (ValueError, OSError) as why:
        found = [(RULES, 1, why)]
    for path, line, why in found:
        print(f"{path}:{line}: {why}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
