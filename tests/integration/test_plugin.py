#!/usr/bin/env python3
"""Agents of one's own in shared objects (--plugin), through gRPC, OpenAI's API and a ParlAI world.

usage: test_plugin.py PARLEYD BUILD_DIR PARLEY      (run by the interpreter that has grpcio and the stubs; see venv.sh)
"""
import json
import os
import signal
import sys
import tempfile
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import grpc

import children
import harness
from children import until
from harness import admin, conversations, models, word


def ask(parley, conversation, text, **more):
    return parley.conversations.Ask(conversations.TurnRequest(conversation=conversation, text=text, **more)).message


def says(parley, conversation, text, reply):
    said = ask(parley, conversation, text).text
    assert said == reply, said


def refused(code, text, call, *args):
    try:
        call(*args)
    except grpc.RpcError as error:
        assert error.code() == code and text in error.details(), error
    else:
        raise AssertionError(f"it is not refused: {text}")


def counts(parley):
    """Each conversation has its own count; a rewind and a fork have that of their turn."""
    one, two = parley.open("word_count"), parley.open("word_count")
    says(parley, one, "a b c", "3 words in 1 turns")
    says(parley, two, "d", "1 words in 1 turns")
    says(parley, one, "e f", "5 words in 2 turns")
    fork = parley.fork(one, at_turn=1)
    says(parley, fork, "x", "4 words in 2 turns")
    parley.conversations.Rewind(conversations.ConversationsRewindRequest(conversation=one, to_turn=1))
    says(parley, one, "g h i", "6 words in 2 turns")
    says(parley, two, "d", "2 words in 2 turns")
    assert [turn.reply for turn in parley.get(one).transcript] == ["3 words in 1 turns", "6 words in 2 turns"]


def fails_alone(parley):
    """A turn that the plug-in fails or refuses leaves no trace; others of the same steps have their replies."""
    one = parley.open("word_count")
    says(parley, one, "a", "1 words in 1 turns")
    refused(grpc.StatusCode.FAILED_PRECONDITION, "word_count: it was told to fail", ask, parley, one, "fail")
    refused(grpc.StatusCode.INVALID_ARGUMENT, "there are no words to count", ask, parley, one, "  ")
    says(parley, one, "b", "2 words in 2 turns")
    odd = [parley.open("rows") for _ in range(24)]
    with ThreadPoolExecutor(len(odd)) as pool:
        def told(i):
            try:
                return ask(parley, odd[i], "skip" if i % 3 == 0 else "twice" if i % 3 == 1 else "fine").text
            except grpc.RpcError as error:
                return error.code(), error.details()
        for i, said in enumerate(pool.map(told, range(len(odd)))):
            times = {0: 0, 1: 2}.get(i % 3)
            assert said == ("one " if times is None else (grpc.StatusCode.INTERNAL, f"rows answered a row {times} times in one step, it must answer each row once")), said


def waiting(parley):
    return next(m for m in parley.admin.Status(admin.AdminStatusRequest()).models if m.name == "rows").batching.waiting


def batches(parley, folder, n=64):
    """What arrives during a step is in the next one: 64 conversations, one step."""
    fifo = os.path.join(folder, "fifo")
    os.mkfifo(fifo)
    slow = parley.conversations.Ask.future(conversations.TurnRequest(conversation=parley.open("rows"), text=fifo))
    with open(fifo, "wb"):  # opened once the step has begun
        calls = [parley.conversations.Ask.future(conversations.TurnRequest(conversation=parley.open("rows"), text="rows?")) for _ in range(n)]
        until(f"the waiting of {n}", lambda: waiting(parley) == n, slow, *calls)
    assert {call.result().message.text for call in calls} == {f"{n} rows"}
    slow.result()


def streams(parley):
    """A reply that takes several steps comes in pieces, and the turn can be joined again."""
    conversation = parley.open("rows")
    for _ in range(2):
        pieces = [e.piece.text for e in parley.conversations.Turn(conversations.TurnRequest(conversation=conversation, turn=1, text="more")) if e.HasField("piece")]
        assert "".join(pieces) == "one two three", pieces


