#!/usr/bin/env python3
"""The real model, many conversations at once: clones are independent, batches are real, a fork copies nothing.

usage: test_clones.py PARLEYD MODEL.gguf      (run by the interpreter that has grpcio and the stubs; see venv.sh)
"""
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import harness
from harness import admin, conversations

NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hal", "Ida", "Jon", "Kim", "Leo", "Mia", "Ned", "Oda", "Pam"]
THINGS = ["piano", "boat", "garden", "kite"]


def turn(parley, conversation, number, text, tokens=24, **sampling):
    """Returns (reply, token ids, accepted, done)."""
    request = conversations.TurnRequest(conversation=conversation, turn=number, text=text)
    request.sampling.temperature = 0
    request.sampling.max_tokens = tokens
    for name, value in sampling.items():
        setattr(request.sampling, name, value)
    reply, ids, accepted, done = "", [], None, None
    for event in parley.conversations.Turn(request):
        kind = event.WhichOneof("event")
        if kind == "accepted":
            accepted = event.accepted
        elif kind == "piece":
            reply += event.piece.text
            ids += event.piece.token_ids
        elif kind == "done":
            done = event.done
    assert done is not None, "a turn ends with done"
    return reply, ids, accepted, done


def converse(parley, i):
    """Tells one conversation its own fact and asks it back; all that was said."""
    c = parley.open("smollm2")
    fact = f"My favourite thing is my {THINGS[i // 16]}, and my name is {NAMES[i % 16]}."
    said = [turn(parley, c, 1, fact, 8)[:2], turn(parley, c, 2, "Say my name.", 16)[:2]]
    parley.close(c)
    return said


def independent_clones(parley, n=64):
    with ThreadPoolExecutor(n) as pool:
        together = list(pool.map(lambda i: converse(parley, i), range(n)))
    alone = [converse(parley, i) for i in range(n)]
    for i in range(n):
        assert together[i] == alone[i], f"conversation {i}: {together[i]} together, {alone[i]} alone"
    told = sum(NAMES[i % 16] in together[i][1][0] for i in range(n))
    assert told >= n // 4, f"only {told} of {n} told their own name"  # a small model: it forgets, but never mixes up
    for i in range(n):
        for j, name in enumerate(NAMES):
            assert j == i % 16 or name not in together[i][1][0] or name in alone[i][1][0], "a reply knows another's name"
    print(f"independent clones: {n} conversations at once equal those alone, token for token; {told} recall the name")


def model_status(parley):
    status = parley.admin.Status(admin.AdminStatusRequest())
    return next(m for m in status.models if m.name == "smollm2")


def batching_is_real(parley):
    def rate(n, tokens=64):
        cs = [parley.open("smollm2") for _ in range(n)]
        start = time.monotonic()
        with ThreadPoolExecutor(n) as pool:
            done = list(pool.map(lambda c: turn(parley, c, 1, "Tell me a story.", tokens, ignore_eos=True)[1], cs))
        seconds = time.monotonic() - start
        for c in cs:
            parley.close(c)
        assert all(len(ids) == tokens for ids in done)
        assert all(ids == done[0] for ids in done), "the same question has the same greedy answer, whoever else asks"
        return n * tokens / seconds

    rate(1)
    one = sorted(rate(1) for _ in range(3))[1]
    sixteen = sorted(rate(16) for _ in range(3))[1]
    histogram = list(model_status(parley).batching.rows_histogram)
    assert histogram[4] > 0, f"no step had 9 to 16 rows: {histogram}"
    print(f"batching: {one:.0f} tok/s for 1, {sixteen:.0f} for 16 conversations: {sixteen / one:.1f} times; steps by rows ≤ 1 2 4 8 16 …: {histogram}")


