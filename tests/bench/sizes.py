#!/usr/bin/env python3
"""Files of random weights in the shapes of models that people run: how long they take to load, the memory that they hold, tokens a second at
1, 8 and 64 conversations, a prompt's, and the time to the first token of a conversation's eighth turn, whose earlier ones are cached.
llama-server beside it where LLAMA_CPP names the folder that has it, or llama_server.sh has made one: the same file, the same loads, in
turns, and whoever has none stands still. Where both do not fit into memory together, each is started for each figure.

usage: sizes.py BUILD_DIR MODEL.gguf [SHAPE:TYPE]… [--rounds N] [--tokens N]
       SHAPE:TYPE: of shapes.py; else 8B:Q4_K_M (4.9 GB in build/shapes) and 0.8B:Q4_K_M (0.5 GB)
       --tokens: in and out, of each conversation (32, at least 24); the prompt alone has 8 times as many
"""
import argparse
import http.client
import json
import os
import statistics
import time

import leaderboard
import loads

N_TURNS = 8
LONGEST = 4096  # tokens of eight turns: what random weights say takes up to three times as many when it is read
N_SYSTEM_WORDS, N_WORDS, N_REPLY = 200, 24, 16
DEFAULT = ["8B:Q4_K_M", "0.8B:Q4_K_M"]
SPARE_BYTES = 1 << 30  # for the rest of the machine, where servers are held together


class LlamaServer(leaderboard.LlamaServer):
    """With as many slots as a load has conversations, each with room for one of its own."""

    def __init__(self, build, path, n_tokens):
        super().__init__(build, path, "each", None)
        self.n_tokens = n_tokens

    def start(self, n):
        self.most = LONGEST if n == 1 else 2 * self.n_tokens + 64
        super().start(n)


def resident_bytes(server):
    """Memory of the process, with the pages of a mapped file that it has used."""
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as file:
        sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in file if line.startswith("Rss")}
    return sizes["RssAnon"] + sizes["RssFile"] + sizes["RssShmem"]


def words(seed, n):
    text = leaderboard.TEXT
    return " ".join(text[(seed * 7 + i * (seed % 5 + 1)) % len(text)] for i in range(n))


def ask(server, messages):
    """The seconds to the first token, the reply, and the tokens of the prompt that were cached."""
    line = http.client.HTTPConnection(server.http.removeprefix("http://"), timeout=leaderboard.PATIENCE_S)
    body = {"model": server.model_name, "messages": messages, "max_tokens": N_REPLY, "ignore_eos": True, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}}
    start = time.monotonic()
    line.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer, first, reply, usage = line.getresponse(), None, "", {}
    if answer.status != 200:
        raise SystemExit(f"shapes: {server.name} answers {answer.status}: {answer.read()[:300]!r}")
    for row in answer:
        if not row.startswith(b"data: {"):
            continue
        event = json.loads(row[6:])
        said = event["choices"][0]["delta"].get("content") if event["choices"] else None
        if said:
            first = first or time.monotonic() - start
            reply += said
        usage = event.get("usage") or usage
    line.close()
    return first or time.monotonic() - start, reply, (usage.get("prompt_tokens_details") or {}).get("cached_tokens"), usage.get("prompt_tokens")


def last_turn(server, seed):
    """The time to the first token of turn 8, and what of its prompt was cached."""
    messages = [{"role": "system", "content": words(seed, N_SYSTEM_WORDS)}]
    for turn in range(N_TURNS):
        messages.append({"role": "user", "content": words(seed + turn + 1, N_WORDS)})
        first, reply, n_cached, n_prompt = ask(server, messages)
        messages.append({"role": "assistant", "content": reply})
    return {"s": first, "cached": n_cached, "prompt": n_prompt}


class Load:
    """A figure of loads by `parley bench`."""

    def __init__(self, name, load, read):
        self.name, self.load, self.read, self.unit, self.more_is_better = name, load, read, "tok/s", True

    def __call__(self, server, seed):
        figures = server.load(seed, *self.load)
        if figures["failed"]:
            raise SystemExit(f"shapes: {server.name}: {figures['failed']} requests failed: {figures.get('first_error')}")
        return self.read(figures), ""


class Turn:
    name, unit, more_is_better = f"turn {N_TURNS}, to the first token", "s", False

    def __call__(self, server, seed):
        found = last_turn(server, seed)
        return found["s"], f"{found['cached']} of {found['prompt']} tokens cached"


def figures_of(n):
    for at_once in (1, 8, 64):
        yield Load(f"{at_once} at once, {n}/{n}", (at_once, n, n), lambda f: f["output_tok_s"])
    yield Load(f"prompt of {8 * n}", (1, 8 * n, 1), lambda f: 8e3 * n / f["ttft_ms_p50"])
    yield Turn()


def start(server):
    """The seconds until it has given a first token, and the memory that it then holds."""
    began = time.monotonic()
    server.start(1)
    ask(server, [{"role": "user", "content": "Hello"}])
    return time.monotonic() - began, resident_bytes(server)


def show(name, unit, figures, more_is_better, note=""):
    medians = [statistics.median(one) for one in figures]
    text = "; ".join(f"{one:,.{3 if one < 10 else 1}f}" for one in medians)
    if len(medians) == 2:
        pairs = [a / b if more_is_better else b / a for a, b in zip(*figures)]
        text += f"; ratio {statistics.median(pairs):.2f} ({min(pairs):.2f}–{max(pairs):.2f})"
    print(f"  {name}, {unit}: {text}{'; ' if note else ''}{note}", flush=True)


def read(path):
    """Brings a file into the page cache, so that whoever loads it first does not wait for the disk alone."""
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 24):
            pass


def measure(servers, args, size):
    stay = size * len(servers) + SPARE_BYTES < os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    starts = []
    for server in servers:
        server.stays = stay
        starts.append(start(server))
        server.end()
    show("load", "s", [[s] for s, _ in starts], False)
    show("memory", "GB", [[n / 1e9] for _, n in starts], False)
    for figure in figures_of(args.tokens):
        found, notes = [[] for _ in servers], ["" for _ in servers]
        for i in range(args.rounds):
            seed = next(leaderboard.compare.SEEDS)
            for k in range(len(servers)) if i % 2 == 0 else reversed(range(len(servers))):
                servers[k].begin(figure.load[0] if isinstance(figure, Load) else 1)
                value, notes[k] = figure(servers[k], seed)
                found[k].append(value)
                servers[k].end()
        show(figure.name, figure.unit, found, figure.more_is_better, " and ".join(filter(None, notes)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("model")
    parser.add_argument("files", nargs="*", default=DEFAULT)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=32)
    args = parser.parse_args()
    llama = loads.llama_cpp()
    if llama is None:
        print("shapes: there is no llama-server, so its figures are left out: LLAMA_CPP may name its folder, and tests/bench/llama_server.sh makes one", flush=True)
    else:
        os.environ["LLAMA_CPP"] = llama
    for name in args.files or DEFAULT:
        path, _ = leaderboard.file_of(args.model, name)
        size = os.path.getsize(path)
        servers = [leaderboard.Undrafted(args.build, path, None, None)]
        if llama is not None:
            servers.append(LlamaServer(args.build, path, args.tokens))
        print(f"{name}, {size / 1e9:.2f} GB: {'; '.join(one.name for one in servers)}", flush=True)
        try:
            read(path)
            measure(servers, args, size)
        finally:
            for server in servers:
                server.close()
    loads.progress("")


main()
