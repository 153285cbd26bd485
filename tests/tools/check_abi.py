#!/usr/bin/env python3
"""tools/check_abi.py on scratch trees: what is agreed on passes, and what would break a program, or is new, is told by name.

usage: check_abi.py CHECKER      (needs cc and abigail-tools)
"""
import os
import subprocess
import sys
import tempfile

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../client/lib")
# (file, text, its replacement, what must be said)
CHANGES = [
    ("parley.h", "uint32_t retry_after_ms;", "uint64_t retry_after_ms;", ["parley_error", "breaks programs that were built before"]),
    ("parley.h", "    uint32_t turn;\n    const char *finish_reason;", "    const char *finish_reason;\n    uint32_t turn;", ["parley_done", "breaks programs"]),
    ("parley.h", "PARLEY_ADAM = 1", "PARLEY_ADAM = 3", ["PARLEY_ADAM", "breaks programs"]),
    ("parley.h", "void parley_call_cancel(struct parley_call *call);", "void parley_call_cancel(struct parley_call *call, int how);", ["parley_call_cancel", "breaks programs"]),
    ("parley.map", "    parley_fork;\n", "", ["parley_fork", "breaks programs"]),
    ("parley.h", "void parley_call_unref(", "int parley_new(void);\nvoid parley_call_unref(", ["parley_new", "run tools/check_abi.py --agree"]),
]


def check(checker, root, *options):
    done = subprocess.run([checker, "--root", root, *options], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def main():
    with tempfile.TemporaryDirectory() as root:
        folder = os.path.join(root, "client/lib")
        os.makedirs(folder)
        texts = {}
        for name in "parley.h", "parley.map", "parley.abi":
            with open(os.path.join(HERE, name), encoding="utf-8") as file:
                texts[name] = file.read()

        def write(name, text):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)

        for name, text in texts.items():
            write(name, text)
        assert check(sys.argv[1], root) == (0, ""), check(sys.argv[1], root)
        for name, old, new, words in CHANGES:
            assert texts[name].count(old) >= 1, old
            write(name, texts[name].replace(old, new, 1))
            if "parley_new" in new:
                write("parley.map", texts["parley.map"].replace("    parley_step;\n", "    parley_new;\n    parley_step;\n"))
            status, said = check(sys.argv[1], root)
            assert status == 1 and all(word in said for word in words), (new, said)
            assert check(sys.argv[1], root, "--agree")[0] == 0 and check(sys.argv[1], root) == (0, ""), new
            for again, text in texts.items():
                write(again, text)


if __name__ == "__main__":
    main()
