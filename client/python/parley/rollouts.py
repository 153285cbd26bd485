"""Policies that act and learn in environments that run in the daemon; only trajectories leave the daemon.

    >>> from parley.rollouts import Environments, learn
    >>> with parley.connect(ADDRESS) as server, Environments(server, "CartPole-v1", 4, seed=1) as environments:
    ...     for _ in range(3):
    ...         steps = environments.rollout("value", 8)  # a policy with a value head
    ...         learned = learn(server, "value", steps, gamma=0.99)
    >>> list(steps.reward.shape)
    [4, 8]

This module does not need numpy: it passes tensors on unchanged."""
from __future__ import annotations

import array
import dataclasses
from collections.abc import Iterator, Sequence
from time import sleep
from typing import Any

from parley.channel import Link
from parley.client import Server
from parley.v1 import act_pb2, env_pb2, tensor_pb2
from parley.wire import Error, Patience

Rollout = env_pb2.EnvRolloutResponse


def _link(server: Server | Link) -> Link:
    return server if isinstance(server, Link) else server.links[0]


class Environments:
    """A vector of environments in the daemon. The environment is built in, or an attached worker offers it."""

    def __init__(self, server: Server | Link, name: str, n: int, seed: int | None = None) -> None:
        self.link, self.n = _link(server), n
        request = env_pb2.EnvOpenRequest(name=name, count=n, seeds=[] if seed is None else [seed])
        self.spaces = self.link.once("Env/Open", request, env_pb2.EnvOpenResponse)
        self._is_interrupted = False  # a rollout was, and the daemon may still be ending it
        self._states: dict[str, tensor_pb2.Tensor] = {}  # of recurrent policies, after their last rollouts

    def rollout(self, model: str, n_steps: int, *, seed: int = 0, **more: Any) -> Rollout:
        """Lets the policy act for n_steps in each environment. The environments continue where the previous rollout ended, and a recurrent
        policy with the state that it had then. more: reset, greedy, epsilon. An environment whose worker was lost is in `failures`; its
        steps are resets, from which nothing is learned, until another worker has it."""
        request = env_pb2.EnvRolloutRequest(handle=self.spaces.handle, model=model, n_steps=n_steps, seed=seed, state=self._states.get(model),
                                            **more)
        patience = Patience(self.link.patience)
        while True:
            try:
                steps = self.link.wait("Env/Rollout", request, Rollout)
                self._is_interrupted = False
                self._states = {model: steps.last_state} if steps.HasField("last_state") else {}
                return steps
            except Error as e:
                if not self._is_interrupted or e.reason != "SESSION_BUSY":
                    raise
                e.code = "UNAVAILABLE"
                sleep(patience.wait_after(e))
            except BaseException:
                self._is_interrupted = True
                raise

    def close(self) -> None:
        self.link.once("Env/Close", env_pb2.EnvCloseRequest(handle=self.spaces.handle), env_pb2.EnvCloseResponse)

    def __enter__(self) -> Environments:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def join(rollouts: Sequence[Rollout]) -> Rollout:
    """Concatenates rollouts that have the same number of steps into one."""
    joined = Rollout()
    joined.CopyFrom(rollouts[0])
    first = rollouts[0].reward.shape[0]
    for r in rollouts[1:]:
        for failure in r.failures:
            joined.failures.add(index=first + failure.index, error=failure.error)
        first += r.reward.shape[0]
    for field, tensor in joined.ListFields():
        if isinstance(tensor, tensor_pb2.Tensor):
            parts = [getattr(r, field.name) for r in rollouts]
            if any(list(p.shape[1:]) != list(tensor.shape[1:]) for p in parts):
                raise ValueError(f"the rollouts have different shapes of '{field.name}': join only rollouts with the same number of steps and the same spaces")
            tensor.shape[0] = sum(p.shape[0] for p in parts)
            tensor.data = b"".join(p.data for p in parts)
    return joined


def scaled(rewards: tensor_pb2.Tensor, factor: float) -> tensor_pb2.Tensor:
    """Multiplies the rewards by a factor. A value head learns best if returns are near 1."""
    data = array.array("f", (factor * r for r in memoryview(rewards.data).cast("f")))
    return tensor_pb2.Tensor(name="reward", dtype=rewards.dtype, shape=rewards.shape, data=data.tobytes())


