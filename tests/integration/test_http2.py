#!/usr/bin/env python3
"""HTTP/2 by prior knowledge: the unmodified `openai` client over httpx, curl, and frames by `h2`: many streams on one connection, flow control, bounds,
damaged frames, a drain. HTTP/1.1 stays as it was beside it.

usage: test_http2.py PARLEYD WRITE_TINY_MODEL      (run by the interpreter that has the clients; see venv.sh)
"""
import json
import os
import random
import socket
import struct
import sys
import tempfile

import h2.config
import h2.connection
import h2.events
import h2.settings
import httpx
import openai

import children
import harness
from children import PATIENCE, until

CHAT = "/v1/chat/completions"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
ASK = [{"role": "user", "content": "hello"}]
ENDLESS = {"model": "long", "messages": ASK, "max_tokens": 60000, "ignore_eos": True, "stream": True}


class Peer:
    """A client by frames: what came, by stream."""

    def __init__(self, parley, window=None, pieces=0):
        host, port = parley.http.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()
        if window is not None:
            self.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        self.status, self.body, self.ended, self.reset, self.goaway, self.is_over = {}, {}, set(), {}, None, False
        self.takes = window is None
        for byte in self.h2.data_to_send() if pieces else ():
            self.socket.sendall(bytes([byte]))
        self.flush()

    def flush(self):
        self.socket.sendall(self.h2.data_to_send())

    def ask(self, path, body=None, method=None, ends=True, **headers):
        stream = self.h2.get_next_available_stream_id()
        head = [(":method", method or ("GET" if body is None else "POST")), (":path", path), (":scheme", "http"), (":authority", "127.0.0.1")]
        self.h2.send_headers(stream, head + [(k.replace("_", "-"), v) for k, v in headers.items()], end_stream=body is None and ends)
        if body is not None:
            self.h2.send_data(stream, body, end_stream=ends)
        self.flush()
        return stream

    def take(self):
        """What came next; returns whether anything did."""
        data = self.socket.recv(65536)
        self.is_over = not data
        for e in self.h2.receive_data(data) if data else ():
            if isinstance(e, h2.events.ResponseReceived):
                self.status[e.stream_id] = int(dict(e.headers)[":status"])
                self.body[e.stream_id] = b""
            elif isinstance(e, h2.events.DataReceived):
                self.body[e.stream_id] += e.data
                if self.takes:
                    self.h2.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
            elif isinstance(e, h2.events.StreamEnded):
                self.ended.add(e.stream_id)
            elif isinstance(e, h2.events.StreamReset):
                self.reset[e.stream_id] = e.error_code
            elif isinstance(e, h2.events.ConnectionTerminated):
                self.goaway = e
        if not self.is_over:
            try:
                self.flush()
            except h2.exceptions.ProtocolError:
                pass
        return not self.is_over

    def wait(self, holds):
        while not holds():
            assert self.take(), "the connection ended"

    def whole(self, stream):
        self.wait(lambda: stream in self.ended)
        return self.status[stream], self.body[stream]

    def whole_chat(self, text):
        return self.whole(self.ask(CHAT, chat(text)))[1]

    def close(self):
        self.socket.close()


def chat(text, **more):
    return json.dumps({"model": "echo", "messages": [{"role": "user", "content": text}], **more}).encode()


def said(body):
    return json.loads(body)["choices"][0]["message"]["content"]


def clients(parley):
    """The openai package, whole and streamed, gives what it gives over HTTP/1.1; its errors too; curl speaks both."""
    url, asked = f"http://{parley.http}/v1", dict(model="tiny", messages=ASK, max_tokens=24, seed=3, temperature=1)
    with httpx.Client(http1=False, http2=True, timeout=PATIENCE) as both:
        two, one = (openai.OpenAI(base_url=url, api_key="any", max_retries=0, timeout=PATIENCE, **more) for more in ({"http_client": both}, {}))
        assert both.get(f"http://{parley.http}/health").http_version == "HTTP/2"
        whole = two.chat.completions.create(**asked)
        assert whole.choices == one.chat.completions.create(**asked).choices
        texts = [["".join(c.choices[0].delta.content or "" for c in client.chat.completions.create(stream=True, **asked))] for client in (two, one, two)]
        assert texts[0] == texts[1] == texts[2] == [whole.choices[0].message.content], texts
        events = [e.type for e in two.responses.create(model="tiny", input="hello", max_output_tokens=4, stream=True, store=False)]
        assert events[0] == "response.created" and events[-1] in ("response.completed", "response.incomplete"), events
        for wrong, error in ((dict(model="nothing"), openai.NotFoundError), (dict(temperature=-1), openai.BadRequestError)):
            try:
                two.chat.completions.create(**{**asked, **wrong})
                raise AssertionError(f"{wrong} was taken")
            except error as e:
                assert e.body["message"] and e.response.http_version == "HTTP/2" and e.response.headers["x-request-id"], e
    for flag, version in (("--http2-prior-knowledge", "2"), ("--http1.1", "1.1"), ("--http2", "1.1")):
        got = children.run(["curl", "-sS", flag, "-w", "\n%{http_version} %{http_code}", "-d", chat("by curl").decode(), f"http://{parley.http}{CHAT}"],
                           capture_output=True, text=True, check=True).stdout.rsplit("\n", 1)
        assert said(got[0]) == "by curl" and got[1] == f"{version} 200", got


