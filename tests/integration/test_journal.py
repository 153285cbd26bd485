#!/usr/bin/env python3
"""Conversations outlive the process, by kill -9: with their turns, forks, rewinds and options, and a turn that was accepted is computed
again to the same bytes; while the disk fails nothing is promised, and nothing that was is touched.

usage: test_journal.py PARLEYD WRITE_TINY_MODEL [PART]      (run by the interpreter that has grpcio and the stubs; see venv.sh)

Beside a PostgreSQL (tests/support/postgres.sh) it runs the parts that any journal must pass, each in a database of its own."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import random
import re
import resource
import shutil
import sqlite3
import sys
import tempfile
import threading
import time

import chain
import children
import grpc
import harness
from harness import conversations, word
from parley.v1 import cursor_pb2  # harness knows where they are
from small_disk import SmallDisk

N = 40


POSTGRES = os.environ.get("PARLEY_TEST_POSTGRES", "")


def new_journal(parleyd, folder, name):
    """What --data is to be: a folder that is not there yet, or a database whose tables were made. The lease is longer than any test, however
    loaded the machine is: a daemon that is killed has its lease ended."""
    if not POSTGRES:
        return ["--data", os.path.join(folder, name)]
    children.run(["psql", "-q", POSTGRES, "-c", f"CREATE DATABASE {name}"], check=True)
    data = ["--data", POSTGRES.replace("/postgres?", f"/{name}?"), "--lease", "1h"]
    children.run([parleyd, "--init-data", *data], check=True)
    return data


def end_leases(url):
    """Of all daemons that have one: they were killed, and nobody is to wait for that. test_cluster.py waits for leases."""
    children.disconnected(url)  # a renewal that was under way would come after this
    children.run(["psql", "-q", url, "-c", "UPDATE parley.daemon SET until = clock_timestamp(), address = ''"], check=True)


class Mortal(harness.Parleyd):
    """A daemon that may be killed inside its block, and started again on the same address."""

    def __enter__(self):
        client = super().__enter__()
        client.daemon = self
        return client

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.listener.join()
        if POSTGRES and "--data" in self.command:
            end_leases(self.command[self.command.index("--data") + 1])

    def again(self):
        self.command[self.command.index("--listen") + 1] = self.address
        self.client.channel.close()
        return self.__enter__()


def turn(c, number, text="Tell me a long story.", tokens=N, **more):
    r = conversations.TurnRequest(conversation=c, turn=number, text=text, **more)
    r.sampling.max_tokens = tokens
    r.sampling.ignore_eos = True
    r.sampling.temperature = 1
    return r


class Reply:
    """What the streams of one turn gave, one after the other."""

    def __init__(self):
        self.text, self.ids, self.index, self.done, self.generation = "", [], 0, None, 1

    def read(self, events, until=None):
        for event in events:
            kind = event.WhichOneof("event")
            if kind == "accepted":
                self.generation = event.accepted.generation
            elif kind == "piece":
                self.text += event.piece.text
                self.ids += event.piece.token_ids
                self.index = event.piece.next_index
            elif kind == "done":
                self.done = event.done
            if until is not None and self.index >= until:
                break
        return self

    def end(self):
        return self.text, self.ids, word(self.done, "finish_reason"), self.done.usage.completion_tokens, self.done.turn


def said(parley, r):
    return Reply().read(parley.conversations.Turn(r))


def resumed(parley, reply, c, number):
    """The rest of a reply, of which a stream gave the beginning."""
    place = cursor_pb2.Cursor(generation=reply.generation, turn=number, index=reply.index)
    return reply.read(parley.conversations.Turn(conversations.TurnRequest(conversation=c, resume_from=place)))


def refused(code, call):
    try:
        list(call) if hasattr(call, "__iter__") else call()
    except grpc.RpcError as error:
        assert error.code() == code, error
        return error
    raise AssertionError(f"it was not refused with {code}")


def everything(parley, c):
    """All that can be asked of a conversation, but what depends on the time of asking and on the memory in use."""
    kept = parley.get(c)
    return kept.turns, kept.generation, kept.system, dict(kept.metadata), kept.ttl_ms, [t.SerializeToString() for t in kept.transcript]


def all_kinds(parley):
    """A conversation of each kind, its id, and what the client was told of it."""
    r = conversations.ConversationsOpenRequest(model="tiny", system="You are brief.", ttl_ms=7200000, request_id="first", metadata={"who": "anna"})
    r.sampling.seed = 5
    first = parley.conversations.Open(r).conversation
    said(parley, turn(first, 1, want_logprobs=2))
    list(parley.conversations.Turn(conversations.TurnRequest(conversation=first, turn=2, text="Only listen.", observe_only=True)))
    said(parley, turn(first, 3, "And now?"))
    fork = parley.fork(first, at_turn=1, request_id="fork", metadata={"a": "fork"})
    said(parley, turn(fork, 2, "Otherwise."))
    twice = parley.fork(fork)
    rewound = parley.open("tiny")
    for number in (1, 2, 3):
        said(parley, turn(rewound, number, f"{number}?"))
    parley.conversations.Rewind(conversations.ConversationsRewindRequest(conversation=rewound, to_turn=1, generation=1))
    said(parley, turn(rewound, 2, "Another second."))
    updated = parley.open("echo")
    parley.conversations.Update(conversations.ConversationsUpdateRequest(conversation=updated, ttl_ms=3600000))
    list(parley.conversations.Turn(conversations.TurnRequest(conversation=updated, turn=1, text="hello")))
    closed, parent = parley.open("tiny"), parley.open("tiny")
    said(parley, turn(parent, 1))
    child = parley.fork(parent)
    parley.close(closed)
    parley.close(parent)
    return r, [first, fork, twice, rewound, updated, child], [closed, parent]


def next_turns(parley, alive):
    """One more turn of each: shows that the agent has the same past."""
    return [said(parley, conversations.TurnRequest(conversation=c, text="And then?")).text for c in alive]


def is_kept(parleyd, flags, folder):
    data = new_journal(parleyd, folder, "kept")
    with Mortal(parleyd, *flags, *data) as parley:
        daemon = parley.daemon
        request, alive, gone = all_kinds(parley)
        before = [everything(parley, c) for c in alive]
        forks = [parley.fork(c) for c in alive]
        after = next_turns(parley, forks)
        daemon.kill()
        parley = daemon.again()
        assert parley.conversations.Open(request).conversation == alive[0], "the request that opened it finds it"
        request.ttl_ms += 1
        refused(grpc.StatusCode.ALREADY_EXISTS, lambda: parley.conversations.Open(request))
        for c, one in zip(alive, before):
            assert everything(parley, c) == one, c
        for c in gone:
            refused(grpc.StatusCode.NOT_FOUND, lambda: parley.get(c))
        assert said(parley, turn(alive[0], 3, "And now?")).done.turn == 3, "a stored reply is returned"
        refused(grpc.StatusCode.ALREADY_EXISTS, parley.conversations.Turn(turn(alive[0], 3, "And what?")))
        assert next_turns(parley, alive) == after
        daemon.kill()
        parley = daemon.again()
        for c, one in zip(alive, before):
            assert parley.get(c).turns == one[0] + 1
            parley.close(c)
        daemon.kill()
        parley = daemon.again()
        for c in alive:
            refused(grpc.StatusCode.NOT_FOUND, lambda: parley.get(c))
        left = parley.open("tiny")
        said(parley, turn(left, 1))
        check = [daemon.command[0], *data, "--check-data"]
        assert POSTGRES or "in use" in children.run(check, stderr=-1, text=True).stderr
    checked = children.run(check, stdout=-1, text=True)
    n_open = len(forks) + 1
    assert checked.returncode == 0 and checked.stdout.startswith(f"conversations={n_open} turns="), checked
    if POSTGRES:
        return
    with open(os.path.join(folder, "kept", "journal.db"), "r+b") as db:
        db.seek(3 * 8192)  # a page behind the schema's
        db.write(b"\xff" * 4096)
    checked = children.run(check, stderr=-1, text=True)
    assert checked.returncode == 1 and "journal.db" in checked.stderr, checked


def pages(parley, size, model="", counted=True):
    """All pages of a list, one behind the other; counted: the total is their number."""
    token, listed, totals = "", [], set()
    while True:
        page = parley.conversations.List(conversations.ConversationsListRequest(page_size=size, page_token=token, model=model))
        assert len(page.conversations) <= size
        listed += page.conversations
        totals.add(page.total)
        token = page.next_page_token
        if not token:
            assert totals == {len(listed)} or not counted, (totals, len(listed))
            return listed


def stable(c):
    """What is told of a conversation wherever it is."""
    c = conversations.Conversation.FromString(c.SerializeToString())
    for field in ("context_tokens", "kv_pages", "kv_pages_shared", "idle_ms"):
        c.ClearField(field)
    return c


def is_gone(parley, conversation):
    try:
        return not parley.get(conversation)
    except grpc.RpcError as e:
        assert e.code() == grpc.StatusCode.NOT_FOUND, e
        return True


def is_listed(parleyd, flags, folder):
    """Pages come from the journal, the same whether conversations are in memory or not, and one that was idle for long leaves it."""
    data = new_journal(parleyd, folder, "listed")
    with Mortal(parleyd, *flags, *data) as parley:
        daemon = parley.daemon
        _, alive, _ = all_kinds(parley)
        before = [stable(c) for c in pages(parley, 1000)]
        assert [c.conversation for c in before] == alive[::-1], "newest first"
        daemon.kill()
        parley = daemon.again()
        for size in (1, 2, 1000):
            for now, then in zip(pages(parley, size), before, strict=True):
                assert stable(now) == then, (size, now, then)
        assert all(c.context_tokens == 0 for c in pages(parley, 1000)), "nothing was read for the list"
        assert [stable(c) for c in pages(parley, 2, "tiny")] == [c for c in before if c.model == "tiny"]
        assert len(pages(parley, 2, "echo")) == 1
        said(parley, turn(alive[2], 3, "Not listed wrongly."))
        listed = {c.conversation: c for c in pages(parley, 2)}
        assert listed[alive[2]].turns == 3 and listed[alive[2]].context_tokens > 0
        refused(grpc.StatusCode.INVALID_ARGUMENT, lambda: parley.conversations.List(conversations.ConversationsListRequest(page_token="x")))
        known = [everything(parley, c) for c in alive]
        after = next_turns(parley, [parley.fork(c) for c in alive])
    with Mortal(parleyd, *flags, *data, "--unload-idle", "0", "--unload-size", "1K") as parley:
        assert [everything(parley, c) for c in alive] == known
        watch = parley.conversations.Watch(conversations.ConversationsWatchRequest(conversation=alive[0]))
        assert [next(watch).kind, next(watch).kind] == [conversations.CONVERSATION_EVENT_KIND_SNAPSHOT, conversations.CONVERSATION_EVENT_KIND_SYNCED]
        children.until("all but the watched one to leave memory", lambda: [c.conversation for c in pages(parley, 1000) if c.context_tokens] == [alive[0]])
        own = parley.conversations.Open(conversations.ConversationsOpenRequest(model="echo", ttl_ms=2000)).conversation
        children.until("its own time to pass, however often it is read", lambda: is_gone(parley, own))
        parley.close(parley.fork(alive[0]))
        assert [everything(parley, c) for c in alive] == known and watch.is_active()
        watch.cancel()
    with Mortal(parleyd, *flags, *data, "--unload-idle", "100ms") as parley:
        assert [everything(parley, c) for c in alive] == known
        children.until("all to leave memory", lambda: all(c.context_tokens == 0 for c in pages(parley, 1000)))
        assert [everything(parley, c) for c in alive] == known
        assert next_turns(parley, alive) == after


def stored_turns(daemon, data):
    """What --check-data says: open conversations and turns."""
    checked = children.run([daemon.command[0], "--data", data, "--check-data"], stdout=-1, stderr=-1, text=True)
    assert checked.returncode == 0, checked
    return [int(part.split("=")[1]) for part in checked.stdout.split()]


def is_backed_up(parleyd, flags, folder):
    """A backup beside turns has one moment: each conversation with a prefix of its turns, none that ended before missing. It is restored
    as the manual says. All files are their owner's alone, also in a folder that was there, and a folder without any is checked as such."""
    data, file, restored = (os.path.join(folder, name) for name in ("saved", "backup.db", "restored"))
    os.mkdir(data)
    os.chmod(data, 0o755)
    empty = children.run([parleyd, "--data", data, "--check-data"], stderr=-1, text=True)
    assert empty.returncode == 1 and "nothing is kept in" in empty.stderr and not os.listdir(data), empty
    with Mortal(parleyd, *flags, "--data", data) as parley:
        daemon = parley.daemon
        made = [parley.open("tiny") for _ in range(4)]
        for c in made:
            said(parley, turn(c, 1))
        busy = threading.Event()

        def go_on(c):
            number = 1
            while not busy.is_set():
                number += 1
                said(parley, turn(c, number, tokens=4))
            return number

        with concurrent.futures.ThreadPoolExecutor() as pool:
            last = [pool.submit(go_on, c) for c in made]
            backup = children.run([daemon.command[0], "--data", data, "--backup", file], stderr=-1, text=True)
            busy.set()
            last = [one.result(children.PATIENCE) for one in last]
        assert backup.returncode == 0, backup
        modes = {path: oct(os.stat(path).st_mode & 0o777) for path in [file, *(os.path.join(data, name) for name in os.listdir(data))]}
        assert set(modes.values()) == {"0o600"} and {os.path.basename(path) for path in modes} >= {"journal.db", "journal.db-wal", "journal.db-shm"}, modes
        before = [everything(parley, c) for c in made]
        again = children.run([daemon.command[0], "--data", data, "--backup", file], stderr=-1, text=True)
        assert again.returncode == 1 and "the file exists" in again.stderr, again
    assert not os.path.exists(file + ".part")
    os.mkdir(restored)
    os.rename(file, os.path.join(restored, "journal.db"))
    with Mortal(parleyd, *flags, "--data", restored) as parley:
        for c, one, n in zip(made, before, last):
            have = everything(parley, c)
            assert 1 <= have[0] <= n and have[5] == one[5][:have[0]], (c, have[0], n)
        said(parley, turn(made[0], everything(parley, made[0])[0] + 1, tokens=4))
    none = children.run([parleyd, "--data", os.path.join(folder, "none"), "--backup", file], stderr=-1, text=True)
    assert none.returncode == 1 and "No such file" in none.stderr, none


