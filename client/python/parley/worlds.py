"""Define your own worlds for the verbs of `parley` that take --world. A world says which participants speak, in which order, and who
hears whom. It is defined by a function that returns it:

    >>> @parley.world("quiz")
    ... def quiz(argument):  # from --world attached:quiz:ARGUMENT, else ""
    ...     return {"participants": [{"name": "asks", "teacher": "attached:sums", "hears": ["answers"]},
    ...                              {"name": "answers", "agent": "attached:words", "hears": ["asks"]},
    ...                              {"name": "watches", "agent": "attached:judge"}]}

    parley.serve(quiz, "127.0.0.1:8001")               # parley eval --world attached:quiz --server 127.0.0.1:8001

The participants speak in the order of the list; parley-parlai(7) describes the fields. The same program may also serve the agents that
the world names.

Or code says who speaks next, who hears it, and when it ends, as in a World of ParlAI. Then the world is a class:

    >>> @parley.world("interview")
    ... class Interview:
    ...     participants = [{"name": "asks", "human": True}, {"name": "answers", "agent": "attached:words"}]
    ...
    ...     def __init__(self, agents, argument):
    ...         self.asks, self.answers = agents  # in their order; also agents["asks"]
    ...         self.turns = 0
    ...
    ...     def parley(self):
    ...         question = self.asks.act()
    ...         self.answers.observe(question)
    ...         self.asks.observe(self.answers.act())
    ...         self.turns += 1
    ...
    ...     def episode_done(self):
    ...         return self.turns == 3

- `participants` may be a function of the argument (a staticmethod). Their fields are those of a function's world, without `hears`.
- `parley` may be a coroutine: then `act` is awaited. It may do all that Python does; an act is a dict of ParlAI's fields, and a text is
  one, too.
- `episode_done` is optional: without it, an episode ends when an act of the last parley has `episode_done`. The next episode is another
  instance. Where there is no teacher and no human, the first episode is the only one. `epoch_done` is optional: if it is true after a
  parley, its conversation is over; others of the verb (`-bs`) go on.
- Each conversation of the verb (`-bs`) has its own instance, in a thread of its own.
- If the worker is lost, another one calls the same methods again, with the same acts. They must then do the same: let random numbers
  follow from the argument or from the acts."""
from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import json
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from parley.agents import Worker, agent
from parley.keywords import checked, named
from parley.troupe import plain, spec_of
from parley.wire import Error

Graph = Callable[[str], Mapping[str, Any]]
Act = Mapping[str, Any]


class Left(BaseException):
    """Ends a world's code, whose conversation is over."""


class Participant:
    """A participant, as parley() sees it."""

    def __init__(self, script: Script, name: str) -> None:
        self.name = name
        self._script = script
        self.said: Act | None = None  # its last act, as it was

    def act(self) -> Any:
        """Has it speak, and returns what it says: a dict. In a coroutine the result is awaited."""
        return self._script.ask(self)

    def observe(self, act: Act | str) -> None:
        """Lets it hear an act: one that another has said, or one of your own."""
        self._script.tell(self, {"text": act} if isinstance(act, str) else act)


class Participants:
    """All participants of a world, by place or by name."""

    def __init__(self, all: list[Participant]) -> None:
        self._all = all

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Participant]:
        return iter(self._all)

    def __getitem__(self, key: int | str) -> Participant:
        if isinstance(key, int):
            return self._all[key]
        for one in self._all:
            if one.name == key:
                return one
        raise KeyError(key)


def described(cls: Any, argument: str) -> dict[str, Any]:
    """Returns the world of a class as the verb reads it."""
    participants = getattr(cls, "participants", None)
    if callable(participants):
        participants = participants(argument)
    if not isinstance(participants, (list, tuple)):
        raise TypeError(f"{cls.__name__}.participants is {participants!r}, it must be a list of dicts, or a function that returns one")
    more = {key: getattr(cls, key) for key in ("names", "rounds") if hasattr(cls, key)}
    return {"participants": list(participants), "scripted": True, **more}


