"""Groups of processes. The processes of a program form a world and have names in it. Within a group they call each other's functions and
services, share named values, wait at barriers and run collectives on small values. The names are those of Machin.

    >>> import itertools
    >>> from parley.parallel import World
    >>> with World("0", rank=0, world_size=1, address=ADDRESS, secret="secret") as world:
    ...     group = world.create_rpc_group("group", ["0"])  # the names of its members
    ...     group.register("count", itertools.count().__next__)  # in one process
    ...     [group.registered_sync("count") for _ in range(3)]  # in any
    [0, 1, 2]

A process is a member as long as it is registered at the daemon (parley.v1.Registry). The registration ends with the process, or when the
process has not renewed its lease in time; nobody then waits for the member any more. Calls are tasks (parley.v1.Work), so members need no
port. Pickled data is signed with the world's secret."""
from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import multiprocessing
import multiprocessing.util
import queue
import secrets
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from parley import wire
from parley.client import Link
from parley.exits import BEFORE_ALL, EXIT_S
from parley.parallel.collectives import Collectives, View, check_op
from parley.parallel.futures import Future, later
from parley.parallel.membership import SERVICE, VALUE, MemberLost, Membership
from parley.parallel.messages import Messages, Receive, Refuse, Reply, message
from parley.parallel.peer import ID_BYTES, Peer, peer_of
from parley.parallel.pickle import pack, unpack, values_at
from parley.parallel.road import Road
from parley.parallel.tasks import WorkerLost, milliseconds
from parley.parallel.threads import Threads
from parley.parallel.worker import SIGNATURE_BYTES, failure, opened, signed_parts
from parley.wire import Error

INTERRUPTED_S = 10  # by when a daemon has learned that a call was interrupted
MAX_KEPT = 4096  # how many values a member keeps for references
TOO_MANY = 0xffffffff  # more members than a barrier can have
BUSY_S = 5.0  # how long all threads may compute, or a member that leaves wait for them, before those who run the member are told
GRACE_S = 1.0  # how long after its deadline a call waits for the daemon's answer
_HEAD_BYTES = SIGNATURE_BYTES + 1 + ID_BYTES

_world: World | None = None


class Called(Future):
    """The future result of a call."""

    def __init__(self, changed: threading.Condition | None = None, end: float | None = None, late: Error | None = None) -> None:
        """end, late: if the daemon does not report a failure first, the call fails at the time `end` with the error `late`."""
        super().__init__()
        self._changed, self._end, self._late = changed, end, late

    def get(self, timeout: float | None = None) -> Any:
        left = None if self._end is None else max(self._end - time.monotonic(), 0.0)
        if self._late is not None and left is not None and (timeout is None or left < timeout) and not self._done.wait(left):
            raise self._late
        return super().get(timeout)

    def _settle(self, value: Any, error: BaseException | None) -> None:
        super()._settle(value, error)
        if self._changed is not None:
            with self._changed:
                self._changed.notify_all()


class _On:
    """The methods of a reference's value, as those of torch's rpc_sync(), rpc_async() and remote()."""

    def __init__(self, call: Callable[[str, tuple[Any, ...], dict[str, Any]], Any]) -> None:
        self._call = call

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self._call(name, args, kwargs)


def _called(what: Sequence[Any]) -> str:
    """What an incoming call calls, for people."""
    if what[0] == "service":
        return f"'{what[1]}'"
    name = what[2] if what[0] == "on" else getattr(what[1], "__qualname__", type(what[1]).__name__)
    return str(name)


# Of this thread: while the arguments of a call are packed, the group and the member that gets them; while they are unpacked, the group.
_passing = threading.local()


class Reference:
    """A reference to a value in another process, which keeps the value until the reference is gone. As an argument of a call in its group it
    becomes a reference of the called member's own, at any depth of the arguments."""

    def __init__(self, group: Group, member: str, what: tuple[Any, ...], made: Future | None = None) -> None:
        self._group, self._member, self._what, self._made = group, member, what, made

    def owner_name(self) -> str:
        return self._member

    def to_here(self, timeout: float = -1) -> Any:
        """Returns a copy of the value's present state. timeout: seconds, including the time to make the value; 0: no limit; negative: the
        world's rpc_timeout."""
        end = time.monotonic() + timeout
        if self._made is not None:
            try:
                self._made.get(timeout if timeout > 0 else None)
            except multiprocessing.TimeoutError:
                raise self._group._late(self._member) from None
        return self._group._call(self._member, self._what, max(end - time.monotonic(), 0.001) if timeout > 0 else timeout).get()

    def rpc_sync(self, timeout: float = -1) -> Any:
        """Of what this returns, the method m(…) calls the value's method m where the value is, and returns its result."""
        return _On(lambda *what: self._begin(what, timeout).get())

    def rpc_async(self, timeout: float = -1) -> Any:
        """Like rpc_sync; m(…) returns a future. If the value is being made still, m(…) waits until it is there."""
        return _On(lambda *what: self._begin(what, timeout))

    def remote(self, timeout: float = -1) -> Any:
        """Like rpc_async; m(…) returns a reference to the result, which stays where the value is."""
        return _On(lambda *what: self._group._remote(self._member, ("on", self._made_here(), *what), timeout))

    def _made_here(self) -> tuple[Any, ...]:
        if self._made is not None:
            self._made.get()
        return self._what

    def _begin(self, what: tuple[Any, ...], timeout: float) -> Future:
        return self._group._call(self._member, ("on", self._made_here(), *what), timeout)

    def local_value(self) -> Any:
        """Returns the value itself, without a copy, where it is this member's own."""
        if self._member != self._group._me:
            raise RuntimeError(f"the value is at '{self._member}', not at '{self._group._me}': to_here() copies it")
        return self._group._compute(self._member, *self._made_here())

    def __reduce__(self) -> Any:
        group, receiver = getattr(_passing, "to", (None, ""))
        if group is not self._group:
            raise RuntimeError("a reference cannot be pickled but as an argument of a call in its group")
        return _passed, (self._member, group._lend(self._member, self._made_here(), receiver))


