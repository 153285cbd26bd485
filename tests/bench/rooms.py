#!/usr/bin/env python3
"""Rooms under load: N WebSocket users at once, in rooms of two with the agent echo, five turns each; each user's connection is cut once,
in the midst of a turn, and comes back with its token and the last seq that it had. Every room's log is then compared: nothing lost, mixed or
doubled. Relay is the time from a user's say until the other user has the entry; beside it is the round trip of a bare echo program on the
same library (wslay), with as many connections and messages at the same pace, by the same client. With --service the users are the chat service's:
each answers a form, waits in a pool, and has five turns with another and the agent echo; it is away once while the other one speaks.

Limits: one machine; the client is one process of Python, whose own time is part of both figures; daemon and client share the processors.

usage: rooms.py BUILD MODEL [--users N] [--seconds S] [--data] [--service] [--json]"""
import argparse
import asyncio
import json
import os
import random
import resource
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
import children  # noqa: E402

N_TURNS = 5
AT_ONCE = 200  # connections that are being made
UPGRADE = ("GET {} HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: {}\r\n\r\n")
ROOMS, SERVICE = ("/v1/rooms/socket", "parley.rooms.v1"), ("/websocket", "parley.service.v1")
PLAN = """
world_module: parley.worlds
overworld: menu
task_name: bench
max_workers: 1
grace: 600
tasks:
  talk: {onboard_world: form, ask: [{key: name, text: Who?}], task_world: chat, agents_required: 2, model: echo, welcome: "Speak, {name}.",
         names: always, timeout: 3000, notice: 3000}
"""


class Socket(asyncio.Protocol):
    """A WebSocket: text frames go to `take`. Its masks are zero, which RFC 6455 allows a server not to notice."""

    def __init__(self, host, take, route):
        self.host, self.take, self.route, self.rest, self.is_open = host, take, route, b"", asyncio.get_running_loop().create_future()
        self.is_closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport
        transport.write(UPGRADE.format(self.route[0], self.host, self.route[1]).encode())

    def connection_lost(self, error):
        if not self.is_open.done():
            self.is_open.set_exception(ConnectionError("refused"))

    def data_received(self, data):
        rest = self.rest + data
        if not self.is_open.done():
            head, end, behind = rest.partition(b"\r\n\r\n")
            if end:
                assert head.startswith(b"HTTP/1.1 101"), head
                self.is_open.set_result(None)
            rest = behind if end else rest
        at = 0
        while self.is_open.done() and len(rest) - at >= 2:
            size, begin = rest[at + 1], at + 2
            if size == 126:
                if len(rest) - at < 4:
                    break
                size, begin = struct.unpack(">H", rest[at + 2:at + 4])[0], at + 4
            if len(rest) < begin + size:
                break
            if rest[at] == 0x81:
                self.take(rest[begin:begin + size])
            elif rest[at] == 0x88:  # close
                self.is_closed.set_result(None)
            elif rest[at] == 0x89:  # ping
                self.transport.write(b"\x8a\x80\0\0\0\0")
            at = begin + size
        self.rest = rest[at:]

    def send(self, text):
        size = len(text)
        self.transport.write(b"\x81" + (bytes([0x80 | size]) if size < 126 else b"\xfe" + struct.pack(">H", size)) + b"\0\0\0\0" + text)


async def opened(host, take, route=ROOMS):
    address, port = host.rsplit(":", 1)
    _, socket = await asyncio.get_running_loop().create_connection(lambda: Socket(host, take, route), address, int(port))
    await socket.is_open
    return socket


class Client:
    """A person across its two connections."""

    route = ROOMS

    def __init__(self, host, room, name, gate):
        self.host, self.room, self.name, self.gate = host, room, name, gate
        self.log, self.waiting, self.socket, self.arrived = [], [], None, {}

    async def open(self):
        async with self.gate:
            self.socket = await opened(self.host, self.take, self.route)

    def send(self, **frame):
        self.socket.send(json.dumps(frame).encode())

    def take(self, text):
        self.took(json.loads(text))
        for wanted, future in self.waiting:
            if not future.done() and wanted():
                future.set_result(None)
        self.waiting = [w for w in self.waiting if not w[1].done()]

    async def until(self, wanted):
        if not wanted():
            future = asyncio.get_running_loop().create_future()
            self.waiting.append((wanted, future))
            await asyncio.wait_for(future, 120)

    def cut(self):
        self.socket.take = lambda text: None  # what was under way is lost
        self.socket.transport.abort()


