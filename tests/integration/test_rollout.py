#!/usr/bin/env python3
"""Rollouts: a policy in a vector of environments, both in the daemon. Their bits, beside steps from outside; what is refused, by
field; callers that go away, vectors that are closed and workers that are lost meanwhile.

usage: test_rollout.py PARLEYD WRITE_POLICY PARLEY"""
import os
import subprocess
import sys
import tempfile
import threading

import grpc
import numpy as np

import children
import harness
from children import until
from parley.v1 import act_pb2 as act, act_pb2_grpc, env_pb2 as env, env_pb2_grpc, tensor_pb2  # harness knows where they are

HERE = os.path.dirname(os.path.abspath(__file__))
TYPES = {tensor_pb2.DTYPE_F32: np.float32, tensor_pb2.DTYPE_BOOL: np.bool_, tensor_pb2.DTYPE_I64: np.int64}
FIELDS = ["observation", "action", "logp", "value", "reward", "terminated", "truncated", "reset"]


def array(t):
    return np.frombuffer(t.data, TYPES[t.dtype]).reshape(tuple(t.shape))


class Vector:
    def __init__(self, client, name, count, seed=7):
        self.stub = env_pb2_grpc.EnvStub(client.channel)
        self.n, self.handle = count, self.stub.Open(env.EnvOpenRequest(name=name, count=count, seeds=[seed])).handle

    def begin(self, model="pole", n_steps=40, timeout=children.PATIENCE, **more):
        return self.stub.Rollout.future(env.EnvRolloutRequest(handle=self.handle, model=model, n_steps=n_steps, **more), timeout=timeout)

    def rollout(self, *args, **more):
        answer = self.begin(*args, **more).result()
        return {name: array(getattr(answer, name)) for name in FIELDS}

    def step(self, actions, auto_reset=True):
        action = tensor_pb2.Tensor(dtype=tensor_pb2.DTYPE_I64, shape=[self.n], data=np.asarray(actions, np.int64).tobytes())
        return self.stub.Step(env.EnvStepRequest(handle=self.handle, action=action, auto_reset=auto_reset))


def refused(call, code, *words):
    try:
        call()
    except grpc.RpcError as e:
        assert e.code().name == code, e
        assert all(w in e.details() for w in words), e
        return
    raise AssertionError(f"it is not refused with {code} {words}")


def same(a, b):
    return all(a[name].tobytes() == b[name].tobytes() for name in FIELDS)


def test_bits(client):
    """The same seed gives the same trajectories, alone, in batches of any size and in lock-step; another seed others."""
    modes = act_pb2_grpc.ActStub(client.channel)
    first = Vector(client, "cartpole", 12).rollout(seed=1)
    assert first["observation"].shape == (12, 41, 4) and first["reward"].shape == first["action"].shape == (12, 40)
    assert set(first["action"].ravel()) == {0, 1} and (first["logp"] < 0).all() and first["terminated"].any()
    for mode in [{"mode": act.ACT_MODE_NONE}, {"mode": act.ACT_MODE_DYNAMIC, "max": 5}, {"mode": act.ACT_MODE_LOCKSTEP, "n": 4},
                 {"mode": act.ACT_MODE_AUTO}]:
        modes.Configure(act.ActConfigureRequest(model="pole", **mode))
        assert same(Vector(client, "cartpole", 12).rollout(seed=1), first), mode
    assert not same(Vector(client, "cartpole", 12).rollout(seed=2), first)
    alone = Vector(client, "cartpole", 1).rollout(seed=1)
    assert all(alone[name].tobytes() == first[name][:1].tobytes() for name in FIELDS), "what the others do changes nothing"
    modes.Configure(act.ActConfigureRequest(model="pole", mode=act.ACT_MODE_LOCKSTEP, n=5))
    refused(lambda: Vector(client, "cartpole", 12).rollout(), "FAILED_PRECONDITION", "5 rows in lock-step")
    modes.Configure(act.ActConfigureRequest(model="pole", mode=act.ACT_MODE_AUTO))


