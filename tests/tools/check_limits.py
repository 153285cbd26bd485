#!/usr/bin/env python3
"""tools/check_limits.py on scratch trees: this tree passes, and each difference between the table, the code and the options is named.

usage: check_limits.py CHECKER
"""
import importlib.util
import os
import sys
import tempfile

OWNER = "server/act/session.c"
FILES = {OWNER, "docs/operations.md", "server/config/options.c"}


def main(checker):
    spec = importlib.util.spec_from_file_location("checker", checker)
    check = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(check)
    root = os.path.join(os.path.dirname(checker), "..")
    assert list(check.differences(root)) == []
    changes = [(OWNER, '{"sessions of Act"', '{"sessions"', "'sessions' is missing"),
               (OWNER, '"--max-sessions"', '"--max-session"', "there is no such option"),
               (OWNER, '"--max-sessions"', "NULL", "'sessions of Act' is --max-sessions"),
               (OWNER, "kind_of_sessions = {", "kind_of_sessions = { (", "cannot read one"),
               ("docs/operations.md", "| sessions of Act |", "| sessions of none |", "'sessions of none' is --max-sessions"),
               ("server/config/options.c", '.flag = "--max-sessions"', '.flag = "--most-sessions"', "there is no such option")]
    for path, old, new, words in changes:
        with tempfile.TemporaryDirectory() as scratch:
            for name in FILES:
                text = check.read(root, name)
                if name == path:
                    assert old in text, (path, old)
                    text = text.replace(old, new)
                os.makedirs(os.path.dirname(os.path.join(scratch, name)), exist_ok=True)
                with open(os.path.join(scratch, name), "w", encoding="utf-8") as f:
                    f.write(text)
            found = list(check.differences(scratch))
            assert any(words in line for line in found), (path, new, found)


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
