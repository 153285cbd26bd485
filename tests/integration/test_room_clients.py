#!/usr/bin/env python3
"""Rooms from Python, blocking and by asyncio, and from `parley chat --room` at terminals and over pipes: connections that are cut in the
middle lose, double and mix nothing, and neither does an interruption; messages that nobody reads stay in the room.

usage: test_room_clients.py PARLEYD PARLEY      (run by the interpreter that has grpcio; see venv.sh)"""
import asyncio
import os
import signal
import subprocess
import sys
import threading

import children
from cable import Cable
from children import Daemon, until
from test_cli import Cli, Terminal

sys.path.insert(0, os.environ["PARLEY_PACKAGE"])  # made by venv.sh
import parley  # noqa: E402
from parley.channel import Dialogue  # noqa: E402
from parley.rooms import attendance  # noqa: E402


def refused(call, code, words):
    try:
        call()
    except parley.Error as e:
        assert e.code == code and words in e.message, (e.code, e.message)
        return e
    raise AssertionError(f"it was not refused: {words}")


def seen(room, last):
    """(seq, kind, name, text) up to the entry of this seq, or with this text."""
    found = []
    for m in room:
        assert m.missed == 0, m
        found.append((m.seq, m.kind, m.name, m.text))
        if last in (m.seq, m.text):
            return found
    raise AssertionError(f"the room ended: {room.ended}, {found}")


def talk(direct, cable):
    """What there is: entries, members, typing, answers, a place in the log, the same person in another program, the end."""
    ann = parley.rooms.join(direct, "talk", "Ann")
    with parley.rooms.join(direct, "talk") as bob:
        assert bob.name.startswith("guest ") and ann.participant != bob.participant and [m.name for m in bob.members] == ["Ann", bob.name]
        asked = ann.say("tea or coffee? \u2615", quick_replies=["tea", "coffee"])
        assert bob.say("tea", reply_to=asked) == 4
        assert seen(bob, 4) == [(1, "joined", "Ann", ""), (2, "joined", bob.name, ""), (3, "said", "Ann", "tea or coffee? \u2615"), (4, "said", bob.name, "tea")]
        mine, theirs = [m for m in (ann.read() for _ in range(4)) if m.kind == "said"]
        assert mine.is_mine and mine.quick_replies == ("tea", "coffee") and theirs.reply_to == asked and not theirs.is_mine and mine.time > 1e9
        assert (str(mine), str(theirs)) == ("Ann: tea or coffee? \u2615", f"{bob.name}: tea") and ann.read(timeout=0) is None
        bob.typing()
        until("bob is seen typing", lambda: [m.is_typing for m in ann.members] == [False, True])
        bob.typing(False)
        until("bob is not seen typing", lambda: [m.is_typing for m in ann.members] == [False, False])
        for text, more, word in [("", {}, "text"), ("x" * (1 << 14) + "x", {}, "16384"), ("x", {"reply_to": 99}, "last entry is 4"), ("x", {"quick_replies": ["x" * 65]}, "64")]:
            refused(lambda text=text, more=more: bob.say(text, **more), "INVALID_ARGUMENT", word)
        held, forget = [], bob._state.forget  # the reader's thread may be at the same entry
        bob._state.forget = lambda: held.append(bob._changed._is_owned()) or forget()
        assert bob.say("x" * (1 << 14)) == 5 and held == [True], held
        with parley.rooms.join(direct, "talk", token=bob.token, from_now=True) as tab, parley.rooms.join(direct, "talk", token=bob.token, after=4) as late:
            assert tab.name == bob.name and late.read().seq == 5
            ann.say("to both")
            assert tab.read().text == late.read().text == "to both"
            bob.close()
            refused(lambda: bob.say("more"), "FAILED_PRECONDITION", "closed")
            assert late.say("goes on") == 7 and seen(tab, 7)[-1][3] == "goes on"
    assert seen(ann, 8)[-1] == (8, "left", tab.name, "left") and [m.name for m in ann.members] == ["Ann"]
    with parley.rooms.join(direct, "talk", token=ann.token) as other:
        other.leave()
    assert list(ann) == [] and ann.ended == "left" and ann.read() is None
    refused(lambda: ann.say("more"), "FAILED_PRECONDITION", "not in the room 'talk' any more: left")
    ann.close()
    ann.close()
    for room, more, code, word in [("", {}, "INVALID_ARGUMENT", "room"), ("r", {"name": "a\nb"}, "INVALID_ARGUMENT", "name"), ("r", {"token": "0" * 32}, "NOT_FOUND", "token"),
                                   ("r", {"after": 1}, "OUT_OF_RANGE", "no entry 1"), ("r", {"after": -1}, "INVALID_ARGUMENT", "after"), ("r", {"after": 1, "from_now": True}, "INVALID_ARGUMENT", "after")]:
        refused(lambda room=room, more=more: parley.rooms.join(direct, room, **more), code, word)
    refused(lambda: parley.rooms.join(parley.connect("127.0.0.1:1", patience=0.1), "r"), "UNAVAILABLE", "127.0.0.1:1")


