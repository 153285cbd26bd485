"""The client for asyncio: `async with await parley.aio.connect().open("smollm2") as chat: …`. It also serves agents, environments and
teachers that are coroutines or async generators."""
from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import grpc
import grpc.aio

from parley import agents, reach, wire
from parley.exits import Ending
from parley.keywords import checked
from parley.tidings import Tidings
from parley.v1 import agents_pb2
from parley.v1 import conversations_pb2 as pb
from parley.wire import Cursor, Error, Patience, Piece, Reply, Route, Said, TurnProgress

T = TypeVar("T")
LOST_AT_A_WRITE = "Internal error from Core"  # what grpc.aio says of a stream that is lost during a write, in place of its status


class Link:
    """A channel to one daemon."""

    def __init__(self, address: str, key: str | None, tls: wire.Tls, patience: float) -> None:
        self.address, self.patience, self.metadata = wire.address_of(address), patience, wire.metadata_of(key)
        credentials, options = wire.channel_arguments(tls)
        self.is_tls = credentials is not None
        self.channel = (grpc.aio.insecure_channel(self.address, options) if credentials is None
                        else grpc.aio.secure_channel(self.address, credentials, options))

    def error_of(self, failure: Any) -> Error:
        """Converts an exception of a call of this channel."""
        error = wire.error_of(failure, self.address, self.is_tls)
        if error.code == "INTERNAL" and error.message == LOST_AT_A_WRITE:
            return Error("UNAVAILABLE", reach.LOST[1].format(self.address), reach.LOST[0])
        return error

    async def once(self, method: str, request: Any, response: type[T]) -> T:
        call = self.channel.unary_unary(f"/parley.v1.{method}", type(request).SerializeToString, response.FromString)  # type: ignore[attr-defined]
        try:
            answer: T = await call(request, metadata=self.metadata)
            return answer
        except grpc.RpcError as e:
            raise self.error_of(e) from None

    async def call(self, method: str, request: Any, response: type[T]) -> T:
        """Makes a call and repeats it while its failure may be temporary. Use it only for calls that are safe to repeat."""
        patience = Patience(self.patience)
        while True:
            try:
                return await self.once(method, request, response)
            except Error as e:
                await asyncio.sleep(patience.wait_after(e))

    def stream(self, method: str, request: Any, response: type[T]) -> Any:
        call = self.channel.unary_stream(f"/parley.v1.{method}", type(request).SerializeToString, response.FromString)  # type: ignore[attr-defined]
        return call(request, metadata=self.metadata)


class Server:
    """Like parley.Server."""

    def __init__(self, addresses: str | Sequence[str], key: str | None, tls: wire.Tls, patience: float) -> None:
        self.links = [Link(a, key, tls, patience) for a in wire.addresses_of(addresses)]
        self.patience, self._next = patience, 0

    async def open(self, model: str = "", system: str = "", *, metadata: Mapping[str, str] | None = None, ttl: float = 0, request_id: str = "",
                   **sampling: Any) -> Conversation:
        request = pb.ConversationsOpenRequest(model=model, system=system, ttl_ms=wire.milliseconds(ttl, "ttl", wire.MAX_LONG_MS), metadata=metadata or {},
                                              request_id=request_id or uuid.uuid4().hex)
        if sampling:
            request.sampling.CopyFrom(wire.sampling_of(sampling, "a conversation", wire.OPEN_OPTIONS))
        patience = Patience(self.patience)
        while True:
            for _ in self.links:
                at = self._next % len(self.links)
                self._next += 1
                try:
                    answer = await self.links[at].once("Conversations/Open", request, pb.ConversationsOpenResponse)
                    return Conversation(Route(self.links, at), answer.conversation)
                except Error as e:
                    error = e
                    if e.code not in ("UNAVAILABLE", "RESOURCE_EXHAUSTED"):
                        raise
            await asyncio.sleep(patience.wait_after(error))

    async def conversation(self, id: str) -> Conversation:
        request = pb.ConversationsGetRequest(conversation=id, without_transcript=True)
        patience = Patience(self.patience)
        while True:
            error: Error | None = None
            for at, link in enumerate(self.links):
                try:
                    state = await link.once("Conversations/Get", request, pb.Conversation)
                    return Conversation(Route(self.links, at), id, state.turns, state.generation)
                except Error as e:
                    error = e if error is None or error.code == "NOT_FOUND" else error
            assert error is not None
            await asyncio.sleep(patience.wait_after(error))

    async def close(self) -> None:
        for link in self.links:
            await link.channel.close()

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


