#!/usr/bin/env python3
"""The Python package's parley.parallel: pools of processes and threads, contexts, exceptions, events, queues; Machin's vectors and
examples.

usage: test_parallel.py PARLEYD      (run by the interpreter that has grpcio, numpy and cloudpickle; see venv.sh)"""
import contextlib
import dis
import io
import itertools
import multiprocessing
import os
import pickle
import queue as queues
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

import children
from children import Daemon, until

sys.path.insert(0, os.environ["PARLEY_PACKAGE"])  # made by venv.sh
import parley  # noqa: E402
from parley.parallel import pool as pools  # noqa: E402
from parley.parallel import (AndEvent, CtxPool, CtxThreadPool, Event, OrEvent, Pool, Process, ProcessException, Queue, RemoteError,  # noqa: E402
                             Thread, ThreadException, ThreadPool, WorkerLost, dumps, get_context, loads, share)

from parley.parallel.pickle import pack, unpack, values_at  # noqa: E402
from parley.parallel.worker import SIGNATURE_BYTES, opened, signed  # noqa: E402

PARLEYD = sys.argv[1]
EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../client/examples/parallel")


def raised(kind, call):
    try:
        call()
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__} was raised")


class Odd(Exception):
    def __init__(self, number):
        super().__init__(number)
        self.number = number

    def __str__(self):
        return f"{self.number} is odd"


def half(x):
    if x % 2:
        raise Odd(x)
    return x // 2


def test_pool(pool):
    """Machin's vector, map Σ2x; multiprocessing's methods; lambdas and local functions; order."""
    arrays = [np.full(10, i, dtype=np.float32) for i in range(5)]
    assert pool.size() == 2
    assert pool.map(lambda x: np.sum(x * 2), arrays) == [0, 20, 40, 60, 80]
    assert pool.apply(lambda x, y=1: x + y, (1,), {"y": 5}) == 6 and pool.starmap(pow, [(2, 3), (3, 2)]) == [8, 9]
    assert list(pool.imap(half, range(0, 2000, 2))) == list(range(1000))
    assert sorted(pool.imap_unordered(half, range(0, 2000, 2), chunksize=7)) == list(range(1000))
    ahead = pool.imap(half, iter(lambda: 4, None))  # an endless one
    assert [next(ahead) for _ in range(5)] == [2] * 5
    got = []
    result = pool.map_async(half, range(0, 100, 2), callback=got.append)
    assert result.get() == list(range(50)) and got == [result.get()] and result.successful() and pool.map(half, []) == []
    big = np.arange(1_200_000, dtype=np.float64)  # more than a message, there and back
    back = pool.apply(lambda x: x + 1, (big,))
    assert (back == big + 1).all() and back.flags.writeable
    results = [pool.apply_async(half, (2 * i,)) for i in range(3000)]
    assert [r.get() for r in results] == list(range(3000))


def test_arrays_by_value(pool):
    """Each lies where its type may, is the callee's own and writable; in parts, in one message, among others, empty ones, in an exception."""
    def seen(*arrays):
        for a in arrays:
            a += 1
        return [(a.flags.aligned, a.flags.writeable) for a in arrays], arrays

    arrays = [np.arange(n, dtype=t) for n in (1031, 0, 3, 400_001) for t in (np.int8, np.float64, np.complex128)]
    flags, back = pool.apply(seen, arrays)
    assert flags == [(True, True)] * len(arrays) and all((b == a + 1).all() and b.flags.writeable and b.flags.aligned for a, b in zip(arrays, back))
    assert arrays[1][0] == 0, "the caller's are its own"

    def fails(array):
        raise LookupError(array)

    assert raised(LookupError, lambda: pool.apply(fails, (arrays[0],))).args[0][1030] == arrays[0][1030]


def test_signatures():
    """What is pickled, and how much, is taken only as it was signed; arrays that are cut are told of."""
    parts = pack(("x", np.arange(1000)), False)[0]
    at = values_at(parts)
    payload = signed(b"secret", b"task", parts[:at], parts[at:])
    body, values = opened(b"secret", b"task", payload)
    assert (unpack(body, values=values)[1] == np.arange(1000)).all()
    n_signed = SIGNATURE_BYTES + sum(map(len, parts[:at]))
    for place in [*range(SIGNATURE_BYTES), SIGNATURE_BYTES, n_signed - 1]:
        changed = bytearray(payload)
        changed[place] ^= 1
        assert "not signed" in str(raised(ValueError, lambda changed=changed: opened(b"secret", b"task", changed))), place
    for wrong in lambda: opened(b"other", b"task", payload), lambda: opened(b"secret", b"result", payload), lambda: opened(b"secret", b"task", payload[:n_signed - 1]), \
            lambda: opened(b"secret", b"task", b""):
        assert "not signed" in str(raised(ValueError, wrong))
    body, values = opened(b"secret", b"task", payload[:-16])
    assert "the data ends before the end of an array" in str(raised(ValueError, lambda: unpack(body, values=values)))


