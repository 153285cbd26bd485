"""Pools of threads, and pools of processes, whose workers attach to a daemon and are supervised here."""
from __future__ import annotations

import collections
import itertools
import multiprocessing.pool
import os
import pickle
import queue
import secrets
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

import grpc

from parley import wire
from parley.client import Link
from parley.interrupts import Condition, shielded
from parley.parallel import local
from parley.parallel.pickle import Segment, pack, unpack, values_at
from parley.parallel.tasks import AsyncResult, Task, TaskStream, failure_of, milliseconds
from parley.parallel.worker import HEAD, Log, opened, signed
from parley.v1 import work_pb2 as pb
from parley.wire import Error

TAIL_BYTES = 4096
MAX_RETRIES = 100
REACH_S = 30.0  # how long a pool waits for the daemon to be reachable
STOPPED_S = 1.0  # a worker that stays stopped for longer is killed, unless this process was stopped, too


class _Function(NamedTuple):
    """A pickled function, and the segments of what it refers to, which live as long as its tasks."""

    data: bytes
    segments: list[Segment]


class MapResult(AsyncResult):
    """The result of several tasks, each of which has some of the items. It is ready when all tasks have ended; if any failed, it has the
    first failure."""

    def __init__(self, n: int, callback: Any = None, error_callback: Any = None) -> None:
        super().__init__(callback, error_callback)
        self._parts: list[Any] = [None] * n
        self._left, self._first, self._lock = n, None, threading.Lock()
        if n == 0:
            self._settle([], None)

    def _part(self, at: int, value: Any, error: BaseException | None) -> None:
        with self._lock:
            self._parts[at] = value
            self._first = self._first or error  # type: ignore[assignment]
            self._left -= 1
            is_last = self._left == 0
        if is_last:
            whole = None if self._first is not None else list(itertools.chain.from_iterable(self._parts))
            self._settle(whole, self._first)


class MapIterator:
    """The iterator of results that imap and imap_unordered return, as in multiprocessing. It submits only some chunks ahead of the
    consumer, so that the iterable may be endless. A failed chunk raises its exception in its place; the next call continues behind it. So
    it does where next was interrupted, as by Ctrl-C. Several threads may call next."""

    def __init__(self, submit: Callable[[list[Any], Callable[[Any, BaseException | None], None]], None], items: Iterator[Any],
                 chunksize: int, ahead: int, is_ordered: bool) -> None:
        self._submit, self._chunksize, self._ahead, self._is_ordered = submit, chunksize, ahead, is_ordered
        self._arrivals, self._kept = itertools.count(), dict[int, tuple[Any, BaseException | None]]()
        self._told: queue.SimpleQueue[None] = queue.SimpleQueue()  # has one for somebody who waits, and is to look again
        self._taken: collections.deque[tuple[Any, BaseException | None]] = collections.deque()  # values, and failures of chunks
        self._next_taken = map(collections.deque.popleft, itertools.repeat(self._taken))
        self._n_taken = 0
        self._lock = threading.Lock()  # guards the rest
        self._items = items
        self._read: list[Any] = []  # is to be submitted, and then the iterable's failure
        self._failed: Exception | None = None
        self._n_begun = 0
        self._begin()

    def _begin(self, is_all: bool = False) -> bool:
        """Returns whether all has begun."""
        with self._lock:
            while is_all or self._n_begun - self._n_taken < self._ahead:
                try:
                    if self._failed is None:  # one call in C, behind which nothing is lost: Python looks for signals where a call ends
                        self._read.extend(itertools.islice(self._items, self._chunksize - len(self._read)))
                except Exception as e:  # of the iterable
                    self._failed = e
                if not self._read and self._failed is None:
                    self._items = iter(())
                    return True
                shielded(self._send)
        return False

    def _send(self) -> None:
        at, chunk, error = self._n_begun, self._read, self._failed
        self._n_begun += 1
        if not chunk:
            self._failed = None
            self._keep(at, None, error)
            return
        self._read = []
        try:
            self._submit(chunk, lambda value, error: self._keep(at, value, error))
        except Exception as e:  # of what cannot be pickled
            self._keep(at, None, e)

    def _keep(self, at: int, value: Any, error: BaseException | None) -> None:
        self._kept[at if self._is_ordered else next(self._arrivals)] = value, error
        self._tell()

    def _tell(self) -> None:
        if self._told.empty():
            self._told.put(None)

    def _take(self) -> None:
        got = self._kept.pop(self._n_taken, None)
        if got is None:
            return  # another thread has it
        value, error = got
        if isinstance(error, StopIteration):
            stop, error = error, RuntimeError("the function raised StopIteration")
            error.__cause__ = stop
        self._taken.extend(zip(value, itertools.repeat(None)) if error is None else [(None, error)])
        self._n_taken += 1
        self._tell()  # there may be another one, or none is left

    def next(self, timeout: float | None = None) -> Any:
        """Returns the next result. Raises multiprocessing.TimeoutError if it does not come in time; a later call may still return it."""
        end = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                try:
                    for taken in self._next_taken:  # not by a call, behind which Ctrl-C would take it along
                        value, error = taken
                        break
                except IndexError:
                    pass
                else:
                    break
                if self._begin() and self._n_taken == self._n_begun:
                    if self._taken:
                        continue  # another thread took the last chunk meanwhile
                    raise StopIteration
                if self._n_taken in self._kept:
                    shielded(self._take)
                    continue
                try:
                    self._told.get(timeout=None if end is None else max(0.0, end - time.monotonic()))
                except queue.Empty:
                    raise multiprocessing.TimeoutError from None
                if self._taken:
                    self._tell()  # there may be more than this thread takes
        except BaseException:
            self._tell()  # what this thread was told of others can take
            raise
        if error is not None:
            raise error
        return value

    __next__ = next

    def __iter__(self) -> MapIterator:
        return self


