#!/usr/bin/env python3
"""`parley verify` over many conversations of every kind (test_proof.py's, longer; with calls of tools and their results, several replies to
one prompt, speculation, a daemon that is killed with -9 between and in the middle): no turn may differ, on any instruction set, with one
thread and two, nor by `parley rerun` on the same build. Then single changes, of tokens, ends, seeds, texts, orders and lines, with the chain as it was and mended, and of one bit of
one weight, with the check of the file's hash off (--force): each is found, or is shown to be equivalent. What shows it is no code of verify's: a
daemon that has the change generates those turns afresh, and its replies are the recorded ones.

usage: proof.py BUILD MODEL [TURNS [CONVERSATIONS [CHANGES [WEIGHTS [SEED]]]]]      (run by the interpreter that has grpcio and the stubs)"""
import concurrent.futures
import copy
import json
import os
import random
import sys
import tempfile
import threading
import time
import urllib.request

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, "..", "integration")]
import children  # noqa: E402
import harness  # noqa: E402
import test_proof as proof  # noqa: E402
from harness import conversations  # noqa: E402
from test_journal import Mortal, said  # noqa: E402

THREADS = 8
ROUND = 50  # conversations from one kill to the next


class Talk:
    """Conversations that are made, and all that was asked in them: which requests lead to each."""

    def __init__(self, parley):
        self.parley = parley
        self.asked = {}  # conversation: its requests, by turn, as they stand; None: what cannot be asked again
        self.lock = threading.Lock()

    def ask(self, c, turn, r):
        r.conversation = c
        reply = self.parley.conversations.Ask(r)
        with self.lock:
            self.asked[c][turn:] = [r]
        return reply

    def one(self, rng, n, made):
        """A conversation of n turns, or what becomes of them; its own, or a fork of one that was made."""
        parley = self.parley
        if made and rng.random() < 0.3:
            parent = rng.choice(made)
            turns = parley.get(parent, without_transcript=True).turns
            at = rng.randint(0, turns)
            c = parley.conversations.Fork(conversations.ConversationsForkRequest(conversation=parent, at_turn=at)).conversation
            self.asked[c] = list(self.asked[parent][:at])
        else:
            c = parley.open("tiny", system=rng.choice(["", "You are brief."]))
            self.asked[c] = []
        calls = []
        for _ in range(n):
            turns = parley.get(c, without_transcript=True).turns
            assert turns == len(self.asked[c])
            what = rng.random()
            if calls and what < 0.7:
                results = [{"role": "tool", "tool_call_id": call.id, "text": rng.choice(["42", "nothing", "a longer result"])} for call in calls]
                calls = []
                r = conversations.TurnRequest(messages=[harness.content.Message(**m) for m in results])
                r.sampling.max_tokens = 20
            elif what < 0.05:
                r = conversations.TurnRequest(text="Only listen.", observe_only=True, conversation=c)
                list(parley.conversations.Turn(r))
                self.asked[c].append(r)
                continue
            elif what < 0.1:
                proof.cut(parley, rng, c)
                self.asked[c] += [None] * (parley.get(c, without_transcript=True).turns - turns)  # its deadline may have passed before
                continue
            elif what < 0.15 and turns > 0:
                to = rng.randint(max(0, turns - 3), turns)
                parley.conversations.Rewind(conversations.ConversationsRewindRequest(conversation=c, to_turn=to))
                del self.asked[c][to:]
                calls = []
                continue
            else:
                r = proof.request(rng, c, True)
                if r.tools and rng.random() < 0.7:
                    r.tool_choice.mode = harness.content.ToolChoice.MODE_REQUIRED
                    r.sampling.max_tokens = 200
            calls = list(self.ask(c, turns, r).message.tool_calls)
        return c

    def several(self, rng):
        """Several replies to one prompt: forks behind the same turns, beside HTTP's n, whose replies are no stored conversations."""
        made = []
        body = {"messages": [{"role": "user", "content": rng.choice(["hello", "the hell"])}], "n": 3, "max_tokens": 20, "temperature": 1.2,
                "seed": rng.getrandbits(31)}
        c = self.parley.open("tiny")
        self.asked[c] = []
        self.ask(c, 0, proof.request(rng, c, True))
        for _ in range(3):
            fork = self.parley.conversations.Fork(conversations.ConversationsForkRequest(conversation=c)).conversation
            self.asked[fork] = list(self.asked[c])
            self.ask(fork, 1, proof.request(rng, fork, False))
            made.append(fork)
        request = urllib.request.Request(f"http://{self.parley.http}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            assert len(json.load(answer)["choices"]) == 3
        return [c, *made]


def talk(daemon, rng, n_conversations, n_turns):
    """Returns what was asked, and the conversations. The daemon is killed between, while a turn runs."""
    parley, made, all_, kills = daemon.client, [], Talk(daemon.client), 0
    while len(made) < n_conversations:
        parley, all_.parley = daemon.client, daemon.client
        seeds = [rng.getrandbits(64) for _ in range(min(ROUND, n_conversations - len(made)))]

        def one(seed):
            mine = random.Random(seed)
            if mine.random() < 0.05:
                return all_.several(mine)
            return [all_.one(mine, mine.randint(1, 2 * n_turns // n_conversations - 1), list(before))]

        before = list(made)
        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            for some in pool.map(one, seeds):
                made += some
        victim = made[-1]
        turns = parley.get(victim, without_transcript=True).turns
        r = conversations.TurnRequest(conversation=victim, turn=turns + 1, text="once more")
        r.sampling.max_tokens, r.sampling.ignore_eos, r.sampling.temperature, r.sampling.seed = 300, True, 1, rng.getrandbits(32)
        for event in parley.conversations.Turn(r):
            if event.WhichOneof("event") == "piece":
                break
        daemon.kill()
        kills += 1
        said(daemon.again(), r)  # it joins the turn, which the second process computes again
        r.turn = 0
        all_.asked[victim].append(r)
    return all_.asked, made, kills


# --- no false alarm ---


def same_everywhere(parleyd, program, model, export, kernels):
    """Verifies the export on each set of instructions, with one thread and two; with and without speculation. Returns the summary."""
    first = None
    for name in kernels:
        for threads in "1", "2":
            os.environ["PARLEY_CPU"] = name
            begun = time.monotonic()
            with harness.Parleyd(parleyd, "--model", f"tiny={model}", "--kv", "f32", "--threads", threads, *(["--speculate", "off"] if threads == "1" else [])) as parley:
                code, heads, turns, summary = proof.verify(program, export, "--server", parley.address)
            del os.environ["PARLEY_CPU"]
            wrong = [t for t in turns if t["verdict"] != "same"]
            assert code == 0 and not wrong and summary["same"] == len(turns) and not summary["broken"], (name, threads, wrong[:3], summary)
            assert first in (None, summary)
            first = summary
            print(f"{name}, {threads} threads: {summary['same']} turns the same, {summary['shared']} shared by forks, 0 differ, {time.monotonic() - begun:.0f} s", flush=True)
    return first


def same_again(parleyd, program, model, export, n):
    """`parley rerun` on the same build: no reply and no log-probability differs."""
    begun = time.monotonic()
    with harness.Parleyd(parleyd, "--model", f"tiny={model}", "--kv", "f32") as parley:
        done = children.run([program, "rerun", "--json", export, "--server", parley.address], stdout=-1, text=True)
    summary = json.loads(done.stdout.split("\n")[-2])
    assert done.returncode == 0 and summary["same"] == n and summary["differ"] == summary["other_logprobs"] == summary["unchecked"] == 0, summary
    print(f"rerun: {n} turns the same, 0 differ, {time.monotonic() - begun:.0f} s", flush=True)


# --- equivalence ---


def standing(c):
    """The acceptances and replies of the turns that stand at the end, by turn from 0."""
    turns = []
    for line in c["record"]:
        r = line["record"]
        at = proof.number(r, "turn") - 1
        if proof.number(r, "gone"):
            continue
        if proof.word(r) == "REWOUND":
            del turns[at + 1:]
        elif proof.word(r) == "REPLIED":
            turns[at][1] = r
        elif proof.word(r) in ("ACCEPTED", "OBSERVED"):
            turns[at:] = [[r, None] if proof.word(r) == "ACCEPTED" else [None, r]]
    return turns


def again(asked, acceptance):
    """The request with the seed that was drawn for it."""
    r = copy.deepcopy(asked)
    if "seed" in acceptance["accepted"].get("sampling", {}):
        r.sampling.seed = int(acceptance["accepted"]["sampling"]["seed"])
    return r


def gives(parley, c, r, reply):
    """Whether the conversation of a daemon, asked this, gives the recorded tokens and nothing else."""
    r.conversation = c
    said_now = parley.conversations.Ask(r)
    return list(said_now.token_ids) == reply["replied"].get("tokenIds", [])


# --- changes of an export ---


def change_seed(rng, c, asked):
    """The seed of a turn that stands, and that can be asked again."""
    chosen = [k for k, (a, _) in enumerate(standing(c)) if a and asked[k] is not None and "seed" in a["accepted"].get("sampling", {})]
    if not chosen:
        return None
    k = rng.choice(chosen)
    acceptance, reply = standing(c)[k]
    old = int(acceptance["accepted"]["sampling"]["seed"])
    new = old ^ 1 << rng.randrange(64)
    data = bytes(proof.body(acceptance))
    if data.count(old.to_bytes(8, "little")) != 1:
        return None
    proof.put(acceptance, data.replace(old.to_bytes(8, "little"), new.to_bytes(8, "little")))
    acceptance["accepted"]["sampling"]["seed"] = str(new)

    def is_equivalent(parley):
        fork = parley.fork(c["id"], at_turn=k)
        return gives(parley, fork, again(asked[k], acceptance), reply)
    return is_equivalent


def change_said(rng, c, asked):
    """A letter of what the user said, in the record and in the line that people read; all turns behind it can be asked again."""
    turns = standing(c)
    chosen = [k for k, (a, _) in enumerate(turns) if a and all(asked[k:]) and asked[k].text
              and bytes(proof.body(a)).count(asked[k].text.encode()) == 1]
    if not chosen:
        return None
    k = rng.choice(chosen)
    acceptance, text = turns[k][0], asked[k].text
    at = rng.randrange(len(text))
    changed = text[:at] + chr(ord(text[at]) ^ 1) + text[at + 1:]
    proof.put(acceptance, bytes(proof.body(acceptance)).replace(text.encode(), changed.encode()))
    (message,) = [m for m in c["turn"][k]["messages"] if m["text"] == text]
    message["text"] = changed

    def is_equivalent(parley):
        fork = parley.fork(c["id"], at_turn=k)
        for j in range(k, len(turns)):
            r = copy.deepcopy(asked[j]) if turns[j][0] is None else again(asked[j], turns[j][0])
            if j == k:
                r.text = changed
            if r.observe_only:
                r.conversation = fork
                list(parley.conversations.Turn(r))
            elif not gives(parley, fork, r, turns[j][1]):
                return False
        return True
    return is_equivalent


def by_test(tamper):
    return lambda rng, c, _: (lambda parley: False) if tamper(rng, c) else None


# Each returns None where the conversation has nothing to change, or a function that says whether the change is equivalent.
CHANGES = {"token": by_test(proof.tamper_token), "end": by_test(proof.tamper_end), "text": by_test(proof.tamper_text), "order": by_test(proof.tamper_order),
           "lines": by_test(proof.tamper_lines), "seed": change_seed, "said": change_said}


def changes(rng, program, parley, export, asked, folder, n):
    """n changes of one conversation each, half with the chain as it was, half with a chain made anew. Returns rows of counts."""
    rows, done = {"chain": [0, 0]}, 0
    while done < n:
        some = min(250, n - done)
        spoilt = [copy.deepcopy(rng.choice(export)) for _ in range(some // 2)]
        for i, c in enumerate(spoilt):
            proof.spoil(rng, c)
            assert not proof.check(c)
            c["conversation"]["conversation"] = f"{i:032x}"
        path = os.path.join(folder, "spoilt.jsonl")
        proof.save(path, spoilt)
        _, heads, _, _ = proof.verify(program, path, "--server", parley.address, "--sample", "1", "--seed", "1")
        missed = [head for head in heads if not head.get("chain_problem")]
        assert not missed and len(heads) == len(spoilt), (missed[:1], len(heads))
        rows["chain"][0] += len(spoilt)
        mended = []
        while len(mended) < some - some // 2:
            c, kind = copy.deepcopy(rng.choice(export)), list(CHANGES)[(done + len(mended)) % len(CHANGES)]
            c["id"] = c["conversation"]["conversation"]
            is_equivalent = CHANGES[kind](rng, c, asked[c["id"]])
            if is_equivalent is not None:
                mended.append((kind, c, is_equivalent))
        for i, (_, c, _) in enumerate(mended):  # with an id of its own, so that none checks another's turns
            c["conversation"]["conversation"] = f"{i:032x}"
            for line in c["record"]:
                line["record"]["conversation"] = f"{i:032x}"
            proof.mend(c)
        path = os.path.join(folder, "mended.jsonl")
        proof.save(path, [c for _, c, _ in mended])
        code, heads, turns, _ = proof.verify(program, path, "--server", parley.address)
        assert code == 1
        differing = {t["conversation"] for t in turns if t["verdict"] == "differs"}
        for (kind, c, is_equivalent), head in zip(mended, heads, strict=True):
            row = rows.setdefault(kind, [0, 0])
            if head["conversation"] in differing or head.get("lines_problem") or head.get("chain_problem") or head.get("unchecked"):
                row[0] += 1
                continue
            assert is_equivalent(parley), (kind, c["id"], head)
            row[1] += 1
        done += some
        print(f"changes {done}: (found, shown to be equivalent) {rows}", flush=True)
    return rows


# --- changes of the weights ---


def weights(rng, parleyd, program, model, export, asked, folder, n):
    """n times one bit of one weight: whether some conversation of a few has another reply; if none, a daemon with those weights says so."""
    with open(model, "rb") as f:
        data = f.read()
    usable = [c for c in export if all(asked[c["conversation"]["conversation"]]) and 2 <= len(standing(c))]
    found = equivalent = refused = 0
    for i in range(n):
        at, bit = rng.randrange(1 << 16, len(data)), rng.randrange(8)  # the head of the file is shorter
        path = os.path.join(folder, "changed.gguf")
        with open(path, "wb") as f:
            f.write(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1:])
        few = [copy.deepcopy(c) for c in rng.sample(usable, min(8, len(usable)))]
        some = os.path.join(folder, "few.jsonl")
        proof.save(some, few)
        try:
            daemon = harness.Parleyd(parleyd, "--model", f"tiny={path}", "--kv", "f32")
            with daemon as parley:
                code, _, turns, summary = proof.verify(program, some, "--server", parley.address)
                assert code == 2 and summary["differ"] == 0 and all("hash" in t["why"] for t in turns if t["verdict"] != "same"), (at, summary)
                code, _, turns, summary = proof.verify(program, some, "--server", parley.address, "--force")
                broken = [t for t in turns if t["verdict"] == "unchecked" and "logits that are not finite" in t["why"]]
                if summary["differ"] > 0 or broken:
                    others = [t["why"] for t in turns if t["verdict"] == "unchecked" and t not in broken]
                    assert not others and summary["same"] + summary["differ"] + len(broken) == len(turns), (at, bit, summary, others)
                    found += 1
                    continue
                assert code == 0 and summary["same"] == len(turns), (at, bit, summary)
                for c in few:
                    mine, fresh = asked[c["conversation"]["conversation"]], parley.open("tiny", system=c["conversation"]["system"])
                    for r, (acceptance, reply) in zip(mine, standing(c), strict=True):
                        if acceptance is None:
                            r = copy.deepcopy(r)
                            r.conversation = fresh
                            list(parley.conversations.Turn(r))
                        else:
                            assert gives(parley, fresh, again(r, acceptance), reply), (at, bit, c["conversation"])
                equivalent += 1
        except AssertionError as e:
            if "parleyd did not start" not in str(e):
                raise
            refused += 1
        if (i + 1) % 50 == 0:
            print(f"weights {i + 1}: found {found}, shown to be equivalent {equivalent}, refused as a model {refused}", flush=True)
    return found, equivalent, refused


def main():
    build = sys.argv[1]
    n_turns, n_conversations, n_changes, n_weights, seed = (list(map(int, sys.argv[3:])) + [10_000, 500, 10_000, 500, 1][len(sys.argv) - 3:])[:5]
    parleyd, program, write_tiny_model = (os.path.join(build, name) for name in ("parleyd", "parley", "tests/integration/write_tiny_model"))
    with open("/proc/cpuinfo") as f:
        flags = set(next(line for line in f if line.startswith(("flags", "Features"))).split())
    kernels = [name for name, flag in (("avx2", "avx2"), ("avx512", "avx512_vnni")) if flag in flags] or ["generic"]
    rng = random.Random(seed)
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        model, export_path = os.path.join(folder, "tiny.gguf"), os.path.join(folder, "export.jsonl")
        children.run([write_tiny_model, model, "16384"], check=True)
        with Mortal(parleyd, "--model", f"tiny={model}", "--data", os.path.join(folder, "data"), "--kv", "f32", "--http", "127.0.0.1:0") as parley:
            daemon, begun = parley.daemon, time.monotonic()
            asked, made, kills = talk(daemon, rng, n_conversations, n_turns)
            parley = daemon.client
            with open(export_path, "w") as out:
                children.run([program, "conversations", "export", "--server", parley.address], stdout=out, check=True)
            export = proof.load(export_path)
            assert all(map(proof.check, export))
            print(f"{len(export)} conversations, {kills} times kill -9, {time.monotonic() - begun:.0f} s", flush=True)
            summary = same_everywhere(parleyd, program, model, export_path, kernels)
            same_again(parleyd, program, model, export_path, summary["same"])
            known = [c for c in export if c["conversation"]["conversation"] in asked]
            assert len(known) == len(made)
            rows = changes(rng, program, parley, known, asked, folder, n_changes)
        found, equivalent, refused = weights(rng, parleyd, program, model, known, asked, folder, n_weights)
    print(f"changes that were neither found nor shown to be equivalent: 0 of {sum(map(sum, rows.values())) + n_weights}; exports {rows}; "
          f"weights: found {found}, equivalent {equivalent}, refused {refused}")


if __name__ == "__main__":
    main()
