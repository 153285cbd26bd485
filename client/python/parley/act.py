"""Actions of a policy that a daemon serves, for environments that run here.

    >>> import numpy as np
    >>> from parley.act import Act
    >>> with parley.connect(ADDRESS) as server, Act(server, "pole", 8) as act:
    ...     out = act.act(np.zeros((8, 4)))
    ...     out = act.act(np.ones((8, 4)), rewards=np.ones(8), done=np.zeros(8, bool))
    >>> out["action"].shape, out["logp"].dtype
    ((8,), dtype('float32'))

The n environments are n sessions of the policy, whose observations the daemon gathers with those of others into batches. This module
needs numpy."""
from __future__ import annotations

import queue
import secrets
import time
from collections.abc import Sequence
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt

from parley.channel import Link
from parley.client import Server, connect
from parley.exact import exact, finite
from parley.v1 import act_pb2 as pb
from parley.v1 import error_pb2, models_pb2, tensor_pb2
from parley.wire import Error, milliseconds

Array = npt.NDArray[Any]
DTYPES = {tensor_pb2.DTYPE_F32: "<f4", tensor_pb2.DTYPE_F64: "<f8", tensor_pb2.DTYPE_I32: "<i4", tensor_pb2.DTYPE_I64: "<i8",
          tensor_pb2.DTYPE_U8: "u1", tensor_pb2.DTYPE_BOOL: "?"}


def link_of(server: Server | Link | str) -> Link:
    if isinstance(server, Link):
        return server
    return (connect(server) if isinstance(server, str) else server).links[0]


def error_of(detail: error_pb2.ErrorDetail) -> Error:
    code = next(c.name for c in grpc.StatusCode if c.value[0] == detail.code)
    return Error(code, detail.message, detail.reason, detail.field, detail.retry_after_ms / 1000)


