"""Creates new policies: files with random parameters for `parleyd --model NAME=FILE`. This module needs numpy.

With the same sizes and seed, `parley policy new` writes the same file, byte for byte."""
from __future__ import annotations

import os
import struct

import numpy as np
from numpy.typing import NDArray

KINDS = {str: 8, int: 10, float: 6, bool: 7}  # GGUF's text, u64, f32 and bool
ALIGNMENT = 32  # GGUF's default
WORD = 0xFFFFFFFF


def _text(s: str) -> bytes:
    return struct.pack("<Q", len(s.encode())) + s.encode()


def _value(v: str | int | float) -> bytes:
    if isinstance(v, str):
        return _text(v)
    return struct.pack("<?" if isinstance(v, bool) else "<Q" if isinstance(v, int) else "<f", v)


def _drawn(seed: int, which: int, n: int, fan: int) -> NDArray[np.float32]:
    """Draws n numbers uniformly from ±1 / sqrt(fan): the first words of Philox-4x32-10 at (seed, which, 0 … n - 1, 1)."""
    c0, c1, c2, c3 = (np.full(n, x, np.uint64) for x in (0, which, 1, 0))
    c0 += np.arange(n, dtype=np.uint64)
    k0, k1 = seed & WORD, seed >> 32
    for _ in range(10):
        product0, product1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1 = product1 >> np.uint64(32) ^ c1 ^ np.uint64(k0), product1 & np.uint64(WORD)
        c2, c3 = product0 >> np.uint64(32) ^ c3 ^ np.uint64(k1), product0 & np.uint64(WORD)
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    uniform = (c0 >> np.uint64(8)).astype(np.float32) * np.float32(2 ** -24)
    bound = np.float32(1) / np.sqrt(np.float32(fan))
    return np.asarray(bound * (np.float32(2) * uniform - np.float32(1)), "<f4")


def create(path: str, observations: int, actions: int, *, head: str = "softmax", kind: str = "mlp", hidden: int = 64, layers: int | None = None,
           dropout: float = 0.0, value: bool = True, seed: int = 1, environment: str = "") -> None:
    """Writes a new policy to `path`; an existing file is replaced. `kind`: "mlp", which has `layers` hidden layers (2), or "lstm", which
    has one cell. `head`: "softmax", which chooses one of `actions` actions; "gaussian", whose action is a vector of `actions` numbers;
    or "duelling", which learns the value of each action. `value`: whether the policy also has a head that estimates the return."""
    if kind not in ("mlp", "lstm"):
        raise ValueError(f"kind is {kind!r}, it must be 'mlp' or 'lstm'")
    if head not in ("softmax", "gaussian", "duelling"):
        raise ValueError(f"head is {head!r}, it must be 'softmax', 'gaussian' or 'duelling'")
    if head == "duelling" and not value:
        raise ValueError("a duelling head needs a value head: set value=True")
    if kind == "lstm" and (layers not in (None, 1) or dropout != 0):
        raise ValueError("an lstm has one layer and no dropout: leave out layers and dropout")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout is {dropout}, it must be at least 0 and less than 1")
    least = 1 if head == "gaussian" else 2
    layers = layers if layers is not None else 1 if kind == "lstm" else 2
    if observations < 1 or actions < least or hidden < 1 or layers < 1 or not 0 <= seed < 1 << 64:
        raise ValueError(f"observations, hidden and layers must be at least 1, actions at least {least}, and seed an unsigned number of 64 bits")
    outputs = 2 * actions if head == "gaussian" else actions
    # For each layer: its name, its inputs and outputs, and the fan-in that bounds its random parameters.
    shapes = [("lstm.input", observations, 4 * hidden, hidden), ("lstm.state", hidden, 4 * hidden, hidden)]
    if kind == "mlp":
        widths = [observations] + [hidden] * layers
        shapes = [(f"hidden.{i}", widths[i], hidden, widths[i]) for i in range(layers)]
    shapes += [("actions", hidden, outputs, hidden)] + [("value", hidden, 1, hidden)] * value
    keys: dict[str, str | int | float] = {"general.architecture": "policy", "policy.kind": kind}
    if head != "softmax":
        keys["policy.head"] = head
    keys |= {"policy.environment": environment, "policy.observation_length": observations, "policy.action_count": actions,
             "policy.hidden_length": hidden, "policy.hidden_layers": layers, "policy.dropout": float(dropout), "policy.has_value": value,
             "policy.seed": seed}
    infos, data = b"", bytearray()
    for i, (name, n_in, n_out, fan) in enumerate(shapes):
        for which, part in enumerate((".weight", ".bias")):
            rows, columns = (n_out, n_in) if which == 0 else (1, n_out)
            dims = (columns,) if rows == 1 else (columns, rows)
            infos += _text(name + part) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, 0, len(data))
            data += _drawn(seed, 2 * i + which, rows * columns, fan).tobytes()
            data += bytes(-len(data) % ALIGNMENT)
    start = b"GGUF" + struct.pack("<IQQ", 3, 2 * len(shapes), len(keys))
    start += b"".join(_text(k) + struct.pack("<I", KINDS[type(v)]) + _value(v) for k, v in keys.items()) + infos
    with open(path + ".part", "wb") as out:
        out.write(start + bytes(-len(start) % ALIGNMENT) + data)
    os.replace(path + ".part", path)
