#!/usr/bin/env python3
"""The Python package's worlds and groups: pairs, services, calls, barriers, collectives; members that are killed, late or odd;
Machin's vectors and examples.

usage: test_groups.py PARLEYD PARLEY      (run by the interpreter that has grpcio, numpy and cloudpickle; see venv.sh)"""
import asyncio
import concurrent.futures
import contextlib
import io
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time

import grpc
import numpy as np

import children
from children import PATIENCE, Daemon

sys.path.insert(0, os.environ["PARLEY_PACKAGE"])  # made by venv.sh
import parley  # noqa: E402
from parley import wire  # noqa: E402
from parley.parallel import group as groups  # noqa: E402
from parley.parallel import direct  # noqa: E402
from parley.parallel import MemberLost, ModelAssigner, RemoteError, World, get_cur_name, get_cur_rank, is_world_initialized  # noqa: E402
from parley.parallel.messages import MAX_UNRECEIVED  # noqa: E402
from parley.v1 import registry_pb2, registry_pb2_grpc, work_pb2, work_pb2_grpc  # noqa: E402

PARLEYD, PARLEY = sys.argv[1:]
groups.MAX_KEPT = 3  # not 4096
EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../client/examples/parallel")
SECRET = "of these tests"


def raised(kind, call, *args, **more):
    try:
        call(*args, **more)
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__} was raised")


def members(address, n, body, group="group", world="world", direct=True):
    """body(group, world) as each of n members, in threads; what they return, in the order of the members. direct: not by way of the daemon."""
    results = [None] * n

    def run(i):
        try:
            with World(str(i), i, n, world=world, address=address, secret=SECRET, direct=direct) as w, w.create_rpc_group(group, [str(j) for j in range(n)]) as g:
                results[i] = body(g, w)
        except BaseException as e:
            results[i] = e

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(PATIENCE)
        assert not t.is_alive(), results
    failed = [r for r in results if isinstance(r, BaseException)]
    if failed:  # the others' follow from the one's
        raise next((f for f in failed if not isinstance(f, MemberLost)), failed[0])
    return results


class Counter:
    """Machin's example of a service."""

    def __init__(self):
        self.counter = 20

    def count(self):
        self.counter += 1
        return self.counter


def test_services(address):
    """Machin's vector: a counter of 20 becomes 21, 22, 23 by the three ways to call it; and its six errors."""
    def body(group, world):
        me, counter, there = world.name, Counter(), world.get_members()
        assert world.get_ranks() == [0, 1, 2] and world.get_rpc_group("group") is group and world.get_rpc_group("none") is None
        if me == "0":
            group.pair("value", counter.counter)
            group.register("count", counter.count)
            assert "already paired" in raised(KeyError, group.pair, "value", 1).args[0]
            assert "already registered" in raised(KeyError, group.register, "count", print).args[0]
        group.barrier()
        if me == "1":
            assert group.is_paired("value") and group.is_registered("count") and not group.is_paired("count")
            assert group.get_paired("value").to_here() == 20
            assert group.registered_sync("count") == 21
            assert group.registered_async("count").wait() == 22
            assert group.registered_remote("count").to_here() == 23
            assert "held by the member '0'" in raised(KeyError, group.pair, "value", 1).args[0]
            assert "held by the member '0'" in raised(KeyError, group.register, "count", print).args[0]
            assert "not paired" in raised(KeyError, group.unpair, "value").args[0]
            assert "not registered" in raised(KeyError, group.deregister, "count").args[0]
            assert "not found on Group [group]" in raised(KeyError, group.get_paired, "none").args[0]
            for call in group.registered_sync, group.registered_async, group.registered_remote:
                assert "not found on Group [group]" in raised(KeyError, call, "none").args[0]
        group.barrier()
        if me == "0":
            assert counter.counter == 23
            group.unpair("value")
            group.deregister("count")
            group.pair("value", "anew")
            group.unpair("value")
        group.barrier()
        assert not group.is_registered("count") and not group.is_paired("value")
        return group.size(), group.get_group_members(), group.get_group_name(), there

    assert members(address, 3, body) == [(3, ["0", "1", "2"], "group", ["0", "1", "2"])] * 3


def fails(x):
    raise LookupError(f"no {x}")


class Unpicklable(Exception):
    def __reduce__(self):
        raise TypeError


def unpicklable():
    raise Unpicklable("cannot go")


children.released = threading.Event()  # of a module, which is not pickled


def wait():
    children.released.wait()


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("it has no text")


def strange(what):
    """An exception without a text, or of a name that is longer than the wire takes."""
    raise Mute() if what == "no text" else type("Größe😀" * 60, (Exception,), {})("long")


def test_calls(address, direct=True):
    """Functions at a member: local ones, nested calls, large arguments, exceptions with their trace, time limits, references and their bound."""
    def body(group, world):
        if world.name == "0":
            assert group.rpc_sync("1", lambda x, y=1: x + y, args=(1,), kwargs={"y": 5}) == 6
            assert group.rpc_sync("0", os.getpid) == os.getpid()
            big = bytes(range(256)) * (3 << 12)
            assert group.rpc_sync("1", lambda b: b[::-1], args=(big,)) == big[::-1]
            assert [f.wait() for f in [group.rpc_async("1", pow, args=(i, 2)) for i in range(200)]] == [i * i for i in range(200)]
            error = raised(LookupError, group.rpc_sync, "1", fails, args=("sense",))
            assert error.args == ("no sense",) and "in fails" in str(error.__cause__)
            told = raised(RemoteError, group.rpc_sync, "1", unpicklable)
            assert told.kind == "__main__.Unpicklable" and told.message == "cannot go" and "in unpicklable" in told.trace
            for what in "no text", "no name":
                told = raised(Exception, group.rpc_sync, "1", strange, 30, (what,))
                assert "in strange" in str(told.__cause__), told
            assert "not a member" in str(raised(RuntimeError, group.rpc_sync, "nobody", print))
            late = raised(parley.Error, group.rpc_sync, "1", wait, 0.2)
            assert late.code == "DEADLINE_EXCEEDED" and "'1'" in str(late), late
            for seconds in 0.0001, 0.2:
                assert raised(parley.Error, group.rpc_sync, "1", wait, 0.0001).code == "DEADLINE_EXCEEDED", "short is not none"
                assert raised(parley.Error, group.rpc_remote("1", wait).to_here, seconds).code == "DEADLINE_EXCEEDED"
            under_way = group.rpc_async("1", wait)
            for seconds in 1e7, float("nan"):
                assert "it must be from 0" in str(raised(ValueError, group.rpc_async, "1", int, seconds)), "the calls under way are not touched"
            children.released.set()
            under_way.get()
            group.register("one", lambda: group.registered_sync("two") + 1)
        else:
            group.register("two", lambda: 2)
            kept = group.rpc_remote("0", lambda: [1, 2])
            assert kept.owner_name() == "0" and kept.to_here() == kept.to_here() == [1, 2]
            broken = group.rpc_remote("0", fails, args=("reference",))
            assert "no reference" in str(raised(LookupError, broken.to_here))
            few = [group.rpc_remote("0", int) for _ in range(2)]
            assert [r.to_here() for r in few] == [0, 0] and "keeps 3 values" in str(raised(RuntimeError, group.rpc_remote("0", int).to_here))
            few.clear()

            def has_room():
                try:
                    return group.rpc_remote("0", int).to_here() == 0
                except RuntimeError:
                    return False

            children.until("room for a value that nobody refers to", has_room)
        group.barrier()
        assert group.registered_sync("one") == 3, "a call within a call"
        group.barrier()

    children.released.clear()
    members(address, 2, body, direct=direct)


