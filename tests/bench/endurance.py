#!/usr/bin/env python3
"""Twice the load that fits: 64 conversations of many turns whose keys and values are twice the pages that parleyd has, for as long as is asked.

usage: endurance.py BUILD_DIR MODEL.gguf [MINUTES] [--json]      (30 minutes)

It holds, or the exit status is 3: no turn fails (each is asked for by its number, so a conversation that was lost, or that forgot a turn, fails
it); every conversation takes the turn that it is at when the time is over; the slowest conversation has at least half the median's
tokens/s; the daemon's memory grows by no more than 5 % once every page has been in use (until then it grows by pages that are touched for
the first time) and a fifth of the time is over; no conversation is left at the end.
"""
import argparse
import json
import os
import subprocess
import sys
import time

import loads
from harness import admin, models

CONVERSATIONS, TURNS, TOKENS_IN, TOKENS_OUT = 64, 16, 48, 32
PAGE_TOKENS = 16
# Conversations are at all lengths from nothing to the longest: half of that on average.
TOKENS_ON_AVERAGE = CONVERSATIONS * TURNS * (TOKENS_IN + TOKENS_OUT) // 2
EVERY_S, MAX_GROWTH, MIN_FAIRNESS = 10, 1.05, 0.5


def rss_bytes(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def page_bytes(build, model):
    with loads.Daemon(build, model) as client:
        return client.models.Get(models.ModelsGetRequest(name="model")).kv_page_bytes


def say(text):
    print(text, file=sys.stderr, flush=True)


def watch(load, daemon, client, end):
    """A line each ten seconds while the load runs; the RSS of those that count for its growth."""
    start, samples = time.monotonic(), []
    while True:
        try:
            load.wait(timeout=EVERY_S)
            return samples
        except subprocess.TimeoutExpired:
            pass
        seconds = time.monotonic() - start
        rss = rss_bytes(daemon.process.pid)
        status = client.admin.Status(admin.AdminStatusRequest())
        model = client.models.Get(models.ModelsGetRequest(name="model"))
        batching = model.batching
        if seconds >= end / 5 and model.kv_evictions + batching.preempted > 0:
            samples.append(rss)
        say(
            f"{seconds:5.0f} s of {end:.0f}: {status.turns} turns, {status.conversations} conversations, {batching.running} run, {batching.waiting} wait, "
            f"{model.kv_pages_free} of {model.kv_pages} pages free, {model.kv_evictions} evictions, {batching.preempted} preempted, "
            f"{rss / 2**20:.0f} MiB"
        )


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1])
    parser.add_argument("build")
    parser.add_argument("model")
    parser.add_argument("minutes", nargs="?", type=float, default=30)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    kv_bytes = TOKENS_ON_AVERAGE // 2 // PAGE_TOKENS * page_bytes(args.build, args.model)
    daemon = loads.Daemon(args.build, args.model, "--kv-bytes", str(kv_bytes))
    end = 60 * args.minutes
    command = [os.path.join(args.build, "parley"), "bench"]
    options = ["--concurrency", CONVERSATIONS, "--turns", TURNS, "--input-tokens", TOKENS_IN, "--output-tokens", TOKENS_OUT, "--think", 1]
    with daemon as client:
        command += [daemon.url, "--ignore-eos", "--json", "--duration", str(end), *map(str, options)]
        load = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            samples = watch(load, daemon, client, end)
        finally:
            load.kill()
        figures = json.loads(load.stdout.read() or "{}")
        model = client.models.Get(models.ModelsGetRequest(name="model"))
        left = client.admin.Status(admin.AdminStatusRequest()).conversations
    growth = max(samples) / samples[0] if samples else None
    holds = {
        "no turn failed": figures.get("failed") == 0 and figures.get("completed", 0) > 0,
        "no conversation was left over": left == 0,
        "fairness": (figures.get("fairness") or 0) >= MIN_FAIRNESS,
        "memory": growth is not None and growth <= MAX_GROWTH,
        "pages came under pressure": model.kv_evictions + model.batching.preempted > 0,
    }
    result = {
        "minutes": args.minutes,
        "kv_pages": model.kv_pages,
        "kv_evictions": model.kv_evictions,
        "kv_recomputes": model.kv_recomputes,
        "preempted": model.batching.preempted,
        "rss_growth": growth,
        "holds": holds,
        "load": figures,
    }
    if args.json:
        print(json.dumps(result))
    else:
        print(f"{figures.get('completed')} turns, {figures.get('failed')} failed; fairness {figures.get('fairness') or 0:.2f}; memory grew to {growth or 0:.3f}")
        print("\n".join(f"{'holds' if good else 'DOES NOT HOLD'}: {what}" for what, good in holds.items()))
    return 0 if all(holds.values()) else 3


sys.exit(main())
