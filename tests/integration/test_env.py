#!/usr/bin/env python3
"""Env: vectors of environments, built in, plugged in and of attached workers, beside gymnasium; workers that are lost and replaced; what is
refused, by field; hostile workers.

usage: test_env.py PARLEYD MOUNTAIN_CAR.so ENVIRONMENT_HOST [TEST…]      (run by the interpreter that has grpcio and the stubs; see venv.sh)"""
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading

import grpc
import gymnasium
import numpy as np

import children
import harness
from children import until
from parley.v1 import agents_pb2 as agents, agents_pb2_grpc, env_pb2 as env, env_pb2_grpc, tensor_pb2  # harness knows where they are

HERE = os.path.dirname(os.path.abspath(__file__))
F32, BOOL, I64 = tensor_pb2.DTYPE_F32, tensor_pb2.DTYPE_BOOL, tensor_pb2.DTYPE_I64
TYPES = {F32: np.float32, BOOL: np.bool_, I64: np.int64}


def array(t):
    return np.frombuffer(t.data, TYPES[t.dtype]).reshape(tuple(t.shape))


def tensor(a, dtype=None):
    a = np.asarray(a, dtype)
    return tensor_pb2.Tensor(dtype={v: k for k, v in TYPES.items()}[a.dtype.type], shape=a.shape, data=a.tobytes())


class Vector:
    def __init__(self, client, name, count, seeds=()):
        self.stub = env_pb2_grpc.EnvStub(client.channel)
        self.info = self.stub.Open(env.EnvOpenRequest(name=name, count=count, seeds=seeds))
        self.handle = self.info.handle

    def reset(self, indices=(), seeds=()):
        return self.stub.Reset(env.EnvResetRequest(handle=self.handle, indices=indices, seeds=seeds), timeout=children.PATIENCE)

    def begin(self, action, indices=(), auto_reset=False):
        return self.stub.Step.future(env.EnvStepRequest(handle=self.handle, indices=indices, auto_reset=auto_reset,
                                                        action=tensor(action, None if isinstance(action, np.ndarray) else np.int64)),
                                     timeout=children.PATIENCE)

    def step(self, *args, **more):
        return self.begin(*args, **more).result()

    def close(self):
        self.stub.Close(env.EnvCloseRequest(handle=self.handle))


class Worker:
    """A process of environment_worker.py; `said` is what it printed."""

    def __init__(self, client, name, kind="CartPole-v1", *more):
        self.process = children.start([sys.executable, os.path.join(HERE, "environment_worker.py"), client.address, name, kind, *more],
                                      stdout=subprocess.PIPE, text=True)
        self.said = []
        threading.Thread(target=self.listen, daemon=True).start()
        until("it is attached", lambda: "accepted" in self.said, self.process)

    def listen(self):
        for line in self.process.stdout:
            self.said.append(line.strip())


def refused(call, code, *words):
    try:
        call()
    except grpc.RpcError as e:
        assert e.code().name == code, e
        assert all(w in e.details() for w in words), e
        return
    raise AssertionError(f"it is not refused with {code} {words}")


