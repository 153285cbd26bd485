#!/usr/bin/env python3
"""One sha256 over what must be the same bytes on every processor, for each set of instructions: those of this x86-64, and those of 64-bit Arm
under qemu. Its parts: the logits of every architecture of tests/arch (small random models), the logits of golden prompts with their replies,
the file of an agent that learned from text and the report of its evaluation, what a policy draws, and a conversation that x86-64 journalled
before it was killed amid a turn: each side ends that turn and answers another, held to a schema where the grammar module is built.

usage: one_sum.py [--golden N] [--sets NAME,…] X86_BUILD ARM64_BUILD SYSROOT MODEL      with build/venv's Python
       --golden  the most tokens of golden prompts and replies (64; 0: none, and no MODEL is read)
       --sets    those alone (all that this machine has)

Exits with 0 when there is one sum, 3 when there are several, 1 when it could not be told."""
import argparse
import hashlib
import json
import os
import pathlib
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import urllib.request

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "arch"), str(HERE.parent / "integration")]

import children  # noqa: E402
import models  # noqa: E402
import numpy as np  # noqa: E402
import parley  # noqa: E402

X86, ARM64 = ("avx2", "vnni256", "avx512"), ("neon", "dotprod", "i8mm")
N_TOKENS = 24
GRAMMAR = "agents/lm/grammar/libparley-grammar.so"
N_CUT = 1000  # tokens of the turn that is cut
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "yes"]}}, "required": ["a", "b"]}
LEARN = ["--agent", "seq2seq", "-esz", "16", "-hs", "16", "-eps", "1", "-tr", "16", "-bs", "4", "-dt", "train:ordered", "--threads", "1"]


class Lacking(SystemExit):
    """The processor lacks a set of instructions."""