def streams(parley):
    """Many requests on one connection: those behind a long reply are answered while it goes on, in any order; one that is reset ends alone."""
    peer = Peer(parley, pieces=1)
    endless = peer.ask(CHAT, json.dumps(ENDLESS).encode())
    peer.wait(lambda: len(peer.body.get(endless, b"")) > 100)
    for round_ in range(2):
        asked = {peer.ask(CHAT, chat(f"number {i}")): f"number {i}" for i in range(60)}
        for stream, text in asked.items():
            status, body = peer.whole(stream)
            assert status == 200 and said(body) == text, (text, status, body)
    slow = peer.ask(CHAT, chat("in two parts")[:10], ends=False)
    assert peer.whole(peer.ask("/health"))[0] == 200 and slow not in peer.status
    peer.h2.send_data(slow, chat("in two parts")[10:], end_stream=True)
    peer.flush()
    assert said(peer.whole(slow)[1]) == "in two parts" and endless not in peer.ended
    at = len(peer.body[endless])
    peer.wait(lambda: len(peer.body[endless]) > at)
    peer.h2.reset_stream(endless)
    peer.flush()
    until("the end of the reply that was reset", lambda: n_conversations(parley) == 0)
    status, body = peer.whole(peer.ask("/v1/models/", method="HEAD"))
    assert (status, body) == (200, b"")
    assert peer.whole(peer.ask("/nothing"))[0] == 404 and peer.whole(peer.ask("/health", method="PUT"))[0] == 405
    peer.h2.ping(b"12345678")
    peer.flush()
    assert peer.whole(peer.ask("/health"))[0] == 200
    # A peer that goes away ends its replies.
    for _ in range(3):
        peer.ask(CHAT, json.dumps(ENDLESS).encode())
    until("three replies", lambda: n_conversations(parley) == 3)
    peer.close()
    until("the end of its replies", lambda: n_conversations(parley) == 0)


def n_conversations(parley):
    return len(parley.conversations.List(harness.conversations.ConversationsListRequest()).conversations)


def windows(parley):
    """No more is sent than the peer's window allows, and the rest once it does; others are not held up."""
    text = "many words, " * 1300
    peer = Peer(parley, window=100)
    one = peer.ask(CHAT, chat(text))
    peer.wait(lambda: len(peer.body.get(one, b"")) == 100)
    other = peer.ask("/health")
    peer.wait(lambda: other in peer.status)
    assert len(peer.body[one]) == 100
    for size in (1, 1000, 1 << 20):
        peer.h2.increment_flow_control_window(size, one)
        if size > 1000:
            peer.h2.increment_flow_control_window(size)
            peer.takes = True
        before = len(peer.body[one])
        peer.flush()
        if size <= 1000:
            peer.wait(lambda: len(peer.body[one]) == before + size)
    assert said(peer.whole(one)[1]) == text
    peer.close()


