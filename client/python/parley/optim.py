"""Trains parameters that several processes share. Each process sends its gradient, and the daemon takes one step of the optimiser for
each round of gradients.

    optimizer = parley.optim.RemoteOptimizer(model.parameters(), server, "net", round_size=3, lr=0.1)
    for x, y in mine:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()  # all trainers have the same parameters now

Parameters are torch tensors or numpy arrays; the gradients of numpy arrays are passed to step()."""
from __future__ import annotations

import queue
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import grpc
import numpy as np

from parley import wire
from parley.client import Server, connect
from parley.transfer import Floats, download, frames_of, parse, pull, serialise
from parley.v1 import params_pb2 as pb
from parley.v1 import tensor_pb2
from parley.wire import Error, Patience


def is_torch(parameter: Any) -> bool:
    return not isinstance(parameter, np.ndarray)


def numbers_of(value: Any) -> Floats:
    """Returns the numbers of a tensor or an array as a flat array."""
    if not isinstance(value, np.ndarray):
        value = value.detach().cpu().numpy()
    return np.ascontiguousarray(value, dtype="<f4").reshape(-1)


class RemoteOptimizer:
    """An optimiser of shared parameters. The first trainer creates the parameters with its own values; the other trainers load these
    values. kind: "sgd", "adam" or "adamw". more: fields of ParamsOptimiser (momentum, weight_decay, beta1 …) and of ParamsConfig
    (reduce, schedule, quorum, max_staleness …). The first trainer's options count; those of the others are ignored."""

    def __init__(self, parameters: Iterable[Any], server: Server | str, name: str, *, round_size: int = 1, kind: str = "sgd",
                 lr: float = 0.01, client: str = "", **more: Any) -> None:
        self.parameters: list[Any] = list(parameters)
        if not self.parameters:
            raise ValueError("parameters is empty: pass at least one parameter")
        for p in self.parameters:
            if not is_torch(p) and p.dtype.kind != "f":
                raise TypeError(f"a parameter has the dtype {p.dtype}: parameters must be floating-point arrays")
        self._link = (connect(server) if isinstance(server, str) else server).links[0]
        self.name, self.client, self.version, self.steps = name, client or uuid.uuid4().hex, 0, 0
        self._requests: queue.SimpleQueue[pb.ParamsUpload | bytes | None] | None = None
        self._stream: Any = None
        own = {f.name for f in pb.ParamsOptimiser.DESCRIPTOR.fields}
        optimiser = pb.ParamsOptimiser(kind=f"PARAMS_OPTIMISER_KIND_{kind.upper()}", learning_rate=lr,
                                       **{k: v for k, v in more.items() if k in own})
        specs = [tensor_pb2.TensorSpec(name=str(i), dtype=tensor_pb2.DTYPE_F32, shape=list(p.shape)) for i, p in enumerate(self.parameters)]
        self._create(pb.ParamsConfig(name=name, specs=specs, optimiser=optimiser, round_size=round_size, dedupe=True,
                                     **{k: v for k, v in more.items() if k not in own}))
        self.pull()

    def _create(self, config: pb.ParamsConfig) -> None:
        create = self._link.channel.stream_unary("/parley.v1.Params/Create", serialise, pb.ParamsCreateResponse.FromString)

        def messages() -> Iterator[pb.ParamsCreateRequest | bytes]:
            yield pb.ParamsCreateRequest(config=config)
            yield from frames_of(self._values())

        patience = Patience(self._link.patience)
        while True:
            try:
                create(messages(), metadata=self._link.metadata)
                return
            except grpc.RpcError as e:
                error = wire.error_of(e)
            if error.reason == "PARAMS_EXIST":
                return
            time.sleep(patience.wait_after(error))

    def _values(self) -> Floats:
        return np.concatenate([numbers_of(p) for p in self.parameters])

    def _take(self, version: pb.ParamsVersion, values: Floats) -> None:
        self.version = version.version
        if version.size_bytes == 0:
            return
        at = 0
        for p in self.parameters:
            n = int(np.prod(p.shape))
            part = values[at:at + n].reshape(tuple(p.shape))
            if is_torch(p):
                import torch

                with torch.no_grad():
                    p.copy_(torch.from_numpy(part))
            else:
                p[...] = part
            at += n

    def pull(self) -> int:
        """Loads the newest parameters and returns their version."""
        patience = Patience(self._link.patience)
        while True:
            try:
                self._take(*download(pull(self._link, self.name)))
                return self.version
            except grpc.RpcError as e:
                error = wire.error_of(e)
            if error.reason == "PARAMS_NOT_READY":  # the first trainer is still uploading its values
                error.code = "UNAVAILABLE"
            time.sleep(patience.wait_after(error))

    def zero_grad(self) -> None:
        for p in self.parameters:
            if is_torch(p):
                p.grad = None

    def _gradient(self, gradients: Sequence[Any] | None) -> Floats:
        given = [p.grad for p in self.parameters] if gradients is None else list(gradients)
        if len(given) != len(self.parameters):
            raise ValueError(f"{len(given)} gradients for {len(self.parameters)} parameters: pass one gradient for each parameter")
        parts = []
        for p, g in zip(self.parameters, given):
            if g is not None and tuple(g.shape) != tuple(p.shape):
                raise ValueError(f"a gradient has the shape {tuple(g.shape)}, but its parameter has the shape {tuple(p.shape)}")
            parts.append(np.zeros(int(np.prod(p.shape)), "<f4") if g is None else numbers_of(g))
        return np.concatenate(parts)

    def _upload(self, gradient: Floats) -> Iterator[pb.ParamsUpload | bytes]:
        yield pb.ParamsUpload(header=pb.ParamsUploadHeader(name=self.name, client_id=self.client, step_id=self.steps,
                                                           base_version=self.version))
        yield from frames_of(gradient)

    def step(self, gradients: Sequence[Any] | None = None) -> int:
        """Sends the gradient, waits until its round is complete, loads the new parameters and returns their version. gradients: one for
        each parameter; None: the gradients that torch has computed. After a broken connection the gradient is sent again; the daemon
        counts it once."""
        gradient = self._gradient(gradients)
        self.steps += 1
        patience = Patience(self._link.patience)
        while True:
            try:
                if self._stream is None:
                    self._requests = queue.SimpleQueue()
                    call = self._link.channel.stream_stream("/parley.v1.Params/UpdateAndFetch", serialise, parse)
                    self._stream = call(iter(self._requests.get, None), metadata=self._link.metadata)
                assert self._requests is not None
                for message in self._upload(gradient):
                    self._requests.put(message)
                self._take(*download(self._stream))
                return self.version
            except grpc.RpcError as e:
                error = wire.error_of(e)
            except StopIteration:
                error = Error("UNAVAILABLE", "the daemon ended the stream of gradients")
            self.close()
            if error.reason == "ROUND_GIVEN_UP":
                error.code = "UNAVAILABLE"
            time.sleep(patience.wait_after(error))

    def push(self, gradients: Sequence[Any] | None = None) -> int:
        """Sends the gradient without waiting for its round and returns the newest version. A gradient that is lost on the way is not
        sent again."""
        gradient = self._gradient(gradients)
        self.steps += 1
        call = self._link.channel.stream_unary("/parley.v1.Params/Push", serialise, pb.ParamsPushResponse.FromString)
        try:
            return int(call(self._upload(gradient), metadata=self._link.metadata).version)
        except grpc.RpcError as e:
            raise wire.error_of(e) from None

    def close(self) -> None:
        """Ends the stream; the next step opens a new one."""
        if self._stream is not None:
            assert self._requests is not None
            self._requests.put(None)
            self._stream.cancel()
            self._stream = self._requests = None
