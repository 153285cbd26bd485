#!/usr/bin/env python3
"""How exactly each quantised type is computed: the default model is written in each of them by llama-quantize, and
the log-probabilities of a text are compared with those that llama.cpp computes of the same weights in f32, for both
engines. The second half of each 512 tokens counts.

usage: kl.py BUILD_DIR MODEL.gguf [TYPE…]    LLAMA_CPP names the folder with llama-quantize and llama-perplexity
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
TYPES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K", "IQ4_NL", "IQ4_XS", "F16", "BF16"]
TEXT = HERE.parent.parent / "LICENSE"
CHUNK = 512
MOST = 1.1  # times llama.cpp's mean KL; below FINE both are as good as exact
FINE = 0.001
LEAST = -16  # log-probabilities below it are not in the file; llama-perplexity leaves them out, too


def run(command, llama=None):
    env = dict(os.environ, LD_LIBRARY_PATH=llama) if llama else None
    done = subprocess.run([str(c) for c in command], env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"kl: {command[0]}: {done.stderr[-2000:]}")
    return done.stdout + done.stderr


def log_softmax(x):
    x = x.astype(np.float64)
    x -= x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


class Base:
    """What llama-perplexity has written of the weights in f32: tokens, and log-probabilities in 16 bits."""

    def __init__(self, path):
        data = path.read_bytes()
        if data[:8] != b"_logits_":
            raise SystemExit(f"kl: {path}: not a file of llama-perplexity")
        n_context, self.n_vocab, self.n_chunks = np.frombuffer(data, np.int32, 3, 8)
        if n_context != CHUNK:
            raise SystemExit(f"kl: {path}: contexts of {n_context}")
        self.ids = np.frombuffer(data, np.int32, self.n_chunks * CHUNK, 20).reshape(-1, CHUNK)
        row = 2 * ((self.n_vocab + 1) // 2) + 4
        self.rows = np.frombuffer(data, np.uint16, offset=20 + self.ids.nbytes).reshape(self.n_chunks, -1, row)

    def logprobs(self, chunk):
        scales = np.ascontiguousarray(self.rows[chunk, :, :4]).view(np.float32).astype(np.float64)
        return self.rows[chunk, :, 4 : 4 + self.n_vocab] * scales[:, :1] + scales[:, 1:]


def ours(build, path, base, folder):
    program, given, got = pathlib.Path(build) / "tests" / "arch" / "arch_logits", folder / "ids", folder / "logits"
    kl, same, n = 0.0, 0, 0
    for chunk in range(base.n_chunks):
        base.ids[chunk].tofile(given)
        run([program, path, "cpu", "f16", given, got, "0", "once"])
        mine = log_softmax(np.fromfile(got, np.float32).reshape(CHUNK, -1)[CHUNK // 2 : CHUNK - 1])
        want = base.logprobs(chunk)
        kl += np.where(want > LEAST, np.exp(want) * (want - mine), 0).sum()
        same += (want.argmax(axis=1) == mine.argmax(axis=1)).sum()
        n += len(want)
    return kl / n, same / n


def compare(build, llama, path, expanded, folder):
    file = folder / "base.kld"
    perplexity = [f"{llama}/llama-perplexity", "-f", TEXT, "-c", CHUNK, "-t", os.cpu_count(), "--kl-divergence-base", file]
    run([*perplexity, "-m", expanded], llama)
    kl, top = ours(build, path, Base(file), folder)
    told = run([*perplexity, "-m", path, "--kl-divergence"], llama)
    mean = re.search(r"Mean\s+KLD:\s+(-?[0-9.]+)", told)
    same = re.search(r"Same top p:\s+([0-9.]+)", told)
    return {"kl": round(float(kl), 5), "top1": round(float(top), 4), "llama_cpp_kl": float(mean[1]),
            "llama_cpp_top1": round(float(same[1]) / 100, 4)}


def main():
    build, model, types = sys.argv[1], sys.argv[2], sys.argv[3:] or TYPES
    llama = os.environ.get("LLAMA_CPP")
    if llama is None:
        raise SystemExit("kl: LLAMA_CPP must name the folder of llama.cpp's programs")
    is_good = True
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        whole, path, expanded = folder / "f32.gguf", folder / "type.gguf", folder / "expanded.gguf"
        run([f"{llama}/llama-quantize", "--allow-requantize", model, whole, "F32"], llama)
        for kind in types:
            run([f"{llama}/llama-quantize", "--allow-requantize", whole, path, kind], llama)
            run([f"{llama}/llama-quantize", "--allow-requantize", path, expanded, "F32"], llama)
            row = compare(build, llama, path, expanded, folder)
            is_worse = row["kl"] > FINE and row["kl"] > MOST * row["llama_cpp_kl"]
            is_good &= not is_worse
            print(json.dumps({"type": kind} | row | ({"worse": True} if is_worse else {})), flush=True)
    return 0 if is_good else 3


if __name__ == "__main__":
    sys.exit(main())
