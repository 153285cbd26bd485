"""Teachers of your own: data for the verbs of `parley` that run agents over data sets. A function that yields episodes is one:

    @parley.teacher("sums")
    def sums(fold, argument):                      # "train", "valid" or "test"; of the task attached:sums:ARGUMENT, else ""
        for a in range(100):
            yield [(f"{a} and 1?", str(a + 1)), ("And one more?", str(a + 2))]

    parley.serve(sums, "127.0.0.1:8001")           # parley eval -t attached:sums --server 127.0.0.1:8001

An episode is a list of turns, or one turn. A turn is (text, label), (text, [label, …]), or a dict of ParlAI's fields. The same fold and
argument are to give the same episodes each time: then no example is lost or comes twice when a worker is lost."""
from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from parley.agents import agent

Episodes = Callable[[str, str], Iterable[Any]]
CHUNK_BYTES = 1 << 17  # of a reply, unless an episode is larger


def turn_of(turn: Any) -> dict[str, Any]:
    if isinstance(turn, Mapping):
        return dict(turn)
    text, labels = turn
    return {"text": text, "labels": [labels] if isinstance(labels, str) else list(labels)}


def lines_of(episode: Any) -> str:
    """JSON lines, the last of which ends the episode."""
    turns = [turn_of(turn) for turn in (episode if isinstance(episode, list) else [episode])]
    if not turns:
        return ""
    for i, turn in enumerate(turns):
        turn["episode_done"] = i + 1 == len(turns)
    return "".join(json.dumps(turn, ensure_ascii=False) + "\n" for turn in turns)


class Pass:
    """The episodes of a fold and an argument from one on; those who are asked for the next of them go on where the last one was."""

    def __init__(self, episodes: Episodes, fold: str, argument: str) -> None:
        self.source: Iterator[str] = filter(None, map(lines_of, episodes(fold, argument)))
        self.at = 0
        self.kept, self.kept_from = "", -1  # the last chunk, and where it began: a turn may be asked for again

    def chunk(self, at: int) -> str:
        """The whole episodes behind the first `at`."""
        if at == self.kept_from:
            return self.kept
        while self.at < at and next(self.source, None) is not None:
            self.at += 1
        lines: list[str] = []
        size = 0
        while size < CHUNK_BYTES and (episode := next(self.source, None)) is not None:
            lines.append(episode)
            size += len(episode)
        self.kept, self.kept_from = "".join(lines), at
        self.at += len(lines)
        return self.kept


def teacher(name: str, *, version: str = "") -> Callable[[Episodes], Any]:
    """Makes an agent of a function that yields episodes: one whose replies are data, as `parley eval -t attached:NAME` takes them."""
    def mark(episodes: Episodes) -> Any:
        passes: dict[tuple[str, str], Pass] = {}  # the newest few

        @agent(name, version=version, deterministic=True)
        class Teacher:
            def __init__(self, system: str) -> None:
                asked = json.loads(system or "{}")
                self.key = asked.get("fold", "train"), asked.get("argument", "")
                self.at = int(asked.get("from", 0))

            def observe(self, messages: Any) -> None:
                pass  # "next"

            def act(self) -> str:
                one = passes.pop(self.key, None)
                if one is None or one.at > self.at and one.kept_from != self.at:
                    one = Pass(episodes, *self.key)  # from the beginning
                chunk = one.chunk(self.at)
                passes[self.key] = one
                while len(passes) > 4:
                    del passes[next(iter(passes))]
                return chunk

            def self_observe(self, reply: str) -> None:
                self.at += sum(json.loads(line)["episode_done"] for line in reply.split("\n") if line)

        return Teacher
    return mark
