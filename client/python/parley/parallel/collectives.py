"""Broadcast, gather, reduce and their like within a group, through its leader: for what is small. What is given up lies with its
member until those that it is for have fetched it, so nothing stays behind in the daemon, and nobody runs ahead of the others."""
from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from parley.parallel.membership import MemberLost
from parley.parallel.messages import Reply
from parley.parallel.pickle import pack, unpack
from parley.wire import Error

if TYPE_CHECKING:
    from parley.parallel.group import Group

MAX_BYTES = 16 << 20
HEAD_BYTES = 64  # at most, what an answer has beside the value
AHEAD = 4  # values that root fetches at once
View = tuple[tuple[str, bytes], ...]  # the members with their roads: one that comes again makes another one

_REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + b, "product": lambda a, b: a * b, "min": lambda a, b: _numpy().minimum(a, b),
    "max": lambda a, b: _numpy().maximum(a, b)}


def check_op(op: str) -> None:
    if op != "mean" and op not in _REDUCTIONS:
        raise ValueError(f"op is {op!r}, it may be {', '.join([*_REDUCTIONS, 'mean'])}")


def _numpy() -> Any:
    import numpy

    return numpy


class _Offer:
    """What others may fetch; all is under the membership's `changed`."""

    def __init__(self, at: dict[str, Any], data: dict[str, bytes]) -> None:
        self.at, self.data = at, data  # of each that has not fetched it