def gives_never():
    return children.never


class Round:
    """Callers get what the last of them brings."""

    def __init__(self, n):
        self.lock, self.left, self.future = threading.Lock(), n, parley.Future()

    def call(self, x):
        with self.lock:
            self.left -= 1
            mine = self.future.then(lambda f: f.wait() + x)
            if self.left == 0:
                self.future.set_result(x)
        return mine


def passes(group, there):
    """References as arguments, at any depth: to a value of the caller, of the called member, and beyond the call. there: at '1', of a list."""
    here, children.stored = group.reference([]), []
    assert here.local_value() == [] and here.owner_name() == "0"
    group.rpc_sync("1", lambda r: r.rpc_sync().append("from 1"), args=(here,))
    group.rpc_sync("1", lambda deep: deep["refs"][0].rpc_async().append("deep").get(), args=({"refs": [here]},))
    assert here.local_value() == ["from 1", "deep"] == here.to_here()
    assert group.rpc_sync("1", lambda r: (r.owner_name(), r.local_value()), args=(there,)) == ("1", [3, 1, 2])
    assert group.rpc_sync("1", lambda: here.to_here()) == ["from 1", "deep"], "what a function refers to"
    assert here.rpc_sync().index("deep") == 1, "of one's own"
    assert "is at '1', not at '0'" in str(raised(RuntimeError, there.local_value))
    assert "cannot be pickled but as an argument" in str(raised(RuntimeError, group.rpc_sync, "1", lambda r: r, args=(there,)))
    made = group.rpc_remote("1", fails, args=("nothing",))
    assert "no nothing" in str(raised(LookupError, group.rpc_sync, "1", len, args=([made],))), "its failure is the call's"
    n_kept = len(group._kept)
    group.rpc_sync("1", lambda r: children.stored.append(r), args=(here,))
    del here
    group.rpc_sync("1", int)  # lets go of the caller's
    assert group.rpc_sync("1", lambda: children.stored[0].to_here()) == ["from 1", "deep"], "it outlives the call, and the caller's"
    children.stored.clear()

    def is_gone():
        group.rpc_sync("1", lambda: group_of_1(children.called).rpc_sync("0", int))
        return len(group._kept) < n_kept
    children.until("nobody refers to it", is_gone)


def group_of_1(groups_of):
    return groups_of["1"]


def test_futures(address, direct=True):
    """Functions whose results come later: more of them than threads, async ones, failures, references; those that are given up or left;
    methods of a reference's value; threads that only wait are told of."""
    gate, children.never, released, taken = parley.Future(), parley.Future(), threading.Event(), threading.Event()

    async def opens(x):
        return await gate + x

    async def breaks():
        raise LookupError("no sense")

    def fails_later():
        return gate.then(lambda f: {}["no sense"])

    def blocks():
        released.wait()

    def leaves():
        taken.set()
        return parley.Future()

    def run(name, results):
        with World(name, world_size=2, world="futures", address=address, secret=SECRET, direct=direct, rpc_threads=2) as w:
            group = w.create_rpc_group("group", ["0", "1"])
            if name == "1":
                children.called = {"1": group}
                for what in (Round(9).call, opens, breaks, fails_later, blocks, gives_never, leaves, lambda: gate.then(lambda f: gate)):
                    group.register(f"{len(group._services)}", what)
                group.barrier()
                group.barrier()
                group.destroy()  # ends the call of 6
                children.never.set_result("for nobody")
                return
            group.barrier()
            futures = [group.registered_async("0", (i,)) for i in range(9)]
            got = [f.wait() for f in futures]
            assert len({g - i for i, g in enumerate(got)}) == 1, got
            futures = [group.registered_async("1", (i,)) for i in range(20)] + [group.registered_async("3"), group.registered_async("7")]
            made = group.registered_remote("1", (100,))
            assert not any(f.done() for f in futures)
            gate.set_result(5)
            assert [f.wait() for f in futures[:20]] == list(range(5, 25)) and made.to_here() == 105 and futures[21].wait() == 5
            assert "no sense" in str(raised(KeyError, futures[20].wait)) and "no sense" in str(raised(LookupError, group.registered_sync, "2"))
            assert "has its result" in str(raised(RuntimeError, gate.set_result, 6)) and gate.value() == 5
            assert "cannot be pickled" in str(raised(RuntimeError, group.rpc_sync, "1", lambda: gate))
            assert raised(parley.Error, group.rpc_sync, "1", gives_never, 0.1).code == "DEADLINE_EXCEEDED"
            table = group.rpc_remote("1", lambda: [3, 1])
            assert table.rpc_sync().append(2) is None and table.rpc_async().index(1).wait() == 1 and table.remote().copy().to_here() == [3, 1, 2]
            assert "no_such" in str(raised(AttributeError, table.rpc_sync().no_such))
            passes(group, table)
            assert group.rpc_sync("1", len, args=([],)) == 0
            heard = io.StringIO()
            with contextlib.redirect_stderr(heard):
                blocked = [group.registered_async("4") for _ in range(3)]
                children.until("those who run the member are told", lambda: "\n" in heard.getvalue())
            released.set()
            parley.wait_all(blocked)
            assert "the 2 threads of '1'" in heard.getvalue() and "1 more wait" in heard.getvalue() and "rpc_threads" in heard.getvalue(), heard.getvalue()
            left = group.registered_async("6")
            assert taken.wait(PATIENCE)
            group.barrier()
            assert raised(parley.Error, left.wait).code == "CANCELLED"
            results.append("done")

    groups.BUSY_S, few, groups.MAX_KEPT = 0.2, groups.MAX_KEPT, 100
    results = []

    def caught(name):
        try:
            run(name, results)
        except BaseException as e:
            results.append(e)
            released.set()

    threads = [threading.Thread(target=caught, args=(name,), daemon=True) for name in "01"]
    for t in threads:
        t.start()
    for t in threads:
        t.join(PATIENCE)
    assert results == ["done"], results
    groups.BUSY_S, groups.MAX_KEPT = 5.0, few


