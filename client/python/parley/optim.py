"""Trains parameters that several processes share. Each process sends its gradient, and the daemon takes one step of the optimiser for
each round of gradients.

    >>> import numpy as np
    >>> from parley.optim import RemoteOptimizer
    >>> with parley.connect(ADDRESS) as server:
    ...     weights = [np.zeros(2)]  # or torch's model.parameters()
    ...     optimizer = RemoteOptimizer(weights, server, "net", round_size=1, lr=0.1)  # round_size: as many as there are trainers
    ...     version = optimizer.step([np.ones(2)])  # with torch: zero_grad(), loss.backward(), step()
    ...     version, weights[0].round(3)  # all trainers have the same parameters now
    (1, array([-0.1, -0.1]))

Parameters are torch tensors or numpy arrays; the gradients of numpy arrays are passed to step(). The daemon computes in float32."""
from __future__ import annotations

import collections
import functools
import math
import re
import sys
import types
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from parley import exact, wire
from parley.channel import Dialogue
from parley.client import Server, connect
from parley.memory import opened
from parley.transfer import Floats, Memory, download, frames_of, other_than_chunk, parse, rest_of, serialise
from parley.v1 import params_pb2 as pb
from parley.v1 import tensor_pb2
from parley.wire import Error, Invalid

# The options of each kind: the name here and in torch, its default, and the range of its values.
DECAY: dict[str, tuple[Any, float, float]] = {"weight_decay": (0.0, 0, math.inf)}
KINDS: dict[str, dict[str, tuple[Any, float, float]]] = {
    "sgd": DECAY | {"momentum": (0.0, 0, 1), "dampening": (0.0, 0, 1), "nesterov": (False, 0, 1)},
    "adam": DECAY | {"betas": ((0.9, 0.999), 0, 1), "eps": (1e-8, 0, math.inf)},
    "adamw": DECAY | {"betas": ((0.9, 0.999), 0, 1), "eps": (1e-8, 0, math.inf)},
}
SETTINGS = {f.name for f in pb.ParamsConfig.DESCRIPTOR.fields} - {"name", "specs", "optimiser", "round_size", "dedupe"}
LOCAL = r"unix:.*|localhost:\d+|127\.\d+\.\d+\.\d+:\d+|(ipv6:)?\[::1\]:\d+"  # addresses of daemons on this machine
SHARED_BYTES = 4 << 20  # parameters of this size and more travel in memory that is shared with such a daemon
GRACE_S = 5.0  # how long after its timeout a step waits for the daemon's answer


def is_torch(parameter: Any) -> bool:
    return not isinstance(parameter, np.ndarray)


def place_of(parameter: Any) -> exact.Array:
    """Returns an array in the memory of a parameter. It is not to be read: the memory may be a device's."""
    if not is_torch(parameter):
        return np.asarray(parameter)
    size = parameter.element_size()
    return np.asarray(types.SimpleNamespace(__array_interface__={
        "version": 3, "data": (parameter.data_ptr(), False), "shape": tuple(parameter.shape), "typestr": f"|V{size}",
        "strides": tuple(size * n for n in parameter.stride())}))


def overlaps(a: exact.Array) -> bool:
    """Returns whether elements of an array, which has some, lie in each other's memory."""
    end = a.itemsize
    for stride, n in sorted((abs(stride), n) for stride, n in zip(a.strides, a.shape, strict=True) if n > 1):
        if stride == 0:
            return True
        if stride < end:
            break
        end += stride * (n - 1)
    else:
        return False
    at = np.zeros(1, np.int64)
    for stride, n in zip(a.strides, a.shape, strict=True):
        at = np.add.outer(at, stride * np.arange(n)).reshape(-1)
    return int(np.diff(np.sort(at)).min()) < a.itemsize


def bounds_of(a: exact.Array) -> tuple[int, int]:
    """Returns the addresses of an array's first byte and behind its last one."""
    reaches = [stride * (n - 1) for stride, n in zip(a.strides, a.shape, strict=True)]
    return a.ctypes.data + sum(min(r, 0) for r in reaches), a.ctypes.data + sum(max(r, 0) for r in reaches) + a.itemsize


