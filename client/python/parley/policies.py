"""Policies: of your own, computed by a module of torch or a function of numpy arrays, and new files with random parameters for
`parleyd --model NAME=FILE`. This module needs numpy.

    >>> import threading
    >>> import numpy as np
    >>> from parley.act import Act
    >>> weights = np.array([[1.0, -1.0], [0.5, -0.5]])
    >>> policy = parley.Policy("balance", lambda seen: seen @ weights, observations=2, actions=2)
    >>> threading.Thread(target=parley.serve, args=(policy, ADDRESS), daemon=True).start()  # or alone: parley.serve(policy, ADDRESS)
    >>> with parley.connect(ADDRESS) as server, Act(server, "balance", 3) as act:
    ...     act.wait()
    ...     out = act.act(np.ones((3, 2)))
    >>> out["action"].shape, sorted(out)
    ((3,), ['action', 'logp'])

Observations that wait while a step is computed are in the next step, so that the batches are as large as the load is high. Under lock-step
(`Act.configure("lockstep", n=8)`) a step has exactly n rows, in their order."""
from __future__ import annotations

import math
import os
import struct
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parley import exact
from parley.tidings import told
from parley.v1 import agents_pb2, error_pb2, tensor_pb2

KINDS = {str: 8, int: 10, float: 6, bool: 7}  # GGUF's text, u64, f32 and bool
ALIGNMENT = 32  # GGUF's default
WORD = 0xFFFFFFFF


def _text(s: str) -> bytes:
    return struct.pack("<Q", len(s.encode())) + s.encode()


def _value(v: str | int | float) -> bytes:
    if isinstance(v, str):
        return _text(v)
    return struct.pack("<?" if isinstance(v, bool) else "<Q" if isinstance(v, int) else "<f", v)


def _uniform(seed: int, which: int, position: int, n: int, draw: int) -> NDArray[np.float32]:
    """Returns numbers from [0, 1), multiples of 2^-24: the first words of Philox-4x32-10 at (seed, which, position … position + n - 1,
    draw), as the daemon draws them."""
    c0, c1, c2, c3 = (np.full(n, x, np.uint64) for x in (0, which, draw, 0))
    c0 += np.arange(position, position + n, dtype=np.uint64)
    k0, k1 = seed & WORD, seed >> 32
    for _ in range(10):
        product0, product1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1 = product1 >> np.uint64(32) ^ c1 ^ np.uint64(k0), product1 & np.uint64(WORD)
        c2, c3 = product0 >> np.uint64(32) ^ c3 ^ np.uint64(k1), product0 & np.uint64(WORD)
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return (c0 >> np.uint64(8)).astype(np.float32) * np.float32(2 ** -24)


def _drawn(seed: int, which: int, n: int, fan: int) -> NDArray[np.float32]:
    """Draws n numbers uniformly from ±1 / sqrt(fan)."""
    uniform = _uniform(seed, which, 0, n, 1)
    bound = np.float32(1) / np.sqrt(np.float32(fan))
    return np.asarray(bound * (np.float32(2) * uniform - np.float32(1)), "<f4")


