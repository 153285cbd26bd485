"""Replay buffers: tables of items into which actors insert experience and from which learners sample it.

    >>> import numpy as np
    >>> with parley.connect(ADDRESS) as server:
    ...     replay = parley.Replay(server, "pole", {"observation": ("f4", (4,)), "action": ("i8", ()), "reward": ("f4", ())},
    ...                            max_items=100_000, sampler="prioritized")
    ...     for i in range(40):
    ...         key = replay.insert({"observation": np.full(4, i), "action": i % 2, "reward": 1.0})
    ...     batch = replay.sample(32)
    ...     errors = batch.weights(beta=0.4) * (batch["reward"] - batch["action"])
    ...     batch["observation"].shape, replay.update_priorities(batch, abs(errors))
    ((32, 4), 32)

An item is one step or a sequence of steps. `insert_run` inserts one whole sequence; `writer` makes overlapping sequences, which share
their steps. With several daemons, the table's name decides which daemon holds the table."""
from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt

from parley import exact, wire
from parley.channel import Dialogue, Link
from parley.client import Server, connect
from parley.store import link_of
from parley.v1 import principal_pb2, tensor_pb2
from parley.v1 import replay_pb2 as pb
from parley.wire import Error, Invalid

TYPES: dict[int, np.dtype[Any]] = {
    tensor_pb2.DTYPE_F32: np.dtype("<f4"), tensor_pb2.DTYPE_F64: np.dtype("<f8"), tensor_pb2.DTYPE_I32: np.dtype("<i4"),
         tensor_pb2.DTYPE_I64: np.dtype("<i8"), tensor_pb2.DTYPE_U8: np.dtype("u1"), tensor_pb2.DTYPE_BOOL: np.dtype("?")}
CODES: dict[Any, Any] = {dtype: code for code, dtype in TYPES.items()}
MAX_MESSAGE_STEPS = 1024
MAX_MESSAGE_BYTES = 2 << 20
MAX_U32, MAX_U64 = (1 << 32) - 1, (1 << 64) - 1
MAX_STEP_BYTES = (4 << 20) - (64 << 10)  # a step goes in one message, of at most 4 MiB
WRITER_ITEMS = 16  # items in one message
SELECTORS = "uniform", "fifo", "lifo", "prioritized"

Array = npt.NDArray[Any]
Steps = Mapping[str, Any]
Columns = Mapping[str, tuple[Any, tuple[int, ...]]]


@dataclasses.dataclass(frozen=True)
class Batch:
    """A sampled batch of n items. `data` has an array for each column: [n, …] if every item has one step; [n, steps, …] if all items
    have the same number of steps; otherwise the steps of all items one after the other, of which item i has `steps[i]`."""

    data: dict[str, Array]
    steps: npt.NDArray[np.uint32]
    keys: npt.NDArray[np.uint64]
    probabilities: npt.NDArray[np.float64]
    priorities: npt.NDArray[np.float64]
    times_sampled: npt.NDArray[np.uint32]
    epoch: int
    table_items: int

    def __getitem__(self, column: str) -> Array:
        return self.data[column]

    def __len__(self) -> int:
        return len(self.keys)

    def weights(self, beta: float) -> npt.NDArray[np.float64]:
        """Returns the importance weights: (table_items * probability)^-beta, divided by the largest of the batch."""
        w: npt.NDArray[np.float64] = (self.table_items * self.probabilities)**-beta
        return np.asarray(w / w.max())


def array_of(tensor: tensor_pb2.Tensor) -> Array:
    # A copy, which may be written to. Memory of bytes may not: torch would do so all the same, and Python shares those of length 1.
    found: Array = np.frombuffer(tensor.data, TYPES[tensor.dtype]).reshape(tuple(tensor.shape)).copy()
    return found


def batch_of(m: pb.ReplayBatch) -> Batch:
    steps = np.array(m.steps, np.uint32)
    data = {c.name: array_of(c) for c in m.columns}
    if len(steps) and (steps == steps[0]).all():
        n = int(steps[0])
        data = {name: a if n == 1 else a.reshape((len(steps), n) + a.shape[1:]) for name, a in data.items()}
    return Batch(data, steps, np.array(m.keys, np.uint64), np.array(m.probabilities), np.array(m.priorities),
                 np.array(m.times_sampled, np.uint32), m.epoch, m.table_items)


