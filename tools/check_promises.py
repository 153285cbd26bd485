#!/usr/bin/env python3
"""docs/promises.md against the pages that it quotes and the tests that it names: each quotation stands in its page, each test is there, and each
paragraph, list item and row of a table of the pages in WHOLE is quoted, or stands directly under a heading that is.

usage: check_promises.py      (in the source tree)
"""
import os
import re
import sys

TABLE = "docs/promises.md"
ROW = re.compile(r"^\| (.+?) \| (.+?) \|$", re.M)
PAGES = "worlds", "training", "agents", "comparisons", "policies", "rooms", "service", "tutorial", "command_line", "cluster", "proof"
WHOLE = {"README.md", *(f"docs/{page}.md" for page in PAGES)}  # pages of which nothing may be left out


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


def plain(text):
    """Without marks, links' targets and line ends."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"[\s|*`_\\]+", " ", text).strip()


def parts_of(text):
    """Each heading, paragraph, list item and row of a table, with the headings it is under; code is left out."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    under, parts = [], []
    for block in re.split(r"\n\s*\n", text):
        if re.match(r" {4}\S", block.strip("\n")) or not block.strip() or block.strip().startswith("<!--"):
            continue
        for part in re.split(r"\n(?=\||- |\d+\. |#)", block.strip("\n")):
            if re.match(r"\|[-| ]+\|$", part):
                continue
            if heading := re.match(r"(#+) (.*)", part):
                under = [one for one in under if one[0] < len(heading[1])] + [(len(heading[1]), plain(heading[2]))]
                rest = part.partition("\n")[2]
                part = rest
            if plain(part) and not re.match(r" {4}\S", part):
                parts.append((plain(part), [name for _, name in under]))
    return parts


def tests_named(cell, root):
    """Complaints of the tests that a cell names: `test_worlds.py: test_scripted`, `unit/worlds/world/test_world.c: batches`, or a file alone."""
    names = re.findall(r"`([^`]+)`", cell)
    if not names:
        yield "names no test"
    for name in names:
        path, _, function = name.partition(": ")
        found = os.path.join(root, "tests", path if "/" in path else os.path.join("integration", path))
        if not os.path.isfile(found):
            yield f"there is no tests/{os.path.relpath(found, os.path.join(root, 'tests'))}"
        elif function and not re.search(rf"^(?:async )?def {function}\(|^START_TEST\({function}\)|^static [\w ]*\b{function}\(|^{function}\(\)", read(found), re.M):
            yield f"{path} has no {function}"


def differences(root):
    sections = re.split(r"^## (?=\[)", read(root, TABLE), flags=re.M)[1:]
    if not sections:
        yield f"{TABLE} has no section of a page"
    for section in sections:
        page = os.path.normpath(os.path.join("docs", re.match(r"\[[^\]]*\]\(([^)]+)\)", section)[1]))
        parts = parts_of(read(root, page))
        said = " ".join(part for part, _ in parts)
        headings = {name for _, under in parts for name in under}
        quoted, covered = set(), set()
        for words, held in ROW.findall(section):
            if words == "words" or re.match(r"-+$", words):
                continue
            if words.startswith("§ "):
                covered.add(plain(words[2:]))
                if plain(words[2:]) not in headings:
                    yield f"{page} has no heading '{words[2:]}'"
            else:
                quoted.add(plain(words))
                if plain(words) not in said:
                    yield f"{page} does not say '{words}'"
            yield from (f"{page}, '{words[:40]}': {complaint}" for complaint in tests_named(held, root))
        for part, under in parts:
            if page in WHOLE and not covered.intersection(under[-1:]) and not any(words in part for words in quoted):
                yield f"{page}: {TABLE} has nothing of '{part[:80]}'"


if __name__ == "__main__":
    found = list(differences(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")))
    print(*found, sep="\n")
    sys.exit(1 if found else 0)