def test_steps(client):
    """The environments go where the same actions take them from outside; the next rollout goes on there; an episode's end is
    followed by a reset."""
    v, twin = Vector(client, "cartpole", 6), Vector(client, "cartpole", 6)
    start = array(twin.stub.Reset(env.EnvResetRequest(handle=twin.handle)).observation)
    one, two = v.rollout(n_steps=30, seed=3), v.rollout(n_steps=30, seed=3)
    assert (one["observation"][:, 0] == start).all() and one["action"].tobytes() != two["action"].tobytes(), "each draws anew"
    for part in (one, two):
        for t in range(30):
            if part is two and t == 0:
                over = one["terminated"][:, -1] | one["truncated"][:, -1]
                if over.any():  # a rollout begins with those reset
                    indices = np.flatnonzero(over)
                    twin.stub.Reset(env.EnvResetRequest(handle=twin.handle, indices=indices))
                assert (part["observation"][~over, 0] == one["observation"][~over, -1]).all()
            answer = twin.step(part["action"][:, t])
            assert (array(answer.observation) == part["observation"][:, t + 1]).all() and (array(answer.reward) == part["reward"][:, t]).all()
            assert (array(answer.terminated) == part["terminated"][:, t]).all()
    ends = one["terminated"] | one["truncated"]
    assert ends.any() and (one["reset"][:, 1:] == ends[:, :-1]).all() and not one["reset"][:, 0].any()
    assert (one["reward"][one["reset"]] == 0).all() and (one["reward"][~one["reset"]] == 1).all()
    fresh = v.rollout(n_steps=1, reset=True)["observation"][:, 0]
    assert abs(fresh).max() < 0.05, "all begin an episode"
    greedy = [Vector(client, "cartpole", 4).rollout(greedy=True, seed=s) for s in (1, 2)]
    assert same(*greedy)
    random = Vector(client, "cartpole", 4).rollout(greedy=True, epsilon=[1, 0, 0, 1])
    assert (random["action"][1:3] == greedy[0]["action"][1:3]).all() and (random["action"][::3] != greedy[0]["action"][::3]).any()


def test_memory(client):
    """A recurrent policy goes on where the last rollout ended, with its state: the same bits as in one rollout. Its state is zero where an
    episode begins."""
    whole = Vector(client, "cartpole", 6).begin("memory", 39, greedy=True).result()
    v, state, parts = Vector(client, "cartpole", 6), None, []
    for _ in range(3):
        parts.append(v.begin("memory", 13, greedy=True, state=state).result())
        state = parts[-1].last_state
    ends = array(whole.terminated)
    first = [array(p.state) for p in parts]
    assert first[0].shape == (6, 10) and not first[0].any() and np.array_equal(array(parts[0].last_state), first[1])
    assert ends[:, :12].any(axis=1).all() and not ends[:, [11, 12]].any() and first[1].any(axis=1).all(), "episodes ended, and go on at the border"
    n_compared = 0
    for i in range(6):
        for k, p in enumerate(parts):
            if k > 0 and ends[i, 13 * k - 1]:  # this part begins with the reset, which is a step of the whole
                break
            n_compared += 1
            for name in ("observation", "value", "logp", "action"):
                n = 14 if name == "observation" else 13
                assert array(getattr(p, name))[i].tobytes() == array(getattr(whole, name))[i, 13 * k:13 * k + n].tobytes(), (i, k, name)
    assert n_compared > 12
    without = Vector(client, "cartpole", 6)
    without.begin("memory", 13, greedy=True).result()
    assert not np.array_equal(array(without.begin("memory", 1, greedy=True).result().value)[:, 0], array(parts[1].value)[:, 0])
    assert not array(v.begin("memory", 1, reset=True, state=state).result().state).any()
    pole = v.begin("pole", 1).result()
    assert not pole.HasField("state") and not pole.HasField("last_state")
    for model, shape, value, why in [("memory", [6, 9], 0, "it must have 60"), ("memory", [6, 10], np.nan, "holds nan"), ("pole", [6, 10], 0, "it must have 0")]:
        given = tensor_pb2.Tensor(dtype=tensor_pb2.DTYPE_F32, shape=shape, data=np.full(shape, value, np.float32).tobytes())
        refused(lambda: v.begin(model, 1, state=given).result(), "INVALID_ARGUMENT", "state", why)
    refused(lambda: v.begin("memory", 1, state=tensor_pb2.Tensor(dtype=tensor_pb2.DTYPE_I64, shape=[6, 5], data=bytes(240))).result(),
            "INVALID_ARGUMENT", "state is not of type F32")


