"""An agent in the worlds of `parley eval`, `train`, `self-chat` and `interactive`. All clones of a world's thread are a troupe: one
conversation with the daemon, in which each turn is a batch of the world. worlds/verbs/attached_acts.h describes the messages."""
from __future__ import annotations

import asyncio
import copy
import dataclasses
import inspect
import json
from collections.abc import AsyncIterable, Iterable, Mapping
from typing import Any

from parley.v1 import content_pb2, sampling_pb2
from parley.wire import Error


@dataclasses.dataclass
class Heard:
    """What a participant of a world has said. act has all its fields, as ParlAI's Message: text, id, episode_done, labels or eval_labels,
    label_candidates, reward, and any others."""

    act: dict[str, Any]
    role: str = "user"

    @property
    def text(self) -> str:
        return str(self.act.get("text") or "")

    @property
    def name(self) -> str:
        return str(self.act.get("id") or "")


def act_of(message: Any) -> dict[str, Any]:
    """Returns a message that an agent observes as an act, a dict of ParlAI's fields. In a world it is what the participant said; in a chat
    it has the text and, as id, the message's name or role."""
    if isinstance(message, Heard):
        return message.act
    return {"id": message.name or message.role, "text": message.text, "episode_done": False}


@dataclasses.dataclass
class Row:
    """The part of a step that belongs to one conversation; an argument of batch_act."""

    agent: Any
    turn: int
    messages: Any  # a sequence of parley.v1.Message, or of Heard
    sampling: sampling_pb2.Sampling

    @property
    def act(self) -> dict[str, Any]:
        """The last message as an act (act_of)."""
        return act_of(self.messages[-1] if self.messages else content_pb2.Message())


