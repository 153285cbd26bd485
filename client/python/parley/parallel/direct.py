"""Calls between members of a group on one machine, past the daemon. Each member listens at a Unix socket whose name follows from its road;
a member that reaches the socket sends its calls there. A message is one packet. What does not fit into a packet goes with it as a memfd, so
the bytes of an array are copied once, and the receiver's arrays lie in that memory.

Nothing is left behind by a process that is killed: the name is abstract, and a memfd belongs to the packet that carries it, then to the
receiver. Both ends take only processes of their own user; the messages are signed besides, as those that the daemon carries."""
from __future__ import annotations

import array
import collections
import errno
import fcntl
import hashlib
import itertools
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from parley.interrupts import Condition
from parley.memory import mapped
from parley.v1 import work_pb2 as pb
from parley.wire import Error

CALL, CANCEL, ANSWER, GONE = range(4)  # GONE: the member has left and did not take the call
HEAD = struct.Struct("<BQIQ")  # kind, the call's number, bytes of the exception's text, bytes of both
INLINE_BYTES = 32 << 10  # larger messages go as memory
MAP_BYTES = 1 << 20  # from this size on a receiver maps that memory; less it copies, since a process has at most 65,530 mappings
MFD_ALLOW_SEALING, F_ADD_SEALS, F_GET_SEALS, F_SEAL_SHRINK = 2, 1033, 1034, 2
FIRST_TASK = 1 << 64  # the numbers of tasks from here on are not the daemon's, which have 64 bits
DRAIN_S = 10  # how long a member that leaves waits for a caller that does not read its answers
NO_ROOM = pb.WorkException(type="OSError", message="the member has no memory or no file descriptor left for the call")
SIZE_OF_FD = array.array("i").itemsize

Bytes = bytes | memoryview

def name_of(road: bytes) -> str:
    return f"\0parley-{hashlib.blake2b(road, digest_size=16).hexdigest()}"


