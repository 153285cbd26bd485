#!/usr/bin/env python3
"""What keys and quotas cost a turn of echo, in instructions of the whole daemon (callgrind): without keys, with keys, with keys and quotas;
over gRPC and HTTP. Each is the difference of two runs of unlike length, so that the start and the stop are not in it.

usage: keys_cost.py BUILD_DIR [--before PARLEYD] [--turns N]      (any python3; valgrind)
  --before: another parleyd, without keys, for example of an earlier commit
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../integration"))
import children  # noqa: E402

FEW, ROUNDS = 50, 3


class Counted(children.Daemon):
    """A daemon under callgrind; its instructions are there once it has ended."""

    def __init__(self, folder, parleyd, *flags):
        super().__init__(parleyd, "--http", "127.0.0.1:0", *flags)
        self.command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", "--log-file=" + os.path.join(folder, "log"), *self.command]
        self.log = os.path.join(folder, "log")

    def instructions(self):
        with open(self.log, encoding="utf-8") as file:
            return int(re.search(r"Collected : (\d+)", file.read())[1])


def run(folder, build, parleyd, protocol, n, key, *flags):
    with Counted(folder, parleyd, *flags) as daemon:
        url = f"parley://{daemon.address}" if protocol == "gRPC" else f"http://{daemon.http}"
        done = subprocess.run([os.path.join(build, "parley"), "bench", url, "--model", "echo", "--requests", str(n), "--concurrency", "1", "--input-tokens", "16",
                               "--output-tokens", "16", "--wait", "60"], capture_output=True, text=True, env={**os.environ, "PARLEY_API_KEY": key or ""})
        if done.returncode != 0:
            raise SystemExit(done.stderr)
    return daemon.instructions()


def key_file(folder, build, *words):
    made = subprocess.run([os.path.join(build, "parley"), "keys", "new", "--principal", "alice", *words], check=True, capture_output=True, text=True).stdout.splitlines()
    path = os.path.join(folder, "keys" + "".join(words))
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
        print(made[1], file=file)
    return made[0], path


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--before")
    p.add_argument("--turns", type=int, default=1000)
    o = p.parse_args()
    parleyd = os.path.join(o.build, "parleyd")
    with tempfile.TemporaryDirectory() as folder:
        key, path = key_file(folder, o.build)
        limited, limits = key_file(folder, o.build, "--requests", "1000000000", "--tokens", "1000000000", "--in-flight", "1000000", "--conversations", "1000")
        cases = [("without keys", parleyd, None, ()), ("with keys", parleyd, key, ("--keys", path)), ("keys and quotas", parleyd, limited, ("--keys", limits))]
        if o.before is not None:
            cases.insert(0, ("before", o.before, None, ()))
        for protocol in "gRPC", "HTTP":
            first = None
            for name, program, own, flags in cases:
                def once():
                    few, many = (run(folder, o.build, program, protocol, n, own, *flags) for n in (FEW, FEW + o.turns))
                    return (many - few) / o.turns
                each = statistics.median(once() for _ in range(ROUNDS))
                first = first or each
                print(f"{protocol} {name:16} {each:9.0f} instructions a turn, {each / first:.4f} × {cases[0][0]}", flush=True)


if __name__ == "__main__":
    main()
