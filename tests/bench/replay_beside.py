#!/usr/bin/env python3
"""Replay beside DeepMind's Reverb: items of 4 kB, one step each, inserted one by one by a writer, or 64 at once, and drawn uniformly by 1 and by 4 clients, each through its own
Python package, rounds interleaved. Items a second, medians, and their ratio.

usage: replay_beside.py BUILD MODEL PYTHON_OF_REVERB [SECONDS [ROUNDS]]      (run by the interpreter that has grpcio; `./run bench replay --reverb`)"""
import os
import pathlib
import statistics
import subprocess
import sys

PEER = str(pathlib.Path(__file__).with_name("reverb_peer.py"))
CLIENTS = (1, 4)


def start(python, *args, **environment):
    return subprocess.Popen([python, PEER, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment})


def said(process):
    line = process.stdout.readline()
    assert line, f"{process.args} ended with {process.wait()}"
    return line.strip()


def together(clients, what, seconds):
    """Items a second of all of them."""
    for c in clients:
        c.stdin.write(f"{what} {seconds}\n")
        c.stdin.flush()
    return sum(float(said(c)) for c in clients)


def main():
    parleyd, python = f"{sys.argv[1]}/parleyd", sys.argv[3]
    seconds, rounds = (float(sys.argv[4]) if sys.argv[4:] else 2.0), (int(sys.argv[5]) if sys.argv[5:] else 5)
    daemon = subprocess.Popen([parleyd, "--listen", "127.0.0.1:0", "--http", "off", "--log-level", "warn"], stderr=subprocess.PIPE, text=True)
    server = start(python, "reverb", "--serve")
    clients = []
    try:
        address = next(dict(w.split("=", 1) for w in line.split()[1:])["grpc"] for line in daemon.stderr if line.startswith("ready "))
        package = os.environ["PARLEY_PACKAGE"]
        ours = [start(sys.executable, "parley", "--client", address, PYTHONPATH=package) for _ in range(max(CLIENTS))]
        theirs = [start(python, "reverb", "--client", said(server)) for _ in [0]]
        theirs += [start(python, "reverb", "--client", theirs[0].args[-1]) for _ in range(max(CLIENTS) - 1)]
        clients = ours + theirs
        for c in clients:
            assert said(c) == "ready"
        for what in ("insert", "insert_all", "sample"):
            for n in CLIENTS:
                pairs = [(together(ours[:n], what, seconds), together(theirs[:n], what, seconds)) for _ in range(rounds)]
                ratio = statistics.median(a / b for a, b in pairs)
                print(f"{what:10} {n} clients  parley {statistics.median(a for a, _ in pairs):8,.0f} items/s  "
                      f"reverb {statistics.median(b for _, b in pairs):8,.0f}  ratio {ratio:.2f}", flush=True)
    finally:
        for process in (*clients, server, daemon):
            process.kill()
            process.wait()


main()
