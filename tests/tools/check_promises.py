#!/usr/bin/env python3
"""tools/check_promises.py on scratch trees: this tree passes, and each difference between the table, the pages and the tests is named.

usage: check_promises.py CHECKER
"""
import importlib.util
import os
import shutil
import sys
import tempfile

CHANGES = [("docs/worlds.md", "No server is needed", "A server is needed", "does not say 'No server is needed'"),
           ("docs/worlds.md", "## Humans", "## People", "has no heading 'Humans'"),
           ("docs/worlds.md", "## Inside\n", "## Inside\n\nFast.\n\n## More\n", "has nothing of"),
           ("docs/promises.md", "`test_worlds.py: test_persons`", "`test_worlds.py: test_nobody`", "test_worlds.py has no test_nobody"),
           ("docs/promises.md", "`unit/worlds/world/test_world.c`", "`unit/worlds/test_world.c`", "there is no tests/unit/worlds/test_world.c"),
           ("docs/promises.md", "| § Humans | `test_worlds.py: test_persons` |", "| § Humans | by hand |", "names no test"),
           ("docs/promises.md", "| § Inside |", "| § Outside |", "has nothing of"),
           ("docs/promises.md", "## [", "## ", "has no section")]


def main(checker):
    spec = importlib.util.spec_from_file_location("checker", checker)
    check = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(check)
    root = os.path.abspath(os.path.join(os.path.dirname(checker), ".."))
    assert list(check.differences(root)) == []
    for path, old, new, words in CHANGES:
        with tempfile.TemporaryDirectory() as scratch:
            os.mkdir(os.path.join(scratch, "docs"))
            os.symlink(os.path.join(root, "tests"), os.path.join(scratch, "tests"))
            for page in ["docs/promises.md", *check.WHOLE]:
                shutil.copy(os.path.join(root, page), os.path.join(scratch, page))
            text = check.read(scratch, path)
            assert old in text, (path, old)
            with open(os.path.join(scratch, path), "w", encoding="utf-8") as f:
                f.write(text.replace(old, new))
            found = list(check.differences(scratch))
            assert any(words in line for line in found), (path, new, found)


main(os.path.abspath(sys.argv[1]))
