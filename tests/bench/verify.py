#!/usr/bin/env python3
"""How fast `Verify` computes again what one conversation, and 64 at once, have generated: tokens a second of both, and their ratio, by turns in
one run. Aims: 3 × of one conversation's speed; 1.2 × (floor 1) beside 64.

usage: verify.py BUILD MODEL [TOKENS]      (run by the interpreter that has the package)"""
import concurrent.futures
import os
import statistics
import sys
import tempfile
import time

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, "..", "integration"), os.environ["PARLEY_PACKAGE"]]
import children  # noqa: E402
import parley  # noqa: E402
from parley.v1 import conversations_pb2 as pb  # noqa: E402

MANY, ROUNDS = 64, 3
ASK = ["Tell me a story about a ship.", "What came next?", "Describe the captain.", "How does it end?"]


def talk(server, tokens, seed):
    chat = server.open(temperature=0.7, max_tokens=tokens // len(ASK), ignore_eos=True, seed=seed)
    for text in ASK:
        chat.ask(text)
    return chat


def verify(server, chat):
    answer = chat._call("Conversations/Verify", pb.ConversationsVerifyRequest(conversation=chat.id), pb.ConversationsVerifyResponse, is_long=True)
    assert answer.turns and all(t.verdict == pb.VerifiedTurn.VERDICT_SAME for t in answer.turns), answer
    return sum(t.compared_tokens for t in answer.turns)


def timed(act):
    begun = time.monotonic()
    found = act()
    return found, time.monotonic() - begun


def main():
    build, model = sys.argv[1:3]
    tokens = int(sys.argv[3]) if len(sys.argv) > 3 else 256
    with tempfile.TemporaryDirectory() as folder, children.Daemon(os.path.join(build, "parleyd"), "--model", f"model={model}", "--data", folder) as daemon, \
            parley.connect(daemon.address) as server, concurrent.futures.ThreadPoolExecutor(MANY) as pool:
        talk(server, len(ASK) * 4, 1)
        for name, n, per, aim in ("one conversation", 1, tokens, 3), (f"{MANY} conversations", MANY, max(tokens // 4, 16), 1.2):
            ratios = []
            for turn in range(ROUNDS):
                chats, generation_s = timed(lambda: list(pool.map(lambda i: talk(server, per, 100 * turn + i), range(n))))  # noqa: B023
                compared, verify_s = timed(lambda: sum(pool.map(lambda chat: verify(server, chat), chats)))  # noqa: B023
                ratios.append(generation_s / verify_s)
                print(f"{name}: {compared} tokens; generated {compared / generation_s:.0f}/s, verified {compared / verify_s:.0f}/s, {ratios[-1]:.2f} x", flush=True)
                for chat in chats:
                    chat.close()
            print(f"{name}: median {statistics.median(ratios):.2f} x, aim {aim} x", flush=True)


if __name__ == "__main__":
    main()