@functools.cache
def of_torch(kind: Any) -> Any:
    """Returns the class as one of torch's optimisers, which torch's schedulers ask for."""
    import torch

    return kind if issubclass(kind, torch.optim.Optimizer) else type(kind.__name__, (kind, torch.optim.Optimizer), {"__module__": kind.__module__})


def checked(name: str, value: Any, least: float, most: float) -> float:
    if isinstance(value, (str, bytes)) or not least <= float(value) <= most or not math.isfinite(float(value)):
        raise Invalid(name, f"is {value!r}, it must be from {least:g} to {most:g}" if math.isfinite(most) else f"is {value!r}, it must be {least:g} or more")
    return float(value)


def options_of(kind: str, lr: Any, more: dict[str, Any]) -> dict[str, Any]:
    """Takes the optimiser's options from `more` and returns them all, with torch's names."""
    if kind not in KINDS:
        raise Invalid("kind", f"is {kind!r}, it must be one of {', '.join(KINDS)}")
    if "beta1" in more or "beta2" in more:  # the wire's names
        first, second = KINDS["adam"]["betas"][0]
        more["betas"] = more.pop("beta1", first), more.pop("beta2", second)
    if "epsilon" in more:
        more["eps"] = more.pop("epsilon")
    found: dict[str, Any] = {"lr": checked("lr", lr, 0, math.inf)}
    for name, (otherwise, least, most) in KINDS[kind].items():
        value = more.pop(name, otherwise)
        if isinstance(otherwise, tuple):
            if not isinstance(value, Sequence) or len(value) != len(otherwise):
                raise Invalid(name, f"is {value!r}, it must have {len(otherwise)} numbers")
            found[name] = tuple(checked(f"{name}[{i}]", v, least, most) for i, v in enumerate(value))
        else:
            found[name] = type(otherwise)(checked(name, value, least, most))
    for name in more.keys() - SETTINGS:
        known = sorted({*KINDS[kind], *SETTINGS})
        raise Invalid(name, f"is not an option of the kind '{kind}'; there are {', '.join(known)}")
    return found


def groups_of(parameters: Iterable[Any]) -> list[dict[str, Any]]:
    """Returns torch's param_groups: of parameters, of pairs of a name and a parameter, or of groups of either."""
    given = list(parameters)
    if not given:
        raise Invalid("parameters", "is empty: pass at least one parameter")
    groups = [dict(g) for g in given] if isinstance(given[0], Mapping) else [{"params": given}]
    for group in groups:
        params = group["params"]
        group["params"] = list(params) if isinstance(params, Iterable) and not hasattr(params, "shape") else [params]
    return groups


