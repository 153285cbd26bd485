"""Replay buffers: tables of items into which actors insert experience and from which learners sample it.

    replay = parley.Replay(server, "pole", {"observation": ("f4", (4,)), "action": ("i8", ()), "reward": ("f4", ())},
                           max_items=100_000, sampler="prioritized")
    replay.insert({"observation": o, "action": a, "reward": r})
    batch = replay.sample(32)
    loss = batch.weights(beta=0.4) * error(batch["observation"], batch["action"], batch["reward"])
    replay.update_priorities(batch, abs(errors))

An item is one step or a sequence of steps. `insert_run` inserts one whole sequence; `writer` makes overlapping sequences, which share
their steps. With several daemons, the table's name decides which daemon holds the table."""
from __future__ import annotations

import contextlib
import dataclasses
import queue
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt

from parley import wire
from parley.client import Server, connect
from parley.store import link_of
from parley.v1 import principal_pb2, tensor_pb2
from parley.v1 import replay_pb2 as pb
from parley.wire import Error, Patience

TYPES = {tensor_pb2.DTYPE_F32: np.dtype("<f4"), tensor_pb2.DTYPE_F64: np.dtype("<f8"), tensor_pb2.DTYPE_I32: np.dtype("<i4"),
         tensor_pb2.DTYPE_I64: np.dtype("<i8"), tensor_pb2.DTYPE_U8: np.dtype("u1"), tensor_pb2.DTYPE_BOOL: np.dtype("?")}
CODES = {dtype: code for code, dtype in TYPES.items()}
MAX_MESSAGE_STEPS = 1024
MAX_MESSAGE_BYTES = 2 << 20
WRITER_ITEMS = 16  # items in one message

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
        return w / w.max()


def array_of(tensor: tensor_pb2.Tensor) -> Array:
    return np.frombuffer(tensor.data, TYPES[tensor.dtype]).reshape(tuple(tensor.shape))


