#!/usr/bin/env python3
"""perf_analyzer, NVIDIA's load tester, unmodified, against a parleyd: echo, policies and a language model; sync, async
and streaming; with sequences and without; compressed; at a rate; with metrics; and through the OpenAI API. Each run must end
with 0 and have measured what it was asked for.

usage: test_perf_analyzer.py PERF_ANALYZER_SH PARLEYD WRITE_TINY_MODEL WRITE_POLICY      (the first fetches it, once)
"""
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request

import children
from children import PATIENCE

N = 20  # requests of a run
POLL_S = 15
ATTEMPTS = 5


class Server(children.Daemon):
    def count(self, name):
        """Of all models, from /metrics."""
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=PATIENCE) as page:
            lines = page.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name + "{"))

    def answered(self):
        return self.count("nv_inference_request_success")


def attempt(command, server, before):
    """One run of the tool: what it said, or None when it hangs though it has all its answers. It throws away what was answered between
    the start of its worker threads and its main thread's next step, and then counts to N for ever: with a second's pause in there
    (strace -e inject=write:delay_enter=1000000:when=7) it never ends, on any model. Where the machine is busy that happens by itself.
    """
    process = children.start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for _ in range(2 * PATIENCE // POLL_S):
        at_rest = server.answered() >= before + N and server.count("nv_inference_pending_request_count") == 0
        try:
            said, _ = process.communicate(timeout=POLL_S)
            assert process.returncode == 0, f"exit {process.returncode}\n{said[-5000:]}"
            return said
        except subprocess.TimeoutExpired:
            if at_rest:
                break
    process.kill()
    said, _ = process.communicate()
    assert at_rest, f"{server.answered() - before:.0f} of {N} are answered\n{said[-5000:]}"
    return None


def run(tool, folder, server, what, *flags):
    """One run; returns the requests that it exports."""
    export = os.path.join(folder, "export.json")
    begun, before = time.monotonic(), server.answered()
    for _ in range(ATTEMPTS):
        if os.path.exists(export):
            os.remove(export)
        if attempt([tool, *flags, "--profile-export-file", export], server, before) is not None:
            break
        print(f"{what}: the tool lost count; again", flush=True)
        before = server.answered()
    with open(export, encoding="utf-8") as f:
        requests = [r for e in json.load(f)["experiments"] for r in e["requests"]]
    assert len(requests) >= N and all(r["response_timestamps"] for r in requests), f"{what}: {len(requests)} requests"
    assert server.answered() >= before + N, f"{what}: {server.answered() - before} answers are counted"
    print(f"{what}: {len(requests)} requests in {time.monotonic() - begun:.1f} s", flush=True)
    return requests


def measure(tool, folder, parleyd, tiny, cart, memory, texts, chats):
    with Server(parleyd, "--http", "127.0.0.1:0", "--model", f"tiny={tiny}", "--model", f"cart={cart}", "--model", f"memory={memory}") as server:

        def kserve(what, model, *flags):
            return run(tool, folder, server, what, "-m", model, "-i", "grpc", "-u", server.address, "--request-count", str(N), *flags)

        closed = ("--concurrency-range", "2")
        kserve("echo", "echo", *closed)
        kserve("echo, async", "echo", *closed, "--async")
        kserve("echo, streaming", "echo", *closed, "--async", "--streaming")
        kserve("echo, gzip, long texts", "echo", *closed, "--string-length", "20000", "--grpc-compression-algorithm", "gzip")
        kserve("echo, at a rate, with parameters", "echo", "--request-rate-range", "20", "--request-parameter", "unheard_of:5:int")
        kserve("echo, with metrics", "echo", *closed, "--collect-metrics", "--metrics-url", f"{server.http}/metrics")
        kserve("policy, with its shape", "cart", *closed, "--shape", "observation:4")
        kserve("policy, async", "cart", *closed, "--async")
        kserve("recurrent policy, sequences", "memory", *closed, "--sequence-length", "5")
        kserve("recurrent policy, sequences, async", "memory", *closed, "--sequence-length", "5", "--async", "--sequence-id-range", "100:200")
        kserve("recurrent policy, sequences, streaming", "memory", *closed, "--sequence-length", "5", "--async", "--streaming")
        said = kserve("language model, sequences, decoupled", "tiny", *closed, "--async", "--streaming", "--sequence-length", "3", "--input-data", texts)
        assert all(len(r["response_timestamps"]) >= 2 for r in said), "replies come in parts"
        run(tool, folder, server, "language model, OpenAI", "-m", "tiny", "-u", server.http, "--service-kind", "openai", "--endpoint", "v1/chat/completions",
            "--async", "--input-data", chats, "--request-count", str(N), *closed)


def main():
    fetch, parleyd, write_tiny_model, write_policy = sys.argv[1:5]
    tool = children.run([fetch], timeout=None, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        tiny, cart, memory, texts, chats = (os.path.join(folder, n) for n in ("tiny.gguf", "cart.gguf", "memory.gguf", "texts.json", "chats.json"))
        children.run([write_tiny_model, tiny], check=True)
        children.run([write_policy, cart], check=True)
        children.run([write_policy, memory, "lstm"], check=True)
        with open(texts, "w", encoding="utf-8") as f:
            json.dump({"data": [{"text_input": ["hello there"], "stream": [True], "sampling_parameters": ['{"max_tokens": 4, "ignore_eos": true}']}]}, f)
        with open(chats, "w", encoding="utf-8") as f:
            chat = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "ignore_eos": True, "stream": True}
            json.dump({"data": [{"payload": [chat]}]}, f)
        measure(tool, folder, parleyd, tiny, cart, memory, texts, chats)


if __name__ == "__main__":
    main()
