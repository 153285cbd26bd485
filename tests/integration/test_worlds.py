#!/usr/bin/env python3
"""Worlds whose participants are agents of one's own: attached to a daemon, or in shared objects.

usage: test_worlds.py PARLEYD PARLEY BUILD_DIR EXAMPLE ACTS_WORKER      (run by the interpreter that has grpcio and the stubs; see venv.sh)"""
import json
import os
import sys
import tempfile
import threading

import grpc

import children
import harness
from agent_process import Worker

PARLEYD, PARLEY, BUILD, EXAMPLE, ACTS_WORKER = sys.argv[1:6]
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
    first = {"name": "t", "teacher": "", "hears": ["a"]}
    chain = world_of(folder, participants=[first, *talkers])
    scores = json.loads(report(client, "--world", chain, "-t", task))
    assert (scores["exs"], scores["accuracy"]) == (39, 0), scores
    observer.kill()


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
    assert "an agent speaks first" in said(client, "eval", "--world", "attached:gossip", code=1).stderr
    assert "nobody" in said(client, "eval", "--world", "attached:nobody", code=1).stderr
    worker.kill()
    worker.wait()


def test_wrong_worlds(client, folder):
    """What is wrong with a world is said in one line, before anything is opened."""
    t, a = {"name": "t", "teacher": "parlai:/nowhere"}, {"name": "a", "agent": "repeat_query"}
    for fields, why in (({}, "participants"), ({"participants": [t]}, "a list of 2 to 26"), ({"participants": [t, {"name": "a"}]}, "one of"),
                        ({"participants": [t, a, a]}, "two participants"), ({"participants": [a, t]}, "the first participant"),
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
        wanted = {"acts", "few", "kept", "single", "pupil", "wary", "judged", "plainly", "mapped"}
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
        for test in (test_agents, test_dialogue, test_person_logged, test_lost, test_pipeline, test_endings, test_attached_world, test_wrong_worlds, test_acts):
            test(daemon, scratch)
            print(f"{test.__name__} ok", flush=True)