class Turn:
    """Like parley.Turn: `async for piece in chat.turn(…)`."""

    def __init__(self, chat: Conversation, progress: TurnProgress, is_new: bool = False) -> None:
        self._chat, self._progress, self._is_new = chat, progress, is_new
        self._patience = Patience(chat._link.patience)
        self._call: Any = None
        self._is_begun = False

    @property
    def number(self) -> int:
        return self._progress.request.turn

    @property
    def cursor(self) -> Cursor | None:
        return self._progress.after

    def __aiter__(self) -> AsyncIterator[Piece]:
        return self

    async def __anext__(self) -> Piece:
        while self._progress.done is None:
            try:
                if self._is_new:
                    await self._chat._next(self._progress.request)
                    self._progress.generation = self._chat.generation
                    self._progress.asked.CopyFrom(self._progress.request)
                    self._is_new = False
                if self._call is None:
                    self._chat._doubt, self._is_begun = self._progress.asked, True
                    self._call = self._chat._link.stream("Conversations/Turn", self._progress.next_request(), pb.TurnEvent)
                while (event := await self._call.read()) is not grpc.aio.EOF:
                    piece = self._progress.take(event)
                    if piece is not None:
                        self._patience.renew()
                        self._chat._route.reached()
                        return piece
                if self._progress.done is None:
                    raise Error("UNAVAILABLE", "the daemon ended the stream before the reply was complete")
            except BaseException as e:
                if not isinstance(e, (Error, grpc.RpcError)):  # what had arrived may be lost: go on behind the last piece, on another call
                    if self._call is not None:
                        self._call.cancel()
                    self._call = None
                    raise
                self._call = None
                error = self._chat._route.after(e if isinstance(e, Error) else self._chat._link.error_of(e))
                await asyncio.sleep(self._patience.wait_after(error))
        self._chat._ended(self._progress)
        raise StopAsyncIteration

    async def reply(self) -> Reply:
        async for _ in self:
            pass
        return self._progress.reply()

    async def close(self) -> None:
        if self._is_begun and self._progress.done is None:
            request = pb.ConversationsCancelRequest(conversation=self._chat.id, turn=self.number)
            await self._chat._call("Conversations/Cancel", request, pb.ConversationsCancelResponse)
            await self.reply()

    async def __aenter__(self) -> Turn:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


class Conversation:
    """Like parley.Conversation. Only one task at a time may use it."""

    def __init__(self, route: Route[Link], id: str, turns: int = 0, generation: int = 1) -> None:
        self._route, self.id, self.turns, self.generation = route, id, turns, generation
        self._doubt: pb.TurnRequest | None = None  # as in parley.Conversation

    @property
    def _link(self) -> Link:
        return self._route.link

    async def _call(self, method: str, request: Any, response: type[T]) -> T:
        """Makes a call that is safe to repeat, at whichever daemon has the conversation."""
        patience = Patience(self._link.patience)
        while True:
            try:
                answer = await self._link.once(method, request, response)
                self._route.reached()
                return answer
            except Error as e:
                error = self._route.after(e)
            await asyncio.sleep(patience.wait_after(error))

    def _ended(self, progress: TurnProgress) -> None:
        self.turns, self.generation = progress.request.turn, progress.generation
        self._doubt = None

    async def _next(self, request: pb.TurnRequest) -> None:
        """Gives the request its turn, which comes after another one in doubt."""
        if self._doubt is not None and self._doubt != request:
            await self._settle()
            request.turn = self.turns + 1

    async def _settle(self) -> None:
        doubt = self._doubt
        if doubt is None:
            return
        if doubt.turn:
            try:
                cancel = pb.ConversationsCancelRequest(conversation=self.id, turn=doubt.turn)
                await self._call("Conversations/Cancel", cancel, pb.ConversationsCancelResponse)
                await self.resume(Cursor(self.generation, doubt.turn, 0)).reply()
            except Error as e:
                if e.code != "OUT_OF_RANGE":  # a turn that has never begun
                    raise
        state = await self._call("Conversations/Get", pb.ConversationsGetRequest(conversation=self.id, without_transcript=True), pb.Conversation)
        self.turns, self.generation, self._doubt = state.turns, state.generation, None

    def turn(self, said: Said, *, deadline: float = 0, **sampling: Any) -> Turn:
        return Turn(self, TurnProgress(wire.turn_request(self.id, self.turns + 1, said, sampling, deadline=deadline), self.generation), True)

    async def ask(self, said: Said, *, deadline: float = 0, **sampling: Any) -> Reply:
        request = wire.turn_request(self.id, self.turns + 1, said, sampling, deadline=deadline)
        await self._next(request)
        self._doubt = request
        reply = await self._call("Conversations/Ask", request, pb.TurnReply)
        self.turns, self.generation, self._doubt = reply.turn, reply.generation, None
        return wire.reply_of(reply)

    async def observe(self, said: Said) -> None:
        await Turn(self, TurnProgress(wire.turn_request(self.id, self.turns + 1, said, {}, observe_only=True), self.generation), True).reply()

    def resume(self, cursor: Cursor) -> Turn:
        return Turn(self, TurnProgress(pb.TurnRequest(conversation=self.id, turn=cursor.turn), cursor.generation, cursor))

    async def fork(self, at_turn: int | None = None) -> Conversation:
        await self._settle()
        request = pb.ConversationsForkRequest(conversation=self.id, request_id=uuid.uuid4().hex)
        if at_turn is not None:
            request.at_turn = at_turn
        answer = await self._call("Conversations/Fork", request, pb.ConversationsForkResponse)
        return Conversation(self._route.fork(), answer.conversation, answer.turns)

    async def rewind(self, to_turn: int) -> None:
        await self._settle()
        self._doubt = pb.TurnRequest()
        request = pb.ConversationsRewindRequest(conversation=self.id, to_turn=to_turn)
        answer = await self._call("Conversations/Rewind", request, pb.ConversationsRewindResponse)
        self.turns, self.generation, self._doubt = answer.turns, answer.generation, None

    async def get(self) -> pb.Conversation:
        return await self._call("Conversations/Get", pb.ConversationsGetRequest(conversation=self.id), pb.Conversation)

    async def close(self) -> None:
        try:
            request = pb.ConversationsCloseRequest(conversation=self.id)
            await self._call("Conversations/Close", request, pb.ConversationsCloseResponse)
        except Error as e:
            if e.code != "NOT_FOUND":
                raise

    async def __aenter__(self) -> Conversation:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()


