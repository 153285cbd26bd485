#!/usr/bin/env python3
"""Training of the LSTM pair on long-tailed data, an epoch by -dynb none, batchsort and full in turns: the tutorial's table of training speed.

Rows are packed here: a step computes the rows that still have a word, and no padding. So what dynamic batching wins is not the padding, but rows: a
step reads all weights whether it has one row or a hundred, and batches of mixed lengths spend their last steps on one or two rows; full also puts as
many rows of short texts into a batch as its budget of words holds, so the optimiser, whose step costs the same for any batch, runs less often (which
costs accuracy after the same epochs: see ppl). `padded` is what an implementation that pads would compute, by the cells of its batches.

With --parlai the pair of LSTMs of ParlAI 1.7.2, of the same sizes, learns from the same data in its own worlds. It pads.

usage: dynamic_batching.py BUILD_DIR [--examples N] [--rounds N] [--parlai PYTHON]
       (any python3; PYTHON has ParlAI and torch: parlai.sh --torch). Exits with 3 when full is not faster than none.
"""
import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

BATCH, KINDS = 8, ("none", "batchsort", "full")


def write_task(path, n, seed):
    """Lengths follow Pareto's law: half of the texts have at most 7 words, one in a hundred has 120. A label is the end of its text in other words."""
    chance = random.Random(seed)
    with open(path, "w") as out:
        for _ in range(n):
            words = [chance.randrange(400) for _ in range(min(120, int(4 * chance.paretovariate(1.1))))]
            label = words[-max(1, len(words) // 4) :][:20]
            out.write(f"text:{' '.join(f'w{w}' for w in words)}\tlabels:{' '.join(f'v{w}' for w in label)}\tepisode_done:True\n")


def theirs(python, path):
    """An epoch of each kind by ParlAI's agent, by processor time, once."""
    print("ParlAI's             examples/s   of none   batches  rows/batch  padded", flush=True)
    none = None
    for kind in KINDS:
        command = [python, "-P", os.path.join(os.path.dirname(os.path.abspath(__file__)), "dynamic_batching_peer.py"), path, kind, str(BATCH)]
        s = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()[-1])
        none = none or s
        print(f"{kind:20} {s['exs_per_s']:11,.1f} {s['exs_per_s'] / none['exs_per_s']:9.2f} {s['batches']:9,} {s['examples'] / s['batches']:11.1f} "
              f"{none['cells'] / s['cells']:7.2f}", flush=True)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("build")
    options.add_argument("--examples", type=int, help="of the epoch; 4000, or 1000 with --parlai")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--parlai", metavar="PYTHON")
    o = options.parse_args()
    parley, n_examples = f"{o.build}/parley", o.examples or (1000 if o.parlai else 4000)
    first = ["chrt", "-r", "1"] if os.geteuid() == 0 and shutil.which("chrt") else []
    with tempfile.TemporaryDirectory() as folder:
        write_task(f"{folder}/train.txt", n_examples, 1)
        write_task(f"{folder}/valid.txt", 200, 2)
        said, rates = {}, {kind: [] for kind in KINDS}
        for _ in range(o.rounds):
            for kind in KINDS:
                command = [*first, parley, "train", "-t", f"parlai:{folder}/train.txt", "--agent", "seq2seq", "-eps", "1", "-bs", str(BATCH), "-dynb", kind,
                           "-ttr", "128", "-ltr", "32", "--threads", "1", "-mf", f"{folder}/{kind}.gguf", "--json"]
                said[kind] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()[-1])
                rates[kind].append(said[kind]["exs_per_s"])
        print(f"-dynb       examples/s   of none   batches  rows/batch  words/cell  padded  ppl, held out (-bs {BATCH})")
        for kind in KINDS:
            ratio = statistics.median(a / b for a, b in zip(rates[kind], rates["none"]))
            command = [parley, "eval", "-t", f"parlai:{folder}/valid.txt", "--model", f"{folder}/{kind}.gguf", "--skip-generation", "true", "-bs", "64", "--json"]
            report = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
            s = said[kind]
            print(f"{kind:10} {statistics.median(rates[kind]):11,.0f} {ratio:9.2f} {s['batches']:9,} {s['examples'] / s['batches']:11.1f} "
                  f"{s['words'] / s['padded']:11.2f} {said['none']['padded'] / s['padded']:7.2f}  {report['ppl']:.1f}")
        if o.parlai:
            theirs(o.parlai, f"{folder}/train.txt")
    print(f"full gives {ratio:.2f} times as many examples a second as none")
    sys.exit(0 if ratio > 1 else 3)


if __name__ == "__main__":
    main()
