#!/usr/bin/env python3
"""What parleyd's HTTP costs, as ratios in one run: echo-sized turns against libwebsockets' own minimal server; tokens/s streamed over
HTTP against the same over gRPC; and the memory of 10,000 connections that wait.

usage: bench_http.py BUILD_DIR MODEL.gguf [turns|stream|idle]…
"""
import contextlib
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
TURN_ROUNDS, TURN_SECONDS = 15, 0.5  # short ones, in turns: what else the machine does falls on both sides
IDLE = 10000
IDLE_MAX_MIB = 200
BODY = json.dumps({"model": "echo", "messages": [{"role": "user", "content": "hello there"}]})


class Parleyd(children.Daemon):
    def __init__(self, build, *flags):
        super().__init__(f"{build}/parleyd", "--http", "127.0.0.1:0", *flags)

    def http_port(self):
        return self.http.rsplit(":", 1)[1]


@contextlib.contextmanager
def on_cores(cores):
    """What is started inside keeps to these. Left to the scheduler, two that wake each other share a core in one run and not in the next,
    and what a turn costs differs by several times."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


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
    rate = float(children.run([f"{build}/tests/bench/http_load", port, str(connections), str(TURN_SECONDS), "/v1/chat/completions", BODY],
                              check=True, capture_output=True, text=True).stdout)
    return rate, rate * TURN_SECONDS / max(cpu_s(pid) - before, 1e-9)


def compare(build, connections, ours, floor):
    """ours and floor: a server's port and its process."""
    rounds = [(load(build, ours[0], connections, ours[1]), load(build, floor[0], connections, floor[1])) for _ in range(TURN_ROUNDS)]
    ratios = sorted(a[0] / b[0] for a, b in rounds)
    rates, a_cpu_second = ([statistics.median(side[i] for side in sides) for sides in zip(*rounds)] for i in (0, 1))
    print(f"turns, {connections:2} connections: {rates[0]:8.0f}/s, libwebsockets alone {rates[1]:8.0f}/s, ratio "
          f"{statistics.median(ratios):.2f} (half of the rounds: {ratios[TURN_ROUNDS // 4]:.2f} to {ratios[-1 - TURN_ROUNDS // 4]:.2f}); "
          f"a CPU second: {a_cpu_second[0]:.0f} and {a_cpu_second[1]:.0f}, ratio {a_cpu_second[0] / a_cpu_second[1]:.2f}", flush=True)


def turns(build, _):
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("turns: the load and the server need a core each")
    with contextlib.ExitStack() as servers:
        with on_cores(cores[1:]):
            parley = servers.enter_context(Parleyd(build))
            with socket.create_connection(("127.0.0.1", int(parley.http_port()))) as s:
                s.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}".encode())
                answer = s.makefile("rb").read().split(b"\r\n\r\n", 1)[1].decode()
            floor = children.start([f"{build}/tests/bench/http_floor", answer], stdout=subprocess.PIPE, text=True)
        port = floor.stdout.readline().strip()
        with on_cores(cores[:1]):
            for connections in (1, 16, 64):
                compare(build, connections, (parley.http_port(), parley.process.pid), (port, floor.pid))
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
            s.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}".encode())
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