def test_refused(client):
    """What is wrong is named; nothing was stepped."""
    v, twin = Vector(client, "cartpole", 4), Vector(client, "cartpole", 4)
    for more, code, *why in [({"n_steps": 0}, "INVALID_ARGUMENT", "n_steps is 0"), ({"n_steps": 65537}, "INVALID_ARGUMENT", "n_steps is 65537"),
                             ({"epsilon": [0.5, 0.5]}, "INVALID_ARGUMENT", "epsilon has 2"), ({"epsilon": [2]}, "INVALID_ARGUMENT", "epsilon has 2"),
                             ({"epsilon": [float("nan")]}, "INVALID_ARGUMENT", "epsilon has nan"), ({"model": "none"}, "NOT_FOUND", "none"),
                             ({"model": "wide"}, "FAILED_PRECONDITION", "takes 5 numbers", "CartPole-v1 has 4"),
                             ({"model": "three"}, "FAILED_PRECONDITION", "has 3 actions", "CartPole-v1 has 2"),
                             ({"model": "echo"}, "FAILED_PRECONDITION", "takes 0 numbers")]:
        refused(lambda: v.rollout(**more), code, *why)
    refused(lambda: Vector(client, "pendulum", 1).rollout(), "FAILED_PRECONDITION", "takes 4 numbers")
    refused(lambda: v.stub.Rollout(env.EnvRolloutRequest(handle=v.handle + 1, model="pole", n_steps=1)), "NOT_FOUND", "handle")
    refused(lambda: Vector(client, "cartpole", 4096).rollout(n_steps=1000), "INVALID_ARGUMENT", "n_steps is 1000", "at most")
    assert same(v.rollout(seed=5), twin.rollout(seed=5))


def test_left(client):
    """Meanwhile the vector is the rollout's; one that is left, past its deadline or whose vector is closed ends, and the vector is
    free again."""
    modes = act_pb2_grpc.ActStub(client.channel)
    v = Vector(client, "cartpole", 2)
    for how in ("cancel", "deadline", "close"):
        modes.Configure(act.ActConfigureRequest(model="pole", mode=act.ACT_MODE_DYNAMIC, min=3, max=3, delay_us=60_000_000))
        left = v.begin(timeout=0.5 if how == "deadline" else children.PATIENCE)  # its batch waits for a third row
        if how != "deadline":  # which comes and goes between its start and here elsewhere
            until("it is under way", lambda: code_of(lambda: v.step([0, 0])) == "FAILED_PRECONDITION")
        if how == "cancel":
            left.cancel()
        elif how == "close":
            v.stub.Close(env.EnvCloseRequest(handle=v.handle))
            modes.Configure(act.ActConfigureRequest(model="pole", mode=act.ACT_MODE_AUTO))
        assert code_of(left.result) == {"cancel": "CANCELLED", "deadline": "DEADLINE_EXCEEDED", "close": "NOT_FOUND"}[how]
        if how != "close":
            until("it is free", lambda: code_of(lambda: v.stub.Reset(env.EnvResetRequest(handle=v.handle))) == "OK")
    assert Vector(client, "cartpole", 2).rollout()["reward"].any()