class _Stream(TaskStream):
    """The stream of a pool's tasks."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.left_behind = dict[int, bytes]()  # answers that lost workers left behind, by tag
        super().__init__(pool._link, pool._function, pool._retries)

    def over(self, error: BaseException) -> BaseException:
        self.pool._stream_over(self)
        return self.pool._not_started() if self.pool._failed else error

    def task_over(self) -> None:
        self.pool._task_over()

    def settle(self, result: pb.WorkResult, payload: bytes | bytearray) -> None:
        task = self.tasks.pop(result.tag)
        left = self.left_behind.pop(result.tag, None)
        if left is not None and result.HasField("loss"):
            answer = pb.WorkAnswer.FromString(left)
            payload = answer.payload
            result.ClearField("error")
            result.ClearField("loss")
            if answer.HasField("exception"):
                result.error.code = grpc.StatusCode.UNKNOWN.value[0]
                result.exception.CopyFrom(answer.exception)
        value: Any = None
        error: BaseException | None = None
        try:
            if result.HasField("error"):
                error = failure_of(result, payload, self._opened)
            else:
                value = self._opened(payload)
        except Exception as e:  # the result cannot be verified or unpickled
            error = e
        task.settle(value, error)
        self.pool._task_over()

    def _opened(self, payload: bytes | bytearray) -> Any:
        body, values = opened(self.pool._secret, b"result", payload)
        return unpack(body, values=values)


class Pool:
    """A pool of worker processes on this machine, which attach to the daemon at `address` (None: that at the default address, or one that is
    started here and ends with this process). A worker that ends is replaced. The interface
    is that of Machin's pool and multiprocessing's. Functions may be lambdas and local functions; `is_recursive` is ignored.
    is_copy_tensor=False with share_method="cpu": arrays are passed by reference; an array outside shared memory (see share) is copied
    there once. Results are passed by value unless they are in shared memory that the worker was given. retries: how often a task is run
    again after its worker was lost. timeout: a task fails so many seconds after its submission (0: no limit). If workers end three
    times before they are ready and none is left, the tasks fail with RuntimeError."""

    _has_context = False

    def __init__(self, processes: int | None = None, initializer: Callable[..., Any] | None = None, initargs: Sequence[Any] = (),
                 maxtasksperchild: int | None = None, is_recursive: bool = True, is_daemon: bool = True, is_copy_tensor: bool = True,
                 share_method: str | None = None, *, address: str | None = None, key: str | None = None, tls: wire.Tls = None,
                 retries: int = 0, timeout: float = 0) -> None:
        if not is_copy_tensor and share_method != "cpu":
            raise RuntimeError(f'Invalid share method: "{share_method}"; is_copy_tensor=False needs share_method="cpu"')
        self._n = (os.cpu_count() or 1) if processes is None else processes
        if self._n < 1 or (maxtasksperchild is not None and maxtasksperchild < 1):
            raise ValueError(f"processes is {processes} and maxtasksperchild is {maxtasksperchild}, each must be at least 1")
        if not 0 <= retries <= MAX_RETRIES:
            raise ValueError(f"retries is {retries}, it must be 0 to {MAX_RETRIES}")
        self._by_reference, self._retries, self._timeout_ms = not is_copy_tensor, retries, milliseconds(timeout)
        self._secret, self._function = secrets.token_bytes(32), f"pool/{secrets.token_hex(8)}"
        address = local.address() if address is None else address
        self._link = Link(address, key, tls, REACH_S)
        self._settings = {"address": address, "key": key, "tls": tls, "function": self._function, "secret": self._secret,
                          "maxtasks": maxtasksperchild, "by_reference": self._by_reference, "path": list(sys.path)}
        self._setups = [b"".join(pack(s, False)[0]) for s in self._contexts(initializer, tuple(initargs))]
        self._tags = itertools.count(1)
        self._iterators: weakref.WeakSet[MapIterator] = weakref.WeakSet()
        self._lock = Condition()
        # Guarded by the lock:
        self._streams = set[_Stream]()
        self._stream: _Stream | None = None
        self._pids = dict[int, subprocess.Popen[bytes]]()
        self._n_ready, self._failed, self._max_bytes = 0, "", 0
        self._is_closed = self._is_ending = False
        self._link.reach()  # its workers would wait for it for ever
        self._n_supervised = self._n  # under the lock: those that are not given up
        self._supervisors = [threading.Thread(target=self._supervise, args=(i,), daemon=True) for i in range(self._n)]
        try:
            for s in self._supervisors:
                s.start()
            with self._lock:
                self._lock.wait_for(lambda: self._n_ready == self._n or self._failed)
            if self._failed:
                raise self._not_started()
        except BaseException:  # interrupted, too: nobody else would end the workers
            self.terminate()
            raise

    def _not_started(self) -> RuntimeError:
        return RuntimeError(f"the pool's workers cannot start: {self._failed}")

    def _contexts(self, initializer: Any, initargs: Any) -> list[Any]:
        """Returns the setup of each worker."""
        return [(initializer, initargs, False, None, None)] * self._n

    # --- processes ---

    def _supervise(self, index: int) -> None:
        n_failed = 0
        for number in itertools.count(1):
            name = f"{self._function}/{index}/{number}"
            ready, ready_end = os.pipe()
            log = os.memfd_create("parley-log", os.MFD_CLOEXEC)
            os.ftruncate(log, Log.BYTES)
            with self._lock:
                if self._is_ending:
                    os.close(ready)
                    os.close(ready_end)
                    os.close(log)
                    return
                process = subprocess.Popen([sys.executable, "-c", "from parley.parallel.worker import main; main()"],
                                           stdin=subprocess.PIPE, stderr=subprocess.PIPE,
                                           pass_fds=(ready_end, log), env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
                self._pids[index] = process
            os.close(ready_end)
            tail = [b""]
            listener = threading.Thread(target=_listen, args=(process, tail), daemon=True)
            listener.start()
            settings = pickle.dumps({**self._settings, "name": name, "index": index, "ready_fd": ready_end, "log_fd": log,
                                     "setup": self._setups[index]})
            try:
                process.stdin.write(len(settings).to_bytes(4, "little") + settings)  # type: ignore[union-attr]
                process.stdin.flush()  # type: ignore[union-attr]
            except (OSError, ValueError):
                pass  # the worker has ended or the pool was closed; the code below handles both
            most = os.read(ready, 8)  # the largest task that the daemon takes, in bytes
            is_ready = most != b""
            os.close(ready)
            n_failed = 0 if is_ready else n_failed + 1
            if is_ready:
                with self._lock:
                    self._n_ready += 1
                    self._max_bytes = int.from_bytes(most, "little")
                    self._lock.notify_all()
            code = _end_of(process)
            listener.join()
            process.stdin.close()  # type: ignore[union-attr]
            said = tail[0].decode(errors="replace")
            begun, answers = Log(log).read()
            os.close(log)
            with self._lock:
                self._pids.pop(index, None)
                if (n_failed == 3 or n_failed == number == 1) and not self._is_ending:
                    self._failed = f"exit status {code}: {said}"
                    self._n_supervised -= 1
                    self._lock.notify_all()
                    for stream in self._streams if self._n_supervised == 0 else ():
                        stream.call.cancel()  # nobody is left who could compute its tasks
                    return
                if self._is_ending:
                    return
                for stream in self._streams:  # the daemon will report these tasks as lost, but their answers are known
                    stream.left_behind.update((tag, answers[tag]) for tag in answers.keys() & stream.tasks.keys())
            self._report(name, code, said, begun)

    def _report(self, name: str, code: int, said: str, begun: list[int]) -> None:
        tail = said.encode()[-TAIL_BYTES:].decode(errors="ignore")
        request = pb.WorkReportRequest(worker=name, signal=max(-code, 0), exit_code=max(code, 0), stderr_tail=tail,
                                       tells_begun=True, begun=begun)
        try:
            self._link.once("Work/Report", request, pb.WorkReportResponse)
        except Error:
            pass  # the daemon is unreachable, so nobody waits for the report

    def size(self) -> int:
        return self._n

    # --- tasks ---

    def _stream_over(self, stream: _Stream) -> None:
        with self._lock:
            self._streams.discard(stream)
            if self._stream is stream:
                self._stream = None

    def _task_over(self) -> None:
        if self._is_closed:
            with self._lock:
                self._lock.notify_all()

    def _submit(self, how: str, function: _Function, args: Any, kwds: Any, settle: Callable[[Any, BaseException | None], None],
                is_late: bool = False) -> None:
        """is_late: the task belongs to an iterator that was made before the pool was closed."""
        self._link.channel.check()
        parts, segments = pack((how, args, kwds), self._by_reference)
        tag = next(self._tags)
        at = values_at(parts)
        payload = signed(self._secret, b"task", [HEAD.pack(len(function.data), tag), function.data, *parts[:at]], parts[at:])
        if len(payload) > self._max_bytes:  # the daemon would end the stream, and with it the other tasks
            raise ValueError(f"the task has {len(payload)} bytes, but the daemon takes at most {self._max_bytes}")
        shielded(self._enter, tag, Task(payload, (segments, function.segments), settle, self._timeout_ms), is_late)

    def _enter(self, tag: int, task: Task, is_late: bool) -> None:
        with self._lock:
            if self._is_ending if is_late else self._is_closed:
                raise ValueError("the pool is closed")
            if self._failed:
                raise self._not_started()
            if self._stream is None:
                self._stream = _Stream(self)
                self._streams.add(self._stream)
            self._stream.tasks[tag] = task
            self._stream.outgoing.put((tag, task))

    def _packed(self, function: Callable[..., Any]) -> _Function:
        parts, segments = pack(function, self._by_reference)
        return _Function(b"".join(parts), segments)

    def apply_async(self, func: Callable[..., Any], args: Sequence[Any] = (), kwds: Any = None, callback: Any = None,
                    error_callback: Any = None) -> AsyncResult:
        result = AsyncResult(callback, error_callback)
        self._submit("call", self._packed(func), tuple(args), kwds or {}, result._settle)
        return result

    def apply(self, func: Callable[..., Any], args: Sequence[Any] = (), kwds: Any = None) -> Any:
        return self.apply_async(func, args, kwds).get()

    def _map(self, how: str, func: Any, iterable: Iterable[Any], chunksize: int | None, callback: Any, error_callback: Any) -> MapResult:
        if chunksize is not None and chunksize < 1:
            raise ValueError(f"chunksize is {chunksize}, it must be at least 1")
        items = list(iterable)
        size = chunksize or max(1, -(-len(items) // (4 * self._n)))
        chunks = [items[at:at + size] for at in range(0, len(items), size)]
        result = MapResult(len(chunks), callback, error_callback)
        function = self._packed(func)
        for at, chunk in enumerate(chunks):
            self._submit(how, function, chunk, None, lambda value, error, at=at: result._part(at, value, error))  # type: ignore[misc]
        return result

    def map_async(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = None, callback: Any = None,
                  error_callback: Any = None) -> AsyncResult:
        return self._map("map", func, iterable, chunksize, callback, error_callback)

    def map(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int | None = None) -> list[Any]:
        got: list[Any] = self.map_async(func, iterable, chunksize).get()
        return got

    def starmap_async(self, func: Callable[..., Any], iterable: Iterable[Sequence[Any]], chunksize: int | None = None, callback: Any = None,
                      error_callback: Any = None) -> AsyncResult:
        return self._map("starmap", func, iterable, chunksize, callback, error_callback)

    def starmap(self, func: Callable[..., Any], iterable: Iterable[Sequence[Any]], chunksize: int | None = None) -> list[Any]:
        got: list[Any] = self.starmap_async(func, iterable, chunksize).get()
        return got

    def _imap(self, func: Any, iterable: Iterable[Any], chunksize: int, is_ordered: bool) -> MapIterator:
        if chunksize < 1:
            raise ValueError(f"chunksize is {chunksize}, it must be at least 1")
        if self._is_closed:
            raise ValueError("the pool is closed")
        function, items = self._packed(func), iter(iterable)

        def submit(chunk: list[Any], settle: Callable[[Any, BaseException | None], None]) -> None:
            self._submit("map", function, chunk, None, settle, True)

        found = MapIterator(submit, items, chunksize, 4 * self._n + 64, is_ordered)
        self._iterators.add(found)
        return found

    def imap(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int = 1) -> MapIterator:
        return self._imap(func, iterable, chunksize, True)

    def imap_unordered(self, func: Callable[[Any], Any], iterable: Iterable[Any], chunksize: int = 1) -> MapIterator:
        return self._imap(func, iterable, chunksize, False)

    # --- the end ---

    def close(self) -> None:
        """Refuses new tasks; tasks under way continue."""
        with self._lock:
            self._is_closed = True

    def join(self) -> None:
        """Waits until all tasks and then all workers have ended. Call close first."""
        if not self._is_closed:
            raise ValueError("the pool is not closed: call close() before join()")
        self._link.channel.check()
        for iterator in list(self._iterators):
            iterator._begin(True)
        with self._lock:
            self._lock.wait_for(lambda: not any(s.tasks for s in self._streams))
        self._end()

    def terminate(self) -> None:
        """Kills the workers at once; unfinished tasks fail. Does nothing in a process that was forked: they are not its own."""
        if not self._link.channel.is_here():
            return
        with self._lock:
            self._is_closed = self._is_ending = True
            for process in self._pids.values():
                process.kill()
        self._end()

    def _end(self) -> None:
        with self._lock:
            self._is_ending = True
            streams, processes = list(self._streams), list(self._pids.values())
        for process in processes:
            try:
                process.stdin.close()  # type: ignore[union-attr]
            except OSError:
                pass
        for stream in streams:
            stream.outgoing.put(None)
            stream.call.cancel()
            stream.reader.join()
        for supervisor in self._supervisors:
            if supervisor.is_alive():  # not all were begun, if that was interrupted
                supervisor.join()
        self._link.channel.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.terminate()

    def __reduce__(self) -> Any:
        raise RuntimeError("Process pool is not reducible.")


P2PPool = Pool  # Machin's name of one whose workers have a pipe each: here each has a stream of its own


def _end_of(process: subprocess.Popen[bytes]) -> int:
    """Waits until the process ends. Returns its exit status, or the negative number of the signal that killed it. A process that stays
    stopped (SIGSTOP) is killed, because it would hold its tasks as long as it is stopped."""
    while True:
        seen = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
        if seen is None or seen.si_code not in (os.CLD_STOPPED, os.CLD_TRAPPED):
            return process.wait()
        until = time.monotonic() + STOPPED_S
        while (seen := os.waitid(os.P_PID, process.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT | os.WNOHANG)) is not None:
            if seen.si_code not in (os.CLD_STOPPED, os.CLD_TRAPPED):
                return process.wait()
            if time.monotonic() > until:
                process.kill()
                return process.wait()
            time.sleep(STOPPED_S / 20)


def _listen(process: subprocess.Popen[bytes], tail: list[bytes]) -> None:
    """Copies a worker's stderr to this process's stderr and keeps the last part in `tail`."""
    assert process.stderr is not None
    while said := os.read(process.stderr.fileno(), 65536):
        tail[0] = (tail[0] + said)[-TAIL_BYTES:]
        sys.stderr.write(said.decode(errors="replace"))
    process.stderr.close()


class CtxPool(Pool):
    """A pool in which each worker has a context, the first argument of every function. Worker i has worker_contexts[i], or the result of
    make_context(i), which the worker calls once. A worker that replaces a lost one gets the lost one's context."""

    def __init__(self, processes: int, initializer: Callable[..., Any] | None = None, initargs: Sequence[Any] = (),
                 maxtasksperchild: int | None = None, worker_contexts: Sequence[Any] | None = None, *rest: Any,
                 make_context: Callable[[int], Any] | None = None, **more: Any) -> None:
        if worker_contexts is not None and len(worker_contexts) != processes:
            raise ValueError("Context number is not equal to the number of pool workers.")
        self._worker_contexts, self._make_context = worker_contexts or [None] * processes, make_context
        super().__init__(processes, initializer, initargs, maxtasksperchild, *rest, **more)

    def _contexts(self, initializer: Any, initargs: Any) -> list[Any]:
        return [(initializer, initargs, True, c, self._make_context) for c in self._worker_contexts]


