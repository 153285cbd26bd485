"""How parameters travel: in chunks of 1 MiB, each with its CRC-32C. A chunk's message is written and read here by hand, because the
generated classes copy its bytes several times on the way."""
from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from parley.client import Link
from parley.crc32c import crc32c
from parley.v1 import params_pb2 as pb
from parley.wire import Error

CHUNK_BYTES = 1 << 20
CHUNK, SHA256 = b"\x12", b"\x1a"  # the tags of the fields `chunk` and `sha256` of ParamsUpload, ParamsCreateRequest and ParamsDownload
OFFSET, DATA, CRC = 0x08, 0x12, 0x1D  # the tags of the fields of ParamsChunk
Floats = npt.NDArray[np.float32]


class Memory(NamedTuple):
    """What a stream of updates shares with the daemon. It lasts as long as the stream."""

    stream: object
    gradient: Floats
    values: Floats

    @classmethod
    def of(cls, stream: object, view: memoryview) -> Memory:
        gradient, values = np.frombuffer(view, "<f4").reshape(2, -1)
        return cls(stream, gradient, values)


class Chunk(NamedTuple):
    offset: int
    data: memoryview
    crc32c: int


def varint(n: int) -> bytes:
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Returns the number and the place behind it."""
    n = shift = 0
    while shift < 64:
        byte = data[at]
        at, n, shift = at + 1, n | (byte & 127) << shift, shift + 7
        if byte < 128:
            return n, at
    raise ValueError("a number has more than 64 bits")


def frames_of(values: Floats, crc_only: bool = False) -> Iterator[bytes]:
    """Yields the messages that carry the values: their chunks, then their hash; with crc_only (ParamsUploadHeader) an empty one."""
    data, sha256 = values.data.cast("B"), hashlib.sha256()
    for offset in range(0, len(data), CHUNK_BYTES):
        part = bytes(data[offset:offset + CHUNK_BYTES])
        if not crc_only:
            sha256.update(part)
        head = b"\x08" + varint(offset) + b"\x12" + varint(len(part))
        yield b"".join((CHUNK, varint(len(head) + len(part) + 5), head, part, b"\x1d", struct.pack("<I", crc32c(part))))
    yield SHA256 + b"\x00" if crc_only else b"".join((SHA256, b"\x20", sha256.digest()))


def serialise(message: Any) -> bytes:
    """What a stream of messages and of such frames gives to gRPC."""
    return message if isinstance(message, bytes) else bytes(message.SerializeToString())


def parse(message: bytes) -> Chunk | pb.ParamsDownload:
    """Reads a ParamsDownload; a chunk, as the daemon writes it, without a copy."""
    if message[:1] == CHUNK:
        try:
            view = memoryview(message)
            n, at = read_varint(view, 1)
            offset = 0
            if at + n == len(view):
                if view[at] == OFFSET:  # left out where it is 0
                    offset, at = read_varint(view, at + 1)
                if view[at] == DATA:
                    n, at = read_varint(view, at + 1)
                    if at + n + 5 == len(view) and view[at + n] == CRC:
                        return Chunk(offset, view[at:at + n], int.from_bytes(view[at + n + 1:], "little"))
        except (IndexError, ValueError):
            pass  # FromString says what is wrong
    found: pb.ParamsDownload = pb.ParamsDownload.FromString(message)
    if found.WhichOneof("what") == "chunk":
        return Chunk(found.chunk.offset, memoryview(found.chunk.data), found.chunk.crc32c)
    return found


def other_than_chunk(message: Chunk | pb.ParamsDownload) -> pb.ParamsDownload:
    if isinstance(message, Chunk):
        raise Error("DATA_LOSS", f"a chunk of parameters arrived at the wrong place, at byte {message.offset}: pull again", "CHECKSUM_DIFFERS")
    return message


def download(stream: Iterator[Chunk | pb.ParamsDownload]) -> tuple[pb.ParamsVersion, Floats]:
    """Receives a version and its values from a stream of what parse returns; the values are empty if the daemon sent none. The hash at the
    end is not compared: every byte is covered by its chunk's checksum, and every chunk by its place. StopIteration: the stream ended."""
    return rest_of(other_than_chunk(next(stream)).version, stream)


def rest_of(version: pb.ParamsVersion, stream: Iterator[Chunk | pb.ParamsDownload]) -> tuple[pb.ParamsVersion, Floats]:
    """Receives the values of a version that has come."""
    data, at = np.empty(version.size_bytes, np.uint8), 0
    while at < len(data):
        chunk = next(stream)
        if not isinstance(chunk, Chunk) or chunk.offset != at or not 0 < len(chunk.data) <= len(data) - at or crc32c(chunk.data) != chunk.crc32c:
            raise Error("DATA_LOSS", f"the chunk of parameters at byte {at} arrived damaged: pull again", "CHECKSUM_DIFFERS")
        data[at:at + len(chunk.data)] = np.frombuffer(chunk.data, np.uint8)
        at += len(chunk.data)
    if len(data) > 0:
        other_than_chunk(next(stream))
    return version, data.view("<f4")


def pull(link: Link, name: str, if_newer_than: int | None = None) -> Any:
    """Begins a Params/Pull; download reads it."""
    request = pb.ParamsPullRequest(name=name, if_newer_than=if_newer_than or 0, has_if_newer_than=if_newer_than is not None)
    return link.channel.unary_stream("/parley.v1.Params/Pull", pb.ParamsPullRequest.SerializeToString, parse)(request, metadata=link.metadata)
