#!/usr/bin/env python3
"""The Connect protocol: the rules that its conformance suite tests, as a table of requests and what comes back; the same messages as gRPC's,
by protobuf's own JSON; streams, deadlines, clients that vanish, keys, pages, a drain.

usage: test_connect.py PARLEYD WRITE_TINY_MODEL PARLEY      (run by the interpreter that has grpcio and the stubs; see venv.sh)
"""
import base64
import gzip
import hashlib
import http.client
import json
import os
import struct
import sys
import tempfile
import urllib.parse

import google_crc32c
import grpc
from connectrpc.client import ConnectClientSync
from connectrpc.compat import google_protobuf_binary_codec, google_protobuf_json_codec
from connectrpc.errors import ConnectError
from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType
from google.protobuf import json_format

import children
import harness
from children import PATIENCE, until
from harness import conversations, models
from parley.v1 import store_pb2

JSON, PROTO, JSON_STREAM, PROTO_STREAM = "application/json", "application/proto", "application/connect+json", "application/connect+proto"
SERVICE = "/parley.v1.Conversations/"
OPEN, LIST, FORK, TURN, CHAT, WATCH = (SERVICE + name for name in ("Open", "List", "Fork", "Turn", "Chat", "Watch"))


def connect(client):
    host, port = client.http.rsplit(":", 1)
    return http.client.HTTPConnection(host, int(port), timeout=PATIENCE)


def ask(client, method, path, body=None, **headers):
    c = connect(client)
    c.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    r = c.getresponse()
    data = r.read()
    c.close()
    return r.status, {name.lower(): value for name, value in r.getheaders()}, data


def unary(client, method, message, **headers):
    status, _, data = ask(client, "POST", SERVICE + method, json.dumps(message), Content_Type=JSON, **headers)
    return status, json.loads(data)


def frame(data, flags=0):
    return struct.pack(">BI", flags, len(data)) + data


def frames(data):
    """The messages of a stream, and its last, which is there."""
    found = []
    while data:
        flags, size = struct.unpack(">BI", data[:5])
        assert len(data) >= 5 + size and not (found and found[-1][0] & 2), data
        found.append((flags, data[5 : 5 + size]))
        data = data[5 + size :]
    assert found and found[-1][0] == 2, found
    return [message for _, message in found[:-1]], json.loads(found[-1][1])


def stream(client, method, *messages, **headers):
    body = b"".join(frame(json.dumps(m).encode()) for m in messages)
    status, said, data = ask(client, "POST", SERVICE + method, body, Content_Type=JSON_STREAM, **headers)
    assert status == 200 and said["content-type"] == JSON_STREAM, (status, data)
    found, end = frames(data)
    return [json.loads(m) for m in found], end


def query(path, **parameters):
    return f"{path}?{urllib.parse.urlencode(parameters)}"


