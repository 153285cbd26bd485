"""Policies that act and learn in a daemon's environments; what leaves the daemon is trajectories.

    environments = parley.rollouts.Environments(server, "CartPole-v1", 16)
    for _ in range(100):
        steps = environments.rollout("pole", 32)
        parley.rollouts.learn(server, "pole", steps, gamma=0.99)

Needs no numpy: tensors are passed on as they come."""
from __future__ import annotations

import array
from collections.abc import Sequence
from typing import Any

from parley.client import Link, Server
from parley.v1 import act_pb2, env_pb2, tensor_pb2

Rollout = env_pb2.EnvRolloutResponse


def _link(server: Server | Link) -> Link:
    return server if isinstance(server, Link) else server.links[0]


class Environments:
    """A vector of environments in the daemon: of a kind that is built in, or that an attached worker offers."""

    def __init__(self, server: Server | Link, name: str, n: int, seed: int | None = None) -> None:
        self.link, self.n = _link(server), n
        request = env_pb2.EnvOpenRequest(name=name, count=n, seeds=[] if seed is None else [seed])
        self.spaces = self.link.once("Env/Open", request, env_pb2.EnvOpenResponse)

    def rollout(self, model: str, n_steps: int, *, seed: int = 0, **more: Any) -> Rollout:
        """The policy acts for so many steps in each; they go on where the rollout before ended. more: reset, greedy, epsilon."""
        request = env_pb2.EnvRolloutRequest(handle=self.spaces.handle, model=model, n_steps=n_steps, seed=seed, **more)
        return self.link.once("Env/Rollout", request, Rollout)

    def close(self) -> None:
        self.link.once("Env/Close", env_pb2.EnvCloseRequest(handle=self.spaces.handle), env_pb2.EnvCloseResponse)

    def __enter__(self) -> Environments:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def join(rollouts: Sequence[Rollout]) -> Rollout:
    """Rollouts of as many steps as one, behind each other."""
    joined = Rollout()
    joined.CopyFrom(rollouts[0])
    for field, tensor in joined.ListFields():
        if isinstance(tensor, tensor_pb2.Tensor):
            parts = [getattr(r, field.name) for r in rollouts]
            if any(list(p.shape[1:]) != list(tensor.shape[1:]) for p in parts):
                raise ValueError(f"{field.name}: the rollouts have different shapes")
            tensor.shape[0] = sum(p.shape[0] for p in parts)
            tensor.data = b"".join(p.data for p in parts)
    return joined


def scaled(rewards: tensor_pb2.Tensor, factor: float) -> tensor_pb2.Tensor:
    """The rewards times a factor: values are learned best near 1."""
    data = array.array("f", (factor * r for r in memoryview(rewards.data).cast("f")))
    return tensor_pb2.Tensor(name="reward", dtype=rewards.dtype, shape=rewards.shape, data=data.tobytes())


def learn(server: Server | Link, model: str, steps: Rollout, *, off_policy: bool = False, reward_scale: float = 1, learning_rate: float = 0.001,
          max_gradient_norm: float = 0, save_path: str = "", **trajectories: Any) -> act_pb2.ActLearnResponse:
    """A step of the policy's optimiser in the daemon: A2C's, or, off_policy, V-trace's, for steps of an earlier policy.
    trajectories: gamma, lambda_, entropy_weight, value_weight, normalise, clip, rho_max, c_max (proto/parley/v1/act.proto)."""
    if "lambda_" in trajectories:
        trajectories["lambda"] = trajectories.pop("lambda_")
    reward = steps.reward if reward_scale == 1 else scaled(steps.reward, reward_scale)
    what = act_pb2.ActTrajectories(observation=steps.observation, action=steps.action, reward=reward, terminated=steps.terminated,
                                   reset=steps.reset, **trajectories)
    if off_policy:
        what.logp.CopyFrom(steps.logp)
    request = act_pb2.ActLearnRequest(model=model, trajectories=what, learning_rate=learning_rate, max_gradient_norm=max_gradient_norm,
                                      save_path=save_path)
    return _link(server).once("Act/Learn", request, act_pb2.ActLearnResponse)


class Returns:
    """The returns of episodes, from the rollouts of one vector in their order."""

    def __init__(self, n: int) -> None:
        self.running, self.steps = [0.0] * n, 0
        self.done: list[float] = []  # of all episodes that have ended

    def add(self, steps: Rollout) -> None:
        n, n_steps = steps.reward.shape
        reward = memoryview(steps.reward.data).cast("f")
        ends = bytes(a | b for a, b in zip(steps.terminated.data, steps.truncated.data))
        for i in range(n):
            for at in range(i * n_steps, (i + 1) * n_steps):
                self.running[i] += reward[at]
                if ends[at]:
                    self.done.append(self.running[i])
                    self.running[i] = 0.0
        self.steps += n * n_steps

    def mean(self, n: int = 100) -> float:
        """Of the last n episodes."""
        last = self.done[-n:]
        return sum(last) / len(last) if last else 0.0