def same_bits(parley):
    """A deterministic plug-in says the same alone and beside 63 others."""
    def converse(i):
        conversation = parley.open("word_count")
        return [ask(parley, conversation, "w " * (i * k % 17 + 1)).text for k in range(4)]
    with ThreadPoolExecutor(64) as pool:
        together = list(pool.map(converse, range(64)))
    assert together == [converse(i) for i in range(64)]


def posted(parley, path, body):
    request = urllib.request.Request(f"http://{parley.http}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=children.PATIENCE) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def openai(parley):
    def chat(model, text):
        return posted(parley, "/v1/chat/completions", {"model": model, "messages": [{"role": "user", "content": text}]})
    status, reply = chat("word_count", "one two three")
    assert status == 200 and reply["choices"][0]["message"]["content"] == "3 words in 1 turns", reply
    assert reply["usage"]["prompt_tokens"] == 3 and reply["choices"][0]["finish_reason"] == "stop", reply
    assert chat("repeat", "hello")[1]["choices"][0]["message"]["content"] == "hello"
    status, reply = chat("word_count", "fail")
    assert status == 422 and "it was told to fail" in reply["error"]["message"], (status, reply)
    with urllib.request.urlopen(f"http://{parley.http}/v1/models", timeout=children.PATIENCE) as response:
        assert {m["id"] for m in json.load(response)["data"]} == {"word_count", "rows", "repeat", "echo"}


def described(parley):
    known = {m.name: m for m in parley.models.List(models.ModelsListRequest()).models}
    assert (word(known["word_count"], "kind"), known["word_count"].architecture) == ("plugin", "word_count")
    # Unloaded and loaded again by name; a plug-in is code of the configuration, so no other path loads one.
    parley.models.Unload(models.ModelsUnloadRequest(name="repeat"))
    refused(grpc.StatusCode.UNAVAILABLE, "not loaded", parley.open, "repeat")
    parley.models.Load(models.ModelsLoadRequest(name="repeat"))
    says(parley, parley.open("repeat"), "again", "again")


def ends(parleyd, *flags):
    """How a start and --check end, which say the same line last."""
    lines = set()
    for check in [], ["--check"]:
        done = children.run([parleyd, "--listen", "127.0.0.1:0", "--log-level", "error", *check, *flags], capture_output=True, text=True)
        assert done.returncode in (1, 2) and done.stderr.count("\n") == 1, done
        lines.add(done.stderr)
    assert len(lines) == 1, lines
    return lines.pop()


def refusals(parleyd, build, examples, folder):
    faulty = os.path.join(build, "tests/unit/agents/plugin/faulty_")
    assert "it has ABI 7, but this parleyd needs 1" in ends(parleyd, "--plugin", f"{faulty}abi.so")
    assert "its parley_agent has no fork" in ends(parleyd, "--plugin", f"{faulty}no_fork.so")
    assert "it defines no parley_agent" in ends(parleyd, "--plugin", f"{faulty}no_symbol.so")
    assert "it defines only a teacher, which 'parley' can use" in ends(parleyd, "--plugin", f"{examples}/sums.so")
    assert "--plugin: /nowhere/x.so: No such file" in ends(parleyd, "--plugin", "/nowhere/x.so")
    assert "takes [NAME=]FILE.so" in ends(parleyd, "--plugin", "x")
    assert "'echo' is the name of what is always served" in ends(parleyd, "--plugin", f"{examples}/echo.so")
    assert "'word_count' is given twice" in ends(parleyd, "--plugin", f"{examples}/word_count.so", "--plugin", f"word_count={examples}/echo.so")
    path = os.path.join(folder, "parleyd.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"plugins:\n  - /nowhere/x.so\n")
    assert f"{path}:2: plugins: /nowhere/x.so: No such file" in ends(parleyd, "--config", path)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"plugins: ['{examples}/word_count.so', 'repeat={examples}/echo.so']\n")
    with harness.Parleyd(parleyd, "--config", path) as parley:
        says(parley, parley.open(), "a b", "2 words in 1 turns")  # the first is the default
        says(parley, parley.open("repeat"), "a b", "a b")


def reloaded(parleyd, examples, folder):
    """SIGHUP leaves plug-ins as they are: another list waits for a start."""
    path = os.path.join(folder, "reloaded.yaml")
    daemon = harness.Parleyd(parleyd, "--config", path)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"plugins: ['{examples}/word_count.so']\n")
    with daemon as parley:
        conversation = parley.open("word_count")
        says(parley, conversation, "a b", "2 words in 1 turns")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"plugins: ['repeat={examples}/echo.so']\n")
        daemon.process.send_signal(signal.SIGHUP)
        until("the word of what waits", lambda: any("wait_for_a_start=plugins" in line for line in daemon.said), daemon.process)
        says(parley, conversation, "c", "3 words in 2 turns")
        refused(grpc.StatusCode.NOT_FOUND, "there is no model 'repeat'", parley.open, "repeat")