# --- threads ---


class ThreadPool(multiprocessing.pool.ThreadPool):
    """multiprocessing's ThreadPool, with size()."""

    def size(self) -> int:
        return len(self._pool)  # type: ignore[attr-defined]

    def __reduce__(self) -> Any:
        raise RuntimeError("Thread pool is not reducible.")


class CtxThreadPool:
    """A pool of threads in which each thread has a context, the first argument of every function."""

    def __init__(self, processes: int, initializer: Callable[..., Any] | None = None, initargs: Sequence[Any] = (),
                 worker_contexts: Sequence[Any] | None = None) -> None:
        if worker_contexts is not None and len(worker_contexts) != processes:
            raise ValueError("Context number is not equal to the number of pool workers.")
        self._local, self._contexts = threading.local(), collections.deque(worker_contexts or [None] * processes)
        begun: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

        def begin() -> None:
            error: BaseException | None = None
            try:
                self._local.context = self._contexts.popleft()
                if initializer is not None:
                    initializer(*initargs)
            except BaseException as e:  # multiprocessing would begin another thread, again and again
                error = e
            begun.put(error)

        self._pool = ThreadPool(processes, begin)
        failed = [e for e in [begun.get() for _ in range(processes)] if e is not None]
        if failed:
            self._pool.terminate()
            raise RuntimeError(f"the pool's threads cannot start: {failed[0]!r}") from failed[0]

    def __getattr__(self, name: str) -> Any:
        """Returns a method of multiprocessing's ThreadPool; if the method takes a function, that function gets the context first."""
        method = getattr(self._pool, name)
        if not name.startswith(("apply", "map", "imap", "starmap")):
            return method
        return lambda func, *args, **kwds: method(lambda *a, **k: self._call(func, a, k), *args, **kwds)

    def _call(self, func: Callable[..., Any], args: Sequence[Any], kwds: Mapping[str, Any]) -> Any:
        try:
            return func(self._local.context, *args, **kwds)
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as e:  # multiprocessing would lose the thread, and the task's result
            raise RuntimeError(f"the task ended with {e!r}") from e

    def __enter__(self) -> CtxThreadPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._pool.terminate()
