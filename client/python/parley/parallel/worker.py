"""The worker process of a pool. It reads its settings from stdin, attaches to the daemon and computes tasks. It ends when stdin is
closed."""
from __future__ import annotations

import collections
import hashlib
import itertools
import mmap
import os
import pickle
import signal
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from parley.parallel.pickle import ALIGNMENT, pack, padding, unpack, values_at

PART_BYTES = 1 << 20  # the most bytes of a payload in one message
ENOUGH_S = 0.005  # the worker asks for tasks of about this duration in advance
FLUSH_S = 0.001  # how long an answer may wait for others, to be sent with them
LATE_S = 0.1  # when a task takes longer, the tasks behind it are handed back
MAX_HELD, MAX_ANSWERS = 512, 128
DIGEST_BYTES = 16
SIGNATURE_BYTES = DIGEST_BYTES + 8  # the digest and the number of signed bytes after it
FIRST_BYTES = 4096  # size of the first part of a large payload; the other parts are encoded without a copy
HEAD = struct.Struct("<IQ")  # head of a task: size of the function in bytes, the task's tag in the pool


def signed(secret: bytes, label: bytes, parts: Sequence[Any], values: Sequence[Any] = ()) -> bytes:
    """Signs data, so that only processes with the secret can make this one unpickle something. values: the bytes of arrays. They are not
    pickled, so only their number is signed: signing them would take several times as long as sending them."""
    return b"".join(signed_parts(secret, label, parts, values))


def signed_parts(secret: bytes, label: bytes, parts: Sequence[Any], values: Sequence[Any] = ()) -> list[Any]:
    """Like signed, but does not copy the parts into one."""
    n = sum(map(len, parts))
    size = n.to_bytes(8, "little")
    digest = hashlib.blake2b(size, key=secret, digest_size=DIGEST_BYTES, person=label)
    for part in parts:
        digest.update(part)
    fill = [padding(SIGNATURE_BYTES + n)] if values else []
    return [digest.digest(), size, *parts, *fill, *values]


def opened(secret: bytes, label: bytes, data: bytes | bytearray | memoryview) -> tuple[memoryview, memoryview]:
    """Verifies the signature. Returns the signed bytes and the values after them."""
    import hmac

    view = memoryview(data)
    end = SIGNATURE_BYTES + int.from_bytes(view[DIGEST_BYTES:SIGNATURE_BYTES], "little")
    digest = hashlib.blake2b(view[DIGEST_BYTES:end], key=secret, digest_size=DIGEST_BYTES, person=label).digest()
    if end > len(view) or not hmac.compare_digest(digest, view[:DIGEST_BYTES]):
        raise ValueError("the data is not signed with this secret")
    return view[SIGNATURE_BYTES:end], view[end + -end % ALIGNMENT:]


def encode(message: Any) -> bytes:
    """Serializes a message; a message of `rests` is bytes already."""
    return message if isinstance(message, bytes) else message.SerializeToString()


def _rest_head(kind: Any) -> bytes:
    return _varint(kind.DESCRIPTOR.fields_by_name["rest"].number << 3 | 2)


def rests(kind: Any, payload: bytes) -> Iterator[bytes]:
    """Yields the payload after its first FIRST_BYTES bytes as serialized messages of this type; the payload is copied only once."""
    view, head = memoryview(payload), _rest_head(kind)
    for start in range(FIRST_BYTES, len(view), PART_BYTES):
        part = view[start:start + PART_BYTES]
        yield b"".join([head, _varint(len(part)), part])


def _varint(n: int) -> bytes:
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


def rest_decoder(kind: Any) -> Callable[[bytes], Any]:
    """Returns a parser of messages of this type. For a message that has only the field `rest`, the parser returns a view of its bytes."""
    parse, head = kind.FromString, _rest_head(kind)

    def decode(data: bytes) -> Any:
        if not data.startswith(head):
            return parse(data)
        n = shift = 0
        for at in range(len(head), min(len(data), 10)):
            n |= (data[at] & 127) << shift
            shift += 7
            if data[at] < 128:
                return memoryview(data)[at + 1:] if at + 1 + n == len(data) else parse(data)
        return parse(data)

    return decode