def test_stop(client):
    """A daemon that stops ends the rollouts that are under way, and does not wait for them."""
    act_pb2_grpc.ActStub(client.channel).Configure(
        act.ActConfigureRequest(model="pole", mode=act.ACT_MODE_DYNAMIC, min=3, max=3, delay_us=600_000_000))
    v = Vector(client, "cartpole", 2)
    left = v.begin()
    until("it is under way", lambda: code_of(lambda: v.step([0, 0])) == "FAILED_PRECONDITION")
    client.daemon.process.terminate()
    assert code_of(left.result) == "UNAVAILABLE"
    assert client.daemon.process.wait() == 0


def code_of(call):
    try:
        call()
    except grpc.FutureCancelledError:
        return "CANCELLED"
    except grpc.RpcError as e:
        return e.code().name
    return "OK"


def test_workers(client):
    """In environments of workers, too; a worker that is killed costs its environments' rows the steps until another one has them, and
    fails the rollout by name if it had all of them; then the next rollout has them back."""
    def worker(*more):
        process = children.start([sys.executable, os.path.join(HERE, "environment_worker.py"), client.address, "theirs", "CartPole-v1", *more],
                                 stdout=subprocess.PIPE, text=True)
        line = process.stdout.readline().strip()
        assert line == "accepted", line
        threading.Thread(target=process.stdout.read, daemon=True).start()
        return process

    one = worker()
    v = Vector(client, "theirs", 4)
    a = v.rollout(n_steps=30, seed=1)
    assert a["terminated"].any() and (a["reward"][~a["reset"]] == 1).all()
    two = worker("kill")  # by the fourth step of its own
    w = Vector(client, "theirs", 4)
    refused(lambda: w.rollout(n_steps=30), "UNAVAILABLE", "environment ", "lost with its worker")
    assert two.wait() == -9
    assert w.rollout(n_steps=30)["reward"].any()
    three = worker("kill", "5")
    x = Vector(client, "theirs", 12)
    answer = x.begin(n_steps=60, seed=3).result()
    got = {name: array(getattr(answer, name)) for name in FIELDS}
    assert three.wait() == -9
    dead = [f.index for f in answer.failures]
    assert 0 < len(dead) < 12 and dead == sorted(set(dead)) and all("lost with its worker" in f.error.message for f in answer.failures), answer.failures
    whole = Vector(client, "theirs", 12).rollout(n_steps=60, seed=3)
    alive = [i for i in range(12) if i not in dead]
    assert all(np.array_equal(got[name][alive], whole[name][alive]) for name in FIELDS), "the others have the bits of a rollout without a loss"
    resets, ends = got["reset"], got["terminated"] | got["truncated"]
    for i in dead:
        lost = [t for t in range(1, 60) if resets[i, t] and not ends[i, t - 1] and not resets[i, t - 1]]
        assert len(lost) == 1 and resets[i, lost[0] + 1], "a step that is none, then the reset at another worker"
        t = lost[0]
        assert all(np.array_equal(got[name][i, :t], whole[name][i, :t]) for name in FIELDS), "before its loss, too"
        assert (got["observation"][i, t + 1] == got["observation"][i, t]).all() and np.abs(got["observation"][i, t + 2]).max() <= 0.05
    assert (got["reward"] == ~resets).all()
    one.kill()
    one.wait()


def main():
    parleyd, write_policy, parley, *wanted = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        models = []
        for name, *shape in [("pole",), ("wide", "5", "2"), ("three", "4", "3")]:
            subprocess.run([write_policy, f"{folder}/{name}.gguf", *shape], check=True)
            models += ["--model", f"{name}={folder}/{name}.gguf"]
        subprocess.run([parley, "policy", "new", f"{folder}/memory.gguf", "--environment", "CartPole-v1", "--kind", "lstm", "--hidden", "5", "--value",
                        "--seed", "2"], check=True, stdout=subprocess.DEVNULL)
        models += ["--model", f"memory={folder}/memory.gguf"]
        for test in (test_bits, test_steps, test_memory, test_refused, test_left, test_workers, test_stop):
            if not wanted or test.__name__ in wanted:
                print(test.__name__, flush=True)
                daemon = harness.Parleyd(parleyd, *models)
                with daemon as client:
                    client.daemon = daemon
                    test(client)


main()