class _Memory:
    """A memfd with a message. The descriptor is closed with this; the memory is gone when no mapping is left."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)

    def read(self, size: int) -> memoryview | None:
        """Returns the message in memory that can be written to, or None if this is not `size` bytes that nobody can cut off."""
        if os.fstat(self.fd).st_size != size or not fcntl.fcntl(self.fd, F_GET_SEALS) & F_SEAL_SHRINK:
            return None
        if size >= MAP_BYTES:
            return mapped(self.fd, size)
        body = memoryview(bytearray(size))
        at = 0
        while at < size and (n := os.preadv(self.fd, [body[at:]], at)) > 0:
            at += n
        return body


def _memory_of(parts: Sequence[Bytes], size: int) -> _Memory:
    try:
        memory = _Memory(os.memfd_create("parley-call", os.MFD_CLOEXEC | MFD_ALLOW_SEALING))
        left = collections.deque(memoryview(p).cast("B") for p in parts if len(p))
        while left:
            n = os.writev(memory.fd, list(itertools.islice(left, 1024)))
            while left and n >= len(left[0]):
                n -= len(left.popleft())
            if n:
                left[0] = left[0][n:]
        fcntl.fcntl(memory.fd, F_ADD_SEALS, F_SEAL_SHRINK)
    except OSError as e:
        raise Error("RESOURCE_EXHAUSTED", f"there is no shared memory for a message of {size} bytes: {e.strerror}") from None
    return memory


def is_own(s: socket.socket) -> bool:
    """Whether the process at the other end has this one's user."""
    _, uid, _ = struct.unpack("3i", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return bool(uid == os.geteuid())


class Packets:
    """One end of a connection. send may be called by any thread and does not wait: what the socket does not take is sent by a thread that
    lives as long as there is some. A packet is sent as a whole or not at all, also where the sender is interrupted."""

    def __init__(self, s: socket.socket) -> None:
        self._socket, self._changed = s, Condition()
        # Guarded by `changed`:
        self._waiting: collections.deque[tuple[bytes, _Memory | None]] = collections.deque()
        self._is_ending = False

    def __del__(self) -> None:
        self._socket.close()

    def send(self, kind: int, number: int, parts: Sequence[Bytes] = (), said: bytes = b"") -> None:
        """said: an exception's text, before the parts. Raises OSError if the connection has ended."""
        size = len(said) + sum(map(len, parts))
        head = HEAD.pack(kind, number, len(said), size)
        packet, memory = (head, _memory_of([said, *parts], size)) if size > INLINE_BYTES else (b"".join([head, said, *parts]), None)
        with self._changed:
            if not self._waiting:
                try:
                    return self._put(packet, memory, socket.MSG_DONTWAIT)
                except OSError as e:
                    if e.errno not in (errno.EAGAIN, errno.ENOBUFS, errno.ETOOMANYREFS):
                        raise
                threading.Thread(target=self._flush, daemon=True).start()
            self._waiting.append((packet, memory))

    def _put(self, packet: bytes, memory: _Memory | None, flags: int = 0) -> None:
        fds = [] if memory is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [memory.fd]))]
        self._socket.sendmsg([packet], fds, flags | socket.MSG_NOSIGNAL)

    def _flush(self) -> None:
        while True:
            with self._changed:
                packet = self._waiting[0]  # it is taken out only when it was sent
            is_over = False
            try:
                self._put(*packet)
            except OSError as e:
                if e.errno in (errno.ENOBUFS, errno.ETOOMANYREFS):  # too many memfds of this user are under way
                    time.sleep(0.01)
                    continue
                is_over = True
            with self._changed:
                self._waiting.popleft()
                if is_over:
                    self._waiting.clear()
                if not self._waiting:
                    self._changed.notify_all()
                    if self._is_ending:
                        self._shut()
                    return

    def receive(self) -> tuple[int, int, memoryview, memoryview | None] | None:
        """Waits for a packet. Returns its kind, its number, the exception's text and the rest, in writable memory of its own: None if there
        was no memory or no descriptor for it. Returns None when the connection has ended. One thread calls this."""
        try:
            data, more, flags, _ = self._socket.recvmsg(HEAD.size + INLINE_BYTES, socket.CMSG_SPACE(SIZE_OF_FD), socket.MSG_CMSG_CLOEXEC)
        except OSError:
            return None
        fds = [_Memory(fd) for _, _, said in more for fd in array.array("i", said[:len(said) - len(said) % SIZE_OF_FD])]
        if len(data) < HEAD.size or flags & socket.MSG_TRUNC:
            return None
        kind, number, n_said, size = HEAD.unpack_from(data)
        body: memoryview | None = memoryview(bytearray(data))[HEAD.size:]
        if size > INLINE_BYTES:
            try:
                body = fds[0].read(size) if fds else None
            except (OSError, MemoryError):
                body = None
        if body is None:
            return kind, number, memoryview(b""), None
        return (kind, number, body[:n_said], body[n_said:]) if len(body) == size >= n_said else None

    def end(self) -> None:
        """Both ends receive what was sent, then the end."""
        with self._changed:
            self._is_ending = True
            if not self._waiting:
                self._shut()

    def _shut(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended

    def drain(self, seconds: float) -> None:
        """Waits until all was sent."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting, seconds)


class Listener:
    """A member's end: it calls take(task, payload) for each call and recall(task) for each that was given up, which must not block. Each
    task is to be answered once."""

    def __init__(self, road: bytes, take: Callable[[int, Any], None], recall: Callable[[int], None]) -> None:
        self._take, self._recall = take, recall
        self._numbers = itertools.count(FIRST_TASK)
        self._changed = Condition()
        # Guarded by `changed`:
        self._tasks = dict[int, tuple[Packets, int]]()  # unanswered, with the caller's number
        self._ends = set[Packets]()
        self._is_closing = False
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(name_of(road))
        self._socket.listen(128)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                s, _ = self._socket.accept()
            except OSError:
                if self._is_closing:
                    self._socket.close()
                    return
                time.sleep(0.01)  # no descriptor is free: those who connect wait
                continue
            if not is_own(s):
                s.close()
                continue
            packets = Packets(s)
            with self._changed:
                self._ends.add(packets)
                if self._is_closing and not self._tasks:
                    packets.end()
            threading.Thread(target=self._read, args=(packets,), daemon=True).start()

    def _read(self, packets: Packets) -> None:
        tasks = dict[int, int]()  # by the caller's numbers
        while (got := packets.receive()) is not None:
            kind, number, _, payload = got
            if kind == CALL and payload is None:
                self._say(packets, ANSWER, number, said=NO_ROOM.SerializeToString())
            elif kind == CALL:
                task = next(self._numbers)
                with self._changed:
                    is_taken = not self._is_closing
                    if is_taken:
                        self._tasks[task] = packets, number
                if is_taken:
                    tasks[number] = task
                    self._take(task, payload)
                else:
                    self._say(packets, GONE, number)
            elif kind == CANCEL and number in tasks:
                self._recall(tasks[number])
            if len(tasks) > 2 * len(self._tasks) + 64:
                tasks = {n: t for n, t in tasks.items() if t in self._tasks}
        with self._changed:
            self._ends.discard(packets)
            given_up = [t for t, (its, _) in self._tasks.items() if its is packets]
        for task in given_up:
            self._recall(task)
        packets.end()

    @staticmethod
    def _say(packets: Packets, kind: int, number: int, parts: Sequence[Bytes] = (), said: bytes = b"") -> None:
        try:
            try:
                packets.send(kind, number, parts, said)
            except Error as e:  # no memory for the answer
                packets.send(kind, number, said=pb.WorkException(type="parley.wire.Error", message=e.message).SerializeToString())
        except OSError:
            pass  # the caller is gone

    def answer(self, task: int, parts: Sequence[Bytes], exception: pb.WorkException | None) -> None:
        """Answering again does nothing, or sends an answer that the caller drops: an interrupted answer is made again."""
        packets, number = self._tasks.get(task, (None, 0))
        if packets is None:
            return
        self._say(packets, ANSWER, number, parts, b"" if exception is None else exception.SerializeToString())
        with self._changed:
            self._tasks.pop(task, None)
            if self._is_closing and not self._tasks:
                self._end()

    def close(self) -> None:
        """Takes no more calls. The connections end when all that have arrived are answered."""
        with self._changed:
            self._is_closing = True
            if not self._tasks:
                self._end()

    def _end(self) -> None:
        """Needs `changed`."""
        for packets in self._ends:
            packets.end()
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        except OSError:
            pass
        self._changed.notify_all()

    def join(self, seconds: float | None = None) -> bool:
        """Returns true when close() was called and all answers were sent, false if that is not so after `seconds`."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_closing and not self._tasks, seconds):
                return False
            ends = list(self._ends)
        for packets in ends:
            packets.drain(DRAIN_S)
        return True


def reach(road: bytes) -> Packets | None:
    """Connects to the member with this road; None: it is on another machine, or of another user."""
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        s.setblocking(False)
        s.connect(name_of(road))
        s.setblocking(True)
        if is_own(s):
            return Packets(s)
    except OSError:
        pass
    s.close()
    return None