def is_forgotten(parleyd, flags, folder):
    """Neither a clock nor --ttl deletes what is stored. Conversations beyond the bounds of age and size go from the journal, the idlest
    first, which is logged, and forks keep what they share."""
    data = os.path.join(folder, "forgotten")
    flags = [*flags, "--data", data]
    with Mortal(parleyd, *flags, "--ttl", "1ms", "--unload-idle", "1ms") as parley:
        daemon = parley.daemon
        short = [parley.open("echo") for _ in range(50)]
        long = parley.open("echo", metadata={"which": "long"})
        for c in short + [long]:
            said(parley, conversations.TurnRequest(conversation=c, turn=1, text="hello"))
        child = parley.fork(short[0])
        assert parley.get(child).ttl_ms == 0 and not parley.get(child).has_own_ttl
        all_of_them = {child, long, *short}
        daemon.kill()
        with contextlib.closing(sqlite3.connect(f"{data}/journal.db")) as db, db:  # the clock jumps ahead by fifty years
            db.execute("UPDATE event SET unix_ms = unix_ms - 50 * 365 * 24 * 3600000")
            chain.mend(db)
        daemon.command += ["--retain-age", "1h", "--log-level", "debug"]
        parley = daemon.again()
        children.until("a pass to end", lambda: any("retention deleted=0" in line for line in daemon.said), daemon.process)
        assert {c.conversation for c in pages(parley, 100)} == all_of_them

        def those():
            with contextlib.closing(sqlite3.connect(f"file:{data}/journal.db?mode=ro", uri=True)) as db:
                return {row[0].hex() for row in db.execute("SELECT id FROM conversation WHERE NOT is_closed")}

        assert those() == all_of_them
        for c in short:
            parley.close(c)
        assert parley.get(child).turns == 1
    assert stored_turns(daemon, data)[0] == 2
    with Mortal(parleyd, *flags) as parley:
        big = [parley.open("echo") for _ in range(40)]
        for c in big:
            said(parley, conversations.TurnRequest(conversation=c, turn=1, text="x" * 20000))
    with Mortal(parleyd, *flags, "--retain-size", "1M") as parley:
        children.until("the idlest to go", lambda: not {child, long} & those() and len(those()) <= 25)
        left = those()
        assert left == set(big[-len(left):]), "the idlest went first"
        assert len(left) >= 8, "no more than had to"
    with Mortal(parleyd, *flags, "--retain-age", "100ms", "--log-level", "info") as parley:
        children.until("all to go", lambda: not those())
        children.until("it to be said", lambda: any(re.search(r" info retention deleted=(\d+) age=\1 ttl=0 size=0$", line) for line in parley.daemon.said))
    assert stored_turns(daemon, data) == [0, 0]


