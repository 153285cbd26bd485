"""Define your own teachers: data sets for the verbs of `parley` that run agents over data. A teacher is a function that yields episodes:

    >>> @parley.teacher("sums")
    ... def sums(fold, argument):  # fold: "train", "valid" or "test"; argument: from attached:sums:ARGUMENT, else ""
    ...     for a in range(100):
    ...         yield [(f"{a} and 1?", str(a + 1)), ("And one more?", str(a + 2))]

    parley.serve(sums, "127.0.0.1:8001")           # parley eval -t attached:sums --server 127.0.0.1:8001

It may also return a map-style data set, an object with `__len__` and `__getitem__` such as torch's, whose items are episodes. If it
has `collate`, up to 32 items that follow each other are passed to it as a list, and what it returns are the episodes. With
`parley.aio.serve` it may be an async generator. An episode is a list of turns, or one turn. A turn is (text, label), (text,
[label, …]), or a dict of ParlAI's fields. The same fold and argument must yield the same episodes each time: then, after the loss of a
worker, no example is missing or repeated.

A teacher sees the replies if it has metrics of its own: `@parley.teacher("sums", evaluate=polite)`, where

    >>> def polite(act, labels, reply):  # ParlAI's custom_evaluation
    ...     return {"polite": "please" in reply["text"]}

A number is averaged over the replies; [sum, n] is an average of n values; {"sum": x}, {"fixed": x}, {"ppl": [nats, tokens]} and
{"timer": [x, from, to]} are ParlAI's other metrics. An agent's reply may have such `metrics`, too."""
from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Mapping
from typing import Any, TypeVar, cast

from parley.agents import agent
from parley.keywords import checked, named
from parley.troupe import plain, spec_of

T = TypeVar("T")
Episodes = Callable[[str, str], Iterable[Any]] | Callable[[str, str], AsyncIterable[Any]]
Evaluate = Callable[[dict[str, Any], list[str], dict[str, Any]], Mapping[str, Any]]
COLLATED = 32  # items of a map-style data set that are collated together
CHUNK_BYTES = 1 << 17  # target size of a reply; a larger episode makes a larger reply


def turn_of(turn: Any) -> dict[str, Any]:
    if isinstance(turn, Mapping):
        return dict(turn)
    text, labels = turn
    return {"text": text, "labels": [labels] if isinstance(labels, str) else list(labels)}


def lines_of(episode: Any) -> str:
    """Returns the episode as JSON lines; the last line has episode_done."""
    turns = [turn_of(turn) for turn in (episode if isinstance(episode, list) else [episode])]
    if not turns:
        return ""
    for i, turn in enumerate(turns):
        turn["episode_done"] = i + 1 == len(turns)
    return "".join(json.dumps(turn, ensure_ascii=False) + "\n" for turn in turns)


def in_order(episodes: Any) -> Iterable[Any]:
    """A map-style data set is read by its indices: one of torch's need not end otherwise."""
    if not (hasattr(episodes, "__getitem__") and hasattr(episodes, "__len__")):
        return cast("Iterable[Any]", episodes)
    n = len(episodes)
    if not hasattr(episodes, "collate"):
        return (episodes[i] for i in range(n))
    parts = (range(i, min(i + COLLATED, n)) for i in range(0, n, COLLATED))
    return (episode for part in parts for episode in episodes.collate([episodes[i] for i in part]))


async def all_lines(episodes: Iterable[Any] | AsyncIterable[Any]) -> AsyncIterator[str]:
    if isinstance(episodes, AsyncIterable):
        async for episode in episodes:
            if lines := lines_of(episode):
                yield lines
    else:
        for lines in filter(None, map(lines_of, in_order(episodes))):
            yield lines


class Pass:
    """One pass over the episodes of a fold and an argument. Teacher instances share it: each continues where the last one stopped."""

    def __init__(self, episodes: Episodes, fold: str, argument: str) -> None:
        self.source = all_lines(episodes(fold, argument))
        self.at = 0
        self.kept, self.kept_from = "", -1  # the last chunk and the index of its first episode: a repeated turn needs it again

    async def chunk(self, at: int) -> str:
        """Returns the next episodes after the first `at`, as JSON lines."""
        if at == self.kept_from:
            return self.kept
        while self.at < at and await anext(self.source, None) is not None:
            self.at += 1
        lines: list[str] = []
        size = 0
        while size < CHUNK_BYTES and (episode := await anext(self.source, None)) is not None:
            lines.append(episode)
            size += len(episode)
        self.kept, self.kept_from = "".join(lines), at
        self.at += len(lines)
        return self.kept


def at_once(what: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never suspends, without an event loop, and returns its result."""
    try:
        what.send(None)
    except StopIteration as e:
        result: T = e.value
        return result
    raise RuntimeError("the teacher awaits something: serve it with parley.aio.serve, not parley.serve")


def judged(evaluate: Evaluate, lines: str) -> str:
    """Returns the metrics of each line's reply, on a line each."""
    def metrics(line: str) -> str:
        one = json.loads(line)
        found = evaluate(one["act"], one["labels"], one["reply"])
        return json.dumps({name: float(x) if isinstance(x, bool) else x for name, x in (found or {}).items()}, ensure_ascii=False, default=plain)

    return "\n".join(metrics(line) for line in lines.split("\n") if line)


@checked
def teacher(name: str, *, version: str = "", evaluate: Evaluate | None = None) -> Callable[[Episodes], Any]:
    """Declares a function that yields episodes as a teacher: an agent whose replies are data, for `parley eval -t attached:NAME`. evaluate:
    returns metrics of a reply to an act with labels."""
    named(name, "teacher")

    def mark(episodes: Episodes) -> Any:
        passes: dict[tuple[str, str], Pass] = {}  # the few most recently used

        @agent(name, version=version, deterministic=True)
        class Teacher:
            def __init__(self, system: str) -> None:
                asked = spec_of(system)
                self.key = str(asked.get("fold", "train")), str(asked.get("argument", ""))
                self.at = asked["from"] if isinstance(asked.get("from"), int) else 0
                self.judges, self.asked = bool(asked.get("evaluate")), ""

            def observe(self, messages: Any) -> None:
                self.asked = messages[-1].text  # "next", if it does not judge

            def act(self) -> Any:
                if self.judges and self.asked == "begin":
                    return json.dumps({"parley.evaluate": evaluate is not None})
                if self.judges and evaluate is not None:
                    return judged(evaluate, self.asked)
                return self.next() if inspect.isasyncgenfunction(episodes) else at_once(self.next())

            async def next(self) -> str:
                one = passes.pop(self.key, None)
                if one is None or one.at > self.at and one.kept_from != self.at:
                    one = Pass(episodes, *self.key)  # from the beginning
                chunk = await one.chunk(self.at)
                passes[self.key] = one
                while len(passes) > 4:
                    del passes[next(iter(passes))]
                return chunk

            def self_observe(self, reply: str) -> None:
                if not self.judges:
                    self.at += sum(json.loads(line)["episode_done"] for line in reply.split("\n") if line)

        return Teacher
    return mark
