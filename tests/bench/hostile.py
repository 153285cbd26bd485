#!/usr/bin/env python3
"""Hostile constraints over HTTP while a neighbour's chat streams on: each alone, then all from 16 clients at once, then all from clients
that leave. For each its status, how long it took and what of the processor time of parleyd's loop; for each of the three rounds the
p50, p99 and longest time of /health, the p50 and p99 of what a small constraint, new each time, takes another client, and of the processor time that compiling takes meanwhile, the most that the loop
computed at a stretch, the most memory of parleyd, the most memory and the most processor time of a process that compiles, and the longest time
between two pieces of the chat.

usage: hostile.py BUILD_DIR MODEL.gguf [--tokens N]      exit 1: a limit is exceeded
"""
import argparse
import concurrent.futures
import http.client
import json
import multiprocessing
import os
import pathlib
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))
import bombs  # noqa: E402
import children  # noqa: E402

HEALTH_P99_MS, LOOP_MS, GROWTH_MIB, CHILD_MIB, OTHERS_P99_MS = 100, 100, 256, 512 + 64, 500
ALLOWED = {200, 400, 413, 429}
TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20


class Sampler(threading.Thread):
    """Calls sample() every so often until it is stopped."""

    def __init__(self, sample, seconds):
        super().__init__(daemon=True)
        self.sample, self.seconds, self.stopped = sample, seconds, threading.Event()
        self.start()

    def run(self):
        while not self.stopped.wait(self.seconds):
            self.sample()

    def stop(self):
        self.stopped.set()
        self.join()


def probe(address, is_over, pipe):
    """Asks for /health every 20 ms, in a process of its own: the clients of this one are many."""
    times = []
    while not is_over.wait(0.02):
        begin = time.monotonic()
        link = http.client.HTTPConnection(address, timeout=60)
        link.request("GET", "/health")
        link.getresponse().read()
        link.close()
        times.append((time.monotonic() - begin) * 1e3)
    pipe.send(times)