class Collectives:
    def __init__(self, group: Group) -> None:
        self._group, self._changed = group, group._membership.changed
        self._view: View = ()
        self._number = 0  # of the collective, counted within the view
        # Under `changed`:
        self._at = dict[str, Any]()  # the collective that this member is in, or was in last
        self._is_in = False
        self._offer: _Offer | None = None
        self._waiting = dict[str, tuple[dict[str, Any], Reply]]()  # those who fetch what is not there yet
        self._astray = dict[str, str]()  # those who are elsewhere, and where
        self._is_over = False

    # --- who fetches; on the road's thread ---

    def fetch(self, body: bytes, reply: Reply) -> None:
        at = json.loads(body)
        who = at.pop("who")
        with self._changed:
            late = self._waiting.pop(who, None)
            if self._is_over:
                reply(_refusal(f"'{self._group._me}' has left the group"))
            elif not self._serve(who, at, reply):
                self._waiting[who] = at, reply
        if late is not None:
            late[1](_refusal("it fetched anew"))

    def forget(self, reason: str, is_over: bool = False) -> None:
        """Those who wait are told why there is nothing."""
        with self._changed:
            waiting, self._waiting, self._is_over = self._waiting, {}, is_over
        for _, reply in waiting.values():
            reply(_refusal(reason))

    def _serve(self, who: str, at: dict[str, Any], reply: Reply) -> bool:
        """Whether there is an answer."""
        here = self._at
        if at["view"] == here.get("view") and at["number"] <= here["number"]:
            if at["number"] < here["number"] or not self._is_in:
                reply(_refusal(f"'{self._group._me}' has given up {at['what']}"))
                return True
            if at["what"] != here["what"]:
                self._astray[who] = f"'{who}' is in {at['what']}, '{self._group._me}' in {here['what']}"
                reply(_refusal(self._astray[who]))
                self._changed.notify_all()
                return True
        if self._offer is not None and self._offer.at == at and who in self._offer.data:
            reply(b"v" + self._offer.data.pop(who))
            self._changed.notify_all()
            return True
        return False

    # --- the steps of all of them ---

    def _begin(self, what: str) -> None:
        view = self._group._view()
        if view != self._view:
            self._view, self._number = view, 0
        self._number += 1
        name = hashlib.blake2b(repr(view).encode(), digest_size=16).hexdigest()
        with self._changed:
            self._is_in = True
            self._at, self._astray = {"view": name, "number": self._number, "what": what}, {}
            self._look()

    def _packed(self, value: Any, whose: str) -> bytes:
        data = b"".join(pack(value, False)[0])
        most = min(MAX_BYTES, self._group._road.max_bytes - HEAD_BYTES)
        if len(data) > most:
            raise ValueError(f"{whose} has {len(data)} bytes, a collective of the daemon takes {most}: use NCCL, Gloo or MPI where "
                             "bandwidth matters")
        return data

    def _look(self) -> None:
        for who, (at, reply) in list(self._waiting.items()):
            if self._serve(who, at, reply):
                del self._waiting[who]

    def _give(self, step: str, data: dict[str, bytes]) -> None:
        """Returns when all have fetched what is theirs."""
        gone: MemberLost | None = None
        with self._changed:
            offer = self._offer = _Offer({**self._at, "step": step}, data)
            self._look()
            end = None if self._group._seconds == 0 else time.monotonic() + self._group._seconds
            try:
                while due := offer.data.keys() - self._astray.keys():
                    self._group._check(self._view)
                    for who in due & self._group._gone(self._view):
                        gone = self._group._lost(who)
                        del offer.data[who]
                    left = None if end is None else end - time.monotonic()
                    if left is not None and left <= 0:
                        raise Error("DEADLINE_EXCEEDED", f"'{next(iter(due))}' did not come to {self._at['what']}")
                    if due <= offer.data.keys():
                        self._changed.wait(left)
            finally:
                self._offer = None
            if gone is not None:
                raise gone
            if self._astray:
                raise RuntimeError(next(iter(self._astray.values())))

    def _fetch(self, member: str, step: str) -> Any:
        body = json.dumps({**self._at, "step": step, "who": self._group._me}).encode()
        return self._group._submit(member, b"f", body, self._group._seconds, is_raw=True)

    def _take(self, fetched: Any) -> Any:
        data = self._group._await(fetched, self._view)
        if data[:1] == b"v":
            return unpack(memoryview(data)[1:])
        raise RuntimeError(data[1:].decode())

    def _up(self, root: str, value: Any, each: Callable[[str, Any], None]) -> None:
        """Gives the value to root, where `each` gets all of them in the order of the members."""
        if root != self._group._me:
            try:
                data = self._packed((None, value), f"what '{self._group._me}' gives")
            except ValueError as e:  # root tells the others
                data = self._packed((e, None), "")
            self._give("up", {root: data})
            return
        members = self._group.group_members
        fetched = {m: self._fetch(m, "up") for m in members[:AHEAD] if m != root}
        failed: Exception | None = None
        for i, m in enumerate(members):
            said: Exception | None = None
            theirs: Any = value
            try:
                if i + AHEAD < len(members) and members[i + AHEAD] != root:
                    fetched[members[i + AHEAD]] = self._fetch(members[i + AHEAD], "up")
                if m != root:
                    said, theirs = self._take(fetched.pop(m))
                if said is None and failed is None:
                    each(m, theirs)
            except Exception as e:  # the others are told, once theirs were fetched
                said = e
            failed = failed or said
        if failed is not None:
            raise failed

    def _down(self, root: str, values: Callable[[], dict[str, Any] | Any], is_each: bool = False) -> Any:
        """What root has for each member, or for all."""
        if root != self._group._me:
            said, value = self._take(self._fetch(root, "down"))
            if said is not None:
                raise said
            return value
        others = [m for m in self._group.group_members if m != root]
        failed: Exception | None = None
        mine: Any = None
        try:
            made = values()
            mine = made[root] if is_each else made
            whole = b"" if is_each else self._packed((None, made), "the result")
            data = {m: self._packed((None, made[m]), f"what '{m}' is to get") if is_each else whole for m in others}
        except Exception as e:
            failed, data = e, dict.fromkeys(others, self._packed((_told(e), None), ""))
        self._give("down", {m: d for m, d in data.items() if failed is None or m not in self._group._gone(self._view)})
        if failed is not None:
            raise failed
        return mine

    def run(self, what: str, body: Callable[[], Any]) -> Any:
        try:
            self._begin(what)
            return body()
        finally:
            with self._changed:
                self._is_in = False

    # --- the collectives ---

    def gather(self, root: str, value: Any) -> list[Any] | None:
        got = list[Any]()
        self._up(root, value, lambda _, v: got.append(v))
        return got if root == self._group._me else None

    def reduce(self, root: str, value: Any, op: str) -> Any:
        """In the order of the members, so that the bits are the same each time."""
        f, got = _REDUCTIONS["sum" if op == "mean" else op], list[Any]()

        def each(m: str, v: Any) -> None:
            shape = getattr(v, "shape", ())
            if got and getattr(got[0], "shape", ()) != shape:
                raise ValueError(f"the value of '{m}' has another shape than those before it: {tuple(shape)}, not {tuple(getattr(got[0], 'shape', ()))}")
            got[:] = [v if not got else f(got[0], v)]

        self._up(root, value, each)
        if root != self._group._me:
            return None
        return got[0] / self._group.size() if op == "mean" else got[0]

    def all_of(self, root: str, up: Callable[[], Any]) -> Any:
        """What up makes at root, for all; a failure, too."""
        if root != self._group._me:
            up()
        return self._down(root, up)

    def broadcast(self, root: str, value: Any) -> Any:
        return self._down(root, lambda: value)

    def scatter(self, root: str, values: Sequence[Any] | None) -> Any:
        members = self._group.group_members

        def each() -> dict[str, Any]:
            if values is None or len(values) != len(members):
                raise ValueError(f"'{root}' has {'no' if values is None else len(values)} values for {len(members)} members")
            return dict(zip(members, values, strict=True))

        return self._down(root, each, True)


def _told(e: Exception) -> Exception:
    """As others may unpickle it."""
    return e if type(e) in (ValueError, RuntimeError, TypeError, MemberLost) else RuntimeError(str(e))


def _refusal(text: str) -> bytes:
    return b"e" + text.encode()
