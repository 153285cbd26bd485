"""Streams of tasks: a call of Map, its unfinished tasks, and their results."""
from __future__ import annotations

import multiprocessing
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from parley import wire
from parley.client import Link
from parley.interrupts import Event
from parley.parallel.worker import FIRST_BYTES, PART_BYTES, SIGNATURE_BYTES, Parts, encode, rest_decoder, rests
from parley.v1 import work_pb2 as pb
from parley.wire import Error
from parley.wire import milliseconds as milliseconds

MESSAGE_TASKS, MESSAGE_BYTES = 256, 1 << 20


class RemoteError(Exception):
    """An exception of another process that could not be pickled: its type, its text and its traceback."""

    def __init__(self, kind: str, message: str, trace: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind, self.message, self.trace = kind, message, trace

    def __reduce__(self) -> Any:
        return RemoteError, (self.kind, self.message, self.trace)


RpcException = RemoteError  # Machin's name


class RemoteTrace(Exception):
    """The cause of an exception from a worker: its traceback in the worker."""

    def __init__(self, trace: str) -> None:
        super().__init__(trace)
        self.trace = trace

    def __str__(self) -> str:
        return f'\n"""\n{self.trace}"""'


class WorkerLost(Error):
    """The worker of a task was lost and no retries are left. Has the signal or the exit code of the last worker and the end of its
    stderr."""

    def __init__(self, message: str, signal: int, exit_code: int, stderr_tail: str) -> None:
        super().__init__("ABORTED", message, "WORKER_LOST")
        self.signal, self.exit_code, self.stderr_tail = signal, exit_code, stderr_tail

    def __reduce__(self) -> Any:
        return WorkerLost, (self.message, self.signal, self.exit_code, self.stderr_tail)

    def __str__(self) -> str:
        said = f"; it wrote last:\n{self.stderr_tail}" if self.stderr_tail else ""
        return f"{self.message}{said}"


class AsyncResult:
    """Like multiprocessing's AsyncResult."""

    def __init__(self, callback: Callable[[Any], Any] | None = None, error_callback: Callable[[BaseException], Any] | None = None) -> None:
        self._done = Event()
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks = callback, error_callback

    def _settle(self, value: Any, error: BaseException | None) -> None:
        self._value, self._error = value, error
        callback = self._callbacks[0] if error is None else self._callbacks[1]
        try:
            if callback is not None:
                callback(value if error is None else error)
        except BaseException:  # it is told of, and the results that this thread has to bring come all the same
            threading.excepthook(threading.ExceptHookArgs([*sys.exc_info(), threading.current_thread()]))
        finally:
            self._done.set()

    def ready(self) -> bool:
        return self._done.is_set()

    def wait(self, timeout: float | None = None) -> None:
        self._done.wait(timeout)

    def successful(self) -> bool:
        if not self.ready():
            raise ValueError("the task is not done yet: call wait() before successful()")
        return self._error is None

    def get(self, timeout: float | None = None) -> Any:
        if not self._done.wait(timeout):
            raise multiprocessing.TimeoutError
        if self._error is not None:
            raise self._error
        return self._value


class Task:
    __slots__ = ("payload", "segments", "settle", "timeout_ms")

    def __init__(self, payload: bytes, segments: Any, settle: Callable[[Any, BaseException | None], None], timeout_ms: int = 0) -> None:
        self.payload, self.segments, self.settle, self.timeout_ms = payload, segments, settle, timeout_ms


class TaskStream:
    """One call of Map; all its tasks have the same function."""

    def __init__(self, link: Link, function: str, retries: int = 0) -> None:
        self.function, self.retries = function, retries
        # Pairs of a tag and its task, or of a tag and None to cancel the tag's task. A None in place of a pair ends the stream.
        self.outgoing: queue.SimpleQueue[tuple[int, Task | None] | None] = queue.SimpleQueue()
        self.tasks = dict[int, Task]()
        method = link.channel.stream_stream("/parley.v1.Work/Map", encode, rest_decoder(pb.WorkResults))
        self.call = method(self.requests(), metadata=link.metadata)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def requests(self) -> Iterator[pb.WorkSubmitRequest | bytes]:
        got = self.outgoing.get()
        while got is not None:
            request, size = pb.WorkSubmitRequest(), 0
            rest: bytes | None = None
            is_full = False
            while got is not None and not is_full:
                tag, task = got
                if task is None:
                    if request.tasks:
                        break  # the daemon handles a message's cancellations first, so they go into the next message
                    request.cancel.append(tag)
                else:
                    if request.cancel:
                        break
                    wire_task = pb.WorkTask(function=self.function, tag=tag, retries=self.retries, timeout_ms=task.timeout_ms)
                    n = len(task.payload)
                    if n > PART_BYTES:
                        wire_task.payload, wire_task.size_bytes, rest = task.payload[:FIRST_BYTES], n, task.payload
                    else:
                        wire_task.payload = task.payload
                    task.payload = b""
                    request.tasks.append(wire_task)
                    size += n
                    is_full = rest is not None or len(request.tasks) == MESSAGE_TASKS or size >= MESSAGE_BYTES
                if is_full or self.outgoing.empty():
                    is_full = True
                else:
                    got = self.outgoing.get()  # does not block: no other thread takes from this queue
            yield request
            if rest is not None:
                yield from rests(pb.WorkSubmitRequest, rest)
            if is_full:
                got = self.outgoing.get()

    def read(self) -> None:
        error: BaseException = Error("UNAVAILABLE", "the daemon ended the stream of tasks")
        parts: Parts | None = None
        try:
            for message in self.call:
                if isinstance(message, memoryview):
                    if parts is not None and parts.take(message):
                        self.settle(parts.of, parts.payload)
                    continue
                for result in message.results:
                    if result.size_bytes:
                        parts = Parts(result)
                    else:
                        self.settle(result, result.payload)
        except grpc.RpcError as e:
            error = wire.error_of(e)
        error = self.over(error)
        for task in list(self.tasks.values()):
            task.settle(None, error)
        self.tasks.clear()
        self.task_over()

    def over(self, error: BaseException) -> BaseException:
        """Called when the stream has ended and takes no more tasks. Returns the error with which its unfinished tasks fail."""
        return error

    def task_over(self) -> None:
        """Called when a task is done, and when all tasks have failed with the stream."""

    def settle(self, result: pb.WorkResult, payload: bytes | bytearray) -> None:
        raise NotImplementedError


def failure_of(result: pb.WorkResult, payload: bytes | bytearray, opened: Callable[[bytes | bytearray], Any]) -> BaseException:
    """Returns the exception of a failed result. opened: verifies the payload's signature and unpickles it."""
    if result.HasField("loss"):
        return WorkerLost(result.error.message, result.loss.signal, result.loss.exit_code, result.loss.stderr_tail)
    if not result.HasField("exception"):
        code = next(c.name for c in grpc.StatusCode if c.value[0] == result.error.code)
        return Error(code, result.error.message, result.error.reason)
    return exception_of(result.exception, payload, opened)


def exception_of(said: pb.WorkException, payload: bytes | bytearray | memoryview, opened: Callable[[Any], Any]) -> BaseException:
    error: BaseException = RemoteError(said.type, said.message, said.trace)
    if len(payload) > SIGNATURE_BYTES:
        try:
            made = opened(payload)
            error = made if isinstance(made, BaseException) else error  # a class may say that it is pickled as something else
        except Exception:  # the exception cannot be unpickled: its text remains
            pass
    error.__cause__ = RemoteTrace(said.trace)
    return error
