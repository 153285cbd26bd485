#!/usr/bin/env python3
"""Puts what is written from the table of parleyd's options (server/config/options.c) into parleyd(8).

usage: option_documents.py WRITE_DOCUMENTS [--check] [MANUAL]

WRITE_DOCUMENTS is the program that the build makes. With --check it changes nothing, and exits 1 if the manual differs.
"""
import os
import subprocess
import sys

BEGIN = '.\\" --- written from server/config/options.c: ./run format renews it ---\n'
END = '.\\" --- written up to here ---\n'


def renewed(text, written):
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    return head + BEGIN + written + END + tail


def main():
    arguments = [word for word in sys.argv[1:] if word != "--check"]
    program = arguments[0]
    manual = arguments[1] if len(arguments) > 1 else os.path.join(os.path.dirname(__file__), "../man/parleyd.8")
    with open(manual, encoding="utf-8") as file:
        text = file.read()
    wanted = renewed(text, subprocess.run([program, "manual"], check=True, capture_output=True, text=True).stdout)
    if wanted == text:
        return 0
    if "--check" in sys.argv:
        print(f"{manual}: its options are not those of server/config/options.c: ./run format renews them", file=sys.stderr)
        return 1
    with open(manual, "w", encoding="utf-8") as file:
        file.write(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
