#!/usr/bin/env python3
"""How long parleyd takes to refuse hostile schemas over HTTP while a chat goes on: for each the longest and the median time of some
requests, from the last byte of the request to the answer, and how much processor time the server's loop took for one, beside the longest
time between two pieces of the chat meanwhile and without them.

usage: hostile.py BUILD_DIR MODEL.gguf [--times N]      exit 3: a refusal took the loop more than 100 ms, or is no refusal
"""
import argparse
import http.client
import json
import pathlib
import statistics
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))
import children  # noqa: E402

LIMIT_MS = 100


def nested(schema, n):
    return '{"properties":{"a":' * n + schema + "}}" * n


def listed(values):
    return '{"enum":[%s]}' % ",".join(values)


def names(n):
    return ",".join(f'"n{i}"' for i in range(n))


N = 1_000_000
SCHEMAS = {
    "depth 2,000": nested('{"type":"string"}', 2000),
    "depth 100": nested('{"type":"string"}', 100),
    "enum of 10^6 equal numbers": listed(["1"] * N),
    "enum of 10^6 numbers": listed(map(str, range(N))),
    "enum of 10^6 equal strings": listed(['""'] * N),
    "enum of 500,000 equal numbers": listed(["1"] * (N // 2)),
    "enum of 130,000 objects": listed(["{}"] * 130_000),
    "maxLength 10^9": '{"type":"string","maxLength":1000000000}',
    "minItems 10^9": '{"type":"array","minItems":1000000000}',
    "pattern of 10^6 repetitions": '{"type":"string","pattern":"^(a{1000}){1000}$"}',
    "100,000 required names": '{"type":"object","required":[%s]}' % names(100_000),
    "60,000 properties": '{"type":"object","properties":{%s}}' % ",".join(f'"n{i}":{{}}' for i in range(60_000)),
    "allOf of 4,000 with 1,000 properties": '{"$defs":{"a":{"properties":{%s}}},"allOf":[%s]}' % (
        ",".join(f'"n{i}":{{}}' for i in range(1000)), ",".join(['{"$ref":"#/$defs/a"}'] * 4000)),
    "allOf of itself": '{"allOf":[{"$ref":"#"},{"$ref":"#"}]}',
    "oneOf of 4,000": '{"oneOf":[%s]}' % ",".join('{"const":%d}' % i for i in range(2000)),
    "anyOf of anyOf of 1,000 each": '{"anyOf":[%s]}' % ",".join(['{"anyOf":[%s]}' % ",".join(["{}"] * 1000)] * 40),
    "maxLength 10^9 as a text": None,
}


class Chat(threading.Thread):
    """A reply that is streamed until it is stopped; the times at which its pieces came."""

    def __init__(self, address, model):
        super().__init__()
        self.times, self.stopped, self.begun = [], threading.Event(), threading.Event()
        self.link = http.client.HTTPConnection(address)
        self.link.request("POST", "/v1/completions", json.dumps({"model": model, "prompt": "Once upon", "max_tokens": 7000, "stream": True, "ignore_eos": True}))

    def run(self):
        answer = self.link.getresponse()
        while not self.stopped.is_set() and answer.readline().startswith((b"data: {", b"\n", b"id:")):
            self.times.append(time.monotonic())
            self.begun.set()
        self.link.close()

    def longest_ms(self, begin, end):
        inside = [t for t in self.times if begin <= t <= end]
        return max((b - a for a, b in zip(inside, inside[1:])), default=0) * 1e3


def loop_ms(pid):
    """Processor time of the main thread."""
    return int(pathlib.Path(f"/proc/{pid}/task/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e6


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("model")
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    is_well = True
    with children.Daemon(f"{options.build}/parleyd", "--http", "127.0.0.1:0", "--model", f"m={options.model}") as parley:
        pid = parley.process.pid
        chat = Chat(parley.http, "m")
        chat.start()
        assert chat.begun.wait(60)
        begin = time.monotonic()
        while time.monotonic() < begin + 2 and chat.is_alive():
            chat.stopped.wait(0.1)
        print(f"{'':32} {'status':>6} {'median ms':>10} {'longest':>8} {'loop ms':>8} {'chat: longest ms between pieces':>32}")
        print(f"{'nothing':32} {'':6} {'':10} {'':8} {'':8} {chat.longest_ms(begin, time.monotonic()):32.0f}")
        for what, schema in SCHEMAS.items():
            given = schema if schema is not None else json.dumps('{"type":"string","maxLength":1000000000}')
            body = ('{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema",'
                    '"json_schema":{"name":"a","strict":true,"schema":%s}}}' % given).encode()
            took, used, statuses, begin = [], [], set(), time.monotonic()
            for _ in range(options.times):
                link = http.client.HTTPConnection(parley.http)
                link.request("POST", "/v1/chat/completions", body)
                before, start = loop_ms(pid), time.monotonic()
                answer = link.getresponse()
                answer.read()
                took.append((time.monotonic() - start) * 1e3)
                used.append(loop_ms(pid) - before)
                statuses.add(answer.status)
                link.close()
            pause = chat.longest_ms(begin, time.monotonic())
            print(f"{what:32} {'/'.join(map(str, sorted(statuses))):>6} {statistics.median(took):10.1f} {max(took):8.1f} {max(used):8.1f} {pause:32.0f}", flush=True)
            is_well = is_well and statuses <= {400, 413} and max(used) <= LIMIT_MS
        is_well = is_well and chat.is_alive()
        chat.stopped.set()
        chat.join()
    sys.exit(0 if is_well else 3)


main()
