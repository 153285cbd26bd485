"""Rooms for asyncio: `async with await parley.rooms.aio.join(server, "den", "Ann") as room: …`, where server is of parley.aio.connect.

    >>> import asyncio
    >>> async def main():
    ...     async with parley.aio.connect(ADDRESS) as server, await parley.rooms.aio.join(server, "attic", "Eve") as room:
    ...         await room.say("Is anybody there?")
    ...         async for message in room:
    ...             print(message)
    ...             if message.kind == "said":
    ...                 break
    >>> asyncio.run(main())
    Eve joined
    Eve: Is anybody there?
"""
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from time import monotonic
from types import TracebackType
from typing import Any

import grpc
import grpc.aio

from parley import aio
from parley.rooms.attendance import LEAVE_S, METHOD, Attendance, Member, Message, Present
from parley.v1 import rooms_pb2 as pb
from parley.wire import Error, Patience

__all__ = ["Member", "Message", "Room", "join"]


class Room(Present):
    """Like parley.rooms.Room. Tasks of one event loop use it; one reads it while others say. A cancelled read loses no message."""

    def __init__(self, link: aio.Link, state: Attendance) -> None:
        super().__init__(state)
        self._link = link
        self._waiting = set[asyncio.Future[None]]()
        self._speaking = asyncio.Lock()
        self._is_closed = False
        self._task: asyncio.Task[None] | None = None
        self._outgoing: asyncio.Queue[pb.RoomsAttachRequest | None] | None = None  # of the present connection
        self._failure: Error | None = None

    @property
    def members(self) -> list[Member]:
        return list(self._state.members.values())

    # --- the connection ---

    def _tell(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    async def _live(self) -> None:
        error: Error | None = Error("INTERNAL", "the room's task has failed")
        try:
            error = await self._attend()
        finally:
            self._task, self._failure = None, error
            self._tell()

    async def _attend(self) -> Error | None:
        """Like parley.rooms.Room._attend."""
        patience = Patience(self._link.patience)
        method = self._link.channel.stream_stream(f"/parley.v1.{METHOD}", pb.RoomsAttachRequest.SerializeToString, pb.RoomsAttachResponse.FromString)
        while True:
            outgoing = asyncio.Queue[pb.RoomsAttachRequest | None]()
            for request in self._state.begin():
                outgoing.put_nowait(request)
            call = method(_requests(outgoing), metadata=self._link.metadata)
            try:
                self._outgoing = outgoing
                while self._state.ended is None:
                    response = await call.read()
                    if response is grpc.aio.EOF:
                        raise Error("UNAVAILABLE", f"the daemon ended the stream of {METHOD}")
                    self._send(self._state.take(response))
                    self._tell()
                    if self._state.is_in:
                        patience.renew()
                return None
            except (Error, grpc.RpcError) as e:
                error = e if isinstance(e, Error) else self._link.error_of(e)
            finally:
                self._outgoing, self._state.is_in = None, False
                outgoing.put_nowait(None)
                call.cancel()
            try:
                await asyncio.sleep(patience.wait_after(error))
            except Error as final:
                return final

    def _send(self, requests: Sequence[pb.RoomsAttachRequest]) -> None:
        if self._outgoing is not None:
            for request in requests:
                self._outgoing.put_nowait(request)

    async def _wait(self, holds: Callable[[], bool], end: float | None = None) -> None:
        """Waits until it holds, or until `end`. Raises why there is no connection."""
        while not holds():
            if self._is_closed:
                raise Error("FAILED_PRECONDITION", "the room is closed: join it again")
            if self._failure is not None:
                error, self._failure = self._failure, None
                raise error
            if self._task is None:
                self._task = asyncio.create_task(self._live())
            left = None if end is None else end - monotonic()
            if left is not None and left <= 0:
                return
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.add(waiting)
            try:
                await asyncio.wait([waiting], timeout=left)
            finally:
                self._waiting.discard(waiting)

    # --- what a program does ---

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        message = await self.read()
        if message is None:
            raise StopAsyncIteration
        return message

    async def read(self, timeout: float | None = None) -> Message | None:
        end = None if timeout is None else monotonic() + timeout
        while not self._has_news():
            requests, again = self._state.catch_up()
            self._send(requests)
            await self._wait(self._may_be_due if again is None else self._has_news,
                             min((at for at in (end, again) if at is not None), default=None))
            if not self._has_news() and end is not None and monotonic() >= end:
                return None
        return self._state.queue.popleft() if self._state.queue else None

    async def say(self, text: str, *, reply_to: int = 0, quick_replies: Sequence[str] = ()) -> int:
        async with self._speaking:
            patience = Patience(self._link.patience)
            await self._until(lambda: self._state.may_say(text, reply_to, quick_replies))
            self._send(self._state.say(text, reply_to, quick_replies))
            while True:
                await self._until(lambda: self._state.is_settled)
                answer = self._state.settled()
                if isinstance(answer, int):
                    self._state.forget()
                    return answer
                try:
                    delay = patience.wait_after(answer)
                except Error:
                    self._state.forget()
                    raise
                await asyncio.sleep(delay)
                self._send(self._state.say_again())

    async def _until(self, holds: Callable[[], bool]) -> None:
        await self._wait(lambda: holds() or self._state.ended is not None)
        if not holds():
            raise self._state.gone()

    def typing(self, on: bool = True) -> None:
        self._send([pb.RoomsAttachRequest(typing=pb.RoomTyping(room=self._state.room, on=on))])

    async def leave(self) -> None:
        try:
            if self._outgoing is not None and self._state.is_in and self._state.ended is None:
                self._send([pb.RoomsAttachRequest(leave=pb.RoomLeave(room=self._state.room))])
                await self._wait(lambda: self._state.ended is not None or self._outgoing is None, monotonic() + LEAVE_S)
        except Error:
            pass  # the daemon finds out by itself
        finally:
            await self.close()

    async def close(self) -> None:
        self._is_closed = True
        self._tell()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def __aenter__(self) -> Room:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        await self.leave()


async def _requests(outgoing: asyncio.Queue[pb.RoomsAttachRequest | None]) -> Any:
    while (request := await outgoing.get()) is not None:
        yield request


async def join(server: aio.Server, room: str, name: str = "", *, after: int = 0, from_now: bool = False, token: str = "") -> Room:
    """Like parley.rooms.join."""
    entered = Room(server.links[0], Attendance(room, name, token, after, from_now))
    try:
        await entered._until(lambda: entered._state.is_in)
    except BaseException:
        await entered.close()
        raise
    return entered