class RemoteOptimizer:
    """An optimiser of shared parameters. The first trainer creates the parameters with its own values; the other trainers load these
    values. kind: "sgd", "adam" or "adamw". round_timeout: how many seconds after its first gradient a round fails, naming the trainers
    that are missing (0: never). client: this trainer's name; one that is started again under its name goes on. more: torch's options of
    the kind (momentum, weight_decay, betas …), reduce ("mean" or "sum"), and other fields of ParamsConfig (schedule, quorum,
    max_staleness …). The first trainer's options count; those of the others are checked and otherwise ignored.

    With parameters of torch it is a torch.optim.Optimizer: closures, param_groups, state_dict and torch's schedulers work. All groups have
    one learning rate, the only option that may change later. Parameters that do not require a gradient are not changed. A parameter whose
    gradient is None counts as zeros, and is left as it is, with its moments, if no trainer of the round has a gradient for it. Adam's bias
    correction counts the rounds."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        kind: Any = cls
        return object.__new__(of_torch(kind) if "torch" in sys.modules else kind)

    def __init__(self, parameters: Iterable[Any], server: Server | str, name: str, *, round_size: int = 1, kind: str = "sgd",
                 lr: float = 0.01, client: str = "", round_timeout: float = 300, **more: Any) -> None:
        groups = groups_of(parameters)
        options = options_of(kind, lr, more)
        self.names, self.parameters = list[str](), list[Any]()
        for group in groups:
            for i, p in enumerate(group["params"]):
                named = isinstance(p, tuple)
                self.names.append(p[0] if named else f"parameters[{len(self.parameters)}]")
                self.parameters.append(p[1] if named else p)
                group["params"][i] = self.parameters[-1]
        self._check_parameters()
        if not 1 <= round_size <= 0xffffffff:
            raise Invalid("round_size", f"is {round_size}, it must be at least 1")
        if isinstance(more.get("reduce"), str):
            word = more["reduce"].removeprefix("PARAMS_REDUCE_").upper()
            if word not in ("MEAN", "SUM"):
                raise Invalid("reduce", f"is {more['reduce']!r}, it must be 'mean' or 'sum'")
            more["reduce"] = f"PARAMS_REDUCE_{word}"
        if round_timeout and round_size > 1 and "quorum" not in more:
            more["quorum"] = pb.ParamsQuorum(timeout_ms=wire.milliseconds(round_timeout, "round_timeout"), on_miss="PARAMS_ON_MISS_ABORT")
        self._link = (connect(server) if isinstance(server, str) else server).links[0]
        self.name, self.client, self.version, self.steps = name, client or uuid.uuid4().hex, 0, 0
        self._updates: Dialogue[pb.ParamsUpload | bytes, Any] = Dialogue(self._link, "Params/UpdateAndFetch", serialise, parse)
        self._memory: Memory | None = None
        self._may_share = bool(re.fullmatch(LOCAL, self._link.address))
        self._is_made = False
        if all(map(is_torch, self.parameters)):
            import torch

            torch.optim.Optimizer.__init__(self, groups, options)
        else:
            if "torch" in sys.modules:  # an optimiser of torch whose __init__ has not run would not work
                object.__setattr__(self, "__class__", type(self).__bases__[0])
            self.defaults, self.state = options, collections.defaultdict[Any, Any](dict)
            self.param_groups: list[dict[str, Any]] = [{**options, **g} for g in groups]
        self._options = dict(options)
        self._rate()
        self._is_made = True
        self._create(pb.ParamsConfig(name=name, specs=self._specs(True), optimiser=self._optimiser(kind), round_size=round_size, dedupe=True, **more))
        self.pull()

    def _check_parameters(self) -> None:
        seen = set[int]()
        for name, p in zip(self.names, self.parameters, strict=True):
            if is_torch(p) and not hasattr(p, "detach"):
                raise Invalid(name, f"is a {type(p).__name__}, it must be a tensor of torch or an array of numpy")
            if is_torch(p) and (getattr(p, "is_meta", False) or hasattr(p, "materialize")):
                raise Invalid(name, "has no values yet: it is on the device 'meta', or its module is lazy")
            is_float = p.dtype.is_floating_point if is_torch(p) else p.dtype.kind == "f" or p.dtype.name == "bfloat16"
            if not is_float:
                raise Invalid(name, f"has the type {p.dtype}, it must be one of floating-point numbers")
            if not is_torch(p) and not p.flags.writeable:
                raise Invalid(name, "cannot be written to")
            if id(p) in seen:
                raise Invalid(name, "is there twice")
            seen.add(id(p))
        self._check_memory()

    def _check_memory(self) -> None:
        """Refuses what an answer could not be written to, or not wholly."""
        places = list[tuple[tuple[int, int], int, exact.Array, str]]()
        for i, (name, p) in enumerate(zip(self.names, self.parameters, strict=True)):
            if is_torch(p) and str(p.layout) != "torch.strided":
                raise Invalid(name, f"has the layout {p.layout}, it must be dense")
            if math.prod(p.shape) == 0 or is_torch(p) and p.data_ptr() == 0:
                continue  # has no memory, or none of its own
            place = place_of(p)
            if overlaps(place):
                raise Invalid(name, "has elements in the same memory, as expand makes them: pass a copy")
            places.append((bounds_of(place), i, place, str(p.device) if is_torch(p) else "cpu"))
        near = list[tuple[tuple[int, int], int, exact.Array, str]]()  # those before that reach this one
        for bounds, i, place, device in sorted(places, key=lambda found: found[:2]):
            near = [one for one in near if one[0][1] > bounds[0]]
            for _, other, memory, where in near:
                if where == device and np.shares_memory(memory, place):
                    raise Invalid(self.names[max(i, other)], f"shares memory with {self.names[min(i, other)]}: pass one of them, or a copy")
            near.append((bounds, i, place, device))

    def _specs(self, has_names: bool = False) -> list[tensor_pb2.TensorSpec]:
        return [tensor_pb2.TensorSpec(name=str(i) if has_names else "", dtype=tensor_pb2.DTYPE_F32, shape=list(p.shape))
                for i, p in enumerate(self.parameters)]

    def _optimiser(self, kind: str) -> pb.ParamsOptimiser:
        o = self._options
        made = pb.ParamsOptimiser(kind=f"PARAMS_OPTIMISER_KIND_{kind.upper()}", learning_rate=o["lr"], weight_decay=o["weight_decay"])
        if kind == "sgd":
            made.momentum, made.dampening, made.nesterov = o["momentum"], o["dampening"], o["nesterov"]
        else:
            (made.beta1, made.beta2), made.epsilon = o["betas"], o["eps"]
        return made

    def _create(self, config: pb.ParamsConfig) -> None:
        def messages() -> Iterator[pb.ParamsCreateRequest | bytes]:
            yield pb.ParamsCreateRequest(config=config)
            yield from frames_of(values)

        values = self._numbers(self.names, self.parameters)
        try:
            self._link.retried(lambda: self._link.upload("Params/Create", messages(), serialise, pb.ParamsCreateResponse))
        except Error as e:
            if e.reason != "PARAMS_EXIST":
                raise

    @staticmethod
    def _numbers(names: Iterable[str], arrays: Iterable[Any], out: Floats | None = None) -> Floats:
        """Returns all numbers as one array, in out if it is given."""
        parts = [exact.exact(name, a, np.dtype("<f4")).reshape(-1) for name, a in zip(names, arrays, strict=True)]
        found: Floats = np.concatenate(parts, out=out)
        return found

    def _take(self, version: pb.ParamsVersion, values: Floats) -> None:
        """Loads a version, wholly. Parameters that do not require a gradient are left as they are."""
        sizes = [math.prod(p.shape) for p in self.parameters]
        has_values = version.size_bytes > 0 or version.in_memory
        if has_values and len(values) != sum(sizes):
            raise Invalid("parameters", f"have {sum(sizes)} numbers, but '{self.name}' has {len(values)}")

        def write() -> None:
            at = 0
            for p, n in zip(self.parameters, sizes, strict=True):
                part = values[at:at + n].reshape(tuple(p.shape)) if has_values else None
                at += n
                if part is None:
                    continue
                if not is_torch(p):
                    p[...] = part
                elif p.requires_grad:
                    import torch

                    with torch.no_grad():
                        p.copy_(torch.from_numpy(part))
            self.version = version.version

        wire.wholly(write)

    def pull(self) -> int:
        """Loads the newest parameters and returns their version. Refuses a set whose tensors have other shapes."""
        def attempt() -> tuple[pb.ParamsVersion, Floats]:
            try:
                return self._link.read("Params/Pull", request, parse, download)
            except Error as e:
                if e.reason == "PARAMS_NOT_READY":  # the first trainer is still uploading its values
                    e.code = "UNAVAILABLE"
                raise

        request = pb.ParamsPullRequest(name=self.name, specs=self._specs(), client_id=self.client)
        version, values = self._link.retried(attempt)
        self._take(version, values)
        self.steps = max(self.steps, version.last_step)
        return self.version

    def zero_grad(self, set_to_none: bool = True) -> None:
        for p in self.parameters:
            if is_torch(p) and p.grad is not None:
                if set_to_none:
                    p.grad = None
                else:
                    p.grad.detach_().zero_()

    def _rate(self) -> float | None:
        """Returns the learning rate if it was changed. Refuses other changes of the groups."""
        rates = set[float]()
        for i, group in enumerate(self.param_groups):
            for name, value in self._options.items():
                given = group.get(name, value)
                if name == "lr":
                    rates.add(checked(f"param_groups[{i}]['lr']", given, 0, math.inf))
                elif (tuple(given) if isinstance(value, tuple) else given) != value:
                    raise Invalid(f"param_groups[{i}]['{name}']", f"is {given!r}, but the set has {value!r}: only lr may change")
        if len(rates) > 1:
            raise Invalid("param_groups", f"has the learning rates {sorted(rates)}, a set of parameters has one for all groups")
        rate = rates.pop()
        return None if rate == self._options["lr"] else rate

    def _gradient(self, gradients: Sequence[Any] | None) -> tuple[Floats, list[int]]:
        """Returns the gradients as one array, and the places of those that are not there."""
        given = [p.grad if is_torch(p) else None for p in self.parameters] if gradients is None else list(gradients)
        if gradients is None and not any(map(is_torch, self.parameters)):
            raise Invalid("gradients", "is missing: arrays of numpy have no gradients of their own")
        if len(given) != len(self.parameters):
            raise Invalid("gradients", f"has {len(given)} gradients for {len(self.parameters)} parameters: pass one gradient, or None, for each")
        parts, skipped = [], []
        for i, (name, p, g) in enumerate(zip(self.names, self.parameters, given, strict=True)):
            field = f"the gradient of {name}"
            if g is None or is_torch(p) and not p.requires_grad:
                skipped.append(i)
                g = np.zeros(tuple(p.shape), "<f4")
            if tuple(np.shape(g)) != tuple(p.shape):
                raise Invalid(field, f"has the shape {tuple(np.shape(g))}, but its parameter has the shape {tuple(p.shape)}")
            if getattr(g, "is_sparse", False):
                raise Invalid(field, "is sparse, it must be dense")
            parts.append((field, g))
        memory = self._memory_now()
        return self._numbers([field for field, _ in parts], [g for _, g in parts], None if memory is None else memory.gradient), skipped

    def _upload(self, gradient: Floats, header: pb.ParamsUploadHeader) -> Iterator[pb.ParamsUpload | bytes]:
        header.in_memory = False
        yield pb.ParamsUpload(header=header)
        yield from frames_of(gradient, crc_only=True)

    def _memory_now(self) -> Memory | None:
        """Returns the memory that the open stream shares with the daemon, if there is some."""
        if self._memory is not None and self._memory.stream is not self._updates.stream:
            self._memory = None
        return self._memory

    def _share(self, size_bytes: int) -> Memory | None:
        """Returns the stream's memory, for which it asks the daemon if the stream is new."""
        if self._updates.is_open or not self._may_share or size_bytes < SHARED_BYTES:
            return self._memory_now()
        self._may_share = False  # unless it succeeds
        try:
            self._updates.put(pb.ParamsUpload(memory=pb.ParamsMemoryRequest(name=self.name)))
            said = other_than_chunk(self._updates.take()).memory
        except Error as e:
            self._updates.close()
            self._may_share = e.code == "UNAVAILABLE"
            if self._may_share:
                raise
            return None
        view = opened(said.pid, said.fd, said.label, said.size_bytes)
        if view is not None:
            self._may_share = True
            self._memory = Memory.of(self._updates.stream, view)
        return self._memory_now()

    def _ask(self, gradient: Floats, header: pb.ParamsUploadHeader) -> tuple[pb.ParamsVersion, Floats]:
        """Sends a gradient and receives the answer, in memory or in chunks."""
        memory = self._share(gradient.nbytes)
        if memory is None:
            for message in self._upload(gradient, header):
                self._updates.put(message)
            return download(iter(self._updates.take, None))
        if gradient is not memory.gradient:
            memory.gradient[:] = gradient
        header.in_memory = True
        self._updates.put(pb.ParamsUpload(header=header))
        self._updates.put(pb.ParamsUpload(sha256=b""))
        try:
            version = other_than_chunk(self._updates.take()).version
        except Error as e:
            self._may_share = e.code != "RESOURCE_EXHAUSTED"  # the memory counts, too: without it there may be room
            raise
        return (version, memory.values) if version.in_memory else rest_of(version, iter(self._updates.take, None))

    def _next(self, gradients: Sequence[Any] | None, timeout: float) -> tuple[Floats, pb.ParamsUploadHeader]:
        """Begins a step: returns its gradient and its header. Refuses before anything has changed."""
        (gradient, skipped), rate, timeout_ms = self._gradient(gradients), self._rate(), wire.milliseconds(timeout)
        self.steps += 1
        header = pb.ParamsUploadHeader(name=self.name, client_id=self.client, step_id=self.steps, base_version=self.version, timeout_ms=timeout_ms, crc_only=True,
                                       specs=self._specs(), skipped=skipped)
        if rate is not None:
            header.learning_rate = rate
        return gradient, header

    def step(self, gradients: Sequence[Any] | Callable[[], Any] | None = None, closure: Callable[[], Any] | None = None, *,
             timeout: float = 0) -> Any:
        """Sends the gradient, waits until its round is complete, loads the new parameters and returns their version. gradients: one for
        each parameter; None: the gradients that torch has computed. closure (also in the place of gradients): computes the gradients
        before; its loss is returned in place of the version. timeout: how many seconds to wait for the round (0: as long as the round
        takes); the gradient then counts no more. After a broken connection the gradient is sent again; the daemon counts it once."""
        if callable(gradients):
            gradients, closure = None, gradients
        loss: Any = None
        if closure is not None:
            import torch

            with torch.enable_grad():
                loss = closure()
        gradient, header = self._next(gradients, timeout)

        def late() -> Error:
            return Error("DEADLINE_EXCEEDED", f"the daemon at {self._link.address} did not answer within {timeout + GRACE_S:g} s")

        def attempt() -> tuple[pb.ParamsVersion, Floats]:
            try:
                with self._updates.whole(timeout + GRACE_S if timeout > 0 else 0, late):
                    return self._ask(gradient, header)
            except Error as e:
                if e.reason == "ROUND_GIVEN_UP":
                    e.code = "UNAVAILABLE"
                if e.code == "INVALID_ARGUMENT" and e.field.isdecimal() and int(e.field) < len(self.names):  # the daemon knows the tensors by number
                    raise Invalid(f"the gradient of {self.names[int(e.field)]}", e.message.removeprefix(e.field).lstrip()) from None
                raise

        self._take(*self._link.retried(attempt))
        return self.version if closure is None else loss

    def push(self, gradients: Sequence[Any] | None = None) -> int:
        """Sends the gradient without waiting for its round and returns the newest version. A gradient that is lost on the way is not
        sent again."""
        messages = self._upload(*self._next(gradients, 0))
        return int(self._link.upload("Params/Push", messages, serialise, pb.ParamsPushResponse).version)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        if self._is_made:
            raise Invalid("param_group", "cannot be added: the tensors of a set are fixed when it is created")
        import torch

        torch.optim.Optimizer.add_param_group(self, param_group)

    def state_dict(self) -> dict[str, Any]:
        """Returns the groups and this trainer's place; the moments are in the daemon (parameter sets are kept with --data)."""
        at, groups = 0, []
        for group in self.param_groups:
            n = len(group["params"])
            groups.append({**group, "params": list(range(at, at + n))})
            at += n
        return {"state": {}, "param_groups": groups, "remote": {"client": self.client, "steps": self.steps, "version": self.version}}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        groups = state_dict["param_groups"]
        have = [len(g["params"]) for g in self.param_groups]
        if [len(g["params"]) for g in groups] != have:
            raise Invalid("state_dict", f"has groups of {[len(g['params']) for g in groups]} parameters, this optimiser has groups of {have}")
        for group, saved in zip(self.param_groups, groups, strict=True):
            group.update({k: v for k, v in saved.items() if k != "params"})
        remote = state_dict.get("remote", {})
        if remote.get("client") == self.client:
            self.steps = max(self.steps, remote["steps"])

    def close(self) -> None:
        """Ends the stream; the next step opens a new one."""
        self._updates.close()

    def __reduce__(self) -> Any:
        raise TypeError("a RemoteOptimizer can be neither pickled nor copied: make one, with a name of its own (client=), where it is to be used")
