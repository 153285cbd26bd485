#!/usr/bin/env python3
"""Conversations of every kind are computed again by `parley verify`, to the same bits: against their daemon, and from an export on other
threads and instruction sets. Whatever is changed in an export is found by its chain alone; and where the chain was mended, too, by
computing, unless the changed conversation has the very same replies.

usage: test_proof.py PARLEYD WRITE_TINY_MODEL PARLEY [CONVERSATIONS [SEED]]      (run by the interpreter that has grpcio and the stubs)"""
import base64
import contextlib
import copy
import gzip
import hashlib
import http.client
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

import grpc
from google.protobuf import json_format

import children
import harness
from agent_process import Worker
from harness import content, conversations
from test_journal import Mortal, said

KINDS = ("OPENED", "UPDATED", "ACCEPTED", "REPLIED", "OBSERVED", "WITHDRAWN", "REWOUND")


def verify(program, *arguments, env=None):
    """Its exit status, its lines of JSON: the conversations, the turns, the summary."""
    done = children.run([program, "verify", "--json", *arguments], stdout=-1, stderr=-1, text=True, env={**os.environ, **(env or {})})
    lines = [json.loads(line) for line in done.stdout.split("\n") if line]
    assert lines, done.stderr
    return done.returncode, [x for x in lines if x["type"] == "conversation"], [x for x in lines if x["type"] == "turn"], lines[-1]


# --- talking ---


def request(rng, c, constrained):
    r = conversations.TurnRequest(conversation=c, text=" ".join(rng.choice(["the", "hello", "hell", "a", "and", "x"]) for _ in range(rng.randint(1, 8))))
    r.sampling.max_tokens = rng.choice([1, 2, 15, 16, 17, 40])
    r.sampling.temperature = rng.choice([0, 0.3, 0.8, 1.5])
    if rng.random() < 0.5:
        r.sampling.seed = rng.getrandbits(64)
    if rng.random() < 0.3:
        r.sampling.top_p, r.sampling.top_k = 0.9, 20
    if rng.random() < 0.3:
        r.sampling.repetition_penalty, r.sampling.presence_penalty = 1.1, 0.4
    if rng.random() < 0.2:
        r.sampling.logit_bias[rng.randint(5, 60)] = 4
    if rng.random() < 0.3:
        r.sampling.stop.append(rng.choice(["he", "the ", "l"]))
    if rng.random() < 0.5:
        r.sampling.ignore_eos = True
    if rng.random() < 0.3:
        r.want_logprobs = rng.randint(1, 5)
    if constrained and rng.random() < 0.3:
        r.constraint.CopyFrom(rng.choice([
            content.Constraint(regex="(he|lo)+l*"), content.Constraint(choice=content.Constraint.Choice(texts=["hello", "the hell"])),
            content.Constraint(json_schema='{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}')]))
    elif rng.random() < 0.2:
        r.tools.add(name="look", description="Looks.", parameters='{"type":"object","properties":{"at":{"type":"string"}}}')
    return r


def cut(parley, rng, c):
    """A turn that is cancelled after its first tokens, or that its deadline ends."""
    r = conversations.TurnRequest(conversation=c, text="a long one", deadline_ms=rng.choice([0, 20]))
    r.sampling.max_tokens, r.sampling.ignore_eos, r.sampling.temperature = 400, True, 1
    events = parley.conversations.Turn(r)
    if r.deadline_ms:
        with contextlib.suppress(grpc.RpcError):  # where the machine is busy it has passed before the turn begins
            list(events)
        return
    for event in events:
        if event.WhichOneof("event") == "piece":
            break
    parley.conversations.Cancel(conversations.ConversationsCancelRequest(conversation=c))
    list(events)


def talk(parley, rng, n, constrained):
    """n conversations, with what a client can do to them."""
    made = []
    while len(made) < n:
        if made and rng.random() < 0.3:
            c = rng.choice(made)
            turns = parley.get(c, without_transcript=True).turns
            made.append(parley.conversations.Fork(conversations.ConversationsForkRequest(conversation=c, at_turn=rng.randint(0, turns))).conversation)
        else:
            made.append(parley.open("tiny", system=rng.choice(["", "You are brief."])))
        c = made[-1]
        for _ in range(rng.randint(1, 4)):
            what = rng.random()
            turns = parley.get(c, without_transcript=True).turns
            if what < 0.1:
                list(parley.conversations.Turn(conversations.TurnRequest(conversation=c, text="Only listen.", observe_only=True)))
            elif what < 0.2:
                cut(parley, rng, c)
            elif what < 0.3 and turns > 0:
                parley.conversations.Rewind(conversations.ConversationsRewindRequest(conversation=c, to_turn=rng.randint(0, turns)))
            elif what < 0.35:
                update = conversations.ConversationsUpdateRequest(conversation=c)
                update.sampling.temperature = 0.5
                parley.conversations.Update(update)
            else:
                parley.conversations.Ask(request(rng, c, constrained))
    return made


# --- exports ---


def load(path):
    """Each conversation of an export: its line, its turns, its records."""
    out = []
    with open(path) as lines:
        for line in map(json.loads, lines):
            kind = line.pop("type")
            if kind == "conversation":
                out.append({"conversation": line, "turn": [], "record": []})
            else:
                out[-1][kind].append(line)
    return out


def save_one(out, c):
    for kind in ("conversation", "turn", "record"):
        for line in [c[kind]] if kind == "conversation" else c[kind]:
            out.write(json.dumps({**line, "type": kind}) + "\n")


def save(path, export):
    with open(path, "w") as out:
        for c in export:
            save_one(out, c)


