"""The calls of a group's member to another one, by way of the daemon or past it. Each has a random number, which others cannot guess."""
from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from parley.interrupts import Condition
from parley.parallel import direct
from parley.parallel.pickle import unpack
from parley.parallel.tasks import Task, TaskStream, exception_of, failure_of
from parley.parallel.worker import opened, signed_parts
from parley.v1 import work_pb2 as pb
from parley.wire import Error

if TYPE_CHECKING:
    from parley.parallel.futures import Future
    from parley.parallel.group import Group

ID_BYTES = 8  # of a call's number


class Peer:
    """What the two ways have in common. is_raw, of a call: its answer is not unpickled, but given as (signed bytes, values)."""

    is_limited = False  # the daemon's limit of a task's size applies

    def __init__(self, group: Group, member: str, road: bytes) -> None:
        self.group, self.member, self.road, self.secret = group, member, road, group._secret_of(road)
        self.raw = set[int]()

    def begin(self, tag: int, parts: list[Any], values: list[Any], future: Future, seconds: float, is_raw: bool) -> None:
        """Begins a call, which ends with the future. parts: to be signed and pickled data; values: the bytes of arrays."""
        payload = signed_parts(self.secret, b"call", parts, values)
        if is_raw:
            self.raw.add(tag)
        self.send(tag, payload, future, seconds)

    def send(self, tag: int, payload: list[Any], future: Future, seconds: float) -> None:
        raise NotImplementedError

    def end(self) -> None:
        """Takes no more calls. What was answered is delivered, the other calls end as those to a member that is lost."""
        raise NotImplementedError

    def close(self) -> None:
        """Takes no more calls."""
        raise NotImplementedError

    def forget(self) -> None:
        with self.group._lock:
            if self.group._peers.get(self.road) is self:
                del self.group._peers[self.road]

    def answer_of(self, tag: int, payload: Any) -> tuple[memoryview, memoryview]:
        body, values = opened(self.secret, b"answer", payload)
        if body[:ID_BYTES] != tag.to_bytes(ID_BYTES, "little"):
            raise ValueError("the answer belongs to another call")
        return body[ID_BYTES:], values

    def value_of(self, tag: int, payload: Any) -> Any:
        body, values = self.answer_of(tag, payload)
        return unpack(body, values=values)

    def settle_answer(self, tag: int, settle: Callable[[Any, BaseException | None], None], payload: Any, failed: Callable[[], BaseException] | None) -> None:
        """failed: makes the exception if the call has failed."""
        is_raw = tag in self.raw
        self.raw.discard(tag)
        value: Any = None
        error: BaseException | None = None
        try:
            if failed is not None:
                error = failed()
            else:
                value = self.answer_of(tag, payload) if is_raw else self.value_of(tag, payload)
        except Exception as e:  # the answer cannot be verified or unpickled
            error = Error("DATA_LOSS", f"the member '{self.member}' of the group '{self.group.group_name}' sent an answer that cannot be read: {e}")
        settle(value, error)


class DaemonPeer(Peer, TaskStream):
    """The calls go by way of the daemon, as tasks."""

    is_limited = True

    def __init__(self, group: Group, member: str, road: bytes) -> None:
        Peer.__init__(self, group, member, road)
        TaskStream.__init__(self, group._link, road.decode())

    def send(self, tag: int, payload: list[Any], future: Future, seconds: float) -> None:
        task = Task(b"".join(payload), None, future._settle, int(1000 * seconds) or int(seconds > 0))
        self.tasks[tag] = task
        self.outgoing.put((tag, task))

    def end(self) -> None:
        for tag in list(self.tasks):  # cancelled through the stream of results, so that one that has arrived is delivered first
            self.outgoing.put((tag, None))
        self.outgoing.put(None)

    def close(self) -> None:
        self.outgoing.put(None)

    def over(self, error: BaseException) -> BaseException:
        self.forget()
        return self.group._failure(self.member, error)

    def settle(self, result: pb.WorkResult, payload: bytes | bytearray) -> None:
        def failed() -> BaseException:
            error = failure_of(result, payload, lambda b: self.value_of(result.tag, b))
            return error if result.HasField("exception") else self.group._failure(self.member, error)

        self.settle_answer(result.tag, self.tasks.pop(result.tag).settle, payload, failed if result.HasField("error") else None)


