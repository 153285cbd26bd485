"""A bounded queue of objects between processes of one machine. The process that creates the queue holds it. Others reach it through a
socket, which also carries the descriptors of shared memory; so an item stays valid when the process that put it has ended."""
from __future__ import annotations

import collections
import os
import secrets
import socket
import struct
import threading
from queue import Empty, Full
from typing import Any

from parley.interrupts import Condition
from parley.parallel.pickle import pack, unpack

_CALL = struct.Struct("<BdQI")  # operation, seconds (negative: no limit), number of bytes, number of descriptors
PUT, GET, SIZE = 1, 2, 3
DONE, LATE = 1, 2
MAX_FDS = 250  # of an item; the kernel passes at most 253 in one message
MAX_ITEM_BYTES = 1 << 32


class _Item:
    def __init__(self, data: bytes, fds: list[int]) -> None:
        self.data, self.fds = data, fds

    def __del__(self) -> None:
        for fd in self.fds:
            os.close(fd)


def _receive(s: socket.socket) -> tuple[int, float, _Item] | None:
    head, fds, _, _ = socket.recv_fds(s, _CALL.size, MAX_FDS + 3)
    item = _Item(b"", fds)
    while head and len(head) < _CALL.size:
        more = s.recv(_CALL.size - len(head))
        head = head + more if more else b""
    if not head:
        return None
    what, seconds, n, n_fds = _CALL.unpack(head)
    if n > MAX_ITEM_BYTES or n_fds != len(fds):
        return None
    data, at = bytearray(n), 0
    while at < n:
        got = s.recv_into(memoryview(data)[at:])
        if got == 0:
            return None
        at += got
    item.data = bytes(data)
    return what, seconds, item


def _send(s: socket.socket, what: int, seconds: float, data: bytes, fds: list[int]) -> None:
    socket.send_fds(s, [_CALL.pack(what, seconds, len(data), len(fds))], fds)
    s.sendall(data)


class _Owner:
    """The queue itself, in the process that holds it. It has a thread for each connected thread of another process."""

    def __init__(self, maxsize: int) -> None:
        self.maxsize = maxsize
        self.items = collections.deque[_Item]()
        self.changed = Condition()
        self.address = f"\0parley-queue-{secrets.token_hex(16)}"
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.address)
        self.listener.listen(128)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                s, _ = self.listener.accept()
            except OSError:
                return  # the queue was closed
            _, uid, _ = struct.unpack("3i", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if uid == os.getuid():
                threading.Thread(target=self.serve, args=(s,), daemon=True).start()
            else:
                s.close()

    def serve(self, s: socket.socket) -> None:
        with s:
            try:
                while (got := _receive(s)) is not None:
                    what, seconds, item = got
                    if what == PUT:
                        _send(s, DONE if self.put(item, seconds) else LATE, 0, b"", [])
                    elif what == GET:
                        taken = self.get(seconds)
                        if taken is None:
                            _send(s, LATE, 0, b"", [])
                        else:
                            try:
                                _send(s, DONE, 0, taken.data, taken.fds)
                            except OSError:  # the process that asked is gone: the next one gets the item
                                with self.changed:
                                    self.items.appendleft(taken)
                                    self.changed.notify_all()
                    else:
                        _send(s, DONE, float(len(self.items)), b"", [])
            except OSError:
                pass  # the connected process is gone

    def put(self, item: _Item, seconds: float) -> bool:
        with self.changed:
            if not self.changed.wait_for(lambda: self.maxsize <= 0 or len(self.items) < self.maxsize, None if seconds < 0 else seconds):
                return False
            self.items.append(item)
            self.changed.notify_all()
            return True

    def get(self, seconds: float) -> _Item | None:
        with self.changed:
            if not self.changed.wait_for(lambda: self.items, None if seconds < 0 else seconds):
                return None
            item = self.items.popleft()
            self.changed.notify_all()
            return item


class Queue:
    """A queue with the methods of queue.Queue, for all processes of this machine to which it is passed. maxsize: the maximum number of
    items (0 or less: no limit). copy_tensor=False: arrays are passed by reference; an array outside shared memory is copied there once."""

    def __init__(self, maxsize: int = 0, *, copy_tensor: bool = True) -> None:
        self._owner: _Owner | None = _Owner(maxsize)
        self._address, self._by_reference, self._local = self._owner.address, not copy_tensor, threading.local()
        self._pid = os.getpid()

    def __reduce__(self) -> Any:
        return _reach, (self._address, self._by_reference)

    def _call(self, what: int, seconds: float, data: bytes, fds: list[int]) -> tuple[int, float, _Item]:
        s = getattr(self._local, "socket", None)
        if s is None or self._local.pid != os.getpid():
            s = self._local.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._local.pid = os.getpid()
            s.connect(self._address)
        try:
            _send(s, what, seconds, data, fds)
            answer = _receive(s)
        except BaseException:  # also Ctrl-C: the answer that is under way must not be the next call's
            self._local.socket = None
            s.close()
            raise
        if answer is None:
            raise EOFError("the process that holds the queue has ended or has closed the queue")
        return answer

    def put(self, what: Any, block: bool = True, timeout: float | None = None) -> None:
        """Appends an item. Raises Full if there is no room in time."""
        seconds = 0.0 if not block else -1.0 if timeout is None else max(timeout, 0.0)
        parts, segments = pack(what, self._by_reference)
        if len(segments) > MAX_FDS:
            raise ValueError(f"the item has {len(segments)} arrays by reference, it may have at most {MAX_FDS}")
        data, fds = b"".join(parts), [s.fd for s in segments]
        if self._owner is not None and self._pid == os.getpid():
            is_in = self._owner.put(_Item(data, [os.dup(fd) for fd in fds]), seconds)
        else:
            is_in = self._call(PUT, seconds, data, fds)[0] == DONE
        if not is_in:
            raise Full

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Removes and returns the first item. Raises Empty if there is none in time."""
        seconds = 0.0 if not block else -1.0 if timeout is None else max(timeout, 0.0)
        if self._owner is not None and self._pid == os.getpid():
            item = self._owner.get(seconds)
        else:
            what, _, item = self._call(GET, seconds, b"", [])
            if what != DONE:
                item = None
        if item is None:
            raise Empty
        fds, item.fds = item.fds, []
        return unpack(item.data, fds)

    def qsize(self) -> int:
        if self._owner is not None and self._pid == os.getpid():
            return len(self._owner.items)
        return int(self._call(SIZE, 0, b"", [])[1])

    def empty(self) -> bool:
        return self.qsize() == 0

    def close(self) -> None:
        """Closes the queue for processes that are not connected yet."""
        if self._owner is not None and self._pid == os.getpid():
            self._owner.listener.close()


def _reach(address: str, by_reference: bool) -> Queue:
    queue = Queue.__new__(Queue)
    queue._owner, queue._address, queue._by_reference, queue._local, queue._pid = None, address, by_reference, threading.local(), 0
    return queue
