"""Define your own environments for `parley.v1.Env`: any object that has gymnasium's spaces, reset and step.

    >>> import gymnasium
    >>> @parley.environment("Corridor-v0")
    ... class Corridor(gymnasium.Env):
    ...     observation_space, action_space = gymnasium.spaces.Box(0, 5, (1,)), gymnasium.spaces.Discrete(2)
    ...     def reset(self, *, seed=None, options=None):
    ...         self.at = 0
    ...         return [0], {}
    ...     def step(self, action):
    ...         self.at = max(self.at + 2 * action - 1, 0)
    ...         return [self.at], float(self.at == 5), self.at == 5, False, {}

    parley.serve(Corridor, "127.0.0.1:8001")       # or environment("Acrobot-v1")(lambda: gymnasium.make("Acrobot-v1"))

Each environment that a client opens has its own instance. The environments of one request are stepped one after the other. With
`parley.aio.serve`, reset and step may be coroutines, and the environments of one request then run concurrently. An exception fails
only the environment that raised it, until that environment is reset. This module needs numpy."""
from __future__ import annotations

import asyncio
import inspect
import json
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from parley.keywords import checked, named
from parley.tidings import told
from parley.v1 import agents_pb2 as pb
from parley.v1 import tensor_pb2

M = TypeVar("M", bound=Callable[[], Any])


@checked
def environment(name: str, *, max_instances: int = 0) -> Callable[[M], M]:
    """Declares a class, or a function that returns an instance, as an environment. max_instances: how many instances one worker hosts
    at the same time (0: 4096)."""
    named(name, "environment")

    def mark(make: M) -> M:
        make.__parley_environment__ = name, max_instances  # type: ignore[attr-defined]
        return make
    return mark


def is_of_gymnasium(space: Any) -> bool:
    gymnasium = sys.modules.get("gymnasium")  # whose spaces are imported by whoever has one
    return gymnasium is not None and isinstance(space, gymnasium.spaces.Space)


INFO_BYTES = 1 << 16
STEP, RESET = "(observation, reward, terminated, truncated, info)", "(observation, info)"


