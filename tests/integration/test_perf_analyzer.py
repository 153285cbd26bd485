#!/usr/bin/env python3
"""perf_analyzer, NVIDIA's load tester, unmodified, against a parleyd: echo, policies and a language model; sync, async
and streaming; with sequences and without; compressed; at a rate; with metrics; and through the OpenAI API. Each run must end
with 0 and have measured what it was asked for.

usage: test_perf_analyzer.py PERF_ANALYZER_SH PARLEYD WRITE_TINY_MODEL WRITE_POLICY      (the first fetches it, once)
"""
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

N = 20  # requests of a run


class Parleyd:
    def __init__(self, path, *flags):
        self.process = subprocess.Popen([path, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-level", "warn", *flags], stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if line.startswith("ready "):
                words = dict(word.split("=", 1) for word in line.split()[1:])
                self.grpc, self.http = words["grpc"], words["http"]
                return
        raise AssertionError("parleyd did not start")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        rest = self.process.stderr.read()
        status = self.process.wait(timeout=60)
        assert status == 0, f"parleyd ended with {status}: {rest}"


def run(tool, folder, what, *flags):
    """One run; returns the requests that it exports."""
    export = os.path.join(folder, "export.json")
    if os.path.exists(export):
        os.remove(export)
    begun = time.monotonic()
    done = subprocess.run([tool, *flags, "--profile-export-file", export], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{what}: exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    with open(export, encoding="utf-8") as f:
        requests = [r for e in json.load(f)["experiments"] for r in e["requests"]]
    assert len(requests) >= N and all(r["response_timestamps"] for r in requests), f"{what}: {len(requests)} requests"
    print(f"{what}: {len(requests)} requests in {time.monotonic() - begun:.1f} s", flush=True)
    return requests


def main():
    fetch, parleyd, write_tiny_model, write_policy = sys.argv[1:5]
    tool = subprocess.run([fetch], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        tiny, cart, memory, texts, chats = (os.path.join(folder, n) for n in ("tiny.gguf", "cart.gguf", "memory.gguf", "texts.json", "chats.json"))
        subprocess.run([write_tiny_model, tiny], check=True)
        subprocess.run([write_policy, cart], check=True)
        subprocess.run([write_policy, memory, "lstm"], check=True)
        with open(texts, "w", encoding="utf-8") as f:
            json.dump({"data": [{"text_input": ["hello there"], "stream": [True], "sampling_parameters": ['{"max_tokens": 4, "ignore_eos": true}']}]}, f)
        with open(chats, "w", encoding="utf-8") as f:
            chat = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "ignore_eos": True, "stream": True}
            json.dump({"data": [{"payload": [chat]}]}, f)
        server = Parleyd(parleyd, "--model", f"tiny={tiny}", "--model", f"cart={cart}", "--model", f"memory={memory}")

        def kserve(what, model, *flags):
            return run(tool, folder, what, "-m", model, "-i", "grpc", "-u", server.grpc, "--request-count", str(N), *flags)

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
        run(tool, folder, "language model, OpenAI", "-m", "tiny", "-u", server.http, "--service-kind", "openai", "--endpoint", "v1/chat/completions",
            "--async", "--input-data", chats, "--request-count", str(N), *closed)
        server.stop()


if __name__ == "__main__":
    main()