def cases(conversation):
    """What is asked, and what comes back: HTTP's status, then the code of the error, None for none."""
    empty, gzipped = b"{}", gzip.compress(b"{}")
    wire = conversations.ConversationsForkRequest(conversation=conversation).SerializeToString()
    forked = json.dumps({"conversation": conversation}).encode()
    yield "unary, JSON", "POST", OPEN, empty, {"Content-Type": JSON}, 200, None
    yield "unary, protobuf", "POST", FORK, wire, {"Content-Type": PROTO}, 200, None
    yield "unary, an empty message of protobuf", "POST", OPEN, b"", {"Content-Type": PROTO}, 200, None
    yield "a parameter of the type", "POST", OPEN, empty, {"Content-Type": JSON + "; charset=utf-8"}, 200, None
    yield "a type in capitals", "POST", OPEN, empty, {"Content-Type": "Application/JSON"}, 200, None
    yield "the protocol's version", "POST", OPEN, empty, {"Content-Type": JSON, "Connect-Protocol-Version": "1"}, 200, None
    yield "another version", "POST", OPEN, empty, {"Content-Type": JSON, "Connect-Protocol-Version": "2"}, 400, "invalid_argument"
    yield "compressed", "POST", OPEN, gzipped, {"Content-Type": JSON, "Content-Encoding": "gzip"}, 200, None
    yield "compressed by none", "POST", OPEN, empty, {"Content-Type": JSON, "Content-Encoding": "identity"}, 200, None
    yield "an unknown compression", "POST", OPEN, empty, {"Content-Type": JSON, "Content-Encoding": "br"}, 415, "unimplemented"
    yield "a damaged compression", "POST", OPEN, empty, {"Content-Type": JSON, "Content-Encoding": "gzip"}, 400, "invalid_argument"
    yield "a timeout", "POST", OPEN, empty, {"Content-Type": JSON, "Connect-Timeout-Ms": "9999999999"}, 200, None
    for wrong in "99999999999", "-1", "1.5", "a", "", "0x1", "1 000":
        yield f"a timeout of '{wrong}'", "POST", OPEN, empty, {"Content-Type": JSON, "Connect-Timeout-Ms": wrong}, 400, "invalid_argument"
    for wrong in "text/plain", "application/x-www-form-urlencoded", JSON_STREAM, "application/grpc", "application/jsonx", "application/jso", "":
        yield f"a unary of type '{wrong}'", "POST", OPEN, empty, {"Content-Type": wrong}, 415, "invalid_argument"
    yield "no type", "POST", OPEN, empty, {}, 415, "invalid_argument"
    yield "a stream of a unary's type", "POST", TURN, frame(empty), {"Content-Type": JSON}, 415, "invalid_argument"
    yield "no such method", "POST", SERVICE + "Frok", empty, {"Content-Type": JSON}, 404, "unimplemented"
    yield "no such service", "POST", "/parley.v1.Conversation/Fork", empty, {"Content-Type": JSON}, 404, ()
    yield "PUT", "PUT", OPEN, empty, {"Content-Type": JSON}, 405, "invalid_argument"
    yield "GET of what has side effects", "GET", query(OPEN, encoding="json", message="{}"), None, {}, 405, "invalid_argument"
    yield "GET of a stream", "GET", query(WATCH, encoding="json", message="{}"), None, {}, 405, "invalid_argument"
    yield "GET", "GET", query(LIST, connect="v1", encoding="json", message="{}"), None, {}, 200, None
    yield "GET, HEAD", "HEAD", query(LIST, encoding="json", message="{}"), None, {}, 200, None
    yield "GET, protobuf", "GET", query(LIST, encoding="proto", message=""), None, {}, 200, None
    yield "GET, base64", "GET", query(LIST, encoding="json", base64="1", message=base64.urlsafe_b64encode(b'{"pageSize":1}').decode().rstrip("=")), None, {}, 200, None
    yield "GET, compressed", "GET", query(LIST, encoding="json", base64="1", compression="gzip", message=base64.urlsafe_b64encode(gzipped).decode()), None, {}, 200, None
    yield "GET, a space as +", "GET", LIST + "?encoding=json&message={+}".replace("{", "%7B").replace("}", "%7D"), None, {}, 200, None
    yield "GET of POST by POST", "POST", LIST, empty, {"Content-Type": JSON}, 200, None
    yield "GET without a message", "GET", query(LIST, encoding="json"), None, {}, 400, "invalid_argument"
    yield "GET without an encoding", "GET", query(LIST, message="{}"), None, {}, 415, "invalid_argument"
    yield "GET of another encoding", "GET", query(LIST, encoding="xml", message="{}"), None, {}, 415, "invalid_argument"
    yield "GET of another version", "GET", query(LIST, connect="v2", encoding="json", message="{}"), None, {}, 400, "invalid_argument"
    yield "GET, no base64", "GET", query(LIST, encoding="json", base64="1", message="{}"), None, {}, 400, "invalid_argument"
    yield "GET, an unknown compression", "GET", query(LIST, encoding="json", compression="zstd", message="{}"), None, {}, 501, "unimplemented"
    yield "GET, a message cut in its compression", "GET", query(LIST, encoding="json", base64="1", compression="gzip", message=base64.urlsafe_b64encode(gzipped[:-9]).decode()), None, {}, 400, "invalid_argument"
    for wrong in b"", b"{", b"[]", b'"a"', b"null", b"{}{}", b'{"model":"a","model":"b"}', b'{"model":"\\u0000"}', b'{"model":"\xff"}', b"[" * 5000, b'{"a":' * 3000, b'{"ttlMs":1e999}', b'{"ttlMs":99999999999999999999999}':
        yield f"JSON {wrong[:30]}", "POST", OPEN, wrong, {"Content-Type": JSON}, 400, "invalid_argument"
    for wrong in b"\xff", b"\x0a\x05ab", b"\x0a\x01\xff", b"\x0a\x01\x00", b"\x0b":
        yield f"protobuf {wrong}", "POST", FORK, wrong, {"Content-Type": PROTO}, 400, "invalid_argument"
    yield "an unknown field of protobuf", "POST", FORK, wire + b"\xba\x3e\x01a", {"Content-Type": PROTO}, 200, None
    yield "an unknown field of JSON", "POST", OPEN, b'{"frobnicate":1}', {"Content-Type": JSON}, 400, "invalid_argument"
    # HTTP's status of each code.
    yield "not_found", "POST", FORK, b'{"conversation":"none"}', {"Content-Type": JSON}, 404, "not_found"
    yield "out_of_range", "POST", FORK, json.dumps({"conversation": conversation, "atTurn": 9}).encode(), {"Content-Type": JSON}, 400, ("invalid_argument", "out_of_range", "failed_precondition")
    yield "failed_precondition", "POST", SERVICE + "Rewind", json.dumps({"conversation": conversation, "toTurn": 0, "generation": 77}).encode(), {"Content-Type": JSON}, 400, "failed_precondition"
    yield "already_exists", "POST", OPEN, b'{"requestId":"a","system":"b"}', {"Content-Type": JSON}, 409, "already_exists"
    yield "deadline_exceeded", "POST", SERVICE + "Ask", json.dumps({"conversation": conversation, "text": "Once", "sampling": {"maxTokens": children.LONG_TURN, "ignoreEos": True}}).encode(), {"Content-Type": JSON, "Connect-Timeout-Ms": "50"}, 504, "deadline_exceeded"
    # Streams answer 200, and end with what went wrong.
    turn = json.dumps({"conversation": conversation, "observeOnly": True, "text": "a"}).encode()
    typed = {"Content-Type": JSON_STREAM}
    zipped = {**typed, "Connect-Content-Encoding": "gzip"}
    yield "a stream", "POST", TURN, frame(turn), typed, 200, None
    yield "a stream of protobuf", "POST", TURN, frame(conversations.TurnRequest(conversation=conversation, observe_only=True, text="b").SerializeToString()), {"Content-Type": PROTO_STREAM}, 200, None
    yield "a compressed message", "POST", TURN, frame(gzip.compress(turn), 1), zipped, 200, None
    yield "a message that is not compressed among such", "POST", TURN, frame(turn), zipped, 200, None
    yield "no compression", "POST", TURN, frame(turn), {**typed, "Connect-Content-Encoding": "identity"}, 200, None
    yield "a compressed message without a word", "POST", TURN, frame(gzip.compress(turn), 1), typed, 200, "invalid_argument"
    yield "a compressed message of an unknown compression", "POST", TURN, frame(turn, 1), {**typed, "Connect-Content-Encoding": "br"}, 200, "unimplemented"
    yield "a message that is not what its flag says", "POST", TURN, frame(turn, 1), zipped, 200, "invalid_argument"
    yield "a compressed message that is cut", "POST", TURN, frame(gzip.compress(turn)[:-4], 1), zipped, 200, "invalid_argument"
    yield "no message", "POST", TURN, b"", typed, 200, "unimplemented"
    yield "two messages", "POST", TURN, frame(turn) * 2, typed, 200, "unimplemented"
    yield "a cut message", "POST", TURN, frame(turn)[:-1], typed, 200, "invalid_argument"
    yield "a cut head", "POST", TURN, frame(turn)[:4], typed, 200, "invalid_argument"
    yield "a length above the body", "POST", TURN, b"\0\xff\xff\xff\xff{}", typed, 200, "invalid_argument"
    yield "a client's end", "POST", TURN, frame(turn) + frame(b"{}", 2), typed, 200, "unimplemented"
    yield "a client's end alone", "POST", TURN, frame(b"{}", 2), typed, 200, "invalid_argument"
    yield "an unknown flag", "POST", TURN, frame(turn, 128), typed, 200, "invalid_argument"
    yield "a timeout of a stream", "POST", WATCH, frame(b"{}"), {**typed, "Connect-Timeout-Ms": "0"}, 200, "deadline_exceeded"
    yield "a bad timeout of a stream", "POST", WATCH, frame(b"{}"), {**typed, "Connect-Timeout-Ms": "soon"}, 200, "invalid_argument"
    yield "a client's stream without a message", "POST", "/parley.v1.Store/Push", b"", typed, 200, "invalid_argument"
    yield "both stream, no message", "POST", CHAT, b"", typed, 200, None
    yield "both stream, the second message is cut", "POST", CHAT, frame(b'{"tag":"1","cancel":{}}') + b"\0\0", typed, 200, "invalid_argument"
    yield "unary after all", "POST", FORK, forked, {"Content-Type": JSON}, 200, None


