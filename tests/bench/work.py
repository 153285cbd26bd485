"""parley.parallel.Pool beside concurrent.futures.ProcessPoolExecutor in one run: tasks a second with 8-byte arguments, one task an
item and the same chunks for both, and with 4 MB arguments, by value and by reference. Rounds take turns; the ratio is the median's.

    work.py BUILD MODEL [--workers N] [--rounds N] [--tasks N]"""
import argparse
import concurrent.futures
import multiprocessing
import os
import statistics
import sys
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../integration"))
sys.path.insert(0, os.environ["PARLEY_PACKAGE"])
import children  # noqa: E402
from parley.parallel import Pool, share  # noqa: E402

BYTES = 4_000_000
MAPS = 50


def double(x):
    return x + x


def first(array):
    return float(array[0]) + len(array)


def rate(n, run):
    start = time.monotonic()
    run()
    return n / (time.monotonic() - start)


def row(name, n, runs, rounds, aim):
    """runs: what to compare, the first is ours and the second the reference."""
    rates = [[] for _ in runs]
    for _ in range(rounds):
        for kept, (_, run) in zip(rates, runs):
            kept.append(rate(n, run))
    medians = [statistics.median(r) for r in rates]
    said = ", ".join(f"{what} {m:,.0f}/s ({min(r):,.0f}–{max(r):,.0f})" for (what, _), m, r in zip(runs, medians, rates))
    print(f"{name}: {medians[0] / medians[1]:.2f} × ProcessPoolExecutor (aim ≥ {aim:g}); {said}", flush=True)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("build")
    options.add_argument("model")
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--tasks", type=int, default=5000)
    o = options.parse_args()
    n, n_big = o.tasks, max(1, o.tasks // 100)
    items = list(range(n))
    arrays = [np.full(BYTES // 8, i, dtype=np.float64) for i in range(4)]
    shared = [share(a) for a in arrays]
    context = multiprocessing.get_context("spawn")
    with children.Daemon(os.path.join(o.build, "parleyd")) as daemon, concurrent.futures.ProcessPoolExecutor(o.workers, context) as peer, \
            Pool(o.workers, address=daemon.address) as pool, \
            Pool(o.workers, is_copy_tensor=False, share_method="cpu", address=daemon.address) as by_reference:
        assert list(peer.map(double, items)) == pool.map(double, items) == [2 * x for x in items]  # all are warm
        expected = [first(arrays[i % 4]) for i in range(n_big)]
        assert by_reference.map(first, [shared[i % 4] for i in range(n_big)], 1) == expected
        row("8 bytes, one task each", n, [("map", lambda: pool.map(double, items, 1)), ("map", lambda: list(peer.map(double, items)))], o.rounds, 1)
        row("8 bytes, submitted one by one", n,
            [("apply_async", lambda: [r.get() for r in [pool.apply_async(double, (x,)) for x in items]]),
             ("submit", lambda: [f.result() for f in [peer.submit(double, x) for x in items]])], o.rounds, 1)
        size = -(-n // (4 * o.workers))
        row(f"8 bytes, chunks of {size}", MAPS * n,  # one map is over in milliseconds
            [("map", lambda: [pool.map(double, items) for _ in range(MAPS)]),
             ("map", lambda: [list(peer.map(double, items, chunksize=size)) for _ in range(MAPS)])], o.rounds, 1)
        by_peer = ("map", lambda: list(peer.map(first, [arrays[i % 4] for i in range(n_big)])))
        row("4 MB by reference, shared before", n_big, [("map", lambda: by_reference.map(first, [shared[i % 4] for i in range(n_big)], 1)), by_peer],
            o.rounds, 3)
        row("4 MB by reference, shared by the call", n_big,
            [("map", lambda: by_reference.map(first, [arrays[i % 4] for i in range(n_big)], 1)), by_peer], o.rounds, 3)
        row("4 MB by value", n_big, [("map", lambda: pool.map(first, [arrays[i % 4] for i in range(n_big)], 1)), by_peer], o.rounds, 1)


if __name__ == "__main__":
    main()
