#!/usr/bin/env python3
"""parleyd as a foreign client sees it: Python's grpcio with stubs made from proto/. Bare facts of the wire: streams, numbers that make
a retry safe, forks, cancels, deadlines, errors and their trailers, back-pressure, drains, exit codes.

usage: test_foreign.py PARLEYD WRITE_TINY_MODEL      (run by the interpreter that has grpcio and the stubs; see venv.sh)
"""
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import grpc

import children
import harness
from children import PATIENCE, until
from harness import admin, content, conversations, error_pb2, health_pb2, models, params, sampling, word
from trainer import create

ENDLESS = 60000  # tokens: of model long, more than is said while a test looks elsewhere
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def request(conversation, turn, text="", **more):
    return conversations.TurnRequest(conversation=conversation, turn=turn, text=text, **more)


def long_request(conversation, turn, text="Tell me a long story.", tokens=ENDLESS):
    r = request(conversation, turn, text)
    r.sampling.max_tokens = tokens
    r.sampling.ignore_eos = True
    return r


class Said:
    """All that came of a turn."""

    def __init__(self, events):
        self.kinds, self.text, self.ids, self.logprobs = [], "", [], []
        self.accepted = self.done = self.code = self.detail = None
        try:
            for event in events:
                self.add(event)
        except grpc.RpcError as error:
            self.code, self.detail = error.code(), detail_of(error)

    def add(self, event):
        kind = event.WhichOneof("event")
        self.kinds.append(kind)
        if kind == "accepted":
            self.accepted = event.accepted
        elif kind == "piece":
            self.text += event.piece.text
            self.ids += event.piece.token_ids
            self.logprobs += event.piece.logprobs
        elif kind == "done":
            self.done = event.done


def detail_of(error):
    for key, value in error.trailing_metadata() or ():
        if key == "parley-error-bin":
            return error_pb2.ErrorDetail.FromString(value)
    return None


def fails(code, call, field=None, says=""):
    """The call must fail so, with the detail in its trailer."""
    try:
        result = call()
        if not hasattr(result, "DESCRIPTOR"):
            list(result)
    except grpc.RpcError as error:
        detail = detail_of(error)
        assert error.code() == code, f"{error.code()} {error.details()}, not {code}"
        assert detail is not None and detail.code == code.value[0] and detail.message == error.details(), detail
        assert field is None or detail.field == field, detail
        assert says in error.details(), error.details()
        return detail
    raise AssertionError(f"no error, {code} was due")


def idle(parley, c):
    until("the end of the turn", lambda: word(parley.get(c), "state") == "idle")
    return parley.get(c)


def turn(parley, r, **more):
    return Said(parley.conversations.Turn(r, **more))


# --- with echo and the tiny model ---


def health_and_models(parley):
    check = parley.health.Check
    for name in ("", "parley.v1.Conversations", "echo", "tiny"):
        assert check(health_pb2.HealthCheckRequest(service=name)).status == SERVING, name
    fails(grpc.StatusCode.NOT_FOUND, lambda: check(health_pb2.HealthCheckRequest(service="nobody")))
    listed = parley.models.List(models.ModelsListRequest()).models
    assert [(m.name, word(m, "kind"), word(m, "state")) for m in listed] == [("tiny", "lm", "ready"), ("long", "lm", "ready"), ("echo", "echo", "ready")], listed
    assert parley.models.Get(models.ModelsGetRequest()).name == "tiny", "the first one given is the default"
    assert len(parley.models.Get(models.ModelsGetRequest(name="tiny")).version) == 64
    fails(grpc.StatusCode.NOT_FOUND, lambda: parley.models.Get(models.ModelsGetRequest(name="nobody")), says="tiny, long, echo")
    status = parley.admin.Status(admin.AdminStatusRequest())
    assert word(status, "state") == "serving" and status.pid > 0 and status.rss_bytes > 0


def three_turns(parley):
    c = parley.open("echo")
    for n, text in enumerate(("one", "two words", "drei Wörter — 🌳"), 1):
        said = turn(parley, request(c, n, text))
        assert said.kinds == ["accepted", "piece", "done"], said.kinds
        assert said.text == text and said.accepted.turn == n and said.done.turn == n
        assert word(said.done, "finish_reason") == "stop" and said.done.timings.steps == 1
    kept = parley.get(c)
    assert kept.turns == 3 and word(kept, "state") == "idle" and kept.model == "echo"
    assert [t.reply for t in kept.transcript] == ["one", "two words", "drei Wörter — 🌳"]
    assert [t.messages[0].role for t in kept.transcript] == ["user"] * 3
    parley.close(c)
    fails(grpc.StatusCode.NOT_FOUND, lambda: parley.get(c))


def tokens_stream(parley):
    c = parley.open("tiny", system="Be brief.")
    r = long_request(c, 1, tokens=40)
    r.want_logprobs = 3
    said = turn(parley, r)
    assert len(said.ids) == 40 and word(said.done, "finish_reason") == "length" and said.kinds.count("piece") > 1
    assert len(said.logprobs) == 40 and all(len(p.top) == 3 for p in said.logprobs)
    assert all(a.logprob >= b.logprob for p in said.logprobs for a, b in zip(p.top, p.top[1:]))
    assert said.accepted.prompt_tokens == said.done.usage.prompt_tokens > 0
    again = turn(parley, r)
    assert (again.text, again.ids, again.logprobs) == (said.text, said.ids, said.logprobs), "the stored reply is the reply"
    assert again.done == said.done
    parley.close(c)


def exactly_once(parley):
    c = parley.open("tiny")
    steps = parley.models.Get(models.ModelsGetRequest(name="tiny")).batching.steps
    first = parley.conversations.Turn(long_request(c, 1, tokens=400))
    seen = Said([])
    for event in first:
        seen.add(event)
        if len(seen.ids) > 20:
            break
    joined = []
    thread = threading.Thread(target=lambda: joined.append(turn(parley, long_request(c, 1, tokens=400))))
    thread.start()
    for event in first:
        seen.add(event)
    thread.join(PATIENCE)
    assert joined[0].kinds[0] == "accepted" and joined[0].done == seen.done
    assert joined[0].text == seen.text and joined[0].ids == seen.ids and len(seen.ids) == 400
    stored = turn(parley, long_request(c, 1, tokens=400))
    assert (stored.text, stored.ids, stored.done) == (seen.text, seen.ids, seen.done)
    assert parley.models.Get(models.ModelsGetRequest(name="tiny")).batching.steps - steps <= 402, "it was generated once"
    call = parley.conversations.Turn
    fails(grpc.StatusCode.ALREADY_EXISTS, lambda: call(request(c, 1, "another")))
    fails(grpc.StatusCode.FAILED_PRECONDITION, lambda: call(request(c, 3, "too soon")), says="next is turn 2")
    assert parley.get(c).turns == 1
    parley.close(c)


