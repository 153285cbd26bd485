#!/usr/bin/env python3
"""Worlds whose participants are agents of one's own: attached to a daemon, or in shared objects.

usage: test_worlds.py PARLEYD PARLEY BUILD_DIR GOSSIP ACTS_WORKER INTERVIEW SCRIPTED_WORKER      (run by the interpreter that has grpcio and the stubs; see venv.sh)"""
import json
import os
import sys
import tempfile
import threading
import urllib.request

import grpc

import children
import harness
from agent_process import Worker

PARLEYD, PARLEY, BUILD, EXAMPLE, ACTS_WORKER, INTERVIEW, SCRIPTED = sys.argv[1:8]
EXAMPLES = os.path.join(BUILD, "agents/plugin/examples")


def said(client, verb, *flags, code=0, stdin=""):
    done = children.run([PARLEY, verb, *map(str, flags), *(["--server", client.address] if client else [])], capture_output=True, text=True,
                        input=stdin)
    assert done.returncode == code, done
    return done


def report(client, *flags):
    return said(client, "eval", *flags, "--json").stdout.splitlines()[-1]


def counts(path, n, hold_at=None):
    """Episodes of word counts, n of them; the words of one of them make its worker hold."""
    with open(path, "w", encoding="utf-8") as file:
        for episode in range(n):
            words = 0
            for turn in range(1, episode % 3 + 2):
                text = ["w"] * ((episode + turn) % 4) + ["hold" if (episode, turn) == (hold_at, 1) else "w"]
                words += len(text)
                end = "\tepisode_done:True" if turn == episode % 3 + 1 else ""
                file.write(f"text:{' '.join(text)}\tlabels:{words} words in turn {turn}{end}\n")
    return f"parlai:{path}"


def test_agents(client, folder):
    """An attached agent answers a whole batch in one step, and its report is to the bit that of an agent built in which says the same."""
    task = counts(os.path.join(folder, "counts.txt"), 40)
    worker = Worker(client, rows="64")
    shapes = ([], ["-bs", 16], ["-bs", 16, "-nt", 2], ["-bs", 64, "-dynb", "full", "-tr", 100])
    for shape in shapes:
        done = json.loads(report(client, "-t", task, "-m", "attached:words", *shape))
        assert (done["exs"], done["accuracy"]) == (79, 1), (shape, done)
        assert report(client, "-t", task, "-m", "attached:echo", *shape) == report(None, "-t", task, "-m", "repeat_query", *shape), shape
    assert max(int(line.split()[1]) for line in worker.has("step")) >= 16, worker.has("step")
    assert report(None, "-t", task, "-m", f"plugin:{EXAMPLES}/echo.so", "-bs", 8) == report(None, "-t", task, "-m", "repeat_query", "-bs", 8)
    children.until("all conversations are closed", lambda: len(worker.has("close")) == len(worker.has("open")))
    for flags, why in ((["-m", "attached:nobody"], "nobody"), (["-m", "attached:"], "the name must have 1 to 63"), (["-m", "attached:a/b"], "the name must have 1 to 63"),
                       (["-m", "attached:words", "-mf", "x"], "does not take --model"), (["-m", "plugin:/nowhere/x.so"], "No such file")):
        error = said(client, "eval", "-t", task, *flags, code=1).stderr
        assert why in error and error.count("\n") == 1, error
    worker.kill()


def test_dialogue(client, folder):
    """Agents of one's own talk with each other and with a person; of three, each hears the other two."""
    flags = ["--opening", "a b", "--turns", 2, "--json"]
    for mine in ["--agent", "attached:words"], ["--plugin", f"{EXAMPLES}/word_count.so"]:
        worker = Worker(client)
        told = "in turn {}" if mine[0] == "--agent" else "in {} turns"
        lines = [json.loads(line)["text"] for line in said(client, "self-chat", *mine, *flags).stdout.splitlines()]
        assert lines == ["a b", "2 words " + told.format(1), "5 words " + told.format(1), "7 words " + told.format(2)], lines
        three = said(client, "self-chat", *mine, "-pmf", "attached:echo", *flags, "--speakers", 3).stdout.splitlines()
        texts = [json.loads(line)["text"] for line in three]
        assert texts[:2] == ["a b", "a b"] and texts[2].startswith("4 words"), texts
        person = said(client, "interactive", *mine, "--json", stdin="a b\nc\n[DONE]\nd\n").stdout.splitlines()
        assert [json.loads(line)["text"].split()[0] for line in person] == ["2", "3", "1"], person
        worker.kill()


def test_person_logged(client, folder):
    """In the log of a person's conversations each [DONE] ends one, and so does a world's end_text."""
    log = os.path.join(folder, "person.log")
    people = [{"name": "me", "human": True}, {"name": "a", "agent": "repeat_query"}]
    world = world_of(folder, participants=people, end_text="bye")
    for flags, stdin in (("-m", "repeat_query"), "[DONE]\na\nb bye\n[DONE]\nc\n[DONE]\n"), (("--world", world), "a\nb bye\nc\n"):
        said(client, "interactive", *flags, "--world-logs", log, stdin=stdin)
        with open(log, encoding="utf-8") as file:
            talks = [json.loads(line)["dialog"] for line in file]
        assert [[turn[0]["text"] for turn in talk] for talk in talks] == [["a", "b bye"], ["c"]], talks
    assert said(client, "interactive", "-m", "repeat_query", stdin="a\\nb\\\n").stdout == "[RepeatQueryAgent]: b\\\n"


