#!/usr/bin/env python3
"""Policies that other programs compute: workers that offer tensors are served through Act and KServe, and end alone when they
are at fault.

usage: test_attach_tensors.py PARLEYD      (run by the interpreter that has grpcio and the stubs; see venv.sh)"""
import queue
import sys
import threading

import grpc
import numpy as np
import tritonclient.grpc as triton

import children
import harness
from children import until
from harness import conversations
from parley.v1 import act_pb2 as act, act_pb2_grpc, agents_pb2 as agents, agents_pb2_grpc, tensor_pb2  # harness knows where they are

DTYPES = {"float32": tensor_pb2.DTYPE_F32, "int64": tensor_pb2.DTYPE_I64, "int32": tensor_pb2.DTYPE_I32}


def tensor(name, value, dtype):
    a = np.asarray(value, dtype)
    return tensor_pb2.Tensor(name=name, dtype=DTYPES[a.dtype.name], shape=a.shape, data=a.tobytes())


def values(tensors):
    types = {v: k for k, v in DTYPES.items()}
    return {t.name: np.frombuffer(t.data, types[t.dtype]).reshape(tuple(t.shape)).tolist() for t in tensors}


class Policy:
    """A worker in a thread: `act` gives a row's output tensors. `steps` are the sizes of its steps."""

    def __init__(self, client, name, act, **offered):
        self.act, self.steps, self.out = act, [], queue.SimpleQueue()
        self.is_open, self.is_accepted = threading.Event(), threading.Event()
        self.is_open.set()
        self.error = None
        self.out.put(agents.AgentsAttachRequest(offer=agents.AgentOffer(name=name, tensors=agents.AgentTensors(**offered))))
        self.call = agents_pb2_grpc.AgentsStub(client.channel).Attach(iter(self.out.get, None))
        threading.Thread(target=self.work, daemon=True).start()
        until(f"{name} is attached", lambda: self.is_accepted.is_set() or self.error is not None)

    def work(self):
        try:
            for order in self.call:
                if order.WhichOneof("what") == "accepted":
                    self.is_accepted.set()
                elif order.WhichOneof("what") == "step":
                    self.steps.append(len(order.step.rows))
                    self.is_open.wait()
                    self.out.put(agents.AgentsAttachRequest(result=agents.AgentStepResult(
                        step=order.step.step, rows=[self.row(row) for row in order.step.rows])))
        except grpc.RpcError as e:
            self.error = e

    def row(self, row):
        return agents.AgentRowResult(row=row.row, outcome=agents.AGENT_ROW_OUTCOME_DONE, params_version=7, output=self.act(row))

    def end(self):
        self.out.put(None)


def step(client, model, observation, seq=1, env="e", **more):
    return act_pb2_grpc.ActStub(client.channel).Step.future(act.ActStepRequest(
        model=model, env_id=env, run_id=1, seq=seq, observation=[tensor("observation", observation, np.float32)], **more),
        timeout=children.PATIENCE)


def largest(row):
    """The index of the largest number; its value is the sum."""
    (numbers,) = values(row.observation).values()
    return [tensor("action", np.argmax(numbers), np.int64), tensor("logp", -0.5, np.float32),
            tensor("value", sum(numbers), np.float32)]


def test_choices(parleyd):
    """A policy over choices, through Act and KServe; what waits while a step runs is in the next, of all environments."""
    with harness.Parleyd(parleyd) as client:
        policy = Policy(client, "largest", largest, observations=3, actions=3, has_logp=True, has_value=True)
        first = step(client, "largest", [1, 5, 2]).result()
        assert values(first.output) == {"action": 1, "logp": -0.5, "value": 8.0} and first.params_version == 7, first
        assert step(client, "largest", [1, 5, 2]).result() == first, "the same number again"
        policy.is_open.clear()
        held = step(client, "largest", [1, 2, 9], seq=2)
        until("its step is there", lambda: len(policy.steps) == 2)
        many = [step(client, "largest", np.eye(3)[i % 3], env=f"e{i}") for i in range(40)]
        until("they wait", lambda: harness_waiting(client, "largest") == 40)
        policy.is_open.set()
        assert values(held.result().output)["action"] == 2
        assert [values(s.result().output)["action"] for s in many] == [i % 3 for i in range(40)]
        assert policy.steps == [1, 1, 40], policy.steps
        with triton.InferenceServerClient(client.address) as kserve:
            said = kserve.get_model_metadata("largest", as_json=True)
            assert said["inputs"] == [{"name": "observation", "datatype": "FP32", "shape": ["3"]}], said
            assert [o["name"] for o in said["outputs"]] == ["action", "logp", "value"], said
            tensor_in = triton.InferInput("observation", [3], "FP32")
            tensor_in.set_data_from_numpy(np.array([7, 1, 1], np.float32))
            assert kserve.infer("largest", [tensor_in]).as_numpy("action").tolist() == [0]
        for bad, why in [(step(client, "largest", [1, 2], env="x"), "observation"),
                         (step(client, "largest", [1, 2, np.nan], env="x"), "holds nan at 2")]:
            e = bad.exception()
            assert e.code() == grpc.StatusCode.INVALID_ARGUMENT and why in e.details(), e
        try:
            client.conversations.Ask(conversations.TurnRequest(conversation=client.open("largest"), text="hello"))
            raise AssertionError("it took messages")
        except grpc.RpcError as e:
            assert "takes observations" in e.details(), e
        policy.end()