def test_awaited(_):
    """A result that comes when whoever awaited it has gone, and the loop with them, is no error in the thread that sets it."""
    async def waits(future):
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(future, 0.01)
            raise AssertionError("it came")

    future, heard = parley.Future(), io.StringIO()
    asyncio.run(waits(future))
    with contextlib.redirect_stderr(heard):
        future.set_result(1)
    assert (future.value(), heard.getvalue()) == (1, "")


def test_unwanted(address):
    """A reference that is dropped before its value is made, or whose call failed or never came: the member keeps neither value nor number."""
    def body(group, world):
        if world.name == "0":
            compute = group._compute

            def told(who, how, *what):
                try:
                    return compute(who, how, *what)
                finally:
                    if how == "release":
                        children.dropped.set()

            group._compute = told
        group.barrier()
        if world.name == "1":
            reference = group.rpc_remote("0", lambda: children.dropped.wait(children.PATIENCE))
            made = reference._made
            del reference
            group.rpc_sync("0", int)  # before it goes what is not wanted any more
            assert made.get(PATIENCE) is None
            for _ in range(3):
                broken = group.rpc_remote("0", fails, args=("reference",))
                raised(LookupError, broken.to_here)
                del broken
            group._released.put(("0", bytes(8)))  # of a call that never came
            group.rpc_sync("0", int)
        group.barrier()
        children.until("nothing to be kept", lambda: not (group._kept or group._making or group._unwanted))

    children.dropped = threading.Event()
    members(address, 2, body)


def test_time(address):
    """What happens in the group meanwhile gives a barrier no more time."""
    def body(group, world):
        if world.name == "0":
            try:
                return raised(parley.Error, group.barrier, 0.3).code
            finally:
                over.set()
        end = time.monotonic() + PATIENCE
        while not over.is_set() and time.monotonic() < end:
            group.pair("key", 1)
            group.unpair("key")
        assert over.is_set(), "the barrier has no end"
        return None

    over = threading.Event()
    assert members(address, 2, body) == ["DEADLINE_EXCEEDED", None]


def test_again(address):
    """A call by the road of a member that came again meanwhile ends alone: those by its new road go on."""
    taken, gone, stalled, again, over, children.back = (threading.Event() for _ in range(6))

    def body(group, world):
        if world.name == "1":
            assert taken.wait(PATIENCE)
            group.destroy()
            assert stalled.wait(PATIENCE)
            with world.create_rpc_group("group", ["0", "1"]):
                assert over.wait(PATIENCE)
            return
        late = threading.Thread(target=lambda: ends.append(raised(MemberLost, group.rpc_sync, "1", int)), daemon=True)
        secret_of, end_calls, membership = group._secret_of, group._end_calls, group._membership

        def late_secret(road):
            if threading.current_thread() is late:
                taken.set()
                gone.wait(PATIENCE)
            return secret_of(road)

        def late_end(*what):
            if threading.current_thread() is late:
                stalled.set()
                again.wait(PATIENCE)
            end_calls(*what)

        def until(holds):
            with membership.changed:
                assert membership.changed.wait_for(holds, PATIENCE)

        ends = []
        group._secret_of, group._end_calls = late_secret, late_end
        late.start()
        until(lambda: "@1" not in membership.values)
        gone.set()
        until(lambda: "@1" in membership.values)
        call = group.rpc_async("1", lambda: children.back.wait(children.PATIENCE))
        again.set()
        late.join(PATIENCE)
        children.back.set()
        try:
            assert ends[0].member == "1" and call.get(PATIENCE) is True
        finally:
            over.set()

    members(address, 2, body)