def plain_of(dtype: np.dtype[Any]) -> tuple[type, Any, Any]:
    """Returns Python's type of numbers that a column takes, with its least and its greatest number."""
    if dtype.kind == "f":
        return float, -float(np.finfo(dtype).max), float(np.finfo(dtype).max)
    if dtype.kind == "b":
        return bool, False, True
    return int, int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


def spec_of(name: Any, column: Any) -> tensor_pb2.TensorSpec:
    field = f"columns['{name}']"
    if not isinstance(name, str):
        raise Invalid(field, "has a name that is no text")
    if not isinstance(column, (tuple, list)) or len(column) != 2 or not isinstance(column[1], Sequence):
        raise Invalid(field, f"is {column!r}, it must be a type and the shape of a step, as ('f4', (3,))")
    dtype, shape = column
    try:
        code = CODES[np.dtype("V" if dtype is None else dtype).newbyteorder("<")]  # numpy takes None for float64
    except (KeyError, TypeError):
        known = ", ".join(str(t) for t in CODES)
        raise Invalid(field, f"has the type {dtype}, a table's columns have one of {known}") from None
    return tensor_pb2.TensorSpec(name=name, dtype=code, shape=[exact.whole(field, n, 0, MAX_U32) for n in shape])


def selector_of(field: str, name: Any) -> str:
    if name not in SELECTORS:
        raise Invalid(field, f"is {name!r}, it must be one of {', '.join(SELECTORS)}")
    return f"REPLAY_SELECTOR_{name.upper()}"


def names_of(field: str, names: Any) -> list[str]:
    if isinstance(names, str):
        raise Invalid(field, f"is the text {names!r}, it must be a list of names")
    return list(names)


class Inserts:
    """A stream of inserts into one table. Chunks are numbered within the stream."""

    def __init__(self, link: Link, table: str) -> None:
        self._dialogue: Dialogue[pb.ReplayInsertRequest, pb.ReplayInsertResponse] = Dialogue(
            link, "Replay/Insert", pb.ReplayInsertRequest.SerializeToString, pb.ReplayInsertResponse.FromString)
        self._table = table
        self.next_chunk = 0  # the number of the next chunk
        self.whole, self.close = self._dialogue.whole, self._dialogue.close

    @property
    def is_open(self) -> bool:
        return self._dialogue.is_open

    def open(self) -> None:
        """Opens the stream unless it is open. Needs whole(), as all that follows."""
        if not self._dialogue.is_open:
            self.next_chunk = 0
            self._dialogue.put(pb.ReplayInsertRequest(table=self._table))
            self.receive(1)

    def chunk(self, steps: Mapping[str, Array]) -> pb.ReplayChunk:
        chunk = pb.ReplayChunk(id=self.next_chunk)
        self.next_chunk += 1
        for name, a in steps.items():
            chunk.columns.add(name=name, dtype=CODES[a.dtype], shape=a.shape, data=a.tobytes())
        return chunk

    def send(self, m: pb.ReplayInsertRequest) -> None:
        self._dialogue.put(m)

    def receive(self, n_messages: int) -> list[int]:
        """Waits for the answers to the last n_messages messages, which are all unanswered ones, and returns the keys of their items."""
        keys: list[int] = []
        while n_messages > 0:
            answer = self._dialogue.take()
            keys += answer.keys
            n_messages -= answer.messages
        return keys


