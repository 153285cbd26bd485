"""Rooms: people write to each other, and each message is an entry of the room's log.

    >>> server = parley.connect(ADDRESS)  # "127.0.0.1:8001", a daemon's
    >>> with parley.rooms.join(server, "den", "Ann") as ann, parley.rooms.join(server, "den", "Bob") as bob:
    ...     seq = ann.say("Tea or coffee?", quick_replies=["tea", "coffee"])
    ...     _ = bob.say("coffee", reply_to=seq)
    ...     for message in ann:
    ...         print(message.seq, message)
    ...         if message.text == "coffee":
    ...             break
    1 Ann joined
    2 Bob joined
    3 Ann: Tea or coffee?
    4 Bob: coffee

A connection that is lost is made again, for the `patience` of parley.connect, without a word: no message is missing, none comes twice,
and what is said is said once. `parley.rooms.aio` is the same for asyncio."""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from time import monotonic, sleep
from types import TracebackType

from parley import client
from parley.channel import Dialogue, Link
from parley.interrupts import Condition, Event
from parley.rooms import aio as aio
from parley.rooms.attendance import LEAVE_S, METHOD, Attendance, Member, Message, Present
from parley.v1 import rooms_pb2 as pb
from parley.wire import Error, Patience

__all__ = ["Member", "Message", "Room", "join"]