def info_json(info: Any) -> str:
    """Returns an info as JSON, "" for none. What JSON does not have is left out, and its keys are listed as "_not_sent"."""
    if not isinstance(info, dict) or not info:
        return ""
    sent: dict[str, str] = {}
    left_out = []
    for key, value in info.items():
        try:
            sent[str(key)] = json.dumps(value, default=plain, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            left_out.append(str(key))
    for key in sorted(sent, key=lambda key: -len(sent[key])):  # the largest first
        if sum(map(len, sent.values())) > INFO_BYTES:
            left_out.append(key)
            del sent[key]
    if left_out:
        sent["_not_sent"] = json.dumps(sorted(left_out)[:100])
    return "{" + ",".join(f"{json.dumps(key)}:{value}" for key, value in sent.items()) + "}"


def plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # numpy's
        return value.tolist()
    raise TypeError(f"the info holds a {type(value).__name__}")


def is_environment(what: Any) -> bool:
    return hasattr(what, "__parley_environment__")


class Host:
    """Carries out the daemon's orders to environments."""

    def __init__(self, make: Callable[[], Any], name: str) -> None:
        given, self.max_instances = make.__parley_environment__  # type: ignore[attr-defined]
        self.make, self.name = make, name or given
        self.instances: dict[int, Any] = {}
        one = make()
        self.observation_space, self.action_space = one.observation_space, one.action_space
        self.described = ""
        self.by_type = is_of_gymnasium(one.observation_space) and is_of_gymnasium(one.action_space)
        if self.by_type:
            from parley import spaces

            self.described = spaces.dump(one.observation_space, one.action_space)
            self.width, size = spaces.size_of(one.observation_space), spaces.size_of(one.action_space)
            self.n_actions = int(one.action_space.n) if spaces.is_choice(one.action_space) else 0
            self.n_numbers = 0 if self.n_actions else size
            return
        if getattr(one.observation_space, "shape", None) is None:
            raise TypeError(f"the observation space is {one.observation_space}, it must have a shape, as a Box has")
        self.width = math.prod(one.observation_space.shape)
        self.n_actions = int(getattr(one.action_space, "n", 0))
        if self.n_actions == 0 and getattr(one.action_space, "shape", None) is None:
            raise TypeError(f"the action space is {one.action_space}, it must be a Discrete or a Box")
        self.n_numbers = 0 if self.n_actions else math.prod(one.action_space.shape)

    def offer(self) -> pb.AgentsAttachRequest:
        spaces = pb.AgentEnvironment(observations=self.width, actions=self.n_actions, action_numbers=self.n_numbers,
                                     max_instances=self.max_instances, spaces=self.described)
        return pb.AgentsAttachRequest(offer=pb.AgentOffer(name=self.name, environment=spaces))

    def take(self, order: pb.AgentsAttachResponse) -> pb.AgentsAttachRequest | None:
        what = self.batch_of(order)
        if what is None:
            self.close(order.env_close.environment)
            return None
        begin, did = self.beginner(what), list[Any]()
        for i in range(len(what.environment)):
            try:
                did.append(begin(i))
            except Exception as e:  # raised by the environment: only this environment fails
                did.append(e)
        return self.answer(what, did)

    async def take_at_once(self, order: pb.AgentsAttachResponse) -> pb.AgentsAttachRequest | None:
        """Like take, but awaits the coroutines of one order concurrently."""
        what = self.batch_of(order)
        if what is None:
            return self.take(order)
        begin = self.beginner(what)

        async def one(i: int) -> Any:
            did = begin(i)
            return await did if inspect.isawaitable(did) else did

        did = await asyncio.gather(*map(one, range(len(what.environment))), return_exceptions=True)
        for e in did:
            if isinstance(e, BaseException) and not isinstance(e, Exception):
                raise e  # this task is cancelled
        return self.answer(what, did)

    def batch_of(self, order: pb.AgentsAttachResponse) -> pb.AgentEnvReset | pb.AgentEnvStep | None:
        what = order.WhichOneof("what")
        return order.env_reset if what == "env_reset" else order.env_step if what == "env_step" else None

    def close(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            closed = self.instances.pop(number, None)
            if hasattr(closed, "close"):
                closed.close()

    def beginner(self, order: pb.AgentEnvReset | pb.AgentEnvStep) -> Callable[[int], Any]:
        """Returns a function that resets or steps the order's i-th environment and returns that environment's result."""
        import numpy as np

        if isinstance(order, pb.AgentEnvReset):
            def reset(i: int) -> Any:
                number = order.environment[i]
                if number not in self.instances:
                    self.instances[number] = self.make()
                return self.instances[number].reset(seed=order.seed[i] % (1 << 31))
            return reset
        if self.n_actions:
            actions = np.frombuffer(order.action.data, "<i8") + int(getattr(self.action_space, "start", 0))
        elif self.by_type:
            from parley import spaces

            numbers = np.frombuffer(order.action.data, "<f4").reshape((-1, self.n_numbers))
            return lambda i: self.instances[order.environment[i]].step(spaces.unflatten(self.action_space, numbers[i]))
        else:
            actions = np.frombuffer(order.action.data, "<f4").reshape((-1, *self.action_space.shape)).copy()  # its own, to write to
        return lambda i: self.instances[order.environment[i]].step(actions[i])

    def numbers_of(self, observation: Any) -> Any:
        import numpy as np

        if self.by_type:
            from parley import spaces

            return spaces.flatten(self.observation_space, observation, "the observation")
        return np.asarray(observation, "<f4").reshape(self.width)

    def answer(self, order: pb.AgentEnvReset | pb.AgentEnvStep, did: Sequence[Any]) -> pb.AgentsAttachRequest:
        """did: what each reset or step returned or raised."""
        import numpy as np

        n = len(did)
        seen, reward = np.zeros((n, self.width), "<f4"), np.zeros(n, "<f4")
        terminated, truncated = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
        result = pb.AgentEnvResult(order=order.order)
        for i, said in enumerate(did):
            try:
                if isinstance(said, Exception):
                    raise said
                returns = STEP if isinstance(order, pb.AgentEnvStep) else RESET
                if not isinstance(said, (tuple, list)) or len(said) != returns.count(",") + 1:  # of older interfaces, too
                    raise TypeError(f"it returned {f'{len(said)} values' if isinstance(said, (tuple, list)) else type(said).__name__}, it must return {returns}")
                if returns is STEP:
                    _, reward[i], terminated[i], truncated[i], _ = said
                seen[i] = self.numbers_of(said[0])
                if not (np.isfinite(seen[i]).all() and np.isfinite(reward[i])):
                    raise ValueError("the environment returned a number that is not finite")
                info = info_json(said[-1])
                if info:
                    result.infos.add(place=i, json=info)
            except Exception as e:
                seen[i], reward[i] = 0, 0
                result.failures.add(place=i, message=told(self.name, e))
        parts: list[tuple[tensor_pb2.Tensor, Any, Any]] = [(result.observation, seen, tensor_pb2.DTYPE_F32)]
        if isinstance(order, pb.AgentEnvStep):
            parts += [(result.reward, reward, tensor_pb2.DTYPE_F32), (result.terminated, terminated, tensor_pb2.DTYPE_BOOL),
                      (result.truncated, truncated, tensor_pb2.DTYPE_BOOL)]
        for tensor, array, dtype in parts:
            tensor.CopyFrom(tensor_pb2.Tensor(dtype=dtype, shape=array.shape, data=array.tobytes()))
        return pb.AgentsAttachRequest(env_result=result)
