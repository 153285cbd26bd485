#!/usr/bin/env python3
"""OpenAI's conversations by OpenAI's own client, on the same conversations as gRPC's, as Connect's and as X-Conversation-Id: items, responses
in a conversation, what is refused, restarts, other principals, deletion while a turn runs, many conversations.

usage: test_conversations.py PARLEYD WRITE_TINY_MODEL      (run by the interpreter that has openai, grpcio and the stubs; see venv.sh)
"""
import hashlib
import http.client
import json
import os
import random
import sys
import tempfile
import threading
import urllib.parse

import openai

import children
import harness
from children import PATIENCE
from harness import conversations


def client_of(daemon, key="none"):
    return openai.OpenAI(base_url=f"http://{daemon.http}/v1", api_key=key, max_retries=0, timeout=PATIENCE)


def refused(status, says, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except openai.APIStatusError as e:
        assert e.status_code == status and says in e.body["message"], (e.status_code, e.body)
        return e
    raise AssertionError(f"taken: {args} {kwargs}")


def texts(client, conversation, **more):
    return [(i.role, i.content[0].text) for i in client.conversations.items.list(conversation, order="asc", **more)]


def user(text):
    return {"type": "message", "role": "user", "content": text}


CALL = [{"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'}, {"type": "function_call_output", "call_id": "c1", "output": "42"}]


def whole_life(client, daemon):
    made = client.conversations.create(metadata={"a": "b"}, items=[user("hello"), {"role": "assistant", "content": "hi"}])
    assert made.object == "conversation" and made.metadata == {"a": "b"} and client.conversations.retrieve(made.id) == made
    assert client.conversations.update(made.id, metadata={"c": "d"}).metadata == {"c": "d"} == client.conversations.retrieve(made.id).metadata
    assert texts(client, made.id) == [("user", "hello"), ("assistant", "hi")]
    by_grpc = daemon.get(made.id)
    assert by_grpc.turns == 1 and by_grpc.metadata == {"c": "d"} and not by_grpc.continued_inexactly
    # Responses are turns of it; instructions are a message, once.
    first = client.responses.create(model="echo", conversation=made.id, input="three", instructions="be brief", metadata={"of": "this"})
    assert first.output_text == "three" and first.conversation.id == made.id and first.previous_response_id is None
    assert first.instructions == "be brief" and first.metadata == {"of": "this"}
    second = client.responses.create(model="echo", conversation={"id": made.id}, input="four", instructions="be brief")
    assert texts(client, made.id)[2:] == [("system", "be brief"), ("user", "three"), ("assistant", "three"), ("user", "four"), ("assistant", "four")]
    assert client.responses.retrieve(second.id).conversation.id == made.id and client.responses.retrieve(second.id).output_text == "four"
    items = list(client.conversations.items.list(made.id, order="asc", limit=2))
    assert items[-1].id == second.output[0].id and len({i.id for i in items}) == 7
    for limit in 1, 3, 100:
        assert [i.id for i in client.conversations.items.list(made.id, limit=limit)] == [i.id for i in items][::-1]
    for i in items:
        assert client.conversations.items.retrieve(i.id, conversation_id=made.id) == i
    # A stream, in the background, and a fork of it by previous_response_id.
    with client.responses.create(model="echo", conversation=made.id, input="five", stream=True) as stream:
        *_, last = stream
    assert last.type == "response.completed" and last.response.conversation.id == made.id
    forked = client.responses.create(model="echo", previous_response_id=last.response.id, input="six")
    assert forked.output_text == "six" and forked.conversation is None and daemon.get(made.id).turns == 4
    client.responses.delete(forked.id)
    assert daemon.get(made.id).turns == 4
    # The last item can go, and so those before it, one after the other.
    added = client.conversations.items.create(made.id, items=[user("x"), *CALL])
    assert [i.type for i in added.data] == ["message", "function_call", "function_call_output"] and added.first_id == added.data[0].id
    assert json.loads(added.data[1].arguments) == {"a": 1} and added.data[2].output == "42"
    refused(422, "only the last item can be deleted", client.conversations.items.delete, added.data[0].id, conversation_id=made.id)
    refused(422, "only the last item can be deleted", client.conversations.items.delete, items[0].id, conversation_id=made.id)
    for n in range(12, 0, -1):
        left = list(client.conversations.items.list(made.id, limit=100))
        assert len(left) == n
        assert client.conversations.items.delete(left[0].id, conversation_id=made.id).id == made.id
    assert list(client.conversations.items.list(made.id)) == []
    refused(404, "there is no response", client.responses.retrieve, second.id)
    assert client.responses.create(model="echo", conversation=made.id, input="again").output_text == "again"
    assert client.conversations.delete(made.id).deleted
    refused(404, "there is no conversation", client.conversations.retrieve, made.id)
    refused(404, "there is no conversation", client.conversations.delete, made.id)
    print("a conversation, from its creation to its deletion")


def refusals(client, daemon):
    made = client.conversations.create(extra_body={"model": "echo"}).id
    other = client.conversations.create(items=[user("y")], extra_body={"model": "echo"}).id
    response = client.responses.create(model="echo", conversation=made, input="x")
    refused(422, "a part of its conversation", client.responses.delete, response.id)
    assert client.conversations.retrieve(made).id == made
    for wrong in "nobody", "a b", "é", "x" * 65, "x" * 6000, "0" * 32, "conv_" + made, made.upper(), "..%2f", "a%00b":
        refused(404, "there is no conversation", client.responses.create, model="echo", conversation=wrong, input="x")
        assert ask(daemon, "GET", "/v1/conversations/" + urllib.parse.quote(wrong))[0] in (400, 404), wrong
    refused(404, "there is no conversation", client.responses.create, model="echo", conversation="x" * 65536, input="x")
    refused(400, "exclude each other", client.responses.create, model="echo", conversation=made, previous_response_id=response.id, input="x")
    refused(400, "conversation must be an id", client.responses.create, model="echo", conversation=7, input="x")
    refused(400, "model is another", client.responses.create, model="tiny", conversation=made, input="x")
    refused(404, "no item", client.conversations.items.retrieve, client.conversations.items.list(other).data[0].id, conversation_id=made)
    refused(400, "items has nothing to add", client.conversations.items.create, made, items=[])
    refused(400, "items has an item of type 'image'", client.conversations.items.create, made, items=[{"type": "image"}])
    refused(400, "limit is", client.conversations.items.list, made, limit=101)
    refused(400, "order is", client.conversations.items.list, made, order="up")
    refused(404, "no item", client.conversations.items.list, made, after="msg_none")
    refused(400, "metadata", client.conversations.create, metadata={"a": 1})
    refused(404, "no model", client.conversations.create, extra_body={"model": "none"})
    for method, path, status in (("PUT", made, 405), ("GET", made + "/other", 404), ("GET", made + "/items/a/b", 404), ("POST", made + "/items/a", 405), ("DELETE", made + "/items", 405), ("GET", "", 405)):
        assert ask(daemon, method, "/v1/conversations" + (path and "/" + path), b"{}" if method in ("PUT", "POST") else None)[0] == status, (method, path)
    for wrong in b"", b"[]", b"{", b'{"items": 7}', b'{"items": [7]}', b'{"items": [{"role": "judge", "content": "x"}]}', b"[" * 5000:
        assert ask(daemon, "POST", "/v1/conversations", wrong)[0] == 400, wrong[:20]
    before = daemon.conversations.List(conversations.ConversationsListRequest()).total
    refused(400, "items has an item of type", client.conversations.create, items=[user("a"), {"type": "nothing"}])
    assert daemon.conversations.List(conversations.ConversationsListRequest()).total == before
    print("what is refused leaves nothing behind")


def ask(daemon, method, path, body=None, **headers):
    host, port = daemon.http.rsplit(":", 1)
    c = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
    c.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    r = c.getresponse()
    said = r.status, r.read()
    c.close()
    return said


def of_a_model(client, daemon):
    """The same turns as gRPC's: a response, a chat completion by the id, a turn. Deletion ends a reply that is under way."""
    made = client.conversations.create(extra_body={"model": "tiny"}).id
    options = {"temperature": 0, "max_output_tokens": 8}
    said = client.responses.create(model="tiny", conversation=made, input="Once upon a time", **options).output_text
    other = daemon.open("tiny")
    turn = conversations.TurnRequest(conversation=other, text="Once upon a time", sampling={"temperature": 0, "max_tokens": 8})
    assert daemon.conversations.Ask(turn).message.text == said != ""
    chat = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "there was"}], temperature=0, max_tokens=8, extra_headers={"X-Conversation-Id": made})
    turn.text = "there was"
    assert daemon.conversations.Ask(turn).message.text == chat.choices[0].message.content
    assert [t for _, t in texts(client, made)] == ["Once upon a time", said, "there was", chat.choices[0].message.content]
    stream = client.responses.create(model="tiny", conversation=made, input="x", stream=True, max_output_tokens=children.LONG_TURN, extra_body={"ignore_eos": True})
    assert next(iter(stream)).type == "response.created"
    refused(422, "in flight", client.conversations.items.create, made, items=[user("y")])
    assert client.conversations.delete(made).deleted
    ended = [e.type for e in stream]
    assert ended[-1] in ("response.incomplete", "response.completed", "response.failed", "error"), ended[-3:]
    refused(404, "there is no conversation", client.conversations.retrieve, made)
    print("a model's turns, and a deletion while one runs")


