"""Environments of a daemon, built in or offered by attached workers, as a vector environment of gymnasium.

    >>> from parley.vector import VectorEnv
    >>> with parley.connect(ADDRESS) as server, VectorEnv(server, "CartPole-v1", 4, seed=1) as envs:
    ...     observations, infos = envs.reset()
    ...     observations, rewards, terminated, truncated, infos = envs.step(envs.action_space.sample())
    >>> observations.shape, rewards.tolist(), envs.single_action_space
    ((4, 4), [1.0, 1.0, 1.0, 1.0], Discrete(2))

Observations and actions are those of the spaces, by type: Dict, Tuple, MultiDiscrete, images. An environment whose episode is over is reset
by the next step (AutoresetMode.NEXT_STEP). This module needs numpy and gymnasium."""
from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from parley import spaces
from parley.channel import Link
from parley.client import Server
from parley.exact import whole
from parley.rollouts import Environments, Rollout
from parley.v1 import env_pb2, tensor_pb2
from parley.wire import Error

Array = npt.NDArray[Any]
Base: Any = gymnasium.vector.VectorEnv
MAX_SEED = (1 << 63) - 1


class VectorEnv(Base):  # type: ignore[misc]
    """n environments of one kind. If the worker of some is lost, or they fail, the others go on: the episodes of those that failed are
    truncated, `infos["failure"]` says why, and the next step resets them. If all fail, the first one's error is raised. After a step that
    was interrupted, as by Ctrl-C, reset must be called. Choices outside of their space are refused or, where an attached environment's
    space has several parts, cut to it; numbers outside of a Box reach the environment, as in gymnasium."""

    def __init__(self, server: Server | Link, name: str, n: int, *, seed: int | None = None) -> None:
        self.environments = Environments(server, name, n, None if seed is None else whole("seed", seed, 0, MAX_SEED))
        s = self.environments.spaces
        self.single_observation_space, self.single_action_space = spaces.load(s.spaces, s.observations, s.actions, s.action_numbers)
        self.name, self.num_envs = s.name, n
        self.observation_space = spaces.make_batch(self.single_observation_space, n)
        self.action_space = spaces.make_batch(self.single_action_space, n)
        self.metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}
        self._start = int(self.single_action_space.start) if spaces.is_choice(self.single_action_space) else None
        self._numbers = np.zeros((n, s.observations), "<f4")  # the last observation of each
        self._in_doubt = False

    def reset(self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins episodes. seed: environment i gets seed + i; or one for each; None: the next episodes of the present seeds.
        options={"reset_mask": [n] of bool} resets some of them; there are no other options."""
        mask = np.ones(self.num_envs, bool)
        rest = dict(options or {})
        if "reset_mask" in rest:
            mask = np.asarray(rest.pop("reset_mask"))
            if mask.shape != (self.num_envs,) or mask.dtype != bool or not mask.any():
                raise ValueError(f"reset_mask must have {self.num_envs} of bool, at least one of them True")
        if rest:
            raise ValueError(f"options has {sorted(rest)}, of which a daemon's environments know none")
        indices = np.flatnonzero(mask).tolist()
        request = env_pb2.EnvResetRequest(handle=self.environments.spaces.handle, indices=[] if len(indices) == self.num_envs else indices)
        if isinstance(seed, (int, np.integer)):
            request.seeds.extend(whole("seed", seed, 0, MAX_SEED) + i for i in indices)
        elif seed is not None:
            given = list(seed) if isinstance(seed, Iterable) and not isinstance(seed, str) else [seed]
            if len(given) != self.num_envs or any(given[i] is None for i in indices):
                raise ValueError(f"seed has {len(given)} entries, it must have a number for each of {self.num_envs} environments")
            request.seeds.extend(whole(f"seed[{i}]", given[i], 0, MAX_SEED) for i in indices)
        response = self.environments.link.once("Env/Reset", request, env_pb2.EnvResetResponse)
        self._in_doubt = self._in_doubt and len(indices) < self.num_envs
        self._numbers[indices] = self._read(response.observation).reshape(len(indices), -1)
        failures = {f.index: f for f in response.failures}
        if failures:
            raise self._error(next(iter(failures.values())))
        return self._observation(), self._infos(response.infos, {})

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Steps all environments; those whose episode is over begin the next, and their actions are ignored."""
        if self._in_doubt:
            raise Error("FAILED_PRECONDITION", "an earlier step was interrupted, and it is unknown whether the environments have made it: call reset")
        request = env_pb2.EnvStepRequest(handle=self.environments.spaces.handle, action=self._action(actions), auto_reset=True)
        self._in_doubt = True
        try:
            response = self.environments.link.once("Env/Step", request, env_pb2.EnvStepResponse)
        except Error as e:
            self._in_doubt = e.code == "UNAVAILABLE"  # a refused step was not made
            raise
        self._in_doubt = False
        self._numbers[...] = self._read(response.observation)
        failures = {f.index: f for f in response.failures}
        if len(failures) == self.num_envs:
            raise self._error(response.failures[0])
        truncated = self._read(response.truncated).astype(bool)
        truncated[list(failures)] = True
        return (self._observation(), self._read(response.reward).astype(np.float64), self._read(response.terminated).astype(bool), truncated,
                self._infos(response.infos, failures))

    def rollout(self, model: str, n_steps: int, **more: Any) -> Rollout:
        """Lets a policy of the daemon act, as Environments.rollout."""
        self._in_doubt = True  # what is stepped here is not read
        found = self.environments.rollout(model, n_steps, **more)
        self._in_doubt = False
        return found

    def close_extras(self, **_: Any) -> None:
        if hasattr(self, "environments"):  # gymnasium closes also what could not be made
            self.environments.close()

    def __enter__(self) -> VectorEnv:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _action(self, actions: Any) -> tensor_pb2.Tensor:
        if self._start is not None:
            chosen = np.asarray(actions)
            if chosen.shape != (self.num_envs,) or chosen.dtype.kind not in "iu":
                raise ValueError(f"actions are {chosen.dtype} {chosen.shape}, they must be integers of the shape {(self.num_envs,)}")
            data = (chosen.astype("<i8") - self._start).tobytes()
            return tensor_pb2.Tensor(name="action", dtype=tensor_pb2.DTYPE_I64, shape=[self.num_envs], data=data)
        each = spaces.iterate(self.action_space, actions)
        if len(each) != self.num_envs:
            raise ValueError(f"there are {len(each)} actions for {self.num_envs} environments")
        numbers = np.stack([spaces.flatten(self.single_action_space, action, f"action {i}") for i, action in enumerate(each)])
        return tensor_pb2.Tensor(name="action", dtype=tensor_pb2.DTYPE_F32, shape=numbers.shape, data=numbers.astype("<f4").tobytes())

    def _read(self, tensor: tensor_pb2.Tensor) -> Array:
        return np.frombuffer(tensor.data, "<f4" if tensor.dtype == tensor_pb2.DTYPE_F32 else "?").reshape(tuple(tensor.shape))

    def _observation(self) -> Any:
        return spaces.unflatten(self.single_observation_space, self._numbers.copy())

    def _error(self, failure: env_pb2.EnvFailure) -> Error:
        from parley.act import error_of

        error = error_of(failure.error)
        return Error(error.code, f"environment {failure.index}: {error.message}", error.reason, error.field, error.retry_after)

    def _infos(self, given: Sequence[env_pb2.EnvInfo], failures: dict[int, env_pb2.EnvFailure]) -> dict[str, Any]:
        infos: dict[str, Any] = {}
        for info in given:
            infos = self._add_info(infos, arrays_of(json.loads(info.json)), info.index)
        for i, failure in failures.items():
            infos = self._add_info(infos, {"failure": failure.error.message}, i)
        return infos


def arrays_of(info: Any) -> Any:
    """Lists of numbers become arrays, as they were."""
    if isinstance(info, dict):
        return {key: arrays_of(value) for key, value in info.items()}
    if isinstance(info, list) and info and all(isinstance(x, (int, float)) for x in info):
        return np.array(info)
    return info