def word(record):
    return record["kind"].removeprefix("CONVERSATION_RECORD_KIND_")


def number(record, name):
    return int(record.get(name, 0))


def hashes(record, before):
    """The content and the chain of a record, from docs/proof.md and without any of parleyd's code."""
    owner = record.get("principal", "").encode() if word(record) == "OPENED" else b""
    head = struct.pack("<IIIQI", KINDS.index(word(record)) + 1, number(record, "generation"), number(record, "turn"), number(record, "unixMs"), len(owner))
    body = base64.b64decode(record.get("body", ""))
    content_hash = hashlib.sha256(bytes.fromhex(record["conversation"]) + head + owner + body).digest()
    if number(record, "gone") and word(record) != "WITHDRAWN":
        content_hash = bytes.fromhex(record["content"])  # its body was taken away
    return content_hash, hashlib.sha256(before + content_hash).digest()


def check(c):
    """The chain by this program's own arithmetic."""
    before = bytes(32)
    for line in c["record"]:
        content_hash, before = hashes(line["record"], before)
        if (content_hash.hex(), before.hex()) != (line["record"]["content"], line["record"]["chain"]):
            return False
    return True


def mend(c):
    before = bytes(32)
    for line in c["record"]:
        content_hash, before = hashes(line["record"], before)
        line["record"]["content"], line["record"]["chain"] = content_hash.hex(), before.hex()


def own(c, n):
    """Gives the conversation the id n, so that no other one of a file has the same turns and checks them."""
    for line in [c["conversation"]] + [line["record"] for line in c["record"]]:
        line["conversation"] = f"{n:032x}"
    mend(c)
    return c


def body(record):
    return bytearray(base64.b64decode(record["body"]))


def put(record, data):
    record["body"] = base64.b64encode(bytes(data)).decode()


def tokens_at(data):
    """Of a reply's body: where the first (id, end of text) is, and how many there are."""
    (length,) = struct.unpack_from("<Q", data, 52)
    (n,) = struct.unpack_from("<I", data, 60 + length)
    return 64 + length, n


def replies(c):
    return [line["record"] for line in c["record"] if word(line["record"]) == "REPLIED"]


def acceptances(c):
    return [line["record"] for line in c["record"] if word(line["record"]) == "ACCEPTED" and not number(line["record"], "gone")]


def tamper_token(rng, c):
    """One token of a reply, in the reply and in what the conversation goes on with."""
    chosen = [r for r in replies(c) if tokens_at(body(r))[1] > 0]
    if not chosen:
        return None
    record = rng.choice(chosen)
    data = body(record)
    at, n = tokens_at(data)
    i = rng.randrange(n)
    (old,) = struct.unpack_from("<i", data, at + 8 * i)
    new = struct.pack("<i", old ^ 1)
    data[at + 8 * i:at + 8 * i + 4] = new
    data[len(data) - 4 * (n - i):len(data) - 4 * (n - i) + 4] = new
    put(record, data)
    record["replied"]["tokenIds"][i] = old ^ 1
    return "token"


def tamper_end(rng, c):
    """The last token of a reply is left out, or how it ended is another."""
    chosen = [r for r in replies(c) if tokens_at(body(r))[1] > 1]
    if not chosen:
        return None
    record = rng.choice(chosen)
    data = body(record)
    (finish,) = struct.unpack_from("<I", data, 4)
    if rng.random() < 0.5 or finish > 2:  # of a reply that was cut, a shorter beginning is as true
        struct.pack_into("<I", data, 4, 1 if finish == 2 else 2)
        record["replied"]["finishReason"] = "FINISH_REASON_STOP" if finish == 2 else "FINISH_REASON_LENGTH"
    else:
        at, n = tokens_at(data)
        struct.pack_into("<I", data, at - 4, n - 1)
        del data[at + 8 * (n - 1):at + 8 * n]
        (traced,) = struct.unpack_from("<Q", data, len(data) - 4 * n - 8)
        assert traced == 4 * n
        struct.pack_into("<Q", data, len(data) - 4 * n - 8, traced - 4)
        del data[-4:]
        record["replied"]["tokenIds"].pop()
    put(record, data)
    return "end"


def tamper_seed(rng, c):
    chosen = [r for r in acceptances(c) if "seed" in r["accepted"].get("sampling", {})]
    if not chosen:
        return None
    record = rng.choice(chosen)
    seed = int(record["accepted"]["sampling"]["seed"])
    data = bytes(body(record))
    assert struct.pack("<Q", seed) in data
    put(record, data.replace(struct.pack("<Q", seed), struct.pack("<Q", seed ^ 1)))
    record["accepted"]["sampling"]["seed"] = str(seed ^ 1)
    return "seed"


def tamper_said(rng, c):
    """A letter of what the user said."""
    chosen = [r for r in acceptances(c) if any(t in bytes(body(r)) for t in (b"hell", b"long"))]
    if not chosen:
        return None
    record = rng.choice(chosen)
    data = bytes(body(record))
    put(record, data.replace(b"hell", b"heII", 1) if b"hell" in data else data.replace(b"long", b"1ong", 1))
    return "said"


def tamper_text(rng, c):
    """A letter of a reply's text."""
    chosen = [r for r in replies(c) if struct.unpack_from("<Q", body(r), 52)[0] > 0]
    if not chosen:
        return None
    record = rng.choice(chosen)
    data = body(record)
    (length,) = struct.unpack_from("<Q", data, 52)
    letters = [i for i in range(length) if data[60 + i] < 0x7f]
    if not letters:
        return None
    data[60 + rng.choice(letters)] ^= 1
    put(record, data)
    return "text"


