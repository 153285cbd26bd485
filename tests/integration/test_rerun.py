#!/usr/bin/env python3
"""`parley rerun`: on the same build nothing differs, with the hash of another file, too; with one weight's last bit changed, exactly the
conversations are named whose replies have other log-probabilities, by scoring their tokens on both models; and each kind of change has its
effect: system prompt, sampling, tools, template, type of keys and values, going on from new replies.

usage: test_rerun.py PARLEYD WRITE_TINY_MODEL PARLEY [CONVERSATIONS [SEED]]      (run by the interpreter that has grpcio and the package)"""
import html
import http.client
import json
import os
import random
import re
import shutil
import sys
import tempfile

sys.path.insert(0, os.environ["PARLEY_PACKAGE"])  # made by venv.sh
import children  # noqa: E402
import gguf  # noqa: E402
import parley  # noqa: E402
from parley.language import score  # noqa: E402
from test_journal import Mortal  # noqa: E402
from test_proof import load, talk  # noqa: E402


def rerun(program, *arguments):
    """Its exit status, its lines of JSON: the turns, the summary."""
    done = children.run([program, "rerun", "--json", *arguments], stdout=-1, stderr=-1, text=True)
    lines = [json.loads(line) for line in done.stdout.split("\n") if line]
    assert lines, done.stderr
    return done.returncode, [x for x in lines if x["type"] == "turn"], lines[-1]


def ask(daemon, name, text, **more):
    """A turn of a named conversation: the ids of its whole prompt, and of its reply."""
    connection = http.client.HTTPConnection(daemon.http, timeout=children.PATIENCE)
    body = {"model": "tiny", "messages": [{"role": "user", "content": text}], "max_tokens": 20, "return_token_ids": True, "logprobs": True, "top_logprobs": 3, **more}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"X-Conversation-Id": name})
    answer = connection.getresponse()
    said = json.loads(answer.read())
    assert answer.status == 200, said
    id_ = answer.getheader("X-Conversation-Id")
    connection.close()
    return id_, said["prompt_token_ids"], said["choices"][0]["token_ids"]


CHANGED = ["blk.1.ffn_down.weight", "blk.1.attn_norm.weight", "blk.0.attn_v.weight", "output_norm.weight"]


