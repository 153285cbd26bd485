#!/usr/bin/env python3
"""Writes what documents say of options and verbs from what the programs say: the options of parleyd(8) and docs/options.md from the table in
server/config/options.c, the verbs of docs/command_line.md from `parley --help`.

usage: option_documents.py WRITE_DOCUMENTS PARLEY [--check]

WRITE_DOCUMENTS and PARLEY are programs that the build makes. With --check it changes nothing, and exits 1 where a document differs.
"""
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def told(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def cell(text):
    return text.replace("|", "\\|").replace("<", "&lt;")


def option_row(line):
    flag, value, key, variable, default, _, reloadable, says = line.split("\t")
    title = f"{flag} {value}" if value else flag
    names = f"`{key}`, `{variable}`" if key else f"`{variable}`" if variable else ""
    return f"| `{cell(title)}` | {names} | {cell(default)} | {cell(says)}{'; SIGHUP' if reloadable else ''} |\n"


def option_table(write_documents):
    rows = told(write_documents, "table").splitlines()
    return "| option | key, variable | default | what it does |\n|---|---|---|---|\n" + "".join(map(option_row, rows))


def verb_table(parley):
    rows = re.findall(r"^(?:  ([\w-]+) {2,}(\S.*)|(?!usage)(\S.*):)$", told(parley, "--help"), re.MULTILINE)
    return "| verb | what it is for |\n|---|---|\n" + "".join(
        f"| **{heading}** | |\n" if heading else f"| `{verb}` | {cell(says)} |\n" for verb, says, heading in rows)


def documents(write_documents, parley):
    """(file, the lines around what is written, what is written there)"""
    source = "server/config/options.c"
    return [
        ("man/parleyd.8", f'.\\" --- written from {source}: ./run format renews it ---\n', '.\\" --- written up to here ---\n', told(write_documents, "manual")),
        ("docs/options.md", f"<!-- written from {source}: ./run format renews it -->\n\n", "\n<!-- written up to here -->\n", option_table(write_documents)),
        ("docs/command_line.md", "<!-- written from parley --help: ./run format renews it -->\n\n", "\n<!-- written up to here -->\n", verb_table(parley)),
    ]


def main():
    programs = [word for word in sys.argv[1:] if word != "--check"]
    status = 0
    for name, begin, end, written in documents(*programs):
        path = os.path.join(ROOT, name)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        head, rest = text.split(begin)
        wanted = head + begin + written + end + rest.split(end)[1]
        if wanted == text:
            continue
        if "--check" in sys.argv:
            print(f"{name}: it differs from what {begin.strip()} would write", file=sys.stderr)
            status = 1
            continue
        with open(path, "w", encoding="utf-8") as file:
            file.write(wanted)
    return status


if __name__ == "__main__":
    sys.exit(main())