def learn(server: Server | Link, model: str, steps: Rollout, *, off_policy: bool = False, reward_scale: float = 1, learning_rate: float = 0.001,
          max_gradient_norm: float = 0, save_path: str = "", **trajectories: Any) -> act_pb2.ActLearnResponse:
    """Takes one step of the policy's optimiser in the daemon, with A2C; with off_policy, with V-trace, for steps that an earlier policy
    took. trajectories: gamma, lambda_, entropy_weight, value_weight, normalise, clip, rho_max, c_max (proto/parley/v1/act.proto)."""
    if "lambda_" in trajectories:
        trajectories["lambda"] = trajectories.pop("lambda_")
    reward = steps.reward if reward_scale == 1 else scaled(steps.reward, reward_scale)
    what = act_pb2.ActTrajectories(observation=steps.observation, action=steps.action, reward=reward, terminated=steps.terminated,
                                   reset=steps.reset, state=steps.state if steps.HasField("state") else None, **trajectories)
    if off_policy:
        what.logp.CopyFrom(steps.logp)
    request = act_pb2.ActLearnRequest(model=model, trajectories=what, learning_rate=learning_rate, max_gradient_norm=max_gradient_norm,
                                      save_path=save_path)
    return _link(server).wait("Act/Learn", request, act_pb2.ActLearnResponse)


@dataclasses.dataclass
class Transition:
    """An n-step transition: the observation, the action, the discounted sum of the rewards of the steps after it, the observation after
    these steps, and the discount of its value."""

    observation: bytes
    action: int
    reward: float
    discount: float  # 0 if the episode ended
    next_observation: bytes


def transitions(steps: Rollout, ahead: int = 1, gamma: float = 0.99, reward_scale: float = 1) -> Iterator[Transition]:
    """Yields the transitions of a rollout. Each covers `ahead` steps, or fewer if its episode ended or was truncated. No transition
    begins in the last `ahead - 1` steps."""
    n, n_steps = steps.reward.shape
    size = 4 * steps.observation.shape[2]
    reward, action, seen = memoryview(steps.reward.data).cast("f"), memoryview(steps.action.data).cast("q"), steps.observation.data
    for i in range(n):
        for t in range(n_steps - ahead + 1):
            at, total, discount, k = i * n_steps + t, 0.0, 1.0, 0
            if steps.reset.data[at]:
                continue
            while k < ahead and discount > 0 and not steps.reset.data[at + k]:
                total += discount * reward_scale * reward[at + k]
                discount *= 0.0 if steps.terminated.data[at + k] else gamma
                k += 1
            first, last = (i * (n_steps + 1) + t) * size, (i * (n_steps + 1) + t + k) * size
            yield Transition(seen[first:first + size], action[at], total, discount, seen[last:last + size])


def learn_q(server: Server | Link, model: str, batch: Sequence[Transition], *, weights: Sequence[float] | None = None, move_target: bool = False,
            learning_rate: float = 0.001, max_gradient_norm: float = 0, save_path: str = "") -> list[float]:
    """Takes one step of double Q-learning in the daemon; the policy must have a duelling head. Returns the error of each transition
    before the step."""
    n, width = len(batch), len(batch[0].observation) // 4

    def tensor(name: str, kind: str, numbers: Sequence[float]) -> tensor_pb2.Tensor:
        return tensor_pb2.Tensor(name=name, dtype=tensor_pb2.DTYPE_I64 if kind == "q" else tensor_pb2.DTYPE_F32, shape=[n],
                                 data=array.array(kind, numbers).tobytes())

    def seen(name: str, parts: Iterator[bytes]) -> tensor_pb2.Tensor:
        return tensor_pb2.Tensor(name=name, dtype=tensor_pb2.DTYPE_F32, shape=[n, width], data=b"".join(parts))

    what = act_pb2.ActTransitions(observation=seen("observation", (t.observation for t in batch)), action=tensor("action", "q", [t.action for t in batch]),
                                  reward=tensor("reward", "f", [t.reward for t in batch]), discount=tensor("discount", "f", [t.discount for t in batch]),
                                  next_observation=seen("next_observation", (t.next_observation for t in batch)), move_target=move_target)
    if weights is not None:
        what.weight.CopyFrom(tensor("weight", "f", weights))
    request = act_pb2.ActLearnRequest(model=model, transitions=what, learning_rate=learning_rate, max_gradient_norm=max_gradient_norm,
                                      save_path=save_path)
    return list(memoryview(_link(server).wait("Act/Learn", request, act_pb2.ActLearnResponse).error.data).cast("f"))


class Returns:
    """Collects the returns of episodes from the rollouts of one vector, added in order."""

    def __init__(self, n: int) -> None:
        self.running, self.steps = [0.0] * n, 0
        self.done: list[float] = []  # the returns of all episodes that have ended

    def add(self, steps: Rollout) -> None:
        n, n_steps = steps.reward.shape
        reward = memoryview(steps.reward.data).cast("f")
        ends = bytes(a | b for a, b in zip(steps.terminated.data, steps.truncated.data, strict=True))
        for i in range(n):
            for at in range(i * n_steps, (i + 1) * n_steps):
                if steps.reset.data[at]:
                    self.running[i] = 0.0  # also of an episode whose worker was lost, which has no return
                self.running[i] += reward[at]
                if ends[at]:
                    self.done.append(self.running[i])
                    self.running[i] = 0.0
        self.steps += n * n_steps

    def mean(self, n: int = 100) -> float:
        """Returns the mean return of the last n episodes."""
        last = self.done[-n:]
        return sum(last) / len(last) if last else 0.0
