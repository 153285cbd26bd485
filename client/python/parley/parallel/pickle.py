"""Pickles objects, lambdas and local functions included, with large arrays by value or by reference. By reference, that holds for arrays that
are not contiguous, and for tensors of torch, too; by value these are within the pickle.

By reference, the bytes name shared memory of a process: /proc/PID/fd/FD, a memfd, which vanishes with its last user. It exists as long
as an array in it exists in that process."""
from __future__ import annotations

import ctypes
import io
import mmap
import os
import pickle
import secrets
import struct
import sys
import threading
import weakref
from collections.abc import Sequence
from typing import Any

MIN_BYTES = 1024  # smaller arrays stay within the pickle
_HEAD = struct.Struct("<II")  # number of buffers, bytes of the pickle
_BUFFER = struct.Struct("<Qq32sQQ")  # size in bytes; -1 if by value, else index of the segment; the segment's name and size; offset in it
_OWNER = struct.Struct("<II")  # follows _BUFFER for each buffer by reference: the owner's process id and file descriptor
ALIGNMENT = 16  # of a buffer by value; these buffers come last, each padded to a multiple of this
NOT_SHARED = "an array is not in shared memory: pass a copy that share() makes"
_TORCH = "torch-"  # begins the name of memory that torch has made
_PLAIN = frozenset((int, float, complex, str, bytes, bool, type(None)))


class Segment(mmap.mmap):
    """Shared memory that this process or another one has created. owner: what has the descriptor, if the segment itself has not."""

    name: str
    fd: int
    start: int
    is_own: bool
    owner: Any = None

    def __del__(self) -> None:
        if self.owner is None:
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
    """Maps the segment. fd: a descriptor of the segment, which this function takes; None: open the owner's descriptor its_fd."""
    with _lock:
        known = _segments.get(name)
    if known is not None:
        if fd is not None:
            os.close(fd)
        return known
    if fd is None:
        fd = os.open(f"/proc/{pid}/fd/{its_fd}", os.O_RDWR | os.O_CLOEXEC)
    its_name = _torch_name(fd) if name.startswith(_TORCH) else os.readlink(f"/proc/self/fd/{fd}")
    if its_name not in (name, f"/memfd:parley-{name} (deleted)") or os.fstat(fd).st_size < size:
        os.close(fd)
        raise ValueError("the shared memory of an array is gone: the process that sent the array has freed it")
    return _mapped(fd, name, size, False)


def share(array: Any) -> Any:
    """Copies a numpy array, or a tensor of torch, into shared memory, where all processes see what one of them writes. What is in memory
    that this function has made is returned itself, and so is a tensor that torch's share_memory_ has moved."""
    import numpy

    if hasattr(array, "detach"):
        return _share_tensor(array)
    if isinstance(array, numpy.ma.MaskedArray):
        raise TypeError("the mask of a masked array would be lost in shared memory: pass array.filled(…)")
    flat = numpy.ascontiguousarray(array)
    if flat.size == 0 or _find(flat.reshape(-1).view(numpy.uint8).data) is not None:
        return array
    copy = numpy.frombuffer(_make(flat.nbytes), dtype=flat.dtype).reshape(numpy.shape(array))
    copy[...] = array
    return copy


def _share_tensor(tensor: Any) -> Any:
    import torch

    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise TypeError(f"a tensor of {tensor.device} and {tensor.layout} cannot be in shared memory, only one of the cpu and torch.strided")
    if tensor.numel() == 0 or _find_at(tensor.data_ptr(), 1) is not None or _torch_segment(_untyped(tensor)) is not None:
        return tensor
    copy = torch.frombuffer(_make(tensor.numel() * tensor.element_size()), dtype=tensor.dtype).reshape(tensor.shape)
    copy.copy_(tensor.detach())
    return copy.requires_grad_(tensor.requires_grad)


def _untyped(what: Any) -> Any:
    """Returns the memory of a tensor, or of a typed storage."""
    if hasattr(what, "detach"):
        what = what.untyped_storage() if hasattr(what, "untyped_storage") else what.storage()
    if hasattr(what, "_untyped_storage"):
        return what._untyped_storage
    return what.untyped() if hasattr(what, "untyped") else what  # torch 1


def _torch_name(fd: int) -> str:
    file = os.fstat(fd)
    return f"{_TORCH}{file.st_dev:x}-{file.st_ino:x}"


