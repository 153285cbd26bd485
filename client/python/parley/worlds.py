"""Worlds of your own: who speaks, in which order, and who hears whom, for the verbs of `parley` that take --world. A function that
returns one is one:

    @parley.world("quiz")
    def quiz(argument):                                # of --world attached:quiz:ARGUMENT, else ""
        return {"participants": [{"name": "asks", "teacher": "attached:sums", "hears": ["answers"]},
                                 {"name": "answers", "agent": "attached:words", "hears": ["asks"]},
                                 {"name": "watches", "agent": "attached:judge"}]}

    parley.serve(quiz, "127.0.0.1:8001")               # parley eval --world attached:quiz --server 127.0.0.1:8001

The participants speak in their order; parley-parlai(7) has the fields. The agents it names may be attached by the same program."""
from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from parley.agents import agent

Graph = Callable[[str], Mapping[str, Any]]


def world(name: str, *, version: str = "") -> Callable[[Graph], Any]:
    """Makes an agent of a function that returns a world: one whose reply is the world as JSON, as `parley eval --world attached:NAME` takes it."""
    def mark(graph: Graph) -> Any:
        @agent(name, version=version, deterministic=True)
        class World:
            def __init__(self, system: str) -> None:
                self.argument = str(json.loads(system or "{}").get("argument", ""))

            def observe(self, messages: Any) -> None:
                pass  # "next"

            def act(self) -> str:
                return json.dumps(graph(self.argument), ensure_ascii=False)

        return World
    return mark