def compiling_ms(pid):
    """Processor time of all processes that have compiled or compile."""
    fields = [pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[13:15]]  # of those that have ended
    for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
        try:
            fields.append(pathlib.Path(f"/proc/{child}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[11:13])
        except (FileNotFoundError, ProcessLookupError):
            pass
    return sum(int(n) for pair in fields for n in pair) * TICK_SECONDS * 1e3


def probe_constraints(address, pid, round_, is_over, pipe):
    """Asks for a reply of one token under a constraint that was never compiled, one after the other; again where all places are taken (429). For
    each, how long it took, and what processor time compiling took meanwhile, which other programs on the machine hardly change."""
    times = []
    while not is_over.wait(0.1):
        begin, begin_ms = time.monotonic(), compiling_ms(pid)
        fields = f'"guided_regex":"x{{{len(times) + 1}}}[a-m]{{{round_}}}"'
        status, why = ask(address, fields, 1)
        while status == 429 and not is_over.wait(0.02):
            status, why = ask(address, fields, 1)
        if status != 429:
            assert status == 200, (status, why)
            times.append(((time.monotonic() - begin) * 1e3, compiling_ms(pid) - begin_ms))
    pipe.send(times)


class Chat(threading.Thread):
    """A reply that is streamed until it is stopped, one after the other; the times at which its pieces came."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.address, self.times, self.stopped, self.begun, self.failed = address, [], threading.Event(), threading.Event(), None
        self.start()

    def run(self):
        while not self.stopped.is_set():
            link = http.client.HTTPConnection(self.address, timeout=60)
            link.request("POST", "/v1/completions", json.dumps({"model": "m", "prompt": "Once upon", "max_tokens": 4000, "stream": True, "ignore_eos": True}))
            answer = link.getresponse()
            if answer.status != 200:
                self.failed = answer.read()
                return
            for line in answer:
                if self.stopped.is_set():
                    break
                if line.startswith(b"data: {"):
                    if b'"error"' in line:
                        self.failed = line
                        return
                    self.times.append(time.monotonic())
                    self.begun.set()
            link.close()

    def longest_ms(self, begin, end):
        inside = [t for t in self.times if begin <= t <= end]
        return max((b - a for a, b in zip(inside, inside[1:])), default=(end - begin)) * 1e3


class Measures:
    """What is watched during one round."""

    n_rounds = 0

    def __init__(self, address, pid):
        Measures.n_rounds += 1
        self.pid, self.rss, self.child_mib, self.child_seconds, self.children = pid, [], 0, 0, {}
        self.is_over, (self.pipe, other), (self.others_pipe, others_end) = multiprocessing.Event(), multiprocessing.Pipe(), multiprocessing.Pipe()
        self.probers = [multiprocessing.Process(target=probe, args=(address, self.is_over, other), daemon=True),
                        multiprocessing.Process(target=probe_constraints, args=(address, pid, Measures.n_rounds, self.is_over, others_end), daemon=True)]
        for prober in self.probers:
            prober.start()
        self.begin = time.monotonic()
        self.sampler = Sampler(self.look, 0.02)

    def look(self):
        self.rss.append(resident_mib(self.pid))
        for child in pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text(encoding="ascii").split():
            try:
                if pathlib.Path(f"/proc/{child}/comm").read_text(encoding="ascii") != "parley-compile\n":
                    continue  # not yet: until its exec it has parleyd's memory
                stat = pathlib.Path(f"/proc/{child}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
                self.child_mib = max(self.child_mib, int(stat[21]) * PAGE_MIB)
                used = (int(stat[11]) + int(stat[12])) * TICK_SECONDS
                self.children.setdefault(child, []).append(used)
            except (FileNotFoundError, ProcessLookupError, IndexError):
                pass

    def end(self):
        self.sampler.stop()
        self.seconds = time.monotonic() - self.begin
        self.is_over.set()
        self.health, others = self.pipe.recv(), self.others_pipe.recv()
        self.others, self.others_spent = sorted(ms for ms, _ in others), sorted(ms for _, ms in others)
        for prober in self.probers:
            prober.join()
        self.child_seconds = max((used[-1] for used in self.children.values()), default=0)
        self.health.sort()
        return self


def quantile(times, share):
    return times[min(len(times) - 1, int(share * len(times)))] if times else float("nan")


def resident_mib(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE_MIB


def loop_ms(pid):
    """Processor time of the main thread."""
    return int(pathlib.Path(f"/proc/{pid}/task/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e6


def metrics(address):
    link = http.client.HTTPConnection(address, timeout=60)
    link.request("GET", "/metrics")
    lines = link.getresponse().read().decode().splitlines()
    link.close()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if line and not line.startswith("#")}


def ask(address, fields, tokens, patience=120):
    """(status, the error's text)"""
    link = http.client.HTTPConnection(address, timeout=patience)
    try:
        link.request("POST", "/v1/chat/completions", bombs.body(fields, "m", tokens))
        answer = link.getresponse()
        read = answer.read()
        return answer.status, "" if answer.status == 200 else json.loads(read)["error"]["message"]
    except (BrokenPipeError, ConnectionResetError):  # too large: the rest of the body is not read
        return 413, "the connection was closed"
    except TimeoutError:
        return 0, "the client has left"
    finally:
        link.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=200)
    options = parser.parse_args()
    exceeded, rows = [], list(bombs.all_bodies())
    with children.Daemon(f"{options.build}/parleyd", "--http", "127.0.0.1:0", "--kv-bytes", "256M", "--model", f"m={options.model}") as parley:
        pid = parley.process.pid
        chat = Chat(parley.http)
        assert chat.begun.wait(60)
        ask(parley.http, '"grammar":"root ::= [a-z]"', 1)
        before, stable = 0, 0
        while stable < 10:  # pages for keys and values are touched ahead, up to --kv-bytes
            time.sleep(0.3)
            now = resident_mib(pid)
            before, stable = now, stable + 1 if now < before + 1 else 0
        rounds = []

        def one(name, fields):
            begin, used = time.monotonic(), loop_ms(pid)
            status, why = ask(parley.http, fields, options.tokens)
            print(f"{name:38} {status:6} {(time.monotonic() - begin) * 1e3:8.0f} {loop_ms(pid) - used:8.1f}  {why[:100]}", flush=True)
            return status

        print(f"{'alone':38} {'status':>6} {'ms':>8} {'loop ms':>8}")
        measures = Measures(parley.http, pid)
        statuses = [one(name, fields) for name, fields in rows]
        rounds.append(("each alone", measures.end(), statuses))

        measures = Measures(parley.http, pid)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            statuses = list(pool.map(lambda row: ask(parley.http, row[1], options.tokens)[0], rows * 2))
        rounds.append(("16 at once, twice", measures.end(), statuses))

        measures = Measures(parley.http, pid)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            while time.monotonic() < measures.begin + 15:
                list(pool.map(lambda row: ask(parley.http, row[1], options.tokens, patience=0.3), rows))
        begin = time.monotonic()
        while metrics(parley.http)["parley_compile_running"] > 0 and time.monotonic() < begin + 10:
            time.sleep(0.02)
        left_seconds = time.monotonic() - begin
        rounds.append(("16 that leave at once", measures.end(), []))

        print(f"\n{'':26} {'s':>6} {'health p50':>10} {'p99':>7} {'max ms':>7} {'others p50':>10} {'p99 ms':>7} {'spent p50':>9} {'p99 ms':>7} {'parleyd +MiB':>12} {'child MiB':>9} {'child s':>8} {'chat: max ms':>12}  statuses")
        for name, m, statuses in rounds:
            growth = max(m.rss) - before
            counts = " ".join(f"{s}: {statuses.count(s)}" for s in sorted(set(statuses)))
            print(f"{name:26} {m.seconds:6.1f} {quantile(m.health, 0.5):10.1f} {quantile(m.health, 0.99):7.1f} {m.health[-1]:7.1f} {quantile(m.others, 0.5):10.0f} {quantile(m.others, 0.99):7.0f} {quantile(m.others_spent, 0.5):9.0f} {quantile(m.others_spent, 0.99):7.0f} {growth:12.0f} {m.child_mib:9.0f} "
                  f"{m.child_seconds:8.1f} {chat.longest_ms(m.begin, m.begin + m.seconds):12.0f}  {counts}")
            limits = [(quantile(m.health, 0.99) > HEALTH_P99_MS, f"/health p99 {quantile(m.health, 0.99):.0f} ms"), (growth > GROWTH_MIB, f"{growth:.0f} MiB more"),
                      (quantile(m.others, 0.99) > OTHERS_P99_MS, f"another client's constraint took {quantile(m.others, 0.99):.0f} ms"),
                      (m.child_mib > CHILD_MIB, f"a process of {m.child_mib:.0f} MiB"), (not set(statuses) <= ALLOWED, f"statuses {counts}")]
            exceeded += [f"{name}: {what}" for is_exceeded, what in limits if is_exceeded]
        after = metrics(parley.http)
        longest_ms = after["parley_loop_longest_seconds"] * 1e3
        print(f"\nlongest stretch of the loop {longest_ms:.1f} ms of processor time; after the last client left compiling ended within {left_seconds:.2f} s; "
              + ", ".join(f"{name.split('=')[1][:-1]}: {int(n)}" for name, n in after.items() if name.startswith("parley_compile_total")))
        if longest_ms > LOOP_MS:
            exceeded.append(f"the loop computed for {longest_ms:.0f} ms")
        if left_seconds > 1:
            exceeded.append("compilations went on for clients that had left")
        if chat.failed or not chat.is_alive():
            exceeded.append(f"the chat failed: {chat.failed}")
        chat.stopped.set()
        chat.join()
    print("\n".join(f"exceeded: {one}" for one in exceeded) or f"{len(rows)} constraints, no limit exceeded")
    sys.exit(1 if exceeded else 0)


main()