def fork_and_rewind(parley):
    c = parley.open("long", metadata={"who": "test"})
    for n in (1, 2, 3):
        turn(parley, long_request(c, n, f"number {n}", 8))
    child = parley.fork(c, metadata={"why": "to see"})
    assert parley.get(child).parent == c and parley.get(child).turns == 3 and dict(parley.get(child).metadata) == {"why": "to see"}
    one, two = turn(parley, long_request(c, 4, "go on", 12)), turn(parley, long_request(child, 4, "go on", 12))
    assert one.ids == two.ids, "both go on from the same past, by the same seed"
    early = parley.fork(c, at_turn=1)
    assert [t.turn for t in parley.get(early).transcript] == [1]
    busy = parley.conversations.Turn(long_request(c, 5))
    next(busy)
    assert parley.get(parley.fork(c)).turns == 4, "a fork has what is complete"
    fails(grpc.StatusCode.FAILED_PRECONDITION,
          lambda: parley.conversations.Rewind(conversations.ConversationsRewindRequest(conversation=c, to_turn=1)))
    busy.cancel()
    idle(parley, c)
    assert parley.conversations.Rewind(conversations.ConversationsRewindRequest(conversation=c, to_turn=2)).turns == 2
    assert [t.turn for t in parley.get(c).transcript] == [1, 2]
    assert turn(parley, long_request(c, 3, "number 3", 8)).done.turn == 3
    fails(grpc.StatusCode.OUT_OF_RANGE, lambda: parley.conversations.Fork(conversations.ConversationsForkRequest(conversation=c, at_turn=9)))


def opened_once(parley):
    """The same request under one id opens one conversation, also from many clients at once."""
    biases = [(i, i / 8) for i in range(1, 9)]

    def open_request(order=1, **more):
        r = conversations.ConversationsOpenRequest(model="tiny", request_id="one", **more)
        for key, value in biases[::order]:
            r.sampling.logit_bias[key] = value
            r.metadata[f"key {key}"] = str(value)
        return r

    before = parley.conversations.List(conversations.ConversationsListRequest()).total
    answers = [call.result() for call in [parley.conversations.Open.future(open_request()) for _ in range(20)]]
    assert all(answer == answers[0] for answer in answers)
    c = answers[0].conversation
    assert parley.conversations.List(conversations.ConversationsListRequest()).total == before + 1
    assert parley.conversations.Open(open_request(order=-1)).conversation == c, "entries of maps have no order"
    error = fails(grpc.StatusCode.ALREADY_EXISTS, lambda: parley.conversations.Open(open_request(ttl_ms=60000)))
    assert error.field == "request_id"
    error = fails(grpc.StatusCode.INVALID_ARGUMENT,
                  lambda: parley.conversations.Open(conversations.ConversationsOpenRequest(request_id="x" * 129)))
    assert error.field == "request_id"
    fork = conversations.ConversationsForkRequest(conversation=c, request_id="two")
    forks = [call.result() for call in [parley.conversations.Fork.future(fork) for _ in range(20)]]
    assert all(answer == forks[0] for answer in forks) and forks[0].conversation != c
    assert parley.conversations.List(conversations.ConversationsListRequest()).total == before + 2
    fork.at_turn = 0
    assert fails(grpc.StatusCode.ALREADY_EXISTS, lambda: parley.conversations.Fork(fork)).field == "request_id"
    parley.close(c)
    again = parley.conversations.Open(open_request(ttl_ms=60000)).conversation
    assert again != c, "the id is free"
    parley.close(again)
    parley.close(forks[0].conversation)


def rewind_again(parley):
    """A rewind that comes late drops no turn that came after."""
    c = parley.open("long")

    def rewind(generation, to_turn):
        return parley.conversations.Rewind(
            conversations.ConversationsRewindRequest(conversation=c, to_turn=to_turn, generation=generation))

    for n in (1, 2, 3):
        turn(parley, long_request(c, n, tokens=2))
    generation = rewind(0, 3).generation  # drops nothing
    done = rewind(generation, 1)
    assert done.turns == 1 and done.generation == generation + 1 and rewind(generation, 1) == done
    turn(parley, long_request(c, 2, tokens=2))
    assert fails(grpc.StatusCode.FAILED_PRECONDITION, lambda: rewind(generation, 1)).field == "generation"
    assert parley.get(c).turns == 2
    assert rewind(0, 0).generation == generation + 2
    parley.close(c)


def cancel_one(parley):
    """A cancel of one turn leaves those before it; of one that is complete, all."""
    c = parley.open("long")

    def cancel(number):
        return parley.conversations.Cancel(conversations.ConversationsCancelRequest(conversation=c, turn=number)).cancelled

    turn(parley, long_request(c, 1, tokens=2))
    calls = [parley.conversations.Turn(long_request(c, 2))]
    next(calls[0])
    for n in (3, 4):
        calls.append(parley.conversations.Turn(long_request(c, n)))
        until("the turn in the queue", lambda: parley.get(c).queued == len(calls) - 1)
    assert cancel(1) == 0 and parley.get(c).queued == 2
    assert fails(grpc.StatusCode.OUT_OF_RANGE, lambda: cancel(5)).field == "turn"
    assert cancel(3) == 2 and word(parley.get(c), "state") == "busy"
    assert [Said(call).code for call in calls[1:]] == [grpc.StatusCode.CANCELLED] * 2
    assert cancel(2) == 1 and word(Said(calls[0]).done, "finish_reason") == "cancelled"
    late = parley.conversations.Turn(long_request(c, 3))
    next(late)
    assert cancel(2) == 0 and word(parley.get(c), "state") == "busy", "a late cancel ends no later turn"
    assert cancel(0) == 1
    idle(parley, c)
    parley.close(c)


def client_cancels(parley):
    c = parley.open("long")
    call = parley.conversations.Turn(long_request(c, 1))
    seen = Said([])
    for event in call:
        seen.add(event)
        if len(seen.ids) >= 5:
            break
    call.cancel()
    kept = idle(parley, c)
    last = kept.transcript[-1]
    assert kept.turns == 1 and word(last, "finish_reason") == "cancelled" and last.reply.startswith(seen.text)
    assert last.usage.completion_tokens < ENDLESS
    steps = parley.models.Get(models.ModelsGetRequest(name="long")).batching.steps
    assert word(turn(parley, long_request(c, 2, tokens=3)).done, "finish_reason") == "length", "the next number is good"
    assert parley.models.Get(models.ModelsGetRequest(name="long")).batching.steps - steps <= 4, "nothing else computes any more"
    parley.close(c)


def cancel_call(parley):
    c = parley.open("long")
    said = [None] * 3
    begun = threading.Event()

    def first():
        said[0] = Said(told(parley.conversations.Turn(long_request(c, 1)), begun))

    def other(i, n):
        said[i] = turn(parley, long_request(c, n))

    threads = [threading.Thread(target=first)]
    threads[0].start()
    assert begun.wait(PATIENCE)
    threads += [threading.Thread(target=other, args=(1, 1)), threading.Thread(target=other, args=(2, 2))]
    threads[1].start()
    threads[2].start()
    until("the second turn in the queue", lambda: parley.get(c).queued == 1)
    assert parley.conversations.Cancel(conversations.ConversationsCancelRequest(conversation=c)).cancelled == 2
    for thread in threads:
        thread.join(PATIENCE)
    assert word(said[0].done, "finish_reason") == "cancelled"
    assert said[2].code == grpc.StatusCode.CANCELLED and said[2].kinds == [], "a queued turn never was"
    assert said[1].done is None or said[1].done == said[0].done
    assert idle(parley, c).turns == 1
    assert parley.conversations.Cancel(conversations.ConversationsCancelRequest(conversation=c)).cancelled == 0
    parley.close(c)