class User(Client):
    """A person in a room."""

    token = ""

    async def connect(self):
        await self.open()
        self.send(hello={"token": self.token} if self.token else {"name": self.name})
        self.send(join={"room": self.room, "afterSeq": self.log[-1]["seq"] if self.log else 0})

    def took(self, frame):
        if "welcome" in frame:
            self.token = frame["welcome"]["token"]
        elif "entry" in frame:
            self.log.append(frame["entry"])
            self.arrived[frame["entry"].get("text", "")] = time.monotonic()
        elif "error" in frame:
            raise AssertionError((self.room, self.name, frame))


class Visitor(Client):
    """A person of the chat service."""

    route, place = SERVICE, ""

    def say(self, text):
        self.send(text=text, id=f"the secret of {self.name}")

    def took(self, frame):
        if "moved" in frame:
            self.place = frame["moved"]["to"]
        elif "text" in frame:
            self.log.append(frame["text"])
            self.arrived[frame["text"]] = time.monotonic()

    async def leave(self):
        """What is told from now on waits for the next connection; what is on its way to one that breaks is lost, as the service says."""
        self.socket.transport.write(b"\x88\x80\0\0\0\0")
        await asyncio.wait_for(self.socket.is_closed, 120)
        self.socket.transport.abort()

    async def told(self, text):
        await self.until(lambda: self.log and self.log[-1].startswith(text))
        self.log.clear()

    async def to_pool(self):
        await self.open()
        self.say("hello")
        await self.told("Welcome.")
        self.say("talk")
        await self.told("Who?")


async def room_of_two(users, pace, relays, chance):
    drops = [chance.randrange(N_TURNS) for _ in users]
    said = 3  # three have joined
    for turn in range(N_TURNS):
        for side, user in enumerate(users):
            await asyncio.sleep(chance.random() * pace)
            text = f"{user.room} {side} {turn}"
            frame = {"room": user.room, "text": text, "clientSeq": turn + 1}
            begun = time.monotonic()
            user.send(say=frame)
            if drops[side] == turn:
                user.cut()
                await user.connect()
                user.send(say=frame)  # perhaps once more
            said += 2
            for one in users:
                await one.until(lambda one=one, said=said: len(one.log) >= said)
            if drops[side] != turn:
                relays.append(users[1 - side].arrived[text] - begun)


def judge(users, room):
    """What is wrong with a room's logs; None: nothing."""
    wanted = [f"{room} {side} {turn}" for turn in range(N_TURNS) for side in (0, 1)]
    for user in users:
        if [e["seq"] for e in user.log] != list(range(1, 4 + 4 * N_TURNS)):
            return f"{room}: {user.name} has entries {[e['seq'] for e in user.log]}"
        texts = [e["text"] for e in user.log if e["kind"] == "ROOM_ENTRY_KIND_SAID"]
        if texts[0::2] != wanted or any(asked not in answer for asked, answer in zip(texts[0::2], texts[1::2])):
            return f"{room}: {user.name} has {texts}"
    return None if users[0].log == users[1].log else f"{room}: the logs differ"


def resident(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) * 1024