def cut_off(direct, cable):
    """Connections are cut before, between and after messages; an acknowledgement that is lost makes no second entry."""
    far = parley.connect(cable.address, patience=children.PATIENCE)
    with parley.rooms.join(direct, "cut", "Near") as near, parley.rooms.join(far, "cut", "Far") as away:
        for i in range(12):
            if i % 3 == 0:
                cable.cut()
            assert (near if i % 2 else away).say(f"line {i}") == i + 3
        whole = [(1, "joined", "Near", ""), (2, "joined", "Far", "")] + [(i + 3, "said", "Near" if i % 2 else "Far", f"line {i}") for i in range(12)]
        assert seen(near, 14) == whole and seen(away, 14) == whole
        cable.is_deaf = True
        said = []
        speaker = threading.Thread(target=lambda: said.append(away.say("is it heard?")))
        speaker.start()
        assert near.read().text == "is it heard?"  # and nobody has told its speaker
        assert not said
        cable.is_deaf = False
        cable.cut()
        speaker.join(children.PATIENCE)
        assert said == [15] and away.say("it is") == 16 and seen(near, 16) == [(16, "said", "Far", "it is")]
        assert seen(away, 16) == [(15, "said", "Far", "is it heard?"), (16, "said", "Far", "it is")]
        # Ctrl-C meanwhile: the same words again are the same entry, others come after it.
        for again, seqs in ("interrupted", [17]), ("other words", [18, 19]):
            cable.is_deaf = True
            heard = threading.Thread(target=lambda: (near.read(), signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)))
            heard.start()
            try:
                away.say("interrupted")
                raise AssertionError("it was not interrupted")
            except KeyboardInterrupt:
                pass
            heard.join(children.PATIENCE)
            cable.is_deaf = False
            cable.cut()
            assert away.say(again) == seqs[-1] and [m[0] for m in seen(away, seqs[-1])] == seqs
        assert seen(near, 19) == [(19, "said", "Far", "other words")]
    far.close()


def interrupted(direct, cable):
    """Ctrl-C in leave() ends the connection, too; one that another thread ends is an Error."""
    room = parley.rooms.join(direct, "interrupted", "Ann")
    thread, room._changed.wait_for = room._thread, lambda *_: signal.raise_signal(signal.SIGINT)
    try:
        room.leave()
        raise AssertionError("it was not interrupted")
    except KeyboardInterrupt:
        assert not thread.is_alive() and room._thread is None
    closed = Dialogue(direct.links[0], attendance.METHOD, None, None)
    closed.close()
    refused(closed.take, "UNAVAILABLE", "closed")