def by_name_and_after_a_restart(parleyd, folder):
    flags = "--http", "127.0.0.1:0", "--data", os.path.join(folder, "data")
    with harness.Parleyd(parleyd, *flags) as daemon:
        client = client_of(daemon)
        chat = client.chat.completions.with_raw_response.create(model="echo", messages=[user("one")], extra_headers={"X-Conversation-Id": "tour"})
        assert client.conversations.retrieve("tour").id == chat.headers["x-conversation-id"]
        response = client.responses.create(model="echo", conversation="tour", input="two")
        made = client.conversations.create(items=[user("a"), *CALL], metadata={"k": "v"}).id
        items = client.conversations.items.list(made).data
    with harness.Parleyd(parleyd, *flags) as daemon:
        client = client_of(daemon)
        assert client.conversations.items.list(made).data == items and client.conversations.retrieve(made).metadata == {"k": "v"}
        assert texts(client, "tour") == [("user", "one"), ("assistant", "one"), ("user", "two"), ("assistant", "two")]
        again = client.responses.retrieve(response.id)
        assert again.output_text == "two" and again.conversation.id == client.conversations.retrieve("tour").id
        assert client.responses.create(model="echo", conversation="tour", input="three").output_text == "three"
        assert client.conversations.items.delete(items[0].id, conversation_id=made).id == made
        assert client.conversations.delete("tour").deleted
    with harness.Parleyd(parleyd, *flags) as daemon:
        client = client_of(daemon)
        assert client.conversations.items.list(made).data == items[1:]
        refused(404, "there is no conversation", client.conversations.retrieve, "tour")
    print("names, and restarts")


