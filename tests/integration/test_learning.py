#!/usr/bin/env python3
"""Learning in the daemon: short trainings of each kind, from fixed seeds, that must improve, twice with the same bits; what is
refused, by field; the policies' files; and the example client/examples/train.py.

usage: test_learning.py PARLEYD TRAIN_PY PARLEY [TEST…]      (run by the interpreter that has grpcio and numpy; see venv.sh)"""
import contextlib
import fcntl
import hashlib
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import threading

import google_crc32c
import numpy as np

import children
from children import Daemon

sys.path.insert(0, os.environ["PARLEY_PACKAGE"])  # made by venv.sh
import parley  # noqa: E402
import parley.policies  # noqa: E402
from parley.rollouts import Environments, Returns, Rollout, Transition, join, learn, learn_q, transitions  # noqa: E402
from parley.v1 import act_pb2, env_pb2, tensor_pb2  # noqa: E402

PARLEYD, TRAIN, PARLEY = sys.argv[1:4]
TYPES = {tensor_pb2.DTYPE_F32: np.float32, tensor_pb2.DTYPE_BOOL: np.bool_, tensor_pb2.DTYPE_I64: np.int64}
POLICIES = {"pole": dict(observations=4, actions=2), "pendulum": dict(observations=3, actions=1, head="gaussian"),
            "q": dict(observations=4, actions=2, head="duelling", hidden=32), "still": dict(observations=4, actions=2, hidden=8)}


def array(t):
    return np.frombuffer(t.data, TYPES[t.dtype]).reshape(tuple(t.shape))


def tensor(a, dtype=np.float32):
    a = np.asarray(a, dtype)
    return tensor_pb2.Tensor(dtype={v: k for k, v in TYPES.items()}[a.dtype.type], shape=a.shape, data=a.tobytes())


def refused(call, code, *words):
    try:
        call()
    except parley.Error as e:
        assert e.code == code and all(w in str(e) for w in words), e
        return
    raise AssertionError(f"it is not refused with {code} {words}")