def told(events, begun):
    """The events; begun is set with the first piece."""
    for event in events:
        if event.WhichOneof("event") == "piece":
            begun.set()
        yield event


def deadlines(parley):
    seconds, said = 0.2, None
    while said is None or not said.kinds:  # one that passes on the way tells nothing: another, with more time
        c = parley.open("long")
        said = turn(parley, long_request(c, 1), timeout=seconds)
        assert said.code == grpc.StatusCode.DEADLINE_EXCEEDED and said.done is None
        seconds *= 2
    kept = idle(parley, c)
    if kept.turns > 0:  # else it passed before the first step: as if it never was
        assert word(kept.transcript[0], "finish_reason") in ("deadline", "cancelled"), kept  # whoever's clock is first
    n = kept.turns + 1
    assert word(turn(parley, long_request(c, n, tokens=5), timeout=PATIENCE).done, "finish_reason") == "length"
    parley.close(c)


def ask(parley, r, **more):
    return parley.conversations.Ask(r, **more)


def same(reply, said):
    """Ask's reply is what Turn's pieces are together."""
    assert (reply.message.role, reply.message.text) == ("assistant", said.text), (reply, said.text)
    assert (list(reply.token_ids), list(reply.logprobs)) == (said.ids, said.logprobs)
    assert (reply.turn, reply.finish_reason, reply.usage, reply.timings) == (said.done.turn, said.done.finish_reason, said.done.usage, said.done.timings)


def asked_whole(parley):
    """Ask is Turn in one response, stored as Turn's."""
    for model, n in (("echo", 0), ("tiny", 3)):
        c = parley.open(model)
        r = long_request(c, 1, tokens=40)
        r.want_logprobs = n
        reply = ask(parley, r)
        assert reply.turn == 1 and reply.generation == 1 and reply.message.text
        assert model == "echo" or (len(reply.token_ids) == len(reply.logprobs) == 40 and all(len(p.top) == n for p in reply.logprobs))
        assert ask(parley, r) == reply, "a retry is answered with the stored reply"
        same(reply, turn(parley, r))
        second = turn(parley, request(c, 2, "and then?"))
        same(ask(parley, request(c, 2, "and then?")), second)
        call, code = parley.conversations.Ask, grpc.StatusCode
        fails(code.ALREADY_EXISTS, lambda: call(request(c, 1, "another")))
        fails(code.FAILED_PRECONDITION, lambda: call(request(c, 9, "too soon")), says="next is turn 3")
        fails(code.NOT_FOUND, lambda: call(request("0" * 32, 1, "nobody")))
        fails(code.INVALID_ARGUMENT, lambda: call(request(c, 3, "on", resume_from={})), field="resume_from")
        fails(code.INVALID_ARGUMENT, lambda: call(request(c, 3)), field="messages")
        assert parley.get(c).turns == 2
        parley.close(c)


def asked_along(parley):
    """Ask joins a turn that Turn began, and cancelled with it the reply so far is its reply. A caller of Ask that goes away alone ends its turn."""
    c = parley.open("long")
    begun = threading.Event()
    said = []
    thread = threading.Thread(target=lambda: said.append(Said(told(parley.conversations.Turn(long_request(c, 1)), begun))))
    thread.start()
    assert begun.wait(PATIENCE)
    reply = parley.conversations.Ask.future(long_request(c, 1))
    until("the second call", lambda: parley.admin.Status(admin.AdminStatusRequest()).calls >= 3)
    parley.conversations.Cancel(conversations.ConversationsCancelRequest(conversation=c))
    thread.join(PATIENCE)
    assert word(said[0].done, "finish_reason") == "cancelled"
    same(reply.result(PATIENCE), said[0])
    alone = parley.conversations.Ask.future(long_request(c, 2))
    until("the turn", lambda: word(parley.get(c), "state") == "busy" and parley.get(c).kv_pages > 0)
    alone.cancel()
    idle(parley, c)
    parley.close(c)


def told_only(parley):
    """Turns that ask for no reply: the next one sees their messages with its own, as one turn with all of them would."""
    for model in ("tiny", "echo"):
        whole, parts = parley.open(model, sampling={"seed": 5}), parley.open(model, sampling={"seed": 5})
        texts = ("one two", "three", "and now?")
        for c, turns in ((whole, [texts]), (parts, [texts[:1], texts[1:2], texts[2:]])):
            for n, said in enumerate(turns, 1):
                r = request(c, n, messages=[content.Message(role="user", text=t) for t in said], observe_only=n < len(turns))
                if not r.observe_only:
                    r.sampling.max_tokens = 30
                    r.sampling.temperature = 1
                    r.want_logprobs = 2
                    reply = turn(parley, r)
                    same(ask(parley, r), reply)
                    continue
                told = turn(parley, r)
                assert told.kinds == ["accepted", "done"] and word(told.done, "finish_reason") == "observed", told.kinds
                assert told.done.usage == content.Usage() and told.done.turn == n
                assert turn(parley, r).done == told.done and ask(parley, r).message.text == "", "it is stored as it is"
                fails(grpc.StatusCode.ALREADY_EXISTS, lambda: parley.conversations.Ask(request(c, n, "another", observe_only=True)))
                fails(grpc.StatusCode.ALREADY_EXISTS, lambda: parley.conversations.Ask(request(c, n, messages=r.messages)))
            if c == whole:
                expected = reply
        assert (reply.text, reply.ids, reply.logprobs) == (expected.text, expected.ids, expected.logprobs)
        assert reply.done.usage.prompt_tokens == expected.done.usage.prompt_tokens
        kept = parley.get(parts)
        assert kept.turns == 3 and kept.context_tokens == parley.get(whole).context_tokens
        assert [(len(t.messages), t.reply, word(t, "finish_reason")) for t in kept.transcript[:2]] == [(1, "", "observed")] * 2
        went_on = request(parts, 4, "go on")
        after = request(whole, 2, "go on")
        assert turn(parley, went_on).ids == turn(parley, after).ids, "they are observed once"

        early = parley.fork(parts, at_turn=1)  # among those that wait
        r = request(early, 2, messages=[content.Message(role="user", text=t) for t in texts[1:]])
        r.sampling.max_tokens = 30
        r.sampling.temperature = 1
        assert turn(parley, r).ids == expected.ids
        for to_turn in (3, 2, 1):
            parley.conversations.Rewind(conversations.ConversationsRewindRequest(conversation=parts, to_turn=to_turn))
        again = request(parts, 2, messages=[content.Message(role="user", text=t) for t in texts[1:]])
        again.sampling.max_tokens = 30
        again.sampling.temperature = 1
        same_again = turn(parley, again)
        assert (same_again.text, same_again.ids) == (expected.text, expected.ids)
        code = grpc.StatusCode.INVALID_ARGUMENT
        for field in ("want_logprobs", "sampling"):
            r = request(parts, 3, "x", observe_only=True, **{field: {"top_k": 1} if field == "sampling" else 3})
            fails(code, lambda: parley.conversations.Ask(r), field=field)
        fails(code, lambda: parley.conversations.Ask(request(parts, 3, observe_only=True)), field="messages")
        for c in (whole, parts, early):
            parley.close(c)


