#!/usr/bin/env python3
"""Starspace's training on a generated task, one thread and two in turns, each in the same minute: examples a second, and hits@1 of 20 on held-out data.

usage: starspace.py BUILD_DIR      (any python3; no packages). Exits with 3 when two threads give less than 1.6 times one.
       starspace.py BUILD_DIR --parlai PYTHON [SEEDS]   hits@1 on a harder task beside ParlAI's own agent, which that Python has (parlai.sh --torch):
                                   the same data in the same order, sizes, rate and epochs. Exits with 3 when the means differ by more than 0.03.
"""
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

PAIRS, LEAST = 7, 1.6
EPOCHS, RATE, MOST_APART = 2, 10, 0.03  # beside ParlAI


def write_task(path, n, seed, n_keys=2000, is_near=False):
    """Three of a text's words say what those of the label are; five say nothing, and follow Zipf's law as words do. is_near: two words
    of each wrong candidate are right."""
    chance = random.Random(seed)
    weights = [1 / (rank + 1) for rank in range(n_keys)]
    with open(path, "w") as out:
        for _ in range(n):
            keys = chance.sample(range(n_keys), 3)
            words = [f"q{k}" for k in keys] + [f"n{k}" for k in chance.choices(range(n_keys), weights, k=5)]
            chance.shuffle(words)
            wrong = [[*chance.sample(keys, 2), chance.choice([k for k in range(n_keys) if k not in keys])] if is_near else chance.sample(range(n_keys), 3) for _ in range(19)]
            candidates = [" ".join(f"a{k}" for k in sorted(one)) for one in wrong]
            label = " ".join(f"a{k}" for k in sorted(keys))
            candidates.insert(chance.randrange(20), label)
            out.write(f"text:{' '.join(words)}\tlabels:{label}\tlabel_candidates:{'|'.join(candidates)}\tepisode_done:True\n")


def ours(parley, folder, seed):
    subprocess.run([parley, "train", "-t", f"parlai:{folder}/train.txt", "-dt", "train:ordered", "--agent", "starspace", "-mf", f"{folder}/{seed}.gguf", "--seed", str(seed),
                    "-eps", str(EPOCHS), "-lr", str(RATE), "-enorm", "1000", "--json"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    command = [parley, "eval", "-t", f"parlai:{folder}/valid.txt", "--model", f"{folder}/{seed}.gguf", "--json"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True).stdout)["hits@1"]


def beside_parlai(parley, python, n_seeds):
    """ParlAI's agent has the bound of a vector's length as an option, and uses it nowhere: so -enorm 1000, which is none, and with vectors
    as long as those that it starts from, a rate at which two epochs teach something."""
    seeds = [str(1 + i) for i in range(n_seeds)]
    with tempfile.TemporaryDirectory() as folder:
        write_task(f"{folder}/train.txt", 4000, 1, 1000, True)
        write_task(f"{folder}/valid.txt", 1000, 2, 1000, True)
        own = [ours(parley, folder, seed) for seed in seeds]
        peer = [python, "-P", f"{os.path.dirname(os.path.abspath(__file__))}/starspace_peer.py", f"{folder}/train.txt", f"{folder}/valid.txt", str(EPOCHS), str(RATE), *seeds]
        said = subprocess.run(peer, stdout=subprocess.PIPE, check=True, text=True).stdout
    theirs = [json.loads(line)["hits@1"] for line in said.splitlines()]
    print("hits@1 of 20, held out (chance 0.05), by seed")
    for name, values in (("parley", own), ("ParlAI 1.7.2", theirs)):
        print(f"{name:13} {' '.join(f'{value:.3f}' for value in values)}   mean {statistics.mean(values):.3f}")
    apart = abs(statistics.mean(own) - statistics.mean(theirs))
    print(f"the means are {apart:.3f} apart (at most {MOST_APART})")
    sys.exit(0 if apart <= MOST_APART else 3)


def main():
    if len(sys.argv) > 3:
        beside_parlai(f"{sys.argv[1]}/parley", sys.argv[3], int(sys.argv[4]) if len(sys.argv) > 4 else 5)
    parley = f"{sys.argv[1]}/parley"
    # Where other programs use the processors too, they get what we leave.
    first = ["chrt", "-r", "1"] if os.geteuid() == 0 and shutil.which("chrt") else []
    with tempfile.TemporaryDirectory() as folder:
        write_task(f"{folder}/train.txt", 40000, 1)
        write_task(f"{folder}/valid.txt", 1000, 2)
        ratios, rates = [], {1: [], 2: []}
        for _ in range(PAIRS):
            for n_threads in (1, 2):
                command = [*first, parley, "train", "-t", f"parlai:{folder}/train.txt", "--agent", "starspace", "-enorm", "1", "-eps", "6",
                           "-mf", f"{folder}/{n_threads}.gguf", "--numthreads", str(n_threads), "--json"]
                said = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
                rates[n_threads].append(json.loads(said.splitlines()[-1])["exs_per_s"])
            ratios.append(rates[2][-1] / rates[1][-1])
        print("threads   examples/s   hits@1 of 20, held out (chance 0.05)")
        for n_threads in (1, 2):
            command = [parley, "eval", "-t", f"parlai:{folder}/valid.txt", "--model", f"{folder}/{n_threads}.gguf", "--json"]
            report = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
            print(f"{n_threads:7} {statistics.median(rates[n_threads]):12,.0f}   {report['hits@1']:.3f}")
    ratio = statistics.median(ratios)
    print(f"two threads give {ratio:.2f} times one (median of {PAIRS} pairs, {min(ratios):.2f} to {max(ratios):.2f})")
    sys.exit(0 if ratio >= LEAST else 3)


if __name__ == "__main__":
    main()
