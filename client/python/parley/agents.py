"""Define your own agents. An agent is a class with the methods below; each conversation has its own instance:

    observe(messages)    receives the new messages of a turn; each message has .role and .text
    act()                returns the reply: a text, or an iterator of pieces; with parley.aio.serve also a coroutine or async generator
    self_observe(reply)  optional: receives the reply that the agent has given
    save(), restore(state)  optional: return and load the state as bytes; without them, a new worker replays all turns
    batch_act(rows)      optional classmethod or staticmethod, used in place of act: returns the replies to all rows of a step, in order
    save_model(path), load_model(path)  optional classmethods: `parley train` has the agent save and load what it has learned

In a world of `parley eval` or `train`, a batch of the world is one step. There `parley.act_of(message)`, or `row.act`, is a dict of
ParlAI's fields: labels, label_candidates, reward, and any others. A reply may be such a dict, too, with text_candidates, metrics, or
fields of your own; a chat gets its text. With `parley.serve(…, worlds=True)`, `parley train -m attached:NAME` lets it learn from rows
that have labels, and has it save and load.

What an agent raises ends its turn: the client gets the exception's type and text, and the worker prints the trace on stderr. A
`parley.Error` is meant for the client, and prints none.

`__init__` may take `system`, the system prompt. After a worker is lost, another worker replays the turns through observe and
self_observe, without act. act must therefore not change state that a later turn needs. The instance is copied before each turn, so
that a failed turn can be undone. Keep weights and other large objects in the class or the module, where they are not copied."""
from __future__ import annotations

import asyncio
import copy
import dataclasses
import inspect
import queue
import reprlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import grpc

from parley import reach, wire
from parley.environments import Host, is_environment
from parley.exits import Ending
from parley.keywords import checked, named
from parley.tidings import Tidings, told
from parley.troupe import Row, Troupe, asked_of
from parley.v1 import agents_pb2 as pb
from parley.v1 import error_pb2
from parley.wire import Error

C = TypeVar("C", bound=type)
GRPC_INTERNAL = 13
END = object()  # after the last piece of a reply


@checked
def agent(name: str, *, version: str = "", rows: int = 0, deterministic: bool = False, save_every: int = 0) -> Callable[[C], C]:
    """Declares a class as an agent: `@parley.agent("words")`. rows: the maximum number of rows in a step (0: 64). deterministic: the
    same messages always give the same reply, so that the daemon may run a turn again after a part of its reply was sent."""
    named(name, "agent")

    def mark(what: C) -> C:
        what.__parley_offer__ = {"name": name, "version": version, "max_rows": rows, "save_every": save_every}  # type: ignore[attr-defined]
        what.__parley_deterministic__ = deterministic  # type: ignore[attr-defined]
        return what
    return mark


@dataclasses.dataclass
class Clone:
    """An agent after `turns` turns. During a turn, `before` is a copy of the agent from before the turn, `parts` is what was not sent yet
    of a piece that was too long for one message, and `rest` iterates over the pieces behind it."""

    agent: Any
    turns: int
    before: Any = None
    rest: Any = None
    said: str = ""
    parts: list[str] = dataclasses.field(default_factory=list)


class Unfit:
    """In the place of an agent that could not be made, restored, told what was said before, or copied: each of its turns fails with why."""

    def __init__(self, why: Exception) -> None:
        self.why, self.trace = why, why.__traceback__

    def __deepcopy__(self, memo: Any) -> Unfit:
        return self

    def observe(self, messages: Any) -> None:
        raise self.why.with_traceback(self.trace)

    def save(self) -> bytes:
        raise self.why.with_traceback(self.trace)


def copied(agent: Any) -> Any:
    try:
        return copy.deepcopy(agent)
    except Exception as e:
        raise TypeError(f"{type(agent).__name__} cannot be copied, which is done before each turn: {e}; keep what cannot be copied in the class or "
                        "the module") from e


