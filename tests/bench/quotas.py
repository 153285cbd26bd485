#!/usr/bin/env python3
"""Nine principals of modest loads, alone, beside one that asks a hundred turns at a time and comes back at once when it is refused, and
beside the same one with a quota: the nine's times to the first token, and how long a refusal takes, as the tenth sees it (this program's own
delays are in it) and by the server's own clock, from when gRPC handed the call over.

usage: quotas.py BUILD_DIR MODEL.gguf [--seconds N] [--abuser N] [--in-flight N] [--max-tokens N] [--json]

Exit 3: with the quota the nine's p99 is above 1.5 times that of the nine alone, or more than 1 % of the refusals took the server more than 10 ms.
"""
import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
import time

import grpc

import loads
import test_keys
from harness import conversations, conversations_pb2_grpc

LEAST_IN_TIME = 0.99
MOST_RATIO, N_MODEST, THINK_S, AGAIN_S = 1.5, 9, 0.2, 0.02


class Load:
    def __init__(self, o):
        self.o, self.first_ms, self.refused_ms, self.n_done = o, [], [], [0, 0]
        self.end = time.monotonic() + o.seconds

    async def turn(self, stub, key, conversation, number, is_abuser):
        request = conversations.TurnRequest(conversation=conversation, turn=number, text=f"{number}: tell me of the sea.")
        request.sampling.max_tokens, request.sampling.ignore_eos = (self.o.max_tokens if is_abuser else 16), True
        start, is_first = time.monotonic(), True
        try:
            async for event in stub.Turn(request, metadata=test_keys.bearer(key)):
                if is_first and event.HasField("piece"):
                    is_first = False
                    if not is_abuser:
                        self.first_ms.append((time.monotonic() - start) * 1000)
        except grpc.aio.AioRpcError as error:
            if not is_abuser or error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
            self.refused_ms.append((time.monotonic() - start) * 1000)
            return False
        self.n_done[is_abuser] += 1
        return True

    async def client(self, address, key, is_abuser):
        async with grpc.aio.insecure_channel(address) as channel:
            stub = conversations_pb2_grpc.ConversationsStub(channel)
            while time.monotonic() < self.end:
                opened = await stub.Open(conversations.ConversationsOpenRequest(model="model"), metadata=test_keys.bearer(key))
                is_done = await self.turn(stub, key, opened.conversation, 1, is_abuser)
                await stub.Close(conversations.ConversationsCloseRequest(conversation=opened.conversation), metadata=test_keys.bearer(key))
                if not is_abuser or not is_done:
                    await asyncio.sleep(AGAIN_S if is_abuser else THINK_S)


def p99(values):
    return sorted(values)[len(values) * 99 // 100] if values else None


def run(o, abuser, *quota):
    keys = [test_keys.new_key() for _ in range(N_MODEST + 1)]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "keys")
        test_keys.write_keys(path, ("abuser", keys[0], "admin", *quota), *((f"modest{i}", key) for i, key in enumerate(keys[1:])))
        with loads.Daemon(o.build, o.model, "--keys", path, "--max-queue", "1024", "--http", "127.0.0.1:0") as daemon:

            async def all_of_them():
                load = Load(o)
                await asyncio.gather(*(load.client(daemon.address, key, False) for key in keys[1:]),
                                     *(load.client(daemon.address, keys[0], True) for _ in range(abuser)))
                return load

            load = asyncio.run(all_of_them())
            page = test_keys.ask(daemon, "GET", "/metrics", x_api_key=keys[0])[2].decode()
            server = {name: float(value) for name, value in re.findall(r"^parley_refusal_seconds_(\S+) (\S+)$", page, re.M)}
    return {"ttft_p99_ms": p99(load.first_ms), "turns": load.n_done[False], "abuser_turns": load.n_done[True], "refusals": len(load.refused_ms),
            "refusal_p99_ms": p99(load.refused_ms), "server_refusal_mean_ms": server["sum"] / max(server["count"], 1) * 1000,
            "server_refusals_in_10_ms": server['bucket{le="0.01"}'] / max(server["count"], 1)}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("model")
    for name, default in {"seconds": 10, "abuser": 100, "in-flight": 200, "max-tokens": 64}.items():
        p.add_argument(f"--{name}", type=int, default=default)
    p.add_argument("--json", action="store_true")
    o = p.parse_args()
    rows = {"alone": run(o, 0), "without a quota": run(o, o.abuser), "with a quota": run(o, o.abuser, f"in-flight={o.in_flight}")}
    alone = rows["alone"]["ttft_p99_ms"]
    for name, row in rows.items():
        row["ratio"] = row["ttft_p99_ms"] / alone
        if not o.json:
            refused = f"; {row['refusals']} refusals, p99 {row['refusal_p99_ms']:.1f} ms, by the server's clock {row['server_refusal_mean_ms']:.3f} ms, " \
                      f"{row['server_refusals_in_10_ms']:.2%} within 10 ms" if row["refusals"] else ""
            print(f"{name:16} TTFT p99 of the nine {row['ttft_p99_ms']:7.1f} ms, {row['ratio']:5.2f} × alone; {row['turns']} turns of theirs, "
                  f"{row['abuser_turns']} of the tenth's{refused}", flush=True)
    if o.json:
        print(json.dumps(rows))
    quota = rows["with a quota"]
    return 0 if quota["ratio"] <= MOST_RATIO and quota["server_refusals_in_10_ms"] >= LEAST_IN_TIME else 3


if __name__ == "__main__":
    sys.exit(main())