def table(client, conversation):
    assert unary(client, "Open", {"requestId": "a"})[0] == 200
    n = 0
    for name, method, path, body, headers, want_status, want in cases(conversation):
        status, said, data = ask(client, method, path, body, **headers)
        if status == 200 and headers.get("Content-Type", "").startswith("application/connect+"):
            error = frames(data)[1].get("error")
        elif status == 200:
            error = None
            assert said["content-type"] == headers.get("Content-Type", said["content-type"]).split(";")[0].lower(), name
        else:
            error = json.loads(data)
            assert said["content-type"] == JSON, name
        code = error and error.get("code")
        assert status == want_status and (want == () or code == want or code in (want or ())), (name, status, data)
        if code:
            assert error["message"] and all(d["type"] and base64.b64decode(d["value"] + "===") for d in error["details"]), (name, error)
        n += 1
    print(f"{n} rules")


def same_as_grpc(client, conversation):
    """Messages by Connect are gRPC's, by the JSON of Google's protobuf, in both directions."""
    asked = conversations.ConversationsOpenRequest(
        system="a \"b\"\n\U0001f600", ttl_ms=10**9 + 1, metadata={"k": "v", "l": ""},
        sampling={"temperature": 0.1, "top_k": 0, "seed": 2**64 - 1, "stop": ["x", "y"], "logit_bias": {3: -1.5}, "ignore_eos": False},
        limits={"max_turns": 7, "priority": -3})
    for as_json in json_format.MessageToJson(asked), json_format.MessageToJson(asked, preserving_proto_field_name=True, always_print_fields_with_no_presence=True):
        status, opened = unary(client, "Open", json.loads(as_json))
        assert status == 200, opened
        by_grpc = client.get(opened["conversation"])
        assert by_grpc.sampling == asked.sampling and by_grpc.metadata == asked.metadata and by_grpc.limits == asked.limits and by_grpc.ttl_ms == asked.ttl_ms
        status, got = unary(client, "Get", {"conversation": opened["conversation"]})
        assert status == 200
        by_connect = json_format.ParseDict(got, conversations.Conversation())
        by_connect.idle_ms = by_grpc.idle_ms = 0
        got.pop("idleMs", None)
        assert by_connect == by_grpc and got == json_format.MessageToDict(by_grpc), got
    _, _, listed = ask(client, "POST", "/parley.v1.Models/List", "{}", Content_Type=JSON)
    assert json_format.Parse(listed, models.ModelsListResponse()).models[0].name == client.models.List(models.ModelsListRequest()).models[0].name
    request = conversations.TurnRequest(conversation=conversation, text="Once upon", sampling={"max_tokens": 8, "temperature": 0}, want_logprobs=2)
    fork = client.fork(conversation)
    by_grpc = list(client.conversations.Turn(request))
    request.conversation = fork
    _, _, data = ask(client, "POST", TURN, frame(request.SerializeToString()), Content_Type=PROTO_STREAM)
    by_proto = [conversations.TurnEvent.FromString(m) for m in frames(data)[0]]
    request.conversation = client.fork(fork, at_turn=client.get(fork).turns - 1)
    by_json = [json_format.ParseDict(m, conversations.TurnEvent()) for m in stream(client, "Turn", json_format.MessageToDict(request))[0]]

    def reply(events):
        pieces = [e.piece for e in events if e.WhichOneof("event") == "piece"]
        return "".join(p.text for p in pieces), [i for p in pieces for i in p.token_ids], [tuple(l.SerializeToString() for l in p.logprobs) for p in pieces], events[-1].done.finish_reason
    assert reply(by_grpc)[0] and reply(by_grpc)[1] == reply(by_proto)[1] == reply(by_json)[1]
    assert reply(by_grpc)[0] == reply(by_proto)[0] == reply(by_json)[0] and reply(by_grpc)[3] == reply(by_json)[3]
    assert sum(reply(by_grpc)[2], ()) == sum(reply(by_json)[2], ())
    print("the same messages as gRPC's")