def checked_agent(cls: Any) -> None:
    """Refuses what could not answer a turn, before it is offered."""
    if inspect.isfunction(cls) and hasattr(cls, "__parley_offer__"):
        raise TypeError(f"{cls.__name__} is a function: an agent is a class with observe(self, messages) and act(self)")
    if not isinstance(cls, type) and hasattr(cls, "__parley_offer__"):
        raise TypeError(f"serve the class {type(cls).__name__}, not an instance of it: each conversation has an instance of its own")
    if not hasattr(cls, "__parley_offer__"):
        raise TypeError(f"{cls!r} is not an agent: decorate it with @parley.agent(NAME)")
    if not hasattr(cls, "observe"):
        raise TypeError(f"{cls.__name__} has no observe(self, messages), which receives what is said")
    if not hasattr(cls, "act") and not hasattr(cls, "batch_act"):
        raise TypeError(f"{cls.__name__} has no act(self), which returns the reply, and no batch_act(rows)")
    if inspect.isfunction(inspect.getattr_static(cls, "batch_act", None)):
        raise TypeError(f"{cls.__name__}.batch_act has no instance: write @staticmethod above it, and batch_act(rows)")
    if inspect.iscoroutinefunction(cls.observe):
        raise TypeError(f"{cls.__name__}.observe is a coroutine: only act may be one")


def text_of(piece: Any) -> str:
    if isinstance(piece, str):
        return piece
    raise TypeError(f"act() yielded {reprlib.repr(piece)}: it must yield texts")