def batch_of(m: pb.ReplayBatch) -> Batch:
    steps = np.array(m.steps, np.uint32)
    data = {c.name: array_of(c) for c in m.columns}
    if len(steps) and (steps == steps[0]).all():
        n = int(steps[0])
        data = {name: a if n == 1 else a.reshape((len(steps), n) + a.shape[1:]) for name, a in data.items()}
    return Batch(data, steps, np.array(m.keys, np.uint64), np.array(m.probabilities), np.array(m.priorities),
                 np.array(m.times_sampled, np.uint32), m.epoch, m.table_items)


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
        self._requests: queue.SimpleQueue[pb.ReplayInsertRequest | None] | None = None
        self._stream: Any = None
        self._next_chunk = 0
        if columns is not None:
            specs = [tensor_pb2.TensorSpec(name=name, dtype=CODES[np.dtype(dtype).newbyteorder("<")], shape=shape)
                     for name, (dtype, shape) in columns.items()]
            self._create(pb.ReplayConfig(
                table=table, columns=specs, max_items=max_items, max_bytes=max_bytes, sampler=f"REPLAY_SELECTOR_{sampler.upper()}",
                remover=f"REPLAY_SELECTOR_{remover.upper()}", alpha=alpha, epsilon=epsilon, max_times_sampled=max_times_sampled,
                limiter=pb.ReplayLimiter(min_size=min_size, samples_per_insert=samples_per_insert, min_diff=min_diff, max_diff=max_diff),
                seed=seed, access=principal_pb2.AccessList(readers=readers, writers=writers)))
        self._columns = {c.name: (TYPES[c.dtype], tuple(c.shape)) for c in self.info().config.columns}
        self._step_bytes = sum(dtype.itemsize * int(np.prod(shape)) for dtype, shape in self._columns.values())

    def _create(self, config: pb.ReplayConfig) -> None:
        try:
            self._link.call("Replay/CreateTable", pb.ReplayCreateTableRequest(config=config), pb.ReplayCreateTableResponse)
        except Error as e:
            if e.code != "ALREADY_EXISTS":
                raise

    def info(self) -> pb.ReplayTableInfo:
        answer = self._link.call("Replay/ListTables", pb.ReplayListTablesRequest(), pb.ReplayListTablesResponse)
        for t in answer.tables:
            if t.config.table == self.table:
                return t
        raise Error("NOT_FOUND", f"there is no table '{self.table}': pass columns to create it", field="table")

    def __len__(self) -> int:
        return int(self.info().items)

    # Inserting.

    def _open(self) -> None:
        requests: queue.SimpleQueue[pb.ReplayInsertRequest | None] = queue.SimpleQueue()
        call = self._link.channel.stream_stream("/parley.v1.Replay/Insert", pb.ReplayInsertRequest.SerializeToString,
                                                pb.ReplayInsertResponse.FromString)
        self._requests, self._next_chunk = requests, 0
        self._stream = call(iter(requests.get, None), metadata=self._link.metadata)
        self._send(pb.ReplayInsertRequest(table=self.table))
        self._receive(1)

    def _send(self, m: pb.ReplayInsertRequest) -> None:
        assert self._requests is not None
        self._requests.put(m)

    def _receive(self, n_messages: int) -> list[int]:
        """Waits for the answers to the last n_messages messages, which are all unanswered ones, and returns the keys of their items."""
        keys: list[int] = []
        try:
            while n_messages > 0:
                answer = next(self._stream)
                keys += answer.keys
                n_messages -= answer.messages
            return keys
        except StopIteration:
            self.close()
            raise Error("UNAVAILABLE", "the daemon ended the stream of inserts") from None
        except grpc.RpcError as e:
            self.close()
            raise wire.error_of(e) from None

    def _chunk(self, steps: Steps) -> pb.ReplayChunk:
        """Converts the steps, [n, …] for each column, to the columns' types; the daemon checks their shapes."""
        if steps.keys() != self._columns.keys():
            raise ValueError(f"the step has the columns {sorted(steps)}, but the table has the columns {sorted(self._columns)}")
        chunk = pb.ReplayChunk(id=self._next_chunk)
        self._next_chunk += 1
        for name, (dtype, _) in self._columns.items():
            a = np.asarray(steps[name], dtype)
            chunk.columns.add(name=name, dtype=CODES[dtype], shape=a.shape, data=a.tobytes())
        return chunk

    def insert(self, step: Steps, priority: float | None = None, timeout: float = 0) -> int:
        """Inserts an item that has one step and returns the item's key."""
        return self.insert_all({name: np.asarray(value)[None] for name, value in step.items()}, None if priority is None else [priority],
                               timeout)[0]

    def _at_once(self) -> int:
        """Returns how many steps fit in one message."""
        return max(1, min(MAX_MESSAGE_STEPS, MAX_MESSAGE_BYTES // max(1, self._step_bytes)))

    def insert_all(self, steps: Steps, priorities: Sequence[float] | None = None, timeout: float = 0) -> list[int]:
        """Inserts each step of [n, …] as an item of its own and returns the items' keys. timeout: how many seconds the limiter may delay
        the inserts (0: no limit)."""
        n = len(next(iter(steps.values())))
        at_once = self._at_once()
        parts = range(0, n, at_once)
        for at in parts:
            if self._stream is None:
                self._open()
            m = pb.ReplayInsertRequest(chunks=[self._chunk({k: v[at:at + at_once] for k, v in steps.items()})], timeout_ms=round(1000 * timeout))
            for i in range(min(at_once, n - at)):
                item = m.items.add(slices=[pb.ReplaySlice(chunk=m.chunks[0].id, first=i, steps=1)])
                if priorities is not None:
                    item.priority, item.has_priority = float(priorities[at + i]), True
            self._send(m)
        return self._receive(len(parts))

    def insert_run(self, steps: Steps, priority: float | None = None, timeout: float = 0) -> int:
        """Inserts all steps of [n, …] as one item and returns the item's key."""
        if self._stream is None:
            self._open()
        n = len(next(iter(steps.values())))
        if n == 0:
            raise ValueError("steps is empty: a run needs at least one step")
        at_once = self._at_once()
        ids = []
        for at in range(0, n, at_once):
            chunk = self._chunk({k: v[at:at + at_once] for k, v in steps.items()})
            ids.append(chunk.id)
            m = pb.ReplayInsertRequest(chunks=[chunk], timeout_ms=round(1000 * timeout))
            if at + at_once < n:
                m.keep_chunks = len(ids)
            else:
                m.items.add(slices=[pb.ReplaySlice(chunk=id) for id in ids], priority=priority or 0.0, has_priority=priority is not None)
            self._send(m)
        return self._receive(len(ids))[0]

    @contextlib.contextmanager
    def writer(self, max_steps: int, timeout: float = 0) -> Iterator[Writer]:
        """Opens a Writer, to which steps are appended and which makes items from the last steps, at most max_steps an item."""
        w = Writer(self, max_steps, timeout)
        yield w
        w.flush()

    # Sampling.

    def sample(self, n: int, timeout: float = 0) -> Batch:
        """Samples n items as soon as the limiter allows it. timeout: how many seconds to wait for that (0: no limit)."""
        request = pb.ReplaySampleRequest(table=self.table, batch_size=n, batches=1, timeout_ms=round(1000 * timeout))
        patience = Patience(self._link.patience)
        while True:
            try:
                return batch_of(next(self._link.stream("Replay/Sample", request, pb.ReplayBatch)))
            except grpc.RpcError as e:
                time.sleep(patience.wait_after(wire.error_of(e)))

    def batches(self, n: int, timeout: float = 0) -> Iterator[Batch]:
        """Yields one batch after the other. The daemon sends the next batches in advance."""
        request = pb.ReplaySampleRequest(table=self.table, batch_size=n, timeout_ms=round(1000 * timeout))
        stream = self._link.stream("Replay/Sample", request, pb.ReplayBatch)
        try:
            for m in stream:
                yield batch_of(m)
        except grpc.RpcError as e:
            raise wire.error_of(e) from None
        finally:
            stream.cancel()

    def update_priorities(self, batch: Batch, priorities: Any) -> int:
        """Sets the priorities of a batch's items and returns how many of these items are still in the table."""
        request = pb.ReplayUpdatePrioritiesRequest(table=self.table, epoch=batch.epoch, keys=batch.keys.tolist(),
                                                   priorities=np.asarray(priorities, np.float64).reshape(-1).tolist())
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
        if self._stream is not None:
            assert self._requests is not None
            self._requests.put(None)
            self._stream.cancel()
            self._stream = self._requests = None


class Writer:
    """Makes overlapping items: each step is sent once, and items refer to it. Several items are sent in one message."""

    def __init__(self, replay: Replay, max_steps: int, timeout: float) -> None:
        self.replay, self.max_steps, self.timeout = replay, max_steps, timeout
        self._steps: list[Steps] = []  # the steps of the chunk that was not sent yet
        self._items: list[pb.ReplayItem] = []  # the items that were not sent yet
        self._sent: list[tuple[int, int]] = []  # ids and numbers of steps of the sent chunks that items may still refer to
        self._waiting = 0  # the number of unanswered messages
        self.keys: list[int] = []  # the keys of all items
        replay.close()
        replay._open()

    def append(self, step: Steps) -> None:
        self._steps.append(step)
        if len(self._steps) >= self.replay._at_once():
            self._send()

    def item(self, n_steps: int, priority: float | None = None) -> None:
        """Makes an item from the last n_steps steps; the item is in the table when flush returns."""
        chunks = [*self._sent, (self.replay._next_chunk, len(self._steps))]
        known = sum(n for _, n in chunks)
        if not 1 <= n_steps <= min(self.max_steps, known):
            raise ValueError(f"n_steps is {n_steps}, it must be at least 1, at most max_steps ({self.max_steps}) and at most the number of kept steps ({known})")
        slices: list[pb.ReplaySlice] = []
        left = n_steps
        for chunk_id, n in reversed(chunks):
            if left > 0 and n > 0:
                slices.insert(0, pb.ReplaySlice(chunk=chunk_id, first=max(0, n - left), steps=min(n, left)))
                left -= min(n, left)
        self._items.append(pb.ReplayItem(slices=slices, priority=priority or 0.0, has_priority=priority is not None))
        if len(self._items) >= WRITER_ITEMS:
            self._send()

    def _send(self) -> None:
        m = pb.ReplayInsertRequest(items=self._items, timeout_ms=round(1000 * self.timeout))
        if self._steps:
            chunk = self.replay._chunk({name: np.stack([np.asarray(s[name]) for s in self._steps]) for name in self._steps[0]})
            m.chunks.append(chunk)
            self._sent.append((chunk.id, len(self._steps)))
        self._steps, self._items = [], []
        while len(self._sent) > 1 and sum(n for _, n in self._sent[1:]) >= self.max_steps:
            self._sent.pop(0)
        m.keep_chunks = len(self._sent)
        self.replay._send(m)
        self._waiting += 1

    def flush(self) -> list[int]:
        """Waits until all items are in the table and returns the keys of the items since the last flush."""
        if self._items:
            self._send()
        fresh = self.replay._receive(self._waiting)
        self._waiting = 0
        self.keys += fresh
        return fresh