def create(path: str, observations: int, actions: int, *, head: str = "softmax", kind: str = "mlp", hidden: int = 64, layers: int | None = None,
           dropout: float = 0.0, value: bool = True, seed: int = 1, environment: str = "") -> None:
    """Writes a new policy to `path`; an existing file is replaced. `kind`: "mlp", which has `layers` hidden layers (2), or "lstm", which
    has one cell. `head`: "softmax", which chooses one of `actions` actions; "gaussian", whose action is a vector of `actions` numbers;
    or "duelling", which learns the value of each action. `value`: whether the policy also has a head that estimates the return."""
    if kind not in ("mlp", "lstm"):
        raise ValueError(f"kind is {kind!r}, it must be 'mlp' or 'lstm'")
    if head not in ("softmax", "gaussian", "duelling"):
        raise ValueError(f"head is {head!r}, it must be 'softmax', 'gaussian' or 'duelling'")
    if head == "duelling" and not value:
        raise ValueError("a duelling head needs a value head: set value=True")
    if kind == "lstm" and (layers not in (None, 1) or dropout != 0):
        raise ValueError("an lstm has one layer and no dropout: leave out layers and dropout")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout is {dropout}, it must be at least 0 and less than 1")
    least = 1 if head == "gaussian" else 2
    layers = layers if layers is not None else 1 if kind == "lstm" else 2
    if observations < 1 or actions < least or hidden < 1 or layers < 1 or not 0 <= seed < 1 << 64:
        raise ValueError(f"observations, hidden and layers must be at least 1, actions at least {least}, and seed an unsigned number of 64 bits")
    outputs = 2 * actions if head == "gaussian" else actions
    # For each layer: its name, its inputs and outputs, and the fan-in that bounds its random parameters.
    shapes = [("lstm.input", observations, 4 * hidden, hidden), ("lstm.state", hidden, 4 * hidden, hidden)]
    if kind == "mlp":
        widths = [observations] + [hidden] * layers
        shapes = [(f"hidden.{i}", widths[i], hidden, widths[i]) for i in range(layers)]
    shapes += [("actions", hidden, outputs, hidden)] + [("value", hidden, 1, hidden)] * value
    keys: dict[str, str | int | float] = {"general.architecture": "policy", "policy.kind": kind}
    if head != "softmax":
        keys["policy.head"] = head
    keys |= {"policy.environment": environment, "policy.observation_length": observations, "policy.action_count": actions,
             "policy.hidden_length": hidden, "policy.hidden_layers": layers, "policy.dropout": float(dropout), "policy.has_value": value,
             "policy.seed": seed}
    infos, data = b"", bytearray()
    for i, (name, n_in, n_out, fan) in enumerate(shapes):
        for which, part in enumerate((".weight", ".bias")):
            rows, columns = (n_out, n_in) if which == 0 else (1, n_out)
            dims = (columns,) if rows == 1 else (columns, rows)
            infos += _text(name + part) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, 0, len(data))
            data += _drawn(seed, 2 * i + which, rows * columns, fan).tobytes()
            data += bytes(-len(data) % ALIGNMENT)
    start = b"GGUF" + struct.pack("<IQQ", 3, 2 * len(shapes), len(keys))
    start += b"".join(_text(k) + struct.pack("<I", KINDS[type(v)]) + _value(v) for k, v in keys.items()) + infos
    with open(path + ".part", "wb") as out:
        out.write(start + bytes(-len(start) % ALIGNMENT) + data)
    os.replace(path + ".part", path)


# The numbers of a step that the daemon's policies draw: to choose an action, and from 4 on two for each number of an action.
DRAW_CHOICE, DRAW_NUMBERS = 0, 4
LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0
GRPC_INTERNAL = 13
Array = NDArray[Any]
Outputs = Mapping[str, Array]


