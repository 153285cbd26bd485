#!/usr/bin/env python3
"""How the daemon's end answers: whatever was asked has a whole answer, or UNAVAILABLE with its details, 503 over HTTP. The calls are those
that the daemon names by reflection, so a new service is among them.

usage: test_endings.py PARLEYD WRITE_TINY_MODEL      (run by the interpreter that has grpcio and the stubs; see venv.sh)
"""
import contextlib
import http.client
import json
import os
import signal
import socket
import sys
import tempfile
import threading

import grpc
import hpack
from google.rpc import error_details_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_status import rpc_status

import children
import harness
import test_http2
from children import PATIENCE
from harness import admin, conversations, error_pb2

CLIENTS = 64
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


def methods(channel):
    """Every method of every service but Drain, which would end the others: path, whether client and server stream."""
    database = ProtoReflectionDescriptorDatabase(channel)
    found = []
    for name in database.get_services():
        file = database.FindFileContainingSymbol(name)
        found += [(f"/{name}/{method.name}", method.client_streaming, method.server_streaming)
                  for service in file.service if f"{file.package}.{service.name}" == name
                  for method in service.method if method.name != "Drain"]
    assert len(found) > 60, found
    return found


class Held:
    """A call of any method, without fields; a client that streams says nothing, nor that it has no more to say."""

    def __init__(self, channel, path, client_streams, server_streams):
        self.path, self.is_stream, self.enough = path, server_streams, threading.Event()
        make = {(False, False): channel.unary_unary, (False, True): channel.unary_stream, (True, False): channel.stream_unary,
                (True, True): channel.stream_stream}[client_streams, server_streams]
        stub = make(path, request_serializer=bytes, response_deserializer=bytes)
        request = self.requests() if client_streams else b""
        self.call = stub(request) if server_streams else stub.future(request)

    def requests(self):
        self.enough.wait(PATIENCE)
        yield from ()

    def end(self):
        """The error, or None where it was answered."""
        try:
            return rest(self.call) if self.is_stream else self.call.exception(PATIENCE)
        finally:
            self.enough.set()


def rest(call):
    try:
        for _ in call:
            continue
    except grpc.RpcError as error:
        return error
    return None


def detail(error):
    """What the trailer says; None without it."""
    trailer = dict(error.trailing_metadata() or ()).get("parley-error-bin")
    return None if trailer is None else error_pb2.ErrorDetail.FromString(trailer)


def is_draining(error, what):
    """Both trailers say it, with a reason and when to come back."""
    assert error.code() == UNAVAILABLE, (what, error)
    ours = detail(error)
    assert ours is not None and ours.reason == "SERVER_DRAINING" and ours.retry_after_ms > 0, (what, error)
    assert dict(error.trailing_metadata())["retry-after-ms"] == str(ours.retry_after_ms), what
    found = {one.type_url.rsplit(".", 1)[1]: one for one in rpc_status.from_call(error).details}
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    assert found["ErrorInfo"].Unpack(info) and info.reason == "SERVER_DRAINING" and info.domain == "parley", (what, info)
    assert found["RetryInfo"].Unpack(retry) and retry.retry_delay.ToMilliseconds() == ours.retry_after_ms, (what, retry)


def has_gone(error):
    """The daemon is not there any more: the words are the client's own."""
    return error is not None and error.code() == UNAVAILABLE and detail(error) is None


def judge(error, what):
    """True: the call says that the daemon ends. Else it has its own answer, if only what is wrong with the request."""
    if error is None:
        return False
    assert detail(error) is not None, (what, error)
    if detail(error).reason != "SERVER_DRAINING":
        return False
    is_draining(error, what)
    return True


def is_draining_now(parley):
    return parley.health.Check(harness.health_pb2.HealthCheckRequest()).status == 2


def every_method(parleyd, flags):
    """Begun before the drain and within it, each method ends with the daemon as it should."""
    daemon = harness.Parleyd(parleyd, *flags, "--http", "off", "--drain-timeout", "1h")
    with daemon as parley:
        all_ = methods(parley.channel)
        running = parley.conversations.Turn(conversations.TurnRequest(
            conversation=parley.open("long"), text="x", sampling=harness.sampling.Sampling(max_tokens=60000, ignore_eos=True)))
        next(event for event in running if event.WhichOneof("event") == "piece")
        before = [Held(parley.channel, *method) for method in all_]
        children.until("all calls", lambda: parley.admin.Status(admin.AdminStatusRequest()).calls > 10, daemon.process)
        daemon.process.send_signal(signal.SIGTERM)
        children.until("a drain", lambda: is_draining_now(parley), daemon.process)
        within = [Held(parley.channel, *method) for method in all_]
        # More than gRPC core was asked for: the others wait inside it.
        queued = [Held(parley.channel, "/parley.v1.Conversations/Ask", False, False) for _ in range(200)]
        daemon.process.send_signal(signal.SIGTERM)
        n = sum(judge(held.end(), held.path) for held in before + within)
        assert n > 20, n  # the long-lived ones
        is_draining(rest(running), "a turn in flight")
        for held in queued:
            error = held.end()
            assert has_gone(error) or judge(error, "queued") or error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
        daemon.process.wait(PATIENCE)


