"""Parley from Python.

    >>> with parley.connect(ADDRESS) as server, server.open("echo") as chat:  # ADDRESS: "127.0.0.1:8001", a daemon's
    ...     for piece in chat.turn("What is the capital of Germany?"):
    ...         print(piece, end="", flush=True)
    What is the capital of Germany?

- `parley.aio` is the same client for asyncio.
- `parley.agent`, `parley.teacher`, `parley.world` and `parley.environment` define your own agents, data sets, worlds of participants
  and environments; `parley.serve` connects them to a daemon.
- `parley.language` has replies with log-probabilities, several replies to one prompt, and the log-probabilities of given tokens.
- `parley.optim` trains shared parameters. `parley.OrderedStore` and `parley.PushPullModel` share versioned values and models.
- `parley.Models` lists, loads and unloads models; `parley.Params` lists, watches, stores and deletes shared parameters.
- `parley.Replay` is a replay buffer: actors insert experience and learners sample it.
- `parley.Policy` serves a policy that a torch module or a function of numpy arrays computes; `parley.Act` asks any policy for actions.
- `parley.rooms` has rooms in which people write to each other.
- `parley.gym` trains and runs policies in gymnasium's environments, `parley.rollouts` in environments that run in the daemon,
  which `parley.vector` has as a vector environment of gymnasium.
- `parley.parallel` has pools of processes, and groups whose members call each other's functions."""
import importlib
from typing import TYPE_CHECKING, Any

from parley import _silence as _silence  # before gRPC
from parley import aio, rooms
from parley.agents import agent, serve
from parley.client import Conversation, Server, Turn, connect
from parley.environments import environment
from parley.teachers import teacher
from parley.troupe import Row, act_of
from parley.wire import Cursor, Error, Piece, Reply, ToolCall
from parley.worlds import world

if TYPE_CHECKING:
    from parley.act import Act
    from parley.parallel.futures import Future, collect_all, wait_all
    from parley.policies import Policy
    from parley.replay import Replay
    from parley.served import Models, Params
    from parley.store import OrderedStore, PushPullModel

__all__ = ["Act", "Conversation", "Cursor", "Error", "Future", "Models", "OrderedStore", "Params", "Piece", "Policy", "PushPullModel", "Replay", "Reply", "Row", "Server",
           "ToolCall", "Turn", "act_of", "agent", "aio", "collect_all", "connect", "environment", "rooms", "serve", "teacher", "wait_all", "world"]


LAZY = {"Act": "act", "Future": "parallel.futures", "Models": "served", "OrderedStore": "store", "Params": "served", "Policy": "policies", "PushPullModel": "store",
        "Replay": "replay", "collect_all": "parallel.futures", "wait_all": "parallel.futures"}  # and their modules


def __getattr__(name: str) -> Any:
    """Imports on first use what needs numpy or cloudpickle, so that `import parley` works without them."""
    module = LAZY.get(name)
    if module is not None:
        return getattr(importlib.import_module(f"parley.{module}"), name)
    raise AttributeError(f"module 'parley' has no attribute '{name}'")
