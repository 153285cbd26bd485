#!/usr/bin/env python3
"""Who includes whom, and which calls are banned: holds the sources against tools/includes.txt, which explains the rules.

usage: check_includes.py [--root DIR] [--cycles | --figures]

Without an option it prints each violation as FILE:LINE: WHY. --cycles prints the files that include each
other in a circle, permitted or not; a source and the header of its name are one unit. Both exit 1 if there is any.
--figures prints for each folder its files, its includes of other folders, and the cycles it takes part in; then the
totals, where a cycle through several folders counts once.
"""
import argparse
import os
import re
import subprocess
import sys

RULES = "tools/includes.txt"
SOURCE = re.compile(r"\.(c|h|cc|hh|cpp|hpp|cu|cuh|inc)(\.in)?$")
TOKEN = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.S)
INCLUDE = re.compile(r"[ \t]*(?:#|%:)[ \t]*(?:include|include_next|import)\b[ \t]*(.*)")
NAMED = re.compile(r'<([^>]+)>|"([^"]+)"')
PLACEHOLDER = re.compile(r"@\w+@")  # of a template (.in), filled in by the build


class Bad(Exception):
    """The rules cannot be read."""


def covers(pattern, path):
    """A folder covers all below it, a file itself; * stands for anything but a /."""
    if pattern == "*":
        return True
    if "*" in pattern:
        return re.fullmatch(re.escape(pattern).replace(r"\*", "[^/]*"), path) is not None
    return path == pattern or path.startswith(pattern + "/")


class Row:
    """What the sources under a folder may include."""

    def __init__(self, folder, may, system):
        self.folder, self.may, self.system = folder, may, system  # system: (header pattern, files or None)

    def allows(self, path):
        return any(covers(entry, path) for entry in [self.folder, *self.may])

    def names_inside(self, inside, path):
        """Whether an entry for the path lies inside that folder, and not around it."""
        return any(covers(entry, path) and (entry == "*" or covers(inside, entry)) for entry in self.may)

    def allows_system(self, header, by):
        return any(covers(entry, header) and (files is None or any(covers(f, by) for f in files)) for entry, files in self.system)


class Rules:
    def __init__(self, path):
        self.everywhere, self.names, self.generated, self.rows, self.insides, self.private, self.calls, self.circles, self.exceptions = [], {}, {}, [], [], [], [], {}, {}
        readers = {"everywhere": self.read_everywhere, "names": self.read_name, "generated": self.read_generated, "folders": self.read_row,
                   "insides": self.read_inside, "private": self.read_private, "calls": self.read_calls, "circles": self.read_circle, "exceptions": self.read_exception}
        read = None
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                line = line.split("#")[0].strip()
                try:
                    if re.fullmatch(r"\[\w+\]", line):
                        read = readers[line[1:-1]]
                    elif line:
                        read(line)
                except (Bad, ValueError, KeyError, TypeError) as why:
                    raise Bad(f"{path}:{number}: cannot be parsed ({why})") from why

    def read_everywhere(self, line):
        self.everywhere += line.split()

    def read_inside(self, line):
        self.insides += line.split()

    def read_private(self, line):
        self.private += line.split()

    def read_name(self, line):
        name, headers = line.split("=")
        self.names[name.strip()] = headers.split()

    def read_generated(self, line):
        header, path = line.split("=")
        self.generated[header.strip()] = path.strip()

    def read_row(self, line):
        folder, rest = line.split(":")
        may, system = rest.split("|")
        folder, entries = folder.strip(), []
        for word in system.split():
            name, files = re.fullmatch(r"([^()]+)(?:\(([^()]+)\))?", word).groups()
            files = files and [f"{folder}/{file}" for file in files.split(",")]
            entries += [(header, files) for header in self.names.get(name, [name])]
        if any(row.folder == folder for row in self.rows):
            raise Bad(f"the folder {folder} has a second row")
        self.rows.append(Row(folder, may.split(), entries))

    def read_calls(self, line):
        calls, _, folders = line.partition("|")
        self.calls.append((re.compile(rf"(?<!\w)(?<!->)({'|'.join(calls.split())})\s*\("), folders.split()))

    def read_circle(self, line):
        units, why = line.split("|")
        if not why.strip():
            raise Bad("a circle needs its reason")
        self.circles[tuple(sorted(units.split()))] = False  # not met yet

    def read_exception(self, line):
        by, header = line.split("->")
        self.exceptions[by.strip(), header.strip()] = False  # not met yet

    def row_of(self, path):
        return max((row for row in self.rows if covers(row.folder, path)), key=lambda row: len(row.folder), default=None)

    def is_excepted(self, by, header):
        if (by, header) not in self.exceptions:
            return False
        self.exceptions[by, header] = True
        return True