def half_request(parleyd, flags):
    """A request of which half is there is not known to any handler: it is UNAVAILABLE all the same, after a GOAWAY."""
    daemon = harness.Parleyd(parleyd, *flags, "--http", "off")
    with daemon as parley:
        parley.http = parley.address
        peer = test_http2.Peer(parley)
        stream = peer.ask("/parley.v1.Conversations/Ask", b"\0\0\0\0\x64half", ends=False, content_type="application/grpc", te="trailers")
        heads, goaways, ends, is_read = hpack.Decoder(), 0, [], False
        for kind, _, id_, payload in test_http2.frames(peer.socket):
            if kind == 8 and id_ == stream and not is_read:  # room for the other half
                is_read = True
                daemon.process.send_signal(signal.SIGTERM)
            goaways += kind == 7 and not ends
            if kind == 1 and id_ == stream:
                ends.append(dict(heads.decode(payload))["grpc-status"])
        assert goaways > 0 and ends[:1] == ["14"], (goaways, ends)


def call_until_gone(address, method, found, enough):
    with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        while True:
            held = Held(channel, *method)
            held.enough.set()
            error = held.end()
            enough.release()
            if has_gone(error):
                return
            try:
                found.append(judge(error, method[0]))
            except AssertionError as bad:
                found.append(bad)
                return