def test_built_in(parleyd):
    """Seeds decide episodes; a subset is stepped; an episode that is over is refused until it is reset, alone or by auto_reset."""
    with harness.Parleyd(parleyd) as client:
        a, b = Vector(client, "cartpole", 5, [7]), Vector(client, "CartPole-v1", 5, [7, 8, 9, 10, 11])
        assert (a.info.name, a.info.observations, a.info.actions, a.info.action_numbers) == ("CartPole-v1", 4, 2, 0)
        first = array(a.reset().observation)
        assert first.shape == (5, 4) and (first == array(b.reset().observation)).all() and len({tuple(row) for row in first}) == 5
        refused(lambda: Vector(client, "cartpole", 5).step([0] * 5), "FAILED_PRECONDITION", "environment 0 was not reset yet")
        some = a.step([1, 0], indices=[4, 1])
        assert (array(some.observation) == array(b.step([0, 1], indices=[1, 4]).observation)[::-1]).all()
        assert array(some.reward).tolist() == [1, 1] and not some.failures
        over, n = a.step([1] * 5), 0
        while not array(over.terminated).any():
            over, n = a.step([1] * 5), n + 1
        ended = int(np.flatnonzero(array(over.terminated))[0])
        refused(lambda: a.step([1] * 5), "FAILED_PRECONDITION", f"the episode of environment {ended} is over")
        others = [i for i in range(5) if not array(over.terminated)[i]]
        if others:
            a.step([0] * len(others), indices=others)
        again = a.step([1] * 5, auto_reset=True)
        assert array(again.reward)[ended] == 0 and abs(array(again.observation)[ended]).max() < 0.05
        assert (array(a.reset(seeds=[7, 8, 9, 10, 11]).observation) == first).all()
        assert (array(a.reset(indices=[2]).observation) != first[2]).any(), "the seed's second episode"
        pendulum = Vector(client, "pendulum", 3, [1])
        pendulum.reset()
        answer = pendulum.step(np.array([[1], [-2], [9]], np.float32))
        assert array(answer.observation).shape == (3, 3) and (array(answer.reward) < 0).all()
        grid = Vector(client, "GridWorld-v0", 2)
        grid.reset()
        for action in range(4):
            grid.step([action, 0], auto_reset=True)
        a.close()
        refused(a.reset, "NOT_FOUND", "handle")


def test_plugged_in(parleyd):
    """The example of a plug-in goes through gymnasium's episodes; its name is nobody else's; it needs no agent beside it."""
    plugin = sys.argv[2]
    with harness.Parleyd(parleyd, "--plugin", plugin) as client:
        vector = Vector(client, "MountainCar-v0", 3, [5])
        assert (vector.info.observations, vector.info.actions, vector.info.action_numbers) == (2, 3, 0), vector.info
        peers = [gymnasium.make("MountainCar-v0") for _ in range(3)]
        begun = array(vector.reset().observation)
        assert len(set(begun[:, 0])) == 3 and (abs(begun[:, 0] + 0.5) <= 0.1).all() and (begun[:, 1] == 0).all(), begun
        for peer, first in zip(peers, begun):
            peer.reset()
            peer.unwrapped.state = tuple(map(float, first))
        random, n_ended = np.random.default_rng(1), 0
        for step in range(200):
            actions = random.integers(0, 3, 3)
            if step > 0:
                actions[0] = 2 if seen[0, 1] >= 0 else 0  # along with its speed: it arrives
            got = vector.step(actions, auto_reset=False) if n_ended == 0 else vector.step(actions[1:], [1, 2])
            rows = range(3) if n_ended == 0 else range(1, 3)
            seen = np.zeros((3, 2)) if n_ended else array(got.observation)
            for at, row in enumerate(rows):
                theirs, reward, terminated, truncated, _ = peers[row].step(int(actions[row]))
                mine = array(got.observation)[at]
                assert np.allclose(mine, theirs, atol=1e-6), (step, row, mine, theirs)
                assert (array(got.reward)[at], array(got.terminated)[at], array(got.truncated)[at]) == (reward, terminated, truncated), step
                n_ended += row == 0 and terminated
        assert n_ended == 1
        refused(lambda: vector.step([0, 0, 0]), "FAILED_PRECONDITION", "the episode of environment 0 is over")
        assert (array(Vector(client, "MountainCar-v0", 3, [5]).reset().observation) == begun).all()
        again = vector.reset()
        assert (array(again.observation) != begun).any(axis=1).all()  # the series' next episodes
        taken = Host(client, name="MountainCar-v0", observations=2, actions=3).error
        assert taken.code().name == "ALREADY_EXISTS" and "'MountainCar-v0' is an environment that is built in, by a plug-in" in taken.details(), taken
        assert [m.name for m in client.models.List(harness.models.ModelsListRequest()).models] == ["echo"]
    twice = children.run([parleyd, "--check", "--plugin", plugin, "--plugin", f"again={plugin}"], capture_output=True, text=True)
    assert twice.returncode == 1 and twice.stderr.count("\n") == 1 and "an environment is called 'MountainCar-v0' already" in twice.stderr, twice