def test_persons(client, folder):
    """A person answers a task as any agent does; persons at any place of a world are told what they hear, and speak in turn."""
    task = counts(os.path.join(folder, "asked.txt"), 2)  # 3 questions
    labels = [line.split("labels:")[1].split("\tepisode")[0].strip() for line in open(task.partition(":")[2], encoding="utf-8")]
    done = said(client, "eval", "-t", task, "-m", "local_human", "--json", stdin="".join(label + "\n" for label in labels)).stdout.splitlines()
    assert [json.loads(line)["id"] for line in done[:-1]] == ["asked"] * 3 and "labels" not in "".join(done[:-1]), done
    assert (json.loads(done[-1])["exs"], json.loads(done[-1])["accuracy"]) == (3, 1), done
    for stop in "", "[EXIT]\n":  # what was answered counts
        done = said(client, "eval", "-t", task, "-m", "local_human", "--json", stdin=f"{labels[0]}\nx\n{stop}").stdout.splitlines()
        assert (json.loads(done[-1])["exs"], json.loads(done[-1])["accuracy"]) == (2, 0.5), done
    for flags in ("-bs", 2), ("-nt", 2):
        assert "one conversation at a time" in said(client, "eval", "-t", task, "-m", "local_human", *flags, code=1).stderr, flags
    people = [{"name": "echo", "agent": "repeat_query"}, {"name": "ann", "human": True, "hears": ["bob"]}, {"name": "bob", "agent": "local_human"}]
    told = said(client, "interactive", "--world", world_of(folder, participants=people), stdin="1\n2\n3\n4\n").stdout.splitlines()
    assert told == ["(bob) [RepeatQueryAgent]: Nothing to repeat yet.", "(bob) [ann]: 1", "(ann) [bob]: 2", "(bob) [RepeatQueryAgent]: 2", "(bob) [ann]: 3", "(ann) [bob]: 4",
                    "(bob) [RepeatQueryAgent]: 4"], told
    world = world_of(folder, participants=[people[0], people[1] | {"hears": ["echo"]}])
    told = said(client, "interactive", "--world", world, "--json", stdin="1\n[DONE]\n2\n").stdout.splitlines()
    assert [json.loads(line) for line in told] == [{"id": "RepeatQueryAgent", "text": text} for text in
                                                   ("Nothing to repeat yet.", "1", "Nothing to repeat yet.", "2")], told
    assert "this verb needs agents alone" in said(client, "self-chat", "--world", world, code=1).stderr


