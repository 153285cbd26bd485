#!/usr/bin/env python3
"""Conversations go from one server to another as JSON lines, each principal's own, and go on there.

usage: test_export.py PARLEYD WRITE_TINY_MODEL PARLEY      (run by the interpreter that has grpcio and the stubs; see venv.sh)"""

import json
import os
import signal
import sys
import tempfile

import children
from harness import conversations
from test_journal import Mortal, turn
from test_keys import bearer, new_key, write_keys
from test_proof import whole_numbers


class As:
    """A principal's calls."""

    def __init__(self, parley, key):
        self.stub, self.key = parley.conversations, key

    def __getattr__(self, name):
        return lambda request: getattr(self.stub, name)(request, metadata=bearer(self.key))


def cli(parley, program, key, *arguments, lines="", **variables):
    """Its exit status, its lines of JSON without the records (test_proof.py), its complaint."""
    env = {**os.environ, "PARLEY_API_KEY": key, **variables}
    done = children.run([program, "conversations", *arguments, "--server", parley.address], input=lines, stdout=-1, stderr=-1, text=True, env=env)
    said = [json.loads(line) for line in done.stdout.split("\n") if line]
    return done.returncode, [line for line in said if line.get("type") != "record"], done.stderr


def told(line):
    """What import keeps: not ids, times, what is computed, and how many tokens."""
    line = dict(line)
    for key in ("conversation", "opened_unix_ms", "idle_ms", "context_tokens", "kv_pages", "kv_pages_shared", "continued_inexactly", "generation", "parent"):
        line.pop(key, None)
    if "usage" in line:
        line["usage"] = {"prompt_tokens": line["usage"]["prompt_tokens"]}
    return line


def talk(anna):
    """Two conversations, the newest last: turns of each kind, options, a rewind."""
    r = conversations.ConversationsOpenRequest(model="tiny", system="You are brief. \u00e9\n", ttl_ms=7200000, metadata={"who": "anna"})
    r.sampling.temperature, r.sampling.top_k, r.sampling.seed, r.sampling.stop[:] = 0.5, 7, (1 << 64) - 3, ["never said"]
    r.sampling.logit_bias[3] = -2
    r.limits.max_turns = 9
    first = anna.Open(r).conversation
    for number, text in ((1, "Tell me."), (2, "\"Quoted\" \u2028 and so on")):
        said_by(anna, turn(first, number, text))
    list(anna.Turn(conversations.TurnRequest(conversation=first, turn=3, text="Only listen.", observe_only=True)))
    said_by(anna, turn(first, 4, "And now?"))
    second = anna.Open(conversations.ConversationsOpenRequest(model="echo")).conversation
    said_by(anna, conversations.TurnRequest(conversation=second, turn=1, text="hello"))
    said_by(anna, conversations.TurnRequest(conversation=second, turn=2, text="gone"))
    anna.Rewind(conversations.ConversationsRewindRequest(conversation=second, to_turn=1))
    return first, second


def said_by(who, request):
    return [event for event in who.Turn(request)][-1].done


