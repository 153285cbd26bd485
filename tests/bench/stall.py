#!/usr/bin/env python3
"""parley bench against a server that stops for 100 ms of each second: the open loop's p99 beside what follows from the
schedule, and what a closed loop says.

usage: stall.py PARLEY

Of turns that arrive evenly a tenth meets the stall, and waits for what is left of it: the 99th percentile is 90 ms. Exit 3 when the
open loop's is not within 2 % of that, or the closed loop's is. Where other programs use the processors too, run it under chrt -r 1.
"""
import asyncio
import json
import subprocess
import sys
import threading
import time

# No multiple of the period: turns meet the stall at all its moments.
PERIOD_S, STALL_S, RATE, SECONDS = 1.0, 0.1, 197.3, 20
LIMIT = 0.02


async def serve(reader, writer):
    """OpenAI's completions, one token a reply; answers wait while the server stalls."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
            body = await reader.readexactly(int(fields.get(b"content-length", 0)))
            phase = time.monotonic() % PERIOD_S
            if phase < STALL_S:
                await asyncio.sleep(STALL_S - phase)
            if not body:
                answer, kind = json.dumps({"data": [{"id": "stub"}]}).encode(), b"application/json"
            else:
                n = len(json.loads(body)["prompt"].split())
                events = [{"choices": [{"text": "w ", "finish_reason": "length"}]}, {"choices": [], "usage": {"prompt_tokens": n, "completion_tokens": 1}}]
                answer = b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events) + b"data: [DONE]\n\n"
                kind = b"text/event-stream"
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (kind, len(answer), answer))
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def start():
    """The server on a thread; its port."""
    port, up = [], threading.Event()

    async def run():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port.append(server.sockets[0].getsockname()[1])
        up.set()
        await server.serve_forever()

    threading.Thread(target=lambda: asyncio.run(run()), daemon=True).start()
    up.wait()
    return port[0]


def bench(parley, port, *options):
    command = [parley, "bench", f"http://127.0.0.1:{port}", "--json", "--input-tokens", "8", "--output-tokens", "1", "--duration", str(SECONDS), *options]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def main():
    port = start()
    loop = bench(sys.argv[1], port, "--rate", str(RATE), "--arrivals", "constant")
    closed = bench(sys.argv[1], port, "--concurrency", "1")
    # Beside the stall a reply takes the median's time.
    wanted = 1e3 * STALL_S * 0.9 + loop["p50_ttft_ms"]
    is_right, is_wrong = (abs(one["p99_ttft_ms"] / wanted - 1) <= LIMIT for one in (loop, closed))
    print(f"open loop, {RATE}/s: p99 {loop['p99_ttft_ms']:.1f} ms, by the schedule {wanted:.1f} ms, ratio {loop['p99_ttft_ms'] / wanted:.3f}; {loop['completed']} turns")
    print(f"closed loop of one: p99 {closed['p99_ttft_ms']:.1f} ms, ratio {closed['p99_ttft_ms'] / wanted:.3f}; {closed['completed']} turns")
    sys.exit(0 if is_right and not is_wrong else 3)


main()
