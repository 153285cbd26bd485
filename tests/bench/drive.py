#!/usr/bin/env python3
"""What one core of a client drives: parley bench on one processor, parleyd with echo on another. Its processor time counts, which is
the same on a busy machine; the clock's rate is what both get of their processors. Then 10,000 conversations that are open at once.
Exit 3 below 60,000 turns a second of the client's processor time, or when the server has other than 10,000 conversations.

usage: drive.py BUILD_DIR
"""
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
import children  # noqa: E402

LEAST, N_OPEN, N_TURNS = 60000, 10000, 1000


def on(processor):
    return ["taskset", "-c", str(processor % os.cpu_count())]


def drive(build, address, concurrency, *options):
    load = ["--model", "echo", "--input-tokens", "8", "--output-tokens", "8", "--concurrency", str(concurrency), "--turns", str(N_TURNS), *options]
    command = [*on(1), f"{build}/parley", "bench", f"parley://{address}", "--json", "--requests", str(concurrency), *load]
    figures = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    per_cpu_s = figures["completed"] / figures["client_cpu_s"]
    share = figures["client_cpu_s"] / figures["duration_s"]
    how = "a stream for all" if options else "a call each"
    print(f"{concurrency} at once, {how}: {figures['request_s']:,.0f} turns/s by {100 * share:.0f} % of a processor, {per_cpu_s:,.0f} a second of its time; p99 {figures['p99_e2el_ms']:.1f} ms")
    return per_cpu_s


def hold(build, address):
    """Opens them, then waits until the server has all: they think."""
    load = ["--model", "echo", "--input-tokens", "8", "--output-tokens", "8", "--multiplexed", "--concurrency", str(N_OPEN), "--turns", "2", "--think", "3600"]
    begun = time.monotonic()
    bench = children.start([f"{build}/parley", "bench", f"parley://{address}", "--json", *load], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    n = 0

    def all_open():
        nonlocal n
        said = subprocess.run([f"{build}/parley", "status", "--json", "--server", address], check=True, stdout=subprocess.PIPE, text=True).stdout
        n = json.loads(said)["conversations"]
        return n >= N_OPEN

    children.until("10,000 open conversations", all_open, bench)
    print(f"{n:,} conversations open at once after {time.monotonic() - begun:.1f} s")
    bench.send_signal(signal.SIGINT)
    figures = json.loads(bench.communicate(timeout=children.PATIENCE)[0])
    return n == N_OPEN and figures["failed"] == 0


def main():
    build = sys.argv[1]
    with children.Daemon(f"{build}/parleyd") as daemon:
        subprocess.run(["taskset", "-a", "-p", "-c", "0", str(daemon.process.pid)], check=True, stdout=subprocess.DEVNULL)
        drive(build, daemon.address, 64)
        best = max(drive(build, daemon.address, n, "--multiplexed") for n in (64, 256))
        is_good = hold(build, daemon.address) and best >= LEAST
    sys.exit(0 if is_good else 3)


main()