class Policy:
    """A policy that this process computes and a daemon serves, through Act, Env.Rollout and KServe; `parley.serve` connects it.

    module: a torch module, or any function that takes observations [n, *shape], float32, and returns the outputs for them. What these
    are, `head` says:

        "softmax"   [n, actions] logits. The policy draws the action, and gives its log-probability (logp)
        "gaussian"  [n, 2 * action_numbers]: the means, then the logarithms of the deviations, which are cut to -5 … 2
        "greedy"    [n, actions] values; the action is that of the greatest
        "action"    the actions themselves: [n] choices, or [n, action_numbers] numbers

    With `value` the module returns a pair; the second is [n], the estimated returns. critic: a second network beside the policy, a module
    or function of the observations and the actions taken, [n, …] each, that returns [n], what they are worth; it is answered as `value`.
    stack: the module is of so many policies (parley.stack): under lock-step row r is policy r % stack's, and the module takes and returns
    [stack, n / stack, …], as its critic does. observations: how many numbers an observation has,
    or its shape. Draws depend on the seed, the row and the number of a session's step, and are those that the daemon's own policies make.
    A step has the daemon's --attach-timeout (60 s). warm: the numbers of rows, of zeros, with which the module is called before the policy
    is offered, and a new one before update() puts it in place: for a module that compiles when it is called. By default 1 and 2, as far as
    rows permits, for one that torch.compile has made, or that has one in it, and none for others; what the module raises then is printed, as
    it may take other numbers of rows. greedy: the likeliest action is taken. rows: the most rows of a step (1024 at most). params_version is
    what the daemon reports with each action; update() sets it with a new module."""

    def __init__(self, name: str, module: Callable[[Any], Any], *, observations: int | Sequence[int], actions: int = 0, action_numbers: int = 0,
                 head: str = "softmax", value: bool = False, critic: Callable[[Any, Any], Any] | None = None, stack: int = 0, greedy: bool = False,
                 rows: int = 64, version: str = "", warm: Sequence[int] | None = None) -> None:
        if head not in ("softmax", "gaussian", "greedy", "action"):
            raise ValueError(f"head is {head!r}, it must be 'softmax', 'gaussian', 'greedy' or 'action'")
        if (actions > 0) == (action_numbers > 0):
            raise ValueError("exactly one of actions and action_numbers must be set")
        if (head in ("softmax", "greedy") and not actions) or (head == "gaussian" and not action_numbers):
            raise ValueError(f"the head {head!r} needs {'action_numbers' if head == 'gaussian' else 'actions'}")
        if value and critic is not None:
            raise ValueError("value and critic are set: a policy answers one value, the module's own or its critic's")
        if stack < 0:
            raise ValueError(f"stack is {stack}, it must be the number of policies, or 0")
        if any(n < 1 for n in warm or ()):
            raise ValueError(f"warm is {warm!r}, it must be numbers of rows")
        self.shape = (observations,) if isinstance(observations, int) else tuple(observations)
        self.name, self.actions, self.action_numbers, self.head, self.value = name, actions, action_numbers, head, value or critic is not None
        self.stack, self._critic = stack, critic
        self.greedy, self.rows, self.version = greedy, rows, version
        self.has_logp = head in ("softmax", "gaussian")
        self._warm, self._is_warm = warm, False
        self._lock, self._module, self.params_version = threading.Lock(), module, 0

    def update(self, module: Callable[[Any], Any] | None = None, params_version: int | None = None, *, critic: Callable[[Any, Any], Any] | None = None) -> None:
        """Replaces the module and the critic (None: changed in place) between two steps, and sets the version (None: one more)."""
        if critic is not None and self._critic is None:
            raise ValueError("critic is set, but the policy was made without one")
        # What is in place already, and was changed there, has compiled, and a step may be calling it.
        self._call_with_zeros(None if module is self._module else module, None if critic is self._critic else critic)
        with self._lock:
            self._module, self._critic = module or self._module, critic or self._critic
            self.params_version = self.params_version + 1 if params_version is None else params_version

    def __parley_worker__(self, name: str = "") -> PolicyWorker:
        """Returns what carries out the daemon's orders; for parley.serve."""
        if not self._is_warm:
            self._call_with_zeros(self._module, self._critic)
            self._is_warm = True
        return PolicyWorker(self, name or self.name)

    def _call_with_zeros(self, module: Callable[[Any], Any] | None, critic: Callable[[Any, Any], Any] | None) -> None:
        """Has the networks compile what they compile, which a step has no time for."""
        networks: list[Callable[..., Any]] = [network for network in (module, critic) if network is not None]
        for network in networks:
            usual = [n for n in (1, 2) if n * max(self.stack, 1) <= self.rows] if is_compiled(network) else []
            for n in usual if self._warm is None else self._warm:
                draws = [(0, row, 0) for row in range(n * max(self.stack, 1))]
                actions = np.zeros((len(draws), self.action_numbers), "<f4") if self.action_numbers else np.zeros(len(draws), "<i8")
                rows = [np.zeros((len(draws), *self.shape), "<f4")] + [actions] * (network is critic)
                try:
                    self._call(network, *(self._stacked(a, draws) for a in rows))
                except Exception as e:
                    if self._warm is not None:
                        raise
                    told(f"{self.name}, called with zeros of {len(draws)} rows,", e)  # it may take other numbers of rows

    def compute(self, seen: NDArray[np.float32], draws: Sequence[tuple[int, int, int]]) -> tuple[Outputs, int]:
        """Returns the outputs for observations [n, *shape], and the version that computed them. draws: (seed, row, step) of each."""
        with self._lock:
            given, critic, version = self._rows(self._call(self._module, self._stacked(seen, draws))), self._critic, self.params_version
            outputs = self._outputs(given, len(seen), draws)
            if critic is not None:
                worth = self._rows(self._call(critic, self._stacked(seen, draws), self._stacked(outputs["action"], draws)))
                outputs["value"] = self._values(worth, len(seen))
        return outputs, version

    def _outputs(self, given: Any, n: int, draws: Sequence[tuple[int, int, int]]) -> dict[str, Array]:
        raw, value = given if self.value and self._critic is None else (given, None)
        outputs: dict[str, Array] = {}
        if self.head == "action":
            outputs["action"] = self._actions(as_array(raw), n)
        else:
            width = 2 * self.action_numbers if self.head == "gaussian" else self.actions
            numbers = checked("outputs", as_array(raw), (n, width)).astype(np.float64)
            outputs |= self._gaussian(numbers, draws) if self.head == "gaussian" else self._choices(numbers, draws)
        if value is not None:
            outputs["value"] = self._values(value, n)
        return outputs

    def _values(self, value: Any, n: int) -> Array:
        values = as_array(value)
        return checked("values", values.reshape(n) if values.size == n else values, (n,)).astype("<f4")

    def _stacked(self, rows: Array, draws: Sequence[tuple[int, int, int]]) -> Array:
        """Returns a copy of the rows, which a module may write to; of a stack as [stack, n / stack, …]."""
        if not self.stack:
            return rows.copy()
        if [row for _, row, _ in draws] != list(range(len(draws))) or len(draws) % self.stack:
            raise ValueError(f"a step has the rows {[row for _, row, _ in draws]} for a stack of {self.stack} policies: use lock-step, with a multiple of {self.stack} "
                             f"rows: Act.configure('lockstep', n=…)")
        return np.ascontiguousarray(rows.reshape(-1, self.stack, *rows.shape[1:]).swapaxes(0, 1))

    def _rows(self, given: Any) -> Any:
        """Undoes _stacked, for what a module returned."""
        if not self.stack:
            return given
        if isinstance(given, tuple):
            return tuple(map(self._rows, given))
        a = as_array(given)
        if a.ndim < 2 or a.shape[0] != self.stack:
            raise ValueError(f"the module returns the shape {a.shape}, that of a stack must begin with {self.stack}")
        return a.swapaxes(0, 1).reshape(-1, *a.shape[2:])

    @staticmethod
    def _call(module: Callable[..., Any], *rows: Array) -> Any:
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(module, torch.nn.Module):
            return module(*rows)
        with torch.no_grad():
            parameter = next(module.parameters(), None)
            tensors = [torch.from_numpy(a) for a in rows]
            if parameter is not None:
                floats = parameter.dtype if parameter.is_floating_point() else None
                tensors = [t.to(parameter.device, floats if t.is_floating_point() else None) for t in tensors]
            return module(*tensors)

    def _actions(self, given: Array, n: int) -> Array:
        if self.action_numbers:
            return checked("actions", given, (n, self.action_numbers)).astype("<f4")
        if given.shape != (n,) or given.dtype.kind not in "iu":
            raise ValueError(f"the actions are {given.dtype} {given.shape}, they must be integers of the shape {(n,)}")
        if n and (given.min() < 0 or given.max() >= self.actions):
            raise ValueError(f"an action is {given.min() if given.min() < 0 else given.max()}, it must be from 0 to {self.actions - 1}")
        return given.astype("<i8")

    def _choices(self, numbers: Array, draws: Sequence[tuple[int, int, int]]) -> Outputs:
        if self.head == "greedy":
            return {"action": numbers.argmax(1).astype("<i8")}
        logp = numbers - numbers.max(1, keepdims=True)
        logp -= np.log(np.exp(logp).sum(1, keepdims=True))
        chosen = logp.argmax(1)
        if not self.greedy:
            drawn = np.array([_uniform(*draw, 1, DRAW_CHOICE)[0] for draw in draws])
            chosen = np.minimum((np.exp(logp).cumsum(1) <= drawn[:, None]).sum(1), self.actions - 1)
        return {"action": chosen.astype("<i8"), "logp": logp[np.arange(len(logp)), chosen].astype("<f4")}

    def _gaussian(self, numbers: Array, draws: Sequence[tuple[int, int, int]]) -> Outputs:
        k = self.action_numbers
        mean, log_std = numbers[:, :k], np.clip(numbers[:, k:], LOG_STD_MIN, LOG_STD_MAX)
        z = np.zeros_like(mean)
        if not self.greedy:
            for i, draw in enumerate(draws):
                drawn = np.array([_uniform(*draw, 1, DRAW_NUMBERS + j)[0] for j in range(2 * k)], np.float64)
                z[i] = np.sqrt(-2 * np.log(1 - drawn[0::2])) * np.cos(2 * math.pi * drawn[1::2])
        logp = (-0.5 * z * z - log_std - 0.5 * math.log(2 * math.pi)).sum(1)
        return {"action": (mean + np.exp(log_std) * z).astype("<f4"), "logp": logp.astype("<f4")}