def _is_unlinked(at: int) -> bool:
    """Returns whether this memory is of a file that has no name any more."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            start, _, end = line.partition(" ")[0].partition("-")
            if int(start, 16) <= at < int(end, 16):
                return line.endswith(" (deleted)\n")
    return False


def _torch_segment(memory: Any) -> Segment | None:
    """Returns the segment of a tensor's memory that torch's share_memory_ has moved, or None. It has torch's own descriptor, which is
    there as long as the memory."""
    # By torch's strategy "file_system", which may be another process's, the memory has a name and no descriptor, and asking for one would
    # move it. With a descriptor the file has no name any more.
    if not memory.is_shared() or memory.device.type != "cpu" or not _is_unlinked(memory.data_ptr()):
        return None
    fd, size = memory._share_fd_cpu_()
    if fd < 0:  # a file that torch has mapped
        return None
    name = _torch_name(fd)
    with _lock:
        known = _segments.get(name)
        if known is None:
            known = _mapped(fd, name, size, True)
            known.owner = memory
        return known


def _find_at(at: int, size: int) -> tuple[Segment, int] | None:
    """Returns the segment that contains this memory and the memory's offset in it, or None."""
    with _lock:
        for segment in list(_segments.values()):
            if segment.start <= at and at + size <= segment.start + len(segment):
                return segment, at - segment.start
    return None


def _find(view: memoryview) -> tuple[Segment, int] | None:
    import numpy

    return _find_at(numpy.frombuffer(view, numpy.uint8).ctypes.data, view.nbytes)


def _memory(at: int, size: int, owner: Any) -> pickle.PickleBuffer:
    memory = (ctypes.c_char * size).from_address(at)
    memory.owner = owner  # type: ignore[attr-defined]  # for as long as the memory is used
    return pickle.PickleBuffer(memory)


def _array_of(memory: Any, shape: Any, dtype: Any, strides: Any, offset: int) -> Any:
    import numpy

    return numpy.ndarray(shape, dtype, memory, offset, strides)


def _storage_of(memory: Any, dtype: Any) -> Any:
    import torch

    flat = torch.frombuffer(memory, dtype=torch.uint8)
    if hasattr(flat, "untyped_storage"):
        return torch.storage.TypedStorage(wrap_storage=flat.untyped_storage(), dtype=dtype, _internal=True)
    return torch.storage.TypedStorage(wrap_storage=flat.storage().untyped(), dtype=dtype)  # torch 1


class _Reducers:
    """How a pickler makes out-of-band buffers of what is within the pickle otherwise. is_strict: what cannot be passed by reference is refused."""

    def __init__(self, is_strict: bool) -> None:
        self.is_strict = is_strict

    def table(self) -> dict[Any, Any]:
        found = dict[Any, Any]()
        if "numpy" in sys.modules:
            found[sys.modules["numpy"].ndarray] = self.array
        if "torch" in sys.modules:
            found[sys.modules["torch"].storage.TypedStorage] = self.storage
        return found

    def array(self, array: Any) -> Any:
        if array.flags.forc or array.size == 0 or array.dtype.hasobject:
            return array.__reduce_ex__(5)
        found = _find_at(array.ctypes.data, 1)
        if found is None:
            if self.is_strict and array.nbytes >= MIN_BYTES:
                raise ValueError(NOT_SHARED)
            return array.__reduce_ex__(5)
        ends = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
        before, behind = -sum(e for e in ends if e < 0), sum(e for e in ends if e > 0)
        memory = _memory(array.ctypes.data - before, before + behind + array.itemsize, array)
        return _array_of, (memory, array.shape, array.dtype, array.strides, before)

    def storage(self, storage: Any) -> Any:
        """A storage has the memory of tensors."""
        memory = _untyped(storage)
        if memory.nbytes() > 0 and memory.device.type == "cpu":
            segment = _torch_segment(memory)
            if segment is not None:
                return _storage_of, (pickle.PickleBuffer(memoryview(segment)[:memory.nbytes()]), storage.dtype)
            return _storage_of, (_memory(memory.data_ptr(), memory.nbytes(), memory), storage.dtype)
        if self.is_strict and memory.nbytes() > 0:
            raise ValueError(f"a tensor is on the device '{memory.device}': only those of the cpu are passed by reference")
        return storage.__reduce__()