def test_futures(pool):
    """Async functions, and those that return a future: the ones of a chunk are computed side by side."""
    state = {}

    async def meets(i):
        both = state.setdefault("both", parley.Future())
        if i == 1:
            both.set_result("met")
        return await both, i

    async def breaks():
        raise Odd(9)

    assert pool.map(meets, [0, 1], chunksize=2) == [("met", 0), ("met", 1)]
    assert pool.apply(lambda: [f := parley.Future(), f.set_result(4)][0].then(lambda done: done.wait() + 1)) == 5
    assert raised(Odd, lambda: pool.apply(breaks)).number == 9


def test_exceptions(pool):
    """An exception arrives with type, text and the trace of its process; the others' results come all the same."""
    e = raised(Odd, lambda: pool.apply(half, (7,)))
    assert e.number == 7 and str(e) == "7 is odd" and "in half" in str(e.__cause__) and "raise Odd(x)" in str(e.__cause__)
    assert raised(Odd, lambda: pool.map(half, [2, 4, 3], chunksize=1)).number == 3

    def odd():
        class Local(Exception):
            def __reduce__(self):
                raise TypeError("stays here")
        raise Local("unlike others")
    e = raised(RemoteError, lambda: pool.apply(odd))
    assert e.message == "unlike others" and "Local" in e.kind and "in odd" in e.trace
    back = pickle.loads(pickle.dumps(e))
    assert type(back) is RemoteError and str(back) == str(e) and back.trace == e.trace, "as from a process of processes"
    assert raised(SystemExit, lambda: pool.apply(sys.exit, (3,))).code == 3, "that is the task's end, not the worker's"
    said = []
    pool.apply_async(half, (5,), error_callback=said.append).wait()
    assert said[0].number == 5 and pool.apply(half, (8,)) == 4


def test_settings(address):
    """What a pool is asked for is checked when it is made; a short time limit is one; a daemon that is not there is told of."""
    for wrong in {"processes": 0}, {"retries": -1}, {"retries": 101}, {"timeout": -1}, {"timeout": 1e9}, {"timeout": float("nan")}, {"maxtasksperchild": 0}:
        assert next(iter(wrong)) in str(raised(ValueError, lambda wrong=wrong: Pool(**{"processes": 1, "address": address, **wrong})))
    raised(ValueError, lambda: CtxPool(0, worker_contexts=[], address=address))
    with Pool(1, address=address, timeout=0.0001) as late:
        assert raised(parley.Error, lambda: late.apply(time.sleep, (0.5,))).code == "DEADLINE_EXCEEDED"
    patience, pools.REACH_S = pools.REACH_S, 0.2
    try:
        assert "nothing listens at 127.0.0.1:1" in str(raised(parley.Error, lambda: Pool(1, address="127.0.0.1:1")))
    finally:
        pools.REACH_S = patience


def test_never_again(address):
    """Where no worker can be made any more, the tasks that wait fail, and so do new ones."""
    with children_folder() as folder, contextlib.redirect_stderr(io.StringIO()):
        path = os.path.join(folder, "there")
        with open(path, "w"), Pool(1, initializer=lambda: open(path).close(), address=address) as pool:
            assert pool.apply(half, (4,)) == 2
            os.unlink(path)
            results = [pool.apply_async(os._exit, (1,)), *(pool.apply_async(half, (4,)) for _ in range(3))]
            raised(WorkerLost, lambda: results[0].get(children.PATIENCE))
            for r in results[1:]:
                assert "cannot start" in str(raised(RuntimeError, lambda r=r: r.get(children.PATIENCE)))
            assert "FileNotFoundError" in str(raised(RuntimeError, lambda: pool.apply(half, (4,))))
            pool.close()
            pool.join()


def test_large():
    """A task that the daemon does not take is refused, a result fails its task: neither costs another task, or a worker."""
    with Daemon(PARLEYD, "--work-bytes", "4M") as daemon, Pool(1, address=daemon.address) as pool:
        pid = pool.apply(os.getpid)
        other = pool.apply_async(time.sleep, (0.2,))
        assert "the task has" in str(raised(ValueError, lambda: pool.apply(len, (bytes(1 << 20),)))) and other.get() is None
        assert "the result has" in str(raised(ValueError, lambda: pool.apply(lambda: bytes(1 << 20))))
        assert pool.apply(lambda: len(bytes(1 << 20))) == 1 << 20 and pool.apply(os.getpid) == pid


def stops(x):
    if x == 3:
        raise StopIteration
    return x


