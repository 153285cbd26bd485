"""CRC-32C (Castagnoli): by google-crc32c, which uses the processor's instruction, if it is installed, else with numpy. With numpy the
data is cut into lanes, which are computed side by side and then combined in pairs."""
from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Any

import numpy as np
import numpy.typing as npt

HAS_LIBRARY = importlib.util.find_spec("google_crc32c") is not None
instruction: Any = importlib.import_module("google_crc32c") if HAS_LIBRARY else None

LANE = 256  # bytes
Words = npt.NDArray[np.uint32]


def byte_table() -> Words:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(0x82F63B78), table >> 1).astype(np.uint32)
    return table


TABLE = byte_table()
TABLE_LIST = [int(x) for x in TABLE]


def shift(tables: Words, crc: Words) -> Words:
    """Returns the checksum of the data followed by zeros; tables: [4][256], one table for each byte of crc."""
    moved: Words = tables[0][crc & 255] ^ tables[1][crc >> 8 & 255] ^ tables[2][crc >> 16 & 255] ^ tables[3][crc >> 24]
    return moved


@functools.cache
def zeros(level: int) -> Words:
    """Returns the tables with which shift appends LANE << level zero bytes."""
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    if level == 0:
        for _ in range(LANE):
            bits = TABLE[bits & 255] ^ bits >> 8
    else:
        half = zeros(level - 1)
        bits = shift(half, shift(half, bits))
    tables = np.zeros((4, 256), np.uint32)
    for i in range(32):
        tables[i // 8][np.arange(256) >> i % 8 & 1 == 1] ^= bits[i]
    return tables


def crc32c(data: bytes | memoryview) -> int:
    # Without its C extension the library computes byte by byte, slower than numpy.
    if instruction is not None and instruction.implementation == "c":
        return int(instruction.value(bytes(data)))  # a view is copied; bytes are not
    return crc32c_by_numpy(data)


def crc32c_by_numpy(data: bytes | memoryview) -> int:
    values = np.frombuffer(data, np.uint8)
    n_lanes = len(values) // LANE
    crc = 0xFFFFFFFF
    if n_lanes > 0:
        levels = (n_lanes - 1).bit_length()
        lanes = np.zeros(1 << levels, np.uint32)  # leading zeros do not change the checksum
        lanes[-n_lanes] = crc
        columns = np.ascontiguousarray(values[:n_lanes * LANE].reshape(n_lanes, LANE).T)
        real = lanes[-n_lanes:]
        for column in columns:
            real = TABLE[(real ^ column) & 255] ^ real >> 8
        lanes[-n_lanes:] = real
        for level in range(levels):
            lanes = shift(zeros(level), lanes[0::2]) ^ lanes[1::2]
        crc = int(lanes[0])
    for byte in values[n_lanes * LANE:].tolist():
        crc = crc >> 8 ^ TABLE_LIST[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF
