"""The weights of a folder as transformers saves it, from their names alone: a recording needs no numbers, and whoever
records and whoever tests has the same ones."""

import json
import zlib

import numpy as np


def values(name, shape, base, scale):
    """float32, normal around base."""
    numbers = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
    return (base + scale * numbers).astype(np.float32)


def base_and_scale(name, shape, mean):
    """Peaked attention, uneven norms, live biases; mean: of the weight that transformers has made."""
    if len(shape) > 1:
        return 0.0, 1.5 / shape[-1] ** 0.5
    return round(float(mean)), 0.15 if "norm" in name else 0.3


def write(path, tensors):
    """name -> (dtype, shape, bytes)"""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    head = json.dumps(header).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + b"".join(data for _, _, data in tensors.values()))