class Ledger:
    """What each id has named so far, and which ids a conversation has lost."""

    def __init__(self):
        self.named, self.shown, self.lost, self.responses = {}, {}, {}, {}

    def look(self, client):
        """Each id names what it has named; what was dropped from a conversation is not there again, by its old id or in another's place."""
        for of, before in list(self.shown.items()):
            items = list(client.conversations.items.list(of, limit=100, order="asc"))
            now = [i.id for i in items]
            assert len(set(now)) == len(now), now
            for item in items:
                assert self.named.setdefault(item.id, item) == item and item.id not in self.lost[of], item
            for item in items[-3:]:
                assert client.conversations.items.retrieve(item.id, conversation_id=of) == item
            for gone in set(before) - set(now):
                refused(404, "no item", client.conversations.items.retrieve, gone, conversation_id=of)
            self.lost[of] |= set(before) - set(now)
            self.shown[of] = now
        for response, (of, said) in list(self.responses.items())[-6:]:
            if said[0] in self.shown[of]:
                again = client.responses.retrieve(response)
                assert [again.output[0].id, again.output_text] == said and again.conversation.id == of, (again, said)
            else:
                refused(404, "there is no response", client.responses.retrieve, response)

    def begin(self, of):
        self.shown[of], self.lost[of] = [], set()
        return of