def outlives(parleyd, rows, examples, folder):
    """With --data a conversation goes on after kill -9 with the state that it had, what batch_act did included."""
    flags = ["--data", os.path.join(folder, "data"), "--plugin", f"rows={rows}", "--plugin", f"{examples}/word_count.so"]
    daemon = harness.Parleyd(parleyd, *flags)
    with daemon as parley:
        counted, stepped = parley.open("word_count"), parley.open("rows")
        says(parley, counted, "a b", "2 words in 1 turns")
        says(parley, counted, "c", "3 words in 2 turns")
        says(parley, stepped, "fine", "one ")
        parley.channel.close()
        daemon.process.kill()
        daemon.process.wait()
        daemon.listener.join()
        parley = daemon.__enter__()
        says(parley, counted, "d", "4 words in 3 turns")
        says(parley, stepped, "fine", "two ")
        parley.conversations.Rewind(conversations.ConversationsRewindRequest(conversation=counted, to_turn=1))
        says(parley, counted, "e e", "4 words in 2 turns")


def worlds(parley, examples, folder):
    """In a ParlAI world a conversation is an episode, however many there are at once."""
    path = os.path.join(folder, "count.txt")
    with open(path, "w", encoding="utf-8") as file:
        for episode in range(50):
            n = 0
            for turn in range(1, episode % 4 + 2):
                words = (episode + turn) % 5 + 1
                n += words
                end = "\tepisode_done:True" if turn == episode % 4 + 1 else ""
                file.write(f"text:{' '.join(['w'] * words)}\tlabels:{n} words in {turn} turns{end}\n")
    def evaluated(*more):
        return children.run([parley, "eval", "-t", f"parlai:{path}", "--plugin", *more, "--json"], capture_output=True, text=True)
    for more in [], ["-bs", "16"], ["-bs", "16", "--numthreads", "2"], ["-bs", "64", "--dynamic-batching", "full", "--text-truncate", "100"]:
        done = evaluated(f"{examples}/word_count.so", *more)
        assert done.returncode == 0, done
        report = json.loads(done.stdout.splitlines()[-1])
        assert (report["exs"], report["accuracy"]) == (123, 1), (more, report)
    done = evaluated("/nowhere/x.so")
    assert done.returncode == 1 and done.stderr == "parley: plug-in /nowhere/x.so: No such file or directory\n", done
    with open(path, "a", encoding="utf-8") as file:
        file.write("text:fail\tlabels:x\tepisode_done:True\n")
    done = evaluated(f"{examples}/word_count.so")
    assert done.returncode == 1 and "it was told to fail" in done.stderr and done.stderr.count("\n") == 1, done


