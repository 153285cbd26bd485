#!/usr/bin/env python3
"""A reply is a log with cursors: a stream that is cut at any place and resumed by its cursor is the uncut one; a turn outlives its
client for a while; the deadline of a request ends its turn.

usage: test_resume.py PARLEYD WRITE_TINY_MODEL      (run by the interpreter that has grpcio and the stubs; see venv.sh)"""

import concurrent.futures
import os
import sys
import tempfile

import children
import grpc
import harness
from children import until
from harness import conversations, word
from parley.v1 import cursor_pb2  # harness knows where they are

N = 40


def request(c, turn=1, tokens=N, **more):
    r = conversations.TurnRequest(conversation=c, turn=turn, text="Tell me a long story.", want_logprobs=2, **more)
    r.sampling.max_tokens = tokens
    r.sampling.ignore_eos = True
    r.sampling.temperature = 1
    r.sampling.seed = 7
    return r


def place(index, generation=1, turn=1):
    return cursor_pb2.Cursor(generation=generation, turn=turn, index=index)


class Part:
    """What one stream gave, until its end or until it had `until_index`."""

    def __init__(self, events, until_index=None):
        self.text, self.ids, self.logprobs, self.index, self.done, self.accepted = "", [], [], None, None, None
        for event in events:
            kind = event.WhichOneof("event")
            if kind == "accepted":
                self.accepted = event.accepted
            elif kind == "piece":
                self.text += event.piece.text
                self.ids += event.piece.token_ids
                self.logprobs += [(p.logprob, [(t.id, t.logprob) for t in p.top]) for p in event.piece.logprobs]
                self.index = event.piece.next_index
            elif kind == "done":
                self.done = event.done
            if until_index is not None and self.index is not None and self.index >= until_index:
                break

    def __add__(self, other):
        both = Part(())
        both.text, both.ids, both.logprobs = self.text + other.text, self.ids + other.ids, self.logprobs + other.logprobs
        both.done = other.done
        return both

    def same(self, other):
        ends = [(word(p.done, "finish_reason"), p.done.usage.completion_tokens, p.done.turn) for p in (self, other)]
        return (self.text, self.ids, self.logprobs, ends[0]) == (other.text, other.ids, other.logprobs, ends[1])


def cut(parley, r, at):
    """Reads the turn until it has `at` tokens, and goes away."""
    call = parley.conversations.Turn(r)
    part = Part(call, at)
    call.cancel()
    return part


def cut_everywhere(parley):
    """Of a reply that is stored: from every place the rest, with and without the messages."""
    c = parley.open("tiny")
    whole = Part(parley.conversations.Turn(request(c)))
    assert whole.index == len(whole.ids) == N and whole.accepted.generation == 1
    rest = ""
    for i in range(N, -1, -1):
        part = Part(parley.conversations.Turn(conversations.TurnRequest(conversation=c, resume_from=place(i))))
        assert part.ids == whole.ids[i:] and part.logprobs == whole.logprobs[i:] and whole.text.endswith(part.text), i
        assert part.text.endswith(rest) and part.done == whole.done and part.index in (N, None), i
        rest = part.text
    assert rest == whole.text
    assert Part(parley.conversations.Turn(request(c, resume_from=place(5)))).ids == whole.ids[5:]
    return whole


def cut_while_it_runs(parley, whole, neighbours=0):
    """Streams that are cut at every place while the turn runs, and resumed at once."""
    with concurrent.futures.ThreadPoolExecutor(neighbours + 8) as pool:
        beside = [pool.submit(lambda: Part(parley.conversations.Turn(request(parley.open("tiny"), tokens=2 * N)))) for _ in range(neighbours)]

        def one(at):
            c = parley.open("tiny")
            first = cut(parley, request(c), at)
            part = Part(parley.conversations.Turn(conversations.TurnRequest(conversation=c, resume_from=place(first.index))))
            assert (first + part).same(whole), (at, first.index)
            parley.close(c)

        for done in [pool.submit(one, at) for at in range(1, N + 1)] + beside:
            done.result()


def chat_resumes(parley, whole):
    c = parley.open("tiny")
    first = cut(parley, request(c), 3)
    resumed = conversations.TurnRequest(conversation=c, resume_from=place(first.index))
    events = parley.conversations.Chat(iter([conversations.ChatRequest(tag=9, turn=resumed)]))
    part = Part(events)
    assert (first + part).same(whole)


def echo_resumes(parley):
    """In a reply without tokens each byte is a place, however its pieces were joined, where a character begins."""
    c = parley.open("echo")
    text = "äb" * 40000
    assert Part(parley.conversations.Turn(conversations.TurnRequest(conversation=c, turn=1, text=text))).text == text
    for index in [0, 2, 3, 65538, 119999, 120000]:
        part = Part(parley.conversations.Turn(conversations.TurnRequest(conversation=c, resume_from=place(index))))
        assert part.text == text.encode()[index:].decode() and word(part.done, "finish_reason") == "stop", index
        assert part.index == (120000 if index < 120000 else None), (index, part.index)
    for index in [1, 120001]:
        try:
            Part(parley.conversations.Turn(conversations.TurnRequest(conversation=c, resume_from=place(index))))
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.OUT_OF_RANGE
        else:
            raise AssertionError(f"{index} is no place")


