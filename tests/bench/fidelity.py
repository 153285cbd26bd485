#!/usr/bin/env python3
"""How exactly `cpu` computes a model, beside the floats of `ref` on the same file: mean KL, the share of positions with the same
likeliest token, and how many greedy replies of 32 tokens are those of the floats; with keys and values as f16 and as q8. By default the
model is the default one; texts are those of tests/golden: passages, and the everyday questions with their replies.

usage: fidelity.py BUILD_DIR MODEL.gguf [SET…]    SET: an instruction set, as PARLEY_CPU names it; none: the machine's own
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"
REPLY = 32


def log_softmax(x):
    x = x.astype(np.float64)
    x -= x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


class Engine:
    """Logits of a file of tokens, by one backend."""

    def __init__(self, build, model, folder, backend, kv, instructions=None):
        self.program, self.model, self.folder, self.how = pathlib.Path(build) / "tests" / "arch" / "arch_logits", model, folder, (backend, kv)
        self.env = dict(os.environ, PARLEY_CPU=instructions) if instructions else None

    def logits(self, ids):
        given, got = self.folder / "ids", self.folder / "logits"
        np.array(ids, np.int32).tofile(given)
        subprocess.run([self.program, self.model, *self.how, given, got, "0", "once"], env=self.env, check=True)
        return np.fromfile(got, np.float32).reshape(len(ids), -1)


def lines(name):
    return [json.loads(line) for line in (GOLDEN / name).read_text().splitlines()]


def texts():
    """Ids, the position of the first logits that count, and the ids of a reply from there on."""
    for passage in lines("passages.jsonl"):
        yield passage["ids"], 0, None
    for question in lines("questions.jsonl"):
        reply = question["ids"][:REPLY]
        yield question["prompt_ids"] + reply[:-1], len(question["prompt_ids"]) - 1, reply


def compare(engine, floats):
    kl, same, equal, n_replies, off = [], [], 0, 0, []
    for (ids, first, reply), want in zip(texts(), floats, strict=True):
        mine = log_softmax(engine.logits(ids)[first:])
        kl.append((np.exp(want) * (want - mine)).sum(axis=1))
        same.append(want.argmax(axis=1) == mine.argmax(axis=1))
        if reply is not None:  # greedy replies are equal as long as each next token is
            n_replies += 1
            equal += bool((mine.argmax(axis=1) == reply).all())
            off.append(abs(want[0, reply[0]] - mine[0, reply[0]]))
    kl, same = np.concatenate(kl), np.concatenate(same)
    return {"positions": len(kl), "kl": round(float(kl.mean()), 6), "kl_99": round(float(np.quantile(kl, 0.99)), 5), "kl_most": round(float(kl.max()), 4),
            "top1": round(float(same.mean()), 4), "replies_equal": equal, "replies": n_replies, "first_token_off": round(float(max(off)), 3)}


def main():
    build, model, sets = sys.argv[1], sys.argv[2], sys.argv[3:] or [None]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        ref = Engine(build, model, folder, "ref", "f32")
        floats = [log_softmax(ref.logits(ids)[first:]) for ids, first, _ in texts()]
        for instructions in sets:
            for kv in "f16", "q8":
                print(json.dumps({"set": instructions or "best", "kv": kv} | compare(Engine(build, model, folder, "cpu", kv, instructions), floats)),
                      flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