class Act:
    """n environments' sessions of a policy, on one stream. Session i is in row i of a lock-step batch. model: or a list of policies, one for
    each session, as of several agents; they have observations of one length. run: sessions of the same run and seed make the same draws
    (None: a random number). Only one thread at a time may use it."""

    def __init__(self, server: Server | Link | str, model: str | Sequence[str], n: int = 1, run: int | None = None) -> None:
        if not isinstance(model, str):
            if n not in (1, len(model)):
                raise ValueError(f"n is {n}, but model has {len(model)} names, one for each session")
            n = len(model)
        if n < 1:
            raise ValueError(f"n is {n}, it must be at least 1")
        self.link, self.model, self.n = link_of(server), model, n
        self.models = [model] * n if isinstance(model, str) else list(model)
        self.run = secrets.randbits(48) if run is None else run
        self.env_ids = self._names()
        self.rows = list(range(n)) if isinstance(model, str) else [self.models[:i].count(name) for i, name in enumerate(self.models)]  # of its policy
        self.params_versions: Array = np.zeros(n, np.uint64)  # that computed the last actions
        self.batch_sizes: Array = np.zeros(n, np.uint32)  # of the batches that they were in
        self._seqs = [0] * n
        self._doubtful: list[pb.ActStepRequest] = []  # a step whose answers were not all read
        self._requests: queue.SimpleQueue[pb.ActStepRequest | None] | None = None
        self._stream: Any = None

    def _names(self) -> list[str]:
        name = secrets.token_hex(8)  # so that nobody else has the same sessions
        return [f"{name}-{i}" for i in range(self.n)]

    def wait(self) -> None:
        """Waits until the policy is ready, for the connection's patience: one that is attached may come after who asks."""
        end = time.monotonic() + self.link.patience
        for name in dict.fromkeys(self.models):
            self._wait_for(name, end)

    def _wait_for(self, name: str, end: float) -> None:
        while True:
            try:
                model = self.link.once("Models/Get", models_pb2.ModelsGetRequest(name=name), models_pb2.Model)
                if model.state == models_pb2.MODEL_STATE_READY:
                    return
                error = Error("UNAVAILABLE", f"the policy '{name}' is not ready: {model.error or models_pb2.ModelState.Name(model.state)}")
            except Error as e:
                if e.code not in ("NOT_FOUND", "UNAVAILABLE"):
                    raise
                error = e
            if time.monotonic() >= end:
                raise error
            time.sleep(0.02)

    def configure(self, mode: str, *, n: int = 0, timeout: float = 0, partial: bool = False, min: int = 0, max: int = 0, delay: float = 0) -> None:
        """Says how the policy's observations, those of all clients, become batches. "auto"; "none": each alone; "lockstep": exactly n, one
        of each row; after timeout seconds (0: none) those that wait fail with ABORTED, or with partial are answered; "dynamic": as soon as
        min wait, at most max, or after delay seconds."""
        kinds = {"auto": pb.ACT_MODE_AUTO, "none": pb.ACT_MODE_NONE, "lockstep": pb.ACT_MODE_LOCKSTEP, "dynamic": pb.ACT_MODE_DYNAMIC}
        if mode not in kinds:
            raise ValueError(f"mode is {mode!r}, it must be one of {', '.join(kinds)}")
        for name in dict.fromkeys(self.models):
            request = pb.ActConfigureRequest(model=name, mode=kinds[mode], n=n, timeout_ms=milliseconds(timeout), min=min, max=max,
                                             on_miss=pb.ACT_ON_MISS_PARTIAL if partial else pb.ACT_ON_MISS_ABORT, delay_us=round(1e6 * delay))
            self.link.call("Act/Configure", request, pb.ActConfigureResponse)

    def act(self, observations: Any, rewards: Any = None, done: Any = None) -> dict[str, Array]:
        """Returns the policy's outputs for one observation of each environment, [n, …] each: "action", and as the policy has them "logp" and
        "value". observations: [n, …], numbers that become float32. rewards: [n], of the previous actions. done: [n], whether an episode
        ended before the observation. If it is interrupted, what it had asked is asked again before the next observations, and counts
        once. If sessions fail, the first one's error is raised; the others have acted."""
        flat = exact("observations", observations, "<f4")
        if flat.ndim < 1 or len(flat) != self.n:
            raise ValueError(f"observations have the shape {flat.shape}, the first dimension must be {self.n}")
        flat = np.ascontiguousarray(flat.reshape(self.n, -1))
        gained = np.zeros(self.n, "<f4") if rewards is None else exact("rewards", finite("rewards", rewards, self.n), "<f4")
        ended = np.zeros(self.n, bool) if done is None else exact("done", done, bool).reshape(self.n)
        if self._doubtful:
            self._ask(self._doubtful)
        self._doubtful = [pb.ActStepRequest(
            model=self.models[i], env_id=env_id, run_id=self.run + i, seq=self._seqs[i] + 1, reward=gained[i], done=ended[i], tag=i, row=self.rows[i],
            observation=[tensor_pb2.Tensor(name="observation", dtype=tensor_pb2.DTYPE_F32, shape=[flat.shape[1]], data=flat[i].tobytes())])
            for i, env_id in enumerate(self.env_ids)]
        answers = self._ask(self._doubtful)
        for answer in answers:
            if answer.HasField("error"):
                error = error_of(answer.error)
                if error.reason == "SEQ_GAP":
                    error.message = "the daemon no longer has these sessions: it was restarted, or they were not used for long. Call reset()"
                raise error
        self.params_versions = np.array([a.params_version for a in answers], np.uint64)
        self.batch_sizes = np.array([a.batch_size for a in answers], np.uint32)
        outputs = [{t.name: np.frombuffer(t.data, DTYPES[t.dtype]).reshape(tuple(t.shape)) for t in a.output} for a in answers]
        kinds = [{name: (a.dtype, a.shape) for name, a in o.items()} for o in outputs]
        for name, kind in zip(self.models, kinds, strict=True):
            if kind != kinds[0]:
                raise ValueError(f"the policies '{self.models[0]}' and '{name}' have other outputs: use an Act for each")
        return {name: np.stack([o[name] for o in outputs]) for name in outputs[0]}

    def _ask(self, requests: list[pb.ActStepRequest]) -> list[pb.ActStepResponse]:
        """Returns the answers in the order of the sessions. The same requests again are answered from what is stored."""
        try:
            if self._stream is None:
                outgoing: queue.SimpleQueue[pb.ActStepRequest | None] = queue.SimpleQueue()
                self._requests = outgoing
                call = self.link.channel.stream_stream("/parley.v1.Act/Stream", pb.ActStepRequest.SerializeToString, pb.ActStepResponse.FromString)
                self._stream = call(iter(outgoing.get, None), metadata=self.link.metadata)
            assert self._requests is not None
            for request in requests:
                self._requests.put(request)
            answers = {answer.tag: answer for answer in (next(self._stream) for _ in requests)}
        except StopIteration:
            self.close()
            raise Error("UNAVAILABLE", "the daemon ended the stream of actions") from None
        except grpc.RpcError as e:
            self.close()
            raise self.link.error_of(e) from None
        except BaseException:
            self.close()  # what was not read goes with the stream
            raise
        found = [answers[request.tag] for request in requests]
        self._seqs = [self._seqs[i] if answer.HasField("error") else requests[i].seq for i, answer in enumerate(found)]
        self._doubtful = []
        return found

    def reset(self, run: int | None = None) -> None:
        """Begins new sessions, with a fresh state and new draws."""
        self.close()
        self.env_ids, self._seqs, self._doubtful = self._names(), [0] * self.n, []
        self.run = self.run + self.n if run is None else run

    def close(self) -> None:
        """Ends the stream. The sessions stay for a while; act opens a new one."""
        if self._requests is not None:
            self._requests.put(None)
        if self._stream is not None:
            self._stream.cancel()
        self._requests = self._stream = None

    def __enter__(self) -> Act:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