class DirectPeer(Peer):
    """The calls go to the member's own socket."""

    def __init__(self, group: Group, member: str, road: bytes, packets: direct.Packets) -> None:
        super().__init__(group, member, road)
        self._packets = packets
        self._calls: dict[int, tuple[Future, float]] = {}  # under way, with the time at which each ends; 0: never
        self._late = Condition()
        self._next = 0.0  # guarded by `late`: when the thread that ends late calls looks again; 0: there is none
        self._is_over = False
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, tag: int, payload: list[Any], future: Future, seconds: float) -> None:
        end = time.monotonic() + seconds if seconds > 0 else 0.0
        self._calls[tag] = future, end
        if end:
            self._end_by(end)
        try:
            self._packets.send(direct.CALL, tag, payload)
        except OSError:
            self._fail(tag, self.group._lost(self.member))
        except BaseException:
            self._calls.pop(tag, None)
            raise

    def _fail(self, tag: int, error: BaseException) -> None:
        call = self._calls.pop(tag, None)
        self.raw.discard(tag)
        if call is not None:
            call[0]._settle(None, error)

    def _end_by(self, end: float) -> None:
        if self._next and end >= self._next:
            return  # read without the lock: the thread is awake by then
        with self._late:
            is_first, self._next = not self._next, min(self._next or end, end)
            if is_first:
                threading.Thread(target=self._end_late, daemon=True).start()
            else:
                self._late.notify()

    def _end_late(self) -> None:
        with self._late:
            while not self._is_over:
                now = time.monotonic()
                if now < self._next:
                    self._late.wait(self._next - now)
                    continue
                self._next = now + IDLE_S
                calls = list(self._calls.items())
                self._next = min([end for _, (_, end) in calls if end > now], default=self._next)
                late = [tag for tag, (_, end) in calls if 0 < end <= now]
                self._late.release()
                try:
                    for tag in late:
                        self._give_up(tag)
                finally:
                    self._late.acquire()

    def _give_up(self, tag: int) -> None:
        self._fail(tag, self.group._late(self.member))
        try:
            self._packets.send(direct.CANCEL, tag)
        except OSError:
            pass  # the member is gone

    def _read(self) -> None:
        while (got := self._packets.receive()) is not None:
            kind, tag, said, payload = got
            if kind == direct.GONE:
                self._fail(tag, self.group._lost(self.member))
                continue
            call = self._calls.pop(tag, None)
            if kind != direct.ANSWER or call is None:
                continue  # nobody waits any more
            failed = self._failed(tag, said, payload) if payload is None or said else None
            self.settle_answer(tag, call[0]._settle, payload, failed)
        self.forget()
        self._packets.end()  # a call that begins now fails
        for tag in list(self._calls):
            self._fail(tag, self.group._lost(self.member))
        with self._late:
            self._is_over = True
            self._late.notify()

    def _failed(self, tag: int, said: memoryview, payload: memoryview | None) -> Callable[[], BaseException]:
        def failed() -> BaseException:
            if payload is None:
                return Error("RESOURCE_EXHAUSTED", f"this process has no memory or no file descriptor left for the answer of the member '{self.member}'")
            return exception_of(pb.WorkException.FromString(bytes(said)), payload, lambda b: self.value_of(tag, b))

        return failed

    def end(self) -> None:
        self._packets.end()

    def close(self) -> None:
        self._packets.end()


IDLE_S = 60.0  # how long the thread that ends late calls sleeps when there are none


def peer_of(group: Group, member: str, road: bytes, may_be_direct: bool) -> Peer:
    packets = direct.reach(road) if may_be_direct else None
    return DaemonPeer(group, member, road) if packets is None else DirectPeer(group, member, road, packets)