class Side:
    """The programs of a build, with what runs them here, held to a set of instructions. compile is how parleyd starts what compiles schemas:
    the kernel cannot start a program for another processor."""

    def __init__(self, build, name, runs=(), folder=None):
        self.build, self.name, self.runs = pathlib.Path(build).resolve(), name, list(runs)
        self.env = {**os.environ, "PARLEY_CPU": name}
        self.compile = self.build / "server/compile/parley-compile"
        if runs:
            script = folder / f"{name}-compile"
            script.write_text(f'#!/bin/sh\nexec {shlex.join(self.runs)} {shlex.quote(str(self.compile))} "$@"\n')
            script.chmod(0o755)
            self.compile = script

    def command(self, program, *words):
        return [*self.runs, str(self.build / program), *map(str, words)]

    def run(self, program, *words):
        done = children.run(self.command(program, *words), timeout=3600, env=self.env, capture_output=True, text=True)
        if "which this processor does not have" in done.stderr:
            raise Lacking(f"one_sum: this processor has no {self.name}")
        if done.returncode != 0:
            raise SystemExit(f"one_sum: {self.name}: {program} {' '.join(map(str, words))}: exit {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def logits(self, model, ids, folder):
        given, got = folder / "ids", folder / "logits"
        np.array(ids, np.int32).tofile(given)
        self.run("tests/arch/arch_logits", model, "cpu", "f16", given, got, 0, "once")
        return got.read_bytes()


class Daemon(children.Daemon):
    def __init__(self, side, *flags):
        super().__init__(side.build / "parleyd", *flags)
        self.command = ["env", f"PARLEY_CPU={side.name}", f"PARLEY_COMPILE={side.compile}", *side.runs, *self.command]

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.listener.join()


def golden_ids(most):
    """Of the golden prompts with their replies those that are not more tokens, from the first on."""
    found = []
    for line in (HERE.parent / "golden/greedy.jsonl").read_text().splitlines():
        one = json.loads(line)
        ids = one["prompt_ids"] + one["reply_ids"]
        if len(ids) <= most:
            found.append(ids)
            most -= len(ids)
    return found


def write_dialogues(path, seed):
    """Questions whose answer can be learned, in the format of ParlAI."""
    draw = random.Random(seed)
    lines = []
    for _ in range(60):
        words = [draw.randrange(8) for _ in range(3)]
        lines.append(f"text:{' '.join(f'w{word}' for word in words)}\tlabels:v{words[0]}\tepisode_done:True\n")
    path.write_text("".join(lines))


def said(daemon, body):
    """What a model says over HTTP."""
    request = urllib.request.Request(f"http://{daemon.http}/v1/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=children.PATIENCE) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


class Parts:
    """What each side computes; given: what all sides read."""

    def __init__(self, folder, x86, model, n_golden, with_schema):
        self.folder, self.model, self.with_schema = folder, model, with_schema
        self.golden = golden_ids(n_golden)
        self.archs = {}
        for name, one in models.all_models().items():
            one.write(folder / f"{name}.gguf")
            self.archs[name] = np.random.default_rng(99).integers(0, one.n["vocab"], N_TOKENS)
        for name, seed in (("learned", 3), ("held_out", 4)):
            write_dialogues(folder / f"{name}.txt", seed)
        x86.run("parley", "train", "cartpole", "--episodes", 3, "--hidden", 16, "--observers", 2, "--out", folder / "pole.gguf")
        x86.run("tests/integration/write_tiny_model", folder / "tiny.gguf", 4096)
        self.begin_conversation(x86)

    def served(self, side, data):
        return Daemon(side, "--model", f"tiny={self.folder}/tiny.gguf", "--http", "127.0.0.1:0", "--data", data)

    def begin_conversation(self, x86):
        """Two conversations of the same words: one is told whole, the other is killed amid its second turn."""
        daemon = self.served(x86, self.folder / "begun")
        daemon.__enter__()
        with parley.connect(daemon.address, patience=0) as server:
            whole, cut = (server.open("tiny", temperature=1, ignore_eos=True, seed=5) for _ in range(2))
            for chat in (whole, cut):
                chat.ask("Tell me a story.", max_tokens=40)
            self.whole = whole.ask("Go on.", max_tokens=N_CUT).text
            turn, self.began = cut.turn("Go on.", max_tokens=N_CUT), ""
            while turn.cursor is None or turn.cursor.index < 20:
                self.began += next(turn)
            self.cut, self.cursor = cut.id, turn.cursor
            daemon.kill()

    def architectures(self, side):
        for name, ids in self.archs.items():
            yield name.encode() + side.logits(self.folder / f"{name}.gguf", ids, self.folder)

    def golden_replies(self, side):
        for ids in self.golden:
            yield side.logits(self.model, ids, self.folder)

    def agent(self, side):
        learned, path = self.folder / "learned.txt", self.folder / f"{side.name}.agent.gguf"
        side.run("parley", "train", "-t", f"parlai:{learned}", *LEARN, "-mf", path)
        yield path.read_bytes()
        yield side.run("parley", "eval", "-t", f"parlai:{self.folder}/held_out.txt", "-mf", path, "--json", "--threads", 1).encode()

    def policy(self, side):
        """Six sessions of one run, whose actions are drawn: what is drawn, its log-probability, and the value."""
        observations = np.random.default_rng(7).normal(size=(20, 6, 4)).astype(np.float32)
        with Daemon(side, "--model", f"pole={self.folder}/pole.gguf", "--http", "off") as daemon, \
                parley.connect(daemon.address) as server, parley.Act(server, "pole", 6, run=5) as act:
            for step in observations:
                out = act.act(step)
                for name in sorted(out):
                    yield name.encode() + np.ascontiguousarray(out[name]).tobytes()

    def conversation(self, side):
        """What was begun on x86-64 goes on: the turn that was cut, the next one, and what is held to a schema."""
        data = self.folder / f"{side.name}.data"
        shutil.copytree(self.folder / "begun", data)
        with self.served(side, data) as daemon, parley.connect(daemon.address) as server:
            chat = server.conversation(self.cut)
            rest = chat.resume(self.cursor).reply().text
            next_reply = chat.ask("And then?", max_tokens=40).text
            kept = chat.get()
            if kept.continued_inexactly or kept.turns != 3 or not self.began + rest == kept.transcript[1].reply == self.whole:
                raise SystemExit(f"one_sum: {side.name}: the conversation does not go on exactly: {kept}")
            yield next_reply.encode()
            if self.with_schema:
                reply = said(daemon, {"model": "tiny", "messages": [{"role": "user", "content": "Go."}], "temperature": 1, "seed": 5, "max_tokens": 60,
                                      "response_format": {"type": "json_schema", "json_schema": {"name": "ab", "strict": True, "schema": SCHEMA}}})
                yield reply.encode()

    def sums(self, side):
        """{part: sha256}."""
        found = {}
        for part in (self.architectures, self.golden_replies, self.agent, self.policy, self.conversation):
            whole = hashlib.sha256()
            for piece in part(side):
                whole.update(hashlib.sha256(piece).digest())
            found[part.__name__] = whole.hexdigest()
        return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--golden", type=int, default=64)
    parser.add_argument("--sets", type=lambda text: text.split(","))
    parser.add_argument("x86")
    parser.add_argument("arm64")
    parser.add_argument("sysroot")
    parser.add_argument("model")
    given = parser.parse_args()
    with_schema = all((pathlib.Path(build) / GRAMMAR).exists() for build in (given.x86, given.arm64))
    sums = {}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        sides = [Side(given.x86, name) if name in X86 else Side(given.arm64, name, ["qemu-aarch64", "-L", os.path.abspath(given.sysroot)], folder)
                 for name in given.sets or [*X86, *ARM64]]
        parts = Parts(folder, Side(given.x86, ""), given.model, given.golden, with_schema)
        print(f"{len(parts.archs)} architectures, {sum(map(len, parts.golden))} golden tokens, {'a' if with_schema else 'no'} schema")
        for side in sides:
            try:
                found = parts.sums(side)
            except Lacking as lacking:
                if given.sets:
                    raise
                print(lacking, flush=True)
                continue
            sums[side.name] = hashlib.sha256("".join(found.values()).encode()).hexdigest()
            print(f"{side.name:8}", *(f"{part} {one[:12]}" for part, one in found.items()), sums[side.name], flush=True)
    different = set(sums.values())
    print(f"one sum: {different.pop()}" if len(different) == 1 else f"DIFFERENT: {len(different)} sums")
    return 0 if len(set(sums.values())) == 1 else 3


sys.exit(main())
