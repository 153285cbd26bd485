#!/usr/bin/env python3
"""A language model over 200 turns, with the batches that parley eval can make: the same report, and the time of each beside that of one conversation at a time.

usage: eval_batches.py BUILD_DIR MODEL.gguf      (any python3; no packages)
"""
import os
import resource
import subprocess
import sys
import time

TURNS = os.path.join(os.path.dirname(__file__), "../integration/data/countries.txt")
WAYS = (["-bs", "1"], ["-bs", "8"], ["-bs", "64"], ["-bs", "64", "-dynb", "full", "--truncate", "512"], ["-bs", "64", "--numthreads", "2"])


def main():
    build, model = sys.argv[1:3]
    base, reports = None, set()
    print(f"{'':42}  wall s  cpu s  of the first")
    for way in WAYS:
        spent, start = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime, time.monotonic()
        command = [f"{build}/parley", "eval", "-t", f"parlai:{TURNS}", "--model", model, "--max-tokens", "32", "--json", *way]
        reports.add(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        wall, cpu = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - spent
        base = base or wall
        print(f"{' '.join(way):42}  {wall:6.1f} {cpu:6.1f}  {wall / base:.3f}", flush=True)
    print(f"{len(reports)} report{'s' if len(reports) > 1 else ', the same bits for all'}")
    sys.exit(len(reports) > 1)


if __name__ == "__main__":
    main()