def test_refused(parleyd):
    """Bad names, counts, indices, shapes and numbers: a status that names the field, and nothing was stepped."""
    with harness.Parleyd(parleyd) as client:
        v, p = Vector(client, "cartpole", 4, [1]), Vector(client, "pendulum", 2, [1])
        seen = v.reset(), p.reset()
        for name, count, seeds, code, why in [("nothing", 1, (), "NOT_FOUND", "CartPole-v1"), ("cartpole", 0, (), "INVALID_ARGUMENT", "count"),
                                              ("cartpole", 4097, (), "INVALID_ARGUMENT", "count"),
                                              ("cartpole", 3, (1, 2), "INVALID_ARGUMENT", "seeds"), ("x" * 500, 1, (), "NOT_FOUND", "name")]:
            refused(lambda: Vector(client, name, count, seeds), code, why)
        for vector, action, indices, code, why in [
                (v, [0] * 3, (), "INVALID_ARGUMENT", "action"), (v, [0, 0, 0, 2], (), "INVALID_ARGUMENT", "action has 2 at 3"),
                (v, [0, -1, 0, 0], (), "INVALID_ARGUMENT", "action has -1 at 1"), (v, np.zeros(4, np.float32), (), "INVALID_ARGUMENT", "action"),
                (v, [[0] * 4], (), "INVALID_ARGUMENT", "action"), (v, [0], (4,), "OUT_OF_RANGE", "indices has 4"),
                (v, [0, 0], (1, 1), "INVALID_ARGUMENT", "indices has 1 twice"), (v, [0] * 5, (0, 1, 2, 3, 0), "INVALID_ARGUMENT", "indices has 5"),
                (v, [0], (2**32 - 1,), "OUT_OF_RANGE", "indices"), (p, [0, 0], (), "INVALID_ARGUMENT", "action"),
                (p, np.array([[0], [np.nan]], np.float32), (), "INVALID_ARGUMENT", "action holds nan at 1"),
                (p, np.array([[np.inf], [0]], np.float32), (), "INVALID_ARGUMENT", "action holds inf at 0")]:
            refused(lambda: vector.step(action, indices=indices), code, why)
        refused(lambda: v.stub.Step(env.EnvStepRequest(handle=v.handle)), "INVALID_ARGUMENT", "action is missing")
        refused(lambda: v.reset(seeds=[1, 2]), "INVALID_ARGUMENT", "seeds has 2")
        refused(lambda: v.stub.Reset(env.EnvResetRequest(handle=v.handle + 1)), "NOT_FOUND", "handle")
        twin = Vector(client, "cartpole", 4, [1])
        assert twin.reset() == seen[0] and twin.step([0] * 4) == v.step([0] * 4), "what was refused has changed nothing"


def test_workers(parleyd):
    """The environments of two workers are gymnasium's, step for step; a worker that is killed in mid-batch fails its own, which
    a reset brings back on another."""
    with harness.Parleyd(parleyd) as client:
        refused(lambda: Vector(client, "theirs", 4), "NOT_FOUND", "no worker that offers it")
        one, two = Worker(client, "theirs"), Worker(client, "theirs", "CartPole-v1", "kill")
        v = Vector(client, "theirs", 6, [40])
        theirs = [gymnasium.make("CartPole-v1") for _ in range(6)]
        assert (array(v.reset().observation) == [e.reset(seed=40 + i)[0] for i, e in enumerate(theirs)]).all()
        for _ in range(3):
            answer = v.step([0] * 6)
            expected = [e.step(0) for e in theirs]
            assert (array(answer.observation) == [e[0] for e in expected]).all() and array(answer.reward).tolist() == [1] * 6
        lost = v.step([1] * 6)
        dead = [f.index for f in lost.failures]
        assert len(dead) == 3 and all("lost with its worker" in f.error.message for f in lost.failures), lost
        expected = [e.step(1) for e in theirs]
        alive = [i for i in range(6) if i not in dead]
        assert (array(lost.observation)[alive] == [expected[i][0] for i in alive]).all() and not array(lost.observation)[dead].any()
        assert [f.index for f in v.step([0] * 6).failures] == dead, "the others go on"
        three = Worker(client, "theirs")
        back = v.reset(indices=dead, seeds=[40 + i for i in dead])
        assert (array(back.observation) == [theirs[i].reset(seed=40 + i)[0] for i in dead]).all() and not back.failures
        assert not v.step([1] * 6).failures
        three.process.kill()
        three.process.wait()
        until("they are lost", lambda: not [f for f in v.step([0] * 6, auto_reset=True).failures])
        assert not v.step([0] * 6, auto_reset=True).failures, "reset on the one that is left"
        v.close()
        until("they are closed", lambda: "closed 6" in one.said or sum(int(s.split()[1]) for s in one.said if s.startswith("closed")) >= 6)
        one.process.kill()
        one.process.wait()
        assert two.process.wait() == -9
        until("none is left", lambda: grpc_code(lambda: Vector(client, "theirs", 1)) == "NOT_FOUND")


