"""The blocking client."""
from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from time import sleep
from types import TracebackType
from typing import Any, TypeVar

import grpc

from parley import wire
from parley.channel import Link as Link
from parley.keywords import checked
from parley.v1 import conversations_pb2 as pb
from parley.wire import Cursor, Error, Patience, Piece, Reply, Route, Said, TurnProgress

T = TypeVar("T")


class Server:
    """One daemon or several. A conversation stays at the daemon that opened it; if that one is unavailable, it goes on at another one
    that shares its database. New conversations go to the daemons in turn; daemons that are unreachable or full are skipped."""

    def __init__(self, addresses: str | Sequence[str], key: str | None, tls: wire.Tls, patience: float) -> None:
        self.links = [Link(a, key, tls, patience) for a in wire.addresses_of(addresses)]
        self.patience, self._next = patience, 0

    def open(self, model: str = "", system: str = "", *, metadata: Mapping[str, str] | None = None, ttl: float = 0, request_id: str = "",
             **sampling: Any) -> Conversation:
        """Opens a conversation. The sampling options, such as temperature=0 or max_tokens=50, apply to all its turns. A program that gives
        the same request_id when it is run again gets the same conversation, and its turns again from the first one, without computing."""
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
                    return Conversation(Route(self.links, at), self.links[at].once("Conversations/Open", request, pb.ConversationsOpenResponse).conversation)
                except Error as e:
                    error = e
                    if e.code not in ("UNAVAILABLE", "RESOURCE_EXHAUSTED"):
                        raise
            sleep(patience.wait_after(error))

    def conversation(self, id: str) -> Conversation:
        """Continues an existing conversation, whoever opened it."""
        request = pb.ConversationsGetRequest(conversation=id, without_transcript=True)
        patience = Patience(self.patience)
        while True:
            error: Error | None = None
            for at, link in enumerate(self.links):
                try:
                    state = link.once("Conversations/Get", request, pb.Conversation)
                    return Conversation(Route(self.links, at), id, state.turns, state.generation)
                except Error as e:
                    error = e if error is None or error.code == "NOT_FOUND" else error
            assert error is not None
            sleep(patience.wait_after(error))

    def close(self) -> None:
        for link in self.links:
            link.channel.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Turn:
    """A turn under way: an iterator over the pieces of its reply. close(), or the end of a `with` block, cancels a turn that is not
    complete; the conversation then keeps the part of the reply that was generated."""

    def __init__(self, chat: Conversation, progress: TurnProgress) -> None:
        self._chat, self._progress = chat, progress
        self._patience = Patience(chat._link.patience)
        self._call: Any = None
        self._is_begun = False

    @property
    def number(self) -> int:
        return self._progress.request.turn

    @property
    def cursor(self) -> Cursor | None:
        """The place after the last piece."""
        return self._progress.after

    def __iter__(self) -> Iterator[Piece]:
        return self

    def __next__(self) -> Piece:
        while self._progress.done is None:
            try:
                if self._call is None:
                    self._chat._doubt, self._is_begun = self._progress.asked, True
                    self._call = self._chat._link.stream("Conversations/Turn", self._progress.next_request(), pb.TurnEvent)
                for event in self._call:
                    piece = self._progress.take(event)
                    if piece is not None:
                        self._patience.renew()
                        self._chat._route.reached()
                        return piece
                if self._progress.done is None:
                    raise Error("UNAVAILABLE", "the daemon ended the stream before the reply was complete")
            except (Error, grpc.RpcError) as e:
                self._call = None
                error = self._chat._route.after(e if isinstance(e, Error) else self._chat._link.error_of(e))
                sleep(self._patience.wait_after(error))
            except BaseException:  # what had arrived may be lost: go on behind the last piece, on another call
                if self._call is not None:
                    self._call.cancel()
                self._call = None
                raise
        self._chat._ended(self._progress)
        raise StopIteration

    def reply(self) -> Reply:
        """Waits for the rest of the reply and returns the whole reply."""
        for _ in self:
            pass
        return self._progress.reply()

    def close(self) -> None:
        """Cancels the turn if it is not complete."""
        if self._is_begun and self._progress.done is None:
            self._chat._call("Conversations/Cancel", pb.ConversationsCancelRequest(conversation=self._chat.id, turn=self.number),
                             pb.ConversationsCancelResponse)
            self.reply()

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Conversation:
    """A conversation. Its turns are numbered: when a connection breaks, the client asks for the turn with the same number again, and
    the daemon runs it only once. Only one thread at a time may use a conversation."""

    def __init__(self, route: Route[Link], id: str, turns: int = 0, generation: int = 1) -> None:
        self._route, self.id, self.turns, self.generation = route, id, turns, generation
        # A request that the daemon may have carried out, although no answer to it has been read to its end.
        self._doubt: pb.TurnRequest | None = None

    @property
    def _link(self) -> Link:
        return self._route.link

    def _call(self, method: str, request: Any, response: type[T], is_long: bool = False) -> T:
        """Makes a call that is safe to repeat, at whichever daemon has the conversation. is_long: see Link.wait."""
        patience = Patience(self._link.patience)
        while True:
            try:
                answer = self._link.wait(method, request, response) if is_long else self._link.once(method, request, response)
                self._route.reached()
                return answer
            except Error as e:
                error = self._route.after(e)
            sleep(patience.wait_after(error))

    def _ended(self, progress: TurnProgress) -> None:
        self.turns, self.generation = progress.request.turn, progress.generation
        self._doubt = None

    def _next(self, said: Said, sampling: Mapping[str, Any], observe_only: bool = False, deadline: float = 0) -> pb.TurnRequest:
        """Returns the request of the next turn. The same request again, after one in doubt, joins its turn. Another one first cancels the
        turn in doubt, and comes after it."""
        request = wire.turn_request(self.id, self.turns + 1, said, sampling, observe_only, deadline)
        if self._doubt is not None and self._doubt != request:
            self._settle()
            request.turn = self.turns + 1
        return request

    def _settle(self) -> None:
        """Ends what is in doubt and asks the daemon how many turns there are."""
        doubt = self._doubt
        if doubt is None:
            return
        if doubt.turn:
            try:
                self._call("Conversations/Cancel", pb.ConversationsCancelRequest(conversation=self.id, turn=doubt.turn),
                           pb.ConversationsCancelResponse)
                self.resume(Cursor(self.generation, doubt.turn, 0)).reply()
            except Error as e:
                if e.code != "OUT_OF_RANGE":  # a turn that has never begun
                    raise
        state = self._call("Conversations/Get", pb.ConversationsGetRequest(conversation=self.id, without_transcript=True), pb.Conversation)
        self.turns, self.generation, self._doubt = state.turns, state.generation, None

    def turn(self, said: Said, *, deadline: float = 0, **sampling: Any) -> Turn:
        """Sends a text, or messages ({"role": …, "text": …}), and returns the reply in pieces. logprobs=n: see Reply. tools: what the model
        may call, as {"name": …, "description": …, "parameters": a JSON schema}; tool_choice: "auto", "none", "required" or a name;
        parallel_tool_calls=False: one call at most. A result is a message {"role": "tool", "tool_call_id": …, "text": …}."""
        return Turn(self, TurnProgress(self._next(said, sampling, deadline=deadline), self.generation))

    def ask(self, said: Said, *, deadline: float = 0, **sampling: Any) -> Reply:
        """Like turn, but returns the whole reply at once."""
        request = self._next(said, sampling, deadline=deadline)
        self._doubt = request
        reply = self._call("Conversations/Ask", request, pb.TurnReply, is_long=True)
        self.turns, self.generation, self._doubt = reply.turn, reply.generation, None
        return wire.reply_of(reply)

    def observe(self, said: Said) -> None:
        """Sends a text or messages without asking for a reply; the next turn sees them."""
        Turn(self, TurnProgress(self._next(said, {}, observe_only=True), self.generation)).reply()

    def resume(self, cursor: Cursor) -> Turn:
        """Resumes an interrupted reply after the piece that has this cursor."""
        return Turn(self, TurnProgress(pb.TurnRequest(conversation=self.id, turn=cursor.turn), cursor.generation, cursor))

    def fork(self, at_turn: int | None = None) -> Conversation:
        """Opens a new conversation that starts with the turns of this one, or with its first `at_turn` turns."""
        self._settle()
        request = pb.ConversationsForkRequest(conversation=self.id, request_id=uuid.uuid4().hex)
        if at_turn is not None:
            request.at_turn = at_turn
        answer = self._call("Conversations/Fork", request, pb.ConversationsForkResponse)
        return Conversation(self._route.fork(), answer.conversation, answer.turns)

    def rewind(self, to_turn: int) -> None:
        """Removes the turns after to_turn."""
        self._settle()
        self._doubt = pb.TurnRequest()
        answer = self._call("Conversations/Rewind", pb.ConversationsRewindRequest(conversation=self.id, to_turn=to_turn),
                            pb.ConversationsRewindResponse)
        self.turns, self.generation, self._doubt = answer.turns, answer.generation, None

    def get(self) -> pb.Conversation:
        """Returns the conversation's state at the daemon, with its first turns."""
        return self._call("Conversations/Get", pb.ConversationsGetRequest(conversation=self.id), pb.Conversation)

    def close(self) -> None:
        """Closes the conversation at the daemon. It is not an error if the conversation does not exist any more."""
        try:
            self._call("Conversations/Close", pb.ConversationsCloseRequest(conversation=self.id), pb.ConversationsCloseResponse)
        except Error as e:
            if e.code != "NOT_FOUND":
                raise

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


@checked
def connect(addresses: str | Sequence[str] = wire.DEFAULT_ADDRESS, *, key: str | None = None, tls: wire.Tls = None,
            patience: float = 30) -> Server:
    """Connects to one daemon or several. addresses: "host:port" or "unix:path"; several in a list, or separated by commas. patience:
    for how many seconds calls that are safe to repeat are retried after they fail. tls: True, the path of a file with trusted certificates, or
    grpc.ChannelCredentials."""
    return Server(addresses, key, tls, patience)