def tamper_order(rng, c):
    """Two replies change places. Both were whole: of one that was cut, a beginning of another length is as true."""
    chosen = [r for r in replies(c) if tokens_at(body(r))[1] > 0 and struct.unpack_from("<I", body(r), 4)[0] <= 2]
    if len(chosen) < 2:
        return None
    a, b = rng.sample(chosen, 2)
    worth = [body(r)[:12] + body(r)[52:] for r in (a, b)]  # without times, and how much the cache had
    if worth[0] == worth[1]:
        return None
    a["body"], b["body"] = b["body"], a["body"]
    a["replied"], b["replied"] = b["replied"], a["replied"]
    return "order"


def tamper_lines(rng, c):
    """What people read of an export, and nothing else."""
    what = rng.randrange(4)
    if what == 0 and c["turn"]:
        line = rng.choice(c["turn"])
        line["reply"] += "."
    elif what == 1 and c["turn"]:
        line = rng.choice(c["turn"])
        line["messages"][0]["text"] += "?"
    elif what == 2 and c["turn"]:
        c["turn"].pop(rng.randrange(len(c["turn"])))
    else:
        c["conversation"]["system"] += "!"
    return "lines"


TAMPERS = [tamper_token, tamper_end, tamper_seed, tamper_said, tamper_text, tamper_order]


def spoil(rng, c):
    """Some change of a record, of the kind that the chain alone must find."""
    what = rng.randrange(6)
    records = c["record"]
    at = rng.choice([i for i, line in enumerate(records) if not number(line["record"], "gone")])  # only of those the hash can be computed
    record = records[at]["record"]
    if what == 0 and "body" in record:
        data = body(record)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        put(record, data)
    elif what == 1:
        record["unixMs"] = str(number(record, "unixMs") + 1)
    elif what == 2:
        record["turn"] = number(record, "turn") + 1
    elif what == 3 and len(records) > 2 and at < len(records) - 1:
        records.pop(at)
    elif what == 4 and at < len(records) - 1:
        records[at], records[at + 1] = records[at + 1], records[at]
    else:
        record["chain"] = hashlib.sha256(record["chain"].encode()).hexdigest()


def attack(rng, program, model, export, folder, n):
    """n changes of one conversation each: how many of each kind were found, and how many have the very same replies."""
    spoilt, mended = [copy.deepcopy(rng.choice(export)) for _ in range(n)], []
    for c in spoilt:
        spoil(rng, c)
        assert not check(c)
    for i, c in enumerate(spoilt):
        c["conversation"]["conversation"] = f"{i:032x}"
    path = os.path.join(folder, "spoilt.jsonl")
    save(path, spoilt)
    code, heads, _, _ = verify(program, path, "--model", f"tiny={model}", "--kv", "f32")
    assert code == 1 and all(head["chain_problem"] for head in heads), (code, [head for head in heads if not head.get("chain_problem")])
    kinds = {}
    while len(mended) < n:
        c = copy.deepcopy(rng.choice(export))
        kind = TAMPERS[len(mended) % len(TAMPERS)](rng, c) or tamper_lines(rng, c)
        mended.append((kind, own(c, len(mended))))
    path = os.path.join(folder, "mended.jsonl")
    save(path, [c for _, c in mended])
    code, heads, turns, _ = verify(program, path, "--model", f"tiny={model}", "--kv", "f32")
    assert code == 1
    for (kind, _), head in zip(mended, heads):
        id_ = head["conversation"]
        differs = any(t["conversation"] == id_ and t["verdict"] == "differs" for t in turns)
        found = differs or head["lines_problem"] != "" or head["chain_problem"] != ""
        row = kinds.setdefault(kind, [0, 0])
        row[0 if found else 1] += 1
        # another seed or another question may have the same reply: then the record says what the model says
        assert found or kind in ("seed", "said"), (kind, id_, head)
    return kinds


def places(value, path=()):
    """Each value in a JSON value, by its path."""
    yield path, value
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*path, key))


def another(value, name):
    """A value of the same kind, which a reader takes as well."""
    if isinstance(value, (bool, int, float)):
        return not value if isinstance(value, bool) else value + 1
    if name == "kind":
        return "CONVERSATION_RECORD_KIND_" + ("UPDATED" if value.endswith("OPENED") else "OPENED")
    if name == "finishReason":
        return "FINISH_REASON_" + ("STOP" if value.endswith("LENGTH") else "LENGTH")
    if name == "body":
        return base64.b64encode(base64.b64decode(value) + b"\0").decode()
    if re.fullmatch("[0-9]+|[0-9a-f]{32}|[0-9a-f]{64}", value):
        return value[:-1] + ("1" if value[-1] != "1" else "2")
    return value + "x"


def is_compared(kind, path, is_gone):
    """Whether docs/proof.md says so: of a conversation's line some members; of a record that has lost its body its hashes, and what says so."""
    if kind == "record":
        return path[1] not in ("conversation", "generation", "turn", "unixMs") if is_gone else path[1] != "place"
    return kind == "turn" or path[:1] in (("conversation",), ("model",), ("system",), ("sampling",))