@checked
def connect(addresses: str | Sequence[str] = wire.DEFAULT_ADDRESS, *, key: str | None = None, tls: wire.Tls = None,
            patience: float = 30) -> Server:
    """Like parley.connect. It sends nothing before the first call."""
    return Server(addresses, key, tls, patience)


@checked
async def serve(agent: Any, address: str = wire.DEFAULT_ADDRESS, name: str = "", *, key: str | None = None, tls: wire.Tls = None,
                worlds: bool = False) -> None:
    """Like parley.serve. act() may also be a coroutine or an async generator, an environment's reset() and step() may be coroutines,
    and a teacher may be an async generator. The rows of a step, or the environments of an order, run concurrently."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    with Ending(lambda: loop.call_soon_threadsafe(task.cancel)) as ending:
        try:
            await _serve(agent, address, name, key, tls, worlds)
        except asyncio.CancelledError:
            if not ending.is_over.is_set():
                raise


async def _serve(agent: Any, address: str, name: str, key: str | None, tls: wire.Tls, worlds: bool) -> None:
    link = Link(address, key, tls, 0)
    method = link.channel.stream_stream("/parley.v1.Agents/Attach", agents_pb2.AgentsAttachRequest.SerializeToString,
                                        agents_pb2.AgentsAttachResponse.FromString)
    tidings, delay = Tidings(link.address), 0.05
    try:
        while True:
            worker, call, tasks = agents.worker_of(agent, name, worlds), method(metadata=link.metadata), set[asyncio.Task[None]]()
            newest: asyncio.Task[None] | None = None
            writing = asyncio.Lock()  # gRPC refuses a write during another one

            async def write(said: Any, writing: asyncio.Lock = writing, call: Any = call) -> None:
                async with writing:
                    await call.write(said)

            async def answer(order: agents_pb2.AgentsAttachResponse, before: asyncio.Task[None] | None, worker: Any = worker) -> None:
                said = await worker.take_at_once(order)
                if before is not None:
                    await asyncio.wait([before])
                await write(said)

            try:
                await call.write(tidings.offered(worker.offer()))
                while (order := await call.read()) is not grpc.aio.EOF:
                    delay = 0.05
                    tidings.taken(order)
                    what = order.WhichOneof("what")
                    if what in ("step", "env_reset", "env_step"):
                        # Steps are answered in the order in which they end, orders to environments in the order in which they came.
                        newest = asyncio.create_task(answer(order, None if what == "step" else newest))
                        tasks.add(newest)
                        newest.add_done_callback(tasks.discard)
                        continue
                    state = worker.take(order)
                    if state is not None:
                        await write(state)
                raise Error("UNAVAILABLE", "the daemon ended the stream")
            except (grpc.RpcError, Error) as e:
                error = e if isinstance(e, Error) else link.error_of(e)
                if agents.is_final(error):
                    raise error from None
                tidings.failed(error)
            finally:
                call.cancel()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(delay)
            delay = min(2 * delay, 1.0)
    finally:
        await link.channel.close()