def imported_again(parley, program, key, exported, made):
    """The same lines, and some of them, are imported again: nothing is there twice, and what is missing is added."""

    def again(some, write=json.dumps):
        return cli(parley, program, key, "import", lines="\n".join(map(write, some)))

    def there():
        return [told(line) for line in cli(parley, program, key, "export")[1]]

    before = there()
    status, lines, complaint = again(exported)
    assert status == 0 and lines == [{**line, "added": 0} for line in made] and "2 of 2 conversations were there" in complaint, (lines, complaint)
    assert there() == before
    for write in (lambda line: "\ufeff" + json.dumps(line)), (lambda line: "\r\n" + json.dumps(whole_numbers(line), sort_keys=True) + "\r\n"):  # as other programs do
        assert again(exported, write)[:2] == (0, lines)
    cut = [dict(line) for line in exported[2:5]]  # the conversation and two of its turns: the import was interrupted
    cut[0]["conversation"] = "0" * 32
    assert again(cut)[1][0]["added"] == 2
    whole = cut + exported[5:]
    status, lines, _ = again(whole)
    assert status == 0 and (lines[0]["turns"], lines[0]["added"]) == (4, 2), lines
    other = whole[:2] + [{**whole[2], "reply": "Something else."}]
    status, lines, complaint = again(other)
    assert status == 1 and "has another turn 2" in complaint and not lines, complaint
    status, _, complaint = again([{**cut[0], "system": "Another."}])
    assert status == 1 and "with other options" in complaint, complaint
    copies = [line["conversation"] for line in cli(parley, program, key, "export")[1] if line["type"] == "conversation"]
    assert cli(parley, program, key, "close", copies[0])[0] == 0 and there() == before


def many_turns(parley, program, key):
    """What a call of Import takes is bounded by its fields, too: many short turns go in several."""
    lines = [{"type": "conversation", "model": "echo"}]
    lines += [{"type": "turn", "turn": i + 1, "messages": [{"role": "user", "text": "x"}], "reply": "x", "finish_reason": "stop"} for i in range(3000)]
    status, made, complaint = cli(parley, program, key, "import", lines="\n".join(map(json.dumps, lines)))
    assert status == 0 and made[0]["turns"] == made[0]["added"] == 3000, (complaint, made)
    assert cli(parley, program, key, "close", made[0]["conversation"])[0] == 0


def endless(parley, program, key, path):
    """A line has a bound of its bytes and of its values, so that no file takes all memory."""
    env = {**os.environ, "PARLEY_API_KEY": key}
    for n, text, says in (1 << 30, "", "256 MiB"), (0, "[" + "{}," * (4 << 20) + "{}]", "4194304 values"):
        with open(path, "w") as f:
            f.write(text)
            f.truncate(n or len(text))
        with open(path) as f:
            done = children.run([program, "conversations", "import", "--server", parley.address], stdin=f, stderr=-1, text=True, env=env)
        assert done.returncode == 1 and f"line 1 of stdin: a line may have at most {says}" in done.stderr, done
        done = children.run([program, "verify", path], stderr=-1, text=True)
        assert done.returncode == 2 and f"line 1: a line may have at most {says}" in done.stderr, done
    os.unlink(path)


def cut_off(parley, program, key):
    """An export whose server is killed says so, and one that finds a conversation that cannot be read goes on with the others."""
    anna = As(parley, key)
    for _ in range(300):
        anna.Open(conversations.ConversationsOpenRequest(model="echo"))
    env = {**os.environ, "PARLEY_API_KEY": key}
    running = children.start([program, "conversations", "export", "--server", parley.address], stdout=-1, stderr=-1, text=True, env=env)
    assert running.stdout.readline()
    parley.daemon.process.send_signal(signal.SIGSTOP)
    parley.daemon.kill()
    _, complaint = running.communicate(timeout=children.PATIENCE)
    assert running.returncode == 1 and "parley: " in complaint, (running.returncode, complaint)


def imported_in_turkish(parley, program, key, folder):
    """Where the capital of i is not I, names of values are read as elsewhere. Needs the sources of locales (Debian's package locales)."""
    if children.run(["localedef", "-i", "tr_TR", "-f", "UTF-8", os.path.join(folder, "tr_TR.UTF-8")], check=False, stderr=-1).returncode != 0:
        print("no Turkish locale can be made here")
        return
    lines = '{"type":"conversation","model":"echo"}\n{"type":"turn","turn":1,"messages":[{"role":"user","text":"x"}],"reply":"x","finish_reason":"deadline"}'
    variables = {"LOCPATH": folder, "LC_ALL": "tr_TR.UTF-8", "LSAN_OPTIONS": "detect_leaks=0"}  # glibc's setlocale never frees its list of LOCPATH
    status, _, complaint = cli(parley, program, key, "import", lines=lines, **variables)
    assert status == 0, complaint