def every_member(parley, program, export, folder):
    """Each member of each line of an export is changed, left out, and has another one beside it: that is found, and what is not compared is not."""
    (c,) = [c for c in export if c["conversation"]["metadata"] == {"of": "every_member"}]
    made, seen = [("nothing", own(copy.deepcopy(c), 0), False)], set()

    def make(what, kind, n, path, change):
        record = c["record"][n]["record"] if kind == "record" else {}
        shape = what, kind, tuple("" if isinstance(key, int) else key for key in path), record and (word(record), number(record, "gone")) or ""
        if shape in seen:
            return
        seen.add(shape)
        other = own(copy.deepcopy(c), len(made))
        line = other[kind] if kind == "conversation" else other[kind][n]
        for key in path[:-1]:
            line = line[key]
        change(line)
        made.append((".".join([kind, *map(str, path)]) + " " + what, other, is_compared(kind, path, number(record, "gone"))))

    for kind in "conversation", "turn", "record":
        for n, line in enumerate([c[kind]] if kind == "conversation" else c[kind]):
            for path, value in places(line):
                if kind == "record" and len(path) < 2:
                    continue  # a line of another form is refused
                if path and not isinstance(value, (dict, list)):
                    make("changed", kind, n, path, lambda at, key=path[-1], value=value: at.__setitem__(key, another(value, key)))
                if path and path not in (("conversation",), ("record", "conversation"), ("record", "content"), ("record", "chain")):  # without these it is refused
                    make("left out", kind, n, path, lambda at, key=path[-1]: at.__delitem__(key))
                if isinstance(value, dict) and kind != "record":
                    make("with more", kind, n, path, lambda at, path=path: (at[path[-1]] if path else at).__setitem__("note", "approved"))
    path = os.path.join(folder, "members.jsonl")
    save(path, [other for _, other, _ in made])
    code, heads, turns, _ = verify(program, path, "--server", parley.address, "--sample", "1")
    found = {h["conversation"] for h in heads if h.get("chain_problem") or h.get("lines_problem") or h.get("unchecked")} | \
        {t["conversation"] for t in turns if t["verdict"] != "same"}
    wrong = [what for what, other, compared in made if (other["conversation"]["conversation"] in found) != compared]
    assert code == 1 and not wrong and len(made) > 100, (wrong, len(made))
    return len(made) - 1


def with_everything(parley, constrained):
    """A conversation of which every_member changes each member."""
    opening = conversations.ConversationsOpenRequest(model="tiny", system="You are brief.", ttl_ms=7_200_000, metadata={"of": "every_member"})
    opening.sampling.temperature, opening.sampling.stop[:], opening.sampling.logit_bias[7], opening.limits.max_turns = 0.5, ["zz"], 1, 99
    c = parley.conversations.Open(opening).conversation
    list(parley.conversations.Turn(conversations.TurnRequest(conversation=c, text="Only listen.", observe_only=True)))
    for temperature in 0.7, 0.9:  # the first loses its body to the second
        update = conversations.ConversationsUpdateRequest(conversation=c)
        update.sampling.temperature = temperature
        parley.conversations.Update(update)
    r = conversations.TurnRequest(conversation=c, text="hello", want_logprobs=2)
    r.sampling.max_tokens = 5
    parley.conversations.Ask(r)
    if constrained:
        r = conversations.TurnRequest(conversation=c, text="call")
        r.tools.add(name="look", description="Looks.", parameters='{"type":"object","properties":{"at":{"enum":["a","b"]}},"required":["at"],"additionalProperties":false}')
        r.tool_choice.mode, r.tool_choice.no_parallel, r.sampling.max_tokens = content.ToolChoice.MODE_REQUIRED, True, 100
        (call,) = parley.conversations.Ask(r).message.tool_calls
        r = conversations.TurnRequest(conversation=c, messages=[content.Message(role="tool", tool_call_id=call.id, text="seen")],
                                      constraint=content.Constraint(choice=content.Constraint.Choice(texts=["hello"])))
        r.sampling.max_tokens = 60
        parley.conversations.Ask(r)


def told_by_chain(parley, program, export, folder, constrained):
    """Newest turns that are missing show in the value of the chain alone, which is that of the last record that is there; a constraint that was another one shows."""
    (c,) = [c for c in export if c["conversation"]["metadata"] == {"of": "every_member"}]
    path = os.path.join(folder, "shorter.jsonl")
    shorter = {**c, "turn": c["turn"][:-1], "record": c["record"][:-2]}
    save(path, [shorter])
    code, heads, _, _ = verify(program, path, "--server", parley.address)
    assert code == 0 and heads[0]["chain"] == shorter["record"][-1]["record"]["chain"] != c["record"][-1]["record"]["chain"], heads
    if constrained:
        other = copy.deepcopy(c)
        accepted = other["record"][-2]["record"]
        assert "hello" in accepted["accepted"]["constraint"]
        accepted["accepted"]["constraint"] = accepted["accepted"]["constraint"].replace("hello", "hallo")
        put(accepted, bytes(body(accepted)).replace(b"hello", b"hallo"))
        mend(other)
        save(path, [other])
        code, heads, turns, _ = verify(program, path, "--server", parley.address)
        assert code == 1 and heads[0]["chain_problem"] == "" and turns[-1]["verdict"] == "differs" and turns[-1]["difference"], (heads, turns)


def elsewhere(parleyd, program, model, other, export, export_path, folder):
    """What no model computed, or an agent that need not compute the same bits twice, is unchecked. A conversation that was changed counts more."""
    with harness.Parleyd(parleyd, "--model", f"tiny={model}", "--kv", "f32", "--data", os.path.join(folder, "elsewhere")) as parley:
        with open(export_path) as lines:
            children.run([program, "conversations", "import", "--server", parley.address], stdin=lines, stdout=-1, check=True)
        worker = Worker(parley)
        attached = parley.open("words")
        parley.conversations.Ask(conversations.TurnRequest(conversation=attached, text="hello"))
        code, _, turns, summary = verify(program, "--server", parley.address)
        path = os.path.join(folder, "attached.jsonl")
        export_of(parley, program, path, attached)
        worker.kill()
        computed = [t for t in turns if t["verdict"] != "same"]  # a turn that was only heard is the same
        assert code == 2 and summary["differ"] == summary["broken"] == 0 and len(computed) > 1, summary
        for t in computed:
            assert t["verdict"] == "unchecked" and ("an attached agent" if t["conversation"] == attached else "was imported") in t["why"], t
    code, _, (gone,), _ = verify(program, path, "--model", f"tiny={model}", "--kv", "f32")
    assert code == 2 and gone["verdict"] == "unchecked" and "'words', which is not here" in gone["why"], gone
    spoilt = copy.deepcopy(export[0])
    spoilt["record"][-1]["record"]["unixMs"] = "1"
    save(path, [spoilt, export[1]])
    code, _, _, summary = verify(program, path, "--model", f"tiny={other}", "--kv", "f32")
    assert code == 1 and summary["unchecked"] > 0 and summary["broken"] == 1, summary