def harness_waiting(client, name):
    return next(m for m in client.models.List(harness.models.ModelsListRequest()).models if m.name == name).batching.waiting


def test_numbers(parleyd):
    """A policy whose action is numbers, of which the rows say what an episode's step needs."""
    seen = []

    def halve(row):
        seen.append((row.reward, row.is_first, row.row_key, row.turn))
        return [tensor("action", np.array(values(row.observation)["observation"]) / 2, np.float32)]

    with harness.Parleyd(parleyd) as client:
        policy = Policy(client, "halve", halve, observations=2, action_numbers=2)
        assert values(step(client, "halve", [4, -2], row=3).result().output) == {"action": [2.0, -1.0]}
        assert values(step(client, "halve", [6, 0], seq=2, reward=1.5).result().output) == {"action": [3.0, 0.0]}
        step(client, "halve", [6, 0], seq=3, done=True).result()
        assert seen == [(0, True, 3, 1), (1.5, False, 0, 2), (0, True, 0, 3)], seen
        with triton.InferenceServerClient(client.address) as kserve:
            tensor_in = triton.InferInput("observation", [2], "FP32")
            tensor_in.set_data_from_numpy(np.array([1, 3], np.float32))
            assert kserve.infer("halve", [tensor_in]).as_numpy("action").tolist() == [0.5, 1.5]
        policy.end()


def test_modes(parleyd):
    """Lock-step: a step has exactly n rows, by row; a worker that comes or goes does not change that; AUTO ends it."""
    with harness.Parleyd(parleyd) as client:
        stub, keys = act_pb2_grpc.ActStub(client.channel), []

        def largest_of(row):
            keys.append(row.row_key)
            return largest(row)

        offered = {"observations": 3, "actions": 3, "has_logp": True, "has_value": True}
        policy = Policy(client, "largest", largest_of, **offered)
        stub.Configure(act.ActConfigureRequest(model="largest", mode=act.ACT_MODE_LOCKSTEP, n=3))
        for seq in range(1, 6):
            first = [step(client, "largest", [1, 5, 2], seq=seq, env=f"e{i}", row=i) for i in (2, 0)]
            if seq == 3:
                other = Policy(client, "largest", largest_of, **offered)
                other.end()
                until("it is gone", other.call.done)
            assert not any(s.done() for s in first) and len(policy.steps) == seq - 1, "they wait for the third"
            last = step(client, "largest", [7, 5, 2], seq=seq, env="e1", row=1)
            assert [values(s.result().output)["action"] for s in [*first, last]] == [1, 1, 0] and sorted(keys) == [0, 1, 2]
            keys.clear()
        assert policy.steps == [3] * 5, policy.steps
        stub.Configure(act.ActConfigureRequest(model="largest", mode=act.ACT_MODE_LOCKSTEP, n=2, timeout_ms=50))
        e = step(client, "largest", [1, 5, 2], seq=6, env="e0", row=0).exception()
        assert e.code() == grpc.StatusCode.ABORTED, e
        stub.Configure(act.ActConfigureRequest(model="largest", mode=act.ACT_MODE_DYNAMIC, min=2, delay_us=60_000_000))
        both = [step(client, "largest", [1, 5, 2], env=f"d{i}") for i in range(2)]
        assert [values(s.result().output)["action"] for s in both] == [1, 1] and policy.steps[-1] == 2
        stub.Configure(act.ActConfigureRequest(model="largest", mode=act.ACT_MODE_AUTO))
        assert values(step(client, "largest", [1, 5, 2], env="alone").result().output)["action"] == 1
        policy.end()