def test_c_hosts(parleyd):
    """The example in C hosts a plug-in's environments: with the same seeds they are bit for bit those of the plug-in that the daemon has
    loaded, through their ends. One host of two is killed with steps on their way: its environments alone are lost, and come back
    at the one that is started for it; after the daemon's restart hosts attach themselves again."""
    plugin, program = sys.argv[2:4]

    def start(address):
        host = children.start([program, address, plugin, "theirs"], stdout=subprocess.PIPE, text=True)
        assert host.stdout.readline() == "hosting theirs\n"
        return host

    with tempfile.TemporaryDirectory() as folder:
        flags, where = ["--plugin", plugin], {"listen": f"unix:{folder}/socket"}
        with harness.Parleyd(parleyd, *flags, **where) as client:
            one, two = start(where["listen"]), start(where["listen"])
            ours, theirs = Vector(client, "MountainCar-v0", 6), Vector(client, "theirs", 6)
            assert (theirs.info.observations, theirs.info.actions, theirs.info.action_numbers) == (2, 3, 0), theirs.info
            random, n_ends, seeds = np.random.default_rng(1), 0, list(range(6))
            begun = ours.reset(seeds=seeds)
            assert theirs.reset(seeds=seeds) == begun and begun.observation.data
            for _ in range(210):  # an episode has 200
                action = random.integers(0, 3, 6)
                mine, did = ours.step(action), theirs.step(action)
                assert did == mine and not did.failures, (mine, did)
                over = np.flatnonzero(array(did.terminated) | array(did.truncated)).tolist()
                n_ends += len(over)
                if over:
                    again = [int(s) for s in random.integers(0, 1 << 62, len(over))]
                    assert ours.reset(over, again) == theirs.reset(over, again)
            assert n_ends == 6
            os.kill(one.pid, signal.SIGSTOP)
            os.waitpid(one.pid, os.WUNTRACED)  # it reads no more: the steps are on their way
            pending = theirs.begin([1] * 6)
            one.kill()
            one.wait()
            lost = pending.result()
            dead = [f.index for f in lost.failures]
            assert len(dead) == 3 and all("lost with its worker" in f.error.message for f in lost.failures), lost
            three = start(where["listen"])
            seeds = [70 + i for i in dead]
            assert theirs.reset(dead, seeds) == ours.reset(dead, seeds)
            assert theirs.step([2] * 3, dead) == ours.step([2] * 3, dead)
        with harness.Parleyd(parleyd, *flags, **where) as client:
            assert two.stdout.readline() == three.stdout.readline() == "hosting theirs\n"
            ours, theirs = Vector(client, "MountainCar-v0", 4, [9]), Vector(client, "theirs", 4, [9])
            assert theirs.reset() == ours.reset() and theirs.step([0, 1, 2, 0]) == ours.step([0, 1, 2, 0])
        for host in two, three:
            host.kill()
            host.wait()


def grpc_code(call):
    try:
        call()
    except grpc.RpcError as e:
        return e.code().name
    return "OK"


