#!/usr/bin/env python3
"""Rooms over WebSockets, whose frames are written here byte by byte, and over gRPC: who says what in which order, who comes back and misses
nothing, and what a client that breaks the rules is told.

usage: test_rooms.py PARLEYD WRITE_TINY_MODEL      (run by the interpreter that has grpcio and the stubs; see venv.sh)"""
import base64
import concurrent.futures
import hashlib
import json
import os
import queue
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import grpc

import children
from cable import Cable

sys.path.insert(0, os.environ["PARLEY_PACKAGE"])  # made by venv.sh
from parley.v1 import rooms_pb2 as pb  # noqa: E402
from parley.v1 import rooms_pb2_grpc as rooms  # noqa: E402

PATH = "/v1/rooms/socket"
TEXT, BINARY, CLOSE, PING, PONG = 0x81, 0x82, 0x88, 0x89, 0x8A
BIG = "x" * (16 << 10)


class Socket:
    """One connection. read() gives the next frame of rooms, or the code and the sentence of a close frame."""

    path, protocol = PATH, "parley.rooms.v1"

    def __init__(self, parley, name=None, token="", key="", **headers):
        host, port = parley.http.rsplit(":", 1)
        self.raw = socket.create_connection((host, int(port)), timeout=children.PATIENCE)
        self.bytes = self.raw.makefile("rb")
        nonce = base64.b64encode(os.urandom(16)).decode()
        asked = {"Host": parley.http, "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": nonce,
                 "Sec-WebSocket-Protocol": self.protocol}
        asked |= {name.replace("_", "-"): value for name, value in headers.items()}
        self.raw.sendall("".join([f"GET {self.path} HTTP/1.1\r\n"] + [f"{k}: {v}\r\n" for k, v in asked.items() if v is not None] + ["\r\n"]).encode())
        self.status = int(self.bytes.readline().split()[1])
        self.headers = dict(line.decode().strip().lower().split(": ", 1) for line in iter(self.bytes.readline, b"\r\n"))
        if self.status == 101:
            accept = base64.b64encode(hashlib.sha1((nonce + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
            assert self.headers["sec-websocket-accept"] == accept.lower() and self.headers.get("sec-websocket-protocol") == self.protocol
        if name is not None or token:
            self.send(hello={"name": name or "", "token": token, "key": key})
            self.welcome = self.expect("welcome")

    def frame(self, first, payload=b""):
        size = len(payload)
        length = bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack(">H", size) if size < 1 << 16 else b"\xff" + struct.pack(">Q", size)
        mask = os.urandom(4)
        self.raw.sendall(bytes([first]) + length + mask + bytes(byte ^ mask[i & 3] for i, byte in enumerate(payload)))

    def send(self, **frame):
        self.frame(TEXT, json.dumps(frame).encode())

    def read(self):
        while True:
            head = self.bytes.read(2)
            assert len(head) == 2, "the connection has ended without a close frame"
            first, size = head
            if size == 126:
                size, = struct.unpack(">H", self.bytes.read(2))
            elif size == 127:
                size, = struct.unpack(">Q", self.bytes.read(8))
            payload = self.bytes.read(size)
            if first == CLOSE:
                return struct.unpack(">H", payload[:2])[0], payload[2:].decode()
            if first == TEXT:
                frame = json.loads(payload)
                if frame.get("entry", {}).get("kind") == "ROOM_ENTRY_KIND_SAID":
                    frame["entry"].setdefault("text", "")  # JSON leaves it out where a reply is empty, as this model's may be
                return frame
            if first == PING:
                self.frame(PONG, payload)

    def expect(self, kind):
        frame = self.read()
        assert list(frame) == [kind], (kind, frame)
        return frame[kind]

    def until(self, kind, holds=lambda body: True):
        """The frames up to the first of this kind that holds."""
        seen = []
        while True:
            seen.append(self.read())
            assert isinstance(seen[-1], dict), seen
            if kind in seen[-1] and holds(seen[-1][kind]):
                return seen

    def until_close(self):
        frame = self.read()
        while isinstance(frame, dict):
            frame = self.read()
        return frame

    def join(self, room, **more):
        self.send(join={"room": room, **more})
        return self.expect("snapshot")

    def say(self, room, text, number=0, **more):
        self.send(say={"room": room, "text": text, "clientSeq": number, **more})
        return self.until("ack", lambda ack: ack.get("clientSeq", 0) == number)[-1]["ack"]["seq"]

    def close(self):
        self.bytes.close()
        self.raw.close()


def entries(frames):
    """(seq, name, kind, text) of each entry."""
    return [(e["seq"], e["name"], e["kind"].rsplit("_", 1)[1], e.get("text", "")) for e in (f["entry"] for f in frames if "entry" in f)]


def talk(parley):
    """Both get the same entries in the same order; typing comes and goes; numbers make a repeated say safe."""
    ann, bob = Socket(parley, "Ann"), Socket(parley, "Bob")
    assert ann.welcome["participant"] != bob.welcome["participant"] and ann.welcome["graceMs"] == 120000
    first = ann.join("den")
    assert first["firstSeq"] == 1 and first["nextSeq"] == 2 and first["nextClientSeq"] == 1 and first["members"][0]["name"] == "Ann", first
    assert [m["name"] for m in bob.join("den")["members"]] == ["Ann", "Bob"]
    both = [(1, "Ann", "JOINED", ""), (2, "Bob", "JOINED", "")]
    assert entries(bob.until("entry", lambda e: e["seq"] == 2)) == entries(ann.until("entry", lambda e: e["seq"] == 2)) == both
    ann.send(typing={"room": "den", "on": True})
    assert bob.expect("member") == {"room": "den", "participant": ann.welcome["participant"], "name": "Ann", "presence": "ROOM_PRESENCE_HERE", "typing": True,
                                    "kind": "ROOM_KIND_PERSON"}
    said = {"room": "den", "text": "tea or coffee? \u2615", "clientSeq": 1, "quickReplies": ["tea", "coffee"]}
    ann.send(say=said)
    assert ann.until("ack")[-1]["ack"] == {"room": "den", "clientSeq": 1, "seq": 3}
    entry = bob.until("entry")[-1]["entry"]
    assert entry["text"] == said["text"] and entry["quickReplies"] == said["quickReplies"] and entry["clientSeq"] == 1 and int(entry["unixMs"]) > 0, entry
    ann.send(say=said)  # once more
    assert ann.until("ack")[-1]["ack"]["seq"] == 3
    for wrong, code, says in [({"text": "other words"}, "ALREADY_EXISTS", "other words"), ({"clientSeq": 3}, "FAILED_PRECONDITION", "the next is 2"),
                              ({"text": ""}, "INVALID_ARGUMENT", "text"), ({"text": BIG + "x", "clientSeq": 2}, "INVALID_ARGUMENT", "16384"),
                              ({"replyTo": 9, "clientSeq": 2}, "INVALID_ARGUMENT", "last entry is 3"), ({"room": "attic"}, "FAILED_PRECONDITION", "join"),
                              ({"quickReplies": ["x" * 65], "clientSeq": 2}, "INVALID_ARGUMENT", "64 characters"), ({"texts": 1}, "INVALID_ARGUMENT", "texts")]:
        ann.send(say=said | wrong)
        error = ann.until("error")[-1]["error"]
        assert error["code"] == code and says in error["message"], (wrong, error)
    assert bob.say("den", "coffee", 1, replyTo=3) == 4
    assert entries(ann.until("entry", lambda e: e["seq"] == 4))[-1] == (4, "Bob", "SAID", "coffee")
    bob.send(leave={"room": "den"})
    assert bob.until("left")[-1]["left"] == {"room": "den", "why": "left"}
    assert entries(ann.until("entry")) == [(5, "Bob", "LEFT", "left")]
    late = Socket(parley, "Late")
    late.join("den", afterSeq=3)
    assert [e[0] for e in entries(late.until("entry", lambda e: e["seq"] == 6))] == [4, 5, 6]
    late.send(join={"room": "den", "afterSeq": 99})
    assert late.expect("error")["code"] == "OUT_OF_RANGE"
    for one in ann, bob, late:
        one.close()


def comes_back(parley):
    """Who lost the connection is away, and is told what was said meanwhile, once; a second connection of the same person reads too."""
    ann, bob = Socket(parley, "Ann"), Socket(parley, "Bob")
    ann.join("back")
    bob.join("back")
    bob.until("entry", lambda e: e["seq"] == 2)
    ann.until("entry", lambda e: e["seq"] == 2)
    bob.raw.shutdown(socket.SHUT_RDWR)
    away = ann.expect("member")
    assert away["name"] == "Bob" and away["presence"] == "ROOM_PRESENCE_AWAY", away
    for number in 1, 2, 3:
        ann.say("back", f"line {number}", number)
    again = Socket(parley, token=bob.welcome["token"])
    assert again.welcome["participant"] == bob.welcome["participant"] and again.welcome["name"] == "Bob"
    assert again.join("back", afterSeq=2)["nextClientSeq"] == 1
    assert [e[0] for e in entries(again.until("entry", lambda e: e["seq"] == 5))] == [3, 4, 5]
    assert ann.until("member")[-1]["member"]["presence"] == "ROOM_PRESENCE_HERE"
    tab = Socket(parley, token=bob.welcome["token"])
    tab.join("back", fromNow=True)
    again.say("back", "from the first window", 1)
    assert entries(tab.until("entry")) == [(6, "Bob", "SAID", "from the first window")]
    for one in ann, again, tab:
        one.close()
    stranger = Socket(parley)
    stranger.send(hello={"token": "0" * 32})
    assert stranger.expect("error")["code"] == "NOT_FOUND" and stranger.read()[0] == 4003


class Behind:
    """The daemon, as it is reached by a cable."""

    def __init__(self, cable):
        self.http = cable.address


def vanishes(parley):
    """A peer whose network is gone without a word is away after 60 s of silence, and has its place when it comes back; nobody else notices. Returns
    what sees the end of it: meanwhile other tests run."""
    cable = Cable(parley.http)
    ghost, ann = Socket(Behind(cable), "Ghost"), Socket(parley, "Ann")
    ghost.join("net")
    ann.join("net")
    assert ghost.say("net", "here", 1) == 3
    cable.allow(0)  # it hears nothing any more: no ping
    begun = time.monotonic()
    assert ann.say("net", "still there?", 1) == 4

    def watch():
        ann.until("member", lambda member: member["name"] == "Ghost" and member["presence"] == "ROOM_PRESENCE_AWAY")
        return time.monotonic() - begun

    watching = concurrent.futures.ThreadPoolExecutor(1).submit(watch)

    def is_away():
        assert 50 < watching.result(2 * children.PATIENCE) < 60 + children.PATIENCE
        again = Socket(parley, token=ghost.welcome["token"])
        assert again.join("net", afterSeq=3)["nextClientSeq"] == 2
        assert entries(again.until("entry")) == [(4, "Ann", "SAID", "still there?")]
        ann.until("member", lambda member: member["presence"] == "ROOM_PRESENCE_HERE")
        cable.cut()
        for one in ghost, again, ann:
            one.close()
        print("vanishes: good", flush=True)

    return is_away


def other_wires(parley):
    """gRPC and the WebSocket share rooms."""
    ann, sent = Socket(parley, "Ann"), queue.SimpleQueue()
    ann.join("wires")
    answers = rooms.RoomsStub(grpc.insecure_channel(parley.address)).Attach(iter(sent.get, None))
    sent.put(pb.RoomsAttachRequest(hello=pb.RoomHello(name="Bob")))
    assert next(answers).welcome.name == "Bob"
    sent.put(pb.RoomsAttachRequest(join=pb.RoomJoin(room="wires")))
    assert [m.name for m in next(answers).snapshot.members] == ["Ann", "Bob"]
    assert [next(answers).entry.seq for _ in range(2)] == [1, 2]
    sent.put(pb.RoomsAttachRequest(say=pb.RoomSay(room="wires", text="by gRPC", client_seq=1)))
    frames = [next(answers) for _ in range(2)]
    assert {f.WhichOneof("frame") for f in frames} == {"ack", "entry"}, frames
    sent.put(pb.RoomsAttachRequest(say=pb.RoomSay(room="wires", text="gap", client_seq=9)))
    assert next(answers).error.code == "FAILED_PRECONDITION"
    assert entries(ann.until("entry", lambda e: e["seq"] == 3))[-1] == (3, "Bob", "SAID", "by gRPC")
    sent.put(None)
    assert list(answers) == []
    assert ann.expect("member")["presence"] == "ROOM_PRESENCE_AWAY"
    ann.close()


def by_post(parley):
    """A script says something with one request of Connect, whose frames are in a body, and is told what there is."""
    frames = [{"hello": {"name": "Script"}}, {"join": {"room": "post"}}, {"say": {"room": "post", "text": "by POST", "clientSeq": 1}}]
    body = b"".join(b"\0" + struct.pack(">I", len(one)) + one for one in (json.dumps(frame).encode() for frame in frames))
    request = urllib.request.Request(f"http://{parley.http}/parley.v1.Rooms/Attach", body, {"Content-Type": "application/connect+json"})
    with urllib.request.urlopen(request, timeout=children.PATIENCE) as answer:
        rest, told = answer.read(), []
    while rest:
        flags, size = struct.unpack(">BI", rest[:5])
        told.append((flags, json.loads(rest[5:5 + size])))
        rest = rest[5 + size:]
    assert told[-1] == (2, {}), told[-1]
    assert entries(frame for _, frame in told[:-1]) == [(1, "Script", "JOINED", ""), (2, "Script", "SAID", "by POST")], told
    assert sorted(next(iter(frame)) for _, frame in told if "entry" not in frame and frame) == ["ack", "snapshot", "welcome"], told


def rules(parley):
    """A client that breaks a rule is told by a code and a sentence, and nobody else notices."""
    watcher = Socket(parley, "Watcher")
    watcher.join("calm")
    for first, payload, code, says in [(TEXT, b"{", 1007, ""), (TEXT, b'{"hello": {}, "hello": {}}', 1007, ""), (TEXT, b"\xff", 1007, "UTF-8"), (BINARY, b"{}", 1003, "text"),
                                       (TEXT, b"x" * 65537, 1009, "65536"), (0xC1, b"compressed", 1002, "RFC 6455"), (PING, b"x" * 126, 1002, "RFC 6455")]:
        s = Socket(parley, "Rude")
        s.frame(first, payload)
        got = s.read()
        assert got[0] == code and says in got[1] and got[1], (payload[:20], got)
        assert s.bytes.read() == b""  # it is closed
        s.close()
    for frame, code in [({"join": {"room": "calm"}}, 4001), ({"nonsense": 1}, 4001)]:
        s = Socket(parley)
        s.send(**frame)
        assert s.read()[0] == code
        s.close()
    for headers, status in [({"Origin": "https://evil.example"}, 403), ({"Upgrade": None}, 426), ({"Sec_WebSocket_Version": "8"}, 426), ({"Sec_WebSocket_Key": "short"}, 400),
                            ({"Sec_WebSocket_Protocol": "chat"}, 400), ({"Origin": f"http://{parley.http}"}, 101), ({"Sec_WebSocket_Extensions": "permessage-deflate"}, 101)]:
        s = Socket(parley, **headers)
        assert s.status == status and "sec-websocket-extensions" not in s.headers, (headers, s.status)
        s.close()
    pinger = Socket(parley, "Pinger")
    pinger.frame(PING, b"there?")
    assert pinger.bytes.read(8) == bytes([PONG, 6]) + b"there?"
    pinger.frame(CLOSE, struct.pack(">H", 1000) + b"bye")
    assert pinger.read() == (1000, "bye") and pinger.bytes.read() == b""
    flood = Socket(parley, "Flood")
    flood.join("flood")
    for _ in range(200):
        flood.send(say={"room": "flood", "text": "!"})
    error = flood.until("error")[-1]["error"]
    assert error["code"] == "RESOURCE_EXHAUSTED" and 0 < error["retryMs"] <= 200, error
    watcher.say("calm", "all is calm", 1)
    watcher.until("entry", lambda e: e.get("text") == "all is calm")
    for one in watcher, flood:
        one.close()


def spoken(frames):
    """What agents have said, by participant and turn, put together from the pieces, where each begins where the one before ends."""
    texts = {}
    for piece in (f["piece"] for f in frames if "piece" in f):
        at = piece["participant"], piece["turn"]
        assert int(piece.get("offset", 0)) == len(texts.get(at, "").encode()), (piece, texts)
        texts[at] = texts.get(at, "") + piece["text"]
    return texts


def of(name):
    return lambda entry: entry["name"] == name and entry["kind"] in ("ROOM_ENTRY_KIND_SAID", "ROOM_ENTRY_KIND_FAILED")


def agents(parley):
    """An agent hears everybody, and answers by its policy: what it says comes in pieces and is an entry, which names its turn."""
    ann, bob = Socket(parley, "Ann"), Socket(parley, "Bob")
    ann.join("agents")
    bob.join("agents")
    for wrong, code, says in [({"agent": "none"}, "NOT_FOUND", "none"), ({"policy": "ROOM_POLICY_EVERY_N"}, "INVALID_ARGUMENT", "every"),
                              ({"name": "two\nlines"}, "INVALID_ARGUMENT", "line"), ({"policy": 9}, "INVALID_ARGUMENT", "policy"), ({"room": "attic"}, "FAILED_PRECONDITION", "join"),
                              ({"system": "x" * 16385}, "INVALID_ARGUMENT", "system")]:
        ann.send(invite={"room": "agents", "agent": "echo"} | wrong)
        error = ann.until("error")[-1]["error"]
        assert error["code"] == code and says in error["message"], (wrong, error)
    ann.send(invite={"room": "agents", "agent": "echo", "name": "Echo"})
    came = ann.until("entry", lambda e: e["name"] == "Echo")[-1]["entry"]
    assert came["kind"] == "ROOM_ENTRY_KIND_JOINED" and came["fromKind"] == "ROOM_KIND_AGENT", came
    ann.say("agents", "It rains. Echoes do not count.", 1)
    bob.say("agents", "It pours.", 1)
    bob.say("agents", "What do you say, echo?", 2)
    for one in ann, bob:
        frames = one.until("entry", of("Echo"))
        said = frames[-1]["entry"]
        assert said["text"].endswith("Bob: What do you say, echo?"), said
        assert said["kind"] == "ROOM_ENTRY_KIND_SAID" and said["turn"] == said["generation"] == 1 and said["finishReason"] == "stop" and said["seq"] == 7, said
        assert spoken(frames) in ({}, {(came["participant"], 1): said["text"]}), frames  # it says all at once
    conversation = json.load(urllib.request.urlopen(f"http://{parley.http}/v1/conversations/{said['conversation']}/items?order=asc", timeout=children.PATIENCE))
    heard = [c["text"] for item in conversation["data"] for c in item["content"]]
    assert heard == ["Ann: It rains. Echoes do not count.", "Bob: It pours.", "Bob: What do you say, echo?", said["text"]], heard
    # The second agent answers every second text of a person, and names the first one, who answers that.
    bob.send(invite={"room": "agents", "agent": "echo", "name": "Second", "policy": "ROOM_POLICY_EVERY_N", "every": 2})
    ann.until("entry", lambda e: (e["kind"], e["name"]) == ("ROOM_ENTRY_KIND_JOINED", "Second"))  # and counts from here
    ann.say("agents", "one", 2)
    ann.say("agents", "echo, two", 3)
    frames = ann.until("entry", of("Second"))
    assert of("Echo")([f["entry"] for f in frames if "entry" in f][-2]) and frames[-1]["entry"]["text"].endswith("Ann: echo, two"), frames
    # They name each other for ever, but for the bound on answers to answers.
    frames = ann.until("entry", of("Echo"))
    assert frames[-1]["entry"]["text"].startswith("Second: "), frames[-1]
    ann.send(dismiss={"room": "agents", "participant": came["participant"]})
    assert ann.until("entry", lambda e: e["kind"] == "ROOM_ENTRY_KIND_LEFT")[-1]["entry"]["text"] == "dismissed"
    ann.send(dismiss={"room": "agents", "participant": bob.welcome["participant"]})
    assert ann.until("error")[-1]["error"]["code"] == "NOT_FOUND"
    late = Socket(parley, "Late")
    assert [(m["name"], m["kind"]) for m in late.join("agents")["members"]] == [
        ("Ann", "ROOM_KIND_PERSON"), ("Bob", "ROOM_KIND_PERSON"), ("Second", "ROOM_KIND_AGENT"), ("Late", "ROOM_KIND_PERSON")]
    for one in ann, bob, late:
        one.close()


def says_too_much(parley):
    """An answer that no frame takes is an entry that says so; the room stays open to all, and the agent has heard what it answered."""
    program = ("import sys, parley\n@parley.agent('big')\nclass Big:\n    def observe(self, messages): Big.heard = [m.text for m in messages]\n"
               "    def act(self): return '\\x01' * 200000 if Big.heard == ['Ann: Big?'] else '|'.join(Big.heard)\nparley.serve(Big, sys.argv[1])")
    worker = children.start([sys.executable, "-c", program, parley.address], env={**os.environ, "PYTHONPATH": os.environ["PARLEY_PACKAGE"]})
    ann = Socket(parley, "Ann")
    ann.join("much")
    children.until("it is attached", lambda: "\"big\"" in urllib.request.urlopen(f"http://{parley.http}/v1/models", timeout=children.PATIENCE).read().decode(), worker)
    ann.send(invite={"room": "much", "agent": "big", "name": "Big"})
    ann.say("much", "Big?", 1)
    said = ann.until("entry", of("Big"))[-1]["entry"]
    assert (said["kind"], said["text"]) == ("ROOM_ENTRY_KIND_FAILED", "the answer has more than 131072 bytes"), said["kind"]
    bob = Socket(parley, "Bob")
    bob.join("much")
    assert bob.until("entry", of("Big"))[-1]["entry"] == said
    ann.say("much", "Big, again?", 2)
    assert ann.until("entry", of("Big"))[-1]["entry"]["text"] == "Ann: Big, again?"
    ann.close()
    bob.close()
    worker.kill()
    worker.wait()


def slow(parley):
    """Who reads nothing for a while gets all of it later, in order."""
    reader, speakers = Socket(parley, "Slow"), [Socket(parley, f"Speaker {i}") for i in range(4)]
    reader.join("slow")
    for speaker in speakers:
        speaker.join("slow")
        for number in range(1, 17):  # 16 KiB each: more than the kernel takes for a socket
            speaker.say("slow", BIG, number)
    said = entries(reader.until("entry", lambda e: e["seq"] == 1 + 4 * 17))
    assert [e[0] for e in said] == list(range(1, 2 + 4 * 17)) and sum(len(e[3]) for e in said) == 4 * 16 * len(BIG)
    for one in [reader, *speakers]:
        one.close()


def crowd(parley, n_rooms=40, n_turns=5):
    """Many rooms of two, each of whom loses the connection once: nothing is lost, mixed or doubled."""
    chance = random.Random(50)
    pairs = [[Socket(parley, f"{room}.{side}") for side in "ab"] for room in range(n_rooms)]
    logs = {}
    for room, pair in enumerate(pairs):
        for one in pair:
            one.join(f"crowd {room}")
            logs[one.welcome["participant"]] = []
    drops = {(room, side): chance.randrange(n_turns) for room in range(n_rooms) for side in (0, 1)}
    for turn in range(n_turns):
        for room, pair in enumerate(pairs):
            for side in (0, 1):
                one, name, log = pair[side], f"crowd {room}", logs[pair[side].welcome["participant"]]
                one.send(say={"room": name, "text": f"{room} {side} {turn}", "clientSeq": turn + 1})
                if drops[room, side] == turn:  # perhaps it was said, perhaps not: it is said again
                    one.close()
                    pair[side] = one = Socket(parley, token=one.welcome["token"])
                    one.join(name, afterSeq=log[-1][0] if log else 0)
                    one.send(say={"room": name, "text": f"{room} {side} {turn}", "clientSeq": turn + 1})
                log += entries(one.until("ack", lambda ack: ack["clientSeq"] == turn + 1))
    for room, pair in enumerate(pairs):
        for one in pair:
            one.send(say={"room": f"crowd {room}", "text": "end"})
        for one in pair:
            log = logs[one.welcome["participant"]]
            while [e[3] for e in log].count("end") < 2:
                log += entries(one.until("entry"))
            assert [e[0] for e in log] == list(range(1, 2 + 2 * n_turns + 3)), log
            said = [e[3] for e in log if e[2] == "SAID" and e[3] != "end"]
            assert sorted(said) == sorted(f"{room} {side} {turn}" for side in (0, 1) for turn in range(n_turns)), said
        assert logs[pair[0].welcome["participant"]] == logs[pair[1].welcome["participant"]]
        for one in pair:
            one.close()


def stops(parley):
    """A server that stops says so over both wires, and waits for nobody."""
    ann, sent = Socket(parley, "Ann"), queue.SimpleQueue()
    ann.join("last")
    answers = rooms.RoomsStub(grpc.insecure_channel(parley.address)).Attach(iter(sent.get, None))
    sent.put(pb.RoomsAttachRequest(hello=pb.RoomHello(name="Bob")))
    next(answers)
    ann.until("entry")
    parley.process.send_signal(signal.SIGTERM)
    assert ann.read() == (1001, "the server is stopping")
    try:
        next(answers)
        raise AssertionError("the call has not ended")
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.UNAVAILABLE, error
    sent.put(None)
    ann.close()
    assert parley.process.wait(children.PATIENCE) == 0


def by_grpc(parley, key):
    """What an Attach over gRPC with this key answers, and the queue of what it sends."""
    sent = queue.SimpleQueue()
    metadata = [] if key is None else [("authorization", f"Bearer {key}")]
    return rooms.RoomsStub(grpc.insecure_channel(parley.address)).Attach(iter(sent.get, None), metadata=metadata), sent


def apart(parleyd, folder):
    """With keys, a room belongs to a principal; the key comes in hello, and a wrong one is refused with a code."""
    path, keys = os.path.join(folder, "keys"), {}
    with open(path, "w", encoding="utf-8") as file:
        for name in ("ann", "bob"):
            said = children.run([os.path.join(os.path.dirname(parleyd), "parley"), "keys", "new", "--principal", name], capture_output=True, text=True, check=True)
            keys[name], line = said.stdout.splitlines()[:2]
            file.write(line + "\n")
    os.chmod(path, 0o600)
    with children.Daemon(parleyd, "--keys", path, "--http", "127.0.0.1:0", "--log-level", "info") as parley:
        ann, bob = (Socket(parley, name, key=keys[name]) for name in ("ann", "bob"))
        assert [m["name"] for m in ann.join("den")["members"]] == ["ann"] and [m["name"] for m in bob.join("den")["members"]] == ["bob"]
        for key in "", "wrong":
            s = Socket(parley)
            s.send(hello={"name": "Eve", "key": key})
            assert s.read()[0] == 4003
            s.close()
        s = Socket(parley)
        s.send(hello={"token": ann.welcome["token"], "key": keys["bob"]})  # ann's token is nothing to bob
        assert s.expect("error")["code"] == "NOT_FOUND" and s.read()[0] == 4003
        anna, sent = by_grpc(parley, keys["ann"])
        sent.put(pb.RoomsAttachRequest(hello=pb.RoomHello(name="anna")))
        sent.put(pb.RoomsAttachRequest(join=pb.RoomJoin(room="den")))
        assert next(anna).welcome.name == "anna" and [m.name for m in next(anna).snapshot.members] == ["ann", "anna"]
        ann.until("entry", lambda e: e["seq"] == 2)
        for key in None, "wrong":
            try:
                list(by_grpc(parley, key)[0])
                raise SystemExit(f"the key {key} was taken")
            except grpc.RpcError as e:
                assert e.code() == grpc.StatusCode.UNAUTHENTICATED, e
        with open(path, "r+", encoding="utf-8") as file:  # ann's key is revoked
            lines = file.readlines()
            file.seek(0)
            file.truncate()
            file.writelines(line for line in lines if "ann" not in line)
        parley.process.send_signal(signal.SIGHUP)
        children.until("the reload", lambda: any("info reloaded" in line for line in list(parley.said)))
        ann.send(say={"room": "den", "text": "still there?"})
        assert ann.until_close()[0] == 4003
        sent.put(pb.RoomsAttachRequest(say=pb.RoomSay(room="den", text="and here?", client_seq=1)))
        try:
            for _ in anna:
                pass
            raise SystemExit("a stream whose key is revoked went on")
        except grpc.RpcError as e:
            assert e.code() == grpc.StatusCode.UNAUTHENTICATED, e
        assert bob.say("den", "here", 1) == 2


class Mortal(children.Daemon):
    """A daemon that ends by kill -9."""

    def __exit__(self, kind, value, trace):
        self.process.kill()
        self.process.wait()
        self.listener.join(children.PATIENCE)
        if kind is not None:
            print("".join(self.said), file=sys.stderr)


def back(parley, token):
    """The person of this token, once the stored rooms are read."""
    while True:
        one = Socket(parley)
        one.send(hello={"token": token})
        answer = one.read()
        if "welcome" in answer:
            one.welcome = answer["welcome"]
            return one
        assert answer["error"]["code"] == "UNAVAILABLE" and one.read()[0] == 1013, answer
        one.close()


def log(one, room, last):
    """All entries up to the last one, as they came over the wire."""
    one.send(join={"room": room})
    one.until("snapshot")
    return [f["entry"] for f in one.until("entry", lambda e: e["seq"] == last) if "entry" in f]


THINKER = """{% for m in messages %}{{ m.role }}: {{ m.content.split('</think>')[-1] }}
{% endfor %}{% if add_generation_prompt %}assistant: <think>
{% endif %}"""


def metric(parley, name, *words):
    page = urllib.request.urlopen(f"http://{parley.http}/metrics", timeout=children.PATIENCE).read().decode()
    return next(line for line in page.splitlines() if line.startswith(name) and all(word in line for word in words)).split()[-1]


def n_logged(data):
    """How many bytes SQLite's log has, which grows until a checkpoint."""
    return sum(os.path.getsize(os.path.join(data, name)) for name in os.listdir(data) if name.endswith("-wal"))


def n_living(parley):
    """How many conversations with echo there are."""
    return metric(parley, "parley_conversations{", "echo")


def fails_to_store(parley, begin=lambda: None, meanwhile=lambda: None, limit=1000):
    """What is going on, and what begins, cannot be stored; then another turn is, which shows the journal that it can be written."""
    resource.prlimit(parley.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    begin()
    children.until("the journal to fail", lambda: metric(parley, "parley_journal_failing ") == "1")
    meanwhile()
    resource.prlimit(parley.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    body = json.dumps({"model": "echo", "messages": [{"role": "user", "content": "Is there room?"}]}).encode()
    urllib.request.urlopen(urllib.request.Request(f"http://{parley.http}/v1/chat/completions", body, {"X-Conversation-Id": "other"}), timeout=children.PATIENCE).read()


def first_word(one):
    """The frames up to a part of what Tiny says, or all of it: it may say all at once."""
    frames = [one.read()]
    while "piece" not in frames[-1] and not of("Tiny")(frames[-1].get("entry", {"name": "", "kind": ""})):
        frames.append(one.read())
    return frames


def begins(ann, number):
    """Speaks, with numbers from this one on, until Tiny says a part. The last number, and what came behind it."""
    while True:
        ann.say("disk", "Go on.", number)
        frames = first_word(ann)
        if "piece" in frames[-1]:
            return number, frames
        number += 1


def stops_agents(ann):
    """The server has taken the stop once it has refused the next one."""
    ann.send(stop={"room": "disk"})
    ann.send(stop={"room": "attic"})
    ann.until("error")


def goes_on(parleyd, model, data):
    """An answer that could not be stored is computed again once it can be, and told from its begin on: nothing else is an entry. One that was
    stopped meanwhile stays stopped."""
    with children.Daemon(parleyd, "--model", f"tiny={model}", "--data", data, "--http", "127.0.0.1:0") as parley:
        ann = Socket(parley, "Ann")
        ann.join("disk")
        ann.send(invite={"room": "disk", "agent": "tiny", "name": "Tiny", "maxTokens": 400, "policy": "ROOM_POLICY_EVERY_TURN"})
        ann.until("entry", lambda e: e["name"] == "Tiny")
        number, frames = begins(ann, 1)
        fails_to_store(parley)
        ann.send(say={"room": "disk", "text": "Well?", "clientSeq": number + 1})
        frames += ann.until("entry", of("Tiny"))
        said, texts = frames[-1]["entry"], []
        assert said["kind"] == "ROOM_ENTRY_KIND_SAID" and not any("error" in frame for frame in frames), frames
        for piece in (f["piece"] for f in frames if "piece" in f):
            if int(piece.get("offset", 0)) == 0:
                texts.append("")
            assert int(piece.get("offset", 0)) == len(texts[-1].encode()), (piece, texts)
            texts[-1] += piece["text"]
        assert all(said["text"].startswith(text) for text in texts), (said, texts)
        assert [e[2] for e in entries(ann.until("entry", of("Tiny")))] == ["SAID"]  # and to what was said meanwhile
        said = {"finishReason": "stop"}
        while said["finishReason"] == "stop":  # an end of its own came first
            number, _ = begins(ann, number + 2)
            fails_to_store(parley, meanwhile=lambda: stops_agents(ann))
            said = ann.until("entry", of("Tiny"))[-1]["entry"]
        assert (said["kind"], said["finishReason"]) == ("ROOM_ENTRY_KIND_SAID", "cancelled"), said
        ann.close()


def goes_back(parleyd, model, data):
    """An agent whose context is full answers in another conversation also where the journal could not take that one at first."""
    with children.Daemon(parleyd, "--model", f"tiny={model}", "--data", data, "--http", "127.0.0.1:0") as parley:
        ann = Socket(parley, "Ann")
        ann.join("brim")
        ann.send(invite={"room": "brim", "agent": "tiny", "name": "Tiny", "maxTokens": 20})
        ann.until("entry", lambda e: e["name"] == "Tiny")
        ann.say("brim", "Tiny, hello.", 1)
        before = ann.until("entry", of("Tiny"))[-1]["entry"]
        for number in range(2, 8):
            ann.say("brim", f"{number} " * 1000, number)
        sizes = [n_logged(data)]
        for number in range(8, 12):
            ann.say("brim", "Tin", number)
            sizes.append(n_logged(data))
        limit = sizes[-1] + max(b - a for a, b in zip(sizes, sizes[1:])) + 8192
        fails_to_store(parley, begin=lambda: ann.say("brim", "Tiny?", 12), limit=limit)  # that is stored, and what follows from it is not
        said = ann.until("entry", of("Tiny"))[-1]["entry"]
        assert (said["kind"], said["turn"]) == ("ROOM_ENTRY_KIND_SAID", 1) and said["conversation"] != before["conversation"], said
        assert metric(parley, "parley_conversations{", "tiny") == "2"
        ann.close()


def full(parley):
    """A full room takes no agent, and nothing stays of the attempt. An agent's conversation ends with the last entry of the log that names it."""
    crowd = [Socket(parley, f"Fan {i}") for i in range(64)]
    for fan in crowd:
        fan.join("hall")
    before = n_living(parley)
    crowd[0].send(invite={"room": "hall", "agent": "echo"})
    error = crowd[0].until("error")[-1]["error"]
    assert error["code"] == "RESOURCE_EXHAUSTED" and "full" in error["message"], error
    assert n_living(parley) == before
    crowd.pop().send(leave={"room": "hall"})
    crowd[0].until("entry", lambda e: e["kind"] == "ROOM_ENTRY_KIND_LEFT")
    for text in "Echo?", "":  # the second one says nothing
        crowd[0].send(invite={"room": "hall", "agent": "echo", "name": "Echo"})
        came = crowd[0].until("entry", lambda e: e["name"] == "Echo")[-1]["entry"]
        if text:
            crowd[0].say("hall", text)
            crowd[0].until("entry", of("Echo"))
        crowd[0].send(dismiss={"room": "hall", "participant": came["participant"]})
        crowd[0].until("entry", lambda e: e["kind"] == "ROOM_ENTRY_KIND_LEFT")
        assert int(n_living(parley)) == int(before) + 1
    for number in range(1, 18):
        for fan in crowd[1:]:
            fan.send(say={"room": "hall", "text": "on and on", "clientSeq": number})
    children.until("the log to forget the agent", lambda: n_living(parley) == before)
    for fan in crowd:
        fan.close()


def thinks(parley):
    """An agent that thinks without end has said nothing: the token of who asked it, and the room's log."""
    one = Socket(parley, "One")
    one.join("cell")
    one.send(invite={"room": "cell", "agent": "thinker", "name": "Thinker", "maxTokens": 20, "policy": "ROOM_POLICY_EVERY_TURN"})
    one.until("entry", lambda e: e["name"] == "Thinker")
    one.send(say={"room": "cell", "text": "What is it?", "clientSeq": 1})
    frames = one.until("entry", of("Thinker"))
    said = frames[-1]["entry"]
    assert said["kind"] == "ROOM_ENTRY_KIND_SAID" and not said.get("text") and spoken(frames) == {}, frames
    items = json.load(urllib.request.urlopen(f"http://{parley.http}/v1/conversations/{said['conversation']}/items?order=asc", timeout=children.PATIENCE))
    if items["data"][-1]["content"][-1]["text"]:  # it has thought
        return one.welcome["token"], log(one, "cell", 4)
    one.send(leave={"room": "cell"})  # the model may end at once, as one reply in 36 does
    one.until("left")
    one.close()
    return thinks(parley)


def durable(parleyd, model, thinker, data):
    """Two people and a language model in one room: it hears both, answers when named; after kill -9 the room is the same, byte for byte, also amid an answer."""
    flags = ["--model", f"tiny={model}", "--model", f"thinker={thinker}", "--data", data, "--http", "127.0.0.1:0"]
    with Mortal(parleyd, *flags) as parley:
        ann, bob = Socket(parley, "Ann"), Socket(parley, "Bob")
        assert ann.welcome["durable"] is True, ann.welcome
        tokens = ann.welcome["token"], bob.welcome["token"]
        ann.join("den")
        bob.join("den")
        ann.send(invite={"room": "den", "agent": "tiny", "name": "Tiny", "maxTokens": 40, "system": "Be brief."})
        ann.until("entry", lambda e: e["name"] == "Tiny")
        ann.say("den", "It rains.", 1)
        bob.say("den", "It pours.", 1, quickReplies=["yes", "no"])
        bob.say("den", "Tiny, what do you think?", 2, replyTo=4)
        frames = ann.until("entry", of("Tiny"))
        said = frames[-1]["entry"]
        assert said["kind"] == "ROOM_ENTRY_KIND_SAID" and said["turn"] == 1, said
        assert all(said["text"].startswith(text) for text in spoken(frames).values())
        conversation = json.load(urllib.request.urlopen(f"http://{parley.http}/v1/conversations/{said['conversation']}/items?order=asc", timeout=children.PATIENCE))
        heard = [c["text"] for item in conversation["data"] for c in item["content"]]
        assert heard[-4:-1] == ["Ann: It rains.", "Bob: It pours.", "Bob: Tiny, what do you think?"], heard
        assert heard[-1].replace("\0", "?") == said["text"], heard  # this model may say NUL
        before = log(bob, "den", 7)
        for path in f"conversations/{said['conversation']}", f"responses/resp_{said['conversation']}00000001":
            try:  # the room's log needs its words
                urllib.request.urlopen(urllib.request.Request(f"http://{parley.http}/v1/{path}", method="DELETE"), timeout=children.PATIENCE)
                raise AssertionError("the agent's conversation could be deleted")
            except urllib.error.HTTPError as error:
                assert error.code == 422 and "room" in error.read().decode(), error
        ann.join("porch")
        ann.send(invite={"room": "porch", "agent": "tiny", "name": "Bot"})
        ann.until("entry", lambda e: e["name"] == "Bot")
        ann.send(leave={"room": "porch"})  # the room ends, and Bot with it
        ann.until("left")
        ann.join("porch")
        ann.until("entry", lambda e: e["seq"] == 1)
        cell, thought = thinks(parley)
    with Mortal(parleyd, *flags) as parley:
        ann = back(parley, tokens[0])
        assert log(ann, "den", 7) == before
        one = back(parley, cell)
        assert log(one, "cell", 4) == thought
        one.send(leave={"room": "cell"})
        one.until("left")
        one.close()
        assert [m["name"] for m in ann.join("porch")["members"]] == ["Ann"]
        ann.send(leave={"room": "porch"})
        ann.until("left")
        assert ann.say("den", "It rains.", 1) == 4  # once more: it was said
        bob = back(parley, tokens[1])
        snapshot = bob.join("den", afterSeq=7)
        assert snapshot["nextClientSeq"] == 3 and [(m["name"], m.get("kind")) for m in snapshot["members"]] == [
            ("Ann", "ROOM_KIND_PERSON"), ("Bob", "ROOM_KIND_PERSON"), ("Tiny", "ROOM_KIND_AGENT")], snapshot
        bob.send(say={"room": "den", "text": "And now, TINY?", "clientSeq": 3})
        seen = spoken(first_word(bob))
    with Mortal(parleyd, *flags) as parley:
        bob = back(parley, tokens[1])
        bob.join("den", afterSeq=7)
        frames = bob.until("entry", of("Tiny"))
        again = frames[-1]["entry"]
        assert again["seq"] == 9 and again["turn"] == 2 and all(again["text"].startswith(text) for text in seen.values()), (again, seen)
        whole = log(bob, "den", 9)
        assert whole[:7] == before
        ann = back(parley, tokens[0])
        ann.join("den", afterSeq=9)
        bob.send(leave={"room": "den"})
        bob.until("left")
        ann.until("entry", lambda e: e["seq"] == 10)
    with children.Daemon(parleyd, *flags) as parley:
        ann = back(parley, tokens[0])
        assert log(ann, "den", 10)[:9] == whole
        ann.send(leave={"room": "den"})  # the room ends with its last person, and is forgotten
        ann.until("left")
        assert ann.join("den")["nextSeq"] <= 2
        ann.until("entry", lambda e: e["seq"] == 1)
        ann.send(leave={"room": "den"})
        ann.until("left")
        ann.close()
        try:
            urllib.request.urlopen(f"http://{parley.http}/v1/conversations/{again['conversation']}", timeout=children.PATIENCE)
            raise AssertionError("the agent's conversation is still there")
        except urllib.error.HTTPError as error:
            assert error.code == 404, error


def lives(parleyd, model, context, data):
    """An agent that has heard more than its context holds goes on in a new conversation, which begins with the newest of the log, also where a kill -9
    comes amid an answer. A text that is too long alone is refused, and the next one is answered."""
    flags, conversations, number = ["--model", f"tiny={model}", "--data", data, "--http", "127.0.0.1:0"], [], 0
    with Mortal(parleyd, *flags) as parley:
        ann = Socket(parley, "Ann")
        ann.join("days")
        ann.send(invite={"room": "days", "agent": "tiny", "name": "Tiny", "maxTokens": 40, "system": "Be brief.", "policy": "ROOM_POLICY_EVERY_TURN"})
        ann.until("entry", lambda e: e["name"] == "Tiny")
        while len(conversations) < 3:
            number += 1
            ann.say("days", f"Say more, {number}.", number)
            said = ann.until("entry", of("Tiny"))[-1]["entry"]
            assert said["kind"] == "ROOM_ENTRY_KIND_SAID", said
            if said["conversation"] not in conversations:
                assert said["turn"] == 1, said
                conversations.append(said["conversation"])
        before = log(ann, "days", said["seq"])
        ann.send(say={"room": "days", "text": "And more.", "clientSeq": number + 1})
        seen = spoken(first_word(ann))
    whole = [("user", f"Ann: {e['text']}") if e["fromKind"] == "ROOM_KIND_PERSON" else ("assistant", e["text"])
             for e in before if e["kind"] == "ROOM_ENTRY_KIND_SAID"]
    with Mortal(parleyd, *flags) as parley:
        ann = back(parley, ann.welcome["token"])
        ann.join("days")
        again = ann.until("entry", lambda e: e["seq"] == before[-1]["seq"] + 2)[-1]["entry"]
        assert again["kind"] == "ROOM_ENTRY_KIND_SAID" and all(again["text"].startswith(text) for text in seen.values()), (again, seen)
        assert log(ann, "days", again["seq"])[:-2] == before
        with urllib.request.urlopen(f"http://{parley.http}/v1/conversations/{conversations[1]}/items?order=asc", timeout=children.PATIENCE) as answer:
            items = [(item["role"], part["text"].replace("\0", "?")) for item in json.load(answer)["data"] for part in item["content"] if item["role"] != "system"]
        n_turns = sum(e.get("conversation") == conversations[1] for e in before)
        upto = whole[:-2 * sum(e.get("conversation") == conversations[2] for e in before)]
        assert items == upto[-len(items):] and items[0][0] == "user" and len(items) > 2 * n_turns, (items, upto)
        with urllib.request.urlopen(f"http://{parley.http}/v1/responses/resp_{conversations[1]}00000001", timeout=children.PATIENCE) as answer:
            n_tokens = json.load(answer)["usage"]["input_tokens"]
        left_out = upto[-len(items) - 2:-len(items)]
        assert n_tokens <= context // 2 < n_tokens + sum(len(text.encode()) + 20 for _, text in left_out), (n_tokens, left_out)
        ann.say("days", "x" * 2 * context, number + 2)
        said = ann.until("entry", of("Tiny"))[-1]["entry"]
        assert said["kind"] == "ROOM_ENTRY_KIND_FAILED" and said["text"] == "what was said last is longer than its context: say it in fewer words", said
        ann.say("days", "Well?", number + 3)
        assert ann.until("entry", of("Tiny"))[-1]["entry"]["kind"] == "ROOM_ENTRY_KIND_SAID"
        ann.close()


def varies(parleyd, data, is_same):
    """A worker whose answer a kill -9 has cut off is waited for, and gives it again; one whose answers vary gives none, hears on, and answers what is
    said next. What was said to it during the last answer of a daemon it answers at the next one. The fifth agent is refused."""
    program = (f"import sys, parley\n@parley.agent('held', deterministic={is_same})\nclass Held:\n    def observe(self, messages): self.text = '|'.join(m.text for m in messages)\n"
               "    def act(self):\n        print('asked', flush=True)\n        sys.stdin.readline()\n        return self.text\nparley.serve(Held, sys.argv[1])")
    flags = ["--data", data, "--http", "127.0.0.1:0"]

    def attached(parley):
        worker = children.start([sys.executable, "-c", program, parley.address], env={**os.environ, "PYTHONPATH": os.environ["PARLEY_PACKAGE"]},
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        children.until("it is attached", lambda: "\"held\"" in urllib.request.urlopen(f"http://{parley.http}/v1/models", timeout=children.PATIENCE).read().decode(), worker)
        return worker

    with Mortal(parleyd, *flags) as parley:
        worker, ann = attached(parley), Socket(parley, "Ann")
        ann.join("vary")
        for name in "Held", "B", "C", "D", "E":
            ann.send(invite={"room": "vary", "agent": "held", "name": name})
        error = ann.until("error")[-1]["error"]
        assert error["code"] == "RESOURCE_EXHAUSTED" and "at most 4 agents" in error["message"], error
        ann.say("vary", "Held?", 1)
        assert worker.stdout.readline() == "asked\n"
    worker.kill()
    worker.wait()
    with Mortal(parleyd, *flags) as parley:
        ann = back(parley, ann.welcome["token"])
        worker = attached(parley)
        ann.join("vary", afterSeq=6)
        if is_same:
            assert worker.stdout.readline() == "asked\n"
            worker.stdin.write("\n")
            worker.stdin.flush()
        said = ann.until("entry", of("Held"))[-1]["entry"]
        if is_same:
            assert (said["kind"], said["text"]) == ("ROOM_ENTRY_KIND_SAID", "Ann: Held?"), said
        else:
            assert (said["kind"], said["text"]) == ("ROOM_ENTRY_KIND_FAILED", "the answer was cut off, and the agent would give another one: ask again"), said
        ann.say("vary", "Held, again?", 2)
        assert worker.stdout.readline() == "asked\n"
        worker.stdin.write("\n")
        worker.stdin.flush()
        assert ann.until("entry", of("Held"))[-1]["entry"]["text"] == "Ann: Held, again?"
        ann.say("vary", "Held, still?", 3)
        assert worker.stdout.readline() == "asked\n"
        last = ann.say("vary", "Held, and now?", 4)
        parley.process.send_signal(signal.SIGTERM)
        assert ann.until_close()[0] == 1001
        worker.stdin.write("\n")
        worker.stdin.flush()
        assert parley.process.wait(children.PATIENCE) == 0
    worker.kill()
    worker.wait()
    with Mortal(parleyd, *flags) as parley:
        ann = back(parley, ann.welcome["token"])
        worker = attached(parley)
        assert worker.stdout.readline() == "asked\n"
        worker.stdin.write("\n")
        worker.stdin.flush()
        ann.join("vary", afterSeq=last)
        assert [ann.until("entry", of("Held"))[-1]["entry"]["text"] for _ in range(2)] == ["Ann: Held, still?", "Ann: Held, and now?"]
        ann.close()
    worker.kill()
    worker.wait()


def kept(parleyd, write_tiny_model):
    with tempfile.TemporaryDirectory() as folder:
        apart(parleyd, folder)
        model = os.path.join(folder, "tiny.gguf")
        children.run([write_tiny_model, model], check=True)
        thinker, template = os.path.join(folder, "thinker.gguf"), os.path.join(folder, "thinker.jinja")
        with open(template, "w", encoding="utf-8") as file:
            file.write(THINKER)
        children.run([write_tiny_model, thinker, "8192", "1", template], check=True)
        durable(parleyd, model, thinker, os.path.join(folder, "data"))
        children.run([write_tiny_model, model, "512"], check=True)
        lives(parleyd, model, 512, os.path.join(folder, "days"))
        children.run([write_tiny_model, model, "8192"], check=True)
        goes_on(parleyd, model, os.path.join(folder, "disk"))
        goes_back(parleyd, model, os.path.join(folder, "brim"))
        for is_same in False, True:
            varies(parleyd, os.path.join(folder, f"vary {is_same}"), is_same)


def main():
    parleyd, write_tiny_model = sys.argv[1:3]
    with children.Daemon(parleyd, "--http", "127.0.0.1:0") as parley:
        ghost_is_away = vanishes(parley)
        for test in (talk, comes_back, other_wires, by_post, rules, agents, says_too_much, slow, crowd, full):
            test(parley)
            print(f"{test.__name__}: good", flush=True)
        kept(parleyd, write_tiny_model)
        ghost_is_away()
        stops(parley)
    print("rooms: passed")


if __name__ == "__main__":
    main()