class Script:
    """An episode of a world. Its code runs in a thread, and stops where it asks a participant until the answer is there."""

    def __init__(self, cls: Any, argument: str, is_whole: bool) -> None:
        self.cls, self.argument, self.is_whole = cls, argument, is_whole
        self.answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.orders: queue.SimpleQueue[str | BaseException] = queue.SimpleQueue()
        self.heard: list[list[Any]] = []  # since the last order
        self.own: list[str] = []  # acts of the code's own among them
        self.acts: list[Act] = []  # of this parley
        self.has_left = False
        self.loop = asyncio.new_event_loop() if inspect.iscoroutinefunction(cls.parley) else None
        self.one_asks = asyncio.Lock()
        self.awaited: asyncio.Future[Any] | None = None  # the answer to a coroutine
        self.everybody = Participants([Participant(self, str(one["name"])) for one in described(cls, argument)["participants"]])
        threading.Thread(target=self.run, name="parley-world", daemon=True).start()

    # --- of the worker's thread ---

    def feed(self, message: str) -> str:
        """Gives the code an answer, and returns its next order."""
        self.give(json.loads(message))
        order = self.orders.get()
        if isinstance(order, BaseException):
            self.orders.put(order)  # for whoever asks again
            raise order
        return order

    def give(self, answer: Any) -> None:
        awaited, self.awaited = self.awaited, None
        if awaited is None:
            self.answers.put(answer)
        else:
            awaited.get_loop().call_soon_threadsafe(awaited.set_result, answer)

    def leave(self) -> None:
        self.has_left = True
        self.give(None)

    # --- of the code's thread ---

    def run(self) -> None:
        try:
            self.checked(self.answers.get())
            world, then = self.made(), "parley"
            while then == "parley":
                then = self.parley(world)
                self.order(then)
                if then == "parley":
                    self.checked(self.answers.get())
        except Left:
            pass
        except BaseException as e:  # raised by the code: the turn fails
            self.orders.put(e)
        finally:
            self.orders.put(Error("FAILED_PRECONDITION", "the episode is over"))
            if self.loop is not None:
                self.loop.close()

    def made(self) -> Any:
        given = {"agents": self.everybody, "argument": self.argument}
        takes = inspect.signature(self.cls).parameters
        world = self.cls(**{name: value for name, value in given.items() if name in takes})
        if not hasattr(world, "agents"):
            world.agents = self.everybody
        return world

    def parley(self, world: Any) -> str:
        """Returns what ends with it: the parley alone, the episode, or the world."""
        self.acts = []
        if self.loop is not None:
            self.loop.run_until_complete(world.parley())
        else:
            world.parley()
        if hasattr(world, "epoch_done") and world.epoch_done():
            return "world"
        ended = world.episode_done() if hasattr(world, "episode_done") else any(act.get("episode_done") for act in self.acts)
        return "episode" if ended else "parley"

    def checked(self, answer: Any) -> Any:
        if answer is None or self.has_left:
            raise Left
        return answer

    def order(self, then: str, **more: Any) -> None:
        first = json.dumps({"hears": self.heard, "then": then, **more}, ensure_ascii=False)
        own, self.heard, self.own = self.own, [], []
        self.orders.put("".join(line + "\n" for line in (first, *own)))

    def tell(self, listener: Participant, act: Act) -> None:
        if not isinstance(act, Mapping):
            raise TypeError(f"'{listener.name}' observes {act!r}, it must be an act (a dict) or a text")
        for speaker in () if self.is_whole else self.everybody:
            if speaker.said == act:
                self.heard.append([listener.name, speaker.name])
                return
        self.own.append(json.dumps(dict(act), ensure_ascii=False, default=plain))
        self.heard.append([listener.name, len(self.own) - 1])

    def ask(self, who: Participant) -> Any:
        if self.loop is not None:
            return self.ask_later(who)
        self.order("ask", who=who.name)
        return self.taken(who, self.answers.get())

    async def ask_later(self, who: Participant) -> Act:
        async with self.one_asks:
            if self.has_left:
                raise Left
            awaited = self.awaited = asyncio.get_running_loop().create_future()
            self.order("ask", who=who.name)
            return self.taken(who, await awaited)

    def taken(self, who: Participant, answer: Any) -> Act:
        if self.checked(answer).get("who") != who.name:
            raise run_otherwise()
        who.said = answer["act"]
        act: dict[str, Any] = copy.deepcopy(answer["act"])
        self.acts.append(act)
        return act


def run_otherwise() -> Error:
    return Error("DATA_LOSS", "parley() did something else when it was run again: let random numbers follow from the argument or from the acts")


class Play:
    """A conversation with a worker that serves a world: a verb asks for the world, or plays an episode of it. It has the methods of an
    agent. A copy has what was said so far, and runs the code again if it is used."""

    cls: Any  # of the world; None: a function gives it
    graph: Graph

    def __init__(self, system: str) -> None:
        asked = spec_of(system)
        self.argument = str(asked.get("argument", ""))
        self.is_script = bool(asked.get("script")) and self.cls is not None
        self.is_whole = bool(asked.get("whole"))  # whoever plays it does not know what was said before
        self.messages: list[str] = []  # of this episode; shared with copies, which have the first n
        self.orders: list[str] = []  # what the code answered to them; shared likewise
        self.n = 0
        self.script: Script | None = None
        self.n_fed = 0

    def __deepcopy__(self, memo: Any) -> Play:
        twin = copy.copy(self)
        twin.script, twin.n_fed = None, 0
        return twin

    def __del__(self) -> None:
        if self.script is not None:
            self.script.leave()

    def observe(self, messages: Any) -> None:
        if len(self.messages) > self.n:
            self.messages, self.orders = self.messages[: self.n], self.orders[: self.n]
        self.messages.append(messages[-1].text)
        self.n += 1

    def self_observe(self, order: str) -> None:
        if len(self.orders) < self.n:
            self.orders.append(order)

    def act(self) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self.reply()
        return asyncio.to_thread(self.reply)

    def reply(self) -> str:
        if not self.is_script:
            return json.dumps(self.graph(self.argument), ensure_ascii=False)
        if self.script is None:
            self.script = Script(self.cls, self.argument, self.is_whole)
        order = ""
        while self.n_fed < self.n:
            order = self.script.feed(self.messages[self.n_fed])
            if self.n_fed < len(self.orders) and order != self.orders[self.n_fed]:
                raise run_otherwise()
            self.n_fed += 1
        return order


@checked
def world(name: str, *, version: str = "") -> Callable[[Any], Any]:
    """Declares a function that returns a world, or a class whose parley() says who speaks: an agent for `parley eval --world
    attached:NAME`."""
    named(name, "world")

    def mark(what: Any) -> Any:
        is_class = inspect.isclass(what)
        if is_class and not hasattr(what, "parley"):
            raise TypeError(f"{what.__name__} has no parley(), which says who speaks")

        @agent(name, version=version, deterministic=True)
        class World(Play):
            cls = what if is_class else None
            graph = staticmethod(functools.partial(described, what)) if is_class else staticmethod(what)

        if not is_class:
            return World
        what.__parley_worker__ = staticmethod(functools.partial(Worker, World))
        return what  # itself, so that another world may inherit from it
    return mark