def ids_name_one_item(parleyd, folder):
    """A walk: items are added and deleted, turns are asked for, rewound and forked, the same texts again and again, with restarts and kills between."""
    flags = "--http", "127.0.0.1:0", "--data", os.path.join(folder, "ids")
    chance, ledger = random.Random(45), Ledger()

    def step(client, daemon):
        of = chance.choice(list(ledger.shown))
        what = chance.choice(("add", "add", "respond", "respond", "delete", "delete", "rewind", "fork"))
        if what == "add":
            client.conversations.items.create(of, items=[user("a"), *CALL, user("b")][:chance.randint(1, 4)])
        elif what == "respond":
            r = client.responses.create(model="echo", conversation=of, input=[user("a"), user("b")][:chance.randint(1, 2)])
            ledger.responses[r.id] = (of, [r.output[0].id, r.output_text])
        elif what == "delete" and ledger.shown[of]:
            client.conversations.items.delete(ledger.shown[of][-1], conversation_id=of)
        elif what == "rewind":
            daemon.conversations.Rewind(conversations.ConversationsRewindRequest(conversation=of, to_turn=chance.randint(0, daemon.get(of).turns)))
        elif what == "fork" and len(ledger.shown) < 5:
            fork = ledger.begin(daemon.fork(of))
            shared = [i.id for i in client.conversations.items.list(fork, limit=100, order="asc")]
            assert shared == ledger.shown[of], "a fork's items are its parent's"

    for life in range(4):
        served = harness.Parleyd(parleyd, *flags)
        with served as daemon:
            client = client_of(daemon)
            if not ledger.shown:
                ledger.begin(client.conversations.create().id)
            ledger.look(client)  # as before the restart
            for _ in range(30 // children.STRIDE + 1):
                step(client, daemon)
                ledger.look(client)
            if life % 2 == 0:
                served.process.kill()
                served.process.wait()
                served.process.returncode = 0  # it was to be killed
    # A sanitized walk is short, and may not fork.
    assert sum(map(len, ledger.lost.values())) > (5 if children.STRIDE == 1 else 0) and (len(ledger.shown) > 1 or children.STRIDE > 1)
    print(f"{len(ledger.named)} ids of items, {sum(map(len, ledger.lost.values()))} dropped: each has named one")


def interrupted(parleyd, model, folder):
    """A retry with a key is the same response; a reply that kill -9 interrupted goes on first, with its own number."""
    flags = "--model", f"tiny={model}", "--http", "127.0.0.1:0", "--data", os.path.join(folder, "killed"), "--linger", "60"
    with children.Daemon(parleyd, *flags) as daemon:
        client = client_of(daemon)
        made = client.conversations.create(items=[user("a")]).id
        asked = {"model": "tiny", "conversation": made, "temperature": 0, "max_output_tokens": 4}
        first, again = (client.responses.create(input="b", extra_headers={"Idempotency-Key": "k"}, **asked) for _ in range(2))
        assert first == again and first.conversation.id == made
        stream = client.responses.create(input="c", stream=True, extra_headers={"Idempotency-Key": "l"}, **{**asked, "max_output_tokens": 400}, extra_body={"ignore_eos": True})
        cut = next(iter(stream)).response.id
        daemon.process.kill()
        daemon.process.wait()
        daemon.process.returncode = 0  # it was to be killed
    with children.Daemon(parleyd, *flags) as daemon:
        client = client_of(daemon)
        response = client.responses.create(input="d", **asked)
        assert client.responses.retrieve(response.id).output_text == response.output_text and response.id != cut
        said = texts(client, made, limit=100)
        assert said[0] == ("user", "a") and said[-2:] == [("user", "d"), ("assistant", response.output_text)]
        assert [role for role, _ in said] == ["user", "user", "assistant", "user", "assistant", "user", "assistant"] and said[3] == ("user", "c")
        assert client.responses.retrieve(cut).output_text == said[4][1]
    print("a key, and a kill")


def of_others(parleyd, folder):
    path = os.path.join(folder, "keys")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
        for name in "alice", "bob":
            print(name, hashlib.sha256(f"pk-{name}".encode()).hexdigest(), file=f)
    with children.Daemon(parleyd, "--http", "127.0.0.1:0", "--keys", path) as daemon:
        alice, bob = client_of(daemon, "pk-alice"), client_of(daemon, "pk-bob")
        made = alice.conversations.create(items=[user("secret")])
        item = alice.conversations.items.list(made.id).data[0].id
        alice.chat.completions.create(model="echo", messages=[user("one")], extra_headers={"X-Conversation-Id": "mine"})
        for call in (lambda: bob.conversations.retrieve(made.id), lambda: bob.conversations.delete(made.id), lambda: bob.conversations.update(made.id, metadata={}),
                     lambda: bob.conversations.items.list(made.id), lambda: bob.conversations.items.retrieve(item, conversation_id=made.id), lambda: bob.conversations.items.create(made.id, items=[user("x")]),
                     lambda: bob.responses.create(model="echo", conversation=made.id, input="x"), lambda: bob.conversations.retrieve("mine")):
            refused(404, "there is no conversation", call)
        refused(401, "key", client_of(daemon, "pk-eve").conversations.retrieve, made.id)
        assert texts(alice, made.id) == [("user", "secret")]
    print("other principals")


def many(client, daemon, n):
    """Many conversations, made by several clients at once, are listed by pages, each once."""
    made, lock = [], threading.Lock()

    def make(count):
        host, port = daemon.http.rsplit(":", 1)
        c = http.client.HTTPConnection(host, int(port), timeout=PATIENCE)
        for _ in range(count):
            c.request("POST", "/v1/conversations", b"{}")
            answer = json.loads(c.getresponse().read())
            with lock:
                made.append(answer["id"])
        c.close()
    threads = [threading.Thread(target=make, args=(n // 4,)) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    listed, token, total = [], "", None
    while True:
        _, data = ask(daemon, "POST", "/parley.v1.Conversations/List", json.dumps({"pageSize": 1000, "pageToken": token}), Content_Type="application/json")
        page = json.loads(data)
        total = total or page["total"]
        listed += [c["conversation"] for c in page.get("conversations", [])]
        token = page.get("nextPageToken", "")
        if not token:
            break
    assert len(made) == n and len(listed) == len(set(listed)) == total and set(made) <= set(listed), (len(made), len(listed), total)
    print(f"{n} conversations by pages")


def main():
    parleyd, write_tiny_model = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "tiny.gguf")
        children.run([write_tiny_model, model], check=True)
        with harness.Parleyd(parleyd, "--http", "127.0.0.1:0") as daemon:
            whole_life(client_of(daemon), daemon)
            many(client_of(daemon), daemon, 10_000 // children.STRIDE // 4 * 4)
        with harness.Parleyd(parleyd, "--model", f"tiny={model}", "--http", "127.0.0.1:0") as daemon:
            refusals(client_of(daemon), daemon)
            of_a_model(client_of(daemon), daemon)
        by_name_and_after_a_restart(parleyd, folder)
        ids_name_one_item(parleyd, folder)
        interrupted(parleyd, model, folder)
        of_others(parleyd, folder)


if __name__ == "__main__":
    main()
