#!/usr/bin/env python3
"""Daemons that share a PostgreSQL, any call at any of them: calls for a conversation of another daemon are answered by that daemon, whatever API
they come by; nobody but a daemon may name a principal; turns of a daemon that was killed go on though nobody asks, and those of one that
stops are handed over; one that was frozen is refused; clients resume by themselves; clocks may be hours apart.

usage: postgres.sh test_together.py PARLEYD WRITE_TINY_MODEL PARLEY SHIFT_CLOCK
"""
import contextlib
import hashlib
import hmac
import http.client
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
import grpc  # noqa: E402
import children  # noqa: E402
import harness  # noqa: E402
import test_keys  # noqa: E402
import test_tls  # noqa: E402
from harness import conversations  # noqa: E402

POSTGRES = os.environ["PARLEY_TEST_POSTGRES"]
LEASE_S = 3600  # longer than the test, however loaded the machine is: who is killed has the lease ended, but for one test
SWEPT_LEASE_S = 4
SHARE = os.path.join(os.path.dirname(__file__), "..", "..", "share", "cluster")


class Together:
    """Daemons of one database."""

    def __init__(self, parleyd, database, *flags):
        self.parleyd = parleyd
        self.url = POSTGRES.replace("/postgres?", f"/{database}?")
        children.run(["psql", "-q", POSTGRES, "-c", f"CREATE DATABASE {database}"], check=True)
        children.run([parleyd, "--init-data", "--data", self.url], check=True)
        self.flags = ["--http", "127.0.0.1:0", "--lease", f"{int(LEASE_S * 1000)}ms", "--data", self.url, *flags]
        self.names = (f"daemon{i}" for i in itertools.count())

    def daemon(self, *flags):
        """Its connections have a name of their own."""
        named = [f"{flag}&application_name={next(self.names)}" if flag == self.url else flag for flag in self.flags]
        return harness.Parleyd(self.parleyd, *named, *flags)

    def kill(self, daemon):
        """With -9, and nobody is to wait for its lease."""
        daemon.process.kill()
        daemon.process.wait()
        daemon.listener.join()
        children.disconnected(self.url, daemon.command[daemon.command.index("--data") + 1].rpartition("=")[2])
        self.sql(f"UPDATE parley.daemon SET until = clock_timestamp() WHERE address = '{daemon.address}'")

    def sql(self, statement):
        done = children.run(["psql", "-qtA", self.url, "-c", statement], check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout.strip()

    def owner(self, conversation):
        return self.sql(f"SELECT split_part(owner, '.', 1) FROM parley.conversation WHERE id = '{conversation}'")


def addresses(url):
    """Where the daemons that live reach each other, in order; "": not at all."""
    statement = "SELECT address FROM parley.daemon WHERE until > clock_timestamp() ORDER BY address"
    return children.run(["psql", "-qtA", url, "-c", statement], check=True, stdout=subprocess.PIPE, text=True).stdout.split("\n")[:-1]


def turn(client, conversation, text, metadata=(), **more):
    request = conversations.TurnRequest(conversation=conversation, text=text, **more)
    return list(client.conversations.Turn(request, metadata=metadata, timeout=children.PATIENCE))


def text_of(events):
    return "".join(event.piece.text for event in events)


def metric(client, name):
    connection = http.client.HTTPConnection(client.http, timeout=children.PATIENCE)
    connection.request("GET", "/metrics")
    body = connection.getresponse().read().decode()
    return float(next(line for line in body.splitlines() if line.startswith(name + " ")).split()[1])


def fails(code, call, *args, **more):
    try:
        call(*args, **more)
    except grpc.RpcError as e:
        assert e.code() == code, (e.code(), e.details())
        return e
    raise AssertionError(f"no failure: {args}")


def posted(client, path, body, headers=(), method="POST"):
    connection = http.client.HTTPConnection(client.http, timeout=children.PATIENCE)
    connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json", **dict(headers)})
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read()


def by_grpc(all, a, b):
    """Each method at the daemon that has not the conversation, which stays where it is."""
    c = a.open("echo", request_id="r1")
    home = all.owner(c)
    assert text_of(turn(b, c, "one", turn=1)) == "one"
    assert text_of(turn(b, c, "one", turn=1)) == "one"  # the stored reply
    assert text_of(turn(a, c, "two")) == "two"
    assert b.open("echo", request_id="r1") == c
    assert [t.turn for t in b.get(c).transcript] == [1, 2]
    fork = b.fork(c, at_turn=1)
    assert all.owner(fork) == home and text_of(turn(b, fork, "three")) == "three"
    rewound = b.conversations.Rewind(conversations.ConversationsRewindRequest(conversation=c, to_turn=1))
    assert rewound.turns == 1 and a.get(c).turns == 1
    b.conversations.Update(conversations.ConversationsUpdateRequest(conversation=c, metadata=conversations.ConversationMetadata(entries={"k": "v"})))
    assert a.get(c).metadata == {"k": "v"}
    assert b.conversations.Ask(conversations.TurnRequest(conversation=c, text="four")).message.text == "four"
    # A failure comes as it is, with its detail.
    e = fails(grpc.StatusCode.ALREADY_EXISTS, turn, b, c, "another", turn=1)
    assert dict(e.trailing_metadata())["parley-error-bin"], "no detail"
    assert "another body" in e.details()
    b.close(c)
    fails(grpc.StatusCode.NOT_FOUND, a.get, c)
    assert all.owner(fork) == home
    assert metric(b, "parley_cluster_passed_on_total") >= 10 and metric(a, "parley_cluster_taken_total") >= 10
    assert metric(b, "parley_cluster_taken_total") == 0
    fails(grpc.StatusCode.NOT_FOUND, b.get, "0" * 32)


def by_chat(all, a, b):
    """Turns of a Chat stream: of conversations here and there, cancelled too."""
    here, there = b.open("echo"), a.open("echo")
    requests = [conversations.ChatRequest(tag=i, turn=conversations.TurnRequest(conversation=c, text=f"say {i}"))
                for i, c in enumerate([here, there, here, there])]
    said = {}
    for event in b.conversations.Chat(iter(requests), timeout=children.PATIENCE):
        assert event.WhichOneof("event") != "error", event
        said[event.tag] = said.get(event.tag, "") + event.piece.text
    assert said == {i: f"say {i}" for i in range(4)}, said


def by_model(all, a, b):
    """A long turn of another daemon: its stream, another reader of it, and its cancellation."""
    more = {"sampling": harness.sampling.Sampling(max_tokens=children.LONG_TURN, seed=7, ignore_eos=True)}
    for _ in range(20):
        c = a.open("tiny")
        stream = b.conversations.Turn(conversations.TurnRequest(conversation=c, text="go", turn=1, **more), timeout=children.PATIENCE)
        first = [next(stream), next(stream)]
        assert first[0].WhichOneof("event") == "accepted"
        n = b.conversations.Cancel(conversations.ConversationsCancelRequest(conversation=c)).cancelled
        finish = harness.word(list(stream)[-1].done, "finish_reason")
        if n == 1:
            break
        assert (n, finish) == (0, "length"), (n, finish)  # it had ended, which a busy machine may make likely
    assert (n, finish) == (1, "cancelled"), (n, finish)
    cut = b.conversations.Turn(conversations.TurnRequest(conversation=c, text="go on", **more), timeout=children.PATIENCE)
    next(cut)
    cut.cancel()  # the last reader: the turn ends at its daemon
    children.until("the turn's end", lambda: metric(a, "parley_live_turns") == 0)
    late = {"text": "again", "turn": a.get(c).turns + 1, "sampling": more["sampling"]}
    try:
        list(b.conversations.Turn(conversations.TurnRequest(conversation=c, **late), timeout=0.5))
    except grpc.RpcError as e:
        assert e.code() == grpc.StatusCode.DEADLINE_EXCEEDED, e
    b.close(c)


def by_connect(all, a, b):
    c = a.open("echo")
    status, _, body = posted(b, "/parley.v1.Conversations/Ask", {"conversation": c, "text": "hello"})
    assert status == 200 and json.loads(body)["message"]["text"] == "hello", body
    status, _, body = posted(b, "/parley.v1.Conversations/Get", {"conversation": c})
    assert status == 200 and json.loads(body)["turns"] == 1, body
    status, _, body = posted(b, "/parley.v1.Conversations/Rewind", {"conversation": c, "toTurn": 9})
    assert status == 400 and json.loads(body)["code"] == "out_of_range", (status, body)
    envelope = json.dumps({"conversation": c, "text": "streamed"}).encode()
    connection = http.client.HTTPConnection(b.http, timeout=children.PATIENCE)
    connection.request("POST", "/parley.v1.Conversations/Turn", b"\0" + len(envelope).to_bytes(4, "big") + envelope,
                       {"Content-Type": "application/connect+json"})
    body = connection.getresponse().read()
    assert b'"text":"streamed"' in body and body.endswith(b"{}"), body


def chat(client, text, conversation=None, stream=False, headers=(), **more):
    body = {"model": "echo", "messages": [{"role": "user", "content": text}], "stream": stream, **more}
    return posted(client, "/v1/chat/completions", body, [*([("X-Conversation-Id", conversation)] if conversation else []), *headers])


def by_http(all, a, b):
    """OpenAI's, Anthropic's and Ollama's APIs, whole and streamed, small and large; names, keys, responses, deletion."""
    status, headers, body = chat(a, "one", "http-1")
    assert status == 200 and headers["X-Conversation-Id"], body
    c = headers["X-Conversation-Id"]
    home = all.owner(c)
    status, headers, body = chat(b, "two", "http-1")
    assert status == 200 and json.loads(body)["choices"][0]["message"]["content"] == "two", (status, body)
    assert headers["X-Conversation-Id"] == c and headers["Content-Length"] == str(len(body)) and headers["X-Request-Id"], headers
    assert headers["Content-Type"] == "application/json", headers
    status, headers, body = chat(b, "three", "http-1", stream=True)
    assert status == 200 and headers["Content-Type"].startswith("text/event-stream") and body.endswith(b"data: [DONE]\n\n"), (headers, body)
    large = "x" * (3 << 20)
    status, _, body = chat(b, large, "http-1")
    assert status == 200 and json.loads(body)["choices"][0]["message"]["content"] == large, (status, body[:300])
    status, _, body = chat(b, "four", "http-1", n=2)
    assert status == 400 and "must be 1 in a conversation" in json.loads(body)["error"]["message"], (status, body)
    status, headers, body = chat(b, "t" * 4000, "http-1", headers=[("Accept-Encoding", "gzip")])
    assert status == 200 and headers["Content-Encoding"] == "gzip", headers
    said = {"model": "echo", "max_tokens": 99, "messages": [{"role": "user", "content": "five"}]}
    status, headers, body = posted(b, "/v1/messages", said, [("X-Conversation-Id", "http-1"), ("anthropic-version", "2023-06-01")])
    assert status == 200 and json.loads(body)["content"][0]["text"] == "five", (status, body)
    status, headers, body = posted(b, "/v1/messages", {**said, "stream": True}, [("X-Conversation-Id", "http-1")])
    assert status == 200 and b"message_stop" in body, body
    status, headers, body = posted(b, "/api/chat", {**said, "stream": True}, [("X-Conversation-Id", "http-1")])
    assert status == 200 and headers["Content-Type"].startswith("application/x-ndjson") and json.loads(body.splitlines()[-1])["done"], (headers, body)
    assert a.get(c).turns == 8 and all.owner(c) == home
    status, _, body = chat(b, "more", "http-1", messages=[])
    assert status == 400 and json.loads(body)["error"]["type"] == "invalid_request_error", (status, body)
    # A key's reply is one, wherever it is asked for again; and so is a stored response.
    first = chat(a, "keyed", headers=[("Idempotency-Key", "key-1")], n=3)
    again = chat(b, "keyed", headers=[("Idempotency-Key", "key-1")], n=3)
    assert first[0] == again[0] == 200 and json.loads(first[2])["choices"] == json.loads(again[2])["choices"], (first, again)
    made = json.loads(posted(a, "/v1/responses", {"model": "echo", "input": "stored"})[2])
    status, _, body = posted(b, f"/v1/responses/{made['id']}", None, method="GET")
    assert status == 200 and json.loads(body)["output"] == made["output"], (status, body)
    status, _, body = posted(b, "/v1/responses", {"model": "echo", "input": "on", "previous_response_id": made["id"]})
    assert status == 200 and json.loads(body)["output"][0]["content"][0]["text"] == "on", (status, body)
    status, _, body = posted(b, f"/v1/responses/{made['id']}", None, method="DELETE")
    assert status == 200 and json.loads(body)["deleted"], (status, body)
    assert posted(a, f"/v1/responses/{made['id']}", None, method="GET")[0] == 404
    held = json.loads(posted(a, "/v1/conversations", {"items": [{"type": "message", "role": "user", "content": "kept"}]})[2])["id"]
    status, _, body = posted(b, f"/v1/conversations/{held}/items", None, method="GET")
    assert status == 200 and json.loads(body)["data"][0]["content"][0]["text"] == "kept", (status, body)


def by_http_stream(all, a, b):
    """A long stream of another daemon: it comes piece by piece, ends there when its client hangs up here, and is resumed."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "go"}], "stream": True, "max_tokens": children.LONG_TURN, "seed": 3, "ignore_eos": True}
    posted(a, "/v1/chat/completions", {**body, "max_tokens": 1, "stream": False}, [("X-Conversation-Id", "long")])
    connection = http.client.HTTPConnection(b.http, timeout=children.PATIENCE)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"X-Conversation-Id": "long"})
    answer = connection.getresponse()
    assert answer.status == 200 and answer.readline().startswith(b"data: "), "no stream"
    assert metric(a, "parley_live_turns") == 1
    answer.close()
    connection.close()
    children.until("the turn's end", lambda: metric(a, "parley_live_turns") == 0)


def forged(all, a, b):
    """Nobody but a daemon names a principal, and a call is passed on once."""
    c = a.open("echo")
    secret = bytes.fromhex(all.sql("SELECT encode(value, 'hex') FROM parley.meta WHERE key = 'secret'"))
    home, other = all.owner(c), all.owner(b.open("echo"))

    def passes(to, principal, key):
        text = f"v1/{to}/{other}/{principal}"
        return [("x-parley-pass", hmac.new(key, text.encode(), hashlib.sha256).hexdigest() + "/" + text)]

    for wrong in (passes(home, "", b"0" * 16), [("x-parley-pass", "x")], [("x-parley-pass", "a/" * 200)], passes(home, "", secret[::-1]),
                  [("x-parley-pass", passes(home, "", secret)[0][1] + "root")], [("x-parley-pass", "")]):
        fails(grpc.StatusCode.UNAUTHENTICATED, turn, a, c, "x", wrong)
    fails(grpc.StatusCode.ABORTED, turn, a, c, "x", passes(other, "", secret))  # meant for another daemon
    fails(grpc.StatusCode.UNAUTHENTICATED, turn, a, c, "x", passes(home, "root", secret))  # nobody here has that name
    assert text_of(turn(a, c, "x", passes(home, "", secret))) == "x"
    # What has come with a pass is not passed on: it waits until the conversation is free.
    assert text_of(turn(b, c, "y", passes(other, "", secret))) == "y"
    assert all.owner(c) == other, "it was passed on"


KIND = conversations.ConversationEventKind.Value


class Watch:
    """A watch of all conversations, with what it has told."""

    def __init__(self, client, token=""):
        self.call = client.conversations.Watch(conversations.ConversationsWatchRequest(resume_token=token), timeout=children.PATIENCE)
        self.token = token

    def next(self, *kinds):
        """The conversations of the next events, which are of these kinds in any order."""
        events = [next(self.call) for _ in kinds]
        self.token = events[-1].resume_token
        said = {conversations.ConversationEventKind.Name(event.kind).rpartition("_")[2].lower(): event.conversation for event in events}
        assert sorted(said) == sorted(kinds), events
        return [said[kind] for kind in kinds]

    def snapshot(self):
        """The conversations that it begins with."""
        said = []
        while (event := next(self.call)).kind != KIND("CONVERSATION_EVENT_KIND_SYNCED"):
            assert event.kind == KIND("CONVERSATION_EVENT_KIND_SNAPSHOT"), event
            said.append(event.conversation)
        self.token = event.resume_token
        return said

    def ends(self):
        error = fails(grpc.StatusCode.UNAVAILABLE, list, self.call)
        assert "watch again" in error.details(), error.details()


def watched(all, a, b):
    """Watch at one daemon tells of all: what each has, stored or in its memory alone, and what happens there. It goes on by its token at any of
    them, and ends where a daemon comes or goes, as what happened there meanwhile is not known; its snapshot has it."""
    def know(n):
        children.until("each to know the others", lambda: all_know(n, a, b))

    know(2)
    here, there = a.open("echo"), b.open("echo")
    watch = Watch(a)
    stored = watch.snapshot()
    assert {here, there} <= set(stored) and len(stored) == len(set(stored)), stored
    b.close(there)
    assert watch.next("closed") == [there]
    made = b.open("echo")
    assert watch.next("opened") == [made]
    fork = b.fork(made)
    assert watch.next("forked") == [fork]
    mine = a.open("echo")
    assert watch.next("opened") == [mine]
    assert chat(b, "kept by nobody")[0] == 200
    opened, closed = watch.next("opened", "closed")
    assert opened == closed
    # Elsewhere, by the token: what happened since, at both, and no snapshot.
    watch.call.cancel()
    a.close(mine)
    b.close(fork)
    watch = Watch(b, watch.token)
    first = [next(watch.call), next(watch.call)]
    assert {event.conversation for event in first} == {mine, fork}, first
    assert {event.kind for event in first} == {KIND("CONVERSATION_EVENT_KIND_CLOSED")}, first
    watch.token = first[1].resume_token
    # What is in another daemon's memory alone is in the snapshot while it is there.
    body = {"model": "tiny", "messages": [{"role": "user", "content": "go"}], "stream": True, "max_tokens": children.LONG_TURN, "ignore_eos": True}
    connection = http.client.HTTPConnection(b.http, timeout=children.PATIENCE)
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    answer = connection.getresponse()
    assert answer.readline().startswith(b"data: ")
    unkept = watch.next("opened")[0]
    other = Watch(a)
    assert unkept in other.snapshot()
    answer.close()
    connection.close()
    assert watch.next("closed") == other.next("closed") == [unkept]
    for text in ("x", watch.token + ",", "," + watch.token, watch.token + ",x"):
        fails(grpc.StatusCode.INVALID_ARGUMENT, lambda text=text: next(Watch(a, text).call))
    c = all.daemon()
    client = c.__enter__()
    for one in watch, other:
        one.ends()
    know(3)
    watch = Watch(a, watch.token)
    assert {here, made} <= set(watch.snapshot())
    last = client.open("echo")
    assert watch.next("opened") == [last]
    all.kill(c)
    watch.ends()
    know(2)
    assert last in Watch(b, watch.token).snapshot()


def all_know(n, *clients):
    return {metric(client, "parley_cluster_daemons") for client in clients} == {n}


SAMPLING = {"max_tokens": 1200, "seed": 11, "ignore_eos": True}
LONG = {"sampling": harness.sampling.Sampling(max_tokens=1200, seed=11, ignore_eos=True)}


def whole(all):
    """What the long turn says when nothing happens to it."""
    with all.daemon() as client:
        return text_of(turn(client, client.open("tiny"), "tell me all", turn=1, **LONG))


def begun(client, conversation, metadata=()):
    """A stream of the long turn, with the first piece taken."""
    stream = client.conversations.Turn(conversations.TurnRequest(conversation=conversation, text="tell me all", turn=1, **LONG), metadata=metadata)
    taken = [next(stream), next(stream), next(stream)]
    assert taken[-1].piece.next_index > 0, taken
    return stream, taken


def resumed(client, conversation, taken):
    cursor = conversations.TurnRequest(conversation=conversation, turn=1)
    cursor.resume_from.generation, cursor.resume_from.turn, cursor.resume_from.index = taken[0].accepted.generation, 1, taken[-1].piece.next_index
    return text_of(taken) + text_of(client.conversations.Turn(cursor, timeout=children.PATIENCE))


def in_the_middle(client, n, begin):
    """What begin returns, with so many turns under way at one moment, which a busy machine may make impossible for a while."""
    for _ in range(20):
        begun_now = begin()
        if metric(client, "parley_live_turns") == n:
            return begun_now
        children.until("the turns' end", lambda: metric(client, "parley_live_turns") == 0)
    raise AssertionError(f"there are never {n} turns under way")


def has_ended(all, conversation):
    return all.sql(f"SELECT count(*) FROM parley.event WHERE kind = 4 AND turn = 1 AND conversation = '{conversation}'") == "1"


def swept(all, expected):
    """A daemon is killed in the middle of turns that nobody asks for again: another one ends them, once the lease is over."""
    all.flags[all.flags.index("--lease") + 1] = f"{SWEPT_LEASE_S}s"
    with all.daemon() as b:
        a = all.daemon()
        client = a.__enter__()
        idle, here = client.open("echo"), b.open("echo")

        def begin():
            made = [client.open("tiny") for _ in range(3)]
            return [(c, *begun(client, c)) for c in made]

        streams = in_the_middle(client, 3, begin)
        a.process.kill()
        died = time.monotonic()
        a.process.wait()
        a.listener.join()
        made = [c for c, _, _ in streams if not has_ended(all, c)]  # one may have ended since
        assert made, "no turn was cut"
        children.until("the takeover", lambda: {all.owner(c) for c in made} == {all.owner(here)})
        took = time.monotonic() - died
        for c in made:
            children.until("the turn's end", lambda c=c: has_ended(all, c))
        assert all.owner(idle) != all.owner(here), "what has no turn was taken over"
        for c, _, taken in streams:
            assert resumed(b, c, taken) == expected
        children.until("the dead daemon's row to go", lambda: all.sql("SELECT count(*) FROM parley.daemon") == "1")
        print(f"killed: {len(made)} turns went on after {took:.1f} s", flush=True)
    all.flags[all.flags.index("--lease") + 1] = f"{LEASE_S}s"


def frozen(all, expected):
    """A daemon stands still in the middle of a turn while another one takes the turn over and ends it. Its own lease goes on when it wakes, as far
    as it knows, so what keeps it from storing its reply is the conversation's epoch: its statement is refused, and its reader is told."""
    with all.daemon() as b:
        a = all.daemon()
        client = a.__enter__()

        def begin():
            c = client.open("tiny")
            return c, *begun(client, c)

        c, stream, taken = in_the_middle(client, 1, begin)
        a.process.send_signal(signal.SIGSTOP)
        if has_ended(all, c):  # between the two
            a.process.send_signal(signal.SIGCONT)
            a.__exit__(None, None, None)
            return False
        all.sql(f"UPDATE parley.daemon SET until = clock_timestamp() WHERE address = '{a.address}'")
        assert resumed(b, c, taken) == expected
        assert turn(b, c, "and more", **LONG)[-1].done.turn == 2
        stored = [t.reply for t in b.get(c).transcript]
        a.process.send_signal(signal.SIGCONT)
        fails(grpc.StatusCode.UNAVAILABLE, list, stream)
        refused = []  # the reader may be told before the line is read
        children.until("the refused statement", lambda: refused.extend(line for line in a.said if "refused=" in line) or refused)
        print(f"a frozen daemon woke: {refused[0].strip()}", flush=True)
        assert [t.reply for t in client.get(c).transcript] == [t.reply for t in b.get(c).transcript] == stored
        a.__exit__(None, None, None)
    return True


CLOCK_S = 2 * LEASE_S


def clocks(all, shift_clock):
    """The clocks of two machines are four leases apart, and that of the database is between: nobody's lease is over earlier, or later, than the
    database says, and what is stored by a key is found."""
    def daemon(ahead_s):
        made = all.daemon()
        made.command[:0] = ["env", f"LD_PRELOAD={shift_clock}", f"PARLEY_CLOCK_AHEAD={ahead_s}"]
        return made

    slow = daemon(-CLOCK_S)
    with daemon(CLOCK_S) as b:
        a = slow.__enter__()
        made = [json.loads(chat(client, "when", headers=[("Idempotency-Key", key)])[2]) for client, key in ((a, "slow"), (b, "fast"))]
        assert 2 * CLOCK_S <= made[1]["created"] - made[0]["created"] < 2 * CLOCK_S + children.PATIENCE, made
        here, there = a.open("echo"), b.open("echo")
        homes = [all.owner(here), all.owner(there)]
        for i in range(3):
            for client in a, b:
                for conversation in here, there:
                    assert client.conversations.Ask(conversations.TurnRequest(conversation=conversation, text=f"say {i}")).message.text == f"say {i}"
        assert [all.owner(here), all.owner(there)] == homes, "a conversation was taken over though its daemon lives"
        for i, (client, key) in enumerate(((b, "slow"), (a, "fast"))):
            assert json.loads(chat(client, "when", headers=[("Idempotency-Key", key)])[2])["id"] == made[i]["id"], "the key has another reply"
        all.kill(slow)
        assert b.get(here).turns == 6 and all.owner(here) == homes[1]


def handed_over(all, expected):
    """SIGTERM in the middle of a turn: its reader is told, and another daemon goes on at once."""
    with all.daemon() as b:
        for attempt in range(20):
            if handed_over_once(all, b, expected, f"handed-over-{attempt}"):
                return
        raise AssertionError("the turn always ends before it is handed over")


def handed_over_once(all, b, expected, keyed):
    """False: the turns had ended before their daemon was asked to stop."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "tell me all"}], "stream": True, **SAMPLING}
    with all.daemon() as client:
        def begin():
            c = client.open("tiny")
            stream, taken = begun(client, c)
            connection = http.client.HTTPConnection(client.http, timeout=children.PATIENCE)
            connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Idempotency-Key": f"{keyed}/{c}"})
            answer = connection.getresponse()
            first = answer.readline()
            assert first.startswith(b"id: ") or first.startswith(b"data: "), first
            return c, stream, taken, answer, f"{keyed}/{c}"

        pid = client_pid(client)
        c, stream, taken, answer, key = in_the_middle(client, 2, begin)
        began = time.monotonic()
        os.kill(pid, signal.SIGTERM)
        try:
            list(stream)
            return False
        except grpc.RpcError as e:
            assert e.code() == grpc.StatusCode.UNAVAILABLE and "goes on at another" in e.details(), e.details()
        rest = answer.read()
        assert b"goes on at another" in rest or b"[DONE]" in rest, rest[-500:]
        assert resumed(b, c, taken) == expected
        print(f"handed over and ended after {time.monotonic() - began:.1f} s", flush=True)
    # By the same key the rest comes from there.
    status, _, said = posted(b, "/v1/chat/completions", body, [("Idempotency-Key", key)])
    events = [json.loads(line[6:]) for line in said.decode().splitlines() if line.startswith("data: {")]
    assert status == 200 and "".join(e["choices"][0]["delta"].get("content", "") for e in events) == expected, said[-500:]
    return b"goes on at another" in rest


class Follower:
    """A client that follows the long turn in a process of its own, and nobody tells it how to go on."""

    def __init__(self, command, stdin=subprocess.DEVNULL):
        self.process = children.start(command, stdin=stdin, stdout=subprocess.PIPE)

    def begin(self):
        self.first = self.process.stdout.read1(4096)
        assert self.first, "it ended before its first piece"

    def rest(self):
        said = self.first + self.process.stdout.read()
        assert self.process.wait(children.PATIENCE) == 0, said[-500:]
        return said


def package(how, addresses, conversation):
    script = os.path.join(os.path.dirname(__file__), "follow.py")
    follower = Follower([sys.executable, script, how, ",".join(addresses), conversation, "tell me all", json.dumps(SAMPLING)],
                        subprocess.PIPE)
    assert follower.process.stdout.readline() == b"ready\n"
    return follower


def library(cli, addresses):
    """parley ask, which is a client of libparley; gRPC itself takes several addresses."""
    return Follower([cli, "ask", "tell me all", "--model", "tiny", "--max-tokens", "1200", "--seed", "11", "--ignore-eos", "--server",
                     "ipv4:" + ",".join(addresses)])


def of_package(said):
    """The reply, which is what the pieces were, each once."""
    *pieces, end = map(json.loads, said.splitlines())
    assert end["reply"] == "".join(pieces), "pieces are not the reply"
    assert len(end["ids"]) == 1200 and end["turn"] == 1 and end["finish"] == "length", end
    return end["reply"]


class Events:
    """A keyed stream of Server-Sent Events, as browsers read it: they ask again with the id of the last event that they have."""

    def __init__(self, key):
        self.key, self.last, self.texts, self.is_done = key, None, [], False
        self.body = {"model": "tiny", "messages": [{"role": "user", "content": "tell me all"}], "stream": True, **SAMPLING}

    def ask(self, address):
        headers = {"Idempotency-Key": self.key, **({} if self.last is None else {"Last-Event-ID": self.last})}
        connection = http.client.HTTPConnection(address, timeout=children.PATIENCE)
        connection.request("POST", "/v1/chat/completions", json.dumps(self.body), headers)
        self.answer = connection.getresponse()
        assert self.answer.status == 200 or self.answer.status == 503, self.answer.read()

    def take(self, n=None):
        """Until it is cut, or its end, or it has n texts."""
        id = None
        while n is None or len(self.texts) < n:
            line = self.answer.readline().decode().rstrip()
            if line.startswith("id: "):
                id = line[4:]
            elif line == "data: [DONE]":
                self.is_done = True
            elif line.startswith("data: ") and "error" not in (event := json.loads(line[6:])):
                self.texts += [c["delta"].get("content", "") for c in event["choices"]]
                self.last = id
            elif line.startswith("data: ") or (not line and self.answer.isclosed()):
                return

    def follow(self, addresses):
        with contextlib.suppress(OSError, http.client.HTTPException):
            self.take()
        children.until("the stream's end", lambda: self.is_done or any(self.goes_on(address) for address in addresses))
        return "".join(self.texts)

    def goes_on(self, address):
        with contextlib.suppress(OSError, http.client.HTTPException):
            self.ask(address)
            if self.answer.status == 200:
                self.take()
        return self.is_done


def followed(all, expected, cli, *clients):
    """Clients of all kinds in the middle of the long turn at the first daemon, which each of them knows beside the second one. Returns what
    checks that each has all of it in the end."""
    grpcs, https = [client.address for client in clients], [client.http for client in clients]
    followers = [package(how, grpcs, clients[0].open("tiny")) for how in ("blocking", "asyncio")]
    for follower in followers:
        follower.process.stdin.write(b"go\n")
        follower.process.stdin.flush()
    followers.append(library(cli, grpcs))
    events = Events(f"followed {time.monotonic()}")
    events.ask(https[0])
    events.take(5)
    for follower in followers:
        follower.begin()

    def check():
        for follower in followers[:2]:
            assert of_package(follower.rest()) == expected
        assert followers[2].rest() == all.asked, "parley ask says something else"
        assert events.follow(https) == expected

    return check


def followed_at_once(*args):
    """The same, with all of them in the middle at one moment, which a busy machine may make impossible."""
    for _ in range(5):
        check = followed(*args)
        n = metric(args[3], "parley_live_turns")
        if n == 4:
            break
        check()
    print(f"{n:.0f} clients are in the middle of a reply", flush=True)
    return check if n == 4 else followed(*args)


@contextlib.contextmanager
def telling(daemon):
    """What fails inside shows what the daemon has logged."""
    try:
        yield
    except BaseException:
        print("the daemon", daemon.address, children.ended(daemon.process), *daemon.said, sep="\n", flush=True)
        raise


def clients_go_on(all, expected, cli):
    """Clients are in the middle of a reply when their daemon is killed, and again when the next one hands over: nothing is lost for them, and
    nothing doubled. Nobody tells them."""
    with all.daemon() as whole:
        asked = library(cli, [whole.address])
        asked.begin()
        all.asked = asked.rest()
    a, b = all.daemon(), all.daemon()
    one, two = a.__enter__(), b.__enter__()
    check = followed_at_once(all, expected, cli, one, two)
    all.kill(a)
    with telling(b):
        check()
    c = all.daemon()
    three = c.__enter__()
    check = followed_at_once(all, expected, cli, two, three)
    b.process.send_signal(signal.SIGTERM)
    check()
    assert b.process.wait(children.PATIENCE) == 0
    b.listener.join()
    c.__exit__(None, None, None)


def unready(all):
    """A daemon that cannot store says so at /health, where a balancer asks, until it can again."""
    with all.daemon() as client:
        def asked():
            status, _, body = posted(client, "/health", None, method="GET")
            return status, json.loads(body)["status"]

        assert asked() == (200, "ok")
        all.sql("ALTER TABLE parley.daemon RENAME TO away")
        children.until("the daemon to be unready", lambda: asked() == (503, "degraded"))
        all.sql("ALTER TABLE parley.away RENAME TO daemon")
        children.until("the daemon to be ready", lambda: asked() == (200, "ok"))


def one_address(all):
    """A configuration is copied with its --cluster-address. The younger daemon says so and is not reached there, but calls for what either has are
    answered by both, until the older one ends: then the younger one has the address."""
    a = all.daemon()
    one = a.__enter__()
    b = all.daemon("--cluster-address", one.address)
    two = b.__enter__()
    with telling(b):
        told = f'passed_on=no address="{one.address}"'
        children.until("the younger daemon to say so", lambda: any(told in line and "of its own" in line for line in b.said))
        children.until("the address to be the older one's alone", lambda: addresses(all.url) == ["", one.address])
        here, there = one.open("echo"), two.open("echo")
        for i, client in enumerate((two, one, one, two), 1):
            for conversation in here, there:
                assert text_of(turn(client, conversation, f"say {i}", turn=i)) == f"say {i}"
        for i, client in enumerate((one, two)):
            status, _, said = chat(client, "kept", "copied")
            assert status == 200 and json.loads(said)["choices"][0]["message"]["content"] == "kept", (i, said)
        a.__exit__(None, None, None)
        children.until("the younger daemon to have the address", lambda: addresses(all.url) == [one.address])
        for conversation in here, there:
            assert [t.reply for t in two.get(conversation).transcript] == [f"say {i}" for i in range(1, 5)]
        b.__exit__(None, None, None)


def shown_and_drained(all, cli):
    """The verbs: parley cluster, parley drain, and parley conversations watch, which goes on where its watch breaks."""
    def said(client, *args):
        return children.run([cli, *args, "--server", client.address], check=True, stdout=subprocess.PIPE, text=True).stdout

    with all.daemon() as b:
        a = all.daemon()
        client = a.__enter__()
        for _ in range(3):
            client.open("echo")
        listed = json.loads(said(b, "cluster", "--json"))["daemons"]
        rows = {row["address"]: row for row in listed}
        assert rows[client.address]["conversations"] == 3 and not rows[client.address]["is_self"] and rows[b.address]["is_self"], listed
        for address in client.address, b.address:  # one that has just ended may still have a row
            assert 0 < int(rows[address]["lease_ms"]) <= LEASE_S * 1000, listed
        table = said(b, "cluster")
        assert client.address in table and "(asked)" in table, table
        children.until("each to know the other", lambda: all_know(2, client, b))
        watcher = children.start([cli, "conversations", "watch", "--json", "--server", b.address], stdout=subprocess.PIPE, text=True)
        told = map(json.loads, watcher.stdout)
        assert any(event["kind"] == "synced" for event in told)
        drained = said(client, "drain")
        assert "no turn is running" in drained, drained
        assert a.process.wait(children.PATIENCE) == 0
        a.listener.join()
        children.until("the drained daemon's row to go", lambda: len(json.loads(said(b, "cluster", "--json"))["daemons"]) == 1)
        assert any(event["kind"] == "synced" for event in told), "it has begun no other watch"
        made = b.open("echo")
        assert any(event.get("conversation") == made for event in told)
        watcher.kill()
        watcher.wait()
        watcher.stdout.close()


def by_tls(all, folder):
    """Daemons with the settings that people copy (share/cluster/tls.yaml): they show each other certificates, take none without, and pass on who
    asks, each conversation being its principal's alone."""
    authority, stranger = test_tls.Authority(folder, "ca"), test_tls.Authority(folder, "stranger")
    pem, key = authority.sign("daemon")
    theirs = stranger.sign("other")
    for name, path in (("tls.crt", pem), ("tls.key", key), ("ca.crt", authority.pem)):
        os.symlink(path, os.path.join(folder, name))
    with open(os.path.join(SHARE, "tls.yaml"), encoding="utf-8") as file:
        text = file.read()
    assert text.count("/etc/parley/tls/") == 4, text
    config = os.path.join(folder, "tls.yaml")
    with open(config, "w", encoding="utf-8") as file:
        file.write(text.replace("/etc/parley/tls", folder))
    keys = {name: test_keys.new_key() for name in ("alice", "bob")}
    test_keys.write_keys(os.path.join(folder, "keys"), *keys.items())
    flags = ["--config", config, "--keys", os.path.join(folder, "keys")]

    def stub(client, name, *pair):
        read = []
        for path in (authority.pem, *reversed(pair)):
            with open(path, "rb") as file:
                read.append(file.read())
        own = grpc.composite_channel_credentials(grpc.ssl_channel_credentials(*read), grpc.access_token_call_credentials(keys[name]))
        return harness.conversations_pb2_grpc.ConversationsStub(grpc.secure_channel(client.address, own))

    with all.daemon(*flags) as a, all.daemon(*flags) as b:
        c = stub(a, "alice", pem, key).Open(conversations.ConversationsOpenRequest(model="echo"), timeout=children.PATIENCE).conversation
        home = all.owner(c)
        ask = conversations.TurnRequest(conversation=c, text="hidden")
        assert stub(b, "alice", pem, key).Ask(ask, timeout=children.PATIENCE).message.text == "hidden" and all.owner(c) == home
        assert all.sql(f"SELECT principal FROM parley.conversation WHERE id = '{c}'") == "alice"
        fails(grpc.StatusCode.NOT_FOUND, stub(b, "bob", pem, key).Ask, ask, timeout=children.PATIENCE)
        fails(grpc.StatusCode.UNAVAILABLE, stub(a, "alice").Ask, ask, timeout=children.PATIENCE)
        fails(grpc.StatusCode.UNAVAILABLE, stub(a, "alice", *theirs).Ask, ask, timeout=children.PATIENCE)


def client_pid(client):
    return client.admin.Status(harness.admin.AdminStatusRequest()).pid


def main():
    parleyd, write_tiny_model, cli, shift_clock = sys.argv[1:5]
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "tiny.gguf")
        children.run([write_tiny_model, model, "8192"], check=True)
        all = Together(parleyd, "together", "--model", f"tiny={model}", "--linger", "0")
        with all.daemon() as a, all.daemon() as b:
            for check in (by_grpc, by_chat, by_model, by_connect, by_http, by_http_stream, forged, watched):
                began = time.monotonic()
                check(all, a, b)
                print(check.__name__, f"{time.monotonic() - began:.1f} s", flush=True)
        expected = whole(all)
        swept(all, expected)
        while not frozen(all, expected):
            pass
        clocks(all, shift_clock)
        handed_over(all, expected)
        clients_go_on(all, expected, cli)
        unready(all)
        one_address(all)
        shown_and_drained(all, cli)
        by_tls(all, folder)


if __name__ == "__main__":
    main()