def blank(text):
    """As many lines, and nothing on them."""
    return re.sub(r"[^\n]+", " ", text)


class Source:
    """A file's includes, as (line, name or None, has quotes), and its text without comments and strings."""

    def __init__(self, root, path):
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            text = file.read()
        text = TOKEN.sub(lambda t: blank(t[0]) if t[0][0] == "/" else t[0], self.join(text))
        self.includes = []
        for number, line in enumerate(text.split("\n"), 1):
            if found := INCLUDE.match(line):
                name = NAMED.match(found[1])
                self.includes.append((number, name and (name[1] or name[2]), name is not None and name[2] is not None))
        self.code = TOKEN.sub(lambda t: '""', text)

    @staticmethod
    def join(text):
        """Continued lines become one; empty lines behind it keep the count."""
        lines, held, n_held = [], "", 0
        for line in text.split("\n"):
            if line.endswith("\\"):
                held, n_held = held + line[:-1], n_held + 1
            else:
                lines += [held + line] + [""] * n_held
                held, n_held = "", 0
        return "\n".join(lines + [held])


class Tree:
    def __init__(self, root, with_sources=True):
        listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                                check=True, capture_output=True, text=True).stdout.split("\0")
        self.files = {path for path in listed if path and os.path.isfile(os.path.join(root, path))}
        self.sources = {path: Source(root, path) for path in sorted(self.files) if with_sources and SOURCE.search(path)}

    def find(self, name):
        """The file that an include names, or None. protobuf-c makes X.pb-c.h from proto/X.proto: it counts as lying beside it."""
        if name in self.files:
            return name
        made_from = re.sub(r"^(.*)\.pb-c\.h$", r"proto/\1.proto", name)
        return f"proto/{name}" if made_from != name and made_from in self.files else None


def violations(tree, rules):
    for path, source in tree.sources.items():
        row = rules.row_of(path)
        if row is None:
            yield path, 1, "no row of the table covers this file"
            continue
        for line, name, has_quotes in source.includes:
            why = refusal(tree, rules, row, path, name, has_quotes)
            if why is not None and not rules.is_excepted(path, name):
                yield path, line, why
        for calls, allowed in rules.calls:
            if not any(covers(folder, path) for folder in allowed):
                for found in calls.finditer(source.code):
                    yield path, source.code.count("\n", 0, found.start()) + 1, f"{found[1]}() is banned here"
    yield from circle_violations(tree, rules)
    for (by, header), is_met in rules.exceptions.items():
        if not is_met:
            yield RULES, 1, f"the exception {by} -> {header} is not needed any more: take it out"


def circle_violations(tree, rules):
    """The circles that the rules do not list with just these members, and the listed ones that are none any more."""
    for way, members in cycles_of(graph_of(tree)):
        if tuple(members) in rules.circles:
            rules.circles[tuple(members)] = True
            continue
        path, line = next((path, line) for path, source in tree.sources.items() if SOURCE.sub("", path) == way[0]
                          for line, name, _ in source.includes if name in tree.sources and SOURCE.sub("", name) == way[1])
        yield path, line, f"these files include each other in a circle, {' '.join(members)}: {' -> '.join(way)}"
    for members, is_met in rules.circles.items():
        if not is_met:
            yield RULES, 1, f"the circle {' '.join(members)} is none any more: take it out"