class Host:
    """A raw worker in a thread: `answer` gives the results of an order; the first reset is answered well."""

    def __init__(self, client, answer=None, name="bad", **offered):
        self.out, self.error, self.is_accepted, self.n_orders = queue.SimpleQueue(), None, False, 0
        self.answer = answer
        offered = offered or {"observations": 2, "actions": 3}
        self.out.put(agents.AgentsAttachRequest(offer=agents.AgentOffer(name=name, environment=agents.AgentEnvironment(**offered))))
        self.call = agents_pb2_grpc.AgentsStub(client.channel).Attach(iter(self.out.get, None))
        threading.Thread(target=self.work, daemon=True).start()
        until("it is attached", lambda: self.is_accepted or self.error is not None)

    def work(self):
        try:
            for order in self.call:
                what = order.WhichOneof("what")
                self.is_accepted = True
                if what == "env_reset" and self.n_orders == 0:
                    self.out.put(result(order.env_reset.order, observation=tensor(np.zeros((2, 2), np.float32))))
                elif what in ("env_reset", "env_step"):
                    for r in self.answer(getattr(order, what)):
                        self.out.put(r)
                self.n_orders += what in ("env_reset", "env_step")
        except grpc.RpcError as e:
            self.error = e
        self.out.put(None)


def result(order, **more):
    return agents.AgentsAttachRequest(env_result=agents.AgentEnvResult(order=order, **more))


def test_hostile_workers(parleyd):
    """Wrong offers, shapes, numbers and orders, floods and silence: each ends alone, with a sentence, and fails its own
    environments."""
    def good(order, **more):
        n = len(order.environment)
        return {"observation": tensor(np.zeros((n, 2), np.float32)), "reward": tensor(np.zeros(n, np.float32)),
                "terminated": tensor(np.zeros(n, np.bool_)), "truncated": tensor(np.zeros(n, np.bool_)), **more}

    def failures(*places):
        return [agents.AgentEnvFailure(place=p, message="m") for p in places]

    with harness.Parleyd(parleyd, "--attach-timeout", "500ms", "--log-level", "error") as client:
        others = Vector(client, "cartpole", 2, [1])
        others.reset()
        for name, offered, why in [("", {}, "offer.name"), ("a b", {}, "offer.name"), ("x" * 64, {}, "offer.name"),
                                   ("cartpole", {}, "built in"), ("bad", {"observations": 0, "actions": 2}, "observations is 0"),
                                   ("bad", {"observations": 1 << 30, "actions": 2}, "observations is 1073741824"),
                                   ("bad", {"observations": 1}, "set exactly one of them"),
                                   ("bad", {"observations": 1, "action_numbers": 1 << 31}, "action_numbers"),
                                   ("bad", {"observations": 1, "actions": 1, "max_instances": 4097}, "max_instances"),
                                   ("bad", {"observations": 1, "actions": 1, "spaces": "x" * ((1 << 18) + 1)}, "spaces has 262145 bytes")]:
            assert why in Host(client, name=name, **offered).error.details(), (name, offered)
        for answer, why in [
                (lambda o: [result(o.order)], "env_result.observation"), (lambda o: [result(o.order + 1, **good(o))], "env_result.order is"),
                (lambda o: [result(o.order, **good(o, observation=tensor(np.zeros((2, 3), np.float32))))], "env_result.observation"),
                (lambda o: [result(o.order, **good(o, observation=tensor(np.full((2, 2), np.nan, np.float32))))], "holds nan at 0"),
                (lambda o: [result(o.order, **good(o, reward=tensor(np.zeros(1, np.float32))))], "env_result.reward"),
                (lambda o: [result(o.order, **good(o, reward=tensor(np.full(2, np.inf, np.float32))))], "holds inf"),
                (lambda o: [result(o.order, **good(o, terminated=tensor(np.zeros(2, np.float32))))], "env_result.terminated"),
                (lambda o: [result(o.order, **good(o, truncated=tensor_pb2.Tensor(dtype=BOOL, shape=[2])))], "env_result.truncated"),
                (lambda o: [result(o.order, **good(o, failures=failures(2)))], "has place 2"),
                (lambda o: [result(o.order, **good(o, failures=failures(1, 1)))], "twice or out of order"),
                (lambda o: [result(o.order, **good(o, failures=failures(*range(1000))))], "env_result.failures"),
                (lambda o: [result(o.order, **good(o, infos=[agents.AgentEnvInfo(place=2)]))], "env_result.infos has place 2"),
                (lambda o: [result(o.order, **good(o, infos=[agents.AgentEnvInfo(place=p) for p in (1, 0)]))], "infos has place 0 twice or out"),
                (lambda o: [agents.AgentsAttachRequest()], "env_result is missing"),
                (lambda o: [agents.AgentsAttachRequest(result=agents.AgentStepResult(step=1))], "env_result is missing"),
                (lambda o: [result(o.order, **good(o))] * 1000, "env_result.order is"), (lambda o: [], "was not answered within 500 ms")]:
            host = Host(client, answer)
            v = Vector(client, "bad", 2, [1])
            assert not v.reset().failures
            failed = v.step([0, 0]).failures
            until("it ends", lambda: host.error is not None)
            assert why in host.error.details() and "\n" not in host.error.details(), (why, host.error)
            if "env_result.order" not in why:
                assert [f.index for f in failed] == [0, 1] and "lost with its worker" in failed[0].error.message, (why, failed)
            assert v.reset().failures[0].error.message.startswith("no worker with room"), v.reset()
            v.close()
            others.step([0, 1], auto_reset=True)
        host = Host(client, lambda o: [result(o.order, **good(o, failures=failures(1)))])
        v = Vector(client, "bad", 2, [1])
        v.reset()
        answer = v.step([0, 0])
        assert [(f.index, f.error.message) for f in answer.failures] == [(1, "the environment failed: m")], answer
        refused(lambda: v.step([0, 0]), "FAILED_PRECONDITION", "environment 1")
        host.call.cancel()
        until("it is gone", lambda: grpc_code(lambda: Vector(client, "bad", 1)) == "NOT_FOUND")
        # A message of any length and bytes is one line of an error's length.
        host = Host(client, lambda o: [result(o.order, **good(o, failures=[agents.AgentEnvFailure(place=0, message="a\nb\x01" + "c" * 1000000)]))])
        v = Vector(client, "bad", 2, [1])
        v.reset()
        said = v.step([0, 0]).failures
        assert len(said) == 1 and said[0].error.message.startswith("the environment failed: a?b?ccc") and len(said[0].error.message) < 500, said
        assert host.error is None
        host.call.cancel()
        until("it is gone", lambda: grpc_code(lambda: Vector(client, "bad", 1)) == "NOT_FOUND")
        # What failed may hold anything, and its neighbour's row counts.
        seen, reward = np.array([[1, 2], [np.nan, np.inf]], np.float32), np.array([3, np.nan], np.float32)
        host = Host(client, lambda o: [result(o.order, **good(o, observation=tensor(seen), reward=tensor(reward), failures=failures(1)))])
        v = Vector(client, "bad", 2, [1])
        v.reset()
        answer = v.step([0, 0])
        assert [f.index for f in answer.failures] == [1] and array(answer.reward).tolist() == [3, 0], answer
        assert array(answer.observation).tolist() == [[1, 2], [0, 0]] and host.error is None
        host.call.cancel()