class Parts:
    """A payload that arrives in parts, which are collected in one buffer."""

    def __init__(self, of: Any) -> None:
        """of: the message that announced the payload and has its first part."""
        self.of, self.payload, self.n = of, bytearray(of.size_bytes), 0
        self.take(of.payload)

    def take(self, part: bytes | memoryview) -> bool:
        """Adds a part and returns whether the payload is complete."""
        self.payload[self.n:self.n + len(part)] = part
        self.n += len(part)
        return self.n == len(self.payload)


class Log:
    """A log in memory that the worker shares with its supervisor: the last tasks that the worker began, and their answers. It is needed
    because answers that are not sent yet are lost with the worker."""

    N, ROOM = 1024, 1 << 20  # number of tasks, bytes for answers
    SLOT = struct.Struct("<QQQQ")  # the daemon's number of the task, the pool's tag, the answer's offset (without wrap-around) and size
    BYTES = N * SLOT.size + ROOM

    def __init__(self, fd: int) -> None:
        self.memory, self.n, self.at = mmap.mmap(fd, self.BYTES), 0, 0

    def begin(self, task: int) -> None:
        self.SLOT.pack_into(self.memory, self.n % self.N * self.SLOT.size, task, 0, 0, 0)
        self.n += 1

    def answered(self, task: int, tag: int, answer: bytes) -> None:
        """Stores the answer to the task that began last."""
        size = len(answer)
        if size > self.ROOM // 16:
            return
        if self.at % self.ROOM + size > self.ROOM:
            self.at += self.ROOM - self.at % self.ROOM
        place = self.N * self.SLOT.size + self.at % self.ROOM
        self.memory[place:place + size] = answer
        self.SLOT.pack_into(self.memory, (self.n - 1) % self.N * self.SLOT.size, task, tag, self.at, size)
        self.at += size

    def read(self) -> tuple[list[int], dict[int, bytes]]:
        """Returns the tasks that were begun, and the answers by the pool's tags."""
        slots = [self.SLOT.unpack_from(self.memory, i * self.SLOT.size) for i in range(self.N)]
        oldest = max(at + size for _, _, at, size in slots) - self.ROOM
        base = self.N * self.SLOT.size
        return ([task for task, _, _, _ in slots if task],
                {tag: self.memory[base + at % self.ROOM:base + at % self.ROOM + size] for _, tag, at, size in slots if size and at >= oldest})


