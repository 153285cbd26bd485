"""Objects as bytes, lambdas and local functions included, with large arrays by value or by reference.

By reference bytes name shared memory of a process: /proc/PID/fd/FD, a memfd, which no process can leave behind. It is there as
long as an array in it lives in that process."""
from __future__ import annotations

import io
import mmap
import os
import pickle
import secrets
import struct
import threading
import weakref
from collections.abc import Sequence
from typing import Any

MIN_BYTES = 1024  # of an array that leaves the pickle
_HEAD = struct.Struct("<II")  # buffers, bytes of the pickle
_BUFFER = struct.Struct("<Qq32sQQ")  # bytes; by value -1, else place in the segments, name, its size, offset; see _OWNER
_OWNER = struct.Struct("<II")  # process, descriptor: of each buffer by reference
ALIGNMENT = 16  # of a buffer by value, from the first: they lie behind all else, and each is filled up to a multiple
_PLAIN = frozenset((int, float, complex, str, bytes, bool, type(None)))


class Segment(mmap.mmap):
    """Shared memory of this process, or of another that made it."""

    name: str
    fd: int
    start: int
    is_own: bool

    def __del__(self) -> None:
        os.close(self.fd)


_segments: weakref.WeakValueDictionary[str, Segment] = weakref.WeakValueDictionary()
_lock = threading.RLock()


def _mapped(fd: int, name: str, size: int, is_own: bool) -> Segment:
    import numpy

    segment = Segment(fd, size)
    segment.fd, segment.name, segment.is_own = fd, name, is_own
    segment.start = numpy.frombuffer(segment, numpy.uint8).ctypes.data
    with _lock:
        _segments[name] = segment
    return segment


def _make(size: int) -> Segment:
    name = secrets.token_hex(16)
    fd = os.memfd_create(f"parley-{name}", os.MFD_CLOEXEC)
    os.ftruncate(fd, size)
    return _mapped(fd, name, size, True)


def _open(name: str, size: int, pid: int, fd: int | None, its_fd: int) -> Segment:
    """fd: one that came along, and is ours; None: none did."""
    with _lock:
        known = _segments.get(name)
    if known is not None:
        if fd is not None:
            os.close(fd)
        return known
    if fd is None:
        fd = os.open(f"/proc/{pid}/fd/{its_fd}", os.O_RDWR | os.O_CLOEXEC)
    if os.readlink(f"/proc/self/fd/{fd}") != f"/memfd:parley-{name} (deleted)" or os.fstat(fd).st_size < size:
        os.close(fd)
        raise ValueError("the shared memory is gone with the array that it was made for")
    return _mapped(fd, name, size, False)


def share(array: Any) -> Any:
    """A copy of a numpy array in shared memory: what one process writes there the others see. One that is there already is
    returned itself."""
    import numpy

    flat = numpy.ascontiguousarray(array)
    if flat.size == 0 or _find(flat.reshape(-1).view(numpy.uint8).data) is not None:
        return array
    copy = numpy.frombuffer(_make(flat.nbytes), dtype=flat.dtype).reshape(numpy.shape(array))
    copy[...] = array
    return copy


def _find(view: memoryview) -> tuple[Segment, int] | None:
    """The segment of a buffer, and where in it."""
    import numpy

    at = numpy.frombuffer(view, numpy.uint8).ctypes.data
    with _lock:
        for segment in list(_segments.values()):
            if segment.start <= at and at + view.nbytes <= segment.start + len(segment):
                return segment, at - segment.start
    return None


def _pickle(what: Any, take: Any) -> bytes:
    if type(what) in _PLAIN:
        return pickle.dumps(what, 5)
    import cloudpickle

    file = io.BytesIO()
    cloudpickle.Pickler(file, 5, buffer_callback=take).dump(what)
    return file.getvalue()


def padding(n: int) -> bytes:
    return bytes(-n % ALIGNMENT)


def pack(what: Any, by_reference: bool, others: str = "share") -> tuple[list[bytes | memoryview], list[Segment]]:
    """The parts of its bytes, and the segments that are to live until they are read. others: by reference, arrays that are not
    in shared memory are copied there ("share"), or refused ("refuse"), or they and those in memory of our own go by value
    ("value"), so that nothing has to live."""
    buffers = list[memoryview]()
    segments = list[Segment]()

    def take(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < MIN_BYTES and not (by_reference and raw.nbytes > 0 and _find(raw)):
            return True  # stays in the pickle
        buffers.append(raw)
        return False

    body = _pickle(what, take)
    parts: list[bytes | memoryview] = [_HEAD.pack(len(buffers), len(body)), body]
    values = list[bytes | memoryview]()
    for raw in buffers:
        found = _find(raw) if by_reference else None
        if not by_reference or others == "value" and (found is None or found[0].is_own):
            parts.append(_BUFFER.pack(raw.nbytes, -1, b"", 0, 0))
            values += [raw, padding(raw.nbytes)]
            continue
        if found is None and others == "refuse":
            raise ValueError("an array is not in shared memory, share() makes a copy that is")
        if found is None:
            found = _make(raw.nbytes), 0
            found[0][:] = raw
        segment, offset = found
        segments.append(segment)
        parts += [_BUFFER.pack(raw.nbytes, len(segments) - 1, segment.name.encode(), len(segment), offset),
                  _OWNER.pack(os.getpid(), segment.fd)]
    return parts + values, segments


def values_at(parts: Sequence[bytes | memoryview]) -> int:
    """Where in the parts of pack its buffers by value begin: they alone are no bytes, but for what fills them up."""
    return next((i for i, p in enumerate(parts) if not isinstance(p, bytes)), len(parts))


def unpack(data: bytes | memoryview, fds: Sequence[int] | None = None, values: memoryview | None = None) -> Any:
    """fds: of the segments, in their order; they are taken. values: the buffers by value, where they do not follow; arrays then lie
    in this memory itself, if it is writable."""
    view = memoryview(data)
    n, size = _HEAD.unpack_from(view)
    at = _HEAD.size + size
    body = view[_HEAD.size:at]
    buffers = list[Any]()
    by_value = list[tuple[int, int]]()  # which buffer, its bytes
    for i in range(n):
        n_bytes, place, name, whole, offset = _BUFFER.unpack_from(view, at)
        at += _BUFFER.size
        if place < 0:
            by_value.append((i, n_bytes))
            buffers.append(None)
            continue
        pid, its_fd = _OWNER.unpack_from(view, at)
        at += _OWNER.size
        segment = _open(name.decode(), whole, pid, None if fds is None else fds[place], its_fd)
        buffers.append(memoryview(segment)[offset:offset + n_bytes])
    is_ours = values is not None and not values.readonly
    behind = view[at:] if values is None else values
    at = 0
    for i, n_bytes in by_value:
        value = behind[at:at + n_bytes]
        if value.nbytes < n_bytes:
            raise ValueError("the bytes of an array are cut")
        buffers[i] = value if is_ours else bytearray(value)  # of its own, and writable
        at += n_bytes + -n_bytes % ALIGNMENT
    return pickle.loads(body, buffers=buffers)


def dumps(what: Any, recurse: bool = True, copy_tensor: bool = True) -> bytes:
    """copy_tensor=False: arrays go by reference, and must be in shared memory (share). Functions that cannot be imported go
    whole, with what they refer to, whatever recurse says."""
    return b"".join(pack(what, not copy_tensor, "refuse")[0])


def loads(data: bytes) -> Any:
    return unpack(data)