def wrong_places(parley):
    c = parley.open("tiny")
    Part(parley.conversations.Turn(request(c)))

    def refused(field, code=grpc.StatusCode.OUT_OF_RANGE, **cursor):
        try:
            list(parley.conversations.Turn(conversations.TurnRequest(conversation=c, resume_from=place(**cursor))))
        except grpc.RpcError as error:
            detail = next(harness.error_pb2.ErrorDetail.FromString(v) for k, v in error.trailing_metadata() if k == "parley-error-bin")
            assert error.code() == code and detail.field == field, error
        else:
            raise AssertionError(f"{cursor} was not refused")

    refused("resume_from.index", index=N + 1)
    refused("resume_from.turn", index=0, turn=2)
    refused("resume_from.turn", index=0, turn=0)
    refused("resume_from.generation", index=0, generation=2)
    parley.conversations.Rewind(conversations.ConversationsRewindRequest(conversation=c, to_turn=0))
    assert Part(parley.conversations.Turn(request(c))).accepted.generation == 2
    refused("resume_from.generation", index=0, generation=1)
    assert Part(parley.conversations.Turn(conversations.TurnRequest(conversation=c, resume_from=place(N, generation=2)))).ids == []


def outlives_its_client(parley):
    """A numbered turn goes on without its client, and a retry finds all of it; one without a number ends."""
    c, other = parley.open("tiny"), parley.open("tiny")
    alone = Part(parley.conversations.Turn(request(other, tokens=300)))
    cut(parley, request(c, tokens=300), 2)
    until("the end of the turn", lambda: parley.get(c).turns == 1)
    assert Part(parley.conversations.Turn(request(c, tokens=300))).same(alone)

    late = parley.open("tiny")
    try:
        list(parley.conversations.Turn(request(late, tokens=300), timeout=0.05))
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert Part(parley.conversations.Turn(request(late, tokens=300))).same(alone), "a call's deadline is not the turn's"

    c = parley.open("long")
    cut(parley, request(c, turn=0, tokens=60000), 2)
    until("the end of the turn", lambda: word(parley.get(c), "state") == "idle")
    assert word(parley.get(c).transcript[0], "finish_reason") == "cancelled"

    c = parley.open("long")
    cut(parley, request(c, tokens=60000), 2)
    assert parley.conversations.Cancel(conversations.ConversationsCancelRequest(conversation=c)).cancelled == 1
    until("the end of the turn", lambda: word(parley.get(c), "state") == "idle")


def own_deadline(parley):
    """The deadline field ends the turn as done, with what was said until then."""
    deadline_ms, part = 200, None
    while part is None:  # one that passes before the first step tells nothing: another, with more time
        c, deadline_ms = parley.open("long"), 2 * deadline_ms
        try:
            part = Part(parley.conversations.Turn(request(c, tokens=60000, deadline_ms=deadline_ms)))
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
    assert word(part.done, "finish_reason") == "deadline" and 0 < len(part.ids) < 60000
    kept = parley.get(c)
    assert kept.turns == 1 and kept.transcript[0].reply == part.text
    c = parley.open("tiny")
    events = list(parley.conversations.Chat(iter([conversations.ChatRequest(tag=1, turn=request(c, deadline_ms=60000))])))
    assert word(events[-1].done, "finish_reason") == "length", "one that has not passed changes nothing"


def lingers_shortly(parley):
    c = parley.open("long")
    cut(parley, request(c, tokens=60000), 2)
    until("the end of the turn", lambda: word(parley.get(c), "state") == "idle")
    assert word(parley.get(c).transcript[0], "finish_reason") == "cancelled"


def main():
    parleyd, write_tiny_model = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        tiny, long = os.path.join(folder, "tiny.gguf"), os.path.join(folder, "long.gguf")
        children.run([write_tiny_model, tiny], check=True)
        children.run([write_tiny_model, long, "65536"], check=True)
        models = ["--model", f"tiny={tiny}", "--model", f"long={long}"]
        with harness.Parleyd(parleyd, *models, "--speculate", "off") as parley:
            whole = cut_everywhere(parley)
            cut_while_it_runs(parley, whole)
            chat_resumes(parley, whole)
            echo_resumes(parley)
            wrong_places(parley)
            outlives_its_client(parley)
            own_deadline(parley)
        with harness.Parleyd(parleyd, *models, "--speculate", "on") as parley:
            assert cut_everywhere(parley).same(whole)
            cut_while_it_runs(parley, whole, neighbours=64)
        with harness.Parleyd(parleyd, *models, "--linger", "200ms") as parley:
            lingers_shortly(parley)


if __name__ == "__main__":
    main()