def teachers(parley, examples, folder):
    """Data that a plug-in gives: a world sees each example once, in whatever batches and on however many threads; as a stream they are
    built once, and anew for other data of the same plug-in."""
    sums, stream = f"{examples}/sums.so", os.path.join(folder, "sums.data")

    def said(verb, *flags, code=0):
        done = children.run([parley, verb, *map(str, flags)], capture_output=True, text=True)
        assert done.returncode == code, done
        return done

    def evaluated(*flags):
        return json.loads(said("eval", "--json", *flags).stdout.splitlines()[-1])

    whole = evaluated("-t", f"plugin:{sums}:500")
    assert (whole["exs"], whole["accuracy"]) == (1000, 1), whole
    for more in ["-bs", 16], ["-bs", 16, "-nt", 2], ["-bs", 8, "-dynb", "full", "-ttr", 60], ["-bs", 8, "--batch-sort", "true"]:
        assert evaluated("-t", f"plugin:{sums}:500", *more) == whole, more
    parts = [evaluated("-t", f"plugin:{sums}:501", "--rank", rank, "--num-ranks", 2)["exs"] for rank in (0, 1)]
    assert parts == [502, 500], parts
    wrong = evaluated("-t", f"plugin:{sums}", "--agent", "random_candidate", "--seed", 3)
    assert wrong["exs"] == 200 and 0.3 < wrong["accuracy"] < 0.7, wrong  # one of two candidates
    shown = said("display", "-t", f"plugin:{sums}:1").stdout
    assert "What is 0 and 1?" in shown and "And one more?" in shown and "2 examples" in shown, shown
    assert "What is 7 and 1?" in said("display", "-t", f"plugin:{sums}:1", "-dt", "valid").stdout  # each fold has sums of its own
    # ParlAI's own options: the same, read ahead from a file
    for count in 500, 300:
        for flags in ["-pytd", f"{sums}:{count}"], ["-pyt", f"plugin:{sums}:{count}", "-nt", 2, "-bs", 4]:
            report = evaluated(*flags, "--datafile", stream)
            assert (report["exs"], report["accuracy"]) == (2 * count, 1), report
    built = os.stat(stream).st_mtime_ns
    assert evaluated("-pytd", f"{sums}:300", "--datafile", stream)["exs"] == 600 and os.stat(stream).st_mtime_ns == built
    assert evaluated("-t", f"data:{stream}", "-dt", "valid:stream")["exs"] == 600
    said("build-data", "-pytd", f"{sums}:200", "--datafile", stream)
    assert os.stat(stream).st_mtime_ns != built and evaluated("-t", f"data:{stream}", "-dt", "valid:stream")["exs"] == 400
    dictionary = os.path.join(folder, "sums.dict")
    said("train", "-t", f"plugin:{sums}:50", "-df", dictionary)
    with open(dictionary, encoding="utf-8") as file:
        assert any(line.startswith("more\t50") for line in file)
    for task, why in ((f"plugin:{sums}:many", "'many' is no number of sums"), (f"plugin:{sums}:0", "no examples"),
                      (f"plugin:{examples}/echo.so", "it defines no parley_teacher"), ("plugin:/nowhere/x.so", "No such file")):
        done = said("eval", "-t", task, code=1)
        assert why in done.stderr and done.stderr.count("\n") == 1, done


def main():
    parleyd, build, parley_program = sys.argv[1:]
    examples = os.path.join(build, "agents/plugin/examples")
    rows = os.path.join(build, "tests/unit/agents/plugin/faulty_rows.so")
    with tempfile.TemporaryDirectory() as folder:
        with harness.Parleyd(parleyd, "--http", "127.0.0.1:0", "--plugin", f"{examples}/word_count.so", "--plugin", f"rows={rows}",
                             "--plugin", f"repeat={examples}/echo.so") as parley:
            for test in counts, fails_alone, streams, same_bits, openai, described:
                print(test.__name__, flush=True)
                test(parley)
            print("batches", flush=True)
            batches(parley, folder)
        print("refusals", flush=True)
        refusals(parleyd, build, examples, folder)
        print("reloaded", flush=True)
        reloaded(parleyd, examples, folder)
        print("outlives", flush=True)
        outlives(parleyd, rows, examples, folder)
        print("worlds", flush=True)
        worlds(parley_program, examples, folder)
        print("teachers", flush=True)
        teachers(parley_program, examples, folder)


if __name__ == "__main__":
    main()