def second_is_refused(parleyd, flags, folder):
    with Mortal(parleyd, *flags, "--data", os.path.join(folder, "one")) as parley:
        other = children.run([*parley.daemon.command], stderr=-1, text=True)
        assert other.returncode == 1 and "in use by another parleyd" in other.stderr, other.stderr


def goes_on(parleyd, flags, folder):
    """A turn that was accepted is computed again, with the seed that was drawn; streams go on where they were."""
    with Mortal(parleyd, *flags, *new_journal(parleyd, folder, "goes_on")) as parley:
        daemon = parley.daemon
        c = parley.open("long")
        r = turn(c, 1, tokens=1000)
        part = Reply().read(parley.conversations.Turn(r), 5)
        daemon.kill()
        parley = daemon.again()
        refused(grpc.StatusCode.ALREADY_EXISTS, parley.conversations.Turn(turn(c, 1, "Something else.")))
        resumed(parley, part, c, 1)
        whole = said(parley, r)
        assert part.end() == whole.end() and len(whole.ids) == 1000
        # Not asked for by number: the next turn comes behind it.
        second = Reply().read(parley.conversations.Turn(turn(c, 2, tokens=500)), 3)
        daemon.kill()
        parley = daemon.again()
        third = said(parley, conversations.TurnRequest(conversation=c, text="Next."))
        assert third.done.turn == 3
        whole = said(parley, turn(c, 2, tokens=500))
        assert whole.text.startswith(second.text) and len(whole.ids) == 500
        # A fork does without it, unless the daemon has gone on with it by itself, and ended it. A rewind waits for its end.
        part = Reply().read(parley.conversations.Turn(turn(c, 4, tokens=500)), 3)
        daemon.kill()
        parley = daemon.again()
        fork = parley.fork(c, **({"at_turn": 3} if POSTGRES else {}))
        assert said(parley, turn(fork, 4, "Mine.")).done.turn == 4
        said(parley, turn(c, 4, tokens=500))
        parley.conversations.Rewind(conversations.ConversationsRewindRequest(conversation=c, to_turn=2, generation=1))
        daemon.kill()
        parley = daemon.again()
        assert said(parley, turn(c, 3, "Again.")).generation == 2


