"""Policies of one's own: a file with fresh parameters, for `parleyd --model NAME=FILE`."""
from __future__ import annotations

import array
import os
import random
import struct

KINDS = {str: 8, int: 10, float: 6, bool: 7}  # GGUF's text, u64, f32 and bool


def _text(s: str) -> bytes:
    return struct.pack("<Q", len(s.encode())) + s.encode()


def _value(v: str | int | float) -> bytes:
    if isinstance(v, str):
        return _text(v)
    return struct.pack("<?" if isinstance(v, bool) else "<Q" if isinstance(v, int) else "<f", v)


def create(path: str, observations: int, actions: int, *, head: str = "softmax", hidden: int = 64, layers: int = 2, seed: int = 1,
           environment: str = "") -> None:
    """A network of so many hidden layers, with a value head. `head`: "softmax", which chooses among so many actions; "gaussian",
    whose actions are so many numbers; "duelling", which learns what actions are worth."""
    outputs = 2 * actions if head == "gaussian" else actions
    shapes = [(f"hidden.{i}", observations if i == 0 else hidden, hidden) for i in range(layers)]
    shapes += [("actions", hidden, outputs), ("value", hidden, 1)]
    keys: dict[str, str | int | float] = {
        "general.architecture": "policy", "policy.kind": "mlp", "policy.head": head, "policy.environment": environment,
        "policy.observation_length": observations, "policy.action_count": actions, "policy.hidden_length": hidden,
        "policy.hidden_layers": layers, "policy.dropout": 0.0, "policy.has_value": True, "policy.seed": seed}
    drawn, infos, data = random.Random(seed), b"", b""
    for name, n_in, n_out in shapes:
        bound = n_in ** -0.5
        for part, dims in ((".weight", (n_in, n_out)), (".bias", (n_out, 1))):
            infos += _text(name + part) + struct.pack("<IQQIQ", 2, *dims, 0, len(data))
            numbers = array.array("f", (drawn.uniform(-bound, bound) for _ in range(dims[0] * dims[1])))
            data += numbers.tobytes() + bytes(-len(numbers) * 4 % 32)
    head_bytes = b"GGUF" + struct.pack("<IQQ", 3, 2 * len(shapes), len(keys))
    head_bytes += b"".join(_text(k) + struct.pack("<I", KINDS[type(v)]) + _value(v) for k, v in keys.items()) + infos
    with open(path + ".part", "wb") as out:
        out.write(head_bytes + bytes(-len(head_bytes) % 32) + data)
    os.replace(path + ".part", path)