class Worker:
    """Carries out the daemon's orders; independent of the transport."""

    def __init__(self, cls: Any, name: str, worlds: bool = False) -> None:
        checked_agent(cls)
        self.cls, self.name, self.worlds, self.piece_bytes = cls, name, worlds, 65536
        self.clones: dict[int, Clone] = {}
        self.takes_system = "system" in inspect.signature(cls).parameters

    def offer(self) -> pb.AgentsAttachRequest:
        offer = pb.AgentOffer(**self.cls.__parley_offer__)
        offer.name = self.name = self.name or offer.name
        offer.capabilities.append(pb.AGENT_CAPABILITY_FORK)
        if hasattr(self.cls, "save"):
            offer.capabilities.append(pb.AGENT_CAPABILITY_SAVE)
        if self.cls.__parley_deterministic__:
            offer.capabilities.append(pb.AGENT_CAPABILITY_DETERMINISTIC)
        return pb.AgentsAttachRequest(offer=offer)

    def take(self, order: pb.AgentsAttachResponse) -> pb.AgentsAttachRequest | None:
        what = order.WhichOneof("what")
        if what == "step":
            return self.step(order.step)
        if what == "accepted":
            self.piece_bytes = order.accepted.max_piece_bytes
        elif what == "open":
            self.clones[order.open.clone] = Clone(self.fit(lambda: self.opened(order.open)), order.open.turn)
        elif what == "replay":
            self.replay(self.clones[order.replay.clone], order.replay)
        elif what == "fork":
            parent = self.clones[order.fork.parent]
            source = parent.agent if parent.before is None else parent.before
            self.clones[order.fork.clone] = Clone(self.fit(lambda: copied(source)), order.fork.at_turn)
        elif what == "close":
            self.clones.pop(order.close.clone, None)
        elif what == "save":
            return self.saved(order.save.clone)
        return None  # a cancel order needs no action

    def saved(self, name: int) -> pb.AgentsAttachRequest | None:
        """Returns a clone's state; None if it cannot be saved: another worker then gets the turns again."""
        clone = self.clones[name]
        try:
            state = (clone.agent if clone.before is None else clone.before).save()
            return pb.AgentsAttachRequest(state=pb.AgentState(clone=name, state=state))
        except Exception as e:
            told(self.name, e)
            return None

    @staticmethod
    def fit(make: Callable[[], Any]) -> Any:
        """Returns what make returns. Only the conversation that needs it fails if it raises, not the worker."""
        try:
            return make()
        except Exception as e:
            return Unfit(e)

    def opened(self, order: pb.AgentCloneOpen) -> Any:
        made = self.made(order.system)
        if order.has_state:
            made.restore(order.state)
        return made

    def made(self, system: str) -> Any:
        asked = asked_of(system)
        if asked is not None:
            return Troupe(self.cls, asked, self.worlds)
        return self.cls(system=system) if self.takes_system else self.cls()

    def replay(self, clone: Clone, turn: pb.AgentCloneReplay) -> None:
        if isinstance(clone.agent, Troupe):
            clone.agent.replay(turn.messages, turn.reply)
            clone.turns += 1
        elif isinstance(clone.agent, Unfit):
            clone.turns += 1
        else:
            try:
                clone.agent.observe(turn.messages)
                self.end(clone, turn.reply)
            except Exception as e:
                clone.agent, clone.turns = Unfit(e), clone.turns + 1

    def end(self, clone: Clone, reply: str) -> None:
        if hasattr(clone.agent, "self_observe"):
            clone.agent.self_observe(reply)
        clone.turns += 1
        clone.before, clone.rest, clone.said, clone.parts = None, None, "", []

    def begin(self, row: pb.AgentRow) -> None:
        clone = self.clones[row.clone]
        clone.before = copied(clone.agent)
        clone.agent.observe(row.messages)

    def failed(self, row: pb.AgentRow, e: BaseException) -> pb.AgentRowResult:
        clone = self.clones.get(row.clone)
        if clone is not None and clone.before is not None:
            clone.agent, clone.before, clone.rest, clone.said, clone.parts = clone.before, None, None, "", []
        if isinstance(e, Error):
            code = getattr(grpc.StatusCode, e.code, grpc.StatusCode.INTERNAL).value[0]
            detail = error_pb2.ErrorDetail(code=code, message=e.message)
        else:
            detail = error_pb2.ErrorDetail(code=GRPC_INTERNAL, message=told(self.name, e))
        return pb.AgentRowResult(row=row.row, outcome=pb.AGENT_ROW_OUTCOME_FAILED, error=detail)

    def piece(self, row: pb.AgentRow, clone: Clone, text: Any) -> pb.AgentRowResult:
        """text: what was yielded, or END."""
        result = pb.AgentRowResult(row=row.row, outcome=pb.AGENT_ROW_OUTCOME_MORE)
        if text is END:
            result.outcome = pb.AGENT_ROW_OUTCOME_DONE
            self.end(clone, clone.said)
        else:
            result.text, *rest = self.parted(text_of(text))
            clone.parts = rest or clone.parts
            clone.said += result.text
        return result

    @staticmethod
    def next_piece(clone: Clone) -> Any:
        return clone.parts.pop(0) if clone.parts else next(clone.rest, END)

    def parted(self, text: str) -> list[str]:
        """Returns the text as pieces that a message can have, one at least."""
        if len(text) <= self.piece_bytes // 4 or len(text.encode()) <= self.piece_bytes:
            return [text]
        size = self.piece_bytes // 4  # characters; each takes at most four bytes
        return [text[at:at + size] for at in range(0, len(text), size)]

    def whole(self, row: pb.AgentRow, clone: Clone, reply: str) -> pb.AgentRowResult:
        first, *rest = self.parted(reply)
        if rest:
            clone.rest = iter(rest)
            return self.piece(row, clone, first)
        self.end(clone, reply)
        return pb.AgentRowResult(row=row.row, text=reply, outcome=pb.AGENT_ROW_OUTCOME_DONE)

    def reply(self, row: pb.AgentRow, clone: Clone, reply: Any) -> pb.AgentRowResult:
        if isinstance(reply, str):
            return self.whole(row, clone, reply)
        if isinstance(reply, Mapping):  # an act: a chat has no more than its text
            return self.whole(row, clone, str(reply.get("text") or ""))
        if inspect.iscoroutine(reply):
            reply.close()
            raise TypeError("act() is a coroutine: serve this agent with parley.aio.serve, not parley.serve")
        if isinstance(reply, AsyncIterator):
            raise TypeError("act() is an async generator: serve this agent with parley.aio.serve, not parley.serve")
        if not isinstance(reply, Iterable) or isinstance(reply, bytes):
            raise TypeError(f"act() returned {reprlib.repr(reply)}: it must return a text, or yield pieces of one")
        clone.rest = iter(reply)
        return self.piece(row, clone, next(clone.rest, END))

    def batch(self, rows: Sequence[pb.AgentRow]) -> list[Any]:
        """Returns the replies of batch_act to the rows that have just begun."""
        replies = list(self.cls.batch_act([Row(self.clones[r.clone].agent, r.turn, r.messages, r.sampling) for r in rows]))
        if len(replies) != len(rows):
            raise ValueError(f"batch_act returned {len(replies)} replies to {len(rows)} rows, it must return one reply for each row")
        return replies

    def step(self, step: pb.AgentStep) -> pb.AgentsAttachRequest:
        """Runs the rows of a step one after the other."""
        results, begun = [], list[pb.AgentRow]()
        for row in step.rows:
            try:
                clone = self.clones[row.clone]
                if row.is_continued:
                    results.append(self.piece(row, clone, self.next_piece(clone)))
                    continue
                self.begin(row)
                if hasattr(self.cls, "batch_act") and not isinstance(clone.agent, Troupe):
                    begun.append(row)
                else:
                    results.append(self.reply(row, clone, clone.agent.act()))
            except Exception as e:  # raised by the agent: only this agent's turn fails
                results.append(self.failed(row, e))
        replies: list[Any] = []
        try:
            replies = self.batch(begun) if begun else []
        except Exception as e:
            results.extend(self.failed(row, e) for row in begun)
        for row, reply in zip(begun, replies, strict=False):
            try:
                results.append(self.reply(row, self.clones[row.clone], reply))
            except Exception as e:
                results.append(self.failed(row, e))
        return pb.AgentsAttachRequest(result=pb.AgentStepResult(step=step.step, rows=results))

    async def row_at_once(self, row: pb.AgentRow) -> pb.AgentRowResult:
        try:
            clone = self.clones[row.clone]
            if not row.is_continued:
                self.begin(row)
                reply = clone.agent.act()
                if inspect.isawaitable(reply):
                    reply = await reply
                if not isinstance(reply, AsyncIterator):
                    return self.reply(row, clone, reply)
                clone.rest = reply
            if clone.parts or isinstance(clone.rest, Iterator):
                return self.piece(row, clone, self.next_piece(clone))
            return self.piece(row, clone, await anext(clone.rest, END))
        except Exception as e:
            return self.failed(row, e)

    async def take_at_once(self, order: pb.AgentsAttachResponse) -> pb.AgentsAttachRequest | None:
        """Like take, but runs all rows of a step concurrently."""
        if order.WhichOneof("what") != "step" or hasattr(self.cls, "batch_act"):
            return self.take(order)
        results = await asyncio.gather(*map(self.row_at_once, order.step.rows))
        return pb.AgentsAttachRequest(result=pb.AgentStepResult(step=order.step.step, rows=results))


