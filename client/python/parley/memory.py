"""Memory that processes of one machine share: memfds, which are gone with their last user, also where that is killed."""
from __future__ import annotations

import ctypes
import mmap
import os
import weakref

MAP_POPULATE = 0x8000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def mapped(fd: int, size: int) -> memoryview:
    """Maps a file, to read and write, for as long as a view of it exists. Unlike Python's mmap it does not keep a descriptor."""
    at = _libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | MAP_POPULATE, fd, 0)
    if at in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    memory = (ctypes.c_ubyte * size).from_address(at)
    weakref.finalize(memory, _libc.munmap, at, size).atexit = False
    return memoryview(memory).cast("B")


def opened(pid: int, fd: int, label: str, size: int) -> memoryview | None:
    """Maps the memory that a process says it has as this descriptor. Returns None if the process is on another machine, if this one may not
    open its descriptors, or if there is other memory."""
    try:
        mine = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        is_it = os.readlink(f"/proc/self/fd/{mine}") == f"/memfd:{label} (deleted)" and os.fstat(mine).st_size == size
        return mapped(mine, size) if is_it else None
    except OSError:
        return None
    finally:
        os.close(mine)