class Worker:
    def __init__(self, settings: dict[str, Any]) -> None:
        from parley.client import Link
        from parley.parallel import futures
        from parley.v1 import work_pb2

        self.futures = futures
        self.pb = work_pb2
        self.settings = settings
        self.secret: bytes = settings["secret"]
        self.link = Link(settings["address"], settings["key"], settings["tls"], 0)
        self.method = self.link.channel.stream_stream("/parley.v1.Work/Attach", encode,
                                                      rest_decoder(work_pb2.WorkAttachResponse))
        self.functions = dict[bytes, Any]()
        self.context: tuple[Any, ...] = ()
        self.changed = threading.Condition()
        # Guarded by `changed`:
        self.jobs = collections.deque[tuple[int, bytes | bytearray]]()
        self.current, self.begun_at = 0, 0.0
        self.lost: BaseException | None = None
        self.out: Any = None
        self.left = settings["maxtasks"] or -1  # how many tasks the worker still takes; -1: no limit
        self.answers = list[Any]()
        self.room, self.pace, self.tag, self.max_bytes = 2, ENOUGH_S, 0, 0
        self.log = Log(settings["log_fd"])
        self.is_computing = False

    def prepare(self) -> None:
        setup = self.settings["setup"]
        if setup is not None:
            initializer, initargs, has_context, context, make_context = unpack(setup)
            if has_context:
                self.context = (make_context(self.settings["index"]) if make_context is not None else context,)
            if initializer is not None:
                initializer(*initargs)

    # --- incoming tasks ---

    def read(self, call: Any) -> None:
        """Receives tasks. Runs on a thread of its own."""
        import grpc

        parts: Parts | None = None
        try:
            for response in call:
                if isinstance(response, memoryview):
                    if parts is not None and parts.take(response):
                        with self.changed:
                            self.jobs.append((parts.of.task, parts.payload))
                            self.changed.notify()
                    continue
                with self.changed:
                    for order in response.orders:
                        if order.size_bytes:
                            parts = Parts(order)
                        else:
                            self.jobs.append((order.task, order.payload))
                    self.changed.notify()
            raise EOFError("the daemon ended the stream")
        except (grpc.RpcError, EOFError) as e:
            with self.changed:
                self.lost = e
                self.changed.notify()

    def beat(self, stop: threading.Event, silence_s: float) -> None:
        """Tells the daemon that the worker is alive, and hands back the tasks that wait behind a long one. Runs on a thread of its own."""
        said_at = time.monotonic()
        while not stop.wait(min(LATE_S, silence_s / 4)):
            now = time.monotonic()
            request = self.pb.WorkAttachRequest()
            with self.changed:
                if self.current and now - self.begun_at > LATE_S and self.jobs:
                    request.returned.extend(task for task, _ in self.jobs)
                    request.room = self.room = 1
                    self.pace = LATE_S
                    self.jobs.clear()
                if request.returned or now - said_at > silence_s / 4:
                    said_at = now
                    self.out.put(request)

    # --- outgoing answers ---

    def flush(self, **more: Any) -> None:
        room = max(2, min(MAX_HELD, int(ENOUGH_S / max(self.pace, 1e-6))))
        request = self.pb.WorkAttachRequest(answers=self.answers, **more)
        if not more and (room >= 2 * self.room or 2 * room <= self.room):
            request.room = self.room = room
        self.answers = []
        self.out.put(request)

    def answer(self, task: int, parts: list[Any], exception: Any = None) -> None:
        at = values_at(parts)
        payload = signed(self.secret, b"result", parts[:at], parts[at:])
        if len(payload) > self.max_bytes:
            if exception is None:
                self.failed(task, ValueError(f"the result has {len(payload)} bytes, but the daemon takes at most {self.max_bytes}"))
                return
            payload = b""
        if len(payload) <= PART_BYTES:
            answer = self.pb.WorkAnswer(task=task, payload=payload, exception=exception)
            self.log.answered(task, self.tag, answer.SerializeToString())
            self.answers.append(answer)
            return
        self.answers.append(self.pb.WorkAnswer(task=task, payload=payload[:FIRST_BYTES], size_bytes=len(payload)))
        self.flush()
        for rest in rests(self.pb.WorkAttachRequest, payload):
            self.out.put(rest)

    def compute(self, payload: bytes | bytearray) -> Any:
        body, values = opened(self.secret, b"task", payload)
        size, self.tag = HEAD.unpack_from(body)
        key = bytes(body[HEAD.size:HEAD.size + size])
        function = self.functions.get(key)
        if function is None:
            if len(self.functions) == 64:
                self.functions.clear()
            function = self.functions[key] = unpack(key)
        how, args, kwds = unpack(body[HEAD.size + size:], values=values)
        if how == "call":
            return self.futures.resolved(function(*self.context, *args, **kwds))
        if self.context:
            return self.futures.all_resolved([function(*self.context, *((a,) if how == "map" else a)) for a in args])
        results = list(map(function, args) if how == "map" else itertools.starmap(function, args))  # a loop in C
        if len(results) < len(args):
            raise StopIteration(f"raised by the function for item {len(results)} of {len(args)}")
        return self.futures.all_resolved(results)

    def work(self, task: int, payload: bytes | bytearray) -> None:
        self.tag = 0
        try:
            self.is_computing = True
            value = self.compute(payload)
            self.is_computing = False
            parts = pack(value, self.settings["by_reference"], "value")[0]
        except BaseException as e:  # SystemExit, too: it fails the task and does not end the worker
            self.is_computing = False
            return self.failed(task, e)
        self.answer(task, parts)
        return None

    def interrupt(self, *_: Any) -> None:
        """Ctrl-C goes to all processes of a terminal: it ends a task, not the worker, whose context may be dear."""
        if self.is_computing:
            raise KeyboardInterrupt

    def failed(self, task: int, e: BaseException) -> None:
        self.answer(task, *failure(e))

    # --- the stream ---

    def attach(self) -> None:
        """Attaches to the daemon and computes tasks. Raises the error if the stream breaks; returns when the worker has done maxtasks
        tasks."""
        import queue

        self.out = queue.SimpleQueue()
        self.lost, self.answers, self.room = None, [], 2
        self.jobs.clear()
        self.out.put(self.pb.WorkAttachRequest(offer=self.pb.WorkOffer(
            name=self.settings["name"], functions=[self.settings["function"]], room=self.room, at_once=Log.N,
            is_private=True)))
        call = self.method(iter(self.out.get, None), metadata=self.link.metadata)
        stop = threading.Event()
        try:
            accepted = next(call).accepted
            self.max_bytes = accepted.max_payload_bytes
            if self.settings["ready_fd"] >= 0:
                os.write(self.settings["ready_fd"], self.max_bytes.to_bytes(8, "little"))
                os.close(self.settings["ready_fd"])
                self.settings["ready_fd"] = -1
            threading.Thread(target=self.read, args=(call,), daemon=True).start()
            threading.Thread(target=self.beat, args=(stop, accepted.silence_ms / 1000), daemon=True).start()
            self.loop()
            self.out.put(None)
            call.code()  # the daemon ends the stream once it has all answers
        finally:
            stop.set()
            self.out.put(None)
            call.cancel()

    def loop(self) -> None:
        flushed_at = time.monotonic()
        while True:
            with self.changed:
                if not self.jobs and self.answers:
                    self.flush()
                    flushed_at = time.monotonic()
                while not self.jobs and self.lost is None:
                    self.changed.wait()
                if self.lost is not None:
                    raise self.lost
                self.current, payload = self.jobs.popleft()
                self.begun_at = time.monotonic()
                self.log.begin(self.current)
            self.work(self.current, payload)
            now = time.monotonic()
            with self.changed:
                self.current = 0
                self.pace = 0.8 * self.pace + 0.2 * (now - self.begun_at)
                self.left -= 1
                if self.left == 0:
                    self.flush(is_leaving=True, returned=[task for task, _ in self.jobs])
                    return
                if len(self.answers) >= MAX_ANSWERS or now - flushed_at > FLUSH_S:
                    self.flush()
                    flushed_at = now

    def run(self) -> None:
        import grpc

        from parley import wire

        self.prepare()
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else the initializer's
            signal.signal(signal.SIGINT, self.interrupt)
        delay = 0.05
        while True:
            try:
                self.attach()
                return
            except (grpc.RpcError, EOFError) as e:
                error = wire.error_of(e) if isinstance(e, grpc.RpcError) else None
                if error is not None and error.code not in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"):
                    sys.exit(f"the daemon refused this worker: {error}")
            time.sleep(delay)
            delay = min(2 * delay, 1.0)


