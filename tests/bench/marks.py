#!/usr/bin/env python3
"""Marks of parleyd's own that no peer has, or that need a look inside.

usage: marks.py BUILD_DIR MODEL.gguf [--rows ROW,…] [--json]

ready     start to ready, seven times behind the first; comes before the others
forks     pages that 16 forks of a 2,000-token conversation take, beside those of the conversation
newcomer  ITL of 8 conversations that speak while a prompt of 4,000 tokens arrives
threads   CPU time by thread while 64 conversations speak; the share outside the compute thread and its pool
"""
import argparse
import collections
import json
import os
import sys

import loads
from harness import conversations, models

STARTS = 7  # behind the first
COMPUTE = ("parley-compute", "compute-pool")
WORDS = "the of and to in a is that it was for on are with as his".split()


def pages(client):
    model = client.models.Get(models.ModelsGetRequest(name="model"))
    return model.kv_pages - model.kv_pages_free


def say(client, conversation, word, n_words, max_tokens):
    turn = conversations.TurnRequest(conversation=conversation, text=" ".join([word] * n_words))
    turn.sampling.max_tokens, turn.sampling.ignore_eos, turn.sampling.temperature = max_tokens, True, 0
    for event in client.conversations.Turn(turn):
        done = event.done
    return done.usage


def forks(daemon, client):
    start = pages(client)
    parent = client.open(model="model")
    usage = say(client, parent, "water", 1960, 8)
    n_tokens = usage.prompt_tokens + usage.completion_tokens
    one = pages(client) - start
    children = [client.fork(parent) for _ in range(16)]
    forked = pages(client) - start
    # each another: like pages might be shared too
    usages = [say(client, child, word, 8, 64) for word, child in zip(WORDS, children)]
    spoken = pages(client) - start
    for conversation in (parent, *children):
        client.close(conversation)
    return {
        "tokens": n_tokens,
        "pages_of_one": one,
        "pages_after_16_forks": forked,
        "tokens_of_each_computed": sum(u.prompt_tokens - u.cached_tokens + u.completion_tokens for u in usages) // len(usages),
        "pages_after_each_spoke": spoken,
    }


def newcomer(daemon, client):
    load = ["--concurrency", 8, "--output-tokens", 384, "--newcomer-tokens", 4000]
    figures = loads.bench(daemon.build, daemon.url, *load)
    there = figures["newcomer"]
    return {
        "itl_ms_p50": figures["itl_ms_p50"],
        "itl_ms_p99": figures["itl_ms_p99"],
        "p99_of_p50": figures["itl_ms_p99"] / figures["itl_ms_p50"],
        "meanwhile_itl_ms_p50": there["itl_ms_p50"],
        "meanwhile_itl_ms_p99": there["itl_ms_p99"],
        "newcomer_ttft_ms": there["ttft_ms"],
    }


def ready(build, model):
    """No other parleyd is there: one that takes memory for its pages would be measured too. The first start has put the file
    in the page cache. On a virtual machine a start takes 0.2 s longer where the host must find its memory anew."""
    starts = []
    for _ in range(1 + STARTS):
        with (start := loads.Daemon(build, model)):
            starts.append(start.ready_s)
    again = sorted(starts[1:])
    return {"ready_s": again[STARTS // 2], "least_s": again[0], "most_s": again[-1]}


def cpu_by_thread(pid):
    """Seconds of CPU time so far, by the names of the threads."""
    seconds = collections.Counter()
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/stat") as stat:
                name, rest = stat.read().split("(", 1)[1].rsplit(")", 1)
        except FileNotFoundError:  # it ended
            continue
        user, system = rest.split()[11:13]
        seconds[name] += (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return seconds


def threads(daemon, client):
    pid = daemon.process.pid
    before = cpu_by_thread(pid)
    figures = loads.bench(daemon.build, daemon.url, "--concurrency", 64, "--requests", 128, "--seed", 2)
    spent = cpu_by_thread(pid)
    spent.subtract(before)
    total = sum(spent.values())
    return {
        "cpu_s": {name: round(s, 3) for name, s in spent.most_common() if s > 0},
        "share_outside_compute": 1 - sum(spent[name] for name in COMPUTE) / total if total else None,
        "client_cpu_s": figures["client_cpu_s"],
        "duration_s": figures["duration_s"],
    }


ALONE = {"ready": ready}
ROWS = {"forks": forks, "newcomer": newcomer, "threads": threads}


def show(row, values):
    print(row)
    for name, value in values.items():
        if isinstance(value, dict):
            value = ", ".join(f"{k} {v}" for k, v in value.items())
        print(f"  {name:24} {value if isinstance(value, (str, int)) else f'{value:.3f}'}", flush=True)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1])
    parser.add_argument("build")
    parser.add_argument("model")
    parser.add_argument("--rows", default=",".join([*ALONE, *ROWS]))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = args.rows.split(",")
    if unknown := [row for row in rows if row not in ALONE and row not in ROWS]:
        parser.error(f"there is no row '{unknown[0]}'; there are {','.join([*ALONE, *ROWS])}")
    result = {}

    def measure(row, function, *given):
        loads.progress(f"row {row}")
        result[row] = function(*given)
        loads.progress("")
        if not args.json:
            show(row, result[row])

    for row in filter(ALONE.get, rows):
        measure(row, ALONE[row], args.build, args.model)
    rows = [row for row in rows if row in ROWS]
    if rows:
        daemon = loads.Daemon(args.build, args.model)
        with daemon as client:
            for row in rows:
                measure(row, ROWS[row], daemon, client)
    if args.json:
        print(json.dumps(result))


sys.exit(main())