def details(client):
    """The same details as gRPC's; a name of the error's field for people."""
    _, error = unary(client, "Fork", {"conversation": "none"})
    try:
        client.fork("none")
    except grpc.RpcError as e:
        trailers = dict(e.trailing_metadata())
        assert error["message"] == e.details()
    packed = b"".join(base64.b64decode(d["value"] + "===") for d in error["details"])
    assert [d["type"] for d in error["details"]] == ["google.rpc.ErrorInfo", "google.rpc.BadRequest"]
    assert all(base64.b64decode(d["value"] + "===") in trailers["grpc-status-details-bin"] for d in error["details"]) and packed
    assert error["details"][0]["debug"] == {"reason": "CONVERSATION_NOT_FOUND", "domain": "parley"}
    assert error["details"][1]["debug"]["fieldViolations"][0]["field"] == "conversation"
    print("details")


def half_duplex(client):
    """A stream in both directions whose messages are all in the body; a client's stream into a store, and back."""
    opened = [unary(client, "Open", {"model": "echo"})[1]["conversation"] for _ in range(3)]
    events, end = stream(client, "Chat", *({"tag": str(i), "turn": {"conversation": c, "text": f"text {i}"}} for i, c in enumerate(opened, 1)))
    assert end == {} and {e["tag"]: e["piece"]["text"] for e in events if "piece" in e} == {str(i): f"text {i}" for i in (1, 2, 3)}
    body = b"".join(frame(json.dumps(m).encode()) for m in ({"header": {"key": "k", "sizeBytes": "70000"}}, {"data": base64.b64encode(b"x" * 70000).decode()}))
    status, _, data = ask(client, "POST", "/parley.v1.Store/Push", body, Content_Type=JSON_STREAM)
    assert status == 200 and len(frames(data)[0]) == 1, data
    status, _, data = ask(client, "POST", "/parley.v1.Store/Pull", frame(b'{"key":"k"}'), Content_Type=JSON_STREAM)
    assert b"".join(base64.b64decode(json.loads(m).get("data", "")) for m in frames(data)[0]) == b"x" * 70000
    status, _, data = ask(client, "POST", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", frame(b'{"listServices":""}') + frame(b'{"fileByFilename":"none"}'), Content_Type=JSON_STREAM)
    answers = [json.loads(m) for m in frames(data)[0]]
    assert {"name": "parley.v1.Store"} in answers[0]["listServicesResponse"]["service"] and answers[1]["errorResponse"]["errorCode"] == 5
    print("half-duplex")


def whole_bytes(client):
    """A handler that decodes its messages itself, and answers in pieces without a copy."""
    values = struct.pack("<4f", 1, 2, 3, 4)
    chunk = {"offset": "0", "data": base64.b64encode(values).decode(), "crc32c": google_crc32c.value(values)}
    body = [{"config": {"name": "w", "specs": [{"name": "a", "dtype": "DTYPE_F32", "shape": ["4"]}], "optimiser": {"kind": "PARAMS_OPTIMISER_KIND_SGD", "learningRate": 0.5}, "reduce": "PARAMS_REDUCE_MEAN", "roundSize": 1}}, {"chunk": chunk}, {"sha256": base64.b64encode(hashlib.sha256(values).digest()).decode()}]
    status, _, data = ask(client, "POST", "/parley.v1.Params/Create", b"".join(frame(json.dumps(m).encode()) for m in body), Content_Type=JSON_STREAM)
    assert status == 200 and frames(data)[1] == {}, data
    for kind in JSON_STREAM, PROTO_STREAM:
        asked = b'{"name":"w"}' if kind == JSON_STREAM else harness.params.ParamsPullRequest(name="w").SerializeToString()
        found, end = frames(ask(client, "POST", "/parley.v1.Params/Pull", frame(asked), Content_Type=kind)[2])
        downloads = [json_format.Parse(m, harness.params.ParamsDownload()) if kind == JSON_STREAM else harness.params.ParamsDownload.FromString(m) for m in found]
        assert end == {} and b"".join(d.chunk.data for d in downloads) == values, found
    body[0]["config"]["name"], body[1]["chunk"]["dat"] = "v", ""
    status, _, data = ask(client, "POST", "/parley.v1.Params/Create", b"".join(frame(json.dumps(m).encode()) for m in body), Content_Type=JSON_STREAM)
    assert frames(data)[1]["error"]["code"] == "invalid_argument", data
    print("messages as bytes")


def vanishing(client, conversation):
    """A stream whose client goes away ends; so does one that waits for more."""
    def n_calls():
        metrics = ask(client, "GET", "/metrics")[2].decode()
        return next(int(float(line.split()[1])) for line in metrics.splitlines() if line.startswith("parley_calls "))
    before = n_calls()
    c = connect(client)
    c.request("POST", WATCH, frame(b"{}"), {"Content-Type": JSON_STREAM})
    response = c.getresponse()
    assert response.read(5)[0] == 0 and n_calls() == before + 1
    response.close()
    c.close()
    until("the watch ends", lambda: n_calls() == before)
    c = connect(client)
    c.request("POST", TURN, frame(json.dumps({"conversation": conversation, "text": "a", "sampling": {"maxTokens": children.LONG_TURN, "ignoreEos": True}}).encode()), {"Content-Type": JSON_STREAM})
    response = c.getresponse()
    assert response.read(5)[0] == 0
    response.close()
    c.close()
    until("the turn ends", lambda: n_calls() == before and client.get(conversation).state == conversations.CONVERSATION_STATE_IDLE)
    print("clients that vanish")


def by_their_client(client):
    """Connect's own client for Python, as it is: each kind of method, JSON and protobuf, compressed requests, GET, a timeout, an error."""
    made = []

    def info(service, name, asked, answered, kind, level="UNKNOWN"):
        return MethodInfo(service_name=service, name=name, input=asked, output=answered, stream_type=StreamType[kind], idempotency_level=IdempotencyLevel[level])
    c = conversations
    open_it = info("parley.v1.Conversations", "Open", c.ConversationsOpenRequest, c.ConversationsOpenResponse, "UNARY")
    list_them = info("parley.v1.Conversations", "List", c.ConversationsListRequest, c.ConversationsListResponse, "UNARY", "NO_SIDE_EFFECTS")
    turn = info("parley.v1.Conversations", "Turn", c.TurnRequest, c.TurnEvent, "SERVER_STREAM")
    watch = info("parley.v1.Conversations", "Watch", c.ConversationsWatchRequest, c.ConversationEvent, "SERVER_STREAM")
    chat = info("parley.v1.Conversations", "Chat", c.ChatRequest, c.ChatEvent, "BIDI_STREAM")
    push = info("parley.v1.Store", "Push", store_pb2.StorePushRequest, store_pb2.StorePushResponse, "CLIENT_STREAM")
    for codec in google_protobuf_json_codec(), google_protobuf_binary_codec():
        with ConnectClientSync(f"http://{client.http}", codec=codec) as theirs:
            opened = theirs.execute_unary(request=c.ConversationsOpenRequest(model="echo", metadata={"made": codec.name()}), method=open_it)
            made.append(opened.conversation)
            listed = theirs.execute_unary(request=c.ConversationsListRequest(page_size=1), method=list_them, use_get=True)
            assert listed.conversations[0].metadata["made"] == codec.name()
            events = list(theirs.execute_server_stream(request=c.TurnRequest(conversation=opened.conversation, text="over there"), method=turn))
            assert [e.WhichOneof("event") for e in events] == ["accepted", "piece", "done"] and events[1].piece.text == "over there"
            asked = (c.ChatRequest(tag=i, turn={"conversation": opened.conversation, "text": f"text {i}"}) for i in (1, 2))
            assert [e.piece.text for e in theirs.execute_bidi_stream(request=asked, method=chat) if e.HasField("piece")] == ["text 1", "text 2"]
            parts = iter([store_pb2.StorePushRequest(header={"key": codec.name(), "size_bytes": 3}), store_pb2.StorePushRequest(data=b"abc")])
            assert theirs.execute_client_stream(request=parts, method=push).accepted
            for call, code, reason in (
                (lambda: theirs.execute_unary(request=c.ConversationsOpenRequest(model="none"), method=open_it), "not_found", "MODEL_NOT_FOUND"),
                (lambda: list(theirs.execute_server_stream(request=c.TurnRequest(conversation="none"), method=turn)), "not_found", "CONVERSATION_NOT_FOUND"),
                (lambda: list(theirs.execute_server_stream(request=c.ConversationsWatchRequest(), method=watch, timeout_ms=200)), "deadline_exceeded", ""),
                (lambda: theirs.execute_unary(request=c.ConversationsOpenRequest(), method=info("parley.v1.Conversations", "Frok", c.ConversationsOpenRequest, c.ConversationsOpenResponse, "UNARY")), "unimplemented", "METHOD_NOT_FOUND"),
            ):
                try:
                    raise AssertionError(call())
                except ConnectError as e:
                    assert e.code.value == code and (not reason or reason.encode() in e.details[0].message_bytes), (e, e.details)
    assert len(set(made)) == 2
    print("Connect's own client")


def pages(client):
    """A page of ours may call; a page of another site may not."""
    status, said, _ = ask(client, "OPTIONS", OPEN, Origin="http://localhost:3000", Access_Control_Request_Method="POST", Access_Control_Request_Headers="content-type,connect-protocol-version,connect-timeout-ms")
    assert status == 204 and "connect-timeout-ms" in said["access-control-allow-headers"]
    status, said, _ = ask(client, "POST", OPEN, b"{}", Content_Type=JSON, Origin="http://localhost:3000")
    assert status == 200 and said["access-control-allow-origin"] == "http://localhost:3000"
    status, said, data = ask(client, "POST", OPEN, b"{}", Content_Type=JSON, Origin="http://evil.example")
    assert status == 403 and json.loads(data)["code"] == "permission_denied" and "access-control-allow-origin" not in said
    print("pages")


def keys(parleyd, folder):
    """Each method asks for what gRPC's asks for; whose a conversation is holds here, too."""
    path = os.path.join(folder, "keys")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
        for name, *more in ("alice",), ("bob",), ("root", "admin"), ("carol", "requests=1"):
            print(name, hashlib.sha256(f"pk-{name}".encode()).hexdigest(), *more, file=f)
    with children.Daemon(parleyd, "--http", "127.0.0.1:0", "--keys", path) as daemon:
        def code(path, key=None, message=b"{}"):
            status, _, data = ask(daemon, "POST", path, message, Content_Type=JSON, **({"Authorization": f"Bearer pk-{key}"} if key else {}))
            return status, json.loads(data).get("code"), json.loads(data)
        assert code(OPEN)[:2] == (401, "unauthenticated") and code(OPEN, "eve")[:2] == (401, "unauthenticated")
        assert code("/grpc.health.v1.Health/Check")[0] == 200
        assert code("/parley.v1.Admin/Status", "alice")[:2] == (403, "permission_denied") and code("/parley.v1.Admin/Status", "root")[0] == 200
        opened = code(OPEN, "alice")[2]["conversation"]
        asked = json.dumps({"conversation": opened}).encode()
        assert code(FORK, "alice", asked)[0] == 200 and code(FORK, "bob", asked)[:2] == (404, "not_found")
        assert code(LIST, "bob")[2].get("conversations", []) == []
        asked = json.dumps({"conversation": code(OPEN, "carol")[2]["conversation"], "text": "a"}).encode()
        assert code(SERVICE + "Ask", "carol", asked)[0] == 200
        status, name, error = code(SERVICE + "Ask", "carol", asked)
        assert (status, name) == (429, "resource_exhausted") and 0 < float(error["details"][-1]["debug"]["retryDelay"][:-1]) <= 60
    print("keys")


def administration(parleyd):
    """What an address of administration serves, the public one does not."""
    def statuses(address):
        host, port = address.rsplit(":", 1)
        for path in "/parley.v1.Admin/Status", OPEN, "/grpc.health.v1.Health/Check":
            c = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
            c.request("POST", path, b"{}", {"Content-Type": JSON})
            yield c.getresponse().status
            c.close()
    for flags, public, admin in (((), [200, 200, 200], None), (("--listen-admin", "127.0.0.1:0"), [404, 200, 200], None), (("--http-admin", "127.0.0.1:0"), [404, 200, 200], [200, 404, 200])):
        with children.Daemon(parleyd, "--http", "127.0.0.1:0", *flags) as daemon:
            assert list(statuses(daemon.http)) == public, flags
            assert admin is None or list(statuses(daemon.ready["http_admin"])) == admin
    print("administration")


def drained(parleyd):
    """A stream in flight says that the server stops."""
    with children.Daemon(parleyd, "--http", "127.0.0.1:0") as daemon:
        watches = [connect(daemon) for _ in range(2)]
        for path, c in zip((WATCH, "/grpc.health.v1.Health/Watch"), watches):
            c.request("POST", path, frame(b"{}"), {"Content-Type": JSON_STREAM})
        responses = [c.getresponse() for c in watches]
        first = [r.read(5) for r in responses]
    for head, r in zip(first, responses):
        assert frames(head + r.read())[1]["error"]["code"] == "unavailable"
    print("a drain")


def named(parleyd, parley, folder):
    """A name that HTTP gave is an id everywhere, also once a restart has left the conversation to the journal; nothing else is."""
    flags = "--http", "127.0.0.1:0", "--data", os.path.join(folder, "data")
    with harness.Parleyd(parleyd, *flags) as client:
        status, said, _ = ask(client, "POST", "/v1/chat/completions", json.dumps({"messages": [{"role": "user", "content": "one"}]}), X_Conversation_Id="tour")
        first = said["x-conversation-id"]
        assert status == 200 and client.get("tour").conversation == first == client.get(first).conversation
        fork = client.fork("tour", request_id="r")
    with harness.Parleyd(parleyd, *flags) as client:
        assert client.fork("tour", request_id="r") == client.fork(first, request_id="r") == fork  # a retry, whichever it names
    with harness.Parleyd(parleyd, *flags) as client:
        assert unary(client, "Get", {"conversation": "tour"})[1]["conversation"] == first
        assert unary(client, "Ask", {"conversation": "tour", "text": "two"})[1]["message"]["text"] == "two"
        assert [e["done"]["turn"] for e in stream(client, "Turn", {"conversation": "tour", "text": "three"})[0] if "done" in e] == [3]
        chat = [conversations.ChatRequest(tag=1, turn={"conversation": "tour", "text": "four"})]
        assert [e.piece.text for e in client.conversations.Chat(iter(chat)) if e.HasField("piece")] == ["four"]
        watched = stream(client, "Watch", {"conversation": "tour"}, Connect_Timeout_Ms="100")[0]
        assert watched[0]["conversation"] == first and watched[0]["state"]["turns"] == 4
        assert unary(client, "Update", {"conversation": "tour", "metadata": {"entries": {"a": "b"}}})[1]["metadata"] == {"a": "b"}
        assert unary(client, "Import", {"conversation": "tour", "turns": [{"messages": [{"role": "user", "text": "x"}], "reply": "five"}]})[0] == 200
        assert unary(client, "Cancel", {"conversation": "tour"})[0] == 200
    with harness.Parleyd(parleyd, *flags) as client:
        def verb(*words):
            return children.run([parley, "conversations", *words, "--server", client.address], check=True, capture_output=True, text=True).stdout
        assert first in verb("show", "tour")
        assert len(verb("fork", "tour").strip()) == 32
        verb("rewind", "tour", "1")
        assert client.get("tour").turns == 1
        for wrong in "", "nobody", "a/b", "é", "..", "x" * 65, "x" * 65536, "tour ", "TOUR", "0" * 32:
            assert unary(client, "Get", {"conversation": wrong})[0] in (400, 404), wrong[:20]
        verb("close", "tour")
        assert unary(client, "Get", {"conversation": "tour"})[0] == 404 and unary(client, "Get", {"conversation": fork})[0] == 200
    print("names")


def main():
    parleyd, write_tiny_model, parley = sys.argv[1:4]
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "tiny.gguf")
        children.run([write_tiny_model, model], check=True)
        with harness.Parleyd(parleyd, "--model", f"tiny={model}", "--http", "127.0.0.1:0") as client:
            conversation = client.open("tiny")
            table(client, client.open("tiny"))
            same_as_grpc(client, conversation)
            details(client)
            half_duplex(client)
            whole_bytes(client)
            vanishing(client, conversation)
            by_their_client(client)
            pages(client)
        keys(parleyd, folder)
        administration(parleyd)
        drained(parleyd)
        named(parleyd, parley, folder)


if __name__ == "__main__":
    main()