def worker_of(what: Any, name: str, worlds: bool = False) -> Any:
    """Returns what carries out the daemon's orders: it has offer, take and take_at_once. worlds: as for serve."""
    if hasattr(what, "__parley_worker__"):  # a parley.Policy
        return what.__parley_worker__(name)
    return Host(what, name) if is_environment(what) else Worker(what, name, worlds)


def is_final(error: Error) -> bool:
    """Returns whether attaching again after this error is useless."""
    return error.code != "UNAVAILABLE" or error.message.endswith("was unloaded") or error.reason in reach.FINAL


@checked
def serve(agent: Any, address: str = wire.DEFAULT_ADDRESS, name: str = "", *, key: str | None = None, tls: wire.Tls = None,
          worlds: bool = False) -> None:
    """Runs an agent or an environment for a daemon until the daemon unloads it. When the daemon becomes unreachable, serve reconnects
    until the daemon is back. Several processes that serve the same agent share its conversations.

    worlds: needed by `parley train -m attached:NAME`. A client that may talk to the agent can then train it and have it read and write
    files, by save_model and load_model with any path. Without it, labels, saving and loading are refused."""
    from parley.client import Link

    call: Any = None

    def end() -> None:
        if call is not None:
            call.cancel()

    def attach(ending: Ending) -> None:
        nonlocal call
        link, delay = Link(address, key, tls, 0), 0.05
        tidings = Tidings(link.address)
        method = link.channel.stream_stream("/parley.v1.Agents/Attach", pb.AgentsAttachRequest.SerializeToString,
                                            pb.AgentsAttachResponse.FromString)
        try:
            while True:
                answers: queue.SimpleQueue[pb.AgentsAttachRequest | None] = queue.SimpleQueue()
                worker = worker_of(agent, name, worlds)
                answers.put(tidings.offered(worker.offer()))
                call = method(iter(answers.get, None), metadata=link.metadata)
                try:
                    if ending.is_over.is_set():
                        return
                    for order in call:
                        delay = 0.05
                        tidings.taken(order)
                        answer = worker.take(order)
                        if answer is not None:
                            answers.put(answer)
                except grpc.RpcError as e:
                    if ending.is_over.is_set():
                        return
                    error = link.error_of(e)
                    if is_final(error):
                        raise error from None
                    tidings.failed(error)
                finally:
                    answers.put(None)
                    call.cancel()
                if ending.is_over.wait(delay):
                    return
                delay = min(2 * delay, 1.0)
        finally:
            link.channel.close()

    with Ending(end) as ending:
        attach(ending)
