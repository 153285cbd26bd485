#!/usr/bin/env python3
"""Worlds whose participants are agents of one's own: attached to a daemon, or in shared objects.

usage: test_worlds.py PARLEYD PARLEY BUILD_DIR      (run by the interpreter that has grpcio and the stubs; see venv.sh)"""
import json
import os
import sys
import tempfile
import threading

import children
import harness
from agent_process import Worker

PARLEYD, PARLEY, BUILD = sys.argv[1:4]
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
    for flags, why in ((["-m", "attached:nobody"], "nobody"), (["-m", "attached:"], "a name has 1 to 63"),
                       (["-m", "attached:words", "-mf", "x"], "needs no --model"), (["-m", "plugin:/nowhere/x.so"], "No such file")):
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


def test_lost(client, folder):
    """A worker is killed while it computes a step of the world: the verb goes on with the next one, and each turn counts once."""
    task = counts(os.path.join(folder, "lost.txt"), 12, hold_at=7)
    worker, done = Worker(client), {}
    thread = threading.Thread(target=lambda: done.update(json.loads(report(client, "-t", task, "-m", "attached:words", "-bs", 4))))
    thread.start()
    children.until("it holds a step", lambda: worker.has("held"))
    worker.kill()
    again = Worker(client)
    children.until("the step comes again", lambda: again.has("held"))
    again.go()
    thread.join()
    assert (done["exs"], done["accuracy"]) == (24, 1) and len(worker.has("step")) > 1, done


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch, harness.Parleyd(PARLEYD) as daemon:
        for test in test_agents, test_dialogue, test_lost:
            test(daemon, scratch)
            print(f"{test.__name__} ok", flush=True)
