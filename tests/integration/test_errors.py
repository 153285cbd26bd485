#!/usr/bin/env python3
"""Errors as a foreign client reads them: grpcio-status decodes what is in grpc-status-details-bin by the published messages of
googleapis-common-protos. Status, reason, field and delay are the same in our own trailer, and in the events of a stream.

usage: test_errors.py PARLEYD WRITE_TINY_MODEL MAN_PAGE      (run by the interpreter that has them; see venv.sh)
"""
import os
import re
import sys
import tempfile

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

import children
import harness
import trainer
from children import PATIENCE
from harness import content, conversations, error_pb2, models, params

code = grpc.StatusCode
seen = set()


class Details:
    """What a call failed with, by grpcio-status; parley-error-bin must say the same."""

    def __init__(self, call):
        try:
            result = call()
            if not hasattr(result, "DESCRIPTOR"):
                list(result)
        except grpc.RpcError as error:
            self.read(error)
        else:
            raise AssertionError("the call must fail")

    def read(self, error):
        status = rpc_status.from_call(error)
        assert status is not None, f"{error} has no details"
        info, bad, retry = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
        unpacked = [[m.DESCRIPTOR.name for m in (info, bad, retry) if d.Unpack(m)] for d in status.details]
        assert unpacked[0] == ["ErrorInfo"] and sorted(sum(unpacked, [])) == sorted({n for u in unpacked for n in u}), unpacked
        assert info.domain == "parley"
        self.code, self.text, self.reason, self.metadata = error.code(), status.message, info.reason, dict(info.metadata)
        self.field = bad.field_violations[0].field if bad.field_violations else ""
        self.retry_ms = retry.retry_delay.ToMilliseconds()
        (ours,) = [error_pb2.ErrorDetail.FromString(v) for k, v in error.trailing_metadata() if k == "parley-error-bin"]
        assert (ours.code, ours.message, ours.reason, ours.field) == (status.code, self.text, self.reason, self.field), ours
        assert ours.retry_after_ms == self.retry_ms and (not bad.field_violations or bad.field_violations[0].description == self.text)
        assert self.code.value[0] == status.code and error.details() == status.message
        seen.add(self.reason)

    def __repr__(self):
        return f"{self.code} {self.reason} field={self.field!r} retry={self.retry_ms} {self.metadata} {self.text}"


def expect(call, status, reason, field="", retries=False):
    d = Details(call)
    assert (d.code, d.reason, d.field, d.retry_ms > 0) == (status, reason, field, retries), d
    return d


def request(conversation, turn=0, text="hello", **more):
    return conversations.TurnRequest(conversation=conversation, turn=turn, text=text, **more)


def fields(parley):
    c = parley.open("echo")
    r = request(c)
    r.sampling.top_p = 7
    d = expect(lambda: parley.conversations.Turn(r), code.INVALID_ARGUMENT, "INVALID_FIELD", "top_p")
    assert d.text == "top_p is 7, it must be from 0 to 1", d
    many = {str(i): "x" for i in range(1000)}
    expect(lambda: parley.open("echo", metadata=many), code.INVALID_ARGUMENT, "INVALID_FIELD", "metadata")
    expect(lambda: parley.open("echo", system="x" * ((1 << 20) + 1)), code.INVALID_ARGUMENT, "INVALID_FIELD", "system")
    messages = [content.Message(role="user", text="x")] * 5000
    expect(lambda: parley.conversations.Turn(request(c, text="", messages=messages)), code.INVALID_ARGUMENT, "INVALID_FIELD", "messages")
    expect(lambda: parley.conversations.Turn(request(c, text="x" * 60, messages=messages[:1])), code.INVALID_ARGUMENT, "INVALID_FIELD", "text")
    expect(lambda: parley.fork(c, at_turn=9), code.OUT_OF_RANGE, "TURN_NOT_FOUND", "at_turn")
    rewind = conversations.ConversationsRewindRequest(conversation=c, to_turn=9)
    expect(lambda: parley.conversations.Rewind(rewind), code.OUT_OF_RANGE, "TURN_NOT_FOUND", "to_turn")


def names(parley):
    expect(lambda: parley.get("0" * 32), code.NOT_FOUND, "CONVERSATION_NOT_FOUND", "conversation")
    # Any byte may stand in a name: what is sent back is one line of UTF-8, and headers hold it.
    expect(lambda: parley.get("\n\u4f60" * 1000), code.NOT_FOUND, "CONVERSATION_NOT_FOUND", "conversation")
    expect(lambda: parley.open("nobody"), code.NOT_FOUND, "MODEL_NOT_FOUND", "model")
    expect(lambda: parley.models.Get(models.ModelsGetRequest(name="nobody")), code.NOT_FOUND, "MODEL_NOT_FOUND", "name")
    expect(lambda: parley.models.Load(models.ModelsLoadRequest(name="nobody")), code.NOT_FOUND, "MODEL_NOT_FOUND", "name")
    expect(lambda: parley.params.Pull(params.ParamsPullRequest(name="nobody")), code.NOT_FOUND, "PARAMS_NOT_FOUND", "name")
    expect(lambda: parley.models.Get(models.ModelsGetRequest(name="x" * 3000)), code.NOT_FOUND, "MODEL_NOT_FOUND", "name")
    nothing = parley.channel.unary_unary("/parley.v1.Models/Nothing", response_deserializer=models.Model.FromString)
    expect(lambda: nothing(b""), code.UNIMPLEMENTED, "METHOD_NOT_FOUND")


