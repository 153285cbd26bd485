"""Gymnasium's spaces on the wire: their description as JSON (EnvOpenResponse.spaces), and their values as flat float32 numbers. A space
with values that float32 does not have is refused, by its name; floats of more bits are rounded. This module needs numpy and gymnasium."""
from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
spaces: Any = gymnasium.spaces
EXACT = 1 << 24  # float32 has all whole numbers up to this


def bounds_of(bound: Array) -> Any:
    flat = [None if math.isinf(x) else x for x in bound.reshape(-1).tolist()]
    return flat[0] if flat and all(x == flat[0] for x in flat) else flat


def describe(space: Any, name: str = "the space") -> dict[str, Any]:
    """Returns a space's description; refuses spaces that cannot be sent, and names the part that is at fault."""
    if isinstance(space, spaces.Box):
        if space.dtype.kind not in "biuf":
            raise TypeError(f"{name} is {space}, whose numbers are no real ones")
        if space.dtype.kind in "iu" and (not math.prod(space.shape) or max(-float(space.low.min()), float(space.high.max())) > EXACT):
            raise TypeError(f"{name} is {space}: its numbers go beyond ±{EXACT}, where float32 does not have all of them; give it bounds within, or floats")
        return {"type": "box", "dtype": str(space.dtype), "shape": list(space.shape), "low": bounds_of(space.low), "high": bounds_of(space.high)}
    if isinstance(space, spaces.Discrete):
        if max(-int(space.start), int(space.start + space.n)) > EXACT:
            raise TypeError(f"{name} is {space}: its numbers go beyond ±{EXACT}, where float32 does not have all of them")
        return {"type": "discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        start = np.broadcast_to(space.start, space.shape)
        if max(-int(start.min()), int((start + space.nvec).max())) > EXACT:
            raise TypeError(f"{name} is {space}: its numbers go beyond ±{EXACT}, where float32 does not have all of them")
        return {"type": "multi_discrete", "dtype": str(space.dtype), "shape": list(space.shape), "nvec": space.nvec.reshape(-1).tolist(),
                "start": start.reshape(-1).tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"type": "multi_binary", "shape": list(space.shape)}
    if isinstance(space, spaces.Tuple):
        return {"type": "tuple", "spaces": [describe(s, f"{name}[{i}]") for i, s in enumerate(space.spaces)]}
    if isinstance(space, spaces.Dict):
        if not all(isinstance(key, str) for key in space.spaces):
            raise TypeError(f"{name} is {space}, whose keys are not all texts")
        return {"type": "dict", "spaces": {key: describe(s, f"{name}[{key!r}]") for key, s in sorted(space.spaces.items())}}
    raise TypeError(f"{name} is {space}: a Box, Discrete, MultiDiscrete, MultiBinary, Tuple or Dict can be sent")


def space_of(described: dict[str, Any]) -> Any:
    """Returns the space of a description."""
    kind, shape = described["type"], tuple(described.get("shape", ()))
    if kind == "box":
        dtype = np.dtype(described["dtype"])

        def bound(value: Any, missing: float) -> Array:
            flat = value if isinstance(value, list) else [value] * math.prod(shape)
            return np.array([missing if x is None else x for x in flat], dtype).reshape(shape)

        return spaces.Box(bound(described["low"], -math.inf), bound(described["high"], math.inf), shape, dtype)
    if kind == "discrete":
        return spaces.Discrete(described["n"], start=described["start"])
    if kind == "multi_discrete":
        dtype = np.dtype(described["dtype"])
        return spaces.MultiDiscrete(np.array(described["nvec"], dtype).reshape(shape), dtype, start=np.array(described["start"], dtype).reshape(shape))
    if kind == "multi_binary":
        return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
    if kind == "tuple":
        return spaces.Tuple([space_of(s) for s in described["spaces"]])
    if kind == "dict":
        return spaces.Dict({key: space_of(s) for key, s in described["spaces"].items()})
    raise TypeError(f"the type of a space is '{kind}', which this version does not know")


def parts_of(space: Any) -> Iterator[Any]:
    """Yields the spaces without parts, in the order in which their numbers follow each other."""
    if isinstance(space, spaces.Tuple):
        for part in space.spaces:
            yield from parts_of(part)
    elif isinstance(space, spaces.Dict):
        for _, part in sorted(space.spaces.items()):
            yield from parts_of(part)
    else:
        yield space


def size_of(space: Any) -> int:
    """Returns how many numbers a value has."""
    return sum(math.prod(part.shape) for part in parts_of(space))


def is_choice(space: Any) -> bool:
    return isinstance(space, spaces.Discrete)


def values_of(space: Any, value: Any, name: str) -> Iterator[Array]:
    if isinstance(space, spaces.Tuple):
        if len(value) != len(space.spaces):
            raise ValueError(f"{name} has {len(value)} parts, {space} has {len(space.spaces)}")
        for i, part in enumerate(space.spaces):
            yield from values_of(part, value[i], f"{name}[{i}]")
    elif isinstance(space, spaces.Dict):
        for key, part in sorted(space.spaces.items()):
            yield from values_of(part, value[key], f"{name}[{key!r}]")
    else:
        array = np.asarray(value)
        if array.shape != space.shape:
            raise ValueError(f"{name} has the shape {array.shape}, {space} has {space.shape}")
        if array.dtype.kind not in "biuf" or (array.dtype.kind == "f" and space.dtype.kind != "f"):
            raise ValueError(f"{name} has the type {array.dtype}, {space} has {space.dtype}")
        flat = array.reshape(-1).astype("<f4")
        if space.dtype.kind != "f" and (flat.astype(np.float64) != array.reshape(-1)).any():
            raise ValueError(f"{name} has a number that float32 does not have")
        yield flat


def flatten(space: Any, value: Any, name: str) -> Array:
    """Returns the numbers of a value of the space."""
    return np.concatenate([np.zeros(0, "<f4"), *values_of(space, value, name)])


def unflatten(space: Any, numbers: Array) -> Any:
    """Returns the value of these numbers, by type. numbers may have a dimension in front: then the value is a batch, as gymnasium has
    batches of a vector's spaces."""
    at = 0

    def take(part: Any) -> Any:
        nonlocal at
        if isinstance(part, spaces.Tuple):
            return tuple(take(p) for p in part.spaces)
        if isinstance(part, spaces.Dict):
            found = {key: take(p) for key, p in sorted(part.spaces.items())}
            return {key: found[key] for key in part.spaces}
        n = math.prod(part.shape)
        flat = numbers[..., at:at + n]
        at += n
        if part.dtype.kind in "iu":
            flat = np.rint(flat)
        if part.dtype.kind != "f":
            flat = clipped(part, flat)
        return flat.reshape(numbers.shape[:-1] + part.shape).astype(part.dtype)

    return take(space)


def clipped(space: Any, flat: Array) -> Array:
    """Whole numbers within the space's bounds: a policy's numbers may be any."""
    if isinstance(space, spaces.Box):
        low, high = space.low, space.high
    elif isinstance(space, spaces.Discrete):
        low, high = space.start, space.start + space.n - 1
    elif isinstance(space, spaces.MultiDiscrete):
        low, high = space.start, space.start + space.nvec - 1
    else:
        low, high = 0, 1
    return np.clip(flat, np.reshape(low, -1), np.reshape(high, -1))


def dump(observation: Any, action: Any) -> str:
    """Returns EnvOpenResponse.spaces."""
    return json.dumps({"observation": describe(observation, "the observation space"), "action": describe(action, "the action space")},
                      separators=(",", ":"))


def load(text: str, observations: int, actions: int, action_numbers: int) -> tuple[Any, Any]:
    """Returns the observation space and the action space; without a text, flat ones without bounds."""
    if text:
        described = json.loads(text)
        observation, action = space_of(described["observation"]), space_of(described["action"])
        if size_of(observation) != observations or (action.n if is_choice(action) else size_of(action)) != (actions or action_numbers):
            raise ValueError("the spaces of the environment differ from the sizes of its observations and actions")
        return observation, action
    box = spaces.Box(-math.inf, math.inf, (observations,), np.float32)
    return box, spaces.Discrete(actions) if actions else spaces.Box(-math.inf, math.inf, (action_numbers,), np.float32)


def make_batch(single: Any, n: int) -> Any:
    return gymnasium.vector.utils.batch_space(single, n)


def iterate(space: Any, batch: Any) -> Sequence[Any]:
    return list(gymnasium.vector.utils.iterate(space, batch))