def drained(parleyd, flags, folder):
    """A daemon that is asked to stop cuts no accepted turn: neither one that is read for longer than it waits, nor one that nobody reads."""
    with Mortal(parleyd, *flags, *new_journal(parleyd, folder, "drained"), "--drain-timeout", "50ms", "--linger", "1h") as parley:
        daemon = parley.daemon
        read, left = parley.open("long"), parley.open("long")
        parts, streams = {}, {}
        for c in (left, read):
            streams[c] = parley.conversations.Turn(turn(c, 1, tokens=children.LONG_TURN))
            parts[c] = Reply().read(streams[c], 1)
            if c == left:
                streams[c].cancel()
        daemon.process.terminate()
        refused(grpc.StatusCode.UNAVAILABLE, streams[read])
        assert daemon.process.wait(children.PATIENCE) == 0, daemon.said
        daemon.listener.join()
        parley = daemon.again()
        for c, part in parts.items():
            resumed(parley, part, c, 1)
            assert word(part.done, "finish_reason") == "length" and len(part.ids) == children.LONG_TURN, part.done
        assert said(parley, turn(read, 1, tokens=children.LONG_TURN)).end() == parts[read].end()


def chat(daemon, name, text):
    """One chat of a conversation that the header names; its reply, the conversation's id, and how much of the prompt it had before."""
    connection = http.client.HTTPConnection(daemon.http, timeout=children.PATIENCE)
    body = {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": N, "temperature": 1, "seed": 7, "ignore_eos": True}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"X-Conversation-Id": name})
    answer = connection.getresponse()
    said = json.loads(answer.read())
    assert answer.status == 200, said
    connection.close()
    return said["choices"][0]["message"]["content"], answer.headers["X-Conversation-Id"], said["usage"]["prompt_tokens"]


def named_by_header(parleyd, flags, folder):
    """What HTTP's header names is kept under its name, and found by its id too."""
    flags = flags[: flags.index("--http")] + ["--http", "127.0.0.1:0"]
    texts = ["One.", "Two.", "Three.", "Four."]
    with Mortal(parleyd, *flags) as parley:
        whole = [chat(parley.daemon, "home", text) for text in texts]
    with Mortal(parleyd, *flags, *new_journal(parleyd, folder, "named")) as parley:
        daemon = parley.daemon
        ids = set()
        for text, (reply, _, n_prompt) in zip(texts, whole):
            said = chat(daemon, ids.pop() if text == texts[-1] else "home", text)
            assert (said[0], said[2]) == (reply, n_prompt), text
            ids = {said[1]} | ids
            if text != texts[1]:
                daemon.kill()
                daemon.again()
        assert len(ids) == 1
        assert chat(daemon, "elsewhere", texts[0])[0] == whole[0][0]


def another_model(parleyd, flags, folder):
    """Under another model of that name, or another kind of KV pages, a conversation goes on and says so; a turn that had not ended ends empty."""
    with Mortal(parleyd, *flags, *new_journal(parleyd, folder, "another")) as parley:
        daemon = parley.daemon
        c, running = parley.open("tiny"), parley.open("long")
        first = said(parley, turn(c, 1))
        Reply().read(parley.conversations.Turn(turn(running, 1, tokens=1000)), 3)
        daemon.kill()
        daemon.command += ["--kv", "q8"]
        parley = daemon.again()
        assert said(parley, turn(c, 1)).end() == first.end() and parley.get(c).continued_inexactly
        ended = said(parley, turn(running, 1, tokens=1000))
        assert word(ended.done, "finish_reason") == "error" and ended.ids == [], ended.end()
        assert said(parley, turn(running, 2)).done.turn == 2
        daemon.kill()
        at = next(i for i, word in enumerate(daemon.command) if word.startswith("tiny="))
        daemon.command[at] = "tiny=" + daemon.command[daemon.command.index("--model", at) + 1].removeprefix("long=")
        parley = daemon.again()
        kept, second = parley.get(c), said(parley, turn(c, 2))
        assert kept.transcript[0].reply == first.text and kept.continued_inexactly and kept.version != "", kept
        assert second.done.turn == 2 and not parley.get(parley.open("tiny")).continued_inexactly
        # Its prompt has the reply, in ids of its own.
        assert second.done.usage.prompt_tokens > first.done.usage.prompt_tokens + len(first.ids) // 2
        assert parley.get(parley.fork(c)).continued_inexactly


def ask(daemon, method, path, body=None):
    """Status and JSON of an HTTP request."""
    connection = http.client.HTTPConnection(daemon.http, timeout=children.PATIENCE)
    connection.request(method, path, None if body is None else json.dumps(body))
    answer = connection.getresponse()
    said = json.loads(answer.read())
    connection.close()
    return answer.status, said


def same_response(answer, of):
    """Read again it is the same; its times are the journal's, whose records come a moment later."""
    status, again = answer
    times = "created_at", "completed_at"
    assert status == 200 and {k: v for k, v in again.items() if k not in times} == {k: v for k, v in of.items() if k not in times}, (answer, of)
    assert all(abs(again[k] - of[k]) <= 1 for k in times), (answer, of)


def responses(parleyd, flags, folder):
    """A response is read, gone on from and deleted by a later process, and one in the background is finished by it."""
    flags = flags[: flags.index("--http")] + ["--http", "127.0.0.1:0"]
    path = "/v1/responses"
    common = {"model": "tiny", "max_output_tokens": N, "temperature": 1, "seed": 7, "ignore_eos": True}
    with Mortal(parleyd, *flags, *new_journal(parleyd, folder, "responses")) as parley:
        daemon = parley.daemon
        first = ask(daemon, "POST", path, {**common, "input": "One.", "instructions": "Be brief.", "metadata": {"a": "b"}})[1]
        second = ask(daemon, "POST", path, {**common, "input": "Two.", "previous_response_id": first["id"]})[1]
        daemon.kill()
        daemon.again()
        same_response(ask(daemon, "GET", f"{path}/{second['id']}"), second)
        same_response(ask(daemon, "GET", f"{path}/{first['id']}"), first)
        assert ask(daemon, "GET", f"{path}/{first['id']}/input_items")[1]["data"][0]["content"][0]["text"] == "One."
        daemon.kill()
        daemon.again()
        twin = ask(daemon, "POST", path, {**common, "input": "Two.", "previous_response_id": first["id"]})[1]
        assert twin["usage"]["total_tokens"] == second["usage"]["total_tokens"] and twin["previous_response_id"] == first["id"]
        assert ask(daemon, "DELETE", f"{path}/{first['id']}")[0] == 200
        running = ask(daemon, "POST", path, {**common, "model": "long", "input": "Go on.", "max_output_tokens": 2000, "background": True})[1]
        daemon.kill()
        daemon.again()
        assert ask(daemon, "GET", f"{path}/{first['id']}")[0] == 404
        same_response(ask(daemon, "GET", f"{path}/{twin['id']}"), twin)
        children.until("the end of the response", lambda: ask(daemon, "GET", f"{path}/{running['id']}")[1]["status"] != "in_progress")
        assert ask(daemon, "GET", f"{path}/{running['id']}")[1]["usage"]["output_tokens"] == 2000
        running = ask(daemon, "POST", path, {**common, "model": "long", "input": "On.", "max_output_tokens": 60000, "background": True})[1]
        daemon.kill()
        daemon.command += ["--kv", "q8"]
        daemon.again()
        children.until("the end of the response", lambda: ask(daemon, "GET", f"{path}/{running['id']}")[1]["status"] != "in_progress")
        ended = ask(daemon, "GET", f"{path}/{running['id']}")[1]
        assert ended["status"] == "failed" and ended["error"]["code"] == "server_error" and ended["incomplete_details"] is None, ended


class Script:
    """One client: turns, each retried until it is done, with what it has of it. Its replies depend on the seed alone."""

    TURNS = 3

    def __init__(self, number):
        self.number, self.replies = number, []

    def run(self, daemon):
        c = self.patiently(daemon, lambda parley, _: parley.open("tiny", request_id=f"client {self.number}"))
        for number in range(1, self.TURNS + 1):
            r = turn(c, number, f"Number {self.number}, part {number}?", tokens=20 + self.number % 7 * 10)
            r.sampling.seed = self.number * 100 + number
            part = Reply()

            def once(parley, n_tried):
                if part.index == 0 or n_tried % 3 == 2:  # also from the start: it must be the same as what came
                    again = Reply()
                    again.read(parley.conversations.Turn(r))
                    assert again.text.startswith(part.text) and again.ids[: len(part.ids)] == part.ids
                    part.__dict__.update(again.__dict__)
                else:
                    resumed(parley, part, c, number)

            self.patiently(daemon, once)
            self.replies.append(part.end())
        return self.replies

    def patiently(self, daemon, act):
        end = time.monotonic() + children.PATIENCE
        for n_tried in range(10**9):
            try:
                return act(daemon.client, n_tried)
            except (grpc.RpcError, ValueError) as error:  # ValueError: of a channel that was closed
                if isinstance(error, grpc.RpcError) and error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                    raise
                assert time.monotonic() < end, error
                daemon.is_back.wait(children.PATIENCE)


def run_all(parleyd, flags, data, n_kills, seed):
    """Every script's replies, with so many kills on the way."""
    chance = random.Random(seed)
    with Mortal(parleyd, *flags, *data) as parley:
        daemon = parley.daemon
        daemon.is_back = threading.Event()
        daemon.is_back.set()
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            all_of_them = [pool.submit(Script(i).run, daemon) for i in range(64 if children.STRIDE == 1 else 24)]
            n_killed = 0
            for _ in range(n_kills):
                time.sleep(chance.uniform(0.05, 0.5))  # the moment of the kill is random, and nothing is waited for
                if all(one.done() for one in all_of_them):
                    break
                daemon.is_back.clear()
                daemon.kill()
                n_killed += 1
                daemon.again()
                daemon.is_back.set()
            return [one.result() for one in all_of_them], n_killed


def same_as_uninterrupted(parleyd, flags, folder):
    seed = int(os.environ.get("PARLEY_SEED", random.randrange(10**6)))
    print(f"PARLEY_SEED={seed}")
    whole, _ = run_all(parleyd, flags, [], 0, seed)
    killed, n_killed = run_all(parleyd, flags, new_journal(parleyd, folder, "killed"), 5, seed)
    assert n_killed >= 3, n_killed
    assert killed == whole


def failing_disk(parleyd, flags, folder):
    """Writes that fail refuse turns and changes; what was there stays, and all goes on once they succeed."""
    with Mortal(parleyd, *flags, "--data", os.path.join(folder, "failing")) as parley:
        daemon = parley.daemon
        c, other = parley.open("tiny"), parley.open("tiny")
        first = said(parley, turn(c, 1))
        running = Reply()
        stream = parley.conversations.Turn(turn(other, 1, tokens=200))
        running.read(stream, 2)
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        error = refused(grpc.StatusCode.UNAVAILABLE, parley.conversations.Turn(turn(c, 2)))
        detail = next(harness.error_pb2.ErrorDetail.FromString(v) for k, v in error.trailing_metadata() if k == "parley-error-bin")
        assert detail.reason == "JOURNAL_FAILING", detail
        refused(grpc.StatusCode.UNAVAILABLE, lambda: parley.open("tiny"))
        refused(grpc.StatusCode.UNAVAILABLE, stream)
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert said(parley, turn(c, 1)).end() == first.end()
        second = said(parley, turn(c, 2))
        assert second.done.turn == 2
        resumed(parley, running, other, 1)
        assert running.end() == said(parley, turn(other, 1, tokens=200)).end()
        daemon.kill()
        parley = daemon.again()
        assert said(parley, turn(c, 2)).end() == second.end() and parley.get(other).turns == 1


def restored(data):
    """A folder with a journal as version 5 wrote it, and what its clients had been told."""
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
    os.mkdir(data)
    with contextlib.closing(sqlite3.connect(f"{data}/journal.db")) as db, open(f"{here}/journal_5.sql", encoding="utf-8") as sql:
        db.executescript(sql.read())
    with open(f"{here}/journal_5.json", encoding="utf-8") as file:
        return json.load(file)


def post(daemon, path, body, headers):
    connection = http.client.HTTPConnection(daemon.http, timeout=children.PATIENCE)
    connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def of_version_before(parleyd, flags, folder):
    """A journal of the version before is taken over: conversations, forks, rewinds, a turn that had not ended, keyed replies, responses,
    checkpoints of parameters, tables, keys."""
    data = os.path.join(folder, "before")
    told = restored(data)
    flags = flags[: flags.index("--http")] + ["--http", "127.0.0.1:0", "--data", data]
    with Mortal(parleyd, *flags) as parley:
        daemon = parley.daemon
        for c, was in told["conversations"].items():
            now = parley.get(c)
            assert (now.turns, now.generation, now.model) == (was["turns"], was["generation"], was["model"]), c
            for t in now.transcript:
                assert t.HasField("timings") or not t.reply, t
                t.ClearField("timings")  # this version tells them, too
            if "transcript" in was:
                assert [t.SerializeToString().hex() for t in now.transcript] == was["transcript"], c
        for c in told["gone"]:
            refused(grpc.StatusCode.NOT_FOUND, lambda: parley.get(c))
        listed = {c.conversation for c in pages(parley, 3)}
        assert listed >= set(told["conversations"]), "and the response's"
        assert post(daemon, "/v1/chat/completions", told["keyed"], {"Idempotency-Key": "once"}) == (200, told["keyed_answer"])
        assert post(daemon, "/v1/responses/" + told["response_id"], None, {})[0] == 200
        listed = parley.params.List(harness.params.ParamsListRequest()).params
        assert [(p.name, p.version) for p in listed] == [("p", 3)], listed
        with contextlib.closing(sqlite3.connect(f"file:{data}/journal.db?mode=ro", uri=True)) as db:
            assert db.execute("SELECT kind, name FROM kept ORDER BY kind").fetchall() == [(1, "key"), (2, "table")]
        new = parley.open("tiny")
        said(parley, turn(new, 1))
        stream = parley.conversations.Turn(turn(new, 2, tokens=children.LONG_TURN))
        next(iter(stream))
        parley.conversations.Cancel(conversations.ConversationsCancelRequest(conversation=new))
        parley.conversations.Update(conversations.ConversationsUpdateRequest(conversation=new, ttl_ms=3600000))
        parley.conversations.Update(conversations.ConversationsUpdateRequest(conversation=new, ttl_ms=7200000))
        said(parley, conversations.TurnRequest(conversation=parley.fork(new), text="Mine."))
        next_turns(parley, list(told["conversations"])[:3])
    stored_turns(daemon, data)
    assert chain.check(f"{data}/journal.db") > 42


def altered(parleyd, flags, folder):
    """A record that is not what was written is named by --check-data; its conversation is refused, others go on."""
    data = os.path.join(folder, "altered")
    with Mortal(parleyd, *flags, "--data", data) as parley:
        daemon = parley.daemon
        hurt, whole = parley.open("tiny"), parley.open("tiny")
        for number in (1, 2, 3):
            for c in (hurt, whole):
                said(parley, turn(c, number, tokens=4))
        daemon.kill()
        with contextlib.closing(sqlite3.connect(f"{data}/journal.db")) as db, db:
            seq, body = db.execute("SELECT seq, body FROM event WHERE conversation = ? AND turn = 2 AND kind = 4", (bytes.fromhex(hurt),)).fetchone()
            db.execute("UPDATE event SET body = ? WHERE seq = ?", (body[:-1] + bytes([body[-1] ^ 1]), seq))
        checked = children.run([daemon.command[0], "--data", data, "--check-data"], stdout=-1, stderr=-1, text=True)
        assert checked.returncode == 1 and f"conversation {hurt}, record {seq} (kind 4, generation 1, turn 2)" in checked.stderr, checked
        parley = daemon.again()
        for _ in range(2):
            error = refused(grpc.StatusCode.DATA_LOSS, lambda: parley.get(hurt))
            assert f"record {seq}" in error.details(), error
        refused(grpc.StatusCode.DATA_LOSS, parley.conversations.Turn(turn(hurt, 4)))
        assert said(parley, turn(whole, 4)).done.turn == 4
        assert {c.conversation for c in pages(parley, 10)} == {hurt, whole}
        assert any("damaged" in line and f"record {seq}" in line for line in daemon.said), daemon.said
        parley.close(whole)


def health(daemon):
    return json.loads(post(daemon, "/health", None, {})[1])


def metric(daemon, name):
    return next(float(line.split()[1]) for line in post(daemon, "/metrics", None, {})[1].splitlines() if line.startswith(name + " "))


def serves(parley):
    return parley.health.Check(harness.health_pb2.HealthCheckRequest(service="parley.v1.Conversations")).status == harness.health_pb2.HealthCheckResponse.SERVING


def deleted_files(parleyd, flags, folder):
    """The folder is deleted under the daemon: no turn is acknowledged any more, and all who ask are told why."""
    data = os.path.join(folder, "deleted")
    flags = flags[: flags.index("--http")] + ["--http", "127.0.0.1:0", "--data", data]
    with Mortal(parleyd, *flags) as parley:
        daemon = parley.daemon
        c = parley.open("tiny")
        first = said(parley, turn(c, 1))
        os.remove(f"{data}/journal.db-wal")
        assert said(parley, turn(c, 2, tokens=3)).done.turn == 2, "the database has all that the log had"
        assert health(daemon) == {"status": "ok"}
        shutil.rmtree(data)
        error = refused(grpc.StatusCode.UNAVAILABLE, parley.conversations.Turn(turn(c, 3)))
        assert "was deleted while parleyd runs" in error.details(), error
        for number in (3, 3, 3):
            refused(grpc.StatusCode.UNAVAILABLE, parley.conversations.Turn(turn(c, number)))
        assert said(parley, turn(c, 1)).end() == first.end(), "what is stored is read"
        assert health(daemon)["status"] == "degraded" and "was deleted" in health(daemon)["journal"]
        assert not serves(parley)
        assert metric(daemon, "parley_journal_failing") == 1 and metric(daemon, "parley_journal_refused_total") >= 4
        assert sum("journal state=failing" in line for line in daemon.said) == 1, daemon.said


def full_disk(parleyd, flags, folder):
    """On a full disk turns are refused, which is logged once, counted and seen by who asks for health; what is stored is read, also by a
    daemon that is started then. Once there is room it stores again by itself."""
    data = os.path.join(folder, "full")
    os.mkdir(data)
    if os.geteuid() != 0:
        print("full_disk: skipped, only root can mount a small disk")
        return
    flags = flags[: flags.index("--http")] + ["--http", "127.0.0.1:0", "--data", data]
    with SmallDisk(data, "4m") as disk:
        with Mortal(parleyd, *flags) as parley:
            daemon = parley.daemon
            c = parley.open("tiny")
            first = said(parley, turn(c, 1))
            disk.fill()
            n = 0
            with contextlib.suppress(grpc.RpcError):
                while n < 1000:  # there is room in the log that was written before
                    said(parley, turn(c, 2 + n, tokens=2))
                    n += 1
            for _ in range(3):
                refused(grpc.StatusCode.UNAVAILABLE, parley.conversations.Turn(turn(c, 2 + n)))
            assert metric(daemon, "parley_journal_refused_total") >= 4
            assert health(daemon)["status"] == "degraded" and "full" in health(daemon)["journal"]
            assert not serves(parley) and said(parley, turn(c, 1)).end() == first.end()
            assert sum("journal state=failing" in line for line in daemon.said) == 1, daemon.said
            daemon.process.terminate()
            assert daemon.process.wait(children.PATIENCE) == 0
            daemon.listener.join()
            disk.fill()
            parley = daemon.again()
            assert said(parley, turn(c, 1)).end() == first.end() and parley.get(c).turns == 1 + n
            refused(grpc.StatusCode.UNAVAILABLE, parley.conversations.Turn(turn(c, 2 + n)))
            assert health(daemon)["status"] == "degraded" and not serves(parley)
            disk.make_room()
            children.until("it to store again", lambda: serves(parley))
            assert said(parley, turn(c, 2 + n)).done.turn == 2 + n and health(daemon) == {"status": "ok"}
        assert stored_turns(daemon, data) == [1, 2 + n]


def main():
    parleyd, write_tiny_model = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        tiny, long = os.path.join(folder, "tiny.gguf"), os.path.join(folder, "long.gguf")
        children.run([write_tiny_model, tiny], check=True)
        children.run([write_tiny_model, long, "65536"], check=True)
        flags = ["--model", f"tiny={tiny}", "--model", f"long={long}", "--http", "off"]
        any_journal = (is_kept, is_listed, goes_on, drained, named_by_header, another_model, responses, same_as_uninterrupted)
        of_folders = (is_backed_up, is_forgotten, second_is_refused, of_version_before, altered, deleted_files, full_disk, failing_disk)
        parts = any_journal if POSTGRES else any_journal + of_folders
        for part in [p for p in parts if sys.argv[3:] in ([], [p.__name__])]:
            began = time.monotonic()
            part(parleyd, flags, folder)
            print(f"{part.__name__}: {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
