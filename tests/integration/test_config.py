#!/usr/bin/env python3
"""The daemon's options in a real process: from the environment, tried by --check.

usage: test_config.py PARLEY PARLEYD WRITE_TINY_MODEL [ONLY…]      (any python3; no packages)
"""
import os
import socket
import subprocess
import sys
import tempfile

import children
from children import PATIENCE


def check(parleyd, *flags, **variables):
    """The exit status of --check, and what it says."""
    done = children.run([parleyd, "--check", *flags], capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, **variables})
    assert done.stderr.count("\n") == (0 if done.returncode == 0 else 1), done
    return done.returncode, done.stderr


def tried(parley, parleyd, tiny, folder):
    """--check opens models and binds addresses, and leaves nothing behind."""
    anywhere = "127.0.0.1:0"
    path = os.path.join(folder, "check.sock")
    assert check(parleyd, "--listen", f"unix:{path}", "--http", anywhere, "--model", f"tiny={tiny}") == (0, "")
    assert not os.path.exists(path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        code, said = check(parleyd, "--listen", address)
        assert code == 1 and "--listen: " in said and address in said, said
        code, said = check(parleyd, "--listen", anywhere, "--http", address)
        assert code == 1 and "--http: " in said and address in said, said
    with children.Daemon(parleyd, listen=f"unix:{path}"):
        code, said = check(parleyd, "--listen", f"unix:{path}")
        assert code == 1 and path in said and os.path.exists(path), said


def from_environment(parley, parleyd, tiny, folder):
    """Variables set what no flag sets; a wrong one is named."""
    code, said = check(parleyd, PARLEY_TTL="soon")
    assert code == 2 and said == "parleyd: PARLEY_TTL: 'soon' is no number\n", said
    path = os.path.join(folder, "parleyd.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write("listen: 127.0.0.1:0\nttl: 1h\nkv-bytes: 1G\n")
    code, said = check(parleyd, PARLEY_CONFIG=path)
    assert code == 2 and said == f"parleyd: {path}:3: there is no key 'kv-bytes', did you mean 'kv_bytes'?\n", said
    os.environ["PARLEY_MODELS"] = f"tiny={tiny}"
    try:
        with children.Daemon(parleyd) as daemon:
            assert daemon.ready["models"] == "tiny,echo", daemon.ready
    finally:
        del os.environ["PARLEY_MODELS"]


def main():
    parley, parleyd, write_tiny_model = sys.argv[1:4]
    only = sys.argv[4:]
    with tempfile.TemporaryDirectory() as folder:
        tiny = os.path.join(folder, "tiny.gguf")
        children.run([write_tiny_model, tiny], check=True)
        for test in tried, from_environment:
            if not only or test.__name__ in only:
                print(test.__name__, flush=True)
                test(parley, parleyd, tiny, folder)


if __name__ == "__main__":
    main()
