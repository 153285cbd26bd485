"""What a person does with a policy: trains it, serves it, scores it; and the table of the batch RPC tutorial. Needs no model.

usage: test_training.py PARLEY PARLEYD MOUNTAIN_CAR.so SUMS.so BEGINNER.so [KILL_AT_RENAME.so]
"""
import csv
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import xml.dom.minidom

import gguf

import children
from harness import Parleyd
from parley.v1 import act_pb2, act_pb2_grpc

PARLEY, PARLEYD, MOUNTAIN_CAR, SUMS, BEGINNER, *KILL_AT_RENAME = map(os.path.abspath, sys.argv[1:])


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


# --- killed ---

# Of a training that depends on all there is: a state that is carried on, both heads, several observers.
KILLED = ["train", "cartpole", "--kind", "lstm", "--hidden", 8, "--observers", 2, "--steps", 40, "--value-weight", 0.5, "--entropy-weight", 0.01, "--json"]
TOLD = ("episode", "mean_reward", "running_reward", "actions")  # all but times


def told(done):
    return {e["episode"]: [e[k] for k in TOLD] for e in lines(done)}


def files_of(path):
    """But what a killed writer had not given its name yet."""
    return sorted(p.name for p in path.parent.glob(path.name + "*") if p.suffix != ".part")


def test_a_killed_training_goes_on(folder):
    """From the last checkpoint, wherever the kill was, to the same rewards and the same file."""
    whole = told(parley(*KILLED, "--episodes", 3, "--out", folder / "whole.gguf"))
    assert list(whole) == [1, 2, 3] and files_of(folder / "whole.gguf") == ["whole.gguf"]
    if not KILL_AT_RENAME:
        return
    # Before a file gets its name: the fresh policy, a checkpoint, the checkpoint's policy, the end; and the episode that it says it begins with (0: it says nothing).
    path, seen = folder / "points.gguf", {}
    for at, goes_on in [(1, 0), (2, 0), (3, 0), (1, 0), (2, 2), (3, 2), (3, 3), (2, 4), (0, 4)]:
        env = {**os.environ, "LD_PRELOAD": KILL_AT_RENAME[0], "PARLEY_KILL_AT_RENAME": str(at)}
        done = children.run([PARLEY, *map(str, KILLED), "--episodes", "3", "--out", str(path)], capture_output=True, text=True, timeout=4 * children.PATIENCE, env=env)
        assert done.returncode == (-signal.SIGKILL if at else 0), (at, goes_on, done)
        assert done.stderr == (f"train: continues from {path}.checkpoint at episode {goes_on}\n" if goes_on else ""), (at, goes_on, done.stderr)
        again = told(done)
        assert all(whole[n] == again[n] for n in again) and (not again or min(again) == max(goes_on, 1)), (at, goes_on, again)
        seen.update(again)
        assert path.exists() == (at == 0), "the policy has its name once the training is over"
    assert seen == whole
    assert path.read_bytes() == (folder / "whole.gguf").read_bytes() and files_of(path) == ["points.gguf"]


def killed_training(path):
    """A training that a signal has killed in some episode after the first: how many its checkpoint has."""
    learning = children.start([PARLEY, *map(str, KILLED), "--episodes", "1000000", "--out", str(path)], stdout=-1, text=True)
    assert [json.loads(learning.stdout.readline())["episode"] for _ in range(2)] == [1, 2]
    learning.send_signal(signal.SIGKILL)
    assert learning.wait(children.PATIENCE) == -signal.SIGKILL
    learning.stdout.close()
    return int(re.search(rb'"episodes":(\d+)', pathlib.Path(f"{path}.checkpoint").read_bytes())[1])