@contextlib.contextmanager
def beside(parley):
    """A conversation that is not stored, as long as the block."""
    connection = http.client.HTTPConnection(parley.http)
    body = {"messages": [{"role": "user", "content": "hello"}], "stream": True, "max_tokens": children.LONG_TURN, "ignore_eos": True}
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    answer = connection.getresponse()
    assert answer.status == 200 and answer.fp.readline()
    yield
    connection.close()


def with_nul(parley, program, folder):
    """U+0000 in what the model is told is as true as any other character, and is seen in the lines of an export."""
    connection = http.client.HTTPConnection(parley.http)
    messages = [{"role": "user", "content": "a\0b"}, {"role": "assistant", "content": "x", "reasoning_content": "m\0!"}, {"role": "user", "content": "c"}]
    connection.request("POST", "/v1/chat/completions", json.dumps({"messages": messages, "max_tokens": 4}), {"X-Conversation-Id": "nul"})
    answer = connection.getresponse()
    told = answer.read()
    assert answer.status == 200, told
    c = answer.headers["X-Conversation-Id"]
    path = os.path.join(folder, "nul.jsonl")
    with open(path, "w") as out:
        children.run([program, "conversations", "export", c, "--server", parley.address], stdout=out, check=True)
    parley.close(c)
    code, heads, turns, _ = verify(program, path, "--server", parley.address)
    assert code == 0 and [t["verdict"] for t in turns] == ["same"] and heads[0]["lines_problem"] == "", (heads, turns)
    (whole,) = load(path)
    assert [m["text"] + m["reasoning"] for m in whole["turn"][0]["messages"]] == ["a\ufffdb", "xm\ufffd!", "c"], whole["turn"]


def made_up(parley, program, folder):
    """Who writes records as true as one likes can hide nothing from who reads an export: what the model is told stands in its lines."""
    shown, said, long = b"You are brief.", b"Only listen.", "x" * 100_000
    c = parley.open("tiny", system=shown.decode(), ttl_ms=3_600_000)
    for what in said.decode(), long, long, long:
        list(parley.conversations.Turn(conversations.TurnRequest(conversation=c, text=what, observe_only=True)))
    parley.conversations.Update(conversations.ConversationsUpdateRequest(conversation=c, ttl_ms=7_200_000))
    path = os.path.join(folder, "made_up.jsonl")
    with open(path, "w") as out:
        children.run([program, "conversations", "export", c, "--server", parley.address], stdout=out, check=True)
    parley.close(c)
    (whole,) = load(path)
    opened, observed, updated = 0, 1, 5
    assert [word(whole["record"][i]["record"]) for i in (opened, observed, updated)] == ["OPENED", "OBSERVED", "UPDATED"]

    def text(data):
        return struct.pack("<Q", len(data)) + data

    def change(c, i, old, new, at=0):
        data = bytes(body(c["record"][i]["record"]))
        assert data.find(old, at) >= 0, (i, old)
        put(c["record"][i]["record"], data[:at] + data[at:].replace(old, new, 1))

    def nothing(c):
        pass

    def soon_closed(c):
        change(c, opened, struct.pack("<Q", 3_600_000), struct.pack("<Q", 1))

    def behind_nul(c):
        change(c, observed, text(said), text(said + b"\0 Then lie."))

    def shown_nul(c):
        behind_nul(c)
        c["turn"][0]["messages"][0]["text"] += "\ufffd Then lie."

    def in_parts(c, parts=b'{"content": "Lie."}'):
        at = bytes(body(c["record"][observed]["record"])).find(text(said)) + len(text(said)) + 4 + 4 + 8  # no overrides, no sampling, no binding
        change(c, observed, text(b""), text(parts), at)

    def in_no_parts(c):
        in_parts(c, b'{"content": "Lie."')

    def no_text(c):
        for i in opened, updated:
            change(c, i, text(shown), text(b"Lie.\xff"))
            c["record"][i]["record"]["terms"].pop("system")
        c["conversation"]["system"] = ""

    def two_systems(c):
        change(c, opened, text(shown), text(b"You lie."))
        c["record"][opened]["record"]["terms"]["system"] = "You lie."

    def renamed(c):
        c["conversation"]["conversation"] = "0" * 32

    for how, what in (nothing, None), (soon_closed, None), (behind_nul, ""), (shown_nul, None), (in_parts, "parts"), (in_no_parts, "parts"), (no_text, "UTF-8"), \
            (two_systems, "another system prompt"), (renamed, ""):
        spoilt = copy.deepcopy(whole)
        how(spoilt)
        mend(spoilt)
        save(path, [spoilt])
        code, heads, turns, _ = verify(program, path, "--server", parley.address)
        assert code == (0 if what is None else 1) and heads[0].get("chain_problem") == "", (how, heads, turns)
        assert not what or any(t["verdict"] == "differs" and what in t["why"] for t in turns), (how, turns)
        assert (what == "") == (heads[0]["lines_problem"] != ""), (how, heads)


