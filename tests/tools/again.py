#!/usr/bin/env python3
"""tools/again.py names the few tests that failed, and none where a sanitizer or a time limit stopped one."""
import json
import os
import subprocess
import sys
import tempfile

GOOD = {"name": "parley:unit / good", "result": "OK"}
BAD = {"name": "parley:unit / server/bad", "result": "FAIL", "stdout": "assertion failed"}


def named(*tests):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as log:
        log.write("".join(json.dumps(test) + "\n" for test in tests))
        log.flush()
        return subprocess.run([sys.executable, os.path.abspath(sys.argv[1]), log.name], check=True, stdout=-1, text=True).stdout.split()


def main():
    assert named(GOOD) == []
    assert named(GOOD, BAD) == ["server/bad"]
    assert named({"name": "plain", "result": "FAIL"}, BAD) == ["plain", "server/bad"]
    assert named(*[BAD] * 3) == ["server/bad"] * 3 and named(*[BAD] * 4) == []
    assert named(BAD, {**BAD, "result": "TIMEOUT"}) == []
    for report in "WARNING: ThreadSanitizer: data race", "x.c:1:2: runtime error: shift":
        assert named(BAD, {**BAD, "stderr": report}) == []


if __name__ == "__main__":
    main()