def test_iterators(address):
    """imap begins at once, and goes on behind a failure, behind close() and within join(); next waits no longer than it is told; a function's
    StopIteration shortens nothing; there are no chunks of less than one item."""
    def taken(it):
        while True:
            try:
                yield next(it)
            except StopIteration:
                return
            except Exception as e:
                yield e

    with Pool(1, address=address) as pool, children_folder() as folder:
        path = os.path.join(folder, "go on")
        os.mkfifo(path)
        begun = pool.imap(lambda path: open(path).read(), [path])
        with open(path, "w") as f:  # the worker has opened it, without our asking
            raised(multiprocessing.TimeoutError, lambda: begun.next(timeout=0.01))
            f.write("now")
        assert next(begun) == "now" and not list(begun)
        for order in pool.imap, pool.imap_unordered:
            got = list(taken(order(half, range(5))))
            assert sorted(x for x in got if isinstance(x, int)) == [0, 1, 2] and sorted(e.number for e in got if isinstance(e, Odd)) == [1, 3]
        got = list(taken(pool.imap(half, (8 // i for i in (4, 2, 0, 1)))))
        assert got[:2] == [1, 2] and isinstance(got[2], ZeroDivisionError) and len(got) == 3
        got = list(taken(pool.imap(half, [2, threading.Lock(), 4])))
        assert got[::2] == [1, 2] and isinstance(got[1], TypeError)
        got = list(taken(pool.imap(stops, range(5))))
        assert got[:3] + got[4:] == [0, 1, 2, 4] and isinstance(got[3].__cause__, StopIteration)
        raised(StopIteration, lambda: pool.map(stops, range(8), chunksize=8))
        for size in 0, -3:
            for call in pool.map, pool.starmap, pool.imap, pool.imap_unordered:
                assert "at least 1" in str(raised(ValueError, lambda call=call, size=size: call(half, [2], size)))
        late = pool.imap(half, range(0, 2000, 2))
        pool.close()
        assert "closed" in str(raised(ValueError, lambda: pool.imap(half, [2])))
        assert [next(late) for _ in range(500)] == list(range(500))
        pool.join()
        assert list(late) == list(range(500, 1000))


def test_callbacks(pool):
    """A callback that raises is told of, as a thread's exception; its result and the others' come all the same."""
    said = []
    hook, threading.excepthook = threading.excepthook, said.append
    try:
        good, bad = pool.apply_async(half, (4,), callback=lambda _: 1 // 0), pool.apply_async(half, (5,), error_callback=lambda _: 1 // 0)
        assert good.get(children.PATIENCE) == 2 and raised(Odd, lambda: bad.get(children.PATIENCE)).number == 5
        assert [a.exc_type for a in said] == [ZeroDivisionError] * 2 and pool.apply(half, (8,)) == 4
    finally:
        threading.excepthook = hook


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("it has no text")


class Disguised(Exception):
    def __reduce__(self):
        return str, ("no exception",)


def strange(what):
    """Raises what is not easily told of."""
    if what == "surrogate":
        raise OSError("no file \udcff\0")
    if what == "name":
        raise type("Größe😀" * 60, (Exception,), {})("long")
    raise {"mute": Mute, "disguised": Disguised}[what]("odd")


def test_strange_exceptions(pool):
    """An exception without a text, with one that UTF-8 has not, of a long name, or that pickles as something else: none costs the worker."""
    pids = set(pool.map(lambda _: os.getpid(), range(64), chunksize=1))
    e = raised(Mute, lambda: pool.apply(strange, ("mute",)))
    assert "in strange" in str(e.__cause__)
    e = raised(OSError, lambda: pool.apply(strange, ("surrogate",)))
    assert e.args == ("no file \udcff\0",) and "no file \\udcff\\x00" in str(e.__cause__) and "raise OSError" in str(e.__cause__)
    assert str(raised(Exception, lambda: pool.apply(strange, ("name",)))) == "long"
    e = raised(RemoteError, lambda: pool.apply(strange, ("disguised",)))
    assert e.message == "odd" and e.kind.endswith("Disguised")
    assert set(pool.map(lambda _: os.getpid(), range(64), chunksize=1)) <= pids, "no worker was replaced"


def test_lost_workers(pool, address):
    """A task whose worker is killed is run again, or fails with signal and last words; the worker is replaced, and what waited
    behind it is not lost."""
    def die(path, times):
        with open(path, "ab") as f:
            f.write(b"x")
        if os.path.getsize(path) <= times:
            os.write(2, b"last words\n")
            os.kill(os.getpid(), signal.SIGKILL)
        return os.path.getsize(path)

    with contextlib.redirect_stderr(io.StringIO()) as stderr:
        with children_folder() as folder:
            one = os.path.join(folder, "one")
            first = [pool.apply_async(time.sleep, (0.01,)) for _ in range(2)]
            killer = pool.apply_async(die, (one, 1))
            others = [pool.apply_async(half, (2 * i,)) for i in range(100)]
            e = raised(WorkerLost, killer.get)
            assert [r.get() for r in first + others] == [None] * 2 + list(range(100)), "whatever it had not begun is done"
            assert e.signal == signal.SIGKILL and e.exit_code == 0 and e.stderr_tail.endswith("last words\n") and e.code == "ABORTED"
            assert "signal 9" in str(e) and os.path.getsize(one) == 1
            assert pool.apply(half, (8,)) == 4
            e = raised(WorkerLost, lambda: pool.apply(os._exit, (7,)))
            assert e.signal == 0 and e.exit_code == 7
            back = pickle.loads(pickle.dumps(e))
            assert type(back) is WorkerLost and back.exit_code == 7 and str(back) == str(e)
        assert "last words" in stderr.getvalue()
    with Pool(1, address=address, retries=1) as pool, contextlib.redirect_stderr(io.StringIO()), children_folder() as folder:
        assert pool.apply(die, (os.path.join(folder, "two"), 1)) == 2, "lost once, then done"
        assert raised(WorkerLost, lambda: pool.apply(die, (os.path.join(folder, "three"), 2))).signal == 9


def test_interrupted_workers(address):
    """Ctrl-C, which a terminal's processes get together, ends the task that a worker computes, not the worker."""
    with Pool(1, address=address) as pool:
        pid = pool.apply(os.getpid)
        os.kill(pid, signal.SIGINT)
        assert pool.apply(os.getpid) == pid
        raised(KeyboardInterrupt, lambda: pool.apply(lambda: (os.kill(os.getpid(), signal.SIGINT), time.sleep(children.PATIENCE))))
        assert pool.apply(os.getpid) == pid
    def interrupt(parent, path):
        with open(path, "w") as f:
            f.write(str(os.getpid()))
        os.kill(parent, signal.SIGINT)
        time.sleep(children.PATIENCE)

    with children_folder() as folder:
        path = os.path.join(folder, "pid")
        raised(KeyboardInterrupt, lambda: Pool(1, interrupt, (os.getpid(), path), address=address))
        with open(path) as f:
            raised(ProcessLookupError, lambda: os.kill(int(f.read()), 0))
    with Pool(1, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN), address=address) as pool:
        assert pool.apply(lambda: os.kill(os.getpid(), signal.SIGINT)) is None, "the initializer said so"


def test_stopped_workers(address):
    """A worker that is stopped is killed by its supervisor, as soon as it stays so, and its task is run again, or lost."""
    def stop(path, times):
        with open(path, "ab") as f:
            f.write(b"x")
        if os.path.getsize(path) <= times:
            os.kill(os.getpid(), signal.SIGSTOP)
        return os.path.getsize(path)

    with Pool(1, address=address, retries=1) as pool, children_folder() as folder:
        assert pool.apply(stop, (os.path.join(folder, "one"), 1)) == 2, "stopped once, then done"
        assert raised(WorkerLost, lambda: pool.apply(stop, (os.path.join(folder, "two"), 2))).signal == signal.SIGKILL
        assert pool.apply(half, (8,)) == 4


@contextlib.contextmanager
def children_folder():
    with tempfile.TemporaryDirectory() as folder:
        yield folder


def test_turnover(address):
    """maxtasksperchild: workers leave after so many tasks, and no task is lost with them."""
    with Pool(1, maxtasksperchild=40, address=address) as pool:
        pids = pool.map(lambda _: os.getpid(), range(100), chunksize=1)
        assert [pids.count(p) for p in dict.fromkeys(pids)] == [40, 40, 20], [pids.count(p) for p in dict.fromkeys(pids)]


def test_deadlines(pool, address):
    """A task that is not done in time fails; what waits behind a long task is computed by others."""
    with Pool(1, address=address, timeout=0.2) as late:
        assert raised(parley.Error, lambda: late.apply(time.sleep, (0.5,))).code == "DEADLINE_EXCEEDED"
    pool.map(half, range(0, 4000, 2), chunksize=1)  # both workers hold many in advance by now
    with children_folder() as folder:
        path = os.path.join(folder, "go on")
        os.mkfifo(path)
        slow = pool.apply_async(lambda: open(path).read())  # until we write
        assert pool.map(half, range(0, 400, 2), chunksize=1) == list(range(200)) and not slow.ready()
        with open(path, "w") as f:
            f.write("now")
        assert slow.get() == "now"


def test_contexts(address):
    """Machin's vector: two pools with contexts do not mix over 50,000 items; a lost worker's place has its context."""
    with CtxPool(2, worker_contexts=["a", "b"], address=address) as one, \
            CtxPool(2, make_context=lambda i: f"made {i} {os.getpid()}", address=address) as two:
        n = 25000
        first = one.map_async(lambda ctx, x: (ctx, x), range(n))
        second = two.map_async(lambda ctx, x: (ctx, os.getpid(), x), range(n))
        assert [x for _, x in first.get()] == list(range(n)) and {c for c, _ in first.get()} <= {"a", "b"}
        got = second.get()
        assert [x for _, _, x in got] == list(range(n)) and all(c.startswith("made ") and c.endswith(f" {pid}") for c, pid, _ in got)
        with contextlib.redirect_stderr(io.StringIO()):
            raised(WorkerLost, lambda: one.apply(lambda ctx: os._exit(1)))
        until("both workers come again", lambda: set(one.map(lambda ctx, x: ctx, range(64), chunksize=1)) == {"a", "b"})
    assert "Context number" in str(raised(ValueError, lambda: CtxPool(2, worker_contexts=[1], address=address)))
    with contextlib.redirect_stderr(io.StringIO()):
        e = raised(RuntimeError, lambda: CtxPool(1, make_context=lambda i: 1 // 0, address=address))
    assert "ZeroDivisionError" in str(e)


def test_threads():
    with CtxThreadPool(2, worker_contexts=["a", "b"]) as pool:
        assert {c for c, _ in pool.map(lambda ctx, x: (ctx, x), range(100))} <= {"a", "b"}
        assert pool.apply(lambda ctx, x, y: x + y, (1,), {"y": 2}) == 3
        ends = [pool.apply_async(lambda ctx: sys.exit(3)) for _ in range(4)]
        for e in ends:
            assert "SystemExit(3)" in str(raised(RuntimeError, lambda e=e: e.get(children.PATIENCE))), "the task's end, not the thread's"
        assert {c for c, _ in pool.map(lambda ctx, x: (ctx, x), range(100))} <= {"a", "b"}
    e = raised(RuntimeError, lambda: CtxThreadPool(2, lambda: 1 // 0, worker_contexts=["a", "b"]))
    assert isinstance(e.__cause__, ZeroDivisionError)
    with ThreadPool(2) as pool:
        assert pool.size() == 2 and pool.map(half, [2, 4]) == [1, 2]


def test_by_reference(address):
    """By reference processes see the same memory, and bytes stay short; by value each has its own."""
    def fill(x, value):
        x[:] = value
        return x

    here = share(np.zeros((1000, 100)))
    assert share(here) is here and len(dumps(here, copy_tensor=False)) < 1000 < 800_000 < len(dumps(here))
    assert (loads(dumps(here[10:20], copy_tensor=False)) == 0).all()
    assert "share()" in str(raised(ValueError, lambda: dumps(np.zeros(1000), copy_tensor=False)))
    for view in here[:, ::3], here[::-1, ::-2], here[::7].T, here[3:4, 5:6]:
        back = loads(dumps(view, copy_tensor=False))
        assert np.shares_memory(back, view) and back.shape == view.shape
        view[...] = np.arange(view.size).reshape(view.shape)
        assert (back == view).all() and len(dumps(view, copy_tensor=False)) < 1000
    assert "share()" in str(raised(ValueError, lambda: dumps(np.zeros((1000, 10))[:, ::2], copy_tensor=False))), "it was copied without a word"
    assert "mask" in str(raised(TypeError, lambda: share(np.ma.masked_array([1, 2], [True, False]))))
    with Pool(2, is_copy_tensor=False, share_method="cpu", address=address) as pool:
        back = pool.apply(fill, (here, 3.0))
        assert (here == 3).all() and np.shares_memory(back, here)
        pool.map(lambda i: fill(here[i], i), range(1000))
        assert (here[:, 0] == np.arange(1000)).all()
        mine = np.zeros(100_000)
        assert (pool.apply(fill, (mine, 2.0)) == 2).all() and (mine == 0).all(), "a copy was shared"
        assert pool.apply(lambda: fill(mine, 2.0).sum()) == 200_000 and list(pool.imap(lambda i: len(mine) + i, range(2))) == [100_000, 100_001]
        assert pool.map(lambda i: len(mine) + i, range(20)) == list(range(100_000, 100_020)), "what a function refers to was gone"
    with Pool(1, address=address) as pool:
        assert (pool.apply(fill, (here, 5000.0)) == 5000).all() and not (here == 5000).any()
    data = dumps(share(np.ones(1000)), copy_tensor=False)
    raised((ValueError, OSError), lambda: loads(data))  # it is gone with its array
    assert "Invalid share method" in str(raised(RuntimeError, lambda: Pool(1, is_copy_tensor=False, address=address)))


def test_queue(pool):
    """A queue is bounded, keeps its order, and holds shared memory whose maker is gone."""
    queue = Queue(2, copy_tensor=False)
    queue.put(1)
    queue.put(np.arange(1000.0))
    raised(queues.Full, lambda: queue.put(3, block=False))
    raised(queues.Full, lambda: queue.put(3, timeout=0.05))
    assert queue.get() == 1 and (queue.get() == np.arange(1000.0)).all() and queue.empty()
    raised(queues.Empty, lambda: queue.get(timeout=0.05))
    result = pool.apply_async(lambda q, n: [q.put((i, np.full(5000, i))) for i in range(n)], (queue, 20))
    for i in range(20):
        number, array = queue.get()
        assert number == i and (array == i).all() and queue.qsize() <= 2
    assert len(result.get()) == 20
    with contextlib.redirect_stderr(io.StringIO()):
        raised(WorkerLost, lambda: pool.apply(lambda q: (q.put(np.full(5000, 7)), os._exit(0)), (queue,)))
    assert (queue.get() == 7).all(), "its maker is gone"
    queue.close()


def test_interrupted_start(address):
    """Ctrl-C between the beginnings of two workers ends the one that has begun."""
    begin, begun, processes = threading.Thread.start, [], []

    def start(thread):
        pool = getattr(getattr(thread, "_target", None), "__self__", None)
        if isinstance(pool, Pool):
            begun.append(pool)
            if len(begun) == 2:
                until("the first worker has begun", lambda: pool._pids)
                processes.extend(pool._pids.values())
                raise KeyboardInterrupt
        begin(thread)

    threading.Thread.start = start
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            raised(KeyboardInterrupt, lambda: Pool(3, address=address))
    finally:
        threading.Thread.start = begin
    until("the first worker has ended", lambda: len(processes) == 1 and processes[0].poll() is not None)


def test_interrupted_iterators():
    """Ctrl-C wherever Python looks for signals in an iterator of results: what it yields after that is what is left, each once, and in order."""
    kind, items = pools.MapIterator, list(range(7))
    codes = {method.__code__ for method in (kind.next, kind._begin, kind._send, kind._keep, kind._tell, kind._take)}
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for is_ordered, chunksize in itertools.product((True, False), (2, 3)):
            for at in itertools.count(1):
                n, last, submitted, got = 0, ("", 0), [], []

                def submit(chunk, settle):
                    submitted.extend(chunk)
                    result = (None, Odd(chunk[0])) if 5 in chunk else ([-x for x in chunk], None)
                    threading.Thread(target=settle, args=result).start()

                def trace(frame, event, _):
                    nonlocal n, last
                    if frame.f_code not in codes:
                        return None
                    frame.f_trace_opcodes = True
                    if event == "opcode":
                        is_place = last[0].startswith(("CALL", "RESUME")) or frame.f_lasti < last[1]
                        last = dis.opname[frame.f_code.co_code[frame.f_lasti]], frame.f_lasti
                        n += is_place
                        if is_place and n == at:
                            signal.raise_signal(signal.SIGINT)
                    elif event in ("call", "return", "exception"):  # Python looks where a function in C returns, not where one in Python does
                        last = "", 0
                    return trace

                found = kind(submit, iter(items), chunksize, 2, is_ordered)
                while True:
                    sys.settrace(trace)
                    try:
                        got.append(found.next())
                    except StopIteration:
                        break
                    except KeyboardInterrupt:
                        pass
                    except Odd as e:
                        got.append(e.number)
                    finally:
                        sys.settrace(None)
                first = 5 // chunksize * chunksize
                due = [first if x == first else -x for x in items if x == first or not first < x < first + chunksize]
                assert submitted == items and sorted(got) == sorted(due) and (not is_ordered or got == due), (at, got, submitted)
                if n < at:
                    break
            assert at > 30, at
    finally:
        signal.signal(signal.SIGINT, handler)


def test_order_of_iterators():
    """imap_unordered yields what came first first."""
    assert list(pools.MapIterator(lambda chunk, settle: settle(chunk, None), iter(range(16)), 1, 8, False)) == list(range(16))


def test_shared_iterators():
    """Several threads that take from one iterator get each result once, and its end, each."""
    kind, items = pools.MapIterator, list(range(16))
    for is_ordered, n_threads in itertools.product((True, False), (2, 3, 5)):
        settles, got = [], []
        found = kind(lambda chunk, settle: settles.append(lambda: settle(chunk, None)), iter(items), 3, 4, is_ordered)  # noqa: B023
        threads = [threading.Thread(target=lambda: got.extend(found), daemon=True) for _ in range(n_threads)]  # noqa: B023
        for thread in threads:
            thread.start()
        for n in 4, 2:
            until("the threads have submitted all that they may", lambda: len(settles) == n)  # noqa: B023
            now, settles[:] = settles[:], []
            for settle in reversed(now):
                settle()
        for thread in threads:
            thread.join(children.PATIENCE)
            assert not thread.is_alive(), (is_ordered, n_threads, got)
        assert sorted(got) == items, (is_ordered, n_threads, got)


def test_shared_chunks():
    """A chunk's results reach each of the threads that wait, though each takes one; none sees the end while results are left."""
    waits, settles, got = [], [], []

    class Told(queues.SimpleQueue):
        def get(self, timeout=None):
            waits.append(timeout)
            return super().get(timeout=timeout)

    def iterator():
        return pools.MapIterator(lambda chunk, settle: settles.append(lambda: settle(chunk, None)), iter(range(3)), 3, 4, True)

    found = iterator()
    found._told = Told()
    threads = [threading.Thread(target=lambda: got.append(found.next()), daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    until("each thread waits", lambda: len(waits) == 3)
    settles.pop()()
    for thread in threads:
        thread.join(children.PATIENCE)
        assert not thread.is_alive(), got
    assert sorted(got) == [0, 1, 2], got

    late = iterator()
    settles.pop()()
    begin = late._begin
    late._begin = lambda: (begin(), late._take())[0]  # as if another thread took the last chunk then
    assert list(late) == [0, 1, 2]


def test_interrupted_queue():
    """A get that Ctrl-C ended leaves nothing behind that the next call would take for its answer, and takes no item with it; a queue of -1 has no bound."""
    def interrupt(*_):
        raise KeyboardInterrupt

    queue = Queue(-1)
    other = pickle.loads(pickle.dumps(queue))  # as another process has it
    handler = signal.signal(signal.SIGALRM, interrupt)
    try:
        raised(KeyboardInterrupt, lambda: (signal.setitimer(signal.ITIMER_REAL, 0.1), other.get()))
    finally:
        signal.signal(signal.SIGALRM, handler)
    queue.put("zero", block=False)
    other.put("one", timeout=children.PATIENCE)
    assert {queue.get(timeout=children.PATIENCE), other.get(timeout=children.PATIENCE)} == {"zero", "one"}
    queue.close()


def test_events():
    """Levels: an event that was set before is seen; with a timeout wait returns early; combinations nest."""
    a, b, c = Event(), Event(), Event()
    either, all_of = OrEvent(a, b, c), AndEvent(AndEvent(a, c), b)
    assert not either.wait(0) and not all_of.wait(0.01)
    a.set()
    assert either.wait() and (b | a).wait() and not (a & b).wait(0)
    either.clear()
    all_of.set()
    assert either.is_set() and not all_of.is_set(), "their parts alone decide"
    seen = []
    waiter = threading.Thread(target=lambda: seen.append(all_of.wait(60)))
    waiter.start()
    b.set()
    c.set()
    waiter.join()
    assert seen == [True]
    a.clear()
    assert not all_of.is_set() and either.is_set()
    for kind in OrEvent, AndEvent:  # whose setting nobody here would hear of
        assert "threading.Event" in str(raised(TypeError, lambda kind=kind: kind(a, threading.Event())))


def fail_and_clean():
    raise RuntimeError("Error")


def clean():
    raise KeyError("cleaner")


def test_watched():
    """Threads raise in watch each time, processes once; cleaners' exceptions count; a signal is one."""
    t = Thread(target=fail_and_clean, cleaner=clean)
    t.start()
    t.join()
    for _ in range(2):
        e = raised(ThreadException, t.watch)
        assert "Exception 0:" in str(e) and "RuntimeError: Error" in str(e) and "Exception 1:" in str(e) and "KeyError" in str(e)
    fine = Thread(target=int)
    fine.start()
    fine.join()
    fine.watch()
    assert fine.exception is None
    p = Process(target=fail_and_clean, ctx=get_context("fork"))
    p.start()
    p.join()
    assert "RuntimeError: Error" in str(p.exception) and "in fail_and_clean" in str(raised(ProcessException, p.watch))
    p.watch()
    killed = Process(target=lambda: os.kill(os.getpid(), signal.SIGKILL), ctx=get_context("fork"))
    killed.start()
    killed.join()
    assert "SIGKILL" in str(raised(ProcessException, killed.watch))
    two = [Process(target=signal.pause, ctx=get_context("fork")) for _ in range(2)]  # the first has the second's end of its pipe, too
    for p in two:
        p.start()
    try:
        os.kill(two[1].pid, signal.SIGRTMIN + 1)
        two[1].join()
        assert f"signal {signal.SIGRTMIN + 1}" in str(raised(ProcessException, two[1].watch))
        two[0].watch()
    finally:
        two[0].kill()
        two[0].join()

    def fails_at_length():
        raise ValueError("x" * 1_000_000)

    p = Process(target=fails_at_length, ctx=get_context("fork"))
    p.start()
    p.join(children.PATIENCE)
    assert p.exitcode == 0 and "ValueError: xxx" in str(raised(ProcessException, p.watch))


def test_examples():
    """Machin's examples against this package print what they print there."""
    def lines(name):
        done = children.run([sys.executable, os.path.join(EXAMPLES, name + ".py")], capture_output=True, text=True,
                            env={**os.environ, "PYTHONPATH": os.environ["PARLEY_PACKAGE"]})
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    said = lines("mth_event")
    assert sorted(said) == ["hello1", "hello2", "set event1", "set event2", "set event3"]
    assert said[0] == "set event1" and said.index("hello1") < said.index("set event2") < said.index("hello2")
    for name in "mth_exception", "mpr_exception":
        said = lines(name)
        assert re.fullmatch(r"Exception occurred at [\d.]+", said[0]) and re.fullmatch(r"Exception caught at [\d.]+", said[1]), said
        assert said[2:5] == ["Exception is: ", "Exception 0:", "Traceback (most recent call last):"] and said[-2] == "RuntimeError: Error"
        assert 0 <= float(said[1].split()[-1]) - float(said[0].split()[-1])
    said = lines("mpr_pickle")
    ones, threes = "[1. 1. 1. 1. 1. 1. 1. 1. 1. 1.]", "[3. 3. 3. 3. 3. 3. 3. 3. 3. 3.]"
    assert said[:2] == [ones, ones] and said[-2:] == [f"Before:{ones}", f"After:{threes}"], said
    lengths = [int(x.split(": ")[1]) for x in said if x.startswith("Dumped length of shm tensor")]
    assert len(lengths) == 2


def timed(test, *args):
    start = time.monotonic()
    test(*args)
    print(f"{test.__name__}: {time.monotonic() - start:.1f} s", flush=True)


ALONE = """import os, sys
sys.path.insert(0, os.environ["PARLEY_PACKAGE"])
import parley.wire
parley.wire.DEFAULT_ADDRESS = "127.0.0.1:1"  # nobody listens there
from parley.parallel import CtxPool, P2PPool, local
with P2PPool(1) as pool, CtxPool(1, worker_contexts=[3]) as other:
    print(pool.apply(pow, (2, 5)), other.apply(pow, (2,)), local._address, flush=True)
    sys.stdin.read()
"""


def test_alone():
    """Pools without an address and without a daemon start one, for all pools of the process; it ends with the process, also by SIGKILL."""
    for ends in "close", "kill":
        alone = children.start([sys.executable, "-c", ALONE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PARLEYD": PARLEYD})
        said = alone.stdout.readline().split()
        assert said[:2] == ["32", "9"], said
        host, port = said[2].rsplit(":", 1)
        socket.create_connection((host, int(port))).close()
        if ends == "close":
            alone.communicate(timeout=children.PATIENCE)
            assert alone.returncode == 0
        else:
            alone.kill()
            alone.wait()

        def is_gone(host=host, port=port):
            try:
                socket.create_connection((host, int(port))).close()
            except OSError:
                return True
            return False

        children.until("the daemon to end", is_gone)
    for program, words in ("/nowhere/parleyd", "cannot be started"), ("/bin/false", "ended with status 1"):
        failed = children.run([sys.executable, "-c", ALONE], stderr=subprocess.PIPE, text=True, env={**os.environ, "PARLEYD": program})
        assert failed.returncode == 1 and words in failed.stderr, failed
    none = children.run([sys.executable, "-c", ALONE], stderr=subprocess.PIPE, text=True, env={k: v for k, v in os.environ.items() if k != "PARLEYD"} | {"PATH": "/usr/bin:/bin"})
    assert none.returncode == 1 and "no program 'parleyd' in PATH" in none.stderr, none


def main():
    with Daemon(PARLEYD) as daemon:
        with Pool(2, address=daemon.address) as pool:
            for test in test_pool, test_arrays_by_value, test_futures, test_exceptions, test_strange_exceptions, test_callbacks, test_queue:
                timed(test, pool)
            for test in test_lost_workers, test_deadlines:
                timed(test, pool, daemon.address)
            pool.close()
            pool.join()
            assert "closed" in str(raised(ValueError, lambda: pool.apply(half, (2,))))
        for test in test_settings, test_never_again, test_iterators, test_turnover, test_interrupted_workers, test_interrupted_start, \
                test_stopped_workers, test_contexts, test_by_reference:
            timed(test, daemon.address)
    for test in test_alone, test_large, test_signatures, test_threads, test_interrupted_iterators, \
            test_order_of_iterators, test_shared_iterators, test_shared_chunks, test_interrupted_queue, test_events, test_watched, \
            test_examples:
        timed(test)


if __name__ == "__main__":
    main()
