#!/usr/bin/env python3
"""The Python package's parley.gym: gymnasium's vector environments as observers of a policy.

usage: test_gym.py PARLEYD WRITE_POLICY      (run by the interpreter that has grpcio and gymnasium; see venv.sh)"""
import os
import sys
import tempfile

import grpc
import gymnasium
import numpy as np

import children
from children import Daemon

sys.path.insert(0, os.environ["PARLEY_PACKAGE"])  # made by venv.sh
import parley  # noqa: E402
import parley.gym  # noqa: E402
from parley.v1 import act_pb2, act_pb2_grpc, tensor_pb2  # noqa: E402

PARLEYD, WRITE_POLICY = sys.argv[1:3]


def refused(call, kind, words):
    try:
        call()
    except kind as e:
        assert words in str(e), e
        return
    raise AssertionError(f"it was not refused: {words}")


def test_a_rollout_is_raw_calls(server):
    """What a policy does in a vector is, bit for bit, what raw calls of Act get for the same observations."""
    got = parley.gym.rollout("CartPole-v1", server, "pole", n=3, n_steps=40, seed=7, run=1000)
    assert got.observations.shape == (40, 3, 4) and got.actions.shape == got.rewards.shape == got.done.shape == (40, 3)
    assert set(np.unique(got.actions)) == {0, 1} and got.done.any() and 5 < got.mean_return() < 100
    again = parley.gym.rollout("CartPole-v1", server, "pole", n=3, n_steps=40, seed=7, run=1000)
    assert (again.observations == got.observations).all() and (again.actions == got.actions).all()
    with grpc.insecure_channel(server.links[0].address) as channel:
        stub = act_pb2_grpc.ActStub(channel)
        for i in range(3):
            for t in range(40):
                tensor = tensor_pb2.Tensor(name="observation", dtype=tensor_pb2.DTYPE_F32, shape=[4],
                                           data=got.observations[t, i].astype("<f4").tobytes())
                raw = stub.Step(act_pb2.ActStepRequest(
                    model="pole", env_id=f"raw{i}", run_id=1000 + i, row=i, seq=t + 1, observation=[tensor],
                    reward=got.rewards[t - 1, i] if t else 0, done=bool(t and got.done[t - 1, i])))
                output = {o.name: o.data for o in raw.output}
                assert int.from_bytes(output["action"], "little") == got.actions[t, i]
                assert output["logp"] == got.outputs["logp"][t, i].tobytes()


def test_training(server):
    """Observers of a vector learn; each episode is an event; the daemon's policy is another afterwards."""
    before = parley.gym.rollout("CartPole-v1", server, "pole", n=2, n_steps=5, seed=3, run=1)
    events = list(parley.gym.train("CartPole-v1", server, "pole", n=4, episodes=3, n_steps=50))
    assert [e.episode for e in events] == [1, 2, 3] and [e.actions for e in events] == [200, 400, 600]
    assert [e.forwards for e in events] == [50, 100, 150], "four rows a batch"
    assert all(e.observers == 4 and 5 < e.mean_reward <= 50 for e in events)
    after = parley.gym.rollout("CartPole-v1", server, "pole", n=2, n_steps=5, seed=3, run=1)
    assert (before.observations[0] == after.observations[0]).all() and (before.outputs["logp"][0] != after.outputs["logp"][0]).any()
    early = list(parley.gym.train("CartPole-v1", server, "pole", n=2, episodes=9, n_steps=20, until=5))
    assert len(early) < 9, "it was good enough"
    events = list(parley.gym.train("Acrobot-v1", server, "bot", n=2, episodes=3, n_steps=20, until=-11))
    assert [e.running_reward for e in events] == [-10], "a reward below 0 is one to reach, too"
    for e in parley.gym.train("CartPole-v1", server, "pole", n=2, episodes=9, n_steps=20):
        break  # whoever leaves ends it, and another may train
    assert len(list(parley.gym.train("CartPole-v1", server, "pole", n=2, episodes=1, n_steps=20))) == 1


def test_spaces(server):
    """Spaces say what a policy must be; one that is not is refused, here or by the daemon, before a step is taken."""
    acrobot = parley.gym.make("Acrobot-v1", 2)
    assert parley.gym.policy_shape(acrobot) == (6, 3)
    assert parley.gym.rollout(acrobot, server, "bot", n_steps=3).observations.shape == (3, 2, 6)
    refused(lambda: parley.gym.rollout(acrobot, server, "pole", n_steps=3), parley.Error, "f32[6]")
    refused(lambda: list(parley.gym.train(acrobot, server, "pole", n_steps=3, episodes=1)), parley.Error, "f32[6]")
    acrobot.close()
    refused(lambda: parley.gym.rollout("Pendulum-v1", server, "pole"), TypeError, "Discrete")
    refused(lambda: parley.gym.rollout("Blackjack-v1", server, "pole"), TypeError, "Box")
    refused(lambda: parley.gym.rollout(gymnasium.make_vec("CartPole-v1", 2), server, "pole"), ValueError, "SAME_STEP")
    refused(lambda: parley.gym.rollout("CartPole-v1", server, "nobody"), parley.Error, "nobody")


def test_rewards_to_go(_):
    """Rewards to go end with their episode."""
    rewards, done = np.ones((4, 2)), np.array([[0, 0], [1, 0], [0, 0], [0, 0]], bool)
    assert parley.gym.rewards_to_go(rewards, done, 0.5).T.tolist() == [[1.5, 1, 1.5, 1], [1.875, 1.75, 1.5, 1]]


def main():
    with tempfile.TemporaryDirectory() as folder:
        pole, bot = os.path.join(folder, "pole.gguf"), os.path.join(folder, "bot.gguf")
        children.run([WRITE_POLICY, pole], check=True)
        children.run([WRITE_POLICY, bot, "6", "3"], check=True)
        with Daemon(PARLEYD, "--model", f"pole={pole}", "--model", f"bot={bot}") as daemon:
            with parley.connect(daemon.address) as server:
                for test in (test_rewards_to_go, test_a_rollout_is_raw_calls, test_training, test_spaces):
                    print(test.__name__, flush=True)
                    test(server)


main()