def a2c(server, part=1):
    """Learns after each rollout."""
    with Environments(server, "CartPole-v1", 8, seed=1) as environments:
        returns, losses = Returns(8), []
        for _ in range(90 // part):
            steps = environments.rollout("pole", 32, seed=1)
            returns.add(steps)
            losses.append(learn(server, "pole", steps, gamma=0.99, lambda_=0.95, entropy_weight=0.01, learning_rate=0.003,
                                reward_scale=0.1, normalise=True).loss)
    return returns.done, losses


def impala(server, part=1):
    """Two actors' rollouts of one policy, then two steps: the second is of steps that an earlier policy made."""
    vectors = [Environments(server, "CartPole-v1", 4, seed=1 + 100 * i) for i in range(2)]
    returns, losses = [Returns(4), Returns(4)], []
    for _ in range(70 // part):
        made = [v.rollout("pole", 32, seed=i) for i, v in enumerate(vectors)]
        for r, steps in zip(returns, made):
            r.add(steps)
        for part in (join(made), made[0]):
            losses.append(learn(server, "pole", part, off_policy=True, gamma=0.99, entropy_weight=0.01, learning_rate=0.003,
                                reward_scale=0.1, normalise=True).loss)
    return [d for both in zip(returns[0].done, returns[1].done) for d in both], losses


def pendulum(server, part=1):
    """A Gaussian head, by PPO."""
    with Environments(server, "Pendulum-v1", 32, seed=1) as environments:
        returns, losses = Returns(32), []
        for _ in range(14 // part):
            steps = environments.rollout("pendulum", 100, seed=1)
            returns.add(steps)
            for _ in range(8):
                losses.append(learn(server, "pendulum", steps, off_policy=True, **PENDULUM).loss)
    return returns.done, losses


PENDULUM = dict(gamma=0.9, lambda_=0.95, reward_scale=0.1, learning_rate=0.002, max_gradient_norm=0.5, normalise=True, clip=0.2, rho_max=2)


def dqn(server, part=1):
    """Double, duelling, three steps ahead, from a buffer of ours; actors explore by epsilons of their own."""
    chance, n, kept = random.Random(1), 8, []
    with Environments(server, "CartPole-v1", n, seed=1) as environments:
        returns, losses = Returns(n), []
        for round in range(120 // part):
            steps = environments.rollout("q", 16, seed=1, epsilon=[0.4 ** (1 + 2 * i / n) for i in range(n)])
            returns.add(steps)
            kept += transitions(steps, 3, reward_scale=0.1)
            for step in range(4):
                batch = [chance.choice(kept) for _ in range(64)]
                errors = learn_q(server, "q", batch, weights=[1] * 64, move_target=step == 0 and round % 8 == 0, learning_rate=0.002)
                losses.append(sum(e * e for e in errors))
    return returns.done, losses


def test_transitions(_):
    """By their definition, over ends, cuts and resets, and at the rollout's edge."""
    chance = np.random.default_rng(3)
    shape, ahead, gamma = (3, 20), 3, 0.9
    seen, reward = chance.normal(size=(3, 21, 2)).astype(np.float32), chance.normal(size=shape).astype(np.float32)
    terminated, truncated, reset = np.zeros(shape, bool), np.zeros(shape, bool), np.zeros(shape, bool)
    terminated[0, 4] = truncated[1, 7] = terminated[2, 19] = reset[0, 5] = reset[1, 8] = True
    action = chance.integers(2, size=shape)
    steps = Rollout(observation=tensor(seen), action=tensor(action, np.int64), reward=tensor(reward), terminated=tensor(terminated, np.bool_),
                    truncated=tensor(truncated, np.bool_), reset=tensor(reset, np.bool_))
    found = list(transitions(steps, ahead, gamma))
    at = [(i, t) for i in range(3) for t in range(18) if not reset[i, t]]
    assert len(found) == len(at)
    for (i, t), got in zip(at, found):
        k = next((k for k in range(1, ahead) if terminated[i, t + k - 1] or reset[i, t + k]), ahead)
        total = sum(gamma ** j * float(reward[i, t + j]) for j in range(k))
        assert got.action == action[i, t] and abs(got.reward - total) < 1e-6
        assert abs(got.discount - (0 if terminated[i, t:t + k].any() else gamma ** k)) < 1e-9
        assert got.observation == seen[i, t].tobytes() and got.next_observation == seen[i, t + k].tobytes(), (i, t)


def test_they_improve(folder):
    """Each is better at the end than at the start, and its beginning happens again from the same seeds."""
    for work, better in [(a2c, lambda first, last: last > 2.5 * first), (impala, lambda first, last: last > 2.5 * first),
                         (pendulum, lambda first, last: last > first + 100), (dqn, lambda first, last: last > 2.5 * first)]:
        runs = []
        for part in (1, 5):
            with daemon(folder) as d, parley.connect(d.address) as server:
                runs.append(work(server, part))
        (done, losses), (again, repeated) = runs
        first, last = np.mean(done[:30]), np.mean(done[-30:])
        print(f"{work.__name__}: {len(done)} episodes, {first:.1f} to {last:.1f}", flush=True)
        assert better(first, last), (work.__name__, first, last)
        assert repeated and losses[:len(repeated)] == repeated and done[:len(again)] == again, f"{work.__name__} is not the same again"
        assert all(np.isfinite(losses))


def test_lost_rows(_):
    """Of rollouts with environments whose workers were lost: joined, they keep their places; an episode that was lost has no return."""
    def bools(*rows):
        return tensor(rows, np.bool_)

    one = Rollout(reward=tensor([[1, 1, 0, 0, 1], [1, 1, 1, 1, 1]]), terminated=bools([0, 0, 0, 0, 1], [0, 0, 0, 0, 1]), truncated=bools([0] * 5, [0] * 5),
                  reset=bools([0, 0, 1, 1, 0], [0] * 5), failures=[env_pb2.EnvFailure(index=1)])
    both = join([one, one])
    assert [f.index for f in both.failures] == [1, 3] and list(both.reward.shape) == [4, 5]
    returns = Returns(4)
    returns.add(both)
    assert returns.done == [1, 5, 1, 5] and returns.steps == 20


def test_refused(folder):
    """What is wrong is named, and the parameters are as before."""
    with daemon(folder) as d, parley.connect(d.address) as server, Environments(server, "CartPole-v1", 2, seed=1) as environments:
        steps = environments.rollout("still", 5)
        start = environments.rollout("still", 5, reset=True, seed=9).first_params_version

        def wrong(model="still", **fields):
            good = {name: getattr(steps, name) for name in ("observation", "action", "reward", "terminated", "reset", "logp")}
            what = act_pb2.ActTrajectories(**{**good, **fields})
            return lambda: server.links[0].once("Act/Learn", act_pb2.ActLearnRequest(model=model, trajectories=what), act_pb2.ActLearnResponse)

        for fields, code, *words in [
                ({"reward": tensor(np.zeros((2, 0)))}, "INVALID_ARGUMENT", "reward"), ({"reward": tensor(np.zeros(10))}, "INVALID_ARGUMENT", "reward"),
                ({"observation": tensor(np.zeros((2, 5, 4)))}, "INVALID_ARGUMENT", "observation is f32[2,5,4], it must be f32[2,6,4]"),
                ({"action": tensor(np.full((2, 5), 2), np.int64)}, "INVALID_ARGUMENT", "action has the action 2 at 0"),
                ({"action": tensor(np.zeros((2, 5)))}, "INVALID_ARGUMENT", "action is f32[2,5]"),
                ({"logp": tensor(np.full((2, 5), np.nan))}, "INVALID_ARGUMENT", "logp holds nan"),
                ({"reset": tensor(np.ones((2, 5)), np.bool_)}, "INVALID_ARGUMENT", "nothing to learn from"),
                ({"terminated": None}, "INVALID_ARGUMENT", "terminated is missing"), ({"gamma": 2}, "INVALID_ARGUMENT", "gamma is 2"),
                ({"model": "q"}, "FAILED_PRECONDITION", "softmax or a gaussian"), ({"model": "nobody"}, "NOT_FOUND", "nobody")]:
            refused(wrong(**fields), code, *words)
        refused(lambda: learn(server, "still", steps, learning_rate=-1), "INVALID_ARGUMENT", "learning_rate")
        refused(lambda: learn(server, "still", steps, save_path="/tmp/elsewhere.gguf"), "PERMISSION_DENIED", "save_path")
        refused(lambda: server.links[0].once("Act/Learn", act_pb2.ActLearnRequest(model="still"), act_pb2.ActLearnResponse), "INVALID_ARGUMENT",
                "transitions are missing")
        train = act_pb2.ActTrainRequest(model="still", observers=1, episodes=1, value_weight=-1)
        refused(lambda: next(iter_of(server, train)), "INVALID_ARGUMENT", "value_weight is -1")
        refused(lambda: next(iter_of(server, act_pb2.ActTrainRequest(model="q", observers=1, episodes=1))), "FAILED_PRECONDITION", "Train")
        assert environments.rollout("still", 5, reset=True).first_params_version == start
        saved = os.path.join(folder, "saved.gguf")
        assert learn(server, "still", steps, save_path=saved).params_version == start + 1 and os.path.getsize(saved) > 0
        # An explicit zero is a zero, and not the default: a rate of 0 moves nothing, so that losses can be compared.
        def loss(**more):
            return learn(server, "still", steps, learning_rate=0, **more).loss

        plain = loss()
        for name, default in (("gamma", 1), ("lambda_", 1), ("rho_max", 1), ("c_max", 1), ("value_weight", 0.5)):
            assert loss(**{name: default}) == plain, name
            assert loss(**{name: 0}) != plain, name


def test_priorities(folder):
    """Drawn by priority from a table, with importance weights, and priorities from the errors: these shrink, and are what is drawn by."""
    columns = {"observation": ("f4", (4,)), "action": ("i8", ()), "reward": ("f4", ()), "discount": ("f4", ()), "next_observation": ("f4", (4,))}
    with daemon(folder) as d, parley.connect(d.address) as server, Environments(server, "CartPole-v1", 16, seed=1) as environments:
        replay = parley.Replay(server, "steps", columns, sampler="prioritized", seed=1)
        made = list(transitions(environments.rollout("q", 64, seed=1, epsilon=[1.0] * 16), 3, reward_scale=0.1))
        replay.insert_all({name: np.array([np.frombuffer(getattr(t, name), "f4") if shape else getattr(t, name) for t in made])
                           for name, (_, shape) in columns.items()})
        means, last = [], {}
        for _ in range(150):
            batch = replay.sample(64)
            known = np.array([key in last for key in batch.keys])
            assert np.allclose(batch.priorities[known], [last[key] for key in batch.keys[known]])
            weights = batch.weights(0.4)
            steps = [Transition(o.tobytes(), int(a), float(r), float(c), s.tobytes()) for o, a, r, c, s in zip(*(batch[name] for name in columns))]
            errors = np.abs(learn_q(server, "q", steps, weights=weights, move_target=False, learning_rate=0.002))
            assert replay.update_priorities(batch, errors) == 64
            last.update(zip(batch.keys, errors))
            means.append(float(errors.mean()))
        first, end = np.mean(means[:10]), np.mean(means[-10:])
        print(f"errors: {first:.3f} to {end:.3f}, {len(last)} of {len(made)} drawn", flush=True)
        assert end < first / 2
        mean = np.mean(list(last.values()))
        assert replay.sample(1000).priorities.mean() > 1.2 * mean, "those of great errors are drawn more often"


def iter_of(server, request):
    stream = server.links[0].stream("Act/Train", request, act_pb2.ActTrainEvent)
    try:
        yield from stream
    except Exception as e:
        raise parley.wire.error_of(e) from None


def test_example(folder):
    """`./run train`'s script reaches what it is told to, and draws the curve. apex, which takes minutes under a sanitizer, has played."""
    for way in ("a2c", "a3c", "apex", "impala"):
        plot = os.path.join(folder, f"{way}.svg")
        done = children.run([sys.executable, TRAIN, way, "--parleyd", PARLEYD, "--until", "9" if way == "apex" else "40", "--steps", "400000", "--actors", "2",
                             "--plot", plot], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.environ["PARLEY_PACKAGE"]})
        assert done.returncode == 0 and "steps/s" in done.stderr, (way, done.stdout, done.stderr)
        print(done.stdout.strip(), flush=True)
        assert "<polyline" in open(plot).read()


CORRIDOR = """import gymnasium, numpy as np
class Corridor(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2, 2)), gymnasium.spaces.Box(-1, 1, (2,))
    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros((2, 2), np.float32), {}
    def step(self, action):
        self.t += 1
        return np.full((2, 2), self.t / 10, np.float32), float(-np.abs(action).sum()), self.t == 10, False, {}
"""


# Its rewards depend on its seed. It kills itself's process ("trainer") or that process's daemon, as the file $DOOM says: so many steps of a
# process of its own, and whom; a line that was carried out is taken away before.
DOOMED = """import gymnasium, numpy as np, os, signal
steps = 0
def die():
    global steps
    steps += 1
    path = os.environ.get("DOOM", "/dev/null")
    first, _, rest = open(path).read().partition("\\n")
    if not first or steps != int(first.split()[0]):
        return
    open(path, "w").write(rest)
    if first.endswith("trainer"):
        os.kill(os.getpid(), signal.SIGKILL)
    for pid in open(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read().split():
        os.kill(int(pid), signal.SIGKILL)
class Doomed(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}
    def step(self, action):
        die()
        self.t += 1
        return self.np_random.random(2, np.float32), float(self.np_random.random() - action), self.t == 7, False, {}
"""


def has(server, name):
    try:
        Environments(server, name, 1).close()
        return True
    except parley.Error as e:
        assert "is attached" in e.message, e
        return False


def ends_with(serve):
    """A worker whose daemon goes is to say nothing."""
    with contextlib.suppress(parley.Error):
        serve()


def test_runs(folder):
    """The example's runs: one whose daemon, trainer and worker are killed comes to the bytes of one that is not disturbed; other options are
    refused; an environment of gymnasium and one of a file, and what TensorBoard reads of them."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([os.environ["PARLEY_PACKAGE"], folder]), "PARLEY_PYTHON": sys.executable}
    with open(os.path.join(folder, "doomed.py"), "w") as f:
        f.write(DOOMED)

    def command(run, environment, *more, way="ppo"):
        return [PARLEY, "train", way, "--env", environment, "--run", os.path.join(folder, run), "--chapter", "2", "--envs", "2", "--n-steps", "4",
                "--steps", "200", *more]

    def learned(done, run):
        """The last file, which is the one whose hash was printed."""
        sha256, path = done.stdout.split("\n")[-2].split("  ")
        assert os.path.dirname(path) == os.path.join(folder, run)
        assert [f for f in os.listdir(os.path.join(folder, run)) if f.startswith("chapter-")] == [os.path.basename(path)]
        with open(path, "rb") as f:
            data = f.read()
        assert hashlib.sha256(data).hexdigest() == sha256, done
        return os.path.basename(path), data

    def trained(arguments, doom=""):
        """doom: what kills whom at which step of the environments."""
        with open(os.path.join(folder, "doom"), "w") as f:
            f.write(doom)
        return children.run(arguments, stdout=-1, stderr=-1, text=True, env={**env, "DOOM": os.path.join(folder, "doom")})

    def is_carried_out():
        with open(os.path.join(folder, "doom")) as f:
            return f.read() == ""

    of_file = os.path.join(folder, "doomed.py:Doomed")
    done = trained(command("whole", of_file))
    assert done.returncode == 0, done
    whole = learned(done, "whole")
    assert whole[0] == "chapter-4.gguf", whole[0]
    done = trained(command("killed", of_file), "70 daemon\n100 trainer\n")
    assert done.returncode == -signal.SIGKILL and "goes on from chapter 1" in done.stderr and is_carried_out(), done
    with open(os.path.join(folder, "killed", "lock"), "a") as lock:  # as another process that uses the folder
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = children.start(command("killed", of_file), stdout=-1, stderr=-1, text=True, env={**env, "DOOM": os.path.join(folder, "doom")})
        assert any("this one waits" in line for line in second.stderr)
    out, errors = second.communicate()
    done = subprocess.CompletedProcess(second.args, second.returncode, out, errors)
    assert done.returncode == 0 and learned(done, "killed") == whole, done
    with Daemon(PARLEYD) as other, parley.connect(other.address) as server:
        serve = [sys.executable, "-c", f"import doomed, parley; parley.serve(parley.environment('Doomed')(doomed.Doomed), '{other.address}')"]
        workers = [children.start(serve, env={**env, "DOOM": os.path.join(folder, "doom")})]

        def replace():
            workers[0].wait()
            workers.append(children.start(serve, env=env))
            workers[1].wait()  # a process dies with the thread that has started it

        children.until("the environment is attached", lambda: has(server, "Doomed"))
        replacing = threading.Thread(target=replace)
        replacing.start()
        done = trained(command("attached", "attached:Doomed", "--address", other.address), "70 trainer\n")
        assert done.returncode == 0 and "goes on from chapter 1" in done.stderr and learned(done, "attached") == whole and is_carried_out(), done
        workers[1].kill()
        replacing.join()
    a2c = [trained(command("a2c", of_file, way="a2c")) for _ in range(2)]  # the second has nothing left to do
    assert [done.returncode for done in a2c] == [0, 0] and learned(a2c[0], "a2c") == learned(a2c[1], "a2c") != whole, a2c
    other = children.run(command("killed", of_file, "--seed", "5"), stderr=-1, text=True, env=env)
    assert other.returncode == 1 and "a run of other options" in other.stderr, other
    with open(os.path.join(folder, "corridor.py"), "w") as f:
        f.write(CORRIDOR)
    for way, what in ("ppo", f"{folder}/corridor.py:Corridor"), ("dqn", "gymnasium:Acrobot-v1"):
        events = os.path.join(folder, "events", way)
        done = children.run([PARLEY, "train", *([way] if way != "ppo" else []), "--env", what, "--steps", "1500", "--envs", "4", "--tensorboard", events], stderr=-1, text=True, env=env)
        assert done.returncode in (0, 1) and "steps" in done.stderr and "Error" not in done.stderr, done
        (name,) = os.listdir(events)
        (file,) = os.listdir(os.path.join(events, name))
        with open(os.path.join(events, name, file), "rb") as f:
            data = f.read()
        at, records = 0, []
        while at < len(data):  # TFRecord
            n, crc = struct.unpack_from("<QI", data, at)
            body, after = data[at + 12:at + 12 + n], struct.unpack_from("<I", data, at + 12 + n)[0]
            for checked, said in (data[at:at + 8], crc), (body, after):
                plain = google_crc32c.value(checked)
                assert said == ((plain >> 15 | plain << 17) + 0xA282EAD8) % (1 << 32)
            records.append(body)
            at += 16 + n
        assert b"brain.Event:2" in records[0] and (way == "dqn" or b"mean_return" in records[-1])
        # the start of a session, at the step of the first values: behind a kill TensorBoard forgets what was there from this step on
        assert len(records) == 1 or records[1].endswith(b"\x3a\x02\x08\x01") and records[2][9:].startswith(records[1][9:-4]), records[:3]
    with Daemon(PARLEYD) as other, parley.connect(other.address) as server:
        attached = ["--address", other.address]
        defined = {}
        exec(CORRIDOR, defined)
        threading.Thread(target=lambda: ends_with(lambda: parley.serve(parley.environment("Corridor-v0")(defined["Corridor"]), other.address)), daemon=True).start()
        children.until("the environment is attached", lambda: has(server, "Corridor-v0"))
        done = children.run([PARLEY, "train", "ppo", "--env", "attached:Corridor-v0", *attached, "--steps", "300", "--envs", "2"],
                            stderr=-1, text=True, env=env)
        assert done.returncode in (0, 1) and "steps" in done.stderr and "Error" not in done.stderr, done
        for what, words in (["nowhere"], "is none of"), (["gymnasium:Nowhere-v0"], "doesn't exist"), (["nowhere.py:A"], "No such file"), \
                (["attached:Corridor-v0"], "--address HOST:PORT"), (["attached:Nowhere-v0", *attached], "no worker that offers it is attached"):
            done = children.run([sys.executable, TRAIN, "a2c", "--parleyd", PARLEYD, "--env", *what], stderr=-1, text=True, env=env)
            assert done.returncode == 1 and words in done.stderr and "Traceback" not in done.stderr, done


RECALL = """import gymnasium, numpy as np
class Recall(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cue, self.t = int(self.np_random.integers(2)), 0
        return np.array([2 * self.cue - 1, 0], np.float32), {}
    def step(self, action):
        self.t += 1
        return np.array([0, self.t == 3], np.float32), float(self.t == 4 and action == self.cue), self.t == 4, False, {}
"""


def test_recall(folder):
    """What only the first observation says, a policy with an LSTM learns to do three steps later; one without one does it half of the time."""
    env = {**os.environ, "PYTHONPATH": os.environ["PARLEY_PACKAGE"], "PARLEY_PYTHON": sys.executable}
    with open(os.path.join(folder, "recall.py"), "w") as f:
        f.write(RECALL)
    ways = [("lstm", 0, "40000"), ("mlp", 1, "6000")] if children.STRIDE == 1 else [("lstm", 1, "600")]  # sanitized, it has played
    for kind, code, steps in ways:
        done = children.run([PARLEY, "train", "ppo", "--env", f"{folder}/recall.py:Recall", "--kind", kind, "--until", "0.9",
                             "--reward-scale", "1", "--steps", steps], capture_output=True, text=True, env=env)
        print(done.stdout.strip(), flush=True)
        assert done.returncode == code, (kind, done.stdout, done.stderr)
    done = children.run([sys.executable, TRAIN, "dqn", "--kind", "lstm"], stderr=-1, text=True, env=env)
    assert done.returncode == 2 and "single steps, which have no history" in done.stderr, done
    for name, path, why in ("PARLEY_PYTHON", "/nowhere", "cannot start /nowhere"), ("PYTHONPATH", folder, "has no module"):
        done = children.run([PARLEY, "train", "ppo"], stderr=-1, text=True, env={**env, name: path})
        assert done.returncode == 1 and why in done.stderr and "PARLEY_PYTHON" in done.stderr, done


def test_files(folder):
    """`parley policy new` and parley.policies.create write the same bytes; what is wrong is a ValueError, and no file."""
    for i, (flags, shape) in enumerate([
            ("", dict(observations=4, actions=2, hidden=128, layers=1, value=False, seed=0)),
            ("--hidden 70 --layers 3 --value --seed 18446744073709551615 --dropout 0.3",
             dict(observations=5, actions=3, hidden=70, layers=3, dropout=0.3, seed=2**64 - 1)),
            ("--kind lstm --hidden 9 --value --environment Corridor-v0", dict(observations=1, actions=2, kind="lstm", hidden=9, seed=0,
                                                                             environment="Corridor-v0")),
            ("--head gaussian --hidden 64 --layers 2 --value --seed 1", dict(observations=3, actions=1, head="gaussian")),
            ("--head duelling --hidden 64 --layers 2 --value --seed 7", dict(observations=4, actions=2, head="duelling", seed=7))]):
        mine, theirs = (os.path.join(folder, f"{i}-{who}.gguf") for who in ("mine", "theirs"))
        parley.policies.create(mine, **shape)
        sizes = ["--observations", str(shape["observations"]), "--actions", str(shape["actions"])]
        children.run([PARLEY, "policy", "new", theirs, *sizes, *flags.split()], check=True, capture_output=True)
        assert open(mine, "rb").read() == open(theirs, "rb").read(), shape
    shown = os.path.join(folder, "of-pendulum.gguf")
    children.run([PARLEY, "policy", "new", shown, "--environment", "pendulum", "--head", "gaussian"], check=True, capture_output=True)
    for bad in (dict(head="linear"), dict(kind="cnn"), dict(head="duelling", value=False), dict(kind="lstm", layers=2), dict(dropout=1.0),
                dict(actions=1), dict(observations=0), dict(seed=-1), dict(layers=0)):
        try:
            parley.policies.create(os.path.join(folder, "bad.gguf"), **{"observations": 4, "actions": 2, **bad})
            raise AssertionError(f"it is written: {bad}")
        except ValueError:
            assert not [name for name in os.listdir(folder) if name.startswith("bad")]
    for flags, why in (["--head", "linear"], "softmax, gaussian or duelling"), (["--head", "gaussian"], "CartPole-v1 takes no numbers"):
        done = children.run([PARLEY, "policy", "new", os.path.join(folder, "bad.gguf"), "--environment", "cartpole", *flags],
                            capture_output=True, text=True)
        assert done.returncode == 2 and why in done.stderr, done


def test_lost_device(folder):
    """A lesson on a GPU that fails, and that no reset heals, ends the daemon as a step does: a supervisor starts it anew."""
    if "PARLEY_CUDA_MODULE" not in os.environ:
        return
    path = os.path.join(folder, "still.gguf")
    parley.policies.create(path, seed=1, **POLICIES["still"])
    os.environ |= {"CUDA_HOST_FAIL": "4000:700", "CUDA_HOST_RESET": "700"}
    lost = Daemon(PARLEYD, "--backend", "cuda", "--model", f"still={path}")
    try:
        with lost, parley.connect(lost.address) as server:
            with Environments(server, "CartPole-v1", 2, seed=1) as environments:
                steps = environments.rollout("still", 4, seed=1)
            for _ in range(1000):
                learn(server, "still", steps, off_policy=True)
            raise ValueError("the device does not fail")
    except (AssertionError, parley.Error) as error:
        assert lost.process.wait(children.PATIENCE) == 1, error
        assert sum("model 'still': the GPU failed and this process cannot use it again" in line for line in lost.said) == 1, lost.said
    finally:
        del os.environ["CUDA_HOST_FAIL"], os.environ["CUDA_HOST_RESET"]


def daemon(folder):
    models = []
    for name, shape in POLICIES.items():
        path = os.path.join(folder, f"{name}.gguf")
        parley.policies.create(path, seed=1, **shape)
        models += ["--model", f"{name}={path}"]
    return Daemon(PARLEYD, *models)


def main():
    for test in (test_files, test_transitions, test_they_improve, test_lost_rows, test_refused, test_priorities, test_example, test_runs, test_recall, test_lost_device):
        if not sys.argv[4:] or test.__name__ in sys.argv[4:]:
            print(test.__name__, flush=True)
            with tempfile.TemporaryDirectory() as folder:
                test(folder)


main()