def fork_copies_nothing(parley):
    c = parley.open("smollm2")
    turn(parley, c, 1, "Here is a list of words: " + "river stone cloud " * 1250, 8)
    turn(parley, c, 2, "Thank you.", 8)
    turn(parley, c, 3, "What was it about?", 8)
    before = model_status(parley)
    start = time.monotonic()
    child = parley.fork(c)
    microseconds = (time.monotonic() - start) * 1e6
    after = model_status(parley)
    size = parley.get(c)
    assert size.context_tokens >= 3750, size.context_tokens
    assert after.kv_pages_free == before.kv_pages_free, "a fork takes no page"
    assert after.kv_copies == before.kv_copies, "a fork copies no page"
    assert parley.get(child).kv_pages_shared == parley.get(child).kv_pages == size.kv_pages
    one = turn(parley, c, 4, "Go on.", 16)
    two = turn(parley, child, 4, "Go on.", 16)
    end = model_status(parley)
    assert one[1] == two[1], "both branches go on from the same past"
    assert two[2].cached_tokens >= size.context_tokens - 2, "the branch computes its own turn only"
    copied, used = end.kv_copies - before.kv_copies, after.kv_pages_free - end.kv_pages_free
    assert copied <= 2, copied
    assert used <= 2 * 4 + copied, used
    print(f"fork of {size.context_tokens} tokens, {size.kv_pages} pages: {microseconds:.0f} us with the call, 0 pages; two branches on: {copied} copied, {used} new")
    parley.close(c)
    parley.close(child)


def sixteen_forks_and_a_stranger(parley):
    """Sixteen go on from a conversation of 2,000 tokens, and one that was never told begins alike once all are closed."""
    text, tokens = "Remember these words: " + "river stone cloud " * 650, 64
    start = model_status(parley)
    c = parley.open("smollm2")
    first = turn(parley, c, 1, text, 8)
    size = parley.get(c)
    one = start.kv_pages_free - model_status(parley).kv_pages_free
    children = [parley.fork(c) for _ in range(16)]
    with ThreadPoolExecutor(16) as pool:
        said = list(pool.map(lambda i: turn(parley, children[i], 2, f"Tell me of {NAMES[i]}.", tokens, ignore_eos=True), range(16)))
    used = start.kv_pages_free - model_status(parley).kv_pages_free
    new = sum(s[2].prompt_tokens - size.context_tokens + tokens for s in said)
    for s in said:
        assert s[2].cached_tokens >= size.context_tokens - 3, f"{s[2].cached_tokens} of {size.context_tokens} were computed already"
    assert used <= 1.1 * one + new / 16, f"{used} pages, {one} of the parent, {new} new tokens"
    for child in (c, *children):
        parley.close(child)
    assert model_status(parley).kv_pages_free == start.kv_pages_free, "a closed conversation's pages are free"
    stranger = parley.open("smollm2")
    again = turn(parley, stranger, 1, text, 8)
    assert again[1] == first[1], "what is found says what it said"
    assert again[2].cached_tokens >= again[2].prompt_tokens - 16, again[2]
    parley.close(stranger)
    print(f"16 forks of {size.context_tokens} tokens in {one} pages: {used} pages with {new} new tokens; a stranger finds {again[2].cached_tokens} of {again[2].prompt_tokens}")


def a_long_prompt_shows_progress(parley):
    c = parley.open("smollm2")
    request = conversations.TurnRequest(conversation=c, text="word " * 3000)
    request.sampling.max_tokens = 1
    seen = [e.progress.done for e in parley.conversations.Turn(request) if e.WhichOneof("event") == "progress"]
    assert len(seen) >= 2 and seen == sorted(seen), seen
    parley.close(c)


def main():
    parleyd, model = sys.argv[1:]
    with harness.Parleyd(parleyd, "--model", f"smollm2={model}") as parley:
        independent_clones(parley)
        fork_copies_nothing(parley)
        sixteen_forks_and_a_stranger(parley)
        a_long_prompt_shows_progress(parley)
        batching_is_real(parley)
        end = model_status(parley)
        assert end.conversations == 0, "every conversation was closed"


main()