def _pickle(what: Any, take: Any, reducers: _Reducers | None) -> bytes:
    if type(what) in _PLAIN:
        return pickle.dumps(what, 5)
    import cloudpickle

    file = io.BytesIO()
    pickler = cloudpickle.Pickler.__new__(cloudpickle.Pickler)
    if reducers is not None:
        pickler.dispatch_table = pickler.dispatch_table.new_child(reducers.table())  # which __init__ reads
    pickler.__init__(file, 5, buffer_callback=take)
    pickler.dump(what)
    return file.getvalue()


def padding(n: int) -> bytes:
    return bytes(-n % ALIGNMENT)


def pack(what: Any, by_reference: bool, others: str = "share") -> tuple[list[bytes | memoryview], list[Segment]]:
    """Pickles an object. Returns the bytes in parts, and the segments that must live until the bytes are unpickled. others: what to do
    by reference with arrays outside shared memory: "share" copies them to shared memory; "refuse" raises ValueError; "value" passes
    them by value, and also arrays in this process's own segments, so that no segment has to live."""
    buffers = list[memoryview]()
    segments = list[Segment]()

    def take(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < MIN_BYTES and not (by_reference and raw.nbytes > 0 and _find(raw)):
            return True  # the array stays in the pickle
        buffers.append(raw)
        return False

    body = _pickle(what, take, _Reducers(others == "refuse") if by_reference else None)
    parts: list[bytes | memoryview] = [_HEAD.pack(len(buffers), len(body)), body]
    values = list[bytes | memoryview]()
    for raw in buffers:
        found = _find(raw) if by_reference else None
        if not by_reference or others == "value" and (found is None or found[0].is_own):
            parts.append(_BUFFER.pack(raw.nbytes, -1, b"", 0, 0))
            values += [raw, padding(raw.nbytes)]
            continue
        if found is None and others == "refuse":
            raise ValueError(NOT_SHARED)
        if found is None:
            found = _make(raw.nbytes), 0
            found[0][:] = raw
        segment, offset = found
        segments.append(segment)
        parts += [_BUFFER.pack(raw.nbytes, len(segments) - 1, segment.name.encode(), len(segment), offset),
                  _OWNER.pack(os.getpid(), segment.fd)]
    return parts + values, segments


def values_at(parts: Sequence[bytes | memoryview]) -> int:
    """Returns the index of the first buffer by value in the parts of pack. All parts before it are of the type bytes; it is not."""
    return next((i for i, p in enumerate(parts) if not isinstance(p, bytes)), len(parts))


def unpack(data: bytes | bytearray | memoryview, fds: Sequence[int] | None = None, values: memoryview | None = None) -> Any:
    """Unpickles the bytes of pack. fds: the segments' descriptors, in order, which this function takes. values: the buffers by value if
    they do not follow in data; if this memory is writable, the arrays use it without a copy."""
    view = memoryview(data)
    n, size = _HEAD.unpack_from(view)
    at = _HEAD.size + size
    body = view[_HEAD.size:at]
    buffers = list[Any]()
    by_value = list[tuple[int, int]]()  # index of the buffer, its size in bytes
    for i in range(n):
        n_bytes, place, name, whole, offset = _BUFFER.unpack_from(view, at)
        at += _BUFFER.size
        if place < 0:
            by_value.append((i, n_bytes))
            buffers.append(None)
            continue
        pid, its_fd = _OWNER.unpack_from(view, at)
        at += _OWNER.size
        segment = _open(name.rstrip(b"\0").decode(), whole, pid, None if fds is None else fds[place], its_fd)
        buffers.append(memoryview(segment)[offset:offset + n_bytes])
    is_ours = values is not None and not values.readonly
    behind = view[at:] if values is None else values
    at = 0
    for i, n_bytes in by_value:
        value = behind[at:at + n_bytes]
        if value.nbytes < n_bytes:
            raise ValueError("the data ends before the end of an array")
        buffers[i] = value if is_ours else bytearray(value)  # a copy, so that the array is writable
        at += n_bytes + -n_bytes % ALIGNMENT
    return pickle.loads(body, buffers=buffers)


def dumps(what: Any, recurse: bool = True, copy_tensor: bool = True) -> bytes:
    """Pickles an object. copy_tensor=False: arrays and tensors are passed by reference and must be in memory that share has made. Functions that cannot
    be imported are always pickled by value, with everything they refer to; recurse is ignored."""
    return b"".join(pack(what, not copy_tensor, "refuse")[0])


def loads(data: bytes) -> Any:
    return unpack(data)
