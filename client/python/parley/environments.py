"""Define your own environments for `parley.v1.Env`: any object that has gymnasium's spaces, reset and step.

    @parley.environment("Corridor-v0")
    class Corridor(gymnasium.Env): ...

    parley.serve(Corridor, "127.0.0.1:8001")       # or environment("Acrobot-v1")(lambda: gymnasium.make("Acrobot-v1"))

Each environment that a client opens has its own instance. The environments of one request are stepped one after the other. With
`parley.aio.serve`, reset and step may be coroutines, and the environments of one request then run concurrently. An exception fails
only the environment that raised it, until that environment is reset. This module needs numpy."""
from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from parley.v1 import agents_pb2 as pb
from parley.v1 import tensor_pb2

M = TypeVar("M", bound=Callable[[], Any])


def environment(name: str, *, max_instances: int = 0) -> Callable[[M], M]:
    """Declares a class, or a function that returns an instance, as an environment. max_instances: how many instances one worker hosts
    at the same time (0: 4096)."""
    def mark(make: M) -> M:
        make.__parley_environment__ = name, max_instances  # type: ignore[attr-defined]
        return make
    return mark


def is_environment(what: Any) -> bool:
    return hasattr(what, "__parley_environment__")


class Host:
    """Carries out the daemon's orders to environments."""

    def __init__(self, make: Callable[[], Any], name: str) -> None:
        given, self.max_instances = make.__parley_environment__  # type: ignore[attr-defined]
        self.make, self.name = make, name or given
        self.instances: dict[int, Any] = {}
        one = make()
        if getattr(one.observation_space, "shape", None) is None:
            raise TypeError(f"the observation space is {one.observation_space}, it must have a shape, as a Box has")
        self.width = math.prod(one.observation_space.shape)
        self.action_space = one.action_space
        self.n_actions = int(getattr(one.action_space, "n", 0))
        if self.n_actions == 0 and getattr(one.action_space, "shape", None) is None:
            raise TypeError(f"the action space is {one.action_space}, it must be a Discrete or a Box")
        self.n_numbers = 0 if self.n_actions else math.prod(one.action_space.shape)

    def offer(self) -> pb.AgentsAttachRequest:
        spaces = pb.AgentEnvironment(observations=self.width, actions=self.n_actions, action_numbers=self.n_numbers,
                                     max_instances=self.max_instances)
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
        else:
            actions = np.frombuffer(order.action.data, "<f4").reshape((-1, *self.action_space.shape))
        return lambda i: self.instances[order.environment[i]].step(actions[i])

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
                if isinstance(order, pb.AgentEnvStep):
                    _, reward[i], terminated[i], truncated[i], *_ = said
                seen[i] = np.asarray(said[0], "<f4").reshape(self.width)
                if not (np.isfinite(seen[i]).all() and np.isfinite(reward[i])):
                    raise ValueError("the environment returned a number that is not finite")
            except Exception as e:
                seen[i], reward[i] = 0, 0
                result.failures.add(place=i, message=f"{type(e).__name__}: {e}".replace("\n", " ")[:500])
        parts = [(result.observation, seen, tensor_pb2.DTYPE_F32)]
        if isinstance(order, pb.AgentEnvStep):
            parts += [(result.reward, reward, tensor_pb2.DTYPE_F32), (result.terminated, terminated, tensor_pb2.DTYPE_BOOL),
                      (result.truncated, truncated, tensor_pb2.DTYPE_BOOL)]
        for tensor, array, dtype in parts:
            tensor.CopyFrom(tensor_pb2.Tensor(dtype=dtype, shape=array.shape, data=array.tobytes()))
        return pb.AgentsAttachRequest(env_result=result)