def unread(direct, cable):
    """What nobody reads is not kept here, and comes when it is read; one who is far behind is told how much is missing."""
    attendance.QUEUE_MAX = 4
    with parley.rooms.join(direct, "unread", "Slow") as slow, parley.rooms.join(direct, "unread", "Fast") as fast:
        for i in range(14):
            fast.say(str(i))
        until("the queue is full", lambda: slow._state.is_behind)
        assert len(slow._state.queue) == 4
        assert [m[3] for m in seen(slow, 16)][2:] == [str(i) for i in range(14)]
        assert slow.read(timeout=0.01) is None
    attendance.QUEUE_MAX = 256


async def by_asyncio(address, cable):
    """The same for asyncio: many tasks say at once, connections are cut meanwhile, a read that is cancelled loses nothing."""
    async with parley.aio.connect(cable.address, patience=children.PATIENCE) as server:
        rooms = [await parley.rooms.aio.join(server, "tasks", f"P{i}") for i in range(3)]

        async def speak(room):
            for i in range(4):
                await room.say(f"{room.name} {i}")
                if i == 1:
                    cable.cut()

        async def read(room):
            found = []
            while len(found) < 15:
                try:
                    found.append(await asyncio.wait_for(room.read(), 0.01))
                except asyncio.TimeoutError:
                    pass
            return found

        logs, *_ = await asyncio.gather(asyncio.gather(*map(read, rooms)), *map(speak, rooms))
        assert all([m.seq for m in log] == list(range(1, 16)) for log in logs), logs
        texts = [[(m.name, m.text) for m in log] for log in logs]
        assert texts[0] == texts[1] == texts[2] and sorted(t for _, t in texts[0] if t) == sorted(f"P{i} {k}" for i in range(3) for k in range(4))
        assert sorted(m.name for m in rooms[0].members) == ["P0", "P1", "P2"]
        await rooms[2].leave()
        assert rooms[2].ended == "left" and await rooms[2].read() is None
        assert [m.kind async for m in rooms[2]] == []
        last = await rooms[0].read()
        assert (last.kind, last.name, last.text) == ("left", "P2", "left")
        try:
            await rooms[2].say("more")
            raise AssertionError("it was said")
        except parley.Error as e:
            assert e.code == "FAILED_PRECONDITION", e
        again = await parley.rooms.aio.join(server, "tasks", token=rooms[0].token, after=last.seq)
        assert again.name == "P0"
        for one in again, *rooms:
            await one.close()


def at_terminals(parley_path, address, cable):
    """People see each other's words above what they type; commands; the end by each key. Names have colours, there alone."""
    ann = Terminal(Cli(parley_path, address), "chat", "--room", "hall", "--name", "Ann")
    ann.expect("Ann joined")
    bob = Terminal(Cli(parley_path, cable.address), "chat", "--room", "hall", "--name", "Bob")
    for one in ann, bob:
        one.expect("Bob joined")
    ann.type("hel")
    bob.expect(r"\(Ann types\) > ")
    bob.type("hi there\r")
    ann.expect("Bob: hi there")
    ann.expect("> hel")  # what was typed stands below
    ann.type("lo\r")
    bob.expect("Ann: hello")
    cable.cut()
    ann.type("one\\\r")
    ann.expect(r"\.\.\. ")
    ann.type("two\r")
    bob.expect("Ann: one\n  two\n")  # on its next connection
    bob.type("//who\r")
    ann.expect("Bob: /who")
    bob.type("/who\r")
    bob.expect(r"Ann\nBob \(you\)\n")
    bob.type("/wh\r")
    bob.expect("no command '/wh'")
    bob.type("/invite echo Eve\r")
    ann.expect("Eve joined")
    bob.expect("Eve joined")
    bob.type("eve, are you there?\r")
    ann.expect("Bob: eve, are you there")
    ann.expect("Eve: .*eve, are you there")
    bob.type("/dismiss Eve\r")
    ann.expect("Eve dismissed")
    bob.type("/dismiss Ann\r")
    bob.expect("no agent here is called 'Ann'")
    bob.type("x" * 100 + "\r")  # of more than a row
    ann.expect("Bob: " + "x" * 100)
    bob.type("/leave\r")
    ann.expect("Bob left")
    assert "Bob: hi there" not in bob.end()  # it was typed there
    ann.type("\x03")
    ann.expect("Ctrl-C again leaves")
    ann.type("\x03")
    ann.end()
    assert b"\x1b[1;3" in ann.raw