def test_left(parleyd):
    """A caller that goes away leaves its environments busy until their worker has answered; two requests do not mix."""
    with harness.Parleyd(parleyd) as client:
        gate, stepped = threading.Event(), threading.Event()

        def slowly(order):
            stepped.set()
            gate.wait()
            n = len(order.environment)
            return [result(order.order, observation=tensor(np.ones((n, 2), np.float32)), reward=tensor(np.ones(n, np.float32)),
                           terminated=tensor(np.zeros(n, np.bool_)), truncated=tensor(np.zeros(n, np.bool_)))]

        host = Host(client, slowly, name="slow")
        v = Vector(client, "slow", 2, [1])
        v.reset()
        left = v.begin([0, 0])
        until("the order is there", stepped.is_set)
        left.cancel()
        refused(lambda: v.step([0, 0]), "FAILED_PRECONDITION", "in another request")
        gate.set()
        until("it is free", lambda: grpc_code(lambda: v.step([0, 0])) == "OK")
        gate.clear()
        stepped.clear()
        held = v.begin([0, 0])
        until("the order is there", stepped.is_set)
        v.close()
        gate.set()
        assert array(held.result().reward).tolist() == [1, 1], "a request under way ends as it would have"
        host.call.cancel()


def main():
    parleyd, wanted = sys.argv[1], sys.argv[4:]
    for test in (test_built_in, test_plugged_in, test_refused, test_workers, test_c_hosts, test_hostile_workers, test_left):
        if not wanted or test.__name__ in wanted:
            print(test.__name__, flush=True)
            test(parleyd)


main()
