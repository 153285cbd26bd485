"""Broadcast, gather, reduce and similar collectives within a group. A member keeps the data that it offers until the receivers have fetched
it, in pieces where the daemon carries it and it is large. So nothing stays in the daemon, and no member runs ahead of the others."""
from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from parley.parallel.membership import MemberLost
from parley.parallel.messages import Reply
from parley.parallel.pickle import pack, unpack, values_at
from parley.wire import Error

if TYPE_CHECKING:
    from parley.parallel.group import Group

PIECE_BYTES = 16 << 20  # what goes by way of the daemon at once
HEAD_BYTES = 64  # upper bound of what an answer has besides the value
AHEAD = 4  # how many values root fetches concurrently
Packed = tuple[list[Any], list[Any]]  # what is signed, and the bytes of arrays
View = tuple[tuple[str, bytes], ...]  # the members with their roads; a member that rejoins has a new road, so the view is a new one

_REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + b, "product": lambda a, b: a * b, "min": lambda a, b: _numpy().minimum(a, b),
    "max": lambda a, b: _numpy().maximum(a, b)}


def check_op(op: str) -> None:
    if op != "mean" and op not in _REDUCTIONS:
        raise ValueError(f"op is {op!r}, it must be one of {', '.join([*_REDUCTIONS, 'mean'])}")


def _numpy() -> Any:
    import numpy

    return numpy


class _Offer:
    """Data that other members may fetch. All fields are guarded by the membership's `changed`."""

    def __init__(self, at: dict[str, Any], data: dict[str, Packed]) -> None:
        self.at, self.data = at, data  # data: by member, for the members that have not fetched all of it yet
        self.joined = dict[int, bytes]()  # data that goes in pieces, by the identity of its parts
        self.served_at = time.monotonic()  # when it was offered, or a piece of it was fetched last

    def piece(self, who: str, offset: int, most: int) -> Packed:
        """Returns the member's data, or at most so many bytes of it from this offset on, behind the number of all."""
        parts, values = self.data[who]
        size = sum(map(len, parts)) + sum(map(len, values))
        self.served_at = time.monotonic()
        if size <= most:
            del self.data[who]
            return [b"v", *parts], values
        if id(parts) not in self.joined:
            self.joined[id(parts)] = b"".join([*parts, *values])
        joined = self.joined[id(parts)]
        if offset + most >= size:
            del self.data[who]
        return [b"p", size.to_bytes(8, "little"), joined[offset:offset + most]], []