def _passed(member: str, what: tuple[Any, ...]) -> Reference:
    """The reference that came as an argument."""
    group: Group | None = getattr(_passing, "here", None)
    if group is None:
        raise RuntimeError("a reference is valid only as an argument of a call in its group")
    return group._refer(member, what)


class Group:
    """A group of processes that call each other. World.create_rpc_group creates it."""

    def __init__(self, world: World, name: str, members: Sequence[str], timeout: float | None) -> None:
        self._is_direct = world.direct
        self.group_name, self.group_members = name, list(members)
        self._me, self._link, self._seconds, self._master = world.name, world._link, world.rpc_timeout, world._master
        self._world: World | None = world
        self._patience = world.timeout
        self._values, self._services = dict[str, Any](), dict[str, Callable[..., Any]]()
        self._kept = dict[bytes, tuple[str, Any]]()  # by the reference's id, which its holder chose
        # Calls under way whose values are to be kept: by task the reference's id; and the tasks whose reference is gone already.
        self._making, self._unwanted = dict[int, bytes](), set[int]()
        self._released: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._peers = dict[bytes, Peer]()  # by road; guarded by the lock
        self._one = threading.Lock()  # held during a barrier or a collective: they run one at a time
        self._barrier_view: View = ()
        self._epoch = 0
        self._handler = threading.local()
        self._messages = Messages(self)
        self._n_threads = world.rpc_threads
        self._threads = Threads(self._n_threads, f"group-{name}")
        self._membership = Membership(self._link, f"{world.world}/{name}", self._me, world.lease, self._end_calls)
        self._collectives = Collectives(self)
        self._open = dict[int, bool]()  # fetches and messages that were not answered yet
        self._later = dict[int, bytes]()  # guarded by the lock: calls whose functions have returned a future, with their numbers
        self._takes_later = True  # guarded by the lock
        self._n_served = 0  # guarded by the lock: calls that threads have computed
        self._serving = dict[int, tuple[bytes, str]]()  # guarded by the lock: those that they compute, or will; their numbers and what they call, once known
        self._watch: threading.Timer | None = None  # guarded by the lock: looks whether the threads do nothing but wait
        function = f"group/{secrets.token_hex(16)}"
        self._own_secret = self._secret_of(function.encode())
        self._road: Any = None
        try:
            self._road = Road(self._link, function, self._take, self._recall, self._membership.drop, self._is_direct)
            self._membership.put(VALUE, f"@{self._me}", function.encode())
            with self._membership.changed:
                all_there = self._membership.changed.wait_for(lambda: self._membership.error or not self._missing(self._membership.said), timeout)
                self._membership.is_begun = bool(all_there)
            if self._membership.error is not None:
                raise self._membership.error
            if not all_there:
                missing = ", ".join(f"'{m}'" for m in self._missing(self._membership.said))
                raise Error("DEADLINE_EXCEEDED", f"{missing} did not join the group '{name}' within {timeout:g} s")
        except BaseException:
            self._membership.drop()
            if self._road is not None:
                self._road.close()
            raise
        # Not atexit's: the children that multiprocessing forks do not come there.
        self._at_exit = multiprocessing.util.Finalize(None, self._end_calls_at_exit, exitpriority=BEFORE_ALL)

    # --- the members ---

    def _missing(self, roads: Mapping[str, Any]) -> list[str]:
        return [m for m in self.group_members if f"@{m}" not in roads]

    def _lost(self, member: str) -> MemberLost:
        how = "was lost" if member in self._membership.lost else "is gone"
        return MemberLost(member, f"the member '{member}' of the group '{self.group_name}' {how}")

    def _view(self) -> View:
        """Returns the members and their roads. Raises MemberLost if a member is missing."""
        with self._membership.changed:
            if self._membership.error is not None:
                raise self._membership.error
            for m in self._missing(self._membership.values):
                raise self._lost(m)
            return tuple((m, self._membership.values[f"@{m}"]) for m in self.group_members)

    def _gone(self, view: View) -> set[str]:
        """Returns the members of the view that are gone or have rejoined since."""
        return {m for m, road in view if self._membership.values.get(f"@{m}") != road}

    def _check(self, view: View) -> None:
        """Raises if a member of the view was lost: a collective cannot succeed without it. A member that left in order has already done
        its part. Needs `changed`."""
        if self._membership.error is not None:
            raise self._membership.error
        for m in sorted(self._gone(view) & self._membership.lost):
            raise self._lost(m)

    def size(self) -> int:
        return len(self.group_members)

    def is_member(self, target: str | None = None) -> bool:
        return (self._me if target is None else target) in self.group_members

    def get_group_name(self) -> str:
        return self.group_name

    def get_group_members(self) -> list[str]:
        return list(self.group_members)

    def get_cur_name(self) -> str:
        return self._me

    # --- outgoing calls ---

    def _secret_of(self, road: bytes) -> bytes:
        return hashlib.blake2b(road, key=self._master, digest_size=32).digest()

    def _failure(self, member: str, error: BaseException) -> BaseException:
        """Converts the daemon's error for a call that was not completed to one that names the member."""
        if isinstance(error, WorkerLost) or isinstance(error, Error) and (error.code in ("CANCELLED", "NOT_FOUND") or error.reason == "WORKER_LOST"):
            return self._lost(member)
        if isinstance(error, Error) and error.code == "DEADLINE_EXCEEDED":
            return self._late(member, error.reason)
        return error

    def _late(self, member: str, reason: str = "") -> Error:
        return Error("DEADLINE_EXCEEDED", f"the member '{member}' of the group '{self.group_name}' did not answer in time; if all its threads "
                     "may wait, raise World(rpc_threads=) there, or let what it calls be async or return a Future", reason)

    def _submit(self, member: str, kind: bytes, head: Sequence[bytes], packed: Sequence[Any], seconds: float, is_raw: bool = False) -> Future:
        """head: what comes before the pickled data."""
        self._link.channel.check()
        milliseconds(seconds)
        end = time.monotonic() + seconds + GRACE_S if seconds > 0 else None
        future = Called(self._membership.changed if is_raw else None, end, self._late(member))
        tag = secrets.randbits(8 * ID_BYTES)
        with self._membership.changed:
            if self._membership.error is not None:
                raise self._membership.error
            road = self._membership.values.get(f"@{member}")
        if road is None:
            future._settle(None, self._lost(member))
            return future
        at = values_at(packed)
        parts, values = [kind, tag.to_bytes(ID_BYTES, "little"), *head, *packed[:at]], list(packed[at:])
        with self._lock:
            peer = self._peers.get(road)
            if peer is None:
                peer = self._peers[road] = peer_of(self, member, road, self._is_direct)
        size = SIGNATURE_BYTES + sum(map(len, parts)) + sum(map(len, values))
        if peer.is_limited and size > self._road.max_bytes:
            raise ValueError(f"the call has {size} bytes, but the daemon takes at most {self._road.max_bytes}")
        peer.begin(tag, parts, values, future, seconds, is_raw)
        with self._membership.changed:
            is_there = self._membership.values.get(f"@{member}") == road
        if not is_there:
            self._end_calls(member, road)
        return future

    def _end_calls(self, member: str, road: bytes | None = None) -> None:
        """Ends the calls to a member that is gone. road: only the calls on this road, because the member may have rejoined. An
        answer that has already arrived is delivered."""
        with self._lock:
            for peer in [p for p in self._peers.values() if p.member == member and road in (None, p.road)]:
                del self._peers[peer.road]
                peer.end()
        self._messages.look()

    def _call(self, member: str, what: tuple[Any, ...], timeout: float = -1, keep: bytes = b"") -> Future:
        """keep: the reference's id if the member is to keep the value; b"" if it is to return it."""
        if not self.is_member(member):
            raise RuntimeError("RPC target is not a member of group.")
        while True:
            try:
                holder, number = self._released.get_nowait()
                if holder == self._me:
                    self._release(number)
                    continue
                self._submit(holder, b"c", (), pack((self._me, "release", number), False)[0], 0)
            except queue.Empty:
                break
            except Error:
                pass  # the member is gone, and with it the value that it kept
        outer, _passing.to = getattr(_passing, "to", (None, "")), (self, member)
        try:
            packed = pack((self._me, *what), False)[0]
        finally:
            _passing.to = outer
        return self._submit(member, b"k" if keep else b"c", [keep], packed, self._seconds if timeout < 0 else timeout)

    def _remote(self, member: str, what: tuple[Any, ...], timeout: float) -> Reference:
        number = secrets.token_bytes(ID_BYTES)
        made = self._call(member, what, timeout, number)
        return self._refer(member, ("kept", number), made)

    def _refer(self, member: str, what: tuple[Any, ...], made: Future | None = None) -> Reference:
        reference = Reference(self, member, what, made)
        if what[0] == "kept":
            weakref.finalize(reference, self._released.put, (member, what[1])).atexit = False
        return reference

    def reference(self, value: Any) -> Reference:
        """Returns a reference to a value of this member, to pass to others, as torch's RRef(value)."""
        self._check_room()
        number = secrets.token_bytes(ID_BYTES)
        with self._lock:
            self._kept[number] = self._me, value
        return self._refer(self._me, ("kept", number))

    def _lend(self, holder: str, what: tuple[Any, ...], receiver: str) -> tuple[Any, ...]:
        """Has the holder keep the value for a reference of the receiver's own; returns what that reference is to."""
        if what[0] != "kept":
            return what
        number = secrets.token_bytes(ID_BYTES)
        order = ("lend", what[1], number, receiver)
        if holder == self._me:
            self._compute(self._me, *order)
        else:
            self._call(holder, order).get()
        return "kept", number

    def _await(self, future: Future, view: View) -> Any:
        """Waits for the future. Raises MemberLost if a member of the view is lost meanwhile."""
        with self._membership.changed:
            while not future.ready():
                self._check(view)
                self._membership.changed.wait()
        return future.get()

    def rpc_sync(self, to: str, func: Callable[..., Any], timeout: float = -1, args: Sequence[Any] = (),
                 kwargs: Mapping[str, Any] | None = None) -> Any:
        """Calls func at the member `to` and returns its result. func may be a lambda or a local function. An exception of func is raised
        here; its cause is the traceback from the other process. timeout: seconds; 0: no limit; negative: the world's rpc_timeout."""
        return self.rpc_async(to, func, timeout, args, kwargs).get()

    def rpc_async(self, to: str, func: Callable[..., Any], timeout: float = -1, args: Sequence[Any] = (),
                  kwargs: Mapping[str, Any] | None = None) -> Future:
        return self._call(to, ("call", func, tuple(args), dict(kwargs or {})), timeout)

    def rpc_remote(self, to: str, func: Callable[..., Any], timeout: float = -1, args: Sequence[Any] = (),
                   kwargs: Mapping[str, Any] | None = None) -> Reference:
        """Calls func at the member `to`. The result stays there; this returns a reference to it."""
        return self._remote(to, ("call", func, tuple(args), dict(kwargs or {})), timeout)

    remote = rpc_remote

    # --- values and services ---

    def _key(self, key: str) -> str:
        if key.startswith("@"):
            raise ValueError(f"the key '{key}' begins with '@', which is reserved for the group's own keys")
        return key

    def _announce(self, kind: Any, table: dict[str, Any], key: str, what: Any, taken: str) -> None:
        with self._lock:
            if key in table:
                raise KeyError(taken)
            self._key(key)
        try:
            with self._lock:
                table[key] = what  # before other members can see the key
            self._membership.put(kind, key)
        except BaseException as e:
            if not isinstance(e, Exception):  # interrupted: the daemon may have the key
                with contextlib.suppress(Error):
                    self._membership.delete(kind, key)
            with self._lock:
                table.pop(key, None)
            if isinstance(e, Error) and e.code == "ALREADY_EXISTS":
                raise KeyError(f"{taken}: {e.message}") from None
            raise

    def _delete(self, kind: Any, key: str) -> None:
        """Deletes an entry of this member's at the daemon, if there is one."""
        try:
            self._membership.delete(kind, key)
        except Error as e:
            if e.code != "NOT_FOUND":
                raise

    def _withdraw(self, kind: Any, table: dict[str, Any], key: str, unknown: str) -> None:
        if key not in table:
            raise KeyError(unknown)

        def withdraw() -> None:
            self._delete(kind, key)
            with self._lock:
                table.pop(key, None)

        wire.wholly(withdraw)

    def _holder(self, kind: Any, key: str, noun: str) -> str:
        holder = self._membership.holder(kind, self._key(key))
        if holder is None:
            raise KeyError(f"{noun} [{key}] not found on Group [{self.group_name}]")
        return holder

    def pair(self, key: str, value: Any) -> None:
        """Offers a value to the group under a name; the value stays in this process. Raises KeyError if the name is taken."""
        self._announce(VALUE, self._values, key, value, f'Value with key "{key}" already paired to Group [{self.group_name}]')

    def unpair(self, key: str) -> None:
        """Withdraws a value. Raises KeyError if this process has not paired the name."""
        self._withdraw(VALUE, self._values, key, f'Value with key "{key}" not paired to Group [{self.group_name}] on Process[{self._me}]')

    def is_paired(self, key: str) -> bool:
        return self._membership.holder(VALUE, self._key(key)) is not None

    def get_paired(self, key: str) -> Reference:
        """Returns a reference to the value with this name. Raises KeyError if there is none."""
        return Reference(self, self._holder(VALUE, key, "Value with key"), ("value", key))

    def register(self, key: str, service: Callable[..., Any]) -> None:
        """Offers a function to the group as a service with this name. Raises KeyError if the name is taken."""
        self._announce(SERVICE, self._services, key, service,
                       f'Service with key "{key}" already registered in Group [{self.group_name}]')

    def deregister(self, key: str) -> None:
        """Withdraws a service. Raises KeyError if this process has not registered the name."""
        self._withdraw(SERVICE, self._services, key,
                       f'Service with key "{key}" not registered in Group [{self.group_name}] on Process[{self._me}]')

    def is_registered(self, key: str) -> bool:
        return self._membership.holder(SERVICE, self._key(key)) is not None

    def registered_sync(self, key: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Calls a service of the group and returns its result. Raises KeyError if there is no such service."""
        return self.registered_async(key, args, kwargs).get()

    def registered_async(self, key: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Future:
        return self._call(self._holder(SERVICE, key, "Service"), ("service", key, tuple(args), dict(kwargs or {})))

    def registered_remote(self, key: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Reference:
        return self._remote(self._holder(SERVICE, key, "Service"), ("service", key, tuple(args), dict(kwargs or {})), -1)

    # --- incoming calls ---

    def _take(self, task: int, payload: bytes | memoryview) -> None:
        """Takes an incoming call. Runs on the road's thread, or on that of a direct connection."""
        kind = payload[SIGNATURE_BYTES:SIGNATURE_BYTES + 1]
        if kind == b"f":
            most = self._road.max_bytes if self._road.is_limited(task) else sys.maxsize
            self._take_open(task, payload, lambda body, _, reply, __: self._collectives.fetch(bytes(body), reply, most))
            return
        if kind == b"m":
            self._take_open(task, payload, lambda body, values, reply, refuse: self._messages.take(task, body, values, reply, refuse))
            return
        if kind == b"k":  # registered here, before a release that follows it is handled
            with self._lock:
                self._making[task] = bytes(payload[_HEAD_BYTES:_HEAD_BYTES + ID_BYTES])
        with self._lock:
            self._serving[task] = b"", ""
            self._look_soon()
        try:
            self._threads.submit(functools.partial(self._serve, task, payload))
        except RuntimeError as e:  # the group was destroyed meanwhile
            with self._lock:
                del self._serving[task]
            self._fail(task, b"", e)

    def _look_soon(self) -> None:
        """Needs the lock."""
        if len(self._serving) > self._n_threads and self._watch is None:
            self._watch = threading.Timer(BUSY_S, self._look, (self._n_served,))
            self._watch.daemon = True
            self._watch.start()

    def _look(self, n_served: int) -> None:
        """Says that calls wait while all threads have computed the same ones for BUSY_S, and what to do."""
        with self._lock:
            self._watch = None
            is_stuck, n_waiting = n_served == self._n_served and self._world is not None, len(self._serving) - self._n_threads
            if not is_stuck and self._world is not None:
                self._look_soon()
        if is_stuck and n_waiting > 0:
            print(f"parley: the {self._n_threads} threads of '{self._me}' in the group '{self.group_name}' have ended no call for {BUSY_S:g} s, and {n_waiting} more "
                  "wait: raise World(rpc_threads=), or let functions that wait be async or return a Future", file=sys.stderr, flush=True)

    def _take_open(self, task: int, payload: bytes | memoryview, take: Callable[[memoryview, memoryview, Reply, Refuse], None]) -> None:
        """Takes a call that is answered later, without a waiting thread. reply returns False if the caller does not wait any more."""
        def reply(parts: Sequence[bytes], values: Sequence[Any] = ()) -> bool:
            is_open = False

            def answer() -> None:
                nonlocal is_open
                is_open = self._open.pop(task, False) or is_open
                if is_open:
                    self._road.answer(task, signed_parts(self._own_secret, b"answer", [number, *parts], values))

            wire.wholly(answer)
            return is_open

        def refuse(e: BaseException) -> None:
            if self._open.pop(task, False):
                self._fail(task, number, e)

        self._open[task] = True
        number = b""
        try:
            body, values = opened(self._own_secret, b"call", payload)
            number = bytes(body[1:1 + ID_BYTES])
            take(body[1 + ID_BYTES:], values, reply, refuse)
        except Exception as e:
            refuse(e)

    def _recall(self, task: int) -> None:
        """Drops a call whose caller does not wait any more. A function that is already running is not stopped. Runs on the road's
        thread."""
        with self._lock:
            is_later = self._later.pop(task, None) is not None
        if is_later:
            self._road.answer(task, [])
        if self._open.pop(task, False):
            self._messages.recall(task)
            self._road.answer(task, [])

    def _fail(self, task: int, number: bytes, e: BaseException) -> None:
        parts, said = failure(e)
        payload = signed_parts(self._own_secret, b"answer", [number, *parts]) if parts and number else []
        self._road.answer(task, payload, said)

    def _serve(self, task: int, payload: bytes | memoryview) -> None:
        number = b""
        self._handler.is_one = True
        try:
            body, values = opened(self._own_secret, b"call", payload)
            number, call = bytes(body[1:1 + ID_BYTES]), body[1 + ID_BYTES:]
            is_kept = bytes(body[:1]) == b"k"
            _passing.here = self
            try:
                who, *what = unpack(call[ID_BYTES:] if is_kept else call, values=values)
            finally:
                _passing.here = None
            with self._lock:
                self._serving[task] = number, _called(what)
            if is_kept:
                self._check_room()
            value, keeper = self._compute(who, *what), who if is_kept else None
            self._finish(task, number, value, keeper)
        except BaseException as e:  # SystemExit, too: it fails only this call
            self._fail(task, number, e)
            self._forget(task)
        finally:
            with self._lock:
                self._n_served += 1
                self._serving.pop(task, None)

    def _forget(self, task: int) -> None:
        with self._lock:
            self._making.pop(task, None)
            self._unwanted.discard(task)

    def _finish(self, task: int, number: bytes, value: Any, keeper: str | None) -> None:
        """Answers a call with its value, or has it answered when that is there. keeper: the member whose reference is to be to the value."""
        future = later(value)
        if future is not None:
            with self._lock:
                is_taken = self._takes_later
                if is_taken:
                    self._later[task] = number
            if not is_taken:
                raise self._left()
            future.add_done_callback(lambda done: self._go_on(task, number, done, keeper))
            return
        if keeper is not None:
            with self._lock:
                if task not in self._unwanted:
                    self._kept[self._making[task]] = keeper, value
            value = None
        packed = pack(value, False)[0]
        at = values_at(packed)
        answer = signed_parts(self._own_secret, b"answer", [number, *packed[:at]], packed[at:])
        if self._road.is_limited(task) and (size := sum(map(len, answer))) > self._road.max_bytes:
            raise ValueError(f"the result has {size} bytes, but the daemon takes at most {self._road.max_bytes}")
        self._road.answer(task, answer)
        self._forget(task)

    def _go_on(self, task: int, number: bytes, done: Future, keeper: str | None) -> None:
        """Answers a call whose future has its result; on the thread that has set it."""
        with self._lock:
            if self._later.pop(task, None) is None:
                return  # its caller does not wait any more, or this member has left
        try:
            self._finish(task, number, done.get(0), keeper)
        except BaseException as e:
            self._fail(task, number, e)
            self._forget(task)

    def _left(self) -> Error:
        return Error("CANCELLED", f"the member '{self._me}' has left the group '{self.group_name}' before the result of the call was there")

    def _compute(self, who: str, how: str, *what: Any) -> Any:
        if how == "kept":
            with self._lock:
                if what[0] not in self._kept:
                    raise KeyError(f"Process [{self._me}] does not keep this value any more")
                return self._kept[what[0]][1]
        if how == "release":
            self._release(*what)
            return None
        if how == "lend":
            value = self._compute(who, "kept", what[0])
            self._check_room()
            with self._lock:
                self._kept[what[1]] = what[2], value
            return None
        if how == "on":
            return getattr(self._compute(who, *what[0]), what[1])(*what[2], **what[3])
        table = self._services if how == "service" else self._values
        if how == "call":
            function, args, kwargs = what
            return function(*args, **kwargs)
        with self._lock:
            if what[0] not in table:
                raise KeyError(f"{how} [{what[0]}] not found on Group [{self.group_name}], Process [{self._me}]")
            found = table[what[0]]
        return found(*what[1], **what[2]) if how == "service" else found

    def _check_room(self) -> None:
        """Raises if no more values can be kept."""
        there = self._membership.members
        with self._lock:
            for gone in [n for n, (m, _) in self._kept.items() if m not in there]:
                del self._kept[gone]
            if len(self._kept) >= MAX_KEPT:
                raise RuntimeError(f"the member '{self._me}' keeps {MAX_KEPT} values for references already, which is the maximum: drop some references")

    def _release(self, number: bytes) -> None:
        """Drops a kept value. If its call is still running, the value will not be kept; if its call failed, there is nothing to drop."""
        with self._lock:
            if self._kept.pop(number, None) is None:
                self._unwanted.update(task for task, n in self._making.items() if n == number)

    # --- barriers and collectives ---

    def barrier(self, timeout: float | None = None) -> None:
        """Waits until all members have called barrier. Raises MemberLost if a member is gone or is lost while the others wait. timeout:
        seconds (0: no limit; None: the world's)."""
        timeout = (self._patience if timeout is None else timeout) or None
        began = time.monotonic()
        end = None if timeout is None else began + timeout
        with self._one:
            view = self._view()
            if view != self._barrier_view:
                self._barrier_view, self._epoch = view, 0
            name = hashlib.blake2b(repr(view).encode(), digest_size=16).hexdigest()
            while (error := self._wait_at(name, view, timeout, end)) is not None:
                if error.code == "ALREADY_EXISTS" and time.monotonic() < min(began + INTERRUPTED_S, end or math.inf):
                    time.sleep(0.01)  # an interrupted call of this member waits there until the daemon learns of its end, and nobody tells
                elif error.code != "ABORTED":  # ABORTED: an event will tell which member is lost, or the lost one is not in this view
                    raise error
            self._epoch += 1

    def _wait_at(self, barrier: str, view: View, timeout: float | None, end: float | None) -> Error | None:
        call = self._membership.barrier(barrier, self._epoch + 1, self.size())
        try:
            return self._wait_for(call, barrier, view, timeout, end)
        except BaseException:
            call.cancel()
            raise

    def _wait_for(self, call: Any, barrier: str, view: View, timeout: float | None, end: float | None) -> Error | None:
        with self._membership.changed:
            while not call.done():
                if self._membership.error is not None:
                    raise self._membership.error
                if self._gone(view):
                    break
                left = None if end is None else end - time.monotonic()
                if left is None or left > 0:
                    self._membership.changed.wait(left)
                else:
                    raise Error("DEADLINE_EXCEEDED", f"not all members of the group '{self.group_name}' reached the barrier within {timeout:g} s")
        if not call.done():
            # The member that is gone may have passed this barrier before. A call with too many members does not wait: it succeeds if the
            # barrier was passed, and is refused otherwise.
            call.cancel()
            if self._membership.barrier(barrier, self._epoch + 1, TOO_MANY).exception() is not None:
                raise self._lost(min(self._gone(view)))
            return None
        return None if call.exception() is None else wire.error_of(call)

    def _root(self, root: str | int) -> str:
        name = self.group_members[root] if isinstance(root, int) else root
        if name not in self.group_members:
            raise ValueError(f"'{name}' is not a member of the group '{self.group_name}'")
        return name

    def broadcast(self, value: Any = None, root: str | int = 0) -> Any:
        """Returns root's value at every member. root: a member's name or its index in group_members."""
        name = self._root(root)
        with self._one:
            return self._collectives.run(f"broadcast from '{name}'", lambda: self._collectives.broadcast(name, value))

    def scatter(self, values: Sequence[Any] | None = None, root: str | int = 0) -> Any:
        """Returns to each member one of root's values, in the order of the members."""
        name = self._root(root)
        with self._one:
            return self._collectives.run(f"scatter from '{name}'", lambda: self._collectives.scatter(name, values))

    def gather(self, value: Any, root: str | int = 0) -> list[Any] | None:
        """Returns the values of all members at root, in the order of the members; None at the others."""
        name = self._root(root)
        with self._one:
            got: list[Any] | None = self._collectives.run(f"gather to '{name}'", lambda: self._collectives.gather(name, value))
            return got

    def all_gather(self, value: Any) -> list[Any]:
        """Returns the values of all members at every member, in the order of the members."""
        leader = self.group_members[0]
        with self._one:
            got: list[Any] = self._collectives.run("all_gather", lambda: self._collectives.all_of(
                leader, lambda: self._collectives.gather(leader, value)))
            return got

    def reduce(self, value: Any, root: str | int = 0, op: str = "sum") -> Any:
        """Combines the values of all members at root; returns None at the others. op: "sum", "product", "min", "max" or "mean". The order
        is that of the members, so the result is bit-identical each time. Values are numbers or arrays of one shape."""
        name = self._root(root)
        check_op(op)
        with self._one:
            return self._collectives.run(f"reduce ({op}) to '{name}'", lambda: self._collectives.reduce(name, value, op))

    def all_reduce(self, value: Any, op: str = "sum") -> Any:
        """Like reduce, but returns the result at every member."""
        leader = self.group_members[0]
        check_op(op)
        with self._one:
            return self._collectives.run(f"all_reduce ({op})", lambda: self._collectives.all_of(
                leader, lambda: self._collectives.reduce(leader, value, op)))

    # --- messages from one member to another ---

    def send(self, value: Any, dst: str | int, tag: int = 0, timeout: float = -1) -> None:
        """Sends a message and waits until dst has received it. dst: a member's name or its index in group_members. tag: recv must use the
        same tag. timeout: seconds; 0: no limit; negative: the world's rpc_timeout. After a time-out the message may still have been
        received at the last moment. Fails with RESOURCE_EXHAUSTED if dst has too many messages that it has not received yet. Messages
        from one member with one tag are received in the order in which they were sent."""
        self.isend(value, dst, tag, timeout).get()

    def isend(self, value: Any, dst: str | int, tag: int = 0, timeout: float = -1) -> Future:
        """Like send, but returns a future at once."""
        return self._submit(self._root(dst), b"m", message(self._me, tag), pack(value, False)[0], self._seconds if timeout < 0 else timeout)

    def recv(self, src: str | int | None = None, tag: int = 0, timeout: float = -1) -> tuple[Any, int]:
        """Waits for the next message from src (None: from any member) with this tag. Returns the value and the sender's index in
        group_members. Raises MemberLost if src is gone; with src None, if any member is lost or all others are gone."""
        return self._messages.receive_within(None if src is None else self._root(src), tag, self._seconds if timeout < 0 else timeout)

    def irecv(self, src: str | int | None = None, tag: int = 0) -> Receive:
        """Like recv, but returns a Receive at once."""
        return self._messages.receive(None if src is None else self._root(src), tag)

    # --- the end ---

    def destroy(self) -> None:
        """Answers the calls that have arrived, then leaves the group. If they take long, it says on the standard error what it waits for.
        A group of the same name may be created again."""
        self._leave(None)

    def _leave(self, patience: float | None) -> None:
        """patience: after so many seconds the calls that threads compute still fail. None: never."""
        world, self._world = self._world, None
        if world is None or not self._link.channel.is_here():
            return
        self._at_exit.cancel()
        world.groups.pop(self.group_name, None)
        self._fail_later()
        try:
            self._collectives.forget(f"'{self._me}' has left the group", True)
            self._messages.end()
            self._road.close()
            if not getattr(self._handler, "is_one", False):
                self._answer_all(patience)  # the daemon must have its answers before the other members see that it left
            self._membership.leave()
        except BaseException:
            self._threads.end(True)
            self._membership.drop()  # interrupted: the others see this member as lost
            raise
        finally:
            self._threads.end()
        with self._lock:
            peers = list(self._peers.values())
        for peer in peers:
            peer.close()

    def _fail_later(self) -> None:
        """Fails the calls whose functions have returned a future, and those that will."""
        with self._lock:
            self._takes_later = False
            open_calls, self._later = self._later, {}
            if self._watch is not None:
                self._watch.cancel()
        for task, number in open_calls.items():
            self._fail(task, number, self._left())

    def _answer_all(self, patience: float | None) -> None:
        """Waits until all calls that have come are answered. Says so if that takes long. With a patience that is over, those that no thread
        has begun are not computed."""
        if self._road.join(BUSY_S if patience is None else patience):
            return
        if patience is not None:
            self._threads.end(True)
        with self._lock:
            left = dict(self._serving)
        names = ", ".join(sorted({name for _, name in left.values() if name}))
        calls = f"{len(left)} call{'s' * (len(left) > 1)} of the group '{self.group_name}'" + (f" ({names})" if names else "")
        if patience is None:
            print(f"parley: '{self._me}' is to leave and waits for {calls if left else f'the daemon at {self._link.address}'}: Ctrl-C ends it without", file=sys.stderr, flush=True)
            self._road.join()
        elif left:
            print(f"parley: '{self._me}' ends while it computes {calls}: those who called are told that it has left", file=sys.stderr, flush=True)
            for task, (number, _) in left.items():
                self._fail(task, number, self._left())
            self._road.join(patience)

    def _end_calls_at_exit(self) -> None:
        """The process ends, and has not left the group: the others see it as lost."""
        if self._link.channel.is_here():
            end = time.monotonic() + EXIT_S
            self._fail_later()
            self._road.close()
            self._answer_all(EXIT_S)
            self._threads.end()
            self._threads.join(max(end - time.monotonic(), 0.0))  # one that comes back from native code later may abort the process

    def __enter__(self) -> Group:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._leave(None if kind is None else EXIT_S)

    def __reduce__(self) -> Any:
        raise RuntimeError("Group is not picklable, create it per process!")


RpcGroup = Group


class World:
    """The processes of a program. name: this process's name. rank: this process's rank. world_size: how many processes to wait for.
    rpc_timeout: seconds for a call. timeout: how many seconds at most to wait for the other processes here, in create_rpc_group and at a
    barrier (0: no limit); torch's groups have the same default. rpc_threads: how many calls a group runs concurrently in this process.
    secret: a secret that these processes share and other clients of the daemon do not know; by default the key. world: the world's name,
    if a daemon has several worlds. lease: seconds, at least 0.1; the other processes see this one as lost when it has not run for that long, because it is
    stopped or something holds its interpreter lock. lease=0: this process is lost when its connection ends, which for a stopped process
    takes 80 s. direct: calls between processes of one machine and one user do not go through the daemon, and arrays in them lie in shared
    memory; False: all calls go through the daemon."""

    def __init__(self, name: str, rank: int = -1, world_size: int | None = None, rpc_timeout: float = 60, rpc_threads: int = 8, *,
                 address: str = wire.DEFAULT_ADDRESS, key: str | None = None, tls: wire.Tls = None, secret: str | bytes | None = None,
                 world: str = "world", lease: float = 30, timeout: float = 1800, direct: bool = True) -> None:
        global _world
        secret = secret or key
        if not secret:
            raise ValueError("a world without a key needs a secret: without one, any client of the daemon could make its processes unpickle any data")
        self.name, self.rank, self.world_size, self.world = name, rank, world_size, world
        self.rpc_timeout, self.rpc_threads, self.lease, self.groups = rpc_timeout, rpc_threads, lease, dict[str, Group]()
        milliseconds(rpc_timeout, "rpc_timeout")
        milliseconds(timeout, "timeout")
        self.timeout, self.direct = timeout, direct
        self._master = hashlib.blake2b(secret.encode() if isinstance(secret, str) else secret, digest_size=32, person=b"parley world").digest()
        self._link = Link(address, key, tls, 30)
        self._n_collective = dict[tuple[int, ...], int]()
        self._is_stopped = False
        self._membership = Membership(self._link, world, name, lease)
        try:
            if rank >= 0:
                self._membership.put(VALUE, f"@{rank}", name.encode())
            with self._membership.changed:
                is_whole = self._membership.changed.wait_for(self._is_whole, timeout or None)
                if self._membership.error is not None:
                    raise self._membership.error
                if not is_whole:
                    raise self._incomplete()
                self._membership.is_begun = True
                self._ranks = {int(key[1:]): said.decode() for key, (_, said) in self._membership.said.items()}
        except BaseException:
            self.stop()
            raise
        _world = self

    def _is_whole(self) -> bool:
        m = self._membership
        return m.error is not None or len(m.came) >= (self.world_size or 1) and (self.rank < 0 or len(m.said) >= (self.world_size or 1))

    def _incomplete(self) -> Error:
        m = self._membership
        missing = "" if self.rank < 0 else "; missing are the ranks " + ", ".join(str(r) for r in range(self.world_size or 1) if f"@{r}" not in m.said)
        came = ", ".join(f"'{name}'" for name in sorted(m.came))
        return Error("DEADLINE_EXCEEDED", f"the world '{self.world}' is not complete after {self.timeout:g} s: {len(m.came)} of {self.world_size or 1} "
                     f"processes have come, {came}{missing}")

    def get_members(self) -> list[str]:
        """Returns the names of all processes that are in the world now."""
        with self._membership.changed:
            return sorted(self._membership.members)

    def get_ranks(self) -> list[int]:
        """Returns the ranks of all processes that have one, as they were when this process entered the world."""
        return sorted(self._ranks)

    def get_rpc_group(self, group_name: str) -> Group | None:
        """Returns the group with this name that this process has created, or None."""
        return self.groups.get(group_name)

    def create_rpc_group(self, group_name: str, members: Sequence[str], timeout: float | None = None) -> Group:
        """Creates a group and returns when all its members have called this. timeout: seconds (0: no limit; None: the world's)."""
        if self.name not in members:
            raise RuntimeError(f"Creator Process [{self.name}] not in Group [{group_name}]")
        if len(set(members)) != len(members):
            raise ValueError(f"members of the group '{group_name}' has a name twice, each name must be there only once")
        if group_name in self.groups:
            raise RuntimeError(f"Group {group_name} already exists!")
        seconds = self.timeout if timeout is None else timeout
        group = self.groups[group_name] = Group(self, group_name, members, seconds or None)
        return group

    def create_collective_group(self, ranks: Sequence[int]) -> Group:
        """Creates a group of the processes with these ranks, in the order of the ranks. Only these processes may call this."""
        some = tuple(sorted(ranks))
        if self.rank not in some:
            raise RuntimeError(f"this process has the rank {self.rank}, but the ranks of the group are {list(some)}: only its members may create it")
        unknown = [r for r in some if r not in self._ranks]
        if unknown:
            raise ValueError(f"the world has no process with the rank {unknown[0]}")
        members = [self._ranks[r] for r in some]
        n = self._n_collective[some] = self._n_collective.get(some, 0) + 1
        name = hashlib.blake2b(repr(some).encode(), digest_size=8).hexdigest()
        return self.create_rpc_group(f"ranks/{name}/{n}", members)

    def stop(self) -> None:
        """Leaves all groups and the world. A second call does nothing."""
        self._stop(None)

    def _stop(self, patience: float | None) -> None:
        if self._is_stopped or not self._link.channel.is_here():
            return
        self._is_stopped = True
        try:
            for group in list(self.groups.values()):
                group._leave(patience)
            self._membership.leave()
        finally:
            self._link.channel.close()  # which ends what an interruption has left

    def __enter__(self) -> World:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._stop(None if kind is None else EXIT_S)

    def __reduce__(self) -> Any:
        raise RuntimeError("World is not picklable, create it per process!")


def get_world() -> World | None:
    """Returns the world that this process has created last, or None."""
    return _world


def is_world_initialized() -> bool:
    """Returns whether this process is in a world."""
    return _world is not None and not _world._is_stopped


def _present() -> World:
    if _world is None or _world._is_stopped:
        raise RuntimeError("this process is in no world: create a World first")
    return _world


def get_cur_rank() -> int:
    """Returns this process's rank in its world. Raises RuntimeError if it is in no world."""
    return _present().rank


def get_cur_name() -> str:
    """Returns this process's name in its world. Raises RuntimeError if it is in no world."""
    return _present().name