def is_compiled(module: Any) -> bool:
    """Returns whether torch compiles the module when it is called, or a part of it, a method forward or what an attribute has."""
    torch = sys.modules.get("torch")
    parts = module.modules() if torch is not None and isinstance(module, torch.nn.Module) else (module,)
    return any(getattr(part, "_compiled_call_impl", None) is not None or
               any(hasattr(what, "_torchdynamo_orig_callable") for what in (part, getattr(part, "forward", None), *getattr(part, "__dict__", {}).values()))
               for part in parts)


def as_array(value: Any) -> Array:
    return exact.array("what the module returns", value)


def checked(what: str, numbers: Array, shape: tuple[int, ...]) -> Array:
    if numbers.shape != shape or numbers.dtype.kind not in "fiu":
        raise ValueError(f"the module's {what} are {numbers.dtype} {numbers.shape}, they must be numbers of the shape {shape}")
    if not np.isfinite(numbers).all():
        raise ValueError(f"the module's {what} have a number that is not finite")
    return numbers


class PolicyWorker:
    """Carries out the daemon's orders to a policy."""

    def __init__(self, policy: Policy, name: str) -> None:
        self.policy, self.name = policy, name

    def offer(self) -> agents_pb2.AgentsAttachRequest:
        p = self.policy
        tensors = agents_pb2.AgentTensors(observations=math.prod(p.shape), actions=p.actions, action_numbers=p.action_numbers,
                                          has_logp=p.has_logp, has_value=p.value)
        return agents_pb2.AgentsAttachRequest(offer=agents_pb2.AgentOffer(name=self.name, version=p.version, max_rows=p.rows, tensors=tensors))

    def take(self, order: agents_pb2.AgentsAttachResponse) -> agents_pb2.AgentsAttachRequest | None:
        if order.WhichOneof("what") != "step":
            return None
        try:
            results = self.step(order.step.rows)
        except Exception as e:  # raised by the module: its steps fail, the worker goes on
            detail = error_pb2.ErrorDetail(code=GRPC_INTERNAL, message=told(self.name, e))
            results = [agents_pb2.AgentRowResult(row=row.row, outcome=agents_pb2.AGENT_ROW_OUTCOME_FAILED, error=detail) for row in order.step.rows]
        return agents_pb2.AgentsAttachRequest(result=agents_pb2.AgentStepResult(step=order.step.step, rows=results))

    async def take_at_once(self, order: agents_pb2.AgentsAttachResponse) -> agents_pb2.AgentsAttachRequest | None:
        return self.take(order)

    def step(self, given: Sequence[agents_pb2.AgentRow]) -> list[agents_pb2.AgentRowResult]:
        rows = sorted(given, key=lambda row: row.row_key)  # so that a lock-step's batch is the same, whoever came first
        seen = np.frombuffer(b"".join(row.observation[0].data for row in rows), "<f4").reshape(len(rows), *self.policy.shape)
        outputs, version = self.policy.compute(seen, [(row.sampling.seed, row.row_key, row.turn - 1) for row in rows])
        parts = [(name, tensor_pb2.DTYPE_I64 if array.dtype.kind == "i" else tensor_pb2.DTYPE_F32, array) for name, array in outputs.items()]
        return [agents_pb2.AgentRowResult(row=row.row, outcome=agents_pb2.AGENT_ROW_OUTCOME_DONE, params_version=version, output=[
            tensor_pb2.Tensor(name=name, dtype=dtype, shape=array.shape[1:], data=array[i].tobytes()) for name, dtype, array in parts])
            for i, row in enumerate(rows)]