class Replay:
    """A table, which is created if it does not exist. An existing table keeps its columns and settings. columns: name → (dtype, shape
    of one step); None: the table must exist. sampler: "uniform", "fifo", "lifo" or "prioritized". remover: selects the items to remove
    when max_items or max_bytes is reached. samples_per_insert, min_diff and max_diff: see ReplayLimiter. Only one thread at a time may
    use it."""

    def __init__(self, server: Server | str, table: str, columns: Columns | None = None, *, max_items: int = 1_000_000,
                 max_bytes: int = 256 << 20, sampler: str = "uniform", remover: str = "fifo", alpha: float = 0.6, epsilon: float = 0.01,
                 max_times_sampled: int = 0, min_size: int = 1, samples_per_insert: float = 0.0, min_diff: float = 0.0,
                 max_diff: float = 0.0, seed: int = 0, readers: Sequence[str] = (), writers: Sequence[str] = ()) -> None:
        self.table = table
        self._link = link_of(connect(server) if isinstance(server, str) else server, table)
        self._inserts = Inserts(self._link, table)
        if columns is not None:
            if not isinstance(columns, Mapping):
                raise Invalid("columns", "is no dict of names, each with a type and a shape")
            specs = [spec_of(name, column) for name, column in columns.items()]
            size = sum(TYPES[s.dtype].itemsize * math.prod(s.shape) for s in specs)
            if size > MAX_STEP_BYTES:
                raise Invalid("columns", f"has steps of {size} bytes, they may have at most {MAX_STEP_BYTES}")
            self._create(pb.ReplayConfig(
                table=table, columns=specs, max_items=exact.whole("max_items", max_items, 0, MAX_U64), max_bytes=exact.whole("max_bytes", max_bytes, 0, MAX_U64),
                sampler=selector_of("sampler", sampler), remover=selector_of("remover", remover), alpha=alpha, epsilon=epsilon,
                max_times_sampled=exact.whole("max_times_sampled", max_times_sampled, 0, MAX_U32),
                limiter=pb.ReplayLimiter(min_size=exact.whole("min_size", min_size, 0, MAX_U64), samples_per_insert=samples_per_insert, min_diff=min_diff,
                                         max_diff=max_diff), seed=exact.whole("seed", seed, 0, MAX_U64),
                access=principal_pb2.AccessList(readers=names_of("readers", readers), writers=names_of("writers", writers))))
        self._columns = {c.name: (TYPES[c.dtype], tuple(c.shape)) for c in self.info().config.columns}
        self._plain = [(name, dtype, shape, *plain_of(dtype)) for name, (dtype, shape) in self._columns.items()]
        self._step_bytes = sum(dtype.itemsize * int(np.prod(shape)) for dtype, shape in self._columns.values())

    def _create(self, config: pb.ReplayConfig) -> None:
        try:
            self._link.call("Replay/CreateTable", pb.ReplayCreateTableRequest(config=config), pb.ReplayCreateTableResponse)
        except Error as e:
            if e.code != "ALREADY_EXISTS":
                raise

    def info(self) -> pb.ReplayTableInfo:
        answer: pb.ReplayListTablesResponse = self._link.call("Replay/ListTables", pb.ReplayListTablesRequest(), pb.ReplayListTablesResponse)
        for t in answer.tables:
            if t.config.table == self.table:
                found: pb.ReplayTableInfo = t
                return found
        raise Error("NOT_FOUND", f"there is no table '{self.table}': pass columns to create it", field="table")

    def __len__(self) -> int:
        return int(self.info().items)

    # Inserting.

    def _exact(self, steps: Steps, is_one: bool = False) -> dict[str, Array]:
        """Returns the steps, [n, …] for each column, in the columns' types; is_one: a single step. Refuses, by the column's name, another
        type, a value outside of the type's range, another shape, and columns of different lengths."""
        if not isinstance(steps, Mapping):
            raise Invalid("steps", f"is a {type(steps).__name__}, it must be a dict with the columns {sorted(self._columns)}")
        if steps.keys() != self._columns.keys():
            raise Invalid("steps", f"has the columns {sorted(steps)}, but the table has the columns {sorted(self._columns)}")
        found, n = dict[str, Array](), -1
        for name, (dtype, shape) in self._columns.items():
            a = exact.exact(name, steps[name], dtype)
            a = a[None] if is_one else a
            if a.ndim == 0:
                raise Invalid(name, "is one number, it must have a row for each step")
            if a.shape[1:] != shape:
                raise Invalid(name, f"has steps of the shape {a.shape[1:]}, but the column has {shape}")
            if n not in (-1, len(a)):
                raise Invalid(name, f"has {len(a)} steps, but the columns before it have {n}")
            found[name], n = a, len(a)
        return found

    def _one(self, step: Steps) -> list[Any]:
        """Returns copies of one step's values, in the columns' order; as _exact, but fast for what needs no conversion."""
        values = list[Any]()
        if isinstance(step, Mapping) and len(step) == len(self._plain):
            for name, dtype, shape, kind, least, most in self._plain:
                value = step.get(name)
                if type(value) is np.ndarray and value.dtype == dtype and value.shape == shape:
                    values.append(value.copy())
                elif type(value) is kind and not shape and least <= value <= most:
                    values.append(value)
                else:
                    break
            else:
                return values
        return [np.array(a[0]) for a in self._exact(step, True).values()]

    def insert(self, step: Steps, priority: float | None = None, timeout: float = 0) -> int:
        """Inserts an item that has one step and returns the item's key."""
        return self._insert_all(self._exact(step, True), None if priority is None else [priority], timeout)[0]

    def _at_once(self) -> int:
        """Returns how many steps fit in one message."""
        return max(1, min(MAX_MESSAGE_STEPS, MAX_MESSAGE_BYTES // max(1, self._step_bytes)))

    def insert_all(self, steps: Steps, priorities: Sequence[float] | None = None, timeout: float = 0) -> list[int]:
        """Inserts each step of [n, …] as an item of its own and returns the items' keys. timeout: how many seconds the limiter may delay
        the inserts (0: no limit)."""
        return self._insert_all(self._exact(steps), priorities, timeout)

    def _insert_all(self, steps: dict[str, Array], priorities: Any, timeout: float) -> list[int]:
        n, at_once, timeout_ms = len(next(iter(steps.values()))), self._at_once(), wire.milliseconds(timeout)
        weights = None if priorities is None else exact.finite("priorities", priorities, n, 0).tolist()
        parts = range(0, n, at_once)
        with self._inserts.whole():
            self._inserts.open()
            for at in parts:
                m = pb.ReplayInsertRequest(chunks=[self._inserts.chunk({k: v[at:at + at_once] for k, v in steps.items()})], timeout_ms=timeout_ms)
                for i in range(min(at_once, n - at)):
                    item = m.items.add(slices=[pb.ReplaySlice(chunk=m.chunks[0].id, first=i, steps=1)])
                    if weights is not None:
                        item.priority, item.has_priority = weights[at + i], True
                self._inserts.send(m)
            return self._inserts.receive(len(parts))

    def insert_run(self, steps: Steps, priority: float | None = None, timeout: float = 0) -> int:
        """Inserts all steps of [n, …] as one item and returns the item's key."""
        exactly, timeout_ms, at_once, ids = self._exact(steps), wire.milliseconds(timeout), self._at_once(), list[int]()
        n = len(next(iter(exactly.values())))
        if n == 0:
            raise Invalid("steps", "is empty: a run needs at least one step")
        weight = 0.0 if priority is None else float(exact.finite("priority", [priority], 1, 0)[0])
        with self._inserts.whole():
            self._inserts.open()
            for at in range(0, n, at_once):
                chunk = self._inserts.chunk({k: v[at:at + at_once] for k, v in exactly.items()})
                ids.append(chunk.id)
                m = pb.ReplayInsertRequest(chunks=[chunk], timeout_ms=timeout_ms)
                if at + at_once < n:
                    m.keep_chunks = len(ids)
                else:
                    m.items.add(slices=[pb.ReplaySlice(chunk=id) for id in ids], priority=weight, has_priority=priority is not None)
                self._inserts.send(m)
            return self._inserts.receive(len(ids))[0]

    @contextlib.contextmanager
    def writer(self, max_steps: int, timeout: float = 0) -> Iterator[Writer]:
        """Opens a Writer, to which steps are appended and which makes items from the last steps, at most max_steps an item."""
        w = Writer(self, max_steps, timeout)
        try:
            yield w
            w.flush()
        finally:
            w.close()

    # Sampling.

    def sample(self, n: int, timeout: float = 0) -> Batch:
        """Samples n items as soon as the limiter allows it. timeout: how many seconds to wait for that (0: no limit)."""
        request = pb.ReplaySampleRequest(table=self.table, batch_size=exact.whole("n", n, 0, MAX_U32), batches=1, timeout_ms=wire.milliseconds(timeout))
        return self._link.retried(lambda: self._link.read("Replay/Sample", request, pb.ReplayBatch.FromString, lambda stream: batch_of(next(stream))))

    def batches(self, n: int, timeout: float = 0) -> Iterator[Batch]:
        """Yields one batch after the other. The daemon sends the next batches in advance."""
        request = pb.ReplaySampleRequest(table=self.table, batch_size=exact.whole("n", n, 0, MAX_U32), timeout_ms=wire.milliseconds(timeout))
        stream = self._link.stream("Replay/Sample", request, pb.ReplayBatch)
        try:
            for m in stream:
                yield batch_of(m)
        except grpc.RpcError as e:
            raise self._link.error_of(e) from None
        finally:
            stream.cancel()

    def update_priorities(self, batch: Batch, priorities: Any) -> int:
        """Sets the priorities of a batch's items and returns how many of these items are still in the table."""
        request = pb.ReplayUpdatePrioritiesRequest(table=self.table, epoch=batch.epoch, keys=batch.keys.tolist(),
                                                   priorities=exact.finite("priorities", priorities, len(batch), 0).tolist())
        return int(self._link.call("Replay/UpdatePriorities", request, pb.ReplayUpdatePrioritiesResponse).applied)

    def clear(self) -> None:
        self._link.call("Replay/Clear", pb.ReplayClearRequest(table=self.table), pb.ReplayClearResponse)

    def checkpoint(self) -> None:
        """Saves the table and returns when a restarted daemon would have its present contents. The daemon needs --data."""
        self._link.call("Replay/Checkpoint", pb.ReplayCheckpointRequest(table=self.table), pb.ReplayCheckpointResponse)

    def delete(self) -> None:
        self.close()
        self._link.call("Replay/DeleteTable", pb.ReplayDeleteTableRequest(table=self.table), pb.ReplayDeleteTableResponse)

    def close(self) -> None:
        """Ends the stream of inserts; the next insert opens a new one."""
        self._inserts.close()


class Writer:
    """Makes overlapping items: each step is sent once, and items refer to it. Several items are sent in one message. It has a stream of
    its own. If sending fails or is interrupted, the steps and items that were not flushed are dropped, and the next step begins anew."""

    def __init__(self, replay: Replay, max_steps: int, timeout: float) -> None:
        if max_steps < 1:
            raise Invalid("max_steps", f"is {max_steps}, it must be at least 1")
        self.replay, self.max_steps, self._timeout_ms = replay, max_steps, wire.milliseconds(timeout)
        self._inserts = Inserts(replay._link, replay.table)
        self.keys: list[int] = []  # the keys of all items
        self._drop()
        with self._whole():
            self._inserts.open()

    def _drop(self) -> None:
        self._inserts.close()
        self._inserts.next_chunk = 0
        self._steps: list[list[Any]] = []  # the steps of the chunk that was not sent yet
        self._items: list[pb.ReplayItem] = []  # the items that were not sent yet
        self._sent: list[tuple[int, int]] = []  # ids and numbers of steps of the sent chunks that items may still refer to
        self._waiting = 0  # the number of unanswered messages

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._drop()
            raise

    def append(self, step: Steps) -> None:
        self._steps.append(self.replay._one(step))
        if len(self._steps) >= self.replay._at_once():
            self._send()

    def item(self, n_steps: int, priority: float | None = None) -> None:
        """Makes an item from the last n_steps steps; the item is in the table when flush returns."""
        weight = 0.0 if priority is None else float(exact.finite("priority", [priority], 1, 0)[0])
        chunks = [*self._sent, (self._inserts.next_chunk, len(self._steps))]
        known = sum(n for _, n in chunks)
        if not 1 <= n_steps <= min(self.max_steps, known):
            raise Invalid("n_steps", f"is {n_steps}, it must be at least 1, at most max_steps ({self.max_steps}) and at most the number of kept "
                                     f"steps ({known})")
        slices: list[pb.ReplaySlice] = []
        left = n_steps
        for chunk_id, n in reversed(chunks):
            if left > 0 and n > 0:
                slices.insert(0, pb.ReplaySlice(chunk=chunk_id, first=max(0, n - left), steps=min(n, left)))
                left -= min(n, left)
        self._items.append(pb.ReplayItem(slices=slices, priority=weight, has_priority=priority is not None))
        if len(self._items) >= WRITER_ITEMS:
            self._send()

    def _send(self) -> None:
        with self._whole():
            self._inserts.open()
            m = pb.ReplayInsertRequest(items=self._items, timeout_ms=self._timeout_ms)
            if self._steps:
                chunk = self._inserts.chunk({name: np.array([s[i] for s in self._steps], dtype)
                                             for i, (name, (dtype, _)) in enumerate(self.replay._columns.items())})
                m.chunks.append(chunk)
                self._sent.append((chunk.id, len(self._steps)))
            self._steps, self._items = [], []
            while len(self._sent) > 1 and sum(n for _, n in self._sent[1:]) >= self.max_steps:
                self._sent.pop(0)
            m.keep_chunks = len(self._sent)
            self._inserts.send(m)
            self._waiting += 1

    def flush(self) -> list[int]:
        """Waits until all items are in the table and returns the keys of the items since the last flush."""
        if self._items:
            self._send()
        with self._whole():
            fresh = self._inserts.receive(self._waiting)
            self._waiting = 0
            self.keys += fresh
        return fresh

    def close(self) -> None:
        """Ends the writer's stream. Items that were not flushed may be missing in the table."""
        self._drop()