def refusal(tree, rules, row, path, name, has_quotes):
    """Why the file may not include this; None if it may."""
    if name is None:
        return "an include names its header itself"
    if PLACEHOLDER.search(name):
        return None
    target = rules.generated.get(name) or tree.find(name)
    if target is None:
        if has_quotes:
            return f'"{name}" is no file of this tree by its path from the root (other headers stand in <>)'
        if any(covers(entry, name) for entry in rules.everywhere) or row.allows_system(name, path):
            return None
        return f"{row.folder} may not include <{name}>"
    if not has_quotes:
        return f'<{name}> is a file of this tree: it is included as "{name}"'
    if not row.allows(target):
        return f'{row.folder} may not include "{name}"'
    inside = next((folder for folder in rules.insides if covers(folder, target)), None)
    if inside is not None and not covers(inside, path) and not row.names_inside(inside, target):
        return f'{row.folder} may not include "{name}", which is inside {inside}/: its row names nothing there that covers it'
    folder, file = os.path.split(target)
    if os.path.dirname(path) != folder and not covers("tests", path) and any(covers(p, file) for p in rules.private):
        return f'"{name}" is private to {folder}/'
    return None


def graph_of(tree):
    """Which unit includes which: a path without its ending stands for the source and its header."""
    units = {}
    for path, source in tree.sources.items():
        unit = SOURCE.sub("", path)
        to = units.setdefault(unit, set())
        to |= {SOURCE.sub("", name) for _, name, _ in source.includes if name in tree.sources} - {unit}
    return units


def cycles_of(graph):
    """The strongly connected components of more than one unit (Tarjan), each as one shortest circle and all its members."""
    index, low, stack, on_stack, cycles = {}, {}, [], set(), []
    for start in sorted(graph):
        work = [(start, iter(sorted(graph[start])))] if start not in index else []
        while work:
            unit, rest = work[-1]
            if unit not in index:
                index[unit] = low[unit] = len(index)
                stack.append(unit)
                on_stack.add(unit)
            for to in rest:
                if to not in index:
                    work.append((to, iter(sorted(graph[to]))))
                    break
                if to in on_stack:
                    low[unit] = min(low[unit], index[to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[unit])
                if low[unit] == index[unit]:
                    at = stack.index(unit)
                    members, stack = stack[at:], stack[:at]
                    on_stack -= set(members)
                    if len(members) > 1:
                        cycles.append((circle(graph, unit, set(members)), sorted(members)))
    return cycles


def circle(graph, start, members):
    """The shortest way from a unit back to itself."""
    came_from, queue = {}, [start]
    for unit in queue:
        for to in sorted(graph[unit] & members):
            if to == start:
                way = [start]
                while unit != start:
                    way.append(unit)
                    unit = came_from[unit]
                return [start, *reversed(way)]
            if to not in came_from:
                came_from[to] = unit
                queue.append(to)
    raise AssertionError("a strongly connected component must have a cycle")


def print_cycles(tree):
    cycles = cycles_of(graph_of(tree))
    for way, members in cycles:
        print(" -> ".join(way) + (f"   ({len(members)} units: {' '.join(members)})" if len(members) > len(way) - 1 else ""))
    print(f"{len(cycles)} cycles", file=sys.stderr)
    return 1 if cycles else 0


def print_figures(tree):
    figures = {}
    for path, source in tree.sources.items():
        figure = figures.setdefault(os.path.dirname(path), [0, 0, 0])
        figure[0] += 1
        figure[1] += sum(target is not None and os.path.dirname(target) != os.path.dirname(path)
                         for target in (tree.find(name) for _, name, _ in source.includes if name is not None))
    all_cycles = cycles_of(graph_of(tree))
    for _, members in all_cycles:
        for folder in {os.path.dirname(unit) for unit in members}:
            figures[folder][2] += 1
    width = max(map(len, [*figures, "folder"]))
    print(f"{'folder':{width}}  files  crossing  cycles")
    for folder, (files, crossing, cycles) in sorted(figures.items()):
        print(f"{folder:{width}}  {files:5}  {crossing:8}  {cycles:6}")
    print(f"{'total':{width}}  {len(tree.sources):5}  {sum(figure[1] for figure in figures.values()):8}  {len(all_cycles):6}")
    return 0


def main(argv=None):
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    what = args.add_mutually_exclusive_group()
    what.add_argument("--cycles", action="store_true")
    what.add_argument("--figures", action="store_true")
    args = args.parse_args(argv)
    tree = Tree(args.root)
    if args.cycles:
        return print_cycles(tree)
    if args.figures:
        return print_figures(tree)
    try:
        found = list(violations(tree, Rules(os.path.join(args.root, RULES))))
    except (Bad, OSError) as why:
        found = [(RULES, 1, why)]
    for path, line, why in found:
        print(f"{path}:{line}: {why}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