def test_small_room(address, direct=True):
    """--work-bytes 1M: what is too large for a call by way of the daemon goes in pieces in a collective; past the daemon there is no limit."""
    def body(group, world):
        large = np.arange(1_000_000) + world.rank
        assert np.array_equal(group.all_reduce(large), 2 * np.arange(1_000_000) + 1)
        assert [len(x) for x in group.all_gather(b"x" * ((1 << 18) + world.rank))] == [1 << 18, (1 << 18) + 1]
        for size in (1 << 18) - 200, (1 << 18) - 65, (1 << 18) - 40, 3 << 18:
            assert group.broadcast(bytes(size), 1) == bytes(size)
        assert "has the shape (1000000,)" in str(raised(ValueError, group.all_reduce, large if world.rank else 1))
        if direct:
            assert len(group.rpc_sync("1", bytes, args=(1 << 20,))) == 1 << 20
        else:
            assert "the daemon takes at most 262144" in str(raised(ValueError, group.rpc_sync, "1", len, args=(large,)))
            assert "the daemon takes at most 262144" in str(raised(ValueError, group.rpc_sync, "1", bytes, args=(1 << 20,)))
        group.barrier()
        return group.all_reduce(world.rank)

    assert members(address, 2, body, direct=direct) == [1, 1]


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_direct(address):
    """Past the daemon: what is received is the receiver's own, and writable; descriptors go with the calls; large exceptions, many calls
    that nobody reads yet; a caller of another name is not answered."""
    def body(group, world):
        big = np.full(1_000_000, 0.5, np.float32)
        if world.rank == 0:
            group.register("double", double)
            group.barrier()
            group.barrier()
            assert not children.kept_by_0[0].any() and children.kept_by_0[1].sum() == 2000.0, "what was received does not change with the sender's"
            return None
        group.barrier()
        before = descriptors()
        for n in 1_000_000, 8_192, 2_000, 20:
            part = big[:n].copy()
            got = group.registered_sync("double", (part,))
            assert (got == 1).all() and got.flags.writeable and (part == 0.5).all()
            got += 1
            got = group.rpc_async("0", lambda x: x, args=(part,))
            part[:] = 7
            assert (got.get() == 0.5).all(), "it was sent as it was"
        many = [group.rpc_async("0", lambda x, y: y, args=(big[:20_000], i)) for i in range(300)]
        assert [f.get() for f in many] == list(range(300))
        all_kept = [group.registered_sync("double", (big[:20_000],)) for _ in range(100)] + [group.registered_sync("double", (big,)) for _ in range(20)]
        assert all((a == 1).all() for a in all_kept)
        assert descriptors() <= before + 8, "arrays need no descriptors"
        long = raised(ValueError, group.rpc_sync, "0", too_long)
        assert len(long.args[0]) == 400_000
        mine = np.zeros(1_000_000), np.full(4000, 0.5)
        group.rpc_sync("0", keep, args=mine)
        mine[0][:], mine[1][:] = 1, 0
        stranger = direct.Packets(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        stranger._socket.connect(direct.name_of(group._membership.values["@0"]))
        stranger.send(direct.CALL, 1, [b"x" * 100])
        kind, number, said, _ = stranger.receive()
        assert (kind, number) == (direct.ANSWER, 1) and b"not signed" in bytes(said)
        for packet in b"", b"x", direct.HEAD.pack(0, 1, 5, 3) + b"abc", direct.HEAD.pack(0, 1, 0, 1 << 40), direct.HEAD.pack(9, 1, 0, 0):
            odd = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            odd.connect(direct.name_of(group._membership.values["@0"]))
            odd.send(packet)
            odd.shutdown(socket.SHUT_WR)
            while odd.recv(1 << 16):
                pass
            odd.close()
        assert group.rpc_sync("0", lambda: 1) == 1
        del stranger, got, many, all_kept
        group.barrier()
        return None

    children.kept_by_0 = []
    members(address, 2, body)


def double(x):
    return x + x


def keep(*what):
    children.kept_by_0.extend(what)


def too_long():
    raise ValueError("x" * 400_000)


def test_collectives(address, direct=True):
    """Machin's vectors: all_reduce of three ranks is 3, reduce of 5 - rank to 1 is 12; the others; values that do not go together."""
    def body(group, world):
        rank = world.rank
        assert group.all_reduce(rank) == 3 and group.reduce(5 - rank, 1) == (12 if rank == 1 else None)
        assert group.broadcast("it" if rank == 0 else None) == "it" and group.broadcast({"from": rank}, root="2") == {"from": 2}
        assert group.all_gather(f"of {rank}") == ["of 0", "of 1", "of 2"]
        assert group.gather(rank, 1) == ([0, 1, 2] if rank == 1 else None)
        assert group.scatter([[i] * 2 for i in range(3)] if rank == 2 else None, 2) == [rank, rank]
        arrays = np.arange(6, dtype=np.float32).reshape(2, 3) + rank
        for op, wanted in ("sum", 3 * arrays - 3 * rank + 3), ("mean", arrays - rank + 1), ("max", arrays - rank + 2), ("min", arrays - rank):
            assert np.array_equal(group.all_reduce(arrays, op), wanted), op
        assert group.all_reduce(rank + 1, "product") == 6
        odd = raised(ValueError, group.all_reduce, np.zeros(3 if rank == 1 else 2))
        assert "the value of '1' has the shape (3,), but the members before it gave (2,)" in str(odd), odd
        assert "passed 2 values for 3 members" in str(raised(ValueError, group.scatter, [1, 2] if rank == 0 else None))
        if rank == 1:
            assert "op is 'most'" in str(raised(ValueError, group.reduce, 1, 1, "most"))
        return group.all_reduce(TENTH / (rank + 1) ** 7).tobytes()

    first = members(address, 3, body, direct=direct)
    assert first[0] == (TENTH + TENTH / 2 ** 7 + TENTH / 3 ** 7).tobytes() and first == [first[0]] * 3, "in the order of the members, the same bits for all"


def test_messages(address, direct=True):
    """send, recv, isend, irecv: of one and of anybody, by tag, in order, large ones; what is late, not received, refused, given up."""
    def body(group, world):
        rank = world.rank
        if rank == 0:
            group.send(np.arange(3), 1)
            sent = [group.isend(i, "1", tag=7) for i in range(50)]
            assert group.recv("2", tag=1) == ("last", 2) and not any(f.ready() for f in sent)
            group.send("go on", 1, tag=3)
            assert [f.wait() for f in sent] == [None] * 50
            late = raised(parley.Error, group.send, "unwanted", 2, 9, 0.2)
            assert late.code == "DEADLINE_EXCEEDED" and "the member '2'" in str(late), late
        elif rank == 1:
            got, sender = group.recv(0)
            assert sender == 0 and got.tolist() == [0, 1, 2]
            awaited = group.irecv(tag=2)
            group.send("now", 2)
            assert awaited.wait(PATIENCE) == (large, 2) and group.recv(0, tag=3) == ("go on", 0)
            assert [group.recv(tag=7) for _ in range(50)] == [(i, 0) for i in range(50)], "in the order in which they were sent"
        else:
            assert group.recv() == ("now", 1), "of anybody: the sender's rank"
            group.send(large, 1, tag=2)
            group.send("last", 0, tag=1)
            itself = group.isend("to itself", 2)
            assert group.recv(2) == ("to itself", 2) and itself.wait() is None
        group.barrier()
        if rank == 1:
            said = raised(parley.Error, group.recv, 0, timeout=0.1)
            assert said.code == "DEADLINE_EXCEEDED" and "no message from the member '0' of the group 'group' arrived within 0.1 s" in str(said), said
            unwanted = group.irecv(0)
            assert unwanted.cancel() and not unwanted.cancel() and raised(parley.Error, unwanted.get).code == "CANCELLED"
            many = [group.isend(i, 0) for i in range(MAX_UNRECEIVED)]
            full = raised(parley.Error, group.send, "one more", 0)
            assert full.code == "RESOURCE_EXHAUSTED" and "the member '0' has 256 messages" in str(full), full
            group.barrier()
            assert [f.wait(PATIENCE) for f in many] == [None] * MAX_UNRECEIVED
        else:
            if rank == 2:
                children.until("the message that was given up to be gone", lambda: not group._messages._came)
                assert raised(parley.Error, group.recv, 0, 9, 0.1).code == "DEADLINE_EXCEEDED", "one that was given up is not received"
            group.barrier()
            if rank == 0:
                assert [group.recv(1)[0] for _ in range(MAX_UNRECEIVED)] == list(range(MAX_UNRECEIVED))
        assert "'9' is not a member" in str(raised(ValueError, group.send, 1, "9"))
        group.barrier()
        if rank == 2:
            unheard = group.isend("never received", 0)
            assert group.recv(0) == ("it lies there", 0)
            group.barrier()
            assert "'0' has left the group" in str(raised(parley.Error, unheard.get)), "it left and had not received it"
            assert raised(MemberLost, group.recv, 0).member == "0"
            return
        if rank == 0:
            group.send("it lies there", 2)
            children.until("a message that is not received", lambda: group._messages._came)
            group.barrier()
            return
        group.barrier()
        assert raised(MemberLost, group.recv).member in ("0", "2"), "nobody is left"

    large = bytes(range(256)) * (3 << 12)
    members(address, 3, body, direct=direct)


def test_astray(address):
    """Members who are in different collectives are told so, all of them."""
    def body(group, world):
        said = raised(RuntimeError, *(group.broadcast, 1) if world.rank == 1 else (group.all_reduce, 1))
        group.barrier()  # who leaves is gone for the others
        return str(said)

    said = members(address, 3, body)
    assert "'0' is in all_reduce (sum)" in said[1] or "'0' has given up broadcast" in said[1], said
    assert all("broadcast from '0'" in s or "'1' has given up all_reduce" in s for s in said), said


def test_leaving(address, direct=True):
    """A call that was answered is answered, though its member leaves at once; one that comes too late ends."""
    def body(group, world):
        if world.name == "0":
            group.register("last", left.set)
            group.barrier()
            left.wait(PATIENCE)
            group.destroy()
            gone.set()
        else:
            group.barrier()
            late = [group.registered_async("last")] + [group.rpc_async("0", os.getpid) for _ in range(50)]
            ends = []
            for future in late:
                try:
                    ends.append(future.wait(PATIENCE))
                except MemberLost as e:
                    ends.append(e.member)
            assert ends[0] is None and set(ends[1:]) <= {os.getpid(), "0"}, ends
            assert gone.wait(PATIENCE) and raised(MemberLost, group.rpc_sync, "0", os.getpid).member == "0"

    for _ in range(3):
        left, gone = threading.Event(), threading.Event()
        members(address, 2, body, direct=direct)


def test_short_lives(address):
    """Who leaves as soon as all are there has been there for those who are told late."""
    for _ in range(5):
        assert members(address, 4, lambda group, world: group.size()) == [4] * 4


TENTH = np.random.default_rng(1).standard_normal(1000)
MEMBER = """import sys, os
sys.path.insert(0, os.environ["PARLEY_PACKAGE"])
from parley.parallel import World
with World("b", address=sys.argv[1], secret=sys.argv[2]) as world:
    group = world.create_rpc_group("killed", ["a", "b"])
    group.register("pid", os.getpid)
    group.register("block", lambda: __import__("time").sleep(1000))
    group.barrier()
    sys.stdin.read()
"""


def test_killed(address):
    """A member that is killed: a call under way, a barrier, a collective, a later call, its services. It may come again."""
    def child():
        return children.start([sys.executable, "-c", MEMBER, address, SECRET], stdin=subprocess.PIPE)

    with World("a", address=address, secret=SECRET) as world:
        b = child()
        with world.create_rpc_group("killed", ["a", "b"]) as group:
            group.barrier()
            assert group.registered_sync("pid") == b.pid
            under_way = group.registered_async("block")
            at_barrier = [None]
            waits = threading.Thread(target=lambda: at_barrier.__setitem__(0, raised(MemberLost, group.barrier)))
            waits.start()
            b.send_signal(signal.SIGKILL)
            b.wait()
            waits.join()
            for error in at_barrier[0], raised(MemberLost, under_way.get):
                assert error.member == "b" and "'b'" in str(error) and error.code == "ABORTED", error
            assert raised(MemberLost, group.rpc_sync, "b", os.getpid).member == "b"
            assert raised(MemberLost, group.barrier).member == "b"
            raised(KeyError, group.registered_sync, "pid")
        assert "did not join the group" in str(raised(parley.Error, world.create_rpc_group, "killed", ["a", "b"], timeout=0.1))
        b = child()
        with world.create_rpc_group("killed", ["a", "b"]) as group:
            group.barrier()
            assert group.registered_sync("pid") == b.pid
            in_sum = [None]
            waits = threading.Thread(target=lambda: in_sum.__setitem__(0, raised(MemberLost, group.all_reduce, 1)))
            waits.start()
            unreceived, awaited, of_any = group.isend(1, "b"), group.irecv("b"), group.irecv()
            b.send_signal(signal.SIGKILL)
            b.wait()
            waits.join()
            assert in_sum[0].member == "b"
            for end in unreceived, awaited, of_any:
                assert raised(MemberLost, end.get, PATIENCE).member == "b"


STOPPED = """import sys, os
sys.path.insert(0, os.environ["PARLEY_PACKAGE"])
from parley.parallel import World
with World("b", address=sys.argv[1], secret=sys.argv[2], lease=2) as world:
    group = world.create_rpc_group("stopped", ["a", "b"])
    group.barrier()
    try:
        while True:
            group.barrier()
    except BaseException as e:
        print(type(e).__name__, e, flush=True)
"""


ENDS = """import asyncio, multiprocessing, signal, sys, os, threading, time
sys.path.insert(0, os.environ["PARLEY_PACKAGE"])
from parley.parallel import World, group as groups
how, address, secret = sys.argv[1:]
groups.BUSY_S = 0.3  # not 5
orders, go = os.fdopen(os.dup(0)), threading.Event()

def block():
    print("begun", flush=True)
    go.wait()

async def sleep():
    print("begun", flush=True)
    await asyncio.sleep(1000)

def ends(group):
    if "handler" in how:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    group.barrier()
    if "second" in how:
        group.recv("a")
    else:
        orders.readline()
    if "raises" in how:
        raise LookupError("no sense")
    if "exits" in how:
        sys.exit(3)

def program():
    world = World("b", world=how, address=address, secret=secret, rpc_threads=1)
    def group():
        made = world.create_rpc_group("group", ["a", "b"])
        made.register("block", sleep if "async" in how else block)
        return made
    if "with" in how:
        with world, group() as made:
            ends(made)
    else:
        ends(group())

if "fork" in how:
    child = multiprocessing.get_context("fork").Process(target=program)
    child.start()
    child.join()
    sys.exit(child.exitcode)
try:
    program()
except LookupError:
    if "second" in how:  # a thread is free now
        go.set()
        [t.join() for t in threading.enumerate() if t.name.startswith("group-")]
    raise
"""


def test_ends(address):
    """A process that computes a call which does not end ends all the same, says so, and the caller learns of it: without and within `with`, by
    sys.exit, an exception, Ctrl-C, SIGTERM; also a child that multiprocessing forks. A second call is not computed any more, and an async
    one fails. Leaving in order waits, and says for what."""
    left, waits = "ends while it computes 1 call of the group 'group' ('block')", "is to leave and waits for 1 call of the group 'group' ('block')"
    signals = {"SIGINT": signal.SIGINT, "SIGTERM": signal.SIGTERM}
    ways = {"exits": (3, left), "raises": (1, left), "SIGINT": (-signal.SIGINT, left), "SIGTERM by a handler": (7, left), "with exits": (3, left), "with raises": (1, left),
            "with SIGINT": (-signal.SIGINT, left), "with returns, then SIGINT": (-signal.SIGINT, waits), "exits in a fork": (3, left), "returns in a fork": (0, left),
            "exits, async": (3, ""), "with raises, a second call": (1, left.replace("1 call", "2 calls"))}

    def run(how):
        number = next((n for name, n in signals.items() if name in how), None)
        with World("a", world=how, address=address, secret=SECRET) as world:
            b = children.start([sys.executable, "-c", ENDS, how, address, SECRET], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            with world.create_rpc_group("group", ["a", "b"]) as group:
                group.barrier()
                under_way = [group.registered_async("block")]
                assert b.stdout.readline() == "begun\n"
                said = ""
                if "second" in how:
                    under_way.append(group.registered_async("block"))
                    group.send(None, "b")
                elif number is None or "returns" in how:
                    b.stdin.write("\n")
                    b.stdin.flush()
                if "then" in how:
                    said = b.stderr.readline()
                if number is not None:
                    b.send_signal(number)
                printed, more = b.communicate(timeout=PATIENCE)
                said += more
                code, sentence = ways[how]
                assert b.returncode == code and printed == "" and sentence in said and ("no sense" in said) == ("raises" in how), (how, b.returncode, printed, said)
                for call in under_way:
                    error = raised((parley.Error, RemoteError), call.get, PATIENCE)
                    is_lost = isinstance(error, MemberLost) and "async" not in how
                    assert is_lost or "has left the group" in str(error), (how, error)

    with concurrent.futures.ThreadPoolExecutor(len(ways)) as pool:
        list(pool.map(run, ways))


def test_stopped(address):
    """A member that is stopped (SIGSTOP) is lost once its lease is over, not before: a barrier, a sum, a receive and a call name it;
    it is told when it goes on."""
    b = children.start([sys.executable, "-c", STOPPED, address, SECRET], stdout=subprocess.PIPE, text=True)
    with World("a", address=address, secret=SECRET) as world, world.create_rpc_group("stopped", ["a", "b"]) as group:
        group.barrier()
        assert raised(parley.Error, group.recv, "b", timeout=2.5).code == "DEADLINE_EXCEEDED", "one that runs renews its lease"
        stopped_at = time.monotonic()
        b.send_signal(signal.SIGSTOP)
        ends = group.irecv("b"), group.isend(1, "b"), group.rpc_async("b", os.getpid)
        error = raised(MemberLost, lambda: [group.barrier(), group.barrier()])
        assert error.member == "b" and "the member 'b' of the group 'stopped'" in str(error), error
        assert 1.4 < time.monotonic() - stopped_at < 20, time.monotonic() - stopped_at
        for end in ends:
            assert raised(MemberLost, end.get, PATIENCE).member == "b"
        assert raised(MemberLost, group.all_reduce, 1).member == "b"
        b.send_signal(signal.SIGCONT)
        said = b.communicate(timeout=PATIENCE)[0]
        assert "the lease was not renewed for 2000 ms" in said or "no member has this lease" in said, said


class Stranger:
    """A member by raw calls, which knows no secret. answer(task, payload): what it says to a call; None: nothing."""

    def __init__(self, address, group, name, answer=None):
        self.channel = grpc.insecure_channel(address)
        self.registry, self.work = registry_pb2_grpc.RegistryStub(self.channel), work_pb2_grpc.WorkStub(self.channel)
        self.events = self.registry.Join(registry_pb2.RegistryJoinRequest(group=f"world/{group}", member=name))
        self.roads = {}
        self.lease = next(e.lease for e in self.seen() if e.kind == registry_pb2.REGISTRY_EVENT_KIND_SYNCED)
        self.out = queue.SimpleQueue()
        self.out.put(work_pb2.WorkAttachRequest(offer=work_pb2.WorkOffer(functions=[f"group/{name}"], room=1024, at_once=1024, is_private=True)))
        self.orders = self.work.Attach(iter(self.out.get, None))
        next(self.orders)
        self.answer = answer
        threading.Thread(target=self.read, daemon=True).start()
        self.registry.Put(registry_pb2.RegistryPutRequest(lease=self.lease, kind=registry_pb2.REGISTRY_KIND_VALUE, key=f"@{name}", value=f"group/{name}".encode()))

    def seen(self):
        for event in self.events:
            if event.kind == registry_pb2.REGISTRY_EVENT_KIND_PUT:
                self.roads[event.entry.key] = event.entry.value.decode()
            yield event

    def read(self):
        try:
            for response in self.orders:
                for order in response.orders:
                    if self.answer is not None:
                        self.out.put(work_pb2.WorkAttachRequest(answers=[work_pb2.WorkAnswer(task=order.task, payload=self.answer(order.payload))]))
        except grpc.RpcError:
            pass  # its end

    def call(self, member, payloads):
        """The results of calls whose payloads are these."""
        road = self.roads[f"@{member}"]
        return [r for message in self.work.Map(work_pb2.WorkSubmitRequest(tasks=[work_pb2.WorkTask(function=road, tag=i, payload=p)])
                                               for i, p in enumerate(payloads)) for r in message.results]

    def close(self):
        self.out.put(None)
        self.channel.close()


def test_strangers(address):
    """A member that answers garbage, one that answers nothing, one that sends garbage and floods: each is told of, or told, in a
    sentence, and the others' calls go on."""
    ready, done, both = threading.Event(), threading.Event(), threading.Barrier(2)

    def body(group, world):
        if world.name == "0":
            error = raised(parley.Error, group.rpc_sync, "garbage", os.getpid)
            assert error.code == "DATA_LOSS" and "the member 'garbage' of the group 'odd' sent an answer that cannot be read" in str(error), error
            error = raised(parley.Error, group.rpc_sync, "silent", os.getpid, 0.1)
            assert error.code == "DEADLINE_EXCEEDED" and "'silent'" in str(error), error
            error = raised(parley.Error, group.barrier, 0.1)
            assert error.code == "DEADLINE_EXCEEDED" and "reached the barrier within 0.1 s" in str(error), error
            ready.set()
        assert done.wait(PATIENCE)
        for _ in range(20):
            assert group.rpc_sync("1" if world.name == "0" else "0", os.getpid) == os.getpid()
        both.wait(PATIENCE)

    def member(name):
        try:
            with World(name, address=address, secret=SECRET) as world, world.create_rpc_group("odd", ["0", "1", "garbage", "silent"]) as group:
                body(group, world)
        except BaseException as e:
            failed.append(e)
            ready.set()

    failed = []
    threads = [threading.Thread(target=member, args=(name,), daemon=True) for name in "01"]
    for t in threads:
        t.start()
    garbage, silent = Stranger(address, "odd", "garbage", lambda payload: b"x" * len(payload)), Stranger(address, "odd", "silent")
    assert ready.wait(PATIENCE) and not failed, failed
    for event in garbage.seen():
        if {"@0", "@1"} <= garbage.roads.keys():
            break
    flood = [b"", b"c", b"x" * 15, b"x" * 24 + b"f", b"x" * 24 + b"fgarbage!{}", b"x" * 16 + bytes(8) + b"mgarbage!{}", b"x" * 32 + b"c" * 100] * 200
    results = garbage.call("0", flood)
    assert len(results) == len(flood) and all(r.exception.message == "the data is not signed with this secret" for r in results), results[:3]
    done.set()
    for t in threads:
        t.join(PATIENCE)
    assert not failed and not any(t.is_alive() for t in threads), failed
    for stranger in garbage, silent:
        stranger.close()


def test_silent_daemon(_):
    """A daemon that is stopped: a call ends by its own time limit, those without one when the connection is found to be dead."""
    lasting, wire.KEEPALIVE_MS, wire.ACKNOWLEDGE_MS = (wire.KEEPALIVE_MS, wire.ACKNOWLEDGE_MS), 1000, 5000
    grace, groups.GRACE_S = groups.GRACE_S, 0.1
    try:
        with Daemon(PARLEYD) as daemon:
            with World("a", address=daemon.address, secret=SECRET, lease=0, direct=False) as world, world.create_rpc_group("g", ["a"]) as group:
                assert group.rpc_sync("a", int) == 0
                os.kill(daemon.process.pid, signal.SIGSTOP)
                try:
                    assert raised(parley.Error, group.rpc_sync, "a", int, 0.1).code == "DEADLINE_EXCEEDED"
                    assert raised(parley.Error, group.rpc_async("a", int, 0).get, PATIENCE).code == "UNAVAILABLE"
                    assert raised(parley.Error, group.barrier, PATIENCE).code == "UNAVAILABLE"
                finally:
                    os.kill(daemon.process.pid, signal.SIGCONT)
    finally:
        wire.KEEPALIVE_MS, wire.ACKNOWLEDGE_MS = lasting
        groups.GRACE_S = grace


def test_broken_road(address):
    """If the stream of calls breaks, the membership ends with it, and what is called later raises the stream's error."""
    with World("a", address=address, secret=SECRET) as world, world.create_rpc_group("g", ["a"]) as group:
        group._road._ended(parley.Error("UNAVAILABLE", "the stream of calls broke"))
        with group._membership.changed:
            assert group._membership.changed.wait_for(lambda: group._membership.error, PATIENCE)
        assert "the stream of calls broke" in str(raised(parley.Error, group.barrier, PATIENCE))


def test_names(address):
    """Names that the daemon or the package cannot take are refused in a sentence, and what was there stays."""
    assert "lease_ms is 50, it must be 0 or 100 to 86400000" in str(raised(parley.Error, World, "a", address=address, secret=SECRET, lease=0.05))
    assert "needs a secret" in str(raised(ValueError, World, "a", address=address))
    assert "member has 200 bytes" in str(raised(parley.Error, World, "m" * 200, address=address, secret=SECRET))
    with World("a", 0, address=address, secret=SECRET) as world:
        assert "has a member 'a'" in str(raised(parley.Error, World, "a", address=address, secret=SECRET))
        assert "'@0' is held by the member 'a'" in str(raised(parley.Error, World, "b", 0, address=address, secret=SECRET))
        assert "group has 206 bytes" in str(raised(parley.Error, world.create_rpc_group, "g" * 200, ["a"]))
        said = str(raised(parley.Error, World, "b", 1, 3, address=address, secret=SECRET, world="alone", timeout=0.1))
        assert "1 of 3 processes have come, 'b'; missing are the ranks 0, 2" in said, said
        assert "1 of 2 processes have come, 'b'" in str(raised(parley.Error, World, "b", world_size=2, address=address, secret=SECRET, timeout=0.1,
                                                               world="alone"))
        assert "not in Group" in str(raised(RuntimeError, world.create_rpc_group, "g", ["b"]))
        assert "twice" in str(raised(ValueError, world.create_rpc_group, "g", ["a", "a"]))
        with world.create_rpc_group("g", ["a"]) as group:
            assert "already exists" in str(raised(RuntimeError, world.create_rpc_group, "g", ["a"]))
            assert "key has 129 bytes" in str(raised(parley.Error, group.pair, "k" * 129, 1))
            assert "begins with '@'" in str(raised(ValueError, group.register, "@a", print))
            for _ in range(2):
                raised(UnicodeEncodeError, group.pair, "of a file \udcff", 1)  # and not KeyError: it was not taken
            group.pair("k" * 128, 1)
            assert group.get_paired("k" * 128).to_here() == 1 and not group.is_paired("k" * 129)
            assert "is not a member" in str(raised(ValueError, group.broadcast, 1, "b"))
        with world.create_rpc_group("g", ["a"]) as group:
            assert group.all_reduce(2) == 2, "a group that was destroyed can be created again"
        assert is_world_initialized() and (get_cur_rank(), get_cur_name()) == (0, "a")
        world.stop()  # and once more at the end of the block
        assert not is_world_initialized() and "in no world" in str(raised(RuntimeError, get_cur_rank))


def test_assigner(address):
    """Machin's four vectors: two of 10 MB apart or together, as the weights say; two of 600 MB where 700 may be used; too large."""
    class Tensor:
        def nelement(self):
            return 2_500_000

        def element_size(self):
            return 4

    class Model:  # as torch's
        device = None

        def parameters(self):
            return [Tensor()]

        def buffers(self):
            return []

        def to(self, device):
            self.device = device

    def assigned(models, capacity, **more):
        devices = [{"name": f"cuda:{i}", "bytes": capacity} for i in range(2)]
        return ModelAssigner(models, {(0, 1): 1}, devices, program=PARLEY, **more)

    two = [Model(), Model()]
    apart = assigned(two, 700e6, connection_weight=1, complexity_match_weight=10)
    assert sorted(apart.assignment) == ["cuda:0", "cuda:1"] == sorted(m.device for m in two), apart.placement
    assert [d["bytes"] for d in apart.placement["devices"]] == [20e6] * 2 and apart.placement["exact"]
    together = assigned([10e6] * 2, 700e6, connection_weight=10, complexity_match_weight=1)
    assert len(set(together.assignment)) == 1, together.placement
    assert sorted(assigned([600e6] * 2, 700e6, connection_weight=10, complexity_match_weight=1).assignment) == ["cuda:0", "cuda:1"]
    assert "the models do not fit: they need 1600000000 bytes, and the devices have 1400000000 (2 devices)" in str(raised(RuntimeError, assigned, [800e6] * 2, 700e6))
    assert "connections[0].between does not name two of them" in str(raised(RuntimeError, assigned, [1e6], 700e6))
    here = ModelAssigner([1e6, 1e6], {}, ["cpu"], move_models=False, program=PARLEY)
    assert here.assignment == ["cpu"] * 2 and here.placement["devices"][0]["free"] > 0
    assert "has no device 'cuda:99'" in str(raised(ValueError, ModelAssigner, [1e6], {}, ["cuda:99"], program=PARLEY))
    assert raised(parley.Error, ModelAssigner, [1e6], {}, ["cpu"], program="/nowhere/parley").code == "NOT_FOUND"


def test_examples(address):
    """Machin's examples against this package print what its documentation prints."""
    def lines(name, argument):
        done = children.run([sys.executable, os.path.join(EXAMPLES, name + ".py"), argument], capture_output=True, text=True,
                            env={**os.environ, "PYTHONPATH": os.environ["PARLEY_PACKAGE"]})
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert lines("dist_rpc", address) == [f"Process 1: service 'count' and 'get_count' correctly {what}" for what in ("registered.", "called", "unregistered.")]
    said = lines("dist_oserver", address)
    assert said[6:] == ["Ordered server check passed"] * 2, said
    for number in 1, 2, 3:
        assert sorted(s[2:] for s in said[:6] if f"push {number}" in s) == [f"push {number} failed", f"push {number} success"], said
    said = sorted(lines("batch_parameter_server", address))
    assert [s.split(":")[0] for s in said] == [f"trainer{i}" for i in range(1, 6)] and len({s.split("weights is ")[1] for s in said}) == 1, said
    said = lines("batch_cartpole", address)
    assert [s.split(", ")[2] for s in said] == ["50 batches of 3", "100 batches of 3"], said
    assert lines("dist_coll", address) == ["[1. 1. 1. 1. 1.]"] * 3
    assert lines("assign", PARLEY) in (["Assignment: ['cuda:0', 'cuda:0', 'cpu', 'cpu']"], ["Assignment: ['cpu', 'cpu', 'cuda:0', 'cuda:0']"])


def timed(test, *args):
    start = time.monotonic()
    test(*args)
    print(f"{test.__name__}: {time.monotonic() - start:.1f} s", flush=True)


def main():
    with Daemon(PARLEYD) as daemon:
        for test in test_direct, test_services, test_calls, test_futures, test_awaited, test_unwanted, test_time, test_again, test_collectives, test_messages, test_astray, test_leaving, test_short_lives, test_killed, test_ends, test_stopped, test_strangers, test_silent_daemon, test_broken_road, test_names, test_assigner, test_examples:
            timed(test, daemon.address)
        for test in test_calls, test_futures, test_collectives, test_messages, test_leaving:
            timed(test, daemon.address, False)
    with Daemon(PARLEYD, "--work-bytes", "1M") as daemon:
        timed(test_small_room, daemon.address)
        timed(test_small_room, daemon.address, False)


if __name__ == "__main__":
    main()