def over_pipes(parley_path, direct, address, cable):
    """Each line is said, in order and once; what the room has is printed; a line that is refused ends it, and Ctrl-C leaves."""
    def line(*more, at=address):
        return [parley_path, "chat", "--server", at, "--room", "pipes", *more]

    def run(text, *more, code=0):
        done = children.run(line(*more), input=text, capture_output=True, text=True)
        assert done.returncode == code, done
        return done.stdout if code == 0 else done.stderr

    with parley.rooms.join(direct, "pipes", "Ann") as ann:
        ann.say("first\nof two lines")
        assert run("one\r\n\n  \n/who\nlast", "--name", "Bob") == "* Ann joined\nAnn: first\n  of two lines\n* Bob joined\nBob: one\nBob: /who\nBob: last\n"
        assert "Bob: last\n* Bob left\n* Eve joined\n" in run("", "--name", "Eve")
        assert "20000 bytes, it must have 1 to 16384" in run("x" * 20000 + "\nnever said\n", "--name", "Long", code=1)
        assert "NUL" in run("a\0b\n", "--name", "Nul", code=1) and "name must be" in run("", "--name", "a\nb", code=1)
        assert "excludes" in run("", "--model", "echo", code=2)
        seqs = [m.seq for m in iter(lambda: ann.read(timeout=0), None)]
        assert seqs == list(range(1, seqs[-1] + 1))
        slow = children.start(line("--name", "Cut", at=cable.address), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert ann.read().name == "Cut"
        for i in range(6):
            if i % 2:
                cable.cut()
            slow.stdin.write(f"{i}\n")
            slow.stdin.flush()
            assert ann.read().text == str(i)
        slow.send_signal(signal.SIGINT)
        assert (ann.read().kind, slow.wait(children.PATIENCE)) == ("left", -signal.SIGINT)
        heard = slow.stdout.read()
        assert heard.endswith("* Cut joined\n" + "".join(f"Cut: {i}\n" for i in range(6))) and "\x1b" not in heard, heard
        assert ann.read(timeout=0) is None and not slow.stderr.read()
        full = children.start(line("--name", "Full"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        full.stdout.close()  # nobody reads
        assert ann.read().name == "Full" and full.wait(children.PATIENCE) == 1 and ann.read().kind == "left"


def over(parleyd):
    """A daemon that goes, and one without that person: an error says so, in time."""
    with Daemon(parleyd) as daemon:
        cable = Cable(daemon.address)
        server = parley.connect(cable.address, patience=0.2)
        room = parley.rooms.join(server, "over", "Ann")
        room.say("hello")
    assert seen(room, 2)[-1][3] == "hello"
    refused(lambda: room.read(), "UNAVAILABLE", "")
    refused(lambda: room.say("again"), "UNAVAILABLE", "")
    with Daemon(parleyd) as other:
        cable.there = other.address.rsplit(":", 1)
        server.links[0].patience = children.PATIENCE
        refused(lambda: room.read(), "NOT_FOUND", "token")
    room.leave()
    server.close()


def main():
    parleyd, parley_path = sys.argv[1:3]
    with Daemon(parleyd) as daemon, parley.connect(daemon.address) as direct:
        cable = Cable(daemon.address)
        for test in talk, cut_off, interrupted, unread:
            test(direct, cable)
            print(f"{test.__name__}: good", flush=True)
        asyncio.run(by_asyncio(daemon.address, cable))
        at_terminals(parley_path, daemon.address, cable)
        over_pipes(parley_path, direct, daemon.address, cable)
    over(parleyd)
    print("room_clients: passed")


if __name__ == "__main__":
    main()