def flip(path, out, name):
    """One weight's last bit, in one layer."""
    shutil.copyfile(path, out)
    reader = gguf.GGUFReader(out, "r+")
    flat = next(t for t in reader.tensors if t.name == name).data.reshape(-1).view("uint8")
    flat[len(flat) // 3 // 4 * 4] ^= 1
    reader.data.flush()


def rename(path, out):
    """Another file, whose hash is another, with the same weights."""
    shutil.copyfile(path, out)
    with open(out, "ab") as f:
        f.write(b"\0" * 32)


def scored(daemon, asked):
    """For each turn the log-probabilities of its reply's tokens behind its prompt."""
    with parley.connect(daemon.address) as server:
        found = score(server, [prompt + reply for _, prompt, reply in asked], model="tiny")
    return [s.logprobs[len(prompt):] for s, (_, prompt, _) in zip(found, asked)]


def main():
    parleyd, write_tiny_model, program = sys.argv[1:4]
    n, seed = (list(map(int, sys.argv[4:])) + [6 if children.STRIDE == 1 else 3, 1][len(sys.argv) - 4:])[:2]
    rng = random.Random(seed)
    constrained = os.path.exists(os.path.join(os.path.dirname(parleyd), "agents/lm/grammar/libparley-grammar.so"))
    with tempfile.TemporaryDirectory() as folder:
        at = lambda name: os.path.join(folder, name)  # noqa: E731
        children.run([write_tiny_model, at("tiny.gguf"), "16384"], check=True)
        rename(at("tiny.gguf"), at("renamed.gguf"))
        export = at("export.jsonl")
        asked = []
        with Mortal(parleyd, "--model", f"tiny={at('tiny.gguf')}", "--data", at("data"), "--kv", "f32", "--http", "127.0.0.1:0") as client:
            daemon = client.daemon
            talk(client, rng, n, constrained)
            for i in range(n):
                for text in ["hello", "the hell", "and"][:rng.randint(1, 3)]:
                    asked.append(ask(daemon, f"c{i}", f"{text} {i}", temperature=rng.choice([0, 1]), seed=rng.getrandbits(32)))
            before = scored(daemon, asked)
            with open(export, "w") as out:
                children.run([program, "conversations", "export", "--server", client.address], stdout=out, check=True)
            code, turns, against = rerun(program, "--server", client.address)
            assert code == 0 and against["same"] == len(turns) > 2 * n - 1 and against["other_logprobs"] == 0, against
        for model in "tiny", "renamed":
            code, turns, same = rerun(program, export, "--model", at(f"{model}.gguf"), "--kv", "f32")
            assert code == 0 and (same["same"], same["differ"], same["unchecked"], same["other_logprobs"], same["new_tokens"]) == (against["same"], 0, 0, 0, 0), (model, same, [t for t in turns if t["verdict"] != "same"][:2])
        found = {}
        for name in CHANGED:
            flip(at("tiny.gguf"), at("changed.gguf"), name)
            with children.Daemon(parleyd, "--model", f"tiny={at('changed.gguf')}", "--kv", "f32") as other:
                now = scored(other, asked)
            truth = {id_ for (id_, _, _), a, b in zip(asked, before, now) if a != b}
            code, turns, summary = rerun(program, export, "--model", at("changed.gguf"), "--kv", "f32")
            named = {t["conversation"] for t in turns if t["other_logprobs"] or t["verdict"] == "differs"}
            assert named & {id_ for id_, _, _ in asked} == truth, (name, truth, named)
            assert summary["unchecked"] == 0 and summary["other_conversations"] == len(named)
            found[name] = len(named)
        assert max(found.values()) > 0, found

        # each change has its effect, and no other turn is changed
        conversations = load(export)
        page = at("page.html")
        code, turns, summary = rerun(program, export, "--model", at("tiny.gguf"), "--kv", "f32", "--system", "<b>You</b> are \u202elo\u200fud.", "--html", page)
        assert code == 1 and summary["differ"] > 0 and summary["differ"] == sum(t["verdict"] == "differs" for t in turns)
        assert summary["kl_turns"] == 0 or summary["mean_kl"] > 0
        differing = [t for t in turns if t["verdict"] == "differs"]
        assert all(t["recorded"] != t["computed"] or "ended" in t["why"] for t in differing)
        with open(page) as f:
            text = f.read()
        assert text.count('<div class="pair">') == len(differing) and "<b>You" not in text and not re.search("[\u200f\u202e]", text) and html.escape("<b>You</b>") in text and not re.search("<script|src=|href=", text)
        for t in differing:
            assert all(html.escape(word, quote=False) in text.replace("<mark>", "") for word in re.findall(r"[a-z]{5,}", t["computed"])[:1])
        code, turns, summary = rerun(program, export, "--model", at("tiny.gguf"), "--kv", "f32", "--max-tokens", "1")
        assert all(t["computed_tokens"] <= 1 for t in turns) and summary["differ"] > 0
        code, turns, summary = rerun(program, export, "--model", at("tiny.gguf"), "--kv", "q8")
        assert summary["other_conversations"] > 0 and summary["unchecked"] == 0
        with open(at("tools.json"), "w") as f:
            json.dump([{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}}], f)
        code, turns, summary = rerun(program, export, "--model", at("tiny.gguf"), "--kv", "f32", "--tools", at("tools.json"))
        assert code in (0, 1) and summary["unchecked"] == 0
        template = at("template.jinja")
        with open(template, "w") as f:
            f.write("{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}")
        code, turns, summary = rerun(program, export, "--model", at("tiny.gguf"), "--kv", "f32", "--chat-template", template)
        assert code == 1 and summary["differ"] > 0
        # going on: what stands behind a new reply is said to; the first turn that differs is the same one
        code, whole, summary = rerun(program, export, "--model", at("tiny.gguf"), "--kv", "f32", "--seed", "77", "--temperature", "1")
        code, turns, on = rerun(program, export, "--model", at("tiny.gguf"), "--kv", "f32", "--seed", "77", "--temperature", "1", "--go-on")
        assert on["behind_new"] == sum(t["is_behind_new"] for t in turns if t["verdict"] == "differs") > 0
        for c in conversations:
            id_ = c["conversation"]["conversation"]
            mine = [t for t in turns if t["conversation"] == id_]
            fresh = {t["record"]: t["computed"] for t in whole if t["conversation"] == id_ and t["verdict"] == "differs"}
            for t in mine:
                if t["verdict"] == "differs" and not t["is_behind_new"] and t["record"] in fresh:
                    assert t["computed"] == fresh[t["record"]], (t, fresh)
        # what cannot be
        size = os.path.getsize(export)
        for given in export, "-":
            with open(export) as f:
                done = children.run([program, "rerun", given, "--model", at("tiny.gguf"), "--html", export], stdin=f, stderr=-1, text=True)
            assert done.returncode == 2 and "it is the export" in done.stderr and os.path.getsize(export) == size > 0, (given, done)
        done = children.run([program, "rerun", export, "--model", at("tiny.gguf"), "--tools", page], stderr=-1, text=True)
        assert done.returncode == 2 and "page.html" in done.stderr
        done = children.run([program, "rerun", export, "--model", at("none.gguf")], stderr=-1, text=True)
        assert done.returncode == 2 and "none.gguf" in done.stderr
        done = children.run([program, "rerun", export, "--model", at("tiny.gguf"), "--temperature", "-1"], stdout=-1, stderr=-1, text=True)
        assert done.returncode == 2 and "temperature" in done.stdout + done.stderr, done
    print(f"{against['conversations']} conversations, {against['turns']} turns: 0 differ on the same build; with one weight's last bit changed, as scoring says: {found}")


if __name__ == "__main__":
    main()