def under_calls(parleyd, flags):
    """The daemon stops while clients call one method after the other without a pause."""
    with harness.Parleyd(parleyd, *flags, "--http", "off") as parley:
        # What lasts until the drain is every_method's.
        all_ = [method for method in methods(parley.channel) if not (method[2] and not method[1])]
    daemon = harness.Parleyd(parleyd, *flags, "--http", "off")
    with daemon as parley:
        found, enough = [], threading.Semaphore(0)
        threads = [threading.Thread(target=call_until_gone, args=(parley.address, all_[i % len(all_)], found, enough)) for i in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for _ in range(4 * CLIENTS):
            assert enough.acquire(timeout=PATIENCE)
        daemon.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join(PATIENCE)
        bad = [one for one in found if isinstance(one, AssertionError)]
        assert not bad, (len(bad), bad[:3])
        assert any(found), len(found)


# --- HTTP ---

CHATS = {"/v1/chat/completions": {"max_tokens": 60000, "ignore_eos": True}, "/v1/completions": {"prompt": "x", "max_tokens": 60000, "ignore_eos": True},
         "/v1/responses": {"input": "x", "max_output_tokens": 60000, "ignore_eos": True}, "/v1/messages": {"max_tokens": 60000, "ignore_eos": True},
         "/api/chat": {"options": {"num_predict": 60000, "ignore_eos": True}}, "/api/generate": {"prompt": "x", "options": {"num_predict": 60000, "ignore_eos": True}}}


def ask(parley, path, stream):
    body = {"model": "long", "stream": stream, **CHATS[path]}
    if "prompt" not in body and "input" not in body:
        body["messages"] = [{"role": "user", "content": "x"}]
    client = http.client.HTTPConnection(parley.http, timeout=PATIENCE)
    client.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    return client


def says_why(path, said):
    """The last event of a stream, in its API's own form."""
    last = [line for line in said.decode().split("\n") if line.strip() and line != "data: [DONE]"][-1]
    data = json.loads(last.removeprefix("data: "))
    if path.startswith("/api/"):
        return "shutting down" in data["error"]
    if path == "/v1/responses":
        return data["type"] in ("response.failed", "error") and "shutting down" in last
    return "shutting down" in data["error"]["message"]


def expect_refusal(path, answer):
    """503 with when to come back, in its API's own form, and no further request on this connection."""
    body = json.loads(answer.read())
    assert answer.status == 503 and int(answer.headers["Retry-After"]) >= 1 and answer.headers["Connection"] == "close", (path, answer.status, body)
    assert body["error"] if path.startswith("/api/") else body["error"]["message"], (path, body)


def over_http(parleyd, flags):
    """Each API, whole and as a stream; a head and a body of which half is there; a fresh connection."""
    daemon = harness.Parleyd(parleyd, *flags, "--http", "127.0.0.1:0", "--drain-timeout", "1h")
    with daemon as parley:
        host, port = parley.http.rsplit(":", 1)
        streams = {path: ask(parley, path, True) for path in CHATS}
        answers = {path: client.getresponse() for path, client in streams.items()}
        said = {path: answer.read(10) for path, answer in answers.items()}
        whole = {path: ask(parley, path, False) for path in CHATS}
        children.until("all requests", lambda: parley.admin.Status(admin.AdminStatusRequest()).conversations == 2 * len(CHATS), daemon.process)
        halves = [socket.create_connection((host, int(port)), PATIENCE) for _ in range(2)]
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n"
        halves[0].sendall(head)
        halves[1].sendall(head + b"\r\n" + b"x" * 50)
        daemon.process.send_signal(signal.SIGTERM)
        children.until("a drain", lambda: is_draining_now(parley), daemon.process)
        expect_refusal("/v1/messages", ask(parley, "/v1/messages", False).getresponse())
        daemon.process.send_signal(signal.SIGTERM)
        for path, client in whole.items():
            expect_refusal(path, client.getresponse())
        for path, answer in answers.items():
            said[path] += answer.read()
            assert says_why(path, said[path]), (path, said[path][-300:])
        for half in halves:
            answer = http.client.HTTPResponse(half)
            answer.begin()
            expect_refusal("/v1/chat/completions", answer)
            assert half.recv(1) == b""
            half.close()
        daemon.process.wait(PATIENCE)


# --- many at once ---

SHORT, STORY = 40, 60000  # tokens
BODY = {"model": "long", "messages": [{"role": "user", "content": "x"}], "stream": True, "ignore_eos": True}


def grpc_stream(parley, n_tokens):
    """How one request ended: "whole", "ended" with the daemon as it should, or "gone": there was no daemon to take it."""
    with grpc.insecure_channel(parley.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        client = harness.conversations_pb2_grpc.ConversationsStub(channel)
        try:
            opened = client.Open(conversations.ConversationsOpenRequest(model="long")).conversation
            list(client.Turn(conversations.TurnRequest(conversation=opened, text="x", sampling=harness.sampling.Sampling(max_tokens=n_tokens, ignore_eos=True))))
        except grpc.RpcError as error:
            if has_gone(error):
                return "gone"
            is_draining(error, "a turn")
            return "ended"
    return "whole"


def judge_stream(status, body, n_tokens):
    if status == 503:
        assert "shutting down" in body or "draining" in body, body
        return "ended"
    assert status == 200 and body.endswith("data: [DONE]\n\n"), (status, body[-200:])
    if '"finish_reason":"length"' in body:
        return "whole"
    assert says_why("/v1/chat/completions", body.encode()), body[-200:]
    return "ended"


def http_stream(parley, n_tokens):
    try:
        client = http.client.HTTPConnection(parley.http, timeout=PATIENCE)
        client.connect()
    except ConnectionError:
        return "gone"
    client.request("POST", "/v1/chat/completions", json.dumps({**BODY, "max_tokens": n_tokens}))
    answer = client.getresponse()
    return judge_stream(answer.status, answer.read().decode(), n_tokens)


def http2_stream(parley, n_tokens):
    try:
        peer = test_http2.Peer(parley)
        stream = peer.ask(test_http2.CHAT, json.dumps({**BODY, "max_tokens": n_tokens}).encode())
        peer.h2.increment_flow_control_window(1 << 24)
        peer.h2.increment_flow_control_window(1 << 24, stream)
        peer.flush()
    except ConnectionError:  # also: the connection ended before it had a request
        return "gone"
    status, body, heads = None, b"", hpack.Decoder()
    for kind, flags, id_, payload in test_http2.frames(peer.socket):  # h2 takes nothing behind a GOAWAY
        assert kind != 3, payload  # RST_STREAM
        if kind == 6 and not flags & 1:
            with contextlib.suppress(ConnectionError):  # the end of the answer may lie there already, and the daemon be gone
                peer.socket.sendall(b"\0\0\x08\6\1\0\0\0\0" + payload)
        if kind == 1:
            status = int(dict(heads.decode(payload))[":status"])
        elif kind == 0:
            body += payload
        if kind in (0, 1) and id_ == stream and flags & 1:
            return judge_stream(status, body.decode(), n_tokens)
    raise AssertionError(f"the connection ended without an answer: {status}, {body[-100:]}")


def many_streams(parleyd, flags):
    """Clients of all transports begin short streams one after the other, and some long ones, while the daemon drains and ends."""
    daemon = harness.Parleyd(parleyd, *flags, "--http", "127.0.0.1:0", "--drain-timeout", "200ms")
    ends, enough = [], threading.Semaphore(0)

    def ask_until_gone(parley, one, n_tokens):
        how = None
        while how != "gone":
            try:
                how = one(parley, n_tokens)
            except Exception as bad:
                ends.append((one.__name__, bad))
                return
            finally:
                enough.release()
            ends.append((one.__name__, how))

    with daemon as parley:
        threads = [threading.Thread(target=ask_until_gone, args=(parley, (grpc_stream, http_stream, http2_stream)[i % 3], STORY if i % 4 == 0 else SHORT))
                   for i in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for _ in range(2 * CLIENTS):
            assert enough.acquire(timeout=PATIENCE)
        daemon.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join(PATIENCE)
        bad = [end for end in ends if isinstance(end[1], Exception)]
        assert not bad, (len(bad), bad[:4])
        for one in (grpc_stream, http_stream, http2_stream):
            assert {(one.__name__, "whole"), (one.__name__, "ended")} <= set(ends), set(ends)


def main():
    parleyd, write_tiny_model = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        long = os.path.join(folder, "long.gguf")
        children.run([write_tiny_model, long, "65536"], check=True)
        flags = ["--model", f"long={long}"]
        for test in (every_method, half_request, under_calls, over_http, many_streams):
            if not sys.argv[3:] or test.__name__ in sys.argv[3:]:
                test(parleyd, flags)
                print(f"{test.__name__}: good", flush=True)


main()
