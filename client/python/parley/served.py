"""What a daemon serves: its models, and the parameters that trainers share in it.

    >>> with parley.connect(ADDRESS) as server:
    ...     models = parley.Models(server)
    ...     models.unload("pole")
    ...     models.load("pole").state
    'ready'

    >>> import numpy as np
    >>> from parley.optim import RemoteOptimizer
    >>> with parley.connect(ADDRESS) as server:
    ...     optimizer = RemoteOptimizer([np.zeros(3)], server, "shared", lr=0.5)
    ...     params = parley.Params(server)
    ...     version = optimizer.step([np.ones(3)])
    ...     [(p.name, p.version, p.size_bytes) for p in params.list() if p.name == "shared"], params.pull("shared")
    ([('shared', 1, 12)], (array([-0.5, -0.5, -0.5], dtype=float32), 1))

The models of several daemons are those of the first; each set of parameters lives at the first, too."""
from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import grpc

from parley import wire
from parley.channel import Link
from parley.client import Server, connect
from parley.v1 import models_pb2, params_pb2
from parley.wire import Error


def link_of(server: Server | str) -> Link:
    return (connect(server) if isinstance(server, str) else server).links[0]


@dataclasses.dataclass(frozen=True)
class Model:
    """state: "unloaded", "loading", "ready", "unloading" or "failed", and then `error` says why. kind: "lm", "policy", "echo", "remote",
    …, "" while it is not known. version: the hash of its content. `message` has all that the daemon says, parley.v1.Model."""

    name: str
    state: str
    kind: str
    version: str
    is_default: bool
    error: str
    message: models_pb2.Model = dataclasses.field(repr=False, compare=False)


def model_of(m: models_pb2.Model) -> Model:
    state = models_pb2.ModelState.Name(m.state).removeprefix("MODEL_STATE_").lower()
    kind = models_pb2.ModelKind.Name(m.kind).removeprefix("MODEL_KIND_").lower() if m.kind else ""
    return Model(m.name, state, kind, m.version, m.is_default, m.error, m)


class Models:
    """The models of a daemon."""

    def __init__(self, server: Server | str) -> None:
        self._link = link_of(server)

    def list(self) -> Sequence[Model]:
        response = self._link.call("Models/List", models_pb2.ModelsListRequest(), models_pb2.ModelsListResponse)
        return tuple(model_of(m) for m in response.models)

    def get(self, name: str = "") -> Model:
        """Returns a model; without a name the default. One that is not loaded is refused with MODEL_NOT_READY."""
        return model_of(self._link.once("Models/Get", models_pb2.ModelsGetRequest(name=name), models_pb2.Model))

    def load(self, name: str) -> Model:
        """Loads one of the models that the daemon was started with, or a file in its --model-dir, and returns once it is loaded. A model
        that is loaded stays as it is."""
        return model_of(self._link.once("Models/Load", models_pb2.ModelsLoadRequest(name=name), models_pb2.Model))

    def unload(self, name: str) -> None:
        """Unloads a model once its requests in flight have ended; its conversations are closed."""
        self._link.once("Models/Unload", models_pb2.ModelsUnloadRequest(name=name), models_pb2.ModelsUnloadResponse)


class Params:
    """The sets of parameters of a daemon; parley.optim.RemoteOptimizer makes them and trains them, and sets the learning rate with each
    gradient (`optimizer.param_groups[0]["lr"]`)."""

    def __init__(self, server: Server | str) -> None:
        self._link = link_of(server)

    def list(self) -> Sequence[params_pb2.ParamsInfo]:
        """Returns each set's name, version, size_bytes, round_size, waiting, rounds, aborted, partial, duplicates, held_bytes, depth and
        dropped (parley.v1.ParamsInfo)."""
        return tuple(self._link.call("Params/List", params_pb2.ParamsListRequest(), params_pb2.ParamsListResponse).params)

    def delete(self, name: str) -> None:
        """Deletes a set, also from the disk; whoever waits for its round or watches it gets NOT_FOUND."""
        self._link.once("Params/Delete", params_pb2.ParamsDeleteRequest(name=name), params_pb2.ParamsDeleteResponse)

    def follow(self, name: str, source: str, tau: float | None = None) -> int:
        """Moves a set by tau times its difference towards another one of the same tensors, as a target network follows what is trained, and
        returns the set's version. A set that is not there is made, as a copy; without tau one that is there stays as it is. The step is
        not asked for again where a connection breaks: it may have been made."""
        if tau is not None and not 0 <= tau <= 1:
            raise wire.Invalid("tau", f"is {tau!r}, it must be from 0 to 1")
        request = params_pb2.ParamsFollowRequest(name=name, source=source)
        if tau is None:
            return int(self._link.call("Params/Follow", request, params_pb2.ParamsFollowResponse).version)
        request.tau = tau
        return int(self._link.once("Params/Follow", request, params_pb2.ParamsFollowResponse).version)

    def watch(self, name: str) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yields the newest version, then each new one: its number, and the clients whose gradients it has. Versions that follow each
        other fast may be left out."""
        stream = self._link.stream("Params/Watch", params_pb2.ParamsWatchRequest(name=name), params_pb2.ParamsVersion)
        try:
            for version in stream:
                yield version.version, tuple(version.contributors)
        except grpc.RpcError as e:
            raise self._link.error_of(e) from None
        finally:
            stream.cancel()

    def pull(self, name: str, if_newer_than: int | None = None) -> tuple[Any, int]:
        """Returns the newest values, all tensors one after the other as float32, and their version. The values are None if the version is
        not newer than if_newer_than. Needs numpy."""
        from parley import transfer

        def attempt() -> tuple[Any, int]:
            stream = transfer.pull(self._link, name, if_newer_than)
            try:
                version, values = transfer.download(stream)
            except StopIteration:
                raise Error("UNAVAILABLE", "the daemon ended the answer before it was complete") from None
            finally:
                stream.cancel()
            return (values if version.size_bytes > 0 else None), version.version

        return self._link.retried(attempt)

    def checkpoint(self, name: str) -> None:
        """Stores the newest version on the daemon's disk (--data), and returns when it would survive a restart."""
        self._link.call("Params/Checkpoint", params_pb2.ParamsCheckpointRequest(name=name), params_pb2.ParamsCheckpointResponse)
