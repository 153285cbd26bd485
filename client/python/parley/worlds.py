"""Define your own worlds for the verbs of `parley` that take --world. A world says which participants speak, in which order, and who
hears whom. It is defined by a function that returns it:

    >>> @parley.world("quiz")
    ... def quiz(argument):  # from --world attached:quiz:ARGUMENT, else ""
    ...     return {"participants": [{"name": "asks", "teacher": "attached:sums", "hears": ["answers"]},
    ...                              {"name": "answers", "agent": "attached:words", "hears": ["asks"]},
    ...                              {"name": "watches", "agent": "attached:judge"}]}

    parley.serve(quiz, "127.0.0.1:8001")               # parley eval --world attached:quiz --server 127.0.0.1:8001

The participants speak in the order of the list; parley-parlai(7) describes the fields. The same program may also serve the agents that
the world names."""
from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from parley.agents import agent
from parley.keywords import checked, named

Graph = Callable[[str], Mapping[str, Any]]


@checked
def world(name: str, *, version: str = "") -> Callable[[Graph], Any]:
    """Declares a function that returns a world: an agent whose reply is the world as JSON, for `parley eval --world attached:NAME`."""
    named(name, "world")

    def mark(graph: Graph) -> Any:
        @agent(name, version=version, deterministic=True)
        class World:
            def __init__(self, system: str) -> None:
                self.argument = str(json.loads(system or "{}").get("argument", ""))

            def observe(self, messages: Any) -> None:
                pass  # the message is always "next"

            def act(self) -> str:
                return json.dumps(graph(self.argument), ensure_ascii=False)

        return World
    return mark