class Collectives:
    def __init__(self, group: Group) -> None:
        self._group, self._changed = group, group._membership.changed
        self._view: View = ()
        self._number = 0  # the number of the collective within the view
        # Guarded by `changed`:
        self._at = dict[str, Any]()  # the collective in which this member is, or the last one in which it was
        self._is_in = False
        self._offer: _Offer | None = None
        self._waiting = dict[str, tuple[dict[str, Any], Reply, int]]()  # members whose fetches wait for data that is not offered yet
        self._astray = dict[str, str]()  # members that are in another collective, and the error text for each
        self._is_over = False

    # --- fetches by other members; on the road's thread ---

    def fetch(self, body: bytes, reply: Reply, most: int) -> None:
        """most: bytes that reply takes."""
        at = json.loads(body)
        who = at.pop("who")
        with self._changed:
            late = self._waiting.pop(who, None)
            if self._is_over:
                reply(*_refusal(f"'{self._group._me}' has left the group"))
            elif not self._serve(who, at, reply, most):
                self._waiting[who] = at, reply, most
        if late is not None:
            late[1](*_refusal("the member has sent this fetch again"))

    def forget(self, reason: str, is_over: bool = False) -> None:
        """Refuses all waiting fetches with this reason."""
        with self._changed:
            waiting, self._waiting, self._is_over = self._waiting, {}, is_over
        for _, reply, _ in waiting.values():
            reply(*_refusal(reason))

    def _serve(self, who: str, at: dict[str, Any], reply: Reply, most: int) -> bool:
        """Answers or refuses a fetch if that is possible now; returns whether it did."""
        here = self._at
        if at["view"] == here.get("view") and at["number"] <= here["number"]:
            if at["number"] < here["number"] or not self._is_in:
                reply(*_refusal(f"'{self._group._me}' has given up {at['what']}"))
                return True
            if at["what"] != here["what"]:
                self._astray[who] = f"'{who}' is in {at['what']}, but '{self._group._me}' is in {here['what']}: all members must call the same collective"
                reply(*_refusal(self._astray[who]))
                self._changed.notify_all()
                return True
        if at["view"] == here.get("view") and self._offer is not None and who in self._offer.data and at["number"] > here["number"]:
            self._astray[who] = f"'{who}' has given up {here['what']}"  # it is in a later one, without what is offered here
            self._changed.notify_all()
        if self._offer is not None and self._offer.at == {**at, "offset": 0} and who in self._offer.data:
            reply(*self._offer.piece(who, at["offset"], min(PIECE_BYTES, most - HEAD_BYTES)))
            self._changed.notify_all()
            return True
        return False

    # --- the steps that all collectives use ---

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

    @staticmethod
    def _packed(value: Any) -> Packed:
        data = pack(value, False)[0]
        at = values_at(data)
        return data[:at], data[at:]

    def _look(self) -> None:
        for who, (at, reply, most) in list(self._waiting.items()):
            if self._serve(who, at, reply, most):
                del self._waiting[who]

    def _give(self, step: str, data: dict[str, Packed]) -> None:
        """Offers each member its data and returns when all of them have fetched it."""
        gone: MemberLost | None = None
        with self._changed:
            offer = self._offer = _Offer({**self._at, "step": step, "offset": 0}, data)
            self._look()
            seconds = self._group._seconds
            try:
                while due := offer.data.keys() - self._astray.keys():
                    self._group._check(self._view)
                    for who in due & self._group._gone(self._view):
                        gone = self._group._lost(who)
                        del offer.data[who]
                    left = None if seconds == 0 else offer.served_at + seconds - time.monotonic()
                    if left is not None and left <= 0:
                        raise Error("DEADLINE_EXCEEDED", f"'{next(iter(due))}' did not take part in {self._at['what']} within {seconds:g} s")
                    if due <= offer.data.keys():
                        self._changed.wait(left)
            finally:
                self._offer = None
            if gone is not None:
                raise gone
            if self._astray:
                raise RuntimeError(next(iter(self._astray.values())))

    def _fetch(self, member: str, step: str, offset: int = 0) -> Any:
        body = json.dumps({**self._at, "step": step, "offset": offset, "who": self._group._me}).encode()
        return self._group._submit(member, b"f", [body], (), self._group._seconds, is_raw=True)

    def _take(self, fetched: Any, member: str, step: str) -> Any:
        """Waits for what was fetched from the member in a step of this collective, and fetches the other pieces of it."""
        whole, at = bytearray(), 0
        while True:
            data, values = self._group._await(fetched, self._view)
            if data[:1] == b"v":
                return unpack(data[1:], values=values)
            if data[:1] != b"p":
                raise RuntimeError(bytes(data[1:]).decode())
            size = int.from_bytes(data[1:9], "little")
            whole = whole or bytearray(size)
            whole[at:at + len(data) - 9] = data[9:]
            at += len(data) - 9
            if at >= size or len(data) == 9:
                return unpack(whole)
            fetched = self._fetch(member, step, at)

    def _up(self, root: str, value: Any, each: Callable[[str, Any], None]) -> None:
        """Sends the value to root; root calls `each` with every member's value, in the order of the members."""
        if root != self._group._me:
            self._give("up", {root: self._packed((None, value))})
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
                    said, theirs = self._take(fetched.pop(m), m, "up")
                if said is None and failed is None:
                    each(m, theirs)
            except Exception as e:  # the others get the error once their values were fetched
                said = e
            failed = failed or said
        if failed is not None:
            raise failed

    def _down(self, root: str, values: Callable[[], dict[str, Any] | Any], is_each: bool = False) -> Any:
        """Sends root's values to the members: one value for all, or with is_each one for each member. Returns this member's value."""
        if root != self._group._me:
            said, value = self._take(self._fetch(root, "down"), root, "down")
            if said is not None:
                raise said
            return value
        others = [m for m in self._group.group_members if m != root]
        failed: Exception | None = None
        mine: Any = None
        try:
            made = values()
            mine = made[root] if is_each else made
            whole: Packed = ([], []) if is_each else self._packed((None, made))
            data = {m: self._packed((None, made[m])) if is_each else whole for m in others}
        except Exception as e:
            failed, data = e, dict.fromkeys(others, self._packed((_told(e), None)))
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
        """Reduces in the order of the members, so that the result is bit-identical each time."""
        f, got = _REDUCTIONS["sum" if op == "mean" else op], list[Any]()

        def each(m: str, v: Any) -> None:
            shape = getattr(v, "shape", ())
            if got and getattr(got[0], "shape", ()) != shape:
                raise ValueError(f"the value of '{m}' has the shape {tuple(shape)}, but the members before it gave {tuple(getattr(got[0], 'shape', ()))}")
            got[:] = [v if not got else f(got[0], v)]

        self._up(root, value, each)
        if root != self._group._me:
            return None
        return got[0] / self._group.size() if op == "mean" else got[0]

    def all_of(self, root: str, up: Callable[[], Any]) -> Any:
        """Runs `up` and sends root's result, or root's exception, to all members."""
        if root != self._group._me:
            up()
        return self._down(root, up)

    def broadcast(self, root: str, value: Any) -> Any:
        return self._down(root, lambda: value)

    def scatter(self, root: str, values: Sequence[Any] | None) -> Any:
        members = self._group.group_members

        def each() -> dict[str, Any]:
            if values is None or len(values) != len(members):
                raise ValueError(f"'{root}' passed {'no' if values is None else len(values)} values for {len(members)} members, it must pass one for each")
            return dict(zip(members, values, strict=True))

        return self._down(root, each, True)


def _told(e: Exception) -> Exception:
    """Returns the exception in a form that every member can unpickle."""
    return e if type(e) in (ValueError, RuntimeError, TypeError, MemberLost) else RuntimeError(str(e))


def _refusal(text: str) -> Packed:
    return [b"e" + text.encode()], []
