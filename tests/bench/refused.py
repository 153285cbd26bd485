#!/usr/bin/env python3
"""Clients that are refused by a full queue: those that come back when the refusal says, beside those that come back after a fixed
time. Each run has a fresh parleyd, which knows nothing yet of how long replies take.

usage: refused.py BUILD_DIR MODEL.gguf [--pairs N] [--clients N] [--queue N] [--max-tokens N] [--gap-ms N] [--json]

Exit 3: who obeys takes more than 1.3 times as long (the median of the pairs), or does not ask less often.
"""
import argparse
import asyncio
import json
import statistics
import sys
import time

import grpc

import loads
from harness import conversations, conversations_pb2_grpc

MOST_RATIO = 1.3


async def turn(stub, conversation, i, o, obeys):
    request = conversations.TurnRequest(conversation=conversation, turn=1, text=f"{i}: tell me of the sea.")
    request.sampling.max_tokens, request.sampling.ignore_eos, request.sampling.seed = o.max_tokens, True, i
    attempts, hints = 0, []
    while True:
        attempts += 1
        try:
            async for _ in stub.Turn(request):
                pass
            return attempts, hints
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
            hint = int(dict(error.trailing_metadata())["retry-after-ms"])
            hints.append(hint)
            await asyncio.sleep((hint if obeys else o.gap_ms) / 1000)


async def crowd(address, o, obeys):
    async with grpc.aio.insecure_channel(address) as channel:
        stub = conversations_pb2_grpc.ConversationsStub(channel)
        opened = [(await stub.Open(conversations.ConversationsOpenRequest(model="model"))).conversation for _ in range(o.clients)]
        start = time.monotonic()
        ended = await asyncio.gather(*(turn(stub, c, i, o, obeys) for i, c in enumerate(opened)))
        seconds = time.monotonic() - start
    hints = [h for _, hints in ended for h in hints]
    return {"seconds": seconds, "attempts": sum(n for n, _ in ended) / o.clients, "least_ms": min(hints), "most_ms": max(hints)}


def run(o, obeys):
    with loads.Daemon(o.build, o.model, "--max-queue", str(o.queue)) as client:
        return asyncio.run(crowd(client.address, o, obeys))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("model")
    for name, default in {"pairs": 3, "clients": 200, "queue": 32, "max-tokens": 32, "gap-ms": 100}.items():
        p.add_argument(f"--{name}", type=int, default=default)
    p.add_argument("--json", action="store_true")
    o = p.parse_args()
    pairs = []
    for i in range(o.pairs):  # in turns, the other one first each time
        by = {obeys: run(o, obeys) for obeys in ((True, False) if i % 2 == 0 else (False, True))}
        pairs.append({"obeys": by[True], "ignores": by[False], "ratio": by[True]["seconds"] / by[False]["seconds"]})
        if not o.json:
            print(f"obeys {by[True]['seconds']:5.1f} s, {by[True]['attempts']:4.1f} attempts, hints of {by[True]['least_ms']} to {by[True]['most_ms']} ms; "
                  f"ignores {by[False]['seconds']:5.1f} s, {by[False]['attempts']:4.1f} attempts: {pairs[-1]['ratio']:.2f} ×", flush=True)
    ratio = statistics.median(pair["ratio"] for pair in pairs)
    is_good = ratio <= MOST_RATIO and all(pair["obeys"]["attempts"] < pair["ignores"]["attempts"] for pair in pairs)
    print(json.dumps({"pairs": pairs, "ratio": ratio}) if o.json else f"median {ratio:.2f} ×")
    return 0 if is_good else 3


if __name__ == "__main__":
    sys.exit(main())
