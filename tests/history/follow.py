#!/usr/bin/env python3
"""A client of the Python package that follows one turn to its end, whatever happens to the daemon. It says that it is ready, waits
for a line, and prints each piece as JSON, one a line, then the reply.

usage: follow.py blocking|asyncio ADDRESSES CONVERSATION TURN SAMPLING      (SAMPLING: JSON)"""
import asyncio
import json
import os
import sys

sys.path.insert(0, os.environ["PARLEY_PACKAGE"])
import parley  # noqa: E402
import parley.aio  # noqa: E402

PATIENCE = float(os.environ.get("FOLLOW_PATIENCE", 60))


def told(piece):
    print(json.dumps(piece), flush=True)


def ended(reply):
    print(json.dumps({"reply": reply.text, "ids": list(reply.token_ids), "turn": reply.turn, "finish": reply.finish_reason}), flush=True)


def blocking(addresses, conversation, text, sampling):
    with parley.connect(addresses, patience=PATIENCE) as server:
        turn = server.conversation(conversation).turn(text, **sampling)
        for piece in turn:
            told(piece)
        ended(turn.reply())


async def by_asyncio(addresses, conversation, text, sampling):
    async with parley.aio.connect(addresses, patience=PATIENCE) as server:
        turn = (await server.conversation(conversation)).turn(text, **sampling)
        async for piece in turn:
            told(piece)
        ended(await turn.reply())


if __name__ == "__main__":
    how, *args, options = sys.argv[1:]
    print("ready", flush=True)
    sys.stdin.readline()
    if how == "blocking":
        blocking(*args, json.loads(options))
    else:
        asyncio.run(by_asyncio(*args, json.loads(options)))