def failure(e: BaseException) -> tuple[list[Any], Any]:
    """Returns the parts of a payload with the pickled exception (empty if it cannot be pickled), and a message with its type, text and
    traceback."""
    from parley.v1 import work_pb2

    kind = type(e)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        message = str(e)
    except Exception as why:
        message = f"its text cannot be had: {type(why).__name__}"
    try:
        trace = "".join(traceback.format_exception(e))
    except Exception as why:
        trace = f"its trace cannot be had: {type(why).__name__}"
    said = work_pb2.WorkException(type=encodable(name).encode()[:256].decode(errors="ignore"), message=cut(message), trace=cut(trace))
    try:
        parts = pack(e, False)[0]
        if sum(map(len, parts)) > PART_BYTES // 2:
            parts = []
    except Exception:  # the exception cannot be pickled: only its text is sent
        parts = []
    return list(parts), said


def cut(text: str) -> str:
    """Shortens a text to the 64 KiB that the wire allows."""
    text = encodable(text)
    return text if len(text) <= 16000 else text[:8000] + "\n…\n" + text[-8000:]


def encodable(text: str) -> str:
    """Surrogates, as file names have them, and NUL are spelt out: a string of the wire has neither."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    size = int.from_bytes(sys.stdin.buffer.read(4), "little")
    settings = pickle.loads(sys.stdin.buffer.read(size))
    sys.path[:] = settings["path"]
    threading.Thread(target=end_with_stdin, daemon=True).start()
    Worker(settings).run()