def test_exported(client, folder):
    """Conversations that a daemon exports are a task: turns with their replies, an episode for each conversation."""
    ids = [client.open("echo", system="be kind") for _ in range(3)]
    for i, id in enumerate(ids):
        for turn in range(1, i + 1):
            messages = [harness.content.Message(role="user", text=f"q{i} {turn}"), *([harness.content.Message(role="user", text="twice")] if i == turn else [])]
            client.conversations.Ask(harness.conversations.TurnRequest(conversation=id, messages=messages))
    path = os.path.join(folder, "said.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        file.write("".join(said(client, "conversations", "export", id).stdout for id in ids))
        file.write('{"type": "turn", "messages": [], "reply": "alone"}\n{"type": "turn", "messages": [{"role": "user", "text": "x"}]}\n{"type": "record"}\n')
    score = json.loads(report(None, "-t", f"conversations:{path}", "-m", "repeat_query"))
    acts = [json.loads(line) for line in said(None, "convert", "-t", f"conversations:{path}", "--to", "jsonl").stdout.splitlines()]
    assert [(act["text"], act["episode_done"]) for act in acts] == [("q1 1\ntwice", True), ("q2 1", False), ("q2 2\ntwice", True)], acts
    assert score["exs"] == 3, score
    for wrong in '{"type": "turn"}', '{"type": 3}', '{"type": "turn", "messages": 3, "reply": "x"}':
        with open(path, "w", encoding="utf-8") as file:
            file.write(wrong + "\n")
        assert "said.jsonl:1: " in said(None, "eval", "-t", f"conversations:{path}", "-m", "repeat_query", code=1).stderr, wrong
    for id in ids:
        client.close(id)


def test_plugin_learns(client, folder):
    """A plug-in learns in its own batch_act, from labels that only training shows it; it is saved at the best validation, and goes on from a file."""
    for name, n in ("plug.lessons", 9), ("plug.exam", 12):  # three questions of the exam were in no lesson
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.writelines(f"text:q{i}\tlabels:a{i}\tepisode_done:True\n" for i in range(n))
    lessons, exam, saved = f"parlai:{folder}/plug.lessons", f"parlai:{folder}/plug.exam", os.path.join(folder, "pupil.txt")
    mine = ["-t", lessons, "-et", exam, "-m", f"plugin:{EXAMPLES}/pupil.so", "-dt", "train:ordered", "-veps", 1, "-vmt", "accuracy", "--json"]
    for shape in [], ["-bs", 4], ["-bs", 4, "-dynb", "full", "-tr", 8]:
        *valid, end = [json.loads(line) for line in said(None, "train", *mine, *shape, "-mf", saved, "-eps", 9, "-vp", 2).stdout.splitlines()]
        assert [v["valid"]["accuracy"] for v in valid] == [0.75] * 3 and (end["ended_by"], end["examples"], end["best"]) == ("patience", 27, 0.75), (shape, valid, end)
        with open(saved, encoding="utf-8") as file:
            assert sorted(file.read().split("\n")[1::3]) == [f"q{i}" for i in range(9)], shape
    with open(saved, "w", encoding="utf-8") as file:
        file.write("3 3\nq11\na11\n")
    first, *_ = [json.loads(line) for line in said(None, "train", *mine, "-im", saved, "-mf", saved, "-eps", 1).stdout.splitlines()]
    assert round(12 * first["valid"]["accuracy"], 6) == 10, first
    for flags, why in ((["-m", f"plugin:{EXAMPLES}/echo.so", "-mf", saved], "no save_model"), (["-mf", saved, "-nt", 2], "on one thread"), (["-mf", saved, "-im", exam[7:]], "is not what a pupil"),
                       (["-mf", "/nowhere/x"], "cannot be written"), (["-m", "plugin:/nowhere.so", "-mf", saved], "nowhere.so")):
        error = said(None, "train", *mine, "-eps", 1, *flags, code=1).stderr
        assert why in error and error.count("\n") == 1, (flags, error)
    assert "--model-file is missing" in said(None, "train", *mine, "-eps", 1, code=2).stderr


def world_of(folder, **fields):
    path = os.path.join(folder, "world.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(fields, file)
    return path


def test_lost(client, folder):
    """A worker is killed while it computes a step of a world: the verb goes on with the next one, and each turn counts once. A row that fails
    ends the verb with one line."""
    task = counts(os.path.join(folder, "lost.txt"), 12, hold_at=7)
    world = world_of(folder, participants=[{"name": "t", "teacher": task, "hears": ["a"]}, {"name": "a", "agent": "attached:words", "hears": ["t"]},
                                           {"name": "b", "agent": "attached:echo", "hears": ["t", "a"]}])
    for flags in ["-t", task, "-m", "attached:words"], ["--world", world]:
        worker, done = Worker(client), {}
        thread = threading.Thread(target=lambda: done.update(json.loads(report(client, *flags, "-bs", 4))))
        thread.start()
        children.until("it holds a step", lambda: worker.has("held"))
        worker.kill()
        again = Worker(client)
        children.until("the step comes again", lambda: again.has("held"))
        again.go()
        thread.join()
        assert (done["exs"], done["accuracy"]) == (24, 1) and len(worker.has("step")) > 1, (flags, done)
        again.kill()
    failing = Worker(client)
    with open(os.path.join(folder, "fails.txt"), "w", encoding="utf-8") as file:
        file.write("text:fail\tlabels:x\tepisode_done:True\n")
    error = said(client, "eval", "-t", f"parlai:{file.name}", "-m", "attached:words", code=1).stderr
    assert error == "parley: 'attached:words': it was told to fail\n", error
    failing.kill()


def test_pipeline(client, folder):
    """In a world of three the teacher hears only whom it is to, and a report is the same as without those whom it does not hear; of the
    private observer nobody hears anything."""
    task = counts(os.path.join(folder, "pipeline.txt"), 20)
    alone, observer = report(client, "-t", task, "-m", "attached:echo"), Worker(client)
    teacher = {"name": "t", "teacher": task, "hears": ["b"]}
    talkers = [{"name": "a", "agent": "fixed_response", "hears": ["t"]}, {"name": "b", "agent": "attached:echo", "hears": ["t"]}]
    judge = {"name": "judge", "agent": "attached:words", "hears": ["t", "b"]}
    log = os.path.join(folder, "log.jsonl")
    for shape in [], ["-bs", 8], ["-bs", 8, "-nt", 2]:
        world = world_of(folder, participants=[teacher, *talkers, judge], ends=["t"])
        assert report(client, "--world", world, "-wlog", log, *shape) == alone, shape
        with open(log, encoding="utf-8") as file:
            talks = [json.loads(line)["dialog"] for line in file]
        assert (len(talks), sum(map(len, talks))) == (20, 39), talks
        for talk in talks:
            words = 0
            for turn, acts in enumerate(talk, 1):
                assert [act["text"] for act in acts[1:3]] == ["fixed response", acts[0]["text"]], acts
                words += 2 * len(acts[0]["text"].split())
                assert acts[3]["text"] == f"{words} words in turn {turn}", acts
    for heard in "attached:echo", f"plugin:{EXAMPLES}/echo.so":  # who gets texts alone is told who says them
        named = [{**talkers[0], "name": "Ann"}, {"name": "Bob", "agent": heard, "hears": ["t", "Ann"]}]
        said(client, "eval", "--world", world_of(folder, participants=[{**teacher, "hears": ["Ann"]}, *named], names=True), "-bs", 4, "-wlog", log)
        with open(log, encoding="utf-8") as file:
            turns = [acts for line in file for acts in json.loads(line)["dialog"]]
        assert all([act["id"] for act in acts] == ["t", "Ann", "Bob"] and acts[2]["text"].endswith("Ann: fixed response") for acts in turns), turns
    first = {"name": "t", "teacher": "", "hears": ["a"]}
    chain = world_of(folder, participants=[first, *talkers])
    scores = json.loads(report(client, "--world", chain, "-t", task))
    assert (scores["exs"], scores["accuracy"]) == (39, 0), scores
    observer.kill()


def test_templates(_, folder):
    """A template that reads a message's name is told who speaks, each speaker in a message of its own; for one that does not, the name
    stands before the text. Either way the model says what it says over HTTP, where messages of users have no names, to the same prompt."""
    takes = "{% for m in messages %}{{ m.content }}{{ m.name }}{% endfor %}"
    texts, names = ("hello there", "well"), ("Ann", "Bob")
    both = [{"role": "user", "content": text + name} for name, text in zip(names, texts)]
    written = [{"role": "user", "content": "\n".join(f"{name}: {text}" for name, text in zip(names, texts))}]
    plain = [{"role": "user", "content": "\n".join(texts)}]
    for template, is_named, round_ in (takes, True, both), (takes, False, plain), (takes.replace("name", "other"), True, written):
        with open(os.path.join(folder, "template"), "w", encoding="utf-8") as file:
            file.write(template)
        model = os.path.join(folder, "named.gguf")
        children.run([os.path.join(BUILD, "tests/integration/write_tiny_model"), model, "1024", "1", file.name], check=True)
        talkers = [{"name": name, "agent": "fixed_response", "fixed_response": text} for name, text in zip(names, texts)]
        judge = {"name": "Cid", "model": model, "temperature": 0, "max_tokens": 8}
        world = world_of(folder, participants=[*talkers, judge], rounds=3, names=is_named)
        acts = [json.loads(line) for line in said(None, "self-chat", "--world", world, "--json").stdout.splitlines()]
        assert len(acts) == 9 and (not is_named or [act["id"] for act in acts] == [*names, "Cid"] * 3), acts
        with harness.Parleyd(PARLEYD, "--model", f"tiny={model}", "--http", "127.0.0.1:0") as daemon:
            messages = []
            for act in acts[2::3]:
                messages += round_
                body = json.dumps({"model": "tiny", "messages": messages, "temperature": 0, "max_tokens": 8}).encode()
                with urllib.request.urlopen(urllib.request.Request(f"http://{daemon.http}/v1/chat/completions", body)) as answer:
                    messages.append(json.load(answer)["choices"][0]["message"])
                assert messages[-1]["content"] == act["text"], (template, messages, acts)


def test_endings(client, folder):
    """A conversation ends after its rounds, or when somebody says the text that ends it, while others side by side go on; with a person the
    agents then begin anew."""
    a, b = {"name": "a", "agent": "attached:words", "opening": "x"}, {"name": "b", "agent": "attached:echo"}
    worker = Worker(client)
    for flags, n in ([], 3), (["--turns", 2], 2):
        lines = said(client, "self-chat", "--world", world_of(folder, participants=[a, b], rounds=3), *flags).stdout.splitlines()
        assert len(lines) == 2 * n and lines[:3] == ["a: x", "b: x", "a: 1 words in turn 1"], lines
    world = world_of(folder, participants=[a, b], rounds=9, end_text="in turn 2")
    lines = said(client, "self-chat", "--world", world, "-bs", 2).stdout.splitlines()
    assert len(lines) == 12 and lines[-1] == "1 b: 6 words in turn 2", lines
    human = {"name": "me", "human": True, "hears": ["a"]}
    world = world_of(folder, participants=[human, {**a, "hears": ["me"]}, b], end_text="in turn 2")
    lines = said(client, "interactive", "--world", world, "--json", stdin="a a\na\na\n").stdout.splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["2 words in turn 1", "3 words in turn 2", "1 words in turn 1"], lines
    worker.kill()


def test_attached_world(client, folder):
    """A worker gives a world, and the agents in it."""
    env = {**os.environ, "PYTHONPATH": os.environ["PARLEY_PACKAGE"]}
    worker = children.start([sys.executable, EXAMPLE, client.address], env=env)
    names = lambda: {m.name for m in client.models.List(harness.models.ModelsListRequest()).models}
    children.until("they are attached", lambda: {"gossip", "listener"} <= names(), worker)
    lines = said(client, "self-chat", "--world", "attached:gossip:well").stdout.splitlines()
    assert lines == ["A: well", "B: well", "C: I heard well and well"] * 2, lines
    assert "this world has agents alone, but this verb needs a teacher" in said(client, "eval", "--world", "attached:gossip", code=1).stderr
    assert "nobody" in said(client, "eval", "--world", "attached:nobody", code=1).stderr
    worker.kill()
    worker.wait()


def test_wrong_worlds(client, folder):
    """What is wrong with a world is said in one line, before anything is opened."""
    t, a = {"name": "t", "teacher": "parlai:/nowhere"}, {"name": "a", "agent": "repeat_query"}
    for fields, why in (({}, "participants"), ({"participants": [t]}, "a list of 2 to 26"), ({"participants": [t, {"name": "a"}]}, "one of"),
                        ({"participants": [t, a, a]}, "two participants"), ({"participants": [a, t]}, "the first participant"), ({"participants": [t, a], "scripted": True}, "an attached worker gives"),
                        ({"participants": [t, {**a, "hears": ["x"]}]}, "there is no participant 'x'"), ({"participants": [t, {**a, "x": 1}]}, "x"),
                        ({"participants": [t, {**a, "hears": 1}]}, "not a list of names"), ({"participants": [t, a], "end_text": ""}, "empty"),
                        ({"participants": [t, a], "rounds": 2}, "by themselves"), ({"participants": [a, a | {"name": "b"}], "rounds": -1}, "from 1"),
                        ({"participants": [a, a | {"name": "b"}]}, "needs a teacher"), ({"participants": [t, a]}, "/nowhere")):
        error = said(client, "eval", "--world", world_of(folder, **fields), code=1).stderr
        assert why in error and error.count("\n") == 1, (fields, error)
    with open(os.path.join(folder, "bad.json"), "w", encoding="utf-8") as file:
        file.write("{")
    assert "line 1" in said(client, "eval", "--world", file.name, code=1).stderr
    good = world_of(folder, participants=[{**t, "teacher": counts(os.path.join(folder, "few.txt"), 2)}, a])
    assert "names its agents" in said(client, "eval", "--world", good, "-m", "unigram", code=1).stderr
    assert "dynamic" in said(client, "eval", "--world", good, "-bs", 2, "-dynb", "full", "-tr", 9, code=1).stderr


def attached(client, program, *wanted):
    env = {**os.environ, "PYTHONPATH": os.environ["PARLEY_PACKAGE"]}
    worker = children.start([sys.executable, program, client.address], env=env)
    ready = lambda: {m.name for m in client.models.List(harness.models.ModelsListRequest()).models if m.state == harness.models.MODEL_STATE_READY}
    children.until("they are attached", lambda: set(wanted) <= ready(), worker)
    return worker


def test_scripted(client, folder):
    """In a world whose code says who speaks, all is as it says: in batches, in threads, with the bits of the plain world where it says the same."""
    worker = attached(client, SCRIPTED, *SCRIPTS)
    task = counts(os.path.join(folder, "scripted.txt"), 20)
    for agent in "repeat_label", "attached:echo", "unigram":
        more = ["-df", os.path.join(folder, "scripted.dict")] if agent == "unigram" else []
        if more:
            said(None, "train", "-t", task, "--dict-file", more[1])
        plain = report(client if "attached" in agent else None, "-t", task, "-m", agent, *more)
        for name, shape in ("dialog", []), ("later", ["-bs", 3]), ("dialog", ["-bs", 64]), ("later", ["-bs", 2, "-nt", 2]):
            assert report(client, "--world", f"attached:{name}:{agent}", "-t", task, *more, *shape) == plain, (agent, name, shape)
        assert json.loads(report(client, "--world", f"attached:dialog:{agent}", "-t", task, *more, "-ne", 7, "-bs", 4))["exs"] == 7
    tasks = f"{task},{counts(os.path.join(folder, 'other.txt'), 5)}"
    assert report(client, "--world", "attached:dialog:repeat_label", "-t", tasks, "-bs", 2) == report(None, "-t", tasks, "-m", "repeat_label")
    log = os.path.join(folder, "scripted.log")
    said(client, "eval", "--world", "attached:tutor", "-t", task, "-bs", 4, "-wlog", log)
    with open(log, encoding="utf-8") as file:
        talks = [json.loads(line)["dialog"] for line in file]
    assert (len(talks), sum(map(len, talks))) == (20, 39), talks
    for acts in (acts for talk in talks for acts in talk):
        n, text = len(acts[0]["text"].split()) % 3, acts[0]["text"]
        assert [act["id"] for act in acts] == ["teacher"] + ["thinks"] * n + ["answers"], acts
        assert [act["text"] for act in acts[1:]] == [text + "".join(f" {k}" for k in range(i + 1)) for i in range(n)] + [text + "".join(f" {k}" for k in range(n))], acts
    talk = ["a: b c", "b: c b", "c: b c", "b: c b", "c: b c"]
    assert said(client, "self-chat", "--world", "attached:talk").stdout.splitlines() == talk
    assert said(client, "self-chat", "--world", "attached:talk", "--turns", 2).stdout.splitlines() == talk[:3]
    assert sorted(said(client, "self-chat", "--world", "attached:talk", "-bs", 2).stdout.splitlines()) == sorted(f"{i} {line}" for i in (0, 1) for line in talk)
    told = said(client, "self-chat", "--world", "attached:quiet", "-bs", 2, "--world-logs", log).stdout.splitlines()
    with open(log, encoding="utf-8") as file:
        talks = [json.loads(line)["dialog"] for line in file]
    assert sorted(told) == ["0 a: hello", "1 a: hello"] and [[act["text"] for turn in talk for act in turn] for talk in talks] == [["hello"]] * 2, (told, talks)
    for n_slots, n in (1, 1), (2, 6):  # epoch_done() ends its own conversation: the other goes on with two episodes, up to the same end
        assert json.loads(report(client, "--world", "attached:until:2", "-t", task, "-bs", n_slots))["exs"] == n, n_slots
    for wrong, why in (("talk:fails", "parley(): ValueError: I was told to fail"), ("talk:twice", "'b' has heard nothing since it spoke"), ("talk:nobody", "KeyError"),
                       ("talk:wrong", "must be an act"), ("talk:typed", "'text', which must be a text"), ("refused:hears", "parley() says who hears whom"),
                       ("refused:ends", "no end_text"), ("refused", "does not say what is next")):
        error = said(client, "self-chat", "--world", f"attached:{wrong}", code=1).stderr
        assert why in error and error.count("\n") == 1, (wrong, error)
    scripted_attacked(client)
    scripted_otherwise(client, worker).kill()


SCRIPTS = "dialog", "later", "tutor", "talk", "quiet", "until", "moody", "refused"


def scripted_otherwise(client, worker):
    """Code that says something else when it is run again, at another worker, ends the verb. Returns that worker."""
    person = children.start([PARLEY, "interactive", "--world", "attached:moody", "--server", client.address], stdin=-1, stdout=-1, stderr=-1, text=True)
    person.stdin.write("Why?\n")
    person.stdin.flush()
    assert person.stdout.readline() == f"[echo]: Why? {worker.pid}\n"
    worker.kill()
    worker.wait()
    worker = attached(client, SCRIPTED, *SCRIPTS)
    told, error = person.communicate("How?\n", timeout=children.PATIENCE)
    assert told == "" and "did something else when it was run again" in error and person.returncode == 1, (told, error)
    return worker


def scripted_attacked(client):
    """Any client may talk to a world: it gets an error, and the worker goes on."""
    for system in "no json", "[1]", '{"script": true}', '{"argument": 3, "script": 1}', '{"script": true, "argument": "\\ud800"}':
        for messages in (["no json"], ["[]"], ["null", "null"], ['{"do": "parley"}', '{"do": "parley"}', "{}"], ['{"do": "parley"}', '{"who": "a"}'],
                         ['{"do": "parley"}', '{"who": "a", "act": 3}'], ["{}"] * 3):
            for name in "talk", "later":
                id = client.open(name, system=system)
                for text in messages:
                    try:
                        client.conversations.Ask(harness.conversations.TurnRequest(
                            conversation=id, messages=[harness.content.Message(role="user", text=text)]))
                    except grpc.RpcError as e:
                        assert e.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.DATA_LOSS, grpc.StatusCode.FAILED_PRECONDITION), e
                client.close(id)
    assert len(said(client, "self-chat", "--world", "attached:talk").stdout.splitlines()) == 5


def test_interview(client, folder):
    """The example: a person asks an agent; two persons debate. A worker that is killed amid an episode loses nothing of it."""
    names = "interview", "candidate", "debate", "judge"
    worker = attached(client, INTERVIEW, *names)
    told = said(client, "interactive", "--world", "attached:interview:2", stdin="Why?\nHow?\nmore\n").stdout.splitlines()
    heard = ["[host]: You have 2 questions.", "[candidate]: Answer 1: I have thought about 'Why?'.", "[candidate]: Answer 2: I have thought about 'How?'."]
    assert told == heard, told
    told = said(client, "interactive", "--world", "attached:interview:0", stdin="Why?\nmore\n").stdout.splitlines()
    assert told == ["[host]: You have 0 questions.", heard[1]], "it ends"
    told = said(client, "interactive", "--world", "attached:interview:2", stdin="Why?\n[DONE]\nHow?\n").stdout.splitlines()
    assert told == [*heard[:2], heard[0], "[candidate]: Answer 1: I have thought about 'How?'."], told
    told = said(client, "interactive", "--world", "attached:debate", stdin="yes it is\nno\nwhy\nenough\nmore\n").stdout.splitlines()
    assert told == ["(bob) [ann]: yes it is", "(ann) [bob]: no", "(bob) [ann]: why", "(ann) [judge]: The most words has ann.", "(bob) [judge]: The most words has ann."], told
    person = children.start([PARLEY, "interactive", "--world", "attached:interview:2", "--server", client.address], stdin=-1, stdout=-1, text=True)
    assert person.stdout.readline() == heard[0] + "\n"
    person.stdin.write("Why?\n")
    person.stdin.flush()
    assert person.stdout.readline() == heard[1] + "\n"
    worker.kill()
    worker.wait()
    worker = attached(client, INTERVIEW, *names)
    person.stdin.write("How?\n")
    person.stdin.close()
    assert person.stdout.read() == heard[2] + "\n" and person.wait() == 0
    worker.kill()
    worker.wait()


class Acts:
    """The worker of whole acts, and what it has told since it was last asked."""

    def __init__(self, client, folder):
        self.client, self.folder, self.dies = client, folder, os.path.join(folder, "died")
        self.process = None
        self.start()

    def start(self):
        self.log = open(os.path.join(self.folder, "acts.log"), "a+", encoding="utf-8")  # so that the worker writes behind what is there
        env = {**os.environ, "PYTHONPATH": os.environ["PARLEY_PACKAGE"]}
        self.process = children.start([sys.executable, ACTS_WORKER, self.client.address, self.dies], env=env, stdout=self.log)
        wanted = {"acts", "few", "kept", "single", "pupil", "wary", "judged", "plainly", "mapped", "collated"}
        children.until("they are attached", lambda: wanted <= {m.name for m in self.client.models.List(harness.models.ModelsListRequest()).models
                                                               if m.state == harness.models.MODEL_STATE_READY}, self.process)

    def told(self, what):
        self.log.seek(0)
        lines = [json.loads(line) for line in self.log.read().splitlines()]
        return [line[what] for line in lines if what in line]

    def forget(self):
        self.log.seek(0)
        self.log.truncate()

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


def acts_eval(acts, *flags):
    """Returns the report, the sizes of the agent's batches, and the batches that the verb says."""
    acts.forget()
    done = said(acts.client, "eval", *flags, "--json")
    line = next((line for line in done.stderr.splitlines() if " batches of " in line), "0 batches of 0")
    return json.loads(done.stdout.splitlines()[-1]), [len(batch) for batch in acts.told("batch")], (int(line.split()[0]), float(line.split()[3]))


def test_acts(client, folder):
    """An agent in Python gets a world's whole batch, each message with all its fields, and answers with any; the teacher judges the replies.
    What the verb says of batches is what the agent got."""
    acts = Acts(client, folder)
    score, sizes, counted = acts_eval(acts, "-t", "attached:judged:7", "-m", "attached:acts", "-bs", 3)
    assert sizes == [3, 3, 3, 3, 1, 1] and counted == (6, 2.3), (sizes, counted)
    first, second = acts.told("batch")[0][0], acts.told("batch")[1][0]
    assert first == {"text": "q0", "label_candidates": ["b", "a", "q0 1"], "reward": 0.25, "hint": {"i": 0}, "episode_done": False, "id": "judged:7",
                     "eval_labels": ["q0 1"], "turn": 1, "turns": 1, "before": None}, first
    assert (second["turn"], second["turns"], second["before"], second["eval_labels"]) == (2, 2, "q0 1", ["and 2", "other"]), second
    own = {"USER_exs": 1, "deep": 2.718281828459045 ** 0.5, "kept": 1, "length": 2.5, "n": 14, "right": 0.75, "seen": 14, "weighed": 0.75}
    assert {**score, **own} == score and (score["exs"], score["accuracy"], score["hits@5"]) == (14, 1, 0.5), score
    judged = acts.told("judged")
    assert len(judged) == 14 and judged[0][0]["text"] == "q0" and judged[0][2]["mood"] == {"calm": [1, 2]}, judged[0]
    for shape in ["-bs", 1], ["-bs", 64], ["-bs", 4, "-nt", 2], ["-bs", 64, "-dynb", "full", "-tr", 32]:
        again, sizes, counted = acts_eval(acts, "-t", "attached:judged:7", "-m", "attached:acts", *shape)
        assert again == score and sum(sizes) == 14 and len(acts.told("judged")) == 14, (shape, again)
        assert shape[1] == 1 or (counted[0] == len(sizes) and max(sizes) <= shape[1]), (shape, sizes, counted)
    again, sizes, counted = acts_eval(acts, "-t", "attached:judged:7", "-m", "attached:few", "-bs", 5)
    assert again == score and max(sizes) == 2 and counted == (8, 1.8), (again, sizes, counted)
    hidden, _, _ = acts_eval(acts, "-t", "attached:judged:7", "-m", "attached:acts", "--hide-labels", "true")
    assert hidden["accuracy"] == 1 and not any("labels" in str(row.keys()) for batch in acts.told("batch") for row in batch), hidden
    single, _, _ = acts_eval(acts, "-t", "attached:plainly", "-m", "attached:single", "-bs", 2)
    assert (single["exs"], single["recall"]) == (3, 0.5) and "kept" not in single, single
    scripts = attached(client, SCRIPTED, "dialog")
    again, sizes, _ = acts_eval(acts, "--world", "attached:dialog:attached:acts", "-t", "attached:judged:7", "-bs", 3)
    assert again == score and sizes == [3, 3, 3, 3, 1, 1], (again, sizes)  # whoever asks the same participant
    scripts.kill()
    acts_streamed(acts, folder, score)
    acts_attacked(acts, folder)
    acts_learn(acts, folder)
    acts.stop()


def acts_streamed(acts, folder, score):
    """An attached teacher is a stream from a file, which is built at its first use, and again for another argument or fold; it still judges."""
    data = os.path.join(folder, "judged.data")
    stream = ["-pyt", "attached:judged:7", "--datafile", data, "-m", "attached:acts", "-bs", 4]
    for _ in range(2):
        again, _, _ = acts_eval(acts, *stream)
        assert again == score and len(acts.told("judged")) == 14, again
        built = os.stat(data).st_ino
    assert acts_eval(acts, *stream, "-dt", "test")[0] == score and os.stat(data).st_ino != built
    assert acts_eval(acts, "-pyt", "attached:judged:2", *stream[2:])[0]["exs"] == 4
    mapped = ["-pytd", "attached:mapped", "--datafile", data, "-m", "repeat_label", "-bs", 4]
    for more in [], ["--batch-sort-cache", "pop", "--squash", "true"]:
        got = json.loads(report(acts.client, *mapped, *more))
        assert (got["exs"], got["accuracy"]) == (9, 1), got
    collated = [json.loads(line) for line in said(acts.client, "convert", "-t", "attached:collated", "--to", "jsonl").stdout.splitlines()]
    assert [act["labels"][0] for act in collated if act["text"] == "together"] == ["32", "32", "6"], collated
    assert [act["text"] for act in collated if act["text"] != "together"] == [f"m{i}" for i in range(0, 70, 2)], collated
    space = ["-m", "starspace", "-mf", os.path.join(folder, "fewer.gguf"), "-dt", "train:ordered", "-eps", 1, "-veps", 1, "--json"]
    for task in "-t", "-pyt":  # validations are of their own fold, also where the training reads a preprocessed file
        told = said(acts.client, "train", task, "attached:plainly:fewer", "--datafile", data, "-pytp", "true", *space).stdout.splitlines()
        assert (json.loads(told[0])["valid"]["exs"], json.loads(told[1])["examples"]) == (3, 2), told
    assert "needs --datafile FILE" in said(acts.client, "eval", "-pyt", "attached:judged:7", "-m", "repeat_label", code=1).stderr


def acts_learn(acts, folder):
    """An agent of one's own learns in its own batch_act; validations see no labels, the best one has it saved, and end the training."""
    for name, n in ("lessons", 9), ("exam", 12):  # three questions of the exam were in no lesson
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.writelines(f"text:q{i}\tlabels:a{i}\tepisode_done:True\n" for i in range(n))
    mine, saved = ["-m", "attached:pupil"], os.path.join(folder, "pupil.json")
    lessons, exam = f"parlai:{folder}/lessons", f"parlai:{folder}/exam"
    flags = ["-t", lessons, "-et", exam, *mine, "-dt", "train:ordered", "-veps", 1, "-vmt", "accuracy", "--json"]

    def train(*more, code=0):
        acts.forget()
        done = said(acts.client, "train", *flags, *more, code=code)
        return [json.loads(line) for line in done.stdout.splitlines()]

    *valid, end = train("-bs", 4, "-mf", saved, "-eps", 9, "-vp", 2)
    assert acts.told("lesson")[:6] == [[4, 4], [4, 4], [1, 1], [4, 0], [4, 0], [4, 0]], acts.told("lesson")
    assert [v["valid"]["accuracy"] for v in valid] == [0.75] * 3 and acts.told("saved") == [[saved, 9]], (valid, acts.told("saved"))
    assert (end["ended_by"], end["examples"], end["best"], end["batches"]) == ("patience", 27, 0.75, 9), end
    assert end["tpb"] == 6 and end["exps"] > 0 and end["ups"] > 0, end
    with open(saved, encoding="utf-8") as file:
        assert json.load(file) == {f"q{i}": f"a{i}" for i in range(9)}
    *valid, end = train("-bs", 2, "-nt", 2, "-eps", 9, "-vcut", 0.7)
    assert end["ended_by"] == "cutoff" and acts.told("saved") == [["", 9]], (end, acts.told("saved"))
    with open(saved, "w", encoding="utf-8") as file:
        json.dump({"q11": "a11"}, file)
    *valid, end = train("-im", saved, "-eps", 1, "-dynb", "full", "-tr", 8, "-bs", 4)
    assert round(12 * valid[0]["valid"]["accuracy"], 6) == 10 and valid[0]["valid"]["known"] == 10, valid
    for agent, why in ("attached:echo", "takes texts alone"), ("attached:nobody", "nobody"):
        assert why in said(acts.client, "train", "-t", lessons, "-m", agent, "-eps", 1, code=1).stderr
    assert not os.path.exists(".checkpoint") and not os.path.exists(saved + ".checkpoint")
    acts_refused(acts, lessons, exam, saved)


def asked(client, order, *past, system='{"parley.world": {}}'):
    """A client's own conversation with the agent, after a turn that it imports; returns the reply, or the error."""
    id = client.open("wary", system=system)
    client.conversations.Import(harness.conversations.ConversationsImportRequest(conversation=id, turns=[
        harness.conversations.TranscriptTurn(messages=[harness.content.Message(role="user", text=text)], reply="{}") for text in past]))
    try:
        return client.conversations.Ask(harness.conversations.TurnRequest(conversation=id, messages=[harness.content.Message(role="user", text=order)])).message.text
    except grpc.RpcError as e:
        return f"{e.code().name}: {e.details()}"
    finally:
        client.close(id)


def acts_refused(acts, lessons, exam, saved):
    """An agent that is not served with worlds=True is evaluated; nobody trains it, or has it save or load, not even by an imported talk."""
    acts.forget()
    known = json.loads(report(acts.client, "-t", exam, "-m", "attached:wary"))["known"]
    lessons_before = acts.told("lesson")
    for flags in ["-im", saved], []:
        error = said(acts.client, "train", "-t", lessons, "-m", "attached:wary", "-eps", 1, *flags, code=1).stderr
        assert "worlds=True" in error and error.count("\n") == 1, (flags, error)
    path = os.path.join(acts.folder, "written")
    row = {"clone": 1, "turn": 1, "seed": 1, "fresh": True, "heard": [{"text": "q0", "labels": ["spoilt"]}]}
    past = {**row, "heard": [{"text": "x"}], "past": [[row["heard"], {"text": ""}]]}
    lesson = '{"do": "act"}\n' + json.dumps(row)
    for order in [json.dumps({"do": do, "path": path}) for do in ("save", "load")] + [lesson, '{"do": "act"}\n' + json.dumps(past)]:
        assert "FAILED_PRECONDITION" in asked(acts.client, order) and "worlds=True" in asked(acts.client, order), order
    for turn in lesson, "no order", '{"do": "act"}\n{}':
        assert "FAILED_PRECONDITION" in asked(acts.client, json.dumps({"do": "load", "path": path}), turn)
        assert json.loads(asked(acts.client, '{"do": "begin"}', turn))["parley.world"] == 1
    assert not os.path.exists(path) and acts.told("lesson") == lessons_before and acts.told("saved") == []
    flags = "-t", lessons, "-m", "attached:wary"
    assert "-dt train:evalmode" in said(acts.client, "eval", *flags, "-dt", "train:ordered", code=1).stderr
    assert json.loads(report(acts.client, *flags, "-dt", "train:evalmode"))["exs"] > 0
    assert not any(n_labels for _, n_labels in acts.told("lesson"))
    assert json.loads(report(acts.client, "-t", exam, "-m", "attached:wary"))["known"] == known


def acts_attacked(acts, folder):
    """Replies that are no acts end the verb with one line; long ones, and a worker that dies, lose nothing."""
    for wrong, why in ((3, "must return a text"), ({"text": 3}, "'text', which must be a text"), ({"metrics": {"m": "x"}}, "metric 'm' must be a number"),
                       ({"text_candidates": "x"}, "a list of texts"), ({"batch_padding": True}, "left to the world"), ({"metrics": 1}, "an object"),
                       ({"metrics": {"m": [1, 2, 3]}}, "metric 'm'"), ({"episode_done": "no"}, "true or false"), ({"text": {"a": 1}}, "a text")):
        with open(os.path.join(folder, "wrong.jsonl"), "w", encoding="utf-8") as file:
            file.write(json.dumps({"text": "wrong", "labels": ["x"], "episode_done": True, "wrong": wrong}) + "\n")
        error = said(acts.client, "eval", "-t", f"jsonl:{file.name}", "-m", "attached:acts", code=1).stderr
        assert why in error and error.count("\n") == 1, (wrong, error)
    with open(file.name, "w", encoding="utf-8") as file:  # a reply that the server refuses as too long
        for _ in range(3):
            file.write(json.dumps({"text": "wrong", "labels": ["x"], "episode_done": True, "length": 5 << 20}) + "\n")
    error = said(acts.client, "eval", "-t", f"jsonl:{file.name}", "-m", "attached:acts", "-bs", 2, code=1).stderr
    assert "the reply would be longer than" in error and error.count("\n") == 1, error
    long, many = "\u00fc\n\"" * 40000, 300
    with open(os.path.join(folder, "long.jsonl"), "w", encoding="utf-8") as file:
        for i in range(many):
            texts = [long, "b"] if i == 0 else [f"t{i} " + "w" * 40000, "x"] if i % 3 == 0 else [""]
            for turn, text in enumerate(texts, 1):
                file.write(json.dumps({"text": text, "labels": [f"{text} {turn}"], "episode_done": turn == len(texts)}) + "\n")
    score, sizes, _ = acts_eval(acts, "-t", f"jsonl:{file.name}", "-m", "attached:acts", "-bs", 150, "-mcs", "none")
    assert (score["exs"], score["accuracy"]) == (400, 1) and max(sizes) == 150, score  # over several conversations
    with open(os.path.join(folder, "die.jsonl"), "w", encoding="utf-8") as file:
        for text in ("a", "b", "die", "c"):
            file.write(json.dumps({"text": text, "labels": [f"{text} {'abdc'.index(text[0]) + 1}"], "episode_done": text == "c"}) + "\n")
    for agent in "attached:acts", "attached:kept":  # another worker gets the turns, or a state that has none of the episodes
        done = {}
        thread = threading.Thread(target=lambda: done.update(json.loads(report(acts.client, "-t", f"jsonl:{file.name}", "-m", agent))))
        thread.start()
        acts.process.wait()
        acts.log.close()
        acts.start()
        thread.join()
        assert (done["exs"], done["accuracy"]) == (4, 1), (agent, done)
        os.remove(acts.dies)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch, harness.Parleyd(PARLEYD) as daemon:
        for test in (test_agents, test_dialogue, test_person_logged, test_lost, test_pipeline, test_templates, test_endings, test_attached_world, test_wrong_worlds, test_plugin_learns, test_exported, test_persons,
                     test_scripted, test_interview, test_acts):
            test(daemon, scratch)
            print(f"{test.__name__} ok", flush=True)
