#!/usr/bin/env python3
"""What stored conversations cost that nobody uses: the memory of a daemon that has many of them, and the time of turns at random among them
beside turns of a thousand conversations in a daemon that has no others, in turns. The conversations are written into the journal by SQL, each with its
chain of hashes, as copies of one with two turns that a daemon has written.

usage: idle.py BUILD_DIR MODEL.gguf [--stored N] [--turns N] [--unload-size MIB] [--data FOLDER] [--model] [--json]

--data: the folder of the conversations, which is kept; if it is there already, none are written. --model: replies are the model's, of one token, instead of echo's. Exit 3: memory grows by more than 8 MiB in the last half of the turns, it is
more than twice the bound and what SQLite keeps above that of the other daemon, or the 99th percentile of a turn is more than twice the other daemon's.
"""
import argparse
import concurrent.futures
import contextlib
import json
import os
import random
import sqlite3
import statistics
import sys
import time

import journal
import loads
import harness
from harness import conversations

N_ROUNDS, N_AT_ONCE, MOST_GROWTH_MIB, MOST_RATIO = 10, 16, 8, 2.0
STORE_MIB = 80  # what SQLite keeps of its file, and its tables


def daemon(o, data, *flags):
    """Of echo alone, which has no memory for keys and values, or with the model."""
    if o.model:
        return loads.Daemon(o.build, o.file, "--data", data, "--kv-bytes", "64M", *flags)
    return harness.Parleyd(os.path.join(o.build, "parleyd"), "--data", data, *flags)


def write(o, data, name, tokens):
    """Copies a conversation of two turns."""
    with daemon(o, data) as client:
        client.open(name)
        past = client.open(name)
        for _ in range(2):
            ask_ms(client, past, tokens)
    journal.fill(data, o.stored, o.stored)


def mib(daemon):
    return journal.resident(daemon.process.pid) / (1 << 20)


def ask_ms(client, conversation, tokens):
    request = conversations.TurnRequest(conversation=conversation, text="And of the sea?")
    request.sampling.max_tokens = tokens
    begun = time.perf_counter()
    list(client.conversations.Turn(request))
    return 1000 * (time.perf_counter() - begun)


def ask_all(client, ids, tokens):
    """What each turn took, N_AT_ONCE at a time, so that turns share the disk's synchronisations."""
    with concurrent.futures.ThreadPoolExecutor(N_AT_ONCE) as pool:
        return list(pool.map(lambda id: ask_ms(client, id, tokens), ids))


def listed(client):
    token, n = "", 0
    while n == 0 or token:
        page = client.conversations.List(conversations.ConversationsListRequest(page_size=1000, page_token=token))
        n, token = n + len(page.conversations), page.next_page_token
    return n


def percentile(times, of):
    return sorted(times)[int(of * (len(times) - 1))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("file")
    parser.add_argument("--stored", type=int, default=1000000)
    parser.add_argument("--turns", type=int, default=50000)
    parser.add_argument("--unload-size", type=int, default=16)
    parser.add_argument("--data")
    parser.add_argument("--model", action="store_true")
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args()
    o.build = os.path.abspath(o.build)
    name, tokens, chance = "model" if o.model else "echo", 1 if o.model else 64, random.Random(51)
    bound = ["--unload-size", f"{o.unload_size}M"]
    said = {"turns": o.turns, "unload_size_mib": o.unload_size}
    with journal.folder(o) as few, contextlib.nullcontext(o.data) if o.data else journal.folder(o) as many:
        begun = time.monotonic()
        if not os.path.exists(many + "/journal.db"):
            write(o, many, name, tokens)
        with contextlib.closing(sqlite3.connect(many + "/journal.db")) as db:
            ids = [id.hex() for (id,) in db.execute("SELECT id FROM conversation WHERE NOT is_closed")]
        said |= {"stored": len(ids), "written_s": time.monotonic() - begun, "file_mib": os.path.getsize(many + "/journal.db") / (1 << 20)}
        alone, beside = daemon(o, few, *bound), daemon(o, many, *bound)
        with alone as one, beside as other:
            mine = [one.open(name) for _ in range(64 * N_AT_ONCE)]  # so that turns seldom wait for one of their own conversation
            ask_all(one, mine, tokens)
            ask_all(other, chance.sample(ids, min(200, len(ids))), tokens)
            said |= {"one_mib": mib(alone), "started_mib": mib(beside)}
            assert listed(other) == len(ids)
            said["listed_mib"] = mib(beside)
            times, memory = {True: [], False: []}, []
            for i in range(N_ROUNDS):
                for is_many in (i % 2 == 0, i % 2 != 0):
                    n = o.turns // N_ROUNDS
                    times[is_many] += ask_all(other, chance.choices(ids, k=n), tokens) if is_many else ask_all(one, chance.choices(mine, k=n), tokens)
                memory.append(mib(beside))
                if not o.json:
                    print(f"{(i + 1) * (o.turns // N_ROUNDS):,} turns: {memory[-1]:.1f} MiB, the daemon with few {mib(alone):.1f}", flush=True)
    said |= {"memory_mib": memory, "growth_mib": memory[-1] - memory[N_ROUNDS // 2 - 1]}
    for of, key in ((0.5, "p50"), (0.99, "p99")):
        there, here = percentile(times[True], of), percentile(times[False], of)
        said |= {f"{key}_ms": there, f"{key}_one_ms": here, f"{key}_ratio": there / here}
    said["mean_ratio"] = statistics.fmean(times[True]) / statistics.fmean(times[False])
    if o.json:
        print(json.dumps(said))
    else:
        print(" ".join(f"{key}={value:.3f}" if isinstance(value, float) else f"{key}={value}" for key, value in said.items() if key != "memory_mib"))
    is_good = said["growth_mib"] <= MOST_GROWTH_MIB and max(memory) - said["one_mib"] <= STORE_MIB + 2 * o.unload_size and said["p99_ratio"] <= MOST_RATIO
    sys.exit(0 if is_good else 3)


if __name__ == "__main__":
    main()