def turns(parley):
    c = parley.open("echo", limits=conversations.ConversationLimits(max_turns=1))
    list(parley.conversations.Turn(request(c, 1)))
    expect(lambda: parley.conversations.Turn(request(c, 1, "another")), code.ALREADY_EXISTS, "TURN_BODY_DIFFERS", "turn")
    expect(lambda: parley.conversations.Turn(request(c, 3)), code.FAILED_PRECONDITION, "TURN_GAP", "turn")
    expect(lambda: parley.conversations.Turn(request(c, 2)), code.FAILED_PRECONDITION, "CONVERSATION_FULL")
    short = parley.open("long", limits=conversations.ConversationLimits(max_tokens=2))
    expect(lambda: parley.conversations.Turn(request(short)), code.OUT_OF_RANGE, "CONTEXT_EXCEEDED", "messages")


def queues(parley):
    """One turn runs, the queue behind it fills; whoever comes then is told when to come back, in a trailer and in a stream."""
    c = parley.open("long")
    long_turn = request(c)
    long_turn.sampling.max_tokens = 60000
    long_turn.sampling.ignore_eos = True
    chat = parley.conversations.Chat(iter([conversations.ChatRequest(tag=i, turn=long_turn) for i in range(1, 65)]), timeout=PATIENCE)
    refused = next(event.error for event in chat if event.WhichOneof("event") == "error")
    assert refused.code == code.RESOURCE_EXHAUSTED.value[0] and refused.reason == "QUEUE_FULL" and refused.retry_after_ms > 0, refused
    d = expect(lambda: parley.conversations.Turn(request(c)), code.RESOURCE_EXHAUSTED, "QUEUE_FULL", retries=True)
    assert d.retry_ms == refused.retry_after_ms == 100, d
    expect(lambda: parley.conversations.Rewind(conversations.ConversationsRewindRequest(conversation=c, to_turn=0)), code.FAILED_PRECONDITION, "CONVERSATION_BUSY")
    parley.conversations.Cancel(conversations.ConversationsCancelRequest(conversation=c))
    chat.cancel()
    parley.close(c)


def limits(parleyd):
    with harness.Parleyd(parleyd, "--max-conversations", "1") as parley:
        parley.open()
        d = expect(parley.open, code.RESOURCE_EXHAUSTED, "LIMIT_REACHED", retries=True)
        assert d.retry_ms == 1000, d


def versions(parley):
    """A gradient that is too old says in the metadata how old, and what there is; what exists or is not new is named as well."""
    trainer.create(parley.params, "set", {"w": [1]}, max_staleness=1, dedupe=True)
    expect(lambda: trainer.create(parley.params, "set", {"w": [1]}), code.ALREADY_EXISTS, "PARAMS_EXIST", "name")
    updates = trainer.Updates(parley.params)
    for n in range(1, 4):
        updates.update("set", "a", n, [1], base=n - 1)
    updates.close()

    def send(*args, **more):
        return lambda: list(parley.params.UpdateAndFetch(iter(trainer.upload(*args, **more)), timeout=PATIENCE))

    d = expect(send("set", "late", 1, [1], base=1), code.FAILED_PRECONDITION, "GRADIENT_TOO_OLD", "base_version")
    assert d.metadata == {"have_version": "1", "want_version": "3"}, d
    expect(send("set", "a", 2, [1], base=3), code.ALREADY_EXISTS, "GRADIENT_NOT_NEW", "step_id")


def documented(man_page):
    """Each reason of base/reason.h is in the man page; what came here is one of them, or a status's name."""
    header = os.path.join(os.path.dirname(__file__), "../../base/reason.h")
    with open(header) as f:
        words = set(re.findall(r"REASON_([A-Z_]+),", f.read())) - {"NONE"}
    with open(man_page) as f:
        listed = set(re.findall(r"^\.B ([A-Z_]+)$", f.read(), re.M))
    assert words <= listed, words - listed
    assert seen <= words | {c.name for c in code}, seen - words


def main():
    parleyd, write_tiny_model, man_page = sys.argv[1:4]
    with tempfile.TemporaryDirectory() as folder:
        long = os.path.join(folder, "long.gguf")
        children.run([write_tiny_model, long, "65536"], check=True)
        with harness.Parleyd(parleyd, "--model", f"long={long}") as parley:
            for test in (fields, names, turns, queues, versions):
                test(parley)
                print(f"{test.__name__}: good", flush=True)
        limits(parleyd)
    documented(man_page)


if __name__ == "__main__":
    main()
