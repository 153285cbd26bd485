#!/usr/bin/env python3
"""parleyd beside a peer with the same model, in turns: pair by pair, so that whatever else the machine does meets both.

usage: compare.py BUILD_DIR MODEL.gguf --peer http://HOST:PORT [--pairs N] [--rows ROW,…] [--json]
       compare.py BUILD_DIR MODEL.gguf --openvino MODEL.gguf [--pairs N] [--rows ROW,…] [--json]

--peer: a server that speaks OpenAI's API, loaded by the same client. It is the caller's, started with room for what the rows ask of it:
llama-server's context is shared out among its slots, so `-np 64 -c 32768` holds 512 tokens a conversation, enough for `1`, `8` and `64`;
`-c 131072` makes that 2,048, enough for all rows.
--openvino: OpenVINO GenAI in a process of its own, by the Python that OPENVINO_PYTHON names (openvino.sh makes one); no wire at all.
"""
import argparse
import itertools
import json
import os
import signal
import subprocess
import sys

import loads

HERE = os.path.dirname(os.path.abspath(__file__))
TOK_S, MS, S = ("tok/s", True), ("ms", False), ("s", False)  # unit, more is better


def figure(name):
    return lambda figures: figures.get(name)


def prefill_rate(figures):
    return 512e3 / figures["ttft_ms_p50"] if figures["ttft_ms_p50"] else None


def last_turn(figures):
    return figures["ttft_ms_p50_by_turn"][-1]


# A row: its load (conversations, all at once; tokens in and out; more options), and what is read from it.
ROWS = {
    "1": ((1, 64, 64), [("1 conversation, 64/64", TOK_S, figure("output_tok_s"))]),
    "8": ((8, 64, 64), [("8 conversations, 64/64", TOK_S, figure("output_tok_s"))]),
    "64": ((64, 64, 64), [("64 conversations, 64/64", TOK_S, figure("output_tok_s")), ("TTFT p99 of 64 at once", MS, figure("ttft_ms_p99"))]),
    "prefill": ((1, 512, 1), [("prefill of 512", TOK_S, prefill_rate)]),
    "turn8": ((1, 186, 64, "--turns", 8, "--background", 16), [("TTFT of turn 8, 16 speak", MS, last_turn)]),
    "long": ((64, 1024, 64), [("64 × 1,024/64, all of it", S, figure("duration_s"))]),
}
LONG_PAIRS = 2  # `long` takes minutes
SEEDS = itertools.count(1)  # one for each pair of all rows: of equal seeds a short prompt is the beginning of a long one, and cached


class Server:
    """One that parley bench loads."""

    def __init__(self, build, url, rows=tuple(ROWS)):
        self.build, self.url, self.rows = build, url, rows

    def load(self, seed, n, n_in, n_out, *more):
        options = ["--concurrency", n, "--requests", n, "--input-tokens", n_in, "--output-tokens", n_out, "--seed", seed, *more]
        return loads.bench(self.build, self.url, *options)

    def close(self):
        pass


class Process:
    """A peer in a process of its own, which is stopped while it has nothing to do: its idle threads may spin."""

    def __init__(self, name, *command):
        self.name = name
        self.process = subprocess.Popen([*map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended with {self.process.wait()}")
        self.process.send_signal(signal.SIGSTOP)
        return json.loads(line)

    def ask(self, **request):
        self.process.send_signal(signal.SIGCONT)
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return self.answer()

    def load(self, seed, n, n_in, n_out, n_shared=0):
        return self.ask(seed=seed, n=n, n_in=n_in, n_out=n_out, n_shared=n_shared)

    def close(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.close()
        self.process.wait()


class OpenVino(Process):
    rows = ("1", "8", "64", "prefill", "long")

    def __init__(self, model, *flags):
        name = "OpenVINO (OPENVINO_PYTHON names the Python that has it, openvino.sh makes one)"
        super().__init__(name, os.environ.get("OPENVINO_PYTHON", "python3"), f"{HERE}/openvino_peer.py", model, *flags)


def run_row(row, n_pairs, ours, theirs, failed):
    load, figures = ROWS[row]
    ratios = [loads.Ratio(name, *kind) for name, kind, _ in figures]
    for pair in range(n_pairs):
        loads.progress(f"row {row}, pair {pair + 1} of {n_pairs}")
        measured, seed = {}, next(SEEDS)
        for side in (ours, theirs) if pair % 2 == 0 else (theirs, ours):
            measured[side] = side.load(seed, *load)
            failed[side] += measured[side].get("failed", 0)
        if "--turns" not in load and measured[ours]["cached_tokens"]:
            raise SystemExit(f"row {row}: {measured[ours]['cached_tokens']} tokens were cached: a peer that caches none would look slower than it is")
        for ratio, (_, _, read) in zip(ratios, figures):
            ratio.add(read(measured[ours]), read(measured[theirs]))
    loads.progress("")
    return [ratio.summary() for ratio in ratios if any(ratio.theirs)]


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1])
    parser.add_argument("build")
    parser.add_argument("model")
    peer = parser.add_mutually_exclusive_group(required=True)
    peer.add_argument("--peer")
    peer.add_argument("--openvino")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--rows")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    theirs = OpenVino(args.openvino) if args.openvino else Server(args.build, args.peer)
    rows = args.rows.split(",") if args.rows else theirs.rows
    if unknown := [row for row in rows if row not in theirs.rows]:
        parser.error(f"there is no row '{unknown[0]}'; there are {','.join(theirs.rows)}")
    summaries = []
    with loads.Daemon(args.build, args.model) as client:
        ours = Server(args.build, f"parley://{client.address}")
        failed = {ours: 0, theirs: 0}
        for side in (ours, theirs):  # both have been asked once before the first pair
            side.load(0, 1, 64, 8)
        for row in rows:
            pairs = min(args.pairs, LONG_PAIRS) if row == "long" else args.pairs
            figures = run_row(row, pairs, ours, theirs, failed)
            summaries += figures
            if not args.json:
                loads.show(figures, "theirs", header=row == rows[0])
    theirs.close()
    if args.json:
        print(json.dumps({"rows": summaries, "failed": {"ours": failed[ours], "theirs": failed[theirs]}}))
    else:
        print("ratio: above 1, ours is the better; the median of the pairs")
        if failed[ours] or failed[theirs]:
            print(f"turns that failed: {failed[ours]} of ours, {failed[theirs]} of theirs")
    return 1 if failed[ours] else 0


if __name__ == "__main__":
    sys.exit(main())