async def in_rooms(daemon, n_users, pace):
    gate, chance = asyncio.Semaphore(AT_ONCE), random.Random(50)
    before, begun = resident(daemon.process.pid), time.monotonic()
    rooms = [[User(daemon.http, f"room {i}", side, gate) for side in "ab"] for i in range(n_users // 2)]

    async def enter(users):
        for i, user in enumerate(users):  # in order: the log is to be the same in each run
            await user.connect()
            await user.until(lambda user=user, i=i: len(user.log) > i)
        users[0].send(invite={"room": users[0].room, "agent": "echo", "policy": "ROOM_POLICY_EVERY_TURN"})
        for user in users:
            await user.until(lambda user=user: len(user.log) == 3)

    await asyncio.gather(*map(enter, rooms))
    entered, joined_s, relays = resident(daemon.process.pid), time.monotonic() - begun, []
    await asyncio.gather(*(room_of_two(users, pace, relays, random.Random(chance.random())) for users in rooms))
    faults = [f for f in (judge(users, users[0].room) for users in rooms) if f is not None]
    ended = resident(daemon.process.pid)
    for users in rooms:
        for user in users:
            user.socket.transport.abort()
    return {"users": n_users, "entered_s": joined_s, "faults": faults, "relays": sorted(relays), "bytes_per_user": (entered - before) / n_users,
            "bytes_per_user_at_the_end": (ended - before) / n_users}


async def talk_of_two(users, pace, relays, chance):
    drops = [chance.randrange(N_TURNS - 1), chance.randrange(N_TURNS)]  # it comes back with what it says next
    n_said, is_here = 0, [True, True]
    for turn in range(N_TURNS):
        for side, user in enumerate(users):
            other = users[1 - side]
            await asyncio.sleep(chance.random() * pace)
            text = f"{user.name} {turn}"
            if not is_here[side]:
                await user.open()
                is_here[side] = True
            if drops[1 - side] == turn:  # the other one is away meanwhile
                await other.leave()
                is_here[1 - side] = False
            begun = time.monotonic()
            user.say(text)
            n_said += 1
            for one, here in (user, is_here[side]), (other, is_here[1 - side]):
                if here:
                    await one.until(lambda one=one, n_said=n_said: sum(t.startswith("echo: ") for t in one.log) == n_said)
            if is_here[1 - side]:
                relays.append(other.arrived[f"{user.name}: {text}"] - begun)


def judge_talk(users):
    for side, user in enumerate(users):
        wanted = [f"{one.name}: {one.name} {turn}" for turn in range(N_TURNS) for one in users]
        theirs = [text for text in wanted if text.startswith(users[1 - side].name + ":")]
        echoes = [text for text in user.log if text.startswith("echo: ")]
        if [text for text in user.log if text not in echoes] != theirs or echoes != [f"echo: {text}" for text in wanted]:
            return f"{user.name} has {user.log}"
    return None


async def in_service(daemon, n_users, pace):
    gate, chance = asyncio.Semaphore(AT_ONCE), random.Random(52)
    before, begun, relays = resident(daemon.process.pid), time.monotonic(), []
    people = [Visitor(daemon.http, "", f"p{i}", gate) for i in range(n_users)]
    await asyncio.gather(*(one.to_pool() for one in people))
    pairs = list(zip(people[::2], people[1::2]))
    for ann, bob in pairs:  # one pair after the other, so that who is with whom is known
        ann.say(ann.name)
        await ann.until(lambda ann=ann: ann.place == "waiting")
        bob.say(bob.name)
        await asyncio.gather(*(one.told(f"Speak, {one.name}.") for one in (ann, bob)))
    entered, joined_s = resident(daemon.process.pid), time.monotonic() - begun
    await asyncio.gather(*(talk_of_two(pair, pace, relays, random.Random(chance.random())) for pair in pairs))
    ended = resident(daemon.process.pid)
    faults = [f for f in map(judge_talk, pairs) if f is not None]
    for one in people:
        one.socket.transport.abort()
    return {"users": n_users, "entered_s": joined_s, "faults": faults, "relays": sorted(relays), "bytes_per_user": (entered - before) / n_users,
            "bytes_per_user_at_the_end": (ended - before) / n_users}


async def bare(host, pid, n_users, pace):
    gate, times = asyncio.Semaphore(AT_ONCE), []

    async def enter():
        heard = []
        async with gate:
            return await opened(host, lambda text: heard.pop()(text) if heard else None), heard

    before = resident(pid)
    peers = await asyncio.gather(*(enter() for _ in range(n_users)))
    held = resident(pid) - before

    async def talk(socket, heard, chance):
        for turn in range(N_TURNS):
            await asyncio.sleep(chance.random() * 2 * pace)  # two take turns in a room
            future, begun = asyncio.get_running_loop().create_future(), time.monotonic()
            heard.append(future.set_result)
            socket.send(json.dumps({"say": {"room": "room 1234", "text": f"room 1234 0 {turn}", "clientSeq": turn + 1}}).encode())
            await asyncio.wait_for(future, 120)
            times.append(time.monotonic() - begun)

    chance = random.Random(51)
    await asyncio.gather(*(talk(*peer, random.Random(chance.random())) for peer in peers))
    for socket, _ in peers:
        socket.transport.abort()
    return sorted(times), held / n_users


def at(times, part):
    return 1000 * times[min(len(times) - 1, int(part * len(times)))]


def main():
    parser = argparse.ArgumentParser(usage="rooms.py BUILD MODEL [--users N] [--seconds S] [--data] [--service] [--json]")
    parser.add_argument("build")
    parser.add_argument("model")
    parser.add_argument("--users", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=60, help="about how long the turns take")
    parser.add_argument("--data", action="store_true", help="keep the rooms in a journal, in a new folder")
    parser.add_argument("--service", action="store_true", help="by the chat service, with a form and a pool")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    n_users, pace = args.users // 2 * 2, args.seconds / N_TURNS
    wanted = n_users + 500
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < wanted:
        sys.exit(f"rooms: {wanted} descriptors are needed, the limit is {hard}: ulimit -n {wanted}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--data", os.path.join(folder, "data")] if args.data else []
        if args.service:
            flags += ["--service", os.path.join(folder, "service.yaml")]
            with open(flags[-1], "w", encoding="utf-8") as file:
                file.write(PLAN)
        with children.Daemon(os.path.join(args.build, "parleyd"), "--http", "127.0.0.1:0", "--max-peer-connections", str(2 * n_users), *flags) as daemon:
            got = asyncio.run((in_service if args.service else in_rooms)(daemon, n_users, pace))
    echo = children.start([os.path.join(args.build, "tests/bench/ws_echo")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    floor, floor_bytes = asyncio.run(bare(f"127.0.0.1:{int(echo.stdout.readline())}", echo.pid, n_users, pace / 2))
    echo.stdin.close()
    assert echo.wait(children.PATIENCE) == 0
    relays = got.pop("relays")
    figures = {"relay_ms": {p: at(relays, q) for p, q in (("p50", .5), ("p99", .99))}, "echo_ms": {p: at(floor, q) for p, q in (("p50", .5), ("p99", .99))},
               "echo_bytes_per_user": floor_bytes, **got}
    figures["p99_ratio"] = figures["relay_ms"]["p99"] / figures["echo_ms"]["p99"]
    if args.json:
        print(json.dumps(figures))
    else:
        print(f"{n_users} WebSocket users in {n_users // 2} {'talks' if args.service else 'rooms'} with echo, all in after {got['entered_s']:.1f} s; {N_TURNS} turns each, each cut off once: "
              f"{len(got['faults'])} of them with a message lost, mixed or doubled")
        print(f"memory: {got['bytes_per_user'] / 1024:.1f} KiB a user with the room and its agent, {got['bytes_per_user_at_the_end'] / 1024:.1f} at the end; "
              f"a bare echo on wslay {floor_bytes / 1024:.1f}")
        print(f"relay: p50 {figures['relay_ms']['p50']:.2f} ms, p99 {figures['relay_ms']['p99']:.2f}; the bare echo: p50 {figures['echo_ms']['p50']:.2f}, "
              f"p99 {figures['echo_ms']['p99']:.2f}; ratio of p99 {figures['p99_ratio']:.2f}")
    for fault in got["faults"][:5]:
        print(fault, file=sys.stderr)
    sys.exit(1 if got["faults"] else 0)


if __name__ == "__main__":
    main()