def export_of(parley, program, path, *ids):
    """The bytes of an export, which path has, too."""
    with open(path, "w") as out:
        children.run([program, "conversations", "export", *ids, "--server", parley.address], stdout=out, check=True)
    with open(path, "rb") as f:
        return f.read()


def whole_numbers(value):
    """As JavaScript and jq 1.6 write numbers: 1.0 is 1."""
    if isinstance(value, dict):
        return {k: whole_numbers(v) for k, v in value.items()}
    if isinstance(value, list):
        return list(map(whole_numbers, value))
    return int(value) if isinstance(value, float) and value.is_integer() else value


def foreign(parley, program, folder):
    """An export as other programs leave it is the same, as long as no value is another one; what is no export is refused with a reason."""
    opening = conversations.ConversationsOpenRequest(model="tiny", system="\u00e9\u2028\U0001f600 <b>", metadata={"b": "2", "a": "1"})
    opening.sampling.temperature, opening.sampling.top_p = 1, 0.9
    made = [parley.conversations.Open(opening).conversation, parley.open("tiny")]
    for c in made:
        r = conversations.TurnRequest(conversation=c, text="\u00e9 hell", want_logprobs=2)
        r.sampling.max_tokens = 5
        parley.conversations.Ask(r)
    path = os.path.join(folder, "foreign.jsonl")
    data, mark = export_of(parley, program, path, *made), "\ufeff".encode()
    lines = [json.loads(line) for line in data.splitlines()]
    dumped = b"".join(json.dumps(whole_numbers(line), sort_keys=True).encode() + b"\n" for line in lines)
    spaced = b"".join(json.dumps(line, separators=(" , ", "\t: ")).encode() + b"\n" for line in lines)
    assert b'"temperature": 1,' in dumped and b"\\u00e9" in dumped
    for taken, times in (mark + data, 1), (b"\n \t\r\n" + data.replace(b"\n", b"\n\n\r\n"), 1), (data.replace(b"\n", b"\r\n"), 1), (data[:-1], 1), \
            (mark + data + b"\n" + mark + data, 2), (dumped, 1), (spaced, 1):
        with open(path, "wb") as out:
            out.write(taken)
        code, heads, _, summary = verify(program, path, "--server", parley.address)
        assert (code, summary["same"], summary["conversations"], summary["broken"]) == (0, 2, 2 * times, 0), (taken[:20], heads, summary)
        with open(path, "rb") as stdin:
            piped = children.run([program, "verify", "--json", "-", "--server", parley.address], stdin=stdin, stdout=-1)
        assert piped.returncode == 0 and json.loads(piped.stdout.splitlines()[-1]) == summary, (taken[:20], piped)
    noted = json.dumps({**lines[-1], "note": "approved"}).encode()
    for refused, says in (gzip.compress(data), "line 1: it is compressed"), (data.decode().encode("utf-16"), "line 1: it is UTF-16"), (b"", "has no conversation"), \
            (b"\n\n", "has no conversation"), (data[:-9], f"line {len(lines)}: "), (json.dumps(lines).encode(), "line 1: its type must be"), \
            (json.dumps(lines[0], indent=1).encode(), "line 1: "), (data + noted, "more than its record"):
        with open(path, "wb") as out:
            out.write(refused)
        done = children.run([program, "verify", path, "--server", parley.address], stdout=-1, stderr=-1, text=True)
        assert done.returncode == 2 and says in done.stderr and done.stdout == "", (refused[:20], done)
    for c in made:
        parley.close(c)


def withdrawn(parley):
    """What was accepted before a rewind is not computed for a reply behind it: the records contradict each other."""
    c = parley.open("tiny")
    r = conversations.TurnRequest(conversation=c, text="hello")
    r.sampling.max_tokens = 5
    parley.conversations.Ask(r)
    parley.conversations.Rewind(conversations.ConversationsRewindRequest(conversation=c, to_turn=0))
    opened, accepted, replied, rewound = parley.conversations.Records(conversations.ConversationsRecordsRequest(conversation=c))
    records = [r.SerializeToString() for r in (opened, accepted, rewound, replied)]
    for changes in None, conversations.VerifyChanges(goes_on=True):
        (turn,) = parley.conversations.Verify(conversations.ConversationsVerifyRequest(records=records, changes=changes)).turns
        assert turn.verdict == turn.VERDICT_DIFFERS and "a reply to turn 1 alone" in turn.why and turn.compared_tokens == turn.computed_tokens == 0, turn
    parley.close(c)


def uploaded(parley, c):
    """A stream with a few records a message is answered as one message; what is no such stream is refused."""
    stub, request = parley.conversations, conversations.ConversationsVerifyRequest
    records = [r.SerializeToString() for r in stub.Records(conversations.ConversationsRecordsRequest(conversation=c))]
    want = stub.Verify(request(records=records))
    for first, size in (0, 1), (1, 2), (len(records), 1):
        parts = [request(records=records[:first])] + [request(records=records[i:i + size]) for i in range(first, len(records), size)]
        assert stub.VerifyUpload(iter(parts)) == want, (first, size)
    only = [t.record for t in want.turns][-1:]
    told = [t for t in stub.VerifyUpload(iter([request(only=only), request(records=records)])).turns if t.verdict != t.VERDICT_SKIPPED]
    assert [t.record for t in told] == only, told
    big = b"\x08\x01" + b"\x92\x03" + (3 << 20).to_bytes(4, "little") + b"x"  # cut off
    for parts, code, words in ([], "INVALID_ARGUMENT", "missing"), ([request(conversation=c), request(records=records)], "INVALID_ARGUMENT", "combined"), \
            ([request(records=records[:1]), request(force=True)], "INVALID_ARGUMENT", "further message"), ([request(only=[2, 1])], "INVALID_ARGUMENT", "rise"), \
            ([request(records=records[:1]), request(records=[big])], "INVALID_ARGUMENT", "record 1"):
        try:
            stub.VerifyUpload(iter(parts))
            raise SystemExit(f"taken: {words}")
        except grpc.RpcError as e:
            assert e.code().name == code and words in e.details(), e