def bad_input(parley):
    c = parley.open("echo")
    call, code = parley.conversations.Turn, grpc.StatusCode
    user, odd = content.Message(role="user", text="a"), content.Message(role="bystander", text="b")
    fails(code.NOT_FOUND, lambda: call(request("0" * 32, 1, "a")))
    fails(code.NOT_FOUND, lambda: call(request("nobody", 1, "a")))
    fails(code.INVALID_ARGUMENT, lambda: call(request("", 1, "a")), "conversation")
    fails(code.NOT_FOUND, lambda: parley.conversations.Open(conversations.ConversationsOpenRequest(model="nobody")), says="tiny, long, echo")
    fails(code.INVALID_ARGUMENT, lambda: call(request(c, 1)), "messages")
    fails(code.INVALID_ARGUMENT, lambda: call(request(c, 1, messages=[content.Message(role="user")])), "messages[0].text")
    fails(code.INVALID_ARGUMENT, lambda: call(request(c, 1, messages=[user, odd])), "messages[1].role")
    fails(code.INVALID_ARGUMENT, lambda: call(request(c, 1, "a", messages=[user])), "text")
    fails(code.INVALID_ARGUMENT, lambda: call(request(c, 1, "a", want_logprobs=21)), "want_logprobs")
    for name, value in (("temperature", -0.5), ("top_p", -0.1), ("top_p", 1.5), ("min_p", 2), ("repetition_penalty", 0), ("presence_penalty", 3)):
        r = request(c, 1, "a")
        setattr(r.sampling, name, value)
        fails(code.INVALID_ARGUMENT, lambda: call(r), name)
    r = request(parley.open("tiny"), 1, "a")
    r.sampling.logit_bias[100000] = 1
    fails(code.INVALID_ARGUMENT, lambda: call(r), "logit_bias")
    assert parley.conversations.List(conversations.ConversationsListRequest(page_size=1001)).total >= 1, "a page that is too large is the largest"
    fails(code.INVALID_ARGUMENT, lambda: parley.conversations.List(conversations.ConversationsListRequest(page_token="x")), "page_token")
    fails(code.OUT_OF_RANGE, lambda: call(request(parley.open("tiny"), 1, "word " * 3000)), says="2048")
    fails(code.INVALID_ARGUMENT, lambda: parley.conversations.Open(conversations.ConversationsOpenRequest(metadata={str(i): "" for i in range(65)})), "metadata")
    for method, kind, message in (("Turn", "unary_stream", b"\x0a\x20" + c.encode() + b"\x22\x02\xff\xfe"), ("Open", "unary_unary", b"\x0a\x02\xc3\x28")):
        raw = getattr(parley.channel, kind)(f"/parley.v1.Conversations/{method}", request_serializer=bytes, response_deserializer=bytes)
        try:
            result = raw(message)
            if kind == "unary_stream":
                list(result)
            raise AssertionError("text that is not UTF-8 was taken")
        except grpc.RpcError as error:
            assert error.code() == code.INVALID_ARGUMENT, error
    try:
        list(call(request(c, 1, "x" * (5 << 20))))
        raise AssertionError("a message over the limit was taken")
    except grpc.RpcError as error:
        assert error.code() == code.RESOURCE_EXHAUSTED, error
    assert turn(parley, request(c, 1, "still here")).text == "still here", "nothing of this has harmed the conversation"
    parley.close(c)


