"""What a person does with a policy: trains it, serves it, scores it; and the table of the batch RPC tutorial. Needs no model.

usage: test_training.py PARLEY PARLEYD
"""
import csv
import io
import json
import os
import pathlib
import sys
import tempfile
import xml.dom.minidom

import children
from harness import Parleyd

PARLEY, PARLEYD = sys.argv[1:]


def parley(*words, status=0):
    done = children.run([PARLEY, *map(str, words)], capture_output=True, text=True, timeout=4 * children.PATIENCE)
    assert done.returncode == status, (words, done.returncode, done.stdout, done.stderr)
    return done


def lines(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_training_ends_in_a_file_that_is_served_and_scored(folder):
    policy = folder / "pole.gguf"
    episodes = lines(parley("train", "cartpole", "--observers", 4, "--episodes", 12, "--out", policy, "--json"))
    assert [e["episode"] for e in episodes] == list(range(1, len(episodes) + 1))
    assert [e["actions"] for e in episodes] == [4 * 500 * e["episode"] for e in episodes], "every step is an action"
    running = 0.0
    for e in episodes:
        running = 0.5 * e["mean_reward"] + 0.5 * running
        assert abs(running - e["running_reward"]) < 1e-3 * running
    with Parleyd(PARLEYD, "--model", f"pole={policy}") as client:
        score = lines(parley("eval", "--world", "cartpole", "--agent", "pole", "--episodes", 40, "--server", client.address, "--json"))[0]
        assert score["episodes"] == 40 and score["min_reward"] <= score["mean_reward"] <= score["max_reward"] <= 500
        assert score["mean_reward"] > 60, f"a policy that has learned beats chance (22): {score}"
        missing = parley("eval", "--world", "cartpole", "--agent", "none", "--server", client.address, status=1)
        assert "none" in missing.stderr and "pole" in missing.stderr


def test_the_tutorials_table(folder):
    plot = folder / "figure.svg"
    words = ["bench", "cartpole", "--world", "2,4", "--episodes", 2, "--steps", 60, "--hidden", 32, "--reps", 1]
    rows = lines(parley(*words, "--plot", plot, "--json"))
    assert [(r["world"], r["mode"], r["rpc"]) for r in rows] == [
        (w, m, r) for w in (2, 4) for m in ("batch", "nobatch", "auto") for r in ("unary", "stream")
    ]
    for row in rows:
        n = row["world"] - 1
        assert row["mean_batch"] == {"batch": n, "nobatch": 1}.get(row["mode"], row["mean_batch"])
        assert 1 <= row["mean_batch"] <= n and row["deep"] == 0
        assert row["wall_s"] >= row["rollout_s"] > 0 and row["p99_us"] >= row["p50_us"] > 0
        assert row["cpu_s_agent"] > 0 and row["cpu_s_observers"] > 0 and row["rpc_s"] > 0 and row["train_s"] > 0
    for w in (2, 4):
        rewards = {r["running_reward"] for r in rows if r["world"] == w}
        assert len(rewards) == 1, f"what is done does not depend on how it is batched or sent: {rewards}"
    assert len(xml.dom.minidom.parse(str(plot)).getElementsByTagName("path")) == 6
    table = list(csv.DictReader(io.StringIO(parley(*words[:3], "2", "--mode", "batch", *words[4:], "--rpc", "stream", "--csv").stdout)))
    assert [(r["world"], r["mode"], r["running_reward"]) for r in table] == [("2", "batch", f"{rows[0]['running_reward']:.1f}")]
    first = parley(*words[:3], "3", *words[4:], "--mode", "batch,nobatch", "--rpc", "unary").stdout.splitlines()[0].split(", ")
    assert first[0] == "3" and len(first) == 3 and all(float(t) > 0 for t in first[1:]), "W, t_batch, t_nobatch"


def test_a_fresh_policy_is_served(folder):
    """Of any spaces; the seed alone decides its parameters; a file that is there stays."""
    flags = ["--observations", 4, "--actions", 2, "--hidden", 16, "--layers", 2, "--value"]
    said = parley("policy", "new", "fresh.gguf", *flags, "--seed", 7).stdout
    assert said == "fresh.gguf: mlp, 4 observations, 2 actions, 2 × 16 hidden, a value\n", said
    parley("policy", "new", "same.gguf", *flags, "--seed", 7)
    parley("policy", "new", "other.gguf", *flags, "--seed", 8)
    parley("policy", "new", "pole.gguf", "--environment", "cartpole", "--kind", "lstm")
    fresh, same, other = ((folder / f"{name}.gguf").read_bytes() for name in ("fresh", "same", "other"))
    assert fresh == same and fresh != other and b"CartPole-v1" in (folder / "pole.gguf").read_bytes()
    assert "there is a file already" in parley("policy", "new", "fresh.gguf", *flags, status=1).stderr
    assert (folder / "fresh.gguf").read_bytes() == fresh
    with Parleyd(PARLEYD, "--model", "fresh=fresh.gguf", "--model", "pole=pole.gguf") as client:
        for name in "fresh", "pole":
            score = lines(parley("eval", "--world", "cartpole", "--agent", name, "--episodes", 8, "--server", client.address, "--json"))[0]
            assert score["episodes"] == 8 and score["mean_reward"] > 0, score
    assert "action_count is 1, it must be from 2" in parley("policy", "new", "one.gguf", "--observations", 4, "--actions", 1, status=1).stderr


def test_misuse_is_told(folder):
    for words, said in [
        (["bench", "cartpole", "--world", "1"], "--world is '1'"),
        (["bench", "cartpole", "--world", "5:2"], "--world"),
        (["bench", "cartpole", "--mode", "never"], "batch, nobatch, auto"),
        (["bench", "cartpole", "--rpc", "http"], "unary, stream"),
        (["bench", "cartpole", "--loss", "none"], "fixed or tutorial"),
        (["bench", "cartpole", "--reps", "0"], "--reps"),
        (["train"], "ENVIRONMENT"),
        (["train", "pong"], "CartPole-v1"),
        (["train", "cartpole", "--kind", "cnn"], "mlp or lstm"),
        (["observe", "--rpc", "carrier"], "unary or stream"),
        (["policy", "new"], "FILE"),
        (["policy", "old", "x.gguf"], "'new'"),
        (["policy", "new", "x.gguf", "--actions", "2"], "--observations is missing"),
        (["policy", "new", "x.gguf", "--observations", "2"], "--actions is missing"),
        (["policy", "new", "x.gguf", "--environment", "pendulum"], "Pendulum-v1 takes numbers"),
        (["policy", "new", "x.gguf", "--environment", "cartpole", "--kind", "cnn"], "mlp or lstm"),
    ]:
        done = parley(*words, status=2)
        assert said in done.stderr, (words, done.stderr)
    done = parley("train", "cartpole", "--out", folder / "no" / "where.gguf", "--episodes", 1, status=1)
    assert "where.gguf" in done.stderr


def main():
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            with tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                test(pathlib.Path(folder))
                print(f"{name} ok", flush=True)


PARLEY, PARLEYD = map(os.path.abspath, (PARLEY, PARLEYD))
main()