class Room(Present):
    """A person in a room: `for message in room` reads it, from its first entry or from behind `after`, until the person leaves. One
    thread may read while others say. What nobody reads stays in the room, not in this process. The end of a `with` block leaves."""

    def __init__(self, link: Link, state: Attendance) -> None:
        super().__init__(state)
        self._link = link
        self._changed = Condition()  # its lock guards all but _speaking
        self._speaking = threading.Lock()  # held while something is said
        self._stopped = Event()
        self._thread: threading.Thread | None = None
        self._dialogue: Dialogue[pb.RoomsAttachRequest, pb.RoomsAttachResponse] | None = None
        self._failure: Error | None = None  # why there is no connection any more

    @property
    def members(self) -> list[Member]:
        """Who is in the room now."""
        with self._changed:
            return list(self._state.members.values())

    # --- the connection ---

    def _live(self) -> None:
        """A thread of its own."""
        error: Error | None = Error("INTERNAL", "the room's thread has failed")
        try:
            error = self._attend()
        finally:
            with self._changed:
                self._thread, self._failure = None, error
                self._changed.notify_all()

    def _attend(self) -> Error | None:
        """Connects, takes what comes, and connects again. Returns why that is of no use any more, or None at the end."""
        patience = Patience(self._link.patience)
        while not self._stopped.is_set():
            dialogue = Dialogue(self._link, METHOD, pb.RoomsAttachRequest.SerializeToString, pb.RoomsAttachResponse.FromString)
            try:
                with self._changed:
                    if self._stopped.is_set():
                        return None
                    for request in self._state.begin():
                        dialogue.put(request)
                    self._dialogue = dialogue
                while self._state.ended is None:
                    response = dialogue.take()
                    with self._changed:
                        self._send(self._state.take(response))
                        self._changed.notify_all()
                    if self._state.is_in:
                        patience.renew()
                return None
            except Error as e:
                error = e
            finally:
                with self._changed:
                    self._dialogue, self._state.is_in = None, False
                dialogue.close()
            try:
                self._stopped.wait(patience.wait_after(error))
            except Error as final:
                return final
        return None

    def _send(self, requests: Sequence[pb.RoomsAttachRequest]) -> None:
        """With the lock. Without a connection nothing is sent: the next one begins with what is needed."""
        if self._dialogue is not None:
            for request in requests:
                self._dialogue.put(request)

    def _wait(self, holds: Callable[[], bool], end: float | None = None) -> bool:
        """With the lock. Waits until it holds, or until `end`. Raises why there is no connection."""
        while not holds():
            if self._stopped.is_set():
                raise Error("FAILED_PRECONDITION", "the room is closed: join it again")
            if self._failure is not None:
                error, self._failure = self._failure, None
                raise error
            if self._thread is None:
                self._thread = threading.Thread(target=self._live, name="parley-room", daemon=True)
                self._thread.start()
            left = None if end is None else end - monotonic()
            if left is not None and left <= 0:
                return False
            self._changed.wait(left)
        return True

    # --- what a program does ---

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        message = self.read()
        if message is None:
            raise StopIteration
        return message

    def read(self, timeout: float | None = None) -> Message | None:
        """Waits for the next message. None: none came within `timeout` seconds, or the person is not in the room any more (`ended`)."""
        end = None if timeout is None else monotonic() + timeout
        with self._changed:
            while not self._state.queue and self._state.ended is None:
                requests, again = self._state.catch_up()
                self._send(requests)
                self._wait(self._may_be_due if again is None else self._has_news,
                           min((at for at in (end, again) if at is not None), default=None))
                if not self._has_news() and end is not None and monotonic() >= end:
                    return None
            return self._state.queue.popleft() if self._state.queue else None

    def say(self, text: str, *, reply_to: int = 0, quick_replies: Sequence[str] = ()) -> int:
        """Says it, and returns the seq of its entry (0 if the room has dropped it meanwhile): it is then in the room, once. If it is
        interrupted, as by Ctrl-C, the same words again are the same entry. Who says more than 5 things a second waits. reply_to: the seq of
        the entry that this answers. quick_replies: short texts to answer with."""
        with self._speaking:
            patience = Patience(self._link.patience)
            with self._changed:
                self._until(lambda: self._state.may_say(text, reply_to, quick_replies))
                self._send(self._state.say(text, reply_to, quick_replies))
            while True:
                with self._changed:
                    self._until(lambda: self._state.is_settled)
                    answer = self._state.settled()
                    if isinstance(answer, int):
                        self._state.forget()
                        return answer
                try:
                    delay = patience.wait_after(answer)
                except Error:
                    with self._changed:
                        self._state.forget()
                    raise
                sleep(delay)
                with self._changed:
                    self._send(self._state.say_again())

    def _until(self, holds: Callable[[], bool]) -> None:
        """With the lock. Waits until it holds. Raises Error if the person is not in the room any more."""
        self._wait(lambda: holds() or self._state.ended is not None)
        if not holds():
            raise self._state.gone()

    def typing(self, on: bool = True) -> None:
        """Shows the others that the person types, until it says something. Does not wait, and is lost with the connection."""
        with self._changed:
            self._send([pb.RoomsAttachRequest(typing=pb.RoomTyping(room=self._state.room, on=on))])

    def leave(self) -> None:
        """Leaves the room. A person who cannot tell the daemon has left after two minutes."""
        try:
            with self._changed:
                if self._dialogue is not None and self._state.is_in and self._state.ended is None:
                    self._send([pb.RoomsAttachRequest(leave=pb.RoomLeave(room=self._state.room))])
                    self._changed.wait_for(lambda: self._state.ended is not None or self._dialogue is None, LEAVE_S)
        finally:
            self.close()

    def close(self) -> None:
        """Ends the connection. The person is away, and stays in the room for two minutes: see `token`."""
        self._stopped.set()
        with self._changed:
            dialogue, thread = self._dialogue, self._thread
            self._changed.notify_all()
        if dialogue is not None:
            dialogue.close()
        if thread is not None:
            thread.join()

    def __enter__(self) -> Room:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.leave()


def join(server: client.Server, room: str, name: str = "", *, after: int = 0, from_now: bool = False, token: str = "") -> Room:
    """Enters a room, which is made if there is none, as a new person of this name ("": made up), or as the one who has the token; of
    several daemons it is the first one's. after: the last seq that the program has; 0: all that the room still has. from_now: only what
    comes. Two objects with one token may both read; only one of them is to say something in a room."""
    entered = Room(server.links[0], Attendance(room, name, token, after, from_now))
    try:
        with entered._changed:
            entered._until(lambda: entered._state.is_in)
    except BaseException:
        entered.close()
        raise
    return entered