def chat_stream(parley):
    cs = [parley.open("echo") for _ in range(20)]
    texts = [f"text {i}" for i in range(300)]
    got, order = {}, {c: [] for c in cs}

    def requests():
        for i, text in enumerate(texts):
            yield conversations.ChatRequest(tag=i, turn=request(cs[i % 20], i // 20 + 1, text))
        yield conversations.ChatRequest(tag=1000, turn=request(cs[0], 99, "a gap"))
        yield conversations.ChatRequest(tag=1001, turn=request("0" * 32, 1, "nobody"))
        yield conversations.ChatRequest(tag=1002)

    for event in parley.conversations.Chat(requests()):
        got.setdefault(event.tag, []).append(event)
        if event.tag < 1000:
            c = cs[event.tag % 20]
            if not order[c] or order[c][-1] != event.tag:
                order[c].append(event.tag)
    for i, text in enumerate(texts):
        kinds = [e.WhichOneof("event") for e in got[i]]
        assert kinds == ["accepted", "piece", "done"], (i, got[i])
        assert got[i][1].piece.text == text
    for tag, code in ((1000, 9), (1001, 5), (1002, 3)):
        assert [e.error.code for e in got[tag]] == [code], got[tag]
    assert all(tags == sorted(tags) for tags in order.values()), "events of a conversation come in order"
    for c in cs:
        parley.close(c)


class Spoken:
    """A Chat whose messages are sent one by one; its events by tag."""

    def __init__(self, parley):
        self.messages = queue.Queue()
        self.call = parley.conversations.Chat(iter(self.messages.get, None))
        self.got = {}

    def send(self, tag, **what):
        self.messages.put(conversations.ChatRequest(tag=tag, **what))

    def cancel(self, tag):
        self.send(tag, cancel=conversations.ChatCancel())

    def until(self, tag, *kinds):
        """Reads to this tag's next event of these kinds."""
        for event in self.call:
            self.got.setdefault(event.tag, []).append(event)
            if event.tag == tag and event.WhichOneof("event") in kinds:
                return event
        raise AssertionError(f"the stream ended without {kinds} of {tag}: {self.got}")

    def kinds(self, tag):
        return [event.WhichOneof("event") for event in self.got.get(tag, [])]

    def end(self):
        self.messages.put(None)
        for event in self.call:
            self.got.setdefault(event.tag, []).append(event)


def chat_cancels(parley):
    """A cancel ends the turn of its tag and no other: what was said stays, one that waits never was."""
    c, other = parley.open("long"), parley.open("long")
    chat = Spoken(parley)
    far = 1 << 40  # tags that are far from each other
    chat.send(far, turn=long_request(c, 1))
    chat.until(far, "piece")
    chat.send(2 * far, turn=long_request(c, 2))
    chat.send(3 * far, turn=long_request(other, 1))
    chat.until(3 * far, "piece")
    chat.cancel(17)  # nobody's
    chat.cancel(2 * far)
    error = chat.until(2 * far, "error").error
    assert error.code == grpc.StatusCode.CANCELLED.value[0], error
    assert parley.get(c).queued == 0 and word(parley.get(c), "state") == "busy", "the first goes on"
    chat.cancel(far)
    done = chat.until(far, "done").done
    text = "".join(e.piece.text for e in chat.got[far] if e.WhichOneof("event") == "piece")
    assert word(done, "finish_reason") == "cancelled" and 0 < done.usage.completion_tokens < ENDLESS
    assert idle(parley, c).transcript[0].reply == text, "what was said stays said"
    assert word(parley.get(other), "state") == "busy"
    chat.cancel(far)  # has ended: ignored
    chat.cancel(3 * far)
    assert word(chat.until(3 * far, "done").done, "finish_reason") == "cancelled"
    chat.send(far, turn=long_request(c, 2, tokens=3))
    assert word(chat.until(far, "done").done, "finish_reason") == "length", "a tag whose turn has ended is free"
    chat.end()
    assert 17 not in chat.got
    parley.close(c)
    parley.close(other)


def chat_tag_in_use(parley):
    """A message whose tag is in use is refused by itself; the turn that has the tag goes on."""
    c, other = parley.open("long"), parley.open("echo")
    chat = Spoken(parley)
    chat.send(7, turn=long_request(c, 1))
    chat.until(7, "piece")
    chat.send(7, turn=request(other, 1, "me too"))
    refused = chat.until(7, "refused").refused
    assert (refused.code, refused.field) == (grpc.StatusCode.ALREADY_EXISTS.value[0], "tag"), refused
    assert parley.get(other).turns == 0
    chat.send(7)
    assert chat.until(7, "refused").refused.field == "tag"
    chat.send(8)
    error = chat.until(8, "error").error
    assert (error.code, error.field) == (grpc.StatusCode.INVALID_ARGUMENT.value[0], "request"), error
    chat.send(8, turn=request(other, 1, "now I"))
    assert chat.until(8, "piece").piece.text == "now I", "the tag of a message that failed is free"
    chat.until(7, "piece")
    chat.cancel(7)
    assert word(chat.until(7, "done").done, "finish_reason") == "cancelled"
    chat.end()
    parley.close(c)
    parley.close(other)


def chat_left(parley):
    """A stream that goes away ends its turns."""
    c = parley.open("long")
    more = threading.Event()

    def requests():
        yield conversations.ChatRequest(tag=1, turn=long_request(c, 1))
        more.wait(PATIENCE)

    call = parley.conversations.Chat(requests())
    for event in call:
        if event.WhichOneof("event") == "piece":
            break
    call.cancel()
    more.set()
    assert word(idle(parley, c).transcript[0], "finish_reason") == "cancelled"
    parley.close(c)


def watch(parley, conversation="", token=""):
    return parley.conversations.Watch(conversations.ConversationsWatchRequest(conversation=conversation, resume_token=token))


def facts(event):
    return word(event, "kind"), event.conversation


def read_until(events, last):
    """The events up to this one."""
    seen = []
    for event in events:
        seen.append(event)
        if facts(event) == last:
            return seen
    raise AssertionError(f"the stream ended without {last}: {seen}")


def close_all(parley):
    """What earlier tests have left open."""
    for c in parley.conversations.List(conversations.ConversationsListRequest(page_size=1000)).conversations:
        parley.close(c.conversation)


def watching(parley):
    """First the conversations that are open, newest first, with their state; then all that happens, in order."""
    close_all(parley)
    before = [parley.open("echo", metadata={"n": str(n)}) for n in range(3)]
    turn(parley, request(before[0], 1, "hello"))
    events = watch(parley)
    seen = read_until(events, ("synced", ""))
    assert [facts(e) for e in seen] == [("snapshot", c) for c in before[::-1]] + [("synced", "")], seen
    assert [(e.state.conversation, e.state.metadata["n"], e.state.turns, len(e.state.transcript)) for e in seen[:-1]] == [
        (before[2], "2", 0, 0), (before[1], "1", 0, 0), (before[0], "0", 1, 0)], seen
    c = parley.open("echo")
    child = parley.fork(c)
    parley.close(c)
    parley.close(child)
    seen += read_until(events, ("closed", child))
    assert [facts(e) for e in seen[4:]] == [("opened", c), ("forked", child), ("closed", c), ("closed", child)], seen
    assert seen[5].parent == c and not seen[5].HasField("state")
    assert len({e.resume_token for e in seen}) == len(seen) and all(e.resume_token and e.unix_ms for e in seen)
    events.cancel()
    for n, event in enumerate(seen):  # behind any event the rest comes, once
        again = watch(parley, token=event.resume_token)
        if event is not seen[-1]:
            rest = [e for e in seen[n + 1:]]
            got = read_until(again, ("closed", child))
            assert [(facts(e), e.resume_token) for e in got] == [(facts(e), e.resume_token) for e in rest], (n, got)
        else:
            late = parley.open("echo")
            assert facts(next(again)) == ("opened", late)
            parley.close(late)
        again.cancel()
    life = seen[0].resume_token
    other = ("0" if life[0] != "0" else "1") + life[1:]
    again = watch(parley, token=other)
    assert [facts(e) for e in read_until(again, ("synced", ""))] == [("snapshot", c) for c in before[::-1]] + [("synced", "")], "another life's"
    again.cancel()
    for nonsense in ("x", life + "0", life[:-1], life.replace("-", "+")):
        fails(grpc.StatusCode.INVALID_ARGUMENT, lambda: watch(parley, token=nonsense), field="resume_token")
    for each in before:
        parley.close(each)
    first = parley.open("echo")
    for _ in range(512):  # more than is kept
        parley.close(parley.open("echo"))
    again = watch(parley, token=seen[-1].resume_token)
    assert facts(next(again)) == ("snapshot", first), "the snapshot comes again"
    again.cancel()
    parley.close(first)


def watching_one(parley):
    """One conversation's events alone; the stream ends when it is closed, and nothing is missed that came while nobody watched."""
    c, other = parley.open("echo"), parley.open("echo")
    events = watch(parley, c)
    seen = read_until(events, ("synced", ""))
    assert [facts(e) for e in seen] == [("snapshot", c), ("synced", "")]
    parley.close(other)
    child = parley.fork(c)
    parley.close(c)
    assert [facts(e) for e in events] == [("closed", c)] and events.code() == grpc.StatusCode.OK
    for event in seen:
        late = watch(parley, c, event.resume_token)
        due = [("synced", "")] if word(event, "kind") == "snapshot" else []
        assert [facts(e) for e in late] == due + [("closed", c)] and late.code() == grpc.StatusCode.OK
    last = list(watch(parley, c, seen[1].resume_token))[-1]
    fails(grpc.StatusCode.NOT_FOUND, lambda: watch(parley, c, last.resume_token))
    fails(grpc.StatusCode.NOT_FOUND, lambda: watch(parley, c))
    fails(grpc.StatusCode.NOT_FOUND, lambda: watch(parley, "nobody", last.resume_token))
    parley.close(child)
    short = parley.open("echo", ttl_ms=100)
    events = watch(parley, short)
    assert [facts(e) for e in events][-1] == ("expired", short) and events.code() == grpc.StatusCode.OK


def watching_a_crowd(parley):
    """Whoever follows knows what is open, though conversations open and close while the snapshot is sent, and the link breaks often."""
    close_all(parley)
    crowd = [parley.open("echo") for _ in range(2000)]
    stop = threading.Event()
    is_open = set(crowd)

    def churn():
        n = 0
        while not stop.is_set():
            n += 1
            if n % 2:
                c = parley.open("echo")
                is_open.add(c)
            else:
                c = sorted(is_open)[n * 7919 % len(is_open)]
                is_open.remove(c)
                parley.close(c)

    thread = threading.Thread(target=churn)
    thread.start()
    known, synced, token, breaks, n_seen, snapshots = set(), 0, "", 0, 0, 0
    try:
        while breaks < 30 or not synced:
            events = watch(parley, token=token)
            for n, event in enumerate(events, 1):
                kind, c = facts(event)
                n_seen += 1
                token = event.resume_token
                assert kind != "lost", "the ring was enough"
                if kind == "snapshot":
                    assert c not in known and not synced, "each once"
                    snapshots += 1
                if kind in ("snapshot", "opened"):
                    known.add(c)
                elif kind == "closed":
                    known.discard(c)
                synced += kind == "synced"
                if n >= 100 and breaks < 30:
                    break
                if breaks >= 30 and synced:
                    break
            events.cancel()
            breaks += 1
    finally:
        stop.set()
        thread.join(PATIENCE)
    mark = parley.open("echo")
    is_open.add(mark)
    events = watch(parley, token=token)
    for event in events:
        kind, c = facts(event)
        if kind == "opened":
            known.add(c)
        elif kind == "closed":
            known.discard(c)
        if (kind, c) == ("opened", mark):
            break
    events.cancel()
    assert synced == 1 and known == is_open, (synced, len(known), len(is_open), len(known ^ is_open))
    assert snapshots > 1000
    for c in is_open:
        parley.close(c)


def watching_slowly(parley):
    """Nothing is lost though more happens while a snapshot is sent than is kept, as long as the watcher keeps up with it."""
    close_all(parley)
    crowd = [parley.open("echo", metadata={"long": "x" * 14000}) for _ in range(1600)]  # more bytes than are sent ahead
    events = watch(parley)
    seen, due = [], []
    while ("synced", "") not in seen[-3:]:
        seen += [facts(next(events)) for _ in range(3)]
        c = parley.open("echo")
        parley.close(c)
        due += [("opened", c), ("closed", c)]
    seen += [facts(e) for e in read_until(events, due[-1])] if due[-1] not in seen else []
    events.cancel()
    assert len(due) > 1200, "more than is kept"
    assert "lost" not in [kind for kind, _ in seen]
    assert [e for e in seen if e[0] == "snapshot"] == [("snapshot", c) for c in crowd[::-1]]
    assert [e for e in seen if e[0] in ("opened", "closed")] == due
    for c in crowd:
        parley.close(c)


def listing(parley):
    mine = [parley.open("echo") for _ in range(7)]
    pages, token = [], ""
    while True:
        page = parley.conversations.List(conversations.ConversationsListRequest(page_size=3, page_token=token, model="echo"))
        pages.append([c.conversation for c in page.conversations])
        token = page.next_page_token
        if not token:
            break
        parley.close(pages[-1][-1])  # the place of a page is found though its last one has gone
    assert [c for page in pages for c in page][:7] == mine[::-1], pages
    for c in mine:
        if c not in [page[-1] for page in pages[:-1]]:
            parley.close(c)


def pages_of(parley, c, **more):
    pages, token = [], ""
    while True:
        pages.append(parley.get(c, page_token=token, **more))
        token = pages[-1].next_page_token
        if not token:
            return pages


def transcript_pages(parley):
    """The pages of a transcript are the whole, in order, bounded by turns and by bytes; one from before a rewind is refused."""
    c = parley.open("echo")
    texts = [f"turn {n}" for n in range(1, 251)]
    for n, text in enumerate(texts, 1):
        turn(parley, request(c, n, text))
    for size, due in ((0, [100, 100, 50]), (70, [70, 70, 70, 40]), (250, [250]), (5000, [250])):
        pages = pages_of(parley, c, page_size=size)
        assert [len(page.transcript) for page in pages] == due, (size, [len(page.transcript) for page in pages])
        whole = [t for page in pages for t in page.transcript]
        assert [(t.turn, t.reply, t.messages[0].text) for t in whole] == [(n, text, text) for n, text in enumerate(texts, 1)]
    assert not parley.get(c, without_transcript=True).next_page_token
    stale = parley.get(c).next_page_token
    assert parley.conversations.Rewind(conversations.ConversationsRewindRequest(conversation=c, to_turn=50)).turns == 50
    fails(grpc.StatusCode.OUT_OF_RANGE, lambda: parley.get(c, page_token=stale), field="page_token")
    for n in range(51, 251):
        turn(parley, request(c, n, "another"))
    fails(grpc.StatusCode.OUT_OF_RANGE, lambda: parley.get(c, page_token=stale), field="page_token")
    for nonsense in ("x", "1-", "1-2 ", "-1-2", "1-99999999999", "é"):
        fails(grpc.StatusCode.INVALID_ARGUMENT, lambda: parley.get(c, page_token=nonsense), field="page_token")
    parley.close(c)

    big = parley.open("echo", system="s" * (1 << 19))
    texts = [chr(ord("a") + n) * (300 << 10) for n in range(8)] + ["z" * (3 << 19)]
    for n, text in enumerate(texts, 1):
        turn(parley, request(big, n, text))
    pages = pages_of(parley, big)
    assert [t.reply for page in pages for t in page.transcript] == texts
    assert all(page.ByteSize() < 2 << 20 for page in pages[:-1]) and len(pages) > 4, [page.ByteSize() for page in pages]
    assert len(pages[-1].transcript) == 1, "one turn is always there"
    parley.close(big)


def reads_back(parley):
    """A conversation says what it was opened with: all that was given and nothing else."""
    given = sampling.Sampling(temperature=0, top_k=5, top_p=0.5, min_p=0.25, repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=-0.5,
                              logit_bias={3: 1.5, 7: -2}, seed=9, stop=["END", "."], max_tokens=0, min_tokens=2, ignore_eos=False)
    c = parley.open("tiny", sampling=given, limits=conversations.ConversationLimits(max_turns=3, max_tokens=40, priority=-5))
    kept = parley.get(c)
    assert kept.sampling == given and kept.generation == 1, kept
    assert (kept.limits.max_turns, kept.limits.max_tokens, kept.limits.priority) == (3, 40, -5)
    child = parley.get(parley.fork(c))
    assert child.sampling == given and child.limits == kept.limits
    some = sampling.Sampling(top_k=0, clear_stop=True)
    other = parley.open("tiny", sampling=some)
    assert parley.get(other).sampling == some
    plain = parley.open("tiny")
    assert not parley.get(plain).HasField("sampling")
    assert [m.sampling for m in parley.conversations.List(conversations.ConversationsListRequest(page_size=2)).conversations] == [sampling.Sampling(), some]
    turn(parley, request(plain, 1, "x"))
    parley.conversations.Rewind(conversations.ConversationsRewindRequest(conversation=plain, to_turn=0))
    assert parley.get(plain).generation == 2
    for each in (c, child.conversation, other, plain):
        parley.close(each)


def updating(parley):
    """Update changes what later turns take as their defaults, says what it made of it, and touches no fork; what it refuses changes nothing."""
    def update(c, **more):
        return parley.conversations.Update(conversations.ConversationsUpdateRequest(conversation=c, **more))

    first = sampling.Sampling(max_tokens=3, ignore_eos=True, stop=["nothing says this"])
    c = parley.open("long", sampling=first, metadata={"user": "ada"}, ttl_ms=600000)
    child = parley.fork(c)
    assert len(turn(parley, request(c, 1, "hello")).ids) == 3
    second = sampling.Sampling(max_tokens=5, ignore_eos=True)
    said = update(c, sampling=second)
    assert said.sampling == second and said.metadata == {"user": "ada"} and said.ttl_ms == 600000 and said.turns == 1 and not said.transcript
    assert parley.get(c, without_transcript=True).sampling == second
    assert len(turn(parley, request(c, 2, "hello")).ids) == 5, "the next turn has it"
    assert parley.get(child).sampling == first and len(turn(parley, request(child, 1, "hello")).ids) == 3, "a fork keeps what it had"
    grandchild = parley.fork(c)
    assert parley.get(grandchild).sampling == second
    said = update(c, ttl_ms=0)
    assert said.ttl_ms == 24 * 60 * 60 * 1000 and said.sampling == second
    said = update(c, ttl_ms=5000000, metadata=conversations.ConversationMetadata(entries={"room": "7"}))
    assert said.ttl_ms == 5000000 and said.metadata == {"room": "7"} and said.sampling == second
    for field, more in (("temperature", {"sampling": sampling.Sampling(temperature=-1)}),
                        ("sampling.clear_stop", {"sampling": sampling.Sampling(stop=["x"], clear_stop=True)}), ("ttl_ms", {"ttl_ms": 1 << 60})):
        more["metadata"] = conversations.ConversationMetadata(entries={"no": "no"})
        fails(grpc.StatusCode.INVALID_ARGUMENT, lambda: update(c, **more), field=field)
    crowd = conversations.ConversationMetadata(entries={str(n): "" for n in range(65)})
    fails(grpc.StatusCode.INVALID_ARGUMENT, lambda: update(c, ttl_ms=1, metadata=crowd), field="metadata")
    kept = parley.get(c, without_transcript=True)
    assert (kept.ttl_ms, kept.metadata, kept.sampling) == (5000000, {"room": "7"}, second), kept
    said = update(c, sampling=sampling.Sampling(), metadata=conversations.ConversationMetadata())
    assert not said.HasField("sampling") and not said.metadata
    fails(grpc.StatusCode.INVALID_ARGUMENT, lambda: update(""), field="conversation")
    fails(grpc.StatusCode.NOT_FOUND, lambda: update("0" * 32))
    for each in (child, grandchild, c):
        parley.close(each)
    short = parley.open("echo")
    assert update(short, ttl_ms=50).ttl_ms == 50
    until("the new time to live to pass", lambda: short not in [m.conversation for m in
          parley.conversations.List(conversations.ConversationsListRequest(model="echo")).conversations])


def garbage(parley):
    host, port = parley.address.rsplit(":", 1)
    for nonsense in (b"\x00" * 4096, b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 40, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 900):
        with socket.create_connection((host, int(port)), PATIENCE) as s:
            try:
                s.sendall(nonsense)
                s.shutdown(socket.SHUT_WR)
                while s.recv(4096):
                    pass
            except OSError:
                pass
    raw = parley.channel.unary_unary("/parley.v1.Conversations/Open", request_serializer=bytes, response_deserializer=bytes)
    try:
        raw(b"\xff\xff\xff")
        raise AssertionError("bytes that are no message were taken")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
    assert word(parley.models.Get(models.ModelsGetRequest(name="echo")), "state") == "ready"


def killed_client(parley):
    c = parley.open("long")
    program = ("import sys\nsys.path.insert(0, sys.argv[1])\nimport harness, test_foreign\n"
               "for e in harness.Client(sys.argv[2]).conversations.Turn(test_foreign.long_request(sys.argv[3], 1)):\n"
               "    print(e.WhichOneof('event'), flush=True)\n")
    here = os.path.dirname(os.path.abspath(__file__))
    client = children.start([sys.executable, "-c", program, here, parley.address, c], stdout=subprocess.PIPE, text=True)
    for line in client.stdout:
        if line.strip() == "piece":
            break
    client.kill()
    client.wait()
    client.stdout.close()
    kept = idle(parley, c)
    assert kept.turns == 1 and word(kept.transcript[0], "finish_reason") == "cancelled"
    assert turn(parley, long_request(c, 2, tokens=3)).done.turn == 2
    parley.close(c)


# --- daemons of their own ---


def full_queue(parleyd, long):
    with harness.Parleyd(parleyd, "--model", f"long={long}", "--max-queue", "16") as parley:
        running = []

        def batching():
            return parley.models.Get(models.ModelsGetRequest()).batching

        def one_more():
            """A turn that nobody ends; where there is no place, how long that took to say."""
            c, start = parley.open(), time.monotonic()
            call = parley.conversations.Turn(long_request(c, 1))
            try:
                next(call)
            except grpc.RpcError as error:
                took = time.monotonic() - start
                assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED and detail_of(error).retry_after_ms > 0, error
                return c, took
            running.append(call)
            return None

        def is_full():
            b = batching()
            return b.running == b.max_rows and b.waiting == 16

        until("a full batch and queue", lambda: one_more() and is_full())
        refusals = [one_more() for _ in range(20)]
        assert all(refusals), "somebody ended by itself"
        print(f"a refusal takes {min(took for _, took in refusals) * 1e3:.1f} ms")
        for call in running:
            call.cancel()
        until("the queue to empty", lambda: batching().running == 0)
        assert turn(parley, long_request(refusals[0][0], 1, tokens=2)).done.turn == 1, "who was refused may try again"


def expiry(parleyd):
    with harness.Parleyd(parleyd, "--ttl", "300ms") as parley:
        parley.open("echo")
        longer = parley.open("echo", ttl_ms=3600000)
        until("the end of what is idle", lambda: parley.admin.Status(admin.AdminStatusRequest()).conversations == 1)
        assert parley.get(longer).ttl_ms == 3600000


def unix_socket(parleyd):
    with tempfile.TemporaryDirectory() as folder:
        with harness.Parleyd(parleyd, "--listen", f"unix:{folder}/socket") as parley:
            local = harness.Client(f"unix:{folder}/socket")
            assert turn(local, request(local.open("echo"), 1, "hello")).text == "hello"
            assert parley.admin.Status(admin.AdminStatusRequest()).conversations == 1
            local.channel.close()


def one_and_wait(c, end):
    yield conversations.ChatRequest(tag=1, turn=request(c, 1, "hello"))
    end.wait(PATIENCE)


def drain(parleyd, tiny):
    """A turn is in flight until its client has read it: one that takes little and reads last."""
    daemon = harness.Parleyd(parleyd, "--model", f"tiny={tiny}", "--drain-timeout", "10m")
    with daemon as parley:
        watch = parley.health.Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == SERVING
        other, idle_one = parley.open(), parley.open()
        slow = harness.Client(parley.address, ("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0), ("grpc.use_local_subchannel_pool", 1))
        call = slow.conversations.Turn(long_request(other, 1, tokens=600))
        assert next(call).WhichOneof("event") == "accepted"
        end_chat = threading.Event()
        chat = parley.conversations.Chat(one_and_wait(parley.open("echo"), end_chat))
        assert next(chat).WhichOneof("event") == "accepted"
        daemon.process.send_signal(signal.SIGTERM)
        assert next(watch).status == NOT_SERVING
        fails(grpc.StatusCode.UNAVAILABLE, lambda: parley.conversations.Open(conversations.ConversationsOpenRequest()))
        fails(grpc.StatusCode.UNAVAILABLE, lambda: parley.conversations.Turn(request(idle_one, 1, "new")))
        assert word(parley.admin.Status(admin.AdminStatusRequest()), "state") == "draining"
        assert Said(chat).code == grpc.StatusCode.UNAVAILABLE, "a stream that would go on for ever ends"
        said = Said(call)
        assert said.done and word(said.done, "finish_reason") == "length" and len(said.ids) == 600, "the turn in flight is finished"
        end_chat.set()
        slow.channel.close()
        assert daemon.process.wait(PATIENCE) == 0


def lingering(parley):
    """Calls that nothing of their own ends, one of each kind."""
    attach = parley.channel.stream_stream("/parley.v1.Act/Attach")  # with no offer: nobody needs to learn
    nothing = threading.Event()
    calls = [
        parley.conversations.Watch(conversations.ConversationsWatchRequest()),
        parley.params.Watch(params.ParamsWatchRequest(name="numbers")),
        parley.params.UpdateAndFetch(wait_for(nothing)),
        parley.conversations.Chat(wait_for(nothing)),
        attach(wait_for(nothing)),
    ]
    return calls, nothing


def wait_for(event):
    event.wait(PATIENCE)
    yield from ()


def said_stopping(call):
    try:
        for _ in call:  # a version that was there already
            pass
    except grpc.RpcError as error:
        return error.code() == grpc.StatusCode.UNAVAILABLE and error.details() == "the server is shutting down"
    return False


def drain_ends_what_lingers(parleyd):
    """What would go on for ever ends when the server drains, and at once when it begins later; who watches its health is told to the end."""
    daemon = harness.Parleyd(parleyd, "--drain-timeout", "10m")
    with daemon as parley:
        create(parley.params, "numbers", {"w": [1]}, round_size=2)
        watch = parley.health.Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == SERVING
        end_update = threading.Event()
        update = parley.params.UpdateAndFetch(half_an_update(end_update))
        before, end_before = lingering(parley)
        until("the calls", lambda: parley.admin.Status(admin.AdminStatusRequest()).calls == len(before) + 3)
        daemon.process.send_signal(signal.SIGTERM)
        assert all(said_stopping(call) for call in before)
        assert next(watch).status == NOT_SERVING
        later, end_later = lingering(parley)
        assert all(said_stopping(call) for call in later)
        assert update.is_active(), "what is under way goes on"
        late_watch = parley.health.Watch(health_pb2.HealthCheckRequest())
        assert next(late_watch).status == NOT_SERVING
        update.cancel()
        assert daemon.process.wait(PATIENCE) == 0, "nobody waits for those who watch health"
        for event in (end_update, end_before, end_later):
            event.set()


def half_an_update(end):
    yield params.ParamsUpload(header=params.ParamsUploadHeader(name="numbers", client_id="a", step_id=1))
    end.wait(PATIENCE)


def second_signal(parleyd, long):
    daemon = harness.Parleyd(parleyd, "--model", f"long={long}", "--drain-timeout", "10m")
    with daemon as parley:
        call = parley.conversations.Turn(long_request(parley.open(), 1))
        next(call)
        daemon.process.send_signal(signal.SIGTERM)
        until("the drain", lambda: not_serving(parley))
        daemon.process.send_signal(signal.SIGTERM)
        assert Said(call).done is None, "it does not wait"
        assert daemon.process.wait(PATIENCE) == 0


def not_serving(parley):
    return parley.health.Check(health_pb2.HealthCheckRequest()).status == NOT_SERVING


def ends(command, code, *says):
    """Runs to its end: the exit code, and one line on stderr that says all this."""
    done = children.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == code, f"{command}: {done.returncode}, {done.stderr}"
    lines = [line for line in done.stderr.splitlines() if line.startswith("parleyd: ")]
    assert len(lines) == 1 and all(text in lines[0] for text in says), f"{command}: {done.stderr}"


def wrong_starts(parleyd, tiny):
    ends([parleyd, "--nonsense"], 2, "--nonsense")
    ends([parleyd, "--model", "x=/nowhere/x.gguf"], 1, "/nowhere/x.gguf", "./run model", "--model x=")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ends([parleyd, "--listen", address], 1, address, "--listen")
    with tempfile.TemporaryDirectory() as folder:
        cut = os.path.join(folder, "cut.gguf")
        with open(tiny, "rb") as whole, open(cut, "wb") as part:
            part.write(whole.read(100000))
        ends([parleyd, "--listen", "127.0.0.1:0", "--model", f"cut={cut}"], 1, "cut.gguf")
    assert children.run([parleyd, "--check", "--listen", "127.0.0.1:0", "--model", f"tiny={tiny}"], timeout=PATIENCE).returncode == 0
    said = children.run([parleyd, "--version"], capture_output=True, text=True, timeout=PATIENCE)
    assert said.returncode == 0 and said.stdout.startswith("parleyd ")
    said = children.run([parleyd, "--help"], capture_output=True, text=True, timeout=PATIENCE)
    assert said.returncode == 0 and "--listen" in said.stdout and said.stderr == ""


def main():
    parleyd, write_tiny_model = sys.argv[1:3]
    only = sys.argv[3:]
    shared = [health_and_models, three_turns, tokens_stream, exactly_once, opened_once, fork_and_rewind, rewind_again,
              client_cancels, cancel_call, cancel_one, deadlines,
              asked_whole, asked_along, told_only, bad_input, chat_stream, chat_cancels, chat_tag_in_use, chat_left, watching, watching_one, watching_a_crowd, watching_slowly, listing,
              transcript_pages, reads_back, updating, garbage, killed_client]
    with tempfile.TemporaryDirectory() as folder:
        tiny = os.path.join(folder, "tiny.gguf")
        long = os.path.join(folder, "long.gguf")
        children.run([write_tiny_model, tiny], check=True)
        children.run([write_tiny_model, long, "65536"], check=True)

        def run(test, *args):
            if not only or test.__name__ in only:
                start = time.monotonic()
                test(*args)
                print(f"{test.__name__}: good, {time.monotonic() - start:.2f} s", flush=True)

        with harness.Parleyd(parleyd, "--model", f"tiny={tiny}", "--model", f"long={long}", "--linger", "0") as parley:
            for test in shared:
                run(test, parley)
        run(full_queue, parleyd, long)
        run(expiry, parleyd)
        run(unix_socket, parleyd)
        run(drain, parleyd, tiny)
        run(drain_ends_what_lingers, parleyd)
        run(second_signal, parleyd, long)
        run(wrong_starts, parleyd, tiny)


if __name__ == "__main__":
    main()