def test_checkpoints_of_policies(folder):
    """One of other options or another environment says which, a damaged one that it is; both what to do; each is left alone, and the same command goes on."""
    path = folder / "some.gguf"
    n = killed_training(path)
    checkpoint = pathlib.Path(f"{path}.checkpoint")
    kept, more = checkpoint.read_bytes(), [*KILLED, "--episodes", n + 2, "--out", path]

    def refused(said, *words):
        done = parley(*more, *words, status=1)
        line, = done.stderr.splitlines()
        assert said in line and "some.gguf.checkpoint" in line and line.endswith("use --load-from-checkpoint false to begin a new training"), line
        assert done.stdout == "" and not path.exists()

    refused("--seed 543, not 6", "--seed", 6)
    refused("--hidden 8, not 9", "--hidden", 9)
    refused('--kind "lstm", not "mlp"', "--kind", "mlp")
    refused("--value-weight 0.5, not 0.0", "--value-weight", 0)
    refused("--observers 2, not 3", "--observers", 3)
    refused(f"is of {n} episodes, but this training ends after {n - 1}" if n > 1 else "", *(["--episodes", n - 1] if n > 1 else ["--seed", 7]))
    more[1] = "gridworld"
    refused("is of a training in CartPole-v1, not GridWorld-v0")
    more[1] = "cartpole"
    for size in range(0, len(kept) - 32, len(kept) // 23):  # the last bytes are padding
        checkpoint.write_bytes(kept[:size])
        refused("some.gguf.checkpoint")
    for was, is_now in [(b'"episodes":', b'"epidodes":'), (b'"episodes":%d' % n, b'"episodes":' + b"-" * len(str(n))), (b'"options":{', b'"options":['), (b"policy.kind", b"policy.king"),
                        (b"training.state", b"training.stale"), (b"policy.adam_steps", b"policy.adam_stops"), (b"GGUF", b"GGUG")]:
        assert was in kept
        checkpoint.write_bytes(kept.replace(was, is_now, 1))
        refused("some.gguf.checkpoint")
    checkpoint.write_bytes(kept)
    went_on = parley(*more)
    assert f"train: continues from {checkpoint} at episode {n + 1}\n" == went_on.stderr and list(told(went_on)) == [n + 1, n + 2]
    anew = folder / "anew.gguf"
    pathlib.Path(f"{anew}.checkpoint").write_bytes(b"no checkpoint")
    more[-1] = anew
    whole = parley(*more, "--load-from-checkpoint", "false")
    assert list(told(whole)) == list(range(1, n + 3)) and {k: told(whole)[k] for k in told(went_on)} == told(went_on)
    assert path.read_bytes() == anew.read_bytes() and files_of(path) == ["some.gguf"] and files_of(anew) == ["anew.gguf"]
    pathlib.Path(f"{anew}.checkpoint").mkdir()  # none can be written: said, and learning goes on
    more[more.index("--episodes") + 1] = 1
    assert parley(*more, "--load-from-checkpoint", "false").stderr.count("cannot write a checkpoint: ") == 1


def test_weights_of_the_loss(folder):
    """Those of the value and of the entropy change what is learned; a weight of the value brings its head."""
    more = ["train", "cartpole", "--hidden", 8, "--observers", 1, "--steps", 20, "--episodes", 1, "--json", "--out"]
    made = []
    for words in [], ["--entropy-weight", 0.5], ["--value-weight", 0.5]:
        parley(*more, "loss.gguf", *words)
        made.append((folder / "loss.gguf").read_bytes())
    assert len(set(made)) == 3 and len(made[0]) == len(made[1]) < len(made[2]) and b"value.weight" in made[2]
    for words, said in [(["--value-weight", -1], "value_weight is -1"), (["--entropy-weight", "-0.5"], "entropy_weight is -0.5")]:
        assert said in parley(*more, "bad.gguf", *words, status=1).stderr
    assert "--value-weight" in parley("train", "--help").stdout


def test_zeros(folder):
    """A learning rate of 0 moves nothing, however long the training is; without a discount only the next reward counts."""
    def weights(*words):
        parley("train", "cartpole", "--hidden", 8, "--observers", 1, "--steps", 20, "--json", "--load-from-checkpoint", "false", "--out", "zero.gguf", *words)
        tensors = gguf.GGUFReader(folder / "zero.gguf").tensors
        return next(t for t in tensors if t.name == "actions.weight").data.tobytes()

    still = weights("--episodes", 1, "--learning-rate", 0)
    assert weights("--episodes", 3, "--learning-rate", 0) == still != weights("--episodes", 1)
    assert len({weights("--episodes", 1, "--gamma", gamma) for gamma in (0, 0.5, 1)}) == 3


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


def test_rounds_are_measured(folder):
    """`parley bench params` of small parameters: trainers get the same bytes, near those of one process."""
    (row,) = lines(parley("bench", "params", "--trainers", 2, "--rounds", 2, "--bytes", 4000, "--json"))
    assert (row["trainers"], row["rounds"], row["bytes"], row["is_identical"]) == (2, 2, 4000, True) and row["max_diff"] < 1e-5, row
    assert row["round_s"] > 0 and row["floor_s"] > 0 and row["server_peak_bytes"] > 4000, row
    assert "multiple of 4" in parley("bench", "params", "--bytes", 6, status=2).stderr


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
    assert "exists already" in parley("policy", "new", "fresh.gguf", *flags, status=1).stderr
    assert (folder / "fresh.gguf").read_bytes() == fresh
    with Parleyd(PARLEYD, "--model", "fresh=fresh.gguf", "--model", "pole=pole.gguf") as client:
        for name in "fresh", "pole":
            score = lines(parley("eval", "--world", "cartpole", "--agent", name, "--episodes", 8, "--server", client.address, "--json"))[0]
            assert score["episodes"] == 8 and score["mean_reward"] > 0, score
    assert "action_count is 1, it must be from 2" in parley("policy", "new", "one.gguf", "--observations", 4, "--actions", 1, status=1).stderr


def test_environments_of_plug_ins(folder):
    """A policy is scored in a plug-in's environment, and learns in those that attach themselves; what cannot be played is a line."""
    parley("policy", "new", "car.gguf", "--observations", 2, "--actions", 3, "--environment", "MountainCar-v0")
    parley("policy", "new", "pole.gguf", "--environment", "cartpole")
    parley("policy", "new", "three.gguf", "--observations", 3, "--actions", 2)
    with Parleyd(PARLEYD, "--model", "car=car.gguf", "--model", "pole=pole.gguf", "--model", "three=three.gguf") as client:
        def score(agent, *more, status=0):
            return parley("eval", "--world", f"plugin:{MOUNTAIN_CAR}", "--agent", agent, "--episodes", 6, "--at-once", 3, "--server",
                          client.address, "--json", *more, status=status)

        told = lines(score("car"))[0]
        assert told["episodes"] == 6 and -200 <= told["min_reward"] <= told["mean_reward"] < 0, told
        assert "observation" in score("pole", status=1).stderr
        failed = parley("eval", "--world", f"plugin:{BEGINNER}", "--agent", "three", "--episodes", 2, "--at-once", 1, "--seed", 666, "--server",
                        client.address, status=1)
        assert "the environment failed: it does not begin" in failed.stderr and failed.stderr.count("\n") == 1, failed
        observers = [children.start([PARLEY, "observe", "--env", f"plugin:{MOUNTAIN_CAR}", "--model", "car", "--server", client.address, "--json"],
                                    stdout=subprocess.PIPE, text=True) for _ in range(2)]
        stub = act_pb2_grpc.ActStub(client.channel)
        episodes = list(stub.Train(act_pb2.ActTrainRequest(model="car", observers=2, episodes=2, n_steps=250, gamma=1, learning_rate=0.01)))
        assert [e.observers for e in episodes] == [2, 2] and all(-200 <= e.mean_reward < 0 for e in episodes), episodes
        for o in observers:
            o.terminate()
            assert json.loads(o.communicate()[0])["steps"] == 2 * 250 and o.returncode == 0
        for name, why in ((f"plugin:{SUMS}", "it has no environment"), ("plugin:none.so", "none.so"), ("pong", "'pong'")):
            for words in (["eval", "--world", name], ["observe", "--env", name]):
                done = children.run([PARLEY, *words, "--server", client.address], capture_output=True, text=True)
                assert done.returncode in (1, 2) and why in done.stderr and done.stderr.count("\n") == 1, done


def test_environments_that_only_the_server_has(folder):
    """A policy is scored where the environment is: plugged in there, or attached. The same seed gives the same rewards."""
    parley("policy", "new", "car.gguf", "--observations", 2, "--actions", 3, "--environment", "MountainCar-v0")
    parley("policy", "new", "pole.gguf", "--environment", "cartpole")
    with Parleyd(PARLEYD, "--model", "car=car.gguf", "--model", "pole=pole.gguf", "--plugin", MOUNTAIN_CAR) as client:
        def score(world, agent, *more, status=0):
            return parley("eval", "--world", world, "--agent", agent, "--server", client.address, "--json", *more, status=status)

        told = lines(score("MountainCar-v0", "car", "--episodes", 5, "--at-once", 2, "--seed", 3))[0]
        assert told["world"] == "MountainCar-v0" and told["episodes"] == 5 and -200 <= told["min_reward"] <= told["mean_reward"] < 0, told
        assert told["min_reward"] > -200 or told["full_episodes"] > 0, told
        assert lines(score("MountainCar-v0", "car", "--episodes", 5, "--at-once", 2, "--seed", 3))[0] == told
        assert score("MountainCar-v0", "pole", status=1).stderr.count("\n") == 1
        assert "'nobody'" in score("MountainCar-v0", "nobody", status=1).stderr
        worker = children.start([sys.executable, os.path.join(os.path.dirname(__file__), "environment_worker.py"), client.address, "poles", "CartPole-v1"],
                                stdout=subprocess.PIPE, text=True)
        assert worker.stdout.readline() == "accepted\n"
        told = lines(score("poles", "pole", "--episodes", 6))[0]
        assert told["episodes"] == 6 and 8 <= told["min_reward"] <= told["mean_reward"] <= 500, told
        worker.kill()
        worker.wait()
        assert score("poles", "pole", "--episodes", 1, status=1).stderr.count("\n") == 1


def test_misuse_is_told(folder):
    for words, said in [
        (["bench", "cartpole", "--world", "1"], "--world is '1'"),
        (["bench", "cartpole", "--world", "5:2"], "--world"),
        (["bench", "cartpole", "--mode", "never"], "batch, nobatch and auto"),
        (["bench", "cartpole", "--rpc", "http"], "unary and stream"),
        (["bench", "cartpole", "--loss", "none"], "fixed or tutorial"),
        (["bench", "cartpole", "--reps", "0"], "--reps"),
        (["train"], "ENVIRONMENT"),
        (["train", "pong"], "CartPole-v1"),
        (["train", "cartpole", "--kind", "cnn"], "mlp or lstm"),
        (["train", "cartpole", "--episodes", "0"], "--episodes"),
        (["observe", "--rpc", "carrier"], "unary or stream"),
        (["policy", "new"], "FILE"),
        (["policy", "old", "x.gguf"], "'new'"),
        (["policy", "new", "x.gguf", "--actions", "2"], "--observations is missing"),
        (["policy", "new", "x.gguf", "--observations", "2"], "--actions is missing"),
        (["policy", "new", "x.gguf", "--environment", "pendulum"], "the actions of Pendulum-v1 are numbers"),
        (["policy", "new", "x.gguf", "--environment", "cartpole", "--kind", "cnn"], "mlp or lstm"),
    ][:: children.STRIDE]:
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


main()