def bounds(parley):
    """Too many headers or too long a body are refused alone; who opens more streams than the server announced loses the connection."""
    peer = Peer(parley)
    long = peer.ask("/health", **{f"x-{i}": "v" * 1000 for i in range(20)})
    assert peer.whole(long)[0] == 431
    large = peer.ask(CHAT, b"x" * 16000, ends=False, content_length="200001")
    assert peer.whole(large)[0] == 413
    sent = peer.ask(CHAT, b"x" * 16000, ends=False)
    peer.wait(lambda: peer.h2.local_flow_control_window(sent) > 16384)
    for _ in range(12):
        if sent in peer.status:
            break
        peer.h2.send_data(sent, b"x" * 16000)
        peer.flush()
    assert peer.whole(sent)[0] == 413
    assert said(peer.whole(peer.ask(CHAT, chat("on")))[1]) == "on"
    peer.close()
    # h2 keeps to the server's bound of streams by itself, so these frames are written without asking it.
    flood = Peer(parley)
    flood.wait(lambda: flood.h2.remote_settings.max_concurrent_streams < 1000)
    most = flood.h2.remote_settings.max_concurrent_streams
    block = flood.h2.encoder.encode([(":method", "POST"), (":path", CHAT), (":scheme", "http"), (":authority", "127.0.0.1")])
    flood.socket.sendall(b"".join(frame(1, 4, 2 * i + 1, block) for i in range(most + 1)))
    while flood.take():
        continue
    assert flood.goaway is not None and flood.goaway.error_code == 1, flood.goaway
    flood.close()


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def garbage(parley):
    """Frames that are damaged end their connection, with GOAWAY where there is one; what only begins like the preface is HTTP/1."""
    host, port = parley.http.rsplit(":", 1)

    def answers(sent, ends=False):
        """What comes for each, on connections that are open at once, until the server closes them."""
        sockets, all_ = [socket.create_connection((host, int(port)), timeout=PATIENCE) for _ in sent], []
        for s, data in zip(sockets, sent):
            s.sendall(data)
            if ends:
                s.shutdown(socket.SHUT_WR)
        for s in sockets:
            came = b""
            try:
                while data := s.recv(65536):
                    came += data
            except ConnectionError:
                pass
            all_.append(came)
            s.close()
        return all_

    empty = frame(4, 0, 0, b"")
    wrong = {struct.pack(">I", 1 << 20)[1:] + bytes([0, 0]) + bytes([0, 0, 0, 1]): 6, frame(0, 0, 0, b"x"): 1, frame(6, 0, 0, b"x"): 6,
             frame(1, 4, 1, b"\xff" * 40): 9, frame(8, 0, 0, bytes(4)): 1}
    for (sent, code), came in zip(wrong.items(), answers([PREFACE + empty + w for w in wrong])):
        assert b"\x07\x00\x00\x00\x00\x00" in came and struct.pack(">I", code) in came, (sent, came)  # GOAWAY
    chance = random.Random(5)
    answers([PREFACE + (empty if i % 2 else b"") + chance.randbytes(200) for i in range(40)], ends=True)
    answers([PREFACE[:i] for i in range(len(PREFACE))], ends=True)
    for came, status in zip(answers([b"PRI / HTTP/1.1\r\nHost: a\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"]), (b"501", b"505")):
        assert came.startswith(b"HTTP/1.1 " + status), came
    post = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (CHAT.encode(), len(chat("one")), chat("one"))
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as s:
        came = b""
        for part in (post[:1], post[1:]):  # P alone may still become a preface
            s.sendall(part)
        while data := s.recv(65536):
            came += data
    assert came.startswith(b"HTTP/1.1 200 ") and b'"one"' in came, came
    assert said(Peer(parley, pieces=1).whole_chat("after all")) == "after all"


def drained(parleyd, flags):
    """A drain gives notice and, once the peer knows, says GOAWAY; the reply that runs ends as it would, and the connection is closed."""
    daemon = harness.Parleyd(parleyd, *flags, "--http", "127.0.0.1:0", "--drain-timeout", "1h")
    with daemon as parley:
        peer, idle = Peer(parley), Peer(parley)
        idle.wait(lambda: idle.h2.remote_settings.max_concurrent_streams < 1000)
        peer.h2.increment_flow_control_window(1 << 24)
        stream = peer.ask(CHAT, json.dumps({**ENDLESS, "max_tokens": 1500}).encode())
        peer.h2.increment_flow_control_window(1 << 24, stream)
        peer.flush()
        # h2 takes nothing behind a GOAWAY, so the frames are read without it.
        body, goaways, has_ended, is_asked = b"", [], False, False
        for kind, flags_, id_, payload in frames(peer.socket):
            if kind == 0 and id_ == stream:
                body, has_ended = body + payload, bool(flags_ & 1)
            elif kind == 7:
                goaways.append(struct.unpack(">II", payload[:8]))
            elif kind == 6 and not flags_ & 1:
                peer.socket.sendall(b"\0\0\x08\6\1\0\0\0\0" + payload)
            if not is_asked and len(body) > 100:
                is_asked = True
                daemon.process.terminate()
        assert goaways == [(2**31 - 1, 0), (stream, 0)] and has_ended and body.endswith(b"data: [DONE]\n\n"), (goaways, has_ended, body[-80:])
        assert body.count(b"data: ") > 1000, body.count(b"data: ")
        while idle.take():
            continue
        assert idle.goaway.error_code == 0


def frames(connection):
    """Kind, flags, stream and payload of each, until the connection ends."""
    data = b""
    while more := connection.recv(65536):
        data += more
        while len(data) >= 9 and len(data) >= 9 + int.from_bytes(data[:3], "big"):
            end = 9 + int.from_bytes(data[:3], "big")
            yield data[3], data[4], int.from_bytes(data[5:9], "big"), data[9:end]
            data = data[end:]


def main():
    parleyd, write_tiny_model = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        tiny, long = (os.path.join(folder, f"{name}.gguf") for name in ("tiny", "long"))
        children.run([write_tiny_model, tiny], check=True)
        children.run([write_tiny_model, long, "65536"], check=True)
        flags = ["--model", f"tiny={tiny}", "--model", f"long={long}"]
        with harness.Parleyd(parleyd, *flags, "--http", "127.0.0.1:0", "--max-message-bytes", "200000") as parley:
            for test in (clients, streams, windows, bounds, garbage):
                if sys.argv[3:] and test.__name__ not in sys.argv[3:]:
                    continue
                test(parley)
                print(f"{test.__name__}: good", flush=True)
        drained(parleyd, flags)
        print("drained: good")


if __name__ == "__main__":
    main()
