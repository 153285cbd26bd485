#!/usr/bin/env python3
"""One principal whose client asks again as soon as it is answered, alone and beside another that keeps hundreds of turns waiting, in turns with
one daemon: how long the first one's whole requests take, and how many tokens the second one gets beside it and alone.

usage: fairness.py BUILD_DIR MODEL.gguf [--rounds N] [--seconds N] [--many N] [--clients N] [--think-ms N] [--json]

Exit 3: the p50 or p99 is above 3 times that of the first alone (the aim is 1.5).
"""
import argparse
import asyncio
import contextlib
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

MOST_RATIO, SETTLE_S, MODEST_TOKENS = 3, 4, 16


class Phase:
    """What is counted while it is current."""

    def __init__(self):
        self.requests_ms, self.tokens, self.seconds = [], 0.0, 0.0


class Load:
    def __init__(self, o, daemon, keys):
        self.o, self.daemon, self.keys, self.phase = o, daemon, keys, Phase()

    async def turn(self, stub, key, max_tokens, number):
        opened = await stub.Open(conversations.ConversationsOpenRequest(model="model"), metadata=test_keys.bearer(key))
        request = conversations.TurnRequest(conversation=opened.conversation, text=f"{number}: tell me of the sea.")
        request.sampling.max_tokens, request.sampling.ignore_eos = max_tokens, True
        start = time.monotonic()
        async for _ in stub.Turn(request, metadata=test_keys.bearer(key)):
            pass
        took_ms = (time.monotonic() - start) * 1000
        await stub.Close(conversations.ConversationsCloseRequest(conversation=opened.conversation), metadata=test_keys.bearer(key))
        return took_ms

    def generated(self):
        """Tokens, of both."""
        page = test_keys.ask(self.daemon, "GET", "/metrics", x_api_key=self.keys[0])[2].decode()
        return sum(float(value) for value in re.findall(r"^parley_generated_tokens_total\S* (\S+)$", page, re.M))

    async def modest(self, stub, i):
        number = i * 1000000
        while True:
            phase, number = self.phase, number + 1
            took_ms = await self.turn(stub, self.keys[1], MODEST_TOKENS, number)
            if phase is self.phase:
                phase.requests_ms.append(took_ms)
            if self.o.think_ms:
                await asyncio.sleep(self.o.think_ms / 1000)

    async def many(self, stub, i):
        number = i * 1000000
        while True:
            number += 1
            await self.turn(stub, self.keys[0], 64, number)

    async def during(self, into, *tasks):
        """Runs the tasks, lets them settle, and counts for a while."""
        running = [asyncio.create_task(task) for task in tasks]
        await asyncio.sleep(SETTLE_S)
        self.phase, start, before = into, time.monotonic(), self.generated()
        await asyncio.sleep(self.o.seconds)
        into.seconds += time.monotonic() - start
        into.tokens += self.generated() - before
        self.phase = Phase()
        for task in running:
            task.cancel()
        for task in running:
            with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
                await task

    async def run(self):
        alone, beside, many_alone = Phase(), Phase(), Phase()
        o = self.o
        async with grpc.aio.insecure_channel(self.daemon.address) as modest, grpc.aio.insecure_channel(self.daemon.address) as many:
            one, other = conversations_pb2_grpc.ConversationsStub(modest), conversations_pb2_grpc.ConversationsStub(many)
            for _ in range(o.rounds):
                await self.during(alone, *(self.modest(one, i) for i in range(o.clients)))
                await self.during(many_alone, *(self.many(other, i) for i in range(o.many)))
                await self.during(beside, *(self.many(other, i) for i in range(o.many)), *(self.modest(one, i) for i in range(o.clients)))
        return alone, beside, many_alone


def quantile(values, percent):
    return sorted(values)[len(values) * percent // 100] if values else float("inf")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("model")
    for name, default in {"rounds": 3, "seconds": 8, "many": 300, "clients": 1, "think-ms": 0}.items():
        p.add_argument(f"--{name}", type=int, default=default)
    p.add_argument("--json", action="store_true")
    o = p.parse_args()
    keys = [test_keys.new_key() for _ in range(2)]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "keys")
        test_keys.write_keys(path, ("many", keys[0], "admin"), ("modest", keys[1]))
        with loads.Daemon(o.build, o.model, "--keys", path, "--max-queue", "2048", "--http", "127.0.0.1:0") as daemon:
            alone, beside, many_alone = asyncio.run(Load(o, daemon, keys).run())
    row = {f"p{q}_ms": {"alone": quantile(alone.requests_ms, q), "beside": quantile(beside.requests_ms, q)} for q in (50, 99)}
    for times in row.values():
        times["ratio"] = times["beside"] / times["alone"]
    row["requests"] = {"alone": len(alone.requests_ms), "beside": len(beside.requests_ms)}
    row["many_tokens_per_s"] = {"alone": many_alone.tokens / many_alone.seconds,
                                "beside": max(0, beside.tokens - MODEST_TOKENS * len(beside.requests_ms)) / beside.seconds}
    if o.json:
        print(json.dumps(row))
    else:
        for q in "p50_ms", "p99_ms":
            print(f"{q}: {row[q]['beside']:8.1f} beside {o.many} waiting turns, {row[q]['alone']:8.1f} alone, {row[q]['ratio']:5.2f} ×")
        rates = row["many_tokens_per_s"]
        print(f"the many: {rates['beside']:.0f} tokens/s beside, {rates['alone']:.0f} alone, {rates['beside'] / rates['alone']:.2f} ×; requests {row['requests']}")
    return 0 if row["p50_ms"]["ratio"] <= MOST_RATIO and row["p99_ms"]["ratio"] <= MOST_RATIO else 3


if __name__ == "__main__":
    sys.exit(main())
