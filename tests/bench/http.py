#!/usr/bin/env python3
"""What parleyd's HTTP costs, as ratios in one run: echo-sized turns against libwebsockets' own minimal server; tokens/s streamed over
HTTP against the same over gRPC; and the memory of 10,000 connections that wait.

usage: http.py BUILD_DIR MODEL.gguf [turns|stream|idle]…
"""
import json
import os
import resource
import signal
import socket
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
import children  # noqa: E402

ROUNDS = 5
IDLE = 10000
IDLE_MAX_MIB = 200
BODY = json.dumps({"model": "echo", "messages": [{"role": "user", "content": "hello there"}]})


class Parleyd(children.Daemon):
    def __init__(self, build, *flags):
        super().__init__(f"{build}/parleyd", "--http", "127.0.0.1:0", *flags)

    def http_port(self):
        return self.http.rsplit(":", 1)[1]


def cpu_s(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:")) / 1024


def load(build, port, connections, pid):
    """Answers a second, and a CPU second of the server's."""
    before = cpu_s(pid)
    rate = float(children.run([f"{build}/tests/bench/http_load", port, str(connections), "2", "/v1/chat/completions", BODY],
                                check=True, capture_output=True, text=True).stdout)
    return rate, rate * 2 / max(cpu_s(pid) - before, 1e-9)


def turns(build, _):
    with Parleyd(build) as parley:
        with socket.create_connection(("127.0.0.1", int(parley.http_port()))) as s:
            s.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nConnection: close\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}".encode())
            answer = s.makefile("rb").read().split(b"\r\n\r\n", 1)[1].decode()
        floor = children.start([f"{build}/tests/bench/http_floor", answer], stdout=subprocess.PIPE, text=True)
        port = floor.stdout.readline().strip()
        for connections in (1, 16, 64):
            ratios, ours, its = [], [], []
            for _ in range(ROUNDS):
                a = load(build, parley.http_port(), connections, parley.process.pid)
                b = load(build, port, connections, floor.pid)
                ratios.append(a[0] / b[0])
                ours.append(a)
                its.append(b)
            print(f"turns, {connections:2} connections: {statistics.median(r for r, _ in ours):8.0f}/s, libwebsockets alone "
                  f"{statistics.median(r for r, _ in its):8.0f}/s, ratio {statistics.median(ratios):.2f}; a CPU second: "
                  f"{statistics.median(c for _, c in ours):.0f} and {statistics.median(c for _, c in its):.0f}", flush=True)
        floor.send_signal(signal.SIGTERM)
        floor.wait(60)


def stream(build, model):
    with Parleyd(build, "--model", f"m={model}") as parley:
        ratios = []
        for _ in range(ROUNDS):
            rates = []
            for url in (f"http://{parley.http}", f"parley://{parley.address}"):
                said = children.run([f"{build}/parley", "bench", url, "--model", "m", "--concurrency", "16", "--requests", "32",
                                       "--input-tokens", "32", "--output-tokens", "64", "--ignore-eos", "--json"],
                                      check=True, capture_output=True, text=True).stdout
                rates.append(json.loads(said.splitlines()[-1])["output_tok_s"])
            ratios.append(rates[0] / rates[1])
            print(f"stream: {rates[0]:.0f} tokens/s over HTTP, {rates[1]:.0f} over gRPC", flush=True)
        print(f"stream: ratio {statistics.median(ratios):.3f}")


def idle(build, _):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with Parleyd(build) as parley:
        before = rss_mib(parley.process.pid)
        waiting = []
        for _ in range(IDLE):
            s = socket.create_connection(("127.0.0.1", int(parley.http_port())))
            s.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}".encode())
            assert s.recv(4096).startswith(b"HTTP/1.1 200")
            waiting.append(s)
        after = rss_mib(parley.process.pid)
        print(f"idle: {IDLE} connections take {after - before:.1f} MiB, {(after - before) * 1024 / IDLE:.1f} KiB each; "
              f"parleyd has {after:.1f} MiB in all")
        for s in waiting:
            s.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if after > IDLE_MAX_MIB:
        sys.exit(f"more than {IDLE_MAX_MIB} MiB")


def main():
    build, model = sys.argv[1:3]
    all_of_them = {"turns": turns, "stream": stream, "idle": idle}
    for name in sys.argv[3:] or all_of_them:
        all_of_them[name](build, model)


if __name__ == "__main__":
    main()