def test_lost(parleyd):
    """The rows of a worker that goes are done by another of its name; a worker of other tensors does not get them."""
    with harness.Parleyd(parleyd) as client:
        offered = {"observations": 3, "actions": 3, "has_logp": True, "has_value": True}
        one = Policy(client, "largest", largest, **offered)
        one.is_open.clear()
        held = step(client, "largest", [1, 5, 2])
        until("its step is there", lambda: one.steps)
        other = Policy(client, "largest", largest, **{**offered, "has_value": False})
        assert "other tensors" in other.error.details(), other.error
        two = Policy(client, "largest", largest, **offered)
        one.call.cancel()
        assert values(held.result().output)["action"] == 1 and two.steps == [1]
        two.is_open.clear()
        held = step(client, "largest", [1, 5, 2], seq=2)
        until("its step is there", lambda: len(two.steps) == 2)
        two.call.cancel()
        e = held.exception()
        assert e.code() == grpc.StatusCode.UNAVAILABLE and "has lost its worker" in e.details(), e
        three = Policy(client, "largest", largest, observations=2, actions=2, has_logp=True, has_value=True)
        assert values(step(client, "largest", [1, 5], env="f").result().output)["action"] == 1
        assert step(client, "largest", [1, 5, 2], seq=2).exception().code() == grpc.StatusCode.INVALID_ARGUMENT
        one.is_open.set()
        two.is_open.set()
        three.end()


def test_hostile(parleyd):
    """Wrong offers and wrong outputs end the stream with a sentence; the environment's step fails and another worker is fine."""
    with harness.Parleyd(parleyd, "--log-level", "error") as client:
        good = Policy(client, "good", largest, observations=3, actions=3, has_logp=True, has_value=True)
        for offered, why in [({}, "observations is 0"), ({"observations": 65537, "actions": 2}, "observations is 65537"),
                             ({"observations": 1}, "exactly one of the two must be set"), ({"observations": 1, "actions": 1}, "actions is 1"),
                             ({"observations": 1, "actions": 2, "action_numbers": 2}, "exactly one of the two must be set"),
                             ({"observations": 1, "action_numbers": 1 << 31}, "action_numbers is 2147483648")]:
            bad = Policy(client, "bad", largest, **offered)
            assert bad.error.code() == grpc.StatusCode.INVALID_ARGUMENT and why in bad.error.details(), (why, bad.error)
        action, logp = tensor("action", 0, np.int64), tensor("logp", 0, np.float32)
        for n, (output, why) in enumerate([
                ([], "has 0 tensors, but 2 were offered"), ([action], "has 1 tensors"), ([action] * 40, "40 tensors"),
                ([logp, action], "has the tensor 'logp' at 0, it must be 'action'"), ([tensor("action", 3, np.int64), logp], "has the action 3, but there are only 3"),
                ([tensor("action", -1, np.int64), logp], "has the action -1"), ([tensor("action", [0], np.int64), logp], "action"),
                ([tensor("action", 0, np.int32), logp], "action"), ([action, tensor("logp", np.nan, np.float32)], "holds nan"),
                ([tensor_pb2.Tensor(name="action", dtype=tensor_pb2.DTYPE_I64, data=b"123"), logp], "result.rows.output[0]"),
                ([tensor_pb2.Tensor(name="action", dtype=99, data=b"12345678"), logp], "dtype"),
                ([tensor_pb2.Tensor(name="action", dtype=tensor_pb2.DTYPE_I64, shape=[1 << 62, 4]), logp], "result.rows.output[0]")]):
            bad = Policy(client, "bad", lambda row, output=output: output, observations=3, actions=3, has_logp=True)
            e = step(client, "bad", [1, 2, 3]).exception()
            assert e.code() == grpc.StatusCode.UNAVAILABLE, e
            until("it ends", lambda: bad.error is not None)
            assert bad.error.code() == grpc.StatusCode.INVALID_ARGUMENT and why in bad.error.details(), (why, bad.error)
            assert "\n" not in bad.error.details()
            assert values(step(client, "good", [1, 5, 2], seq=n + 1).result().output)["action"] == 1
        texts = Policy(client, "texts", largest, observations=3, actions=3)
        texts.row = lambda row: agents.AgentRowResult(row=row.row, outcome=agents.AGENT_ROW_OUTCOME_MORE, text="hm")
        assert step(client, "texts", [1, 2, 3]).exception().code() == grpc.StatusCode.UNAVAILABLE
        until("it ends", lambda: texts.error is not None)
        assert "an action must be given at once" in texts.error.details(), texts.error
        good.end()


def main():
    parleyd, wanted = sys.argv[1], sys.argv[2:]
    for test in (test_choices, test_numbers, test_modes, test_lost, test_hostile):
        if not wanted or test.__name__ in wanted:
            print(test.__name__, flush=True)
            test(parleyd)


main()