def main():
    parleyd, write_tiny_model, program = sys.argv[1:4]
    with tempfile.TemporaryDirectory() as folder:
        tiny, path = os.path.join(folder, "tiny.gguf"), os.path.join(folder, "keys")
        children.run([write_tiny_model, tiny], check=True)
        anna_key, ben_key = new_key(), new_key()
        write_keys(path, ("anna", anna_key), ("ben", ben_key))
        flags = ["--model", f"tiny={tiny}", "--http", "off", "--keys", path]
        with Mortal(parleyd, *flags, "--data", os.path.join(folder, "from")) as parley:
            first, second = talk(As(parley, anna_key))
            bens = As(parley, ben_key).Open(conversations.ConversationsOpenRequest(model="echo")).conversation
            status, exported, _ = cli(parley, program, anna_key, "export")
            assert status == 0 and [line["type"] for line in exported] == ["conversation", "turn", "conversation", "turn", "turn", "turn", "turn"], exported
            assert [line["conversation"] for line in exported if line["type"] == "conversation"] == [second, first], "hers alone, the newest first"
            assert [line["turn"] for line in exported if line["type"] == "turn"] == [1, 1, 2, 3, 4]
            assert [told(line) for line in cli(parley, program, anna_key, "export", second)[1]] == [told(line) for line in exported[:2]]
            assert cli(parley, program, anna_key, "export", bens)[0] != 0, "another's is not found"
        with Mortal(parleyd, *flags, "--data", os.path.join(folder, "to")) as parley:
            daemon, anna = parley.daemon, As(parley, anna_key)
            lines = "\n".join(json.dumps(line) for line in exported)
            status, made, complaint = cli(parley, program, anna_key, "import", lines=lines)
            assert status == 0, complaint
            assert [(line["was"], line["turns"], line["added"]) for line in made] == [(second, 1, 1), (first, 4, 4)], made
            imported_again(parley, program, anna_key, exported, made)
            again = cli(parley, program, anna_key, "export")[1]
            newest_first = exported[2:] + exported[:2]
            assert [told(line) for line in again] == [told(line) for line in newest_first]
            assert all(line["continued_inexactly"] for line in again if line["type"] == "conversation")
            assert not cli(parley, program, ben_key, "export")[1], "they are anna's"
            daemon.kill()
            parley = daemon.again()
            anna = As(parley, anna_key)
            kept = cli(parley, program, anna_key, "export")[1]
            assert [told(line) for line in kept] == [told(line) for line in again]
            assert [line.get("usage") for line in kept] == [line.get("usage") for line in again]
            mine = {line["was"]: line["conversation"] for line in made}
            assert said_by(anna, turn(mine[first], 5, "Go on.")).turn == 5
            assert said_by(anna, conversations.TurnRequest(conversation=mine[second], turn=2, text="more")).turn == 2
            for bad, says in (("{", "line 1"), ('{"type":"turn","turn":1}', "before the first conversation"), ('{"type":"other"}', "its type is"),
                              ('{"type":"conversation","model":"none"}', "none"),
                              ('{"type":"conversation","model":"echo"}\n{"type":"turn","turn":2,"messages":[{"role":"user","text":"x"}],"reply":"x","finish_reason":"stop"}', "the next one is 1")):
                status, _, complaint = cli(parley, program, anna_key, "import", lines=bad)
                assert status != 0 and says in complaint and f"line {len(bad.splitlines())} of stdin" in complaint, (bad, complaint)
            many_turns(parley, program, anna_key)
            endless(parley, program, anna_key, os.path.join(folder, "endless"))
            imported_in_turkish(parley, program, anna_key, folder)
            cut_off(parley, program, anna_key)
            daemon.again()


if __name__ == "__main__":
    main()