def plain(value: Any) -> Any:
    """For json.dumps: numpy's and torch's numbers and arrays become Python's."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be a field of an act: {value!r}")


def line_of(said: Any) -> str:
    """Returns what an agent said, a text or an act, as a line of JSON."""
    return json.dumps(dict(said) if isinstance(said, Mapping) else {"text": said}, ensure_ascii=False, default=plain)


def whole(said: Any) -> Any:
    """Joins the pieces of a reply."""
    if isinstance(said, str | Mapping):
        return said
    if inspect.iscoroutine(said):
        said.close()
        raise TypeError("act() is a coroutine: serve this agent with parley.aio.serve, not parley.serve")
    if not isinstance(said, Iterable):
        raise TypeError(f"act() returned {said!r}, it must return a text, pieces of one, or an act")
    return "".join(said)


async def whole_later(said: Any) -> Any:
    if inspect.isawaitable(said):
        said = await said
    return "".join([piece async for piece in said]) if isinstance(said, AsyncIterable) else whole(said)


def is_later(cls: Any) -> bool:
    act = getattr(cls, "act", None)
    return inspect.iscoroutinefunction(act) or inspect.isasyncgenfunction(act)


def asked_of(system: str) -> dict[str, Any] | None:
    """Returns what a world's system prompt says of its conversation; None: it is a chat's."""
    if not system.startswith('{"parley.world"'):
        return None
    try:
        asked = json.loads(system)["parley.world"]
    except (ValueError, RecursionError):  # any client may write it
        return None
    return asked if isinstance(asked, dict) else None


def spec_of(system: str) -> dict[str, Any]:
    """Returns what a verb says of a data set or a world; empty: it is a chat's, or another client's."""
    try:
        asked = json.loads(system or "{}")
    except (ValueError, RecursionError):
        return {}
    return asked if isinstance(asked, dict) else {}


class Troupe:
    """The clones of a world's thread. It has the methods of an agent, so that a Worker can have it in the place of one. Any client of the
    daemon may open such a conversation: what changes the class, or files, is refused unless `may_learn`."""

    def __init__(self, cls: Any, asked: dict[str, Any], may_learn: bool) -> None:
        self.cls, self.asked, self.may_learn = cls, asked, may_learn
        self.agents: dict[int, Any] = {}
        self.order: dict[str, Any] = {}
        self.rows: list[dict[str, Any]] = []  # of the batch that was observed last

    def __deepcopy__(self, memo: Any) -> Troupe:
        twin = copy.copy(self)
        twin.agents = dict(self.agents)  # no agent in it changes: observe replaces those of a batch
        return twin

    def observe(self, messages: Any) -> None:
        order, *rows = messages[-1].text.split("\n")
        self.order, self.rows = json.loads(order), [json.loads(row) for row in rows]
        self.check()
        for clone in self.order.get("closed", ()):
            self.agents.pop(clone, None)
        for row in self.rows:
            row["messages"] = [Heard(act) for act in row["heard"]]
            self.agents[row["clone"]] = agent = self.clone_of(row)
            agent.observe(row["messages"])

    def check(self) -> None:
        """Before any agent has seen the batch."""
        if self.may_learn:
            return
        acts = [act for row in self.rows for heard in (row["heard"], *(turn[0] for turn in row.get("past", ()))) for act in heard]
        if self.order.get("do") in ("save", "load") or any("labels" in act for act in acts):
            raise Error("FAILED_PRECONDITION", "it is not served to learn, save or load: serve it with parley.serve(…, worlds=True), "
                                               "or evaluate it with -dt train:evalmode, valid or test, which show eval_labels")

    def replay(self, messages: Any, reply: str) -> None:
        """Takes a turn that another worker had. A turn that this worker must not take, or that no world has written, loses the clones:
        a world then tells their episodes again."""
        try:
            self.observe(messages)
            self.self_observe(reply)
        except Exception:
            self.agents.clear()

    def clone_of(self, row: Mapping[str, Any]) -> Any:
        """Returns a row's agent as it was before the batch."""
        if not row.get("fresh"):
            if row["clone"] not in self.agents:
                raise Error("DATA_LOSS", f"clone {row['clone']} is not here")  # another worker had it: its episode is told again
            return copy.deepcopy(self.agents[row["clone"]])
        system = self.asked.get("system") or ""
        agent = self.cls(system=system) if "system" in inspect.signature(self.cls).parameters else self.cls()
        for heard, reply in row.get("past", ()):
            agent.observe([Heard(act) for act in heard])
            self.tell(agent, reply)
        return agent

    @staticmethod
    def tell(agent: Any, reply: Mapping[str, Any]) -> None:
        if hasattr(agent, "self_observe"):
            agent.self_observe(str(reply.get("text") or ""))

    def act(self) -> Any:
        what = self.order.get("do")
        if what == "begin":
            return json.dumps({"parley.world": 1, "rows": self.cls.__parley_offer__["max_rows"]})
        if what in ("save", "load"):
            method = getattr(self.cls, f"{what}_model", None)
            if method is not None:
                method(self.order.get("path", ""))
            return "{}"
        if hasattr(self.cls, "batch_act"):
            return "\n".join(map(line_of, map(whole, self.batch())))
        if is_later(self.cls):
            return self.act_later()
        return "\n".join(line_of(whole(self.agents[row["clone"]].act())) for row in self.rows)

    async def act_later(self) -> str:
        return "\n".join(map(line_of, await asyncio.gather(*(whole_later(self.agents[row["clone"]].act()) for row in self.rows))))

    def batch(self) -> list[Any]:
        said = list(self.cls.batch_act([Row(self.agents[row["clone"]], row["turn"], row["messages"], self.sampling_of(row)) for row in self.rows]))
        if len(said) != len(self.rows):
            raise ValueError(f"batch_act returned {len(said)} replies to {len(self.rows)} rows, it must return one reply for each row")
        return said

    def sampling_of(self, row: Mapping[str, Any]) -> sampling_pb2.Sampling:
        sampling = sampling_pb2.Sampling(temperature=self.asked.get("temperature", 0), seed=row["seed"])
        if self.asked.get("max_tokens"):
            sampling.max_tokens = self.asked["max_tokens"]
        return sampling

    def self_observe(self, reply: str) -> None:
        if self.order.get("do") == "act":
            for row, line in zip(self.rows, reply.split("\n"), strict=True):
                self.tell(self.agents[row["clone"]], json.loads(line))

    def save(self) -> bytes:
        return b""  # a world tells its episodes again

    def restore(self, state: bytes) -> None:
        pass
