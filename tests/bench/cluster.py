#!/usr/bin/env python3
"""Daemons that share a PostgreSQL, each part as a ratio or a count in one run: what clients were told in 300 faults, by test_cluster.py; echo
turns at 256 in flight beside the same rows inserted by libpq alone; tokens a processor second of three daemons beside those of one.

usage: postgres.sh cluster.py BUILD_DIR MODEL.gguf [--rounds N] [--only faults|echo|tokens] [--seed N] [--json]

The faults' histories are kept in build/cluster: an interrupted bench goes on where it was. They are 240 of six kinds, 30 daemons that stand
still for 30 s, and 30 failovers to a synchronous standby. Exit 3: something was lost, doubled or another reply, or three daemons have less
than 0.95 of the tokens a processor second that one has. The inserts are an aim, 0.5, and end nothing.
"""
import argparse
import concurrent.futures
import contextlib
import json
import os
import statistics
import subprocess
import sys

import journal
import loads
from harness import conversations

LEAST_TOKENS, AIM_ECHO, N_AT_ONCE, N_TURNS, N_ROWS = 0.95, 0.5, 256, 40, 16
POSTGRES = os.environ["PARLEY_TEST_POSTGRES"]
HERE = os.path.dirname(os.path.abspath(__file__))


def psql(url, *statements):
    command = ["psql", "-qtA", url, *(word for one in statements for word in ("-c", one))]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()


def database(o, name):
    psql(POSTGRES, f"DROP DATABASE IF EXISTS {name} (FORCE)", f"CREATE DATABASE {name}")
    url = POSTGRES.replace("/postgres?", f"/{name}?")
    subprocess.run([os.path.join(o.build, "parleyd"), "--init-data", "--data", url], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return url


def faults(o):
    """Each failover has a PostgreSQL of its own."""
    keep = os.path.join(os.path.dirname(o.build), "cluster")
    test = [os.path.join(HERE, "../support/postgres.sh"), sys.executable, os.path.join(HERE, "../history/test_cluster.py"),
            os.path.join(o.build, "parleyd"), os.path.join(o.build, "tests/integration/write_tiny_model"), "--keep", keep]
    plan = [(o.seed, "--faults", "240"), (o.seed + 1000, "--faults", "30", "--only", "stopped", "--stop", "30", "--clients", "4"),
            *((o.seed + 2000 + i, "--faults", "1", "--only", "failed_over", "--clients", "4") for i in range(30))]
    broken = [seed for seed, *more in plan if subprocess.run([*test, "--seed", str(seed), *more], stdout=sys.stderr).returncode != 0]
    return {"runs": len(plan), "broken": len(broken), "seeds": " ".join(map(str, broken)) or "-"}


def echo(o):
    """In turns. The rows' sizes are those that the daemon writes."""
    load = ["--model", "echo", "--multiplexed", "--input-tokens", "8", "--output-tokens", "8", "--concurrency", str(N_AT_ONCE), "--requests",
            str(N_AT_ONCE), "--turns", str(N_TURNS)]
    ratios, rates, bare_rates = [], [], []
    for _ in range(o.rounds):
        url = database(o, "echo")
        daemon = loads.Daemon(o.build, o.model, "--data", url, "--kv-bytes", "16M")
        with daemon as client:
            list(client.conversations.Turn(conversations.TurnRequest(conversation=client.open("echo"), turn=1, text="of the sea and its many waves")))
            sizes = [psql(url, f"SELECT octet_length(body) FROM parley.event WHERE kind = {kind}") for kind in (3, 4)]
            rates.append(loads.bench(o.build, daemon.url, *load)["request_s"])
        psql(url, "CREATE SCHEMA bare", "CREATE TABLE bare.event (LIKE parley.event INCLUDING ALL)")
        bare = [os.path.join(o.build, "tests/bench/bench_inserts"), url, str(N_AT_ONCE), str(N_TURNS), *sizes]
        bare_rates.append(float(subprocess.run(bare, check=True, stdout=subprocess.PIPE).stdout))
        ratios.append(rates[-1] / bare_rates[-1])
    return {"ratio": statistics.median(ratios), "least": min(ratios), "most": max(ratios), "turns_s": statistics.median(rates),
            "bare_turns_s": statistics.median(bare_rates), "rounds": o.rounds}


def tokens(o):
    """One thread each, as many rows a step at each. The three are asked at once."""
    load = ["--model", "model", "--concurrency", str(N_ROWS), "--requests", str(N_ROWS), "--turns", "2", "--input-tokens", "64", "--output-tokens",
            "64", "--seed"]
    ratios, rates = [], {1: [], 3: []}
    flags = ["--threads", "1", "--kv-bytes", "256M"]
    one, shared = database(o, "one"), database(o, "three")
    groups = {1: [loads.Daemon(o.build, o.model, *flags, "--data", one)], 3: [loads.Daemon(o.build, o.model, *flags, "--data", shared) for _ in range(3)]}
    with contextlib.ExitStack() as stack, concurrent.futures.ThreadPoolExecutor(3) as pool:
        for daemon in groups[1] + groups[3]:
            stack.enter_context(daemon)
        for i in range(o.rounds + 1):
            for group in groups.values() if i % 2 else reversed(groups.values()):
                before = sum(journal.daemon_cpu_s(daemon.process.pid) for daemon in group)
                said = list(pool.map(lambda daemon, i=i: loads.bench(o.build, daemon.url, *load, str(i + 1)), group))
                assert not any(one["failed"] for one in said), said
                n = 2 * N_ROWS * 64 * len(group)
                rates[len(group)].append(n / (sum(journal.daemon_cpu_s(daemon.process.pid) for daemon in group) - before))
            ratios.append(rates[3][-1] / rates[1][-1])
    ratios = ratios[1:]  # the first load fills caches
    return {"ratio": statistics.median(ratios), "least": min(ratios), "most": max(ratios), "tok_cpu_s": statistics.median(rates[3][1:]),
            "one_tok_cpu_s": statistics.median(rates[1][1:]), "rounds": o.rounds}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("faults", "echo", "tokens"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args()
    o.build = os.path.abspath(o.build)
    said = {}
    for part in (faults, echo, tokens):
        if o.only in (None, part.__name__):
            said[part.__name__] = part(o)
            if not o.json:
                print(part.__name__, " ".join(f"{key}={value:.3f}" if isinstance(value, float) else f"{key}={value}" for key, value in said[part.__name__].items()), flush=True)
    if o.json:
        print(json.dumps(said))
    is_good = said.get("faults", {"broken": 0})["broken"] == 0 and said.get("tokens", {"ratio": 1})["ratio"] >= LEAST_TOKENS
    sys.exit(0 if is_good else 3)


if __name__ == "__main__":
    main()
