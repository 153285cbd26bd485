#!/usr/bin/env python3
"""Whether the time of a prompt tells that another principal has sent it. One principal sends prompts; then, in turns, it sends one of them again
(a real hit), another principal sends one of them, and that one sends a prompt of the same length that nobody sent. The chance that a time of the
first two is below one of the third: 0.5 is what a coin tells, 1 is certain.

usage: cache_timing.py BUILD_DIR MODEL.gguf [--pairs N] [--json]

Exit 3: a token of another's was found in the cache, or the chance for another's prompt is outside of what 0.5 gives in 99 of 100 runs.
"""
import argparse
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time

import loads
import test_keys

WORDS = "river stone light winter paper engine garden silver window market letter forest island bridge copper morning".split()
N_WORDS, CERTAIN = 300, 2.58  # standard deviations


def prompt(seed):
    chance = random.Random(seed)
    return " ".join(chance.choice(WORDS) for _ in range(N_WORDS))


def ask(daemon, key, text):
    """Milliseconds, and how many of its tokens were in the cache."""
    body = {"model": "model", "prompt": text, "max_tokens": 1, "temperature": 0}
    start = time.monotonic()
    got, _, answer = test_keys.ask(daemon, "POST", "/v1/completions", body, x_api_key=key)
    took = (time.monotonic() - start) * 1000
    assert got == 200, answer
    return took, json.loads(answer)["usage"]["prompt_tokens_details"]["cached_tokens"]


def chance_below(some, others):
    return sum((a < b) + (a == b) / 2 for a in some for b in others) / (len(some) * len(others))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("model")
    p.add_argument("--pairs", type=int, default=40)
    p.add_argument("--json", action="store_true")
    o = p.parse_args()
    alice, mallory = test_keys.new_key(), test_keys.new_key()
    times, cached = {"its own": [], "another's": [], "nobody's": []}, {"its own": 0, "another's": 0, "nobody's": 0}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "keys")
        test_keys.write_keys(path, ("alice", alice), ("mallory", mallory))
        with loads.Daemon(o.build, o.model, "--keys", path, "--http", "127.0.0.1:0") as daemon:
            for i in range(o.pairs):
                ask(daemon, alice, prompt(i))
                turns = [("its own", alice, i), ("another's", mallory, i), ("nobody's", mallory, o.pairs + i)]
                random.Random(i).shuffle(turns)
                for name, key, seed in turns:
                    took, n = ask(daemon, key, prompt(seed))
                    times[name].append(took)
                    cached[name] += n
    # Of Mann and Whitney's statistic, where both have the same distribution.
    bound = CERTAIN * math.sqrt((2 * o.pairs + 1) / (12 * o.pairs ** 2))
    rows = {name: {"median_ms": statistics.median(each), "cached_tokens": cached[name], "below_nobodys": chance_below(each, times["nobody's"])}
            for name, each in times.items()}
    for name, row in rows.items():
        if not o.json:
            print(f"{name:10} prompt: median {row['median_ms']:7.1f} ms, {row['cached_tokens']} tokens from the cache; "
                  f"below nobody's with a chance of {row['below_nobodys']:.3f}", flush=True)
    if o.json:
        print(json.dumps(rows))
    else:
        print(f"a coin gives 0.5, within {bound:.3f} in 99 of 100 runs")
    return 0 if cached["another's"] == 0 and abs(rows["another's"]["below_nobodys"] - 0.5) <= bound else 3


if __name__ == "__main__":
    sys.exit(main())
