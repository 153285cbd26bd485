#!/usr/bin/env python3
"""Starspace's training on data that `build-data --preprocess` wrote, beside the same from the text, in turns: processor time of the
whole command, by what it says itself examples/s, and whether both wrote the same file.

usage: preprocess.py BUILD_DIR     (any python3; no packages). Exits with 3 when the text takes less than 1.1 times as long, or a bit differs.
"""
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile

PAIRS, LEAST, EPISODES, TURNS, EPOCHS = 7, 1.1, 8000, 5, (1, 5)


def write_task(path):
    """Episodes whose words follow Zipf's law; a text of 30 words and its history of up to 160."""
    chance = random.Random(3)
    weights = [1 / (rank + 1) for rank in range(20000)]
    with open(path, "w") as out:
        for _ in range(EPISODES):
            for turn in range(TURNS):
                text, label = (" ".join(f"w{k}" for k in chance.choices(range(20000), weights, k=n)) for n in (30, 10))
                out.write(f"text:{text}\tlabels:{label}" + ("\tepisode_done:True\n" if turn + 1 == TURNS else "\n"))


def train(parley, task, path, epochs, *more):
    """Processor seconds of the command, examples a second of its training, and the file."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = subprocess.run([parley, "train", "-t", task, "-dt", "train:ordered", "--agent", "starspace", "-mf", path, "-eps", str(epochs), "--json", *more],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open(path, "rb") as f:
        written = f.read()
    os.unlink(path)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, json.loads(said.splitlines()[-1])["exs_per_s"], written


def main():
    parley, is_good = f"{sys.argv[1]}/parley", True
    with tempfile.TemporaryDirectory() as folder:
        text, first, data, again = (f"{folder}/{name}" for name in ("all.txt", "first.gguf", "all.data", "again.gguf"))
        write_task(text)
        subprocess.run([parley, "train", "-t", f"parlai:{text}", "--agent", "starspace", "-esz", "32", "-mf", first, "-dt", "train:ordered", "-eps", "1"],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        subprocess.run([parley, "build-data", "-t", f"parlai:{text}", "--datafile", data, "--preprocess", "true", "--model", first], check=True)
        print("epochs   from the text: s, examples/s   preprocessed: s, examples/s   ratio of processor time")
        for epochs in EPOCHS:
            pairs = [[train(parley, task, again, epochs, "--init-model", first) for task in (f"parlai:{text}", f"data:{data}")] for _ in range(PAIRS)]
            ratios = [plain[0] / kept[0] for plain, kept in pairs]
            seconds = [statistics.median(pair[i][0] for pair in pairs) for i in (0, 1)]
            rates = [statistics.median(pair[i][1] for pair in pairs) for i in (0, 1)]
            same = all(plain[2] == kept[2] for plain, kept in pairs)
            print(f"{epochs:6} {seconds[0]:17.2f} {rates[0]:12,.0f} {seconds[1]:15.2f} {rates[1]:13,.0f}      {statistics.median(ratios):.2f} "
                  f"(median of {PAIRS} pairs, {min(ratios):.2f} to {max(ratios):.2f}); {'the same bits' if same else 'ANOTHER FILE'}")
            is_good = is_good and same and statistics.median(ratios) >= LEAST
    sys.exit(0 if is_good else 3)


if __name__ == "__main__":
    main()
