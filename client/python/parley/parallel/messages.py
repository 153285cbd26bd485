"""Messages from one member of a group to another: send, recv, isend and irecv. A message waits in the receiver's process until it is
received; only then does send return."""
from __future__ import annotations

import multiprocessing
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from parley.parallel.pickle import pack, unpack
from parley.parallel.tasks import AsyncResult
from parley.wire import Error

if TYPE_CHECKING:
    from parley.parallel.group import Group

MAX_UNRECEIVED, MAX_UNRECEIVED_BYTES = 256, 64 << 20  # of the messages that wait at a member; a single message may be larger
MAX_WAITING = 4096  # how many receives of a member may wait
_HEAD = struct.Struct("<qB")  # tag, length of the sender's name in bytes
_RECEIVED = [b"".join(pack(None, False)[0])]

Reply = Callable[..., bool]  # of the signed parts, and the bytes of arrays
Refuse = Callable[[BaseException], None]


def message(sender: str, tag: int) -> list[bytes]:
    """What comes before a message's value."""
    name = sender.encode()
    return [_HEAD.pack(tag, len(name)), name]


class _Message:
    def __init__(self, task: int, body: memoryview, values: memoryview, reply: Reply, refuse: Refuse) -> None:
        self.task, self.reply, self.refuse = task, reply, refuse
        self.tag, n = _HEAD.unpack_from(body)
        self.sender = bytes(body[_HEAD.size:_HEAD.size + n]).decode()
        self.data = body[_HEAD.size + n:], values
        self.n_bytes = len(self.data[0]) + len(values)


class Receive(AsyncResult):
    """A message that will be received: its value and its sender's index in group_members."""

    def __init__(self, messages: Messages, sender: str | None, tag: int) -> None:
        super().__init__()
        self._messages, self.sender, self.tag = messages, sender, tag
        self._opened: tuple[Any, int] | None = None

    def get(self, timeout: float | None = None) -> tuple[Any, int]:
        """Waits for the message. Raises multiprocessing.TimeoutError after timeout seconds; the message may still arrive later. Raises
        MemberLost if it cannot arrive any more."""
        data, place = super().get(timeout)
        if self._opened is None:
            self._opened = unpack(data[0], values=data[1]), place  # on the receiver's thread, because unpickling runs code of the value's class
        return self._opened

    def wait(self, timeout: float | None = None) -> Any:
        """Like get; torch's futures have this name for it."""
        return self.get(timeout)

    def cancel(self) -> bool:
        """Stops waiting for the message. Returns False if it was received or the receive has failed already."""
        return self._messages.withdraw(self)


class Messages:
    def __init__(self, group: Group) -> None:
        self._group = group
        # Guarded by the membership's `changed`:
        self._came = list[_Message]()
        self._waiting = list[Receive]()
        self._returned = list[Receive]()  # receives that got their message, but were interrupted before they gave it to their caller
        self._is_over = False

    # --- incoming messages; on the road's thread ---

    def take(self, task: int, body: memoryview, values: memoryview, reply: Reply, refuse: Refuse) -> None:
        came = _Message(task, body, values, reply, refuse)
        with self._group._membership.changed:
            if self._is_over:
                raise self._left()
            for receive in self._waiting:
                if self._give(came, receive):
                    self._waiting.remove(receive)
                    return
            n_bytes = sum(m.n_bytes for m in self._came)
            if len(self._came) >= MAX_UNRECEIVED or self._came and n_bytes + came.n_bytes > MAX_UNRECEIVED_BYTES:
                raise Error("RESOURCE_EXHAUSTED", f"the member '{self._group._me}' has {len(self._came)} messages of {n_bytes} bytes that it has not "
                            f"received yet; at most {MAX_UNRECEIVED} messages of {MAX_UNRECEIVED_BYTES} bytes may wait there")
            self._came.append(came)

    def recall(self, task: int) -> None:
        """Drops a message whose sender does not wait any more."""
        with self._group._membership.changed:
            self._came = [m for m in self._came if m.task != task]

    def _give(self, came: _Message, receive: Receive) -> bool:
        """Delivers the message if it matches the receive and its sender still waits; returns whether it was delivered."""
        if receive.sender not in (None, came.sender) or receive.tag != came.tag or not came.reply(_RECEIVED):
            return False
        receive._settle((came.data, self._group.group_members.index(came.sender)), None)
        return True

    # --- receives ---

    def receive(self, sender: str | None, tag: int) -> Receive:
        receive = Receive(self, sender, tag)
        with self._group._membership.changed:
            for returned in self._returned:
                data, place = returned._value
                if returned.tag == tag and sender in (None, self._group.group_members[place]):
                    self._returned.remove(returned)
                    receive._settle((data, place), None)
                    return receive
            for came in list(self._came):
                if self._give(came, receive):
                    self._came.remove(came)
                    return receive
            error = self._hopeless(receive)
            if error is not None:
                receive._settle(None, error)
            elif len(self._waiting) >= MAX_WAITING:
                raise Error("RESOURCE_EXHAUSTED", f"the member '{self._group._me}' waits for {MAX_WAITING} messages already, which is the maximum")
            else:
                self._waiting.append(receive)
        return receive

    def receive_within(self, sender: str | None, tag: int, seconds: float) -> tuple[Any, int]:
        """Receives a message within so many seconds (0: no limit)."""
        receive = self.receive(sender, tag)
        try:
            return receive.get(seconds or None)
        except multiprocessing.TimeoutError:
            if not receive.cancel():
                return receive.get()  # the message has just arrived
            whose = "a member" if sender is None else f"the member '{sender}'"
            raise Error("DEADLINE_EXCEEDED", f"no message from {whose} of the group '{self._group.group_name}' arrived within {seconds:g} s") from None
        except Exception:
            raise
        except BaseException:  # interrupted: a later receive gets the message
            if not receive.cancel() and receive.successful():
                with self._group._membership.changed:
                    self._returned.append(receive)
            raise

    def withdraw(self, receive: Receive) -> bool:
        with self._group._membership.changed:
            if receive not in self._waiting:
                return False
            self._waiting.remove(receive)
            receive._settle(None, Error("CANCELLED", "the receive was cancelled"))
            return True

    def _hopeless(self, receive: Receive) -> Exception | None:
        """Returns why no message can arrive for this receive any more, or None. If it takes messages from any member, one lost member is
        enough: it may have been the sender."""
        membership = self._group._membership
        if membership.error is not None:
            return membership.error
        others = [m for m in self._group.group_members if m != self._group._me]
        gone = [m for m in others if f"@{m}" not in membership.values]
        if receive.sender is not None:
            gone = [m for m in gone if m == receive.sender]
        elif len(gone) < len(others):
            gone = [m for m in gone if m in membership.lost]
        return self._group._lost(gone[0]) if gone else None

    def look(self) -> None:
        """Called when a member, or this one, is gone: fails the receives whose message cannot arrive any more."""
        if not self._waiting:
            return  # the group's membership may not exist yet
        with self._group._membership.changed:
            for receive in list(self._waiting):
                error = self._hopeless(receive)
                if error is not None:
                    self._waiting.remove(receive)
                    receive._settle(None, error)

    def end(self) -> None:
        """Refuses all messages because this member leaves."""
        with self._group._membership.changed:
            self._is_over = True
            came, self._came = self._came, []
        for m in came:
            m.refuse(self._left())

    def _left(self) -> Error:
        return Error("FAILED_PRECONDITION", f"'{self._group._me}' has left the group")
