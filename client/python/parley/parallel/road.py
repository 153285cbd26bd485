"""A road: the endpoint at which a member of a group receives calls. The member is a worker of parley.v1.Work and the only one that offers
its function; each task of that function is a call. Members on the same machine reach it past the daemon (parley.parallel.direct)."""
from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import grpc

from parley import wire
from parley.client import Link
from parley.parallel import direct
from parley.parallel.worker import PART_BYTES
from parley.v1 import work_pb2 as pb
from parley.wire import Error

ROOM = 1024  # how many unanswered calls a member takes


class Road:
    """The road calls take(task, payload) for each call and recall(task) for each cancelled one, on its own thread; both must not block.
    Each task must be answered exactly once, on any thread. ended(error) is called when the stream ends before close()."""

    def __init__(self, link: Link, function: str, take: Callable[[int, Any], None], recall: Callable[[int], None],
                 ended: Callable[[Error], None], is_direct: bool = False) -> None:
        self._take, self._recall, self._ended = take, recall, ended
        self._out: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._lock = threading.Lock()
        # Guarded by the lock:
        self._unanswered = set[int]()  # tasks
        self._is_closing = False
        method = link.channel.stream_stream("/parley.v1.Work/Attach", pb.WorkAttachRequest.SerializeToString, pb.WorkAttachResponse.FromString)
        self._out.put(pb.WorkAttachRequest(offer=pb.WorkOffer(functions=[function], room=ROOM, at_once=ROOM, is_private=True)))
        self._call = method(iter(self._out.get, None), metadata=link.metadata)
        try:
            accepted = next(self._call).accepted
        except grpc.RpcError as e:
            self._out.put(None)
            raise link.error_of(e) from None
        except BaseException:
            self._out.put(None)
            self._call.cancel()
            raise
        self.max_bytes: int = accepted.max_payload_bytes
        self._listener: direct.Listener | None = None
        if is_direct:
            try:
                self._listener = direct.Listener(function.encode(), take, recall)
            except OSError:
                pass  # no descriptor is free: all calls come by way of the daemon
        self._over = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._beat, args=(accepted.silence_ms / 4000,), daemon=True).start()

    def _read(self) -> None:
        parts = list[bytes]()
        begun: Any = None
        error = Error("UNAVAILABLE", "the daemon ended the stream of calls")
        try:
            for response in self._call:
                for order in response.orders:
                    with self._lock:
                        self._unanswered.add(order.task)
                    if order.size_bytes:
                        begun, parts = order, [order.payload]
                    else:
                        self._take(order.task, order.payload)
                if response.rest:
                    parts.append(response.rest)
                    if sum(map(len, parts)) == begun.size_bytes:
                        self._take(begun.task, b"".join(parts))
                        parts = []
                for task in response.cancelled:
                    self._recall(task)
        except grpc.RpcError as e:
            error = wire.error_of(e)
        self._over.set()
        self._out.put(None)
        if not self._is_closing:
            self._ended(error)

    def _beat(self, seconds: float) -> None:
        """Tells the daemon at intervals that the member is alive."""
        while not self._over.wait(seconds):
            self._out.put(pb.WorkAttachRequest())

    def is_limited(self, task: int) -> bool:
        """Whether the daemon's limit of an answer's size applies."""
        return task < direct.FIRST_TASK

    def answer(self, task: int, parts: Sequence[Any], exception: pb.WorkException | None = None) -> None:
        if task >= direct.FIRST_TASK and self._listener is not None:
            self._listener.answer(task, parts, exception)
            return
        payload = b"".join(parts)
        answer = pb.WorkAnswer(task=task, payload=payload, exception=exception)
        with self._lock:
            if task not in self._unanswered:
                return  # an interrupted answer is made again
            if len(payload) <= PART_BYTES:
                self._out.put(pb.WorkAttachRequest(answers=[answer]))
            else:
                answer.payload, answer.size_bytes = payload[:PART_BYTES], len(payload)
                self._out.put(pb.WorkAttachRequest(answers=[answer]))
                for at in range(PART_BYTES, len(payload), PART_BYTES):
                    self._out.put(pb.WorkAttachRequest(rest=payload[at:at + PART_BYTES]))
            self._unanswered.discard(task)
            if self._is_closing and not self._unanswered:
                self._out.put(None)

    def close(self) -> None:
        """Refuses new calls. The stream ends when all calls that have arrived are answered."""
        if self._listener is not None:
            self._listener.close()
        with self._lock:
            self._is_closing = True
            self._out.put(pb.WorkAttachRequest(is_leaving=True))
            if not self._unanswered:
                self._out.put(None)

    def join(self, seconds: float | None = None) -> bool:
        """Waits until close() was called, all calls are answered, and the answers are sent: for `seconds` at most. Returns whether they are."""
        end = None if seconds is None else time.monotonic() + seconds
        return self._over.wait(seconds) and (self._listener is None or self._listener.join(None if end is None else max(end - time.monotonic(), 0.0)))