def long(parley, program, model, folder):
    """A conversation of more records than a message may have is verified by a server and offline; a server takes more than 64 MiB, and no more than 256."""
    n = 9000
    c = parley.open("tiny")
    heard = conversations.TurnRequest(conversation=c, text="Only listen.", observe_only=True)
    list(parley.conversations.Turn(heard))
    parley.conversations.Rewind(conversations.ConversationsRewindRequest(conversation=c, to_turn=0))
    list(parley.conversations.Turn(heard))
    path = os.path.join(folder, "long.jsonl")
    with open(path, "w") as out:
        children.run([program, "conversations", "export", c, "--server", parley.address], stdout=out, check=True)
    (whole,) = load(path)
    opened, observed, rewound, _ = (line["record"] for line in whole["record"])
    records = [opened] + [{**(rewound if i % 2 else observed), "generation": (i + 1) // 2 + observed["generation"]} for i in range(2 * n - 1)]
    whole["record"] = [{"record": {**r, "place": str(i + 1)}} for i, r in enumerate(records)]
    mend(whole)
    save(path, [whole])
    for where in ["--server", parley.address], ["--model", model, "--kv", "f32"]:
        code, heads, turns, summary = verify(program, path, *where)
        assert code == 0 and summary["same"] == n and heads[0]["lines_problem"] == heads[0]["chain_problem"] == "", (where, heads, summary)
    large = copy.deepcopy(whole["record"][:2]) + [copy.deepcopy(whole["record"][1]) for _ in range(21)]
    for i, line in enumerate(large[1:]):
        line["record"] |= {"turn": i + 1, "place": str(i + 2)}
        put(line["record"], bytes(3 << 20))
    mend({"record": large})
    records = [json_format.ParseDict(line["record"], conversations.ConversationRecord()).SerializeToString() for line in large]
    answer = parley.conversations.VerifyUpload(conversations.ConversationsVerifyRequest(records=[r]) for r in records)
    assert answer.chain_problem == "" and answer.turns[0].verdict == answer.turns[0].VERDICT_DIFFERS, answer.chain_problem
    short = json_format.ParseDict(rewound, conversations.ConversationRecord()).SerializeToString()
    for parts, says in ([records[1:2]] * 86, "256 MiB"), ([[short] * 16384] * 17, "are more than 262144"):
        try:
            parley.conversations.VerifyUpload(conversations.ConversationsVerifyRequest(records=part) for part in parts)
            raise SystemExit(f"taken: {says}")
        except grpc.RpcError as e:
            assert e.code().name == "OUT_OF_RANGE" and says in e.details(), e
    parley.close(c)


def most_resident(program, *arguments):
    """The most memory that a verb had, in bytes."""
    verb = children.start([program, "verify", "--json", *arguments], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(verb.pid, 0)
    verb.returncode = os.waitstatus_to_exitcode(status)
    assert verb.returncode == 0, verb.returncode
    return used.ru_maxrss << 10


def many(program, parley, export, folder):
    """The verb's memory does not grow with the conversations of an export. (What is measured is at least this program's own memory.)"""
    path = os.path.join(folder, "many.jsonl")
    copies = []
    for c in export:
        if len(c["record"]) > 1:
            copies.append(copy.deepcopy(c))
    found = {}
    for n in 50, 2400:
        with open(path, "w") as out:
            for i in range(n):
                save_one(out, own(copies[i % len(copies)], i))
        found[n] = most_resident(program, path, "--server", parley.address, "--sample", "1", "--seed", "1")
        size = os.path.getsize(path)
    assert size > 20_000_000 and found[2400] - found[50] < size // 4, (size, found)


def main():
    parleyd, write_tiny_model, program = sys.argv[1:4]
    n = int(sys.argv[4]) if len(sys.argv) > 4 else 10 if children.STRIDE == 1 else 4
    seed = int(sys.argv[5]) if len(sys.argv) > 5 else 1
    rng = random.Random(seed)
    constrained = os.path.exists(os.path.join(os.path.dirname(parleyd), "agents/lm/grammar/libparley-grammar.so"))
    with tempfile.TemporaryDirectory() as folder:
        model, other = os.path.join(folder, "tiny.gguf"), os.path.join(folder, "other.gguf")
        children.run([write_tiny_model, model, "16384"], check=True)
        children.run([write_tiny_model, other, "16384", "2"], check=True)
        export_path = os.path.join(folder, "export.jsonl")
        unread = children.run([program, "verify", folder], capture_output=True, text=True)  # opens, and cannot be read
        assert unread.returncode == 2 and "Is a directory" in unread.stderr, unread
        with Mortal(parleyd, "--model", f"tiny={model}", "--data", os.path.join(folder, "data"), "--kv", "f32", "--http", "127.0.0.1:0") as parley:
            daemon = parley.daemon
            made = talk(parley, rng, n, constrained)
            with_everything(parley, constrained)
            before = parley.get(made[0], without_transcript=True).turns
            r = conversations.TurnRequest(conversation=made[0], turn=before + 1, text="once more")
            r.sampling.max_tokens, r.sampling.ignore_eos, r.sampling.temperature = 300, True, 1
            for event in parley.conversations.Turn(r):
                if event.WhichOneof("event") == "piece":
                    break
            daemon.kill()
            parley = daemon.again()
            said(parley, r)  # it joins the turn, which the second process computes again
            code, heads, turns, summary = verify(program, "--server", parley.address)
            assert code == 0 and summary["conversations"] == n + 1 and summary["same"] == len(turns) > 3, (summary, [t for t in turns if t["verdict"] != "same"])
            assert all(h["chain_problem"] == "" for h in heads)
            with open(export_path, "w") as out:
                children.run([program, "conversations", "export", "--server", parley.address], stdout=out, check=True)
            code, _, _, against = verify(program, export_path, "--server", parley.address)
            assert (code, against) == (0, summary), against
            export = load(export_path)
            ends = [line for c in export for line in c["record"] if word(line["record"]) in ("REPLIED", "OBSERVED")]
            assert summary["same"] + summary["shared"] == len(ends) == summary["turns"], (summary, len(ends))
            uploaded(parley, made[0])
            n_members = every_member(parley, program, export, folder)
            told_by_chain(parley, program, export, folder, constrained)
            foreign(parley, program, folder)
            withdrawn(parley)
            with_nul(parley, program, folder)
            made_up(parley, program, folder)
            long(parley, program, model, folder)
            with beside(parley):
                again = children.run([program, "verify", "--json", "--server", parley.address], stdout=-1, stderr=-1, text=True)
                assert again.returncode == 0 and json.loads(again.stdout.split("\n")[-2]) == summary, again
                assert re.search("does not store: [1-9]", again.stderr), again
            # a sample, one conversation alone, one that is not there
            code, _, turns, one = verify(program, "--server", parley.address, "--sample", "3", "--seed", "5")
            assert code == 0 and one["same"] == len(turns) == 3 and one["left_out"] == summary["same"] - 3, one
            code, heads, _, one = verify(program, made[0], "--server", parley.address)
            assert code == 0 and one["conversations"] == 1
            assert heads[0]["chain"] == next(c["record"][-1]["record"]["chain"] for c in load(export_path) if c["conversation"]["conversation"] == made[0])
            done = children.run([program, "verify", "0" * 32, "--server", parley.address], stdout=-1, stderr=-1, text=True)
            assert done.returncode == 2 and "no" in done.stderr, done
            unknown = children.run([program, "verify", export_path, "--server", parley.address, "--kv", "f32"], stderr=-1, text=True)
            assert unknown.returncode == 2 and "--model" in unknown.stderr
            for verb in "verify", "rerun":
                with open("/dev/full", "w") as full:
                    untold = children.run([program, verb, made[0], "--server", parley.address], stdout=full, stderr=-1, text=True)
                assert untold.returncode == 2 and "No space left" in untold.stderr, untold
        assert all(map(check, export))
        with open(os.path.join(os.path.dirname(__file__), "../../docs/proof.md")) as page:
            printed = page.read().split("```python\n")[1].split("```")[0]
        told = children.run([sys.executable, "-", export_path], input=printed, stdout=-1, text=True, check=True).stdout.split("\n")
        assert len(told) > n and all(line.endswith(" True") for line in told if line), told
        for kernels in "generic", "avx2":
            code, _, turns, offline = verify(program, export_path, "--model", f"tiny={model}", "--kv", "f32", env={"PARLEY_CPU": kernels})
            assert (code, offline) == (0, summary), (kernels, offline, [t for t in turns if t["verdict"] != "same"])
        with harness.Parleyd(parleyd, "--model", f"name={model}", "--kv", "f32", "--threads", "1", "--speculate", "off") as parley:
            code, _, turns, offline = verify(program, export_path, "--server", parley.address)
            assert (code, offline) == (0, summary), (offline, [t for t in turns if t["verdict"] != "same"])
            if children.STRIDE == 1:
                many(program, parley, export, folder)
            parley.open("name")
            for verb in "verify", "rerun":  # of a server that stores none, nothing is known
                none = children.run([program, verb, "--server", parley.address], stdout=-1, stderr=-1, text=True)
                assert none.returncode == 2 and "--data" in none.stderr and none.stdout == "", none
        # the wrong type of keys and values, and another model, are no differences; forced, they are
        code, _, turns, _ = verify(program, export_path, "--model", f"tiny={model}")
        assert code == 2 and any("kv=" in t["why"] for t in turns)
        code, _, turns, _ = verify(program, export_path, "--model", f"tiny={other}", "--kv", "f32")
        assert code == 2 and all(t["verdict"] != "differs" for t in turns)
        code, _, turns, _ = verify(program, export_path, "--model", f"tiny={other}", "--kv", "f32", "--force")
        assert code == 1 and any(t["verdict"] == "differs" and t.get("difference", {}).get("computed_logprob") for t in turns)
        with harness.Parleyd(parleyd, "--model", f"tiny={other}", "--kv", "f32") as parley:
            quoted = ""
            for c in export:
                records = [json_format.ParseDict(line["record"], conversations.ConversationRecord()).SerializeToString() for line in c["record"]]
                answer = parley.conversations.Verify(conversations.ConversationsVerifyRequest(records=records, force=True))
                quoted += "".join(t.difference.computed_text for t in answer.turns)
            assert "\ufffd" in quoted, quoted  # a token that ends inside a character
        elsewhere(parleyd, program, model, other, export, export_path, folder)
        print(n, "conversations,", summary, "members changed:", n_members, "tampered:", attack(rng, program, model, export, folder, 4 * n))


if __name__ == "__main__":
    main()
