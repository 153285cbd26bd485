"""The code that the blocking client and the asyncio client share: addresses, errors, when to retry, and the state of a turn across
retries. Nothing here blocks."""
from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import grpc

from parley import reach
from parley.keywords import message_of
from parley.v1 import content_pb2, conversations_pb2, cursor_pb2, error_pb2, sampling_pb2

DEFAULT_ADDRESS = "127.0.0.1:8001"
# Until a daemon that says nothing is asked for a sign of life, and until it is to have given one.
KEEPALIVE_MS, ACKNOWLEDGE_MS = 60000, 60000
L = TypeVar("L")
SAY_AFTER_S = 1.0  # when a client that waits says for what
log = logging.getLogger("parley")  # to stderr, unless the program has set logging up
Tls = Any  # None, True, the path of a file with certificates to trust, or grpc.ChannelCredentials


class Error(Exception):
    """A call failed. `code` is the name of gRPC's status ("NOT_FOUND"), `reason` a stable word that a program may test for."""

    def __init__(self, code: str, message: str, reason: str = "", field: str = "", retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.code, self.message, self.reason, self.field, self.retry_after = code, message, reason, field, retry_after

    def __str__(self) -> str:
        return f"{self.message} ({self.reason or self.code})"

    def __reduce__(self) -> Any:
        return Error, (self.code, self.message, self.reason, self.field, self.retry_after)


class Invalid(Error, ValueError):
    """An argument was refused before anything was sent; `field` is its name."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__("INVALID_ARGUMENT", f"{field} {problem}", "", field)
        self.problem = problem

    def __reduce__(self) -> Any:
        return Invalid, (self.field, self.problem)


def error_of(failure: Any, address: str = "the daemon's address", is_tls: bool = False) -> Error:
    """Converts an exception of grpc or grpc.aio. address and is_tls are the channel's."""
    code, message = failure.code().name, failure.details() or ""
    for key, value in failure.trailing_metadata() or ():
        if key == "parley-error-bin":
            detail = error_pb2.ErrorDetail.FromString(value)
            return Error(code, detail.message, detail.reason, detail.field, detail.retry_after_ms / 1000)
    if code != "UNAVAILABLE" and "http2 header with status" not in message:
        return Error(code, message)
    cause = reach.cause_of(message, is_tls)
    return Error(code, reach.sentence_of(cause, message, address), cause[0])


def channel_arguments(tls: Tls) -> tuple[Any, list[tuple[str, int]]]:
    """Returns a channel's credentials (None: without TLS) and its options."""
    # gRPC gives up connecting after min_reconnect_backoff_ms; the other two say how soon it tries again.
    options = [("grpc.max_receive_message_length", -1), ("grpc.initial_reconnect_backoff_ms", 100),
               ("grpc.min_reconnect_backoff_ms", 5000), ("grpc.max_reconnect_backoff_ms", 1000), ("grpc.use_local_subchannel_pool", 1),
               ("grpc.keepalive_time_ms", KEEPALIVE_MS), ("grpc.keepalive_timeout_ms", ACKNOWLEDGE_MS),
               ("grpc.http2.ping_timeout_ms", ACKNOWLEDGE_MS), ("grpc.http2.max_pings_without_data", 0)]
    if tls is None or tls is False:
        return None, options
    if tls is True:
        return grpc.ssl_channel_credentials(), options
    if isinstance(tls, str):
        with open(tls, "rb") as f:
            authorities = f.read()
        if fault := reach.pem_fault(authorities):
            raise Error("INVALID_ARGUMENT", f"{tls} {fault}", "PEM_MALFORMED", "tls")
        return grpc.ssl_channel_credentials(authorities), options
    return tls, options


def metadata_of(key: str | None) -> list[tuple[str, str]]:
    if key and not all("!" <= c <= "~" for c in key):
        raise Invalid("key", "has a character that no key has, such as a space or the end of a line")
    return [("authorization", f"Bearer {key}")] if key else []


def addresses_of(addresses: str | Sequence[str]) -> list[str]:
    if not isinstance(addresses, (str, Sequence)):
        raise TypeError(f"addresses is {addresses!r}, it must be 'HOST:PORT' or a list of such texts")
    found = addresses.split(",") if isinstance(addresses, str) else list(addresses)
    if not found:
        raise ValueError(f"addresses is {addresses!r}, it must have at least one address")
    return found


MAX_MS, MAX_LONG_MS = 0xffffffff, 1 << 53  # of a field of 32 bits, and of one of 64


def milliseconds(seconds: float, what: str = "timeout", most_ms: int = MAX_MS) -> int:
    """As the wire has them: 0 is none, which a short time must not become."""
    if not 0 <= seconds <= most_ms // 1000:
        raise Invalid(what, f"is {seconds} s, it must be from 0 to {most_ms // 1000}")
    return max(round(1000 * seconds), int(seconds > 0))


def wholly(write: Callable[[], None]) -> None:
    """Calls a function that may be called again from its beginning. If it is interrupted, as by Ctrl-C, it is done again before the
    interruption goes on, so that what it writes is never half of one state and half of another."""
    try:
        write()
    except Exception:
        raise
    except BaseException:
        write()
        raise


class Malformed(Error, ValueError):
    """The address of a daemon is not one."""

    def __init__(self, address: str, fault: str) -> None:
        super().__init__("INVALID_ARGUMENT", f"'{address[:100]}' is not an address: {fault}", "ADDRESS_MALFORMED", "address")
        self.address, self.fault = address, fault

    def __reduce__(self) -> Any:
        return Malformed, (self.address, self.fault)


def address_of(address: str) -> str:
    """Returns an address as gRPC takes it. Raises Malformed."""
    fault = reach.fault_of(address)
    if fault:
        raise Malformed(address, fault)
    return reach.address_of(address)


class Waiting:
    """Says on the log what is waited for: after a second, once for each cause. doing: the verb, before it is known that a connection
    was lost."""

    def __init__(self, doing: str = "waiting") -> None:
        self.doing, self.since, self.said = doing, time.monotonic(), ""

    def left(self) -> float:
        """Returns how many seconds there are until it would speak."""
        return self.since + SAY_AFTER_S - time.monotonic()

    def failed(self, error: Error) -> None:
        if error.reason == reach.LOST[0]:
            self.doing = "reconnecting"
        if self.left() <= 0 and error.message != self.said:
            self.said = error.message
            log.warning("parley: %s: %s", self.doing, error.message)


class Patience:
    """Decides how long to wait before the next attempt of a call that is safe to repeat, until `seconds` have passed since the first
    failure."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.renew()

    def renew(self) -> None:
        """The call has brought something new: what fails after it is another failure."""
        self.end: float | None = None
        self.delay = 0.05
        self.waiting: Waiting | None = None

    def wait_after(self, error: Error) -> float:
        """Returns how many seconds to wait; raises the error if another attempt is useless or the time is over."""
        passing = (error.code == "UNAVAILABLE" and error.reason not in reach.FINAL or error.code == "RESOURCE_EXHAUSTED" and error.retry_after > 0
                   or error.reason == "MODEL_NOT_FOUND")  # an open conversation whose worker has not reconnected yet
        now = time.monotonic()
        self.end = now + self.seconds if self.end is None else self.end
        delay = min(error.retry_after or self.delay, max(0.0, self.end - now))
        self.delay = min(2 * self.delay, 1.0)
        if not passing or delay <= 0:
            raise error
        self.waiting = self.waiting or Waiting()
        self.waiting.failed(error)
        return min(delay, self.waiting.left() + 0.01) if not error.retry_after and self.waiting.left() > 0 else delay


class Route(Generic[L]):
    """At which of several daemons a conversation is asked for: where it was last, until that daemon is unavailable. Others go on with it
    if they share its database; if they do not know it, nothing has changed."""

    def __init__(self, links: Sequence[L], at: int) -> None:
        self.links, self._home, self._at = links, at, at
        self._why: Error | None = None  # the failure that made it leave

    @property
    def link(self) -> L:
        return self.links[self._at]

    def fork(self) -> Route[L]:
        return Route(self.links, self._at)

    def reached(self) -> None:
        self._home = self._at

    def after(self, error: Error) -> Error:
        """Decides where the next attempt goes. Returns the failure by which it is to be judged."""
        is_away = self._at != self._home
        if len(self.links) == 1 or not (error.code == "UNAVAILABLE" or error.code == "NOT_FOUND" and is_away):
            return error
        self._at = (self._at + 1) % len(self.links)
        if error.code == "UNAVAILABLE":
            self._why = error
        assert self._why is not None
        return self._why


@dataclasses.dataclass(frozen=True)
class Cursor:
    """A place in a reply: after the first `index` tokens of a turn."""

    generation: int
    turn: int
    index: int


class Piece(str):
    """A part of a reply. `cursor` is the place after it. It is None if the agent does not generate tokens: its replies cannot be resumed
    at a piece."""

    cursor: Cursor | None
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]  # as in Reply


@dataclasses.dataclass(frozen=True)
class ToolCall:
    """The model asks for a run of a tool. `arguments` is JSON, as the model wrote it. `idempotency_key` names the call among all calls and
    stays the same wherever the call is told again, so that a tool that knows it does its work once."""

    id: str
    name: str
    arguments: str
    idempotency_key: str


@dataclasses.dataclass(frozen=True)
class Reply:
    """A whole reply. `token_ids` are its tokens, if the agent generates tokens. With `logprobs=n` in the call, `logprobs` has the natural
    log-probability of each token and `top_logprobs` the n likeliest tokens at its place, each as (id, log-probability). They are the
    model's own, at temperature 1 and before penalties, biases and cuts, whatever the reply's temperature was."""

    text: str
    finish_reason: str
    turn: int
    prompt_tokens: int
    completion_tokens: int
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    top_logprobs: tuple[tuple[tuple[int, float], ...], ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()

    def __str__(self) -> str:
        return self.text


def finish_word(value: int) -> str:
    name: str = content_pb2.FinishReason.Name(value)
    return name.removeprefix("FINISH_REASON_").lower()


def tops_of(logprobs: Iterable[content_pb2.TokenLogprob]) -> tuple[tuple[tuple[int, float], ...], ...]:
    return tuple(tuple((t.id, t.logprob) for t in token.top) for token in logprobs)


def reply_of(reply: conversations_pb2.TurnReply) -> Reply:
    return Reply(reply.message.text, finish_word(reply.finish_reason), reply.turn, reply.usage.prompt_tokens, reply.usage.completion_tokens,
                 tuple(reply.token_ids), tuple(token.logprob for token in reply.logprobs), tops_of(reply.logprobs),
                 tuple(ToolCall(c.id, c.name, c.arguments, c.idempotency_key) for c in reply.message.tool_calls))


def tool_of(tool: Mapping[str, Any]) -> content_pb2.Tool:
    if isinstance(tool.get("function"), Mapping) and tool.get("type", "function") == "function":
        raise TypeError("a tool has no 'function': give what is in it, the name, description and parameters")
    parameters = tool.get("parameters", "")
    return message_of(content_pb2.Tool, "a tool", {**tool, "parameters": parameters if isinstance(parameters, str) else json.dumps(parameters)})


def tool_choice_of(choice: str, no_parallel: bool) -> content_pb2.ToolChoice:
    modes = {"": content_pb2.ToolChoice.MODE_AUTO, "auto": content_pb2.ToolChoice.MODE_AUTO, "none": content_pb2.ToolChoice.MODE_NONE,
             "required": content_pb2.ToolChoice.MODE_REQUIRED}
    if choice in modes:
        return content_pb2.ToolChoice(mode=modes[choice], no_parallel=no_parallel)
    return content_pb2.ToolChoice(mode=content_pb2.ToolChoice.MODE_REQUIRED, name=choice, no_parallel=no_parallel)


TURN_OPTIONS = "deadline", "logprobs", "parallel_tool_calls", "tool_choice", "tools"
OPEN_OPTIONS = "metadata", "model", "request_id", "system", "ttl"


def sampling_of(options: Mapping[str, Any], what: str, also: Iterable[str]) -> sampling_pb2.Sampling:
    return message_of(sampling_pb2.Sampling, what, options, also)


Said = str | Iterable[Mapping[str, Any]]


def turn_request(conversation: str, number: int, said: Said, sampling: Mapping[str, Any], observe_only: bool = False,
                 deadline: float = 0) -> conversations_pb2.TurnRequest:
    request = conversations_pb2.TurnRequest(conversation=conversation, turn=number, observe_only=observe_only,
                                            deadline_ms=milliseconds(deadline, "deadline", MAX_LONG_MS))
    if isinstance(said, str):
        request.text = said
    else:
        request.messages.extend(message_of(content_pb2.Message, "a message", message) for message in said)
    options = dict(sampling)
    request.want_logprobs = options.pop("logprobs", 0)
    request.tools.extend(map(tool_of, options.pop("tools", ())))
    choice, is_parallel = options.pop("tool_choice", ""), options.pop("parallel_tool_calls", True)
    if choice or not is_parallel:
        request.tool_choice.CopyFrom(tool_choice_of(choice, not is_parallel))
    if options:
        request.sampling.CopyFrom(sampling_of(options, "a turn", TURN_OPTIONS))
    return request


class TurnProgress:
    """A turn across all its attempts. A broken stream is resumed after the last token that was received; text that was already received
    after that token is then skipped."""

    def __init__(self, request: conversations_pb2.TurnRequest, generation: int, after: Cursor | None = None) -> None:
        self.request, self.generation, self.after = request, generation, after
        self.asked = conversations_pb2.TurnRequest()  # the first attempt's request
        self.asked.CopyFrom(request)
        self.pieces: list[str] = []
        self.token_ids: list[int] = []
        self.logprobs: list[content_pb2.TokenLogprob] = []
        self.behind = ""  # the text received after the place `after`
        self.repeated = 0  # how many characters of `behind` this attempt has repeated
        self.calls: list[content_pb2.ToolCallDelta] = []  # what was received of calls up to the place `after`
        self.calls_behind: list[content_pb2.ToolCallDelta] = []  # and after it: the next attempt repeats that
        self.done: conversations_pb2.TurnDone | None = None

    def next_request(self) -> conversations_pb2.TurnRequest:
        self.repeated, self.calls_behind = 0, []
        if self.after is not None:
            self.request.resume_from.CopyFrom(
                cursor_pb2.Cursor(generation=self.after.generation, turn=self.after.turn, index=self.after.index))
        return self.request

    def fresh(self, text: str) -> str:
        """Returns the part of the text that was not received before."""
        n = min(len(text), len(self.behind) - self.repeated)
        if text[:n] != self.behind[self.repeated:self.repeated + n]:
            raise Error("DATA_LOSS", "the resumed reply differs from the part that was received before: rewind the conversation and repeat the turn")
        self.repeated += n
        return text[n:]

    def take(self, event: conversations_pb2.TurnEvent) -> Piece | None:
        what = event.WhichOneof("event")
        if what == "accepted":
            self.generation = event.accepted.generation
            self.request.turn = event.accepted.turn
        elif what == "done":
            self.done = event.done
        elif what == "piece":
            piece = Piece(self.fresh(event.piece.text))
            piece.cursor, piece.token_ids = None, tuple(event.piece.token_ids)
            piece.logprobs = tuple(token.logprob for token in event.piece.logprobs)
            self.token_ids += event.piece.token_ids
            self.logprobs += event.piece.logprobs
            self.calls_behind += event.piece.tool_calls
            if piece.token_ids:
                self.calls += self.calls_behind
                self.calls_behind = []
                piece.cursor = self.after = Cursor(self.generation, self.request.turn, event.piece.next_index)
                self.behind, self.repeated = "", 0
            else:
                self.behind += piece
                self.repeated += len(piece)
            if piece:
                self.pieces.append(piece)
                return piece
        return None

    def tool_calls(self) -> tuple[ToolCall, ...]:
        calls: dict[int, ToolCall] = {}
        for delta in self.calls + self.calls_behind:
            if delta.id:
                calls[delta.index] = ToolCall(delta.id, delta.name, "", delta.idempotency_key)
            known = calls[delta.index]
            calls[delta.index] = dataclasses.replace(known, arguments=known.arguments + delta.arguments)
        return tuple(dataclasses.replace(c, arguments=c.arguments or "{}") for c in calls.values())

    def reply(self) -> Reply:
        if self.done is None:
            raise RuntimeError("the turn has not ended yet")
        return Reply("".join(self.pieces), finish_word(self.done.finish_reason), self.request.turn,
                     self.done.usage.prompt_tokens, self.done.usage.completion_tokens, tuple(self.token_ids),
                     tuple(token.logprob for token in self.logprobs), tops_of(self.logprobs), self.tool_calls())
