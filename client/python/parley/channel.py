"""The channel layer: all calls of the blocking client to one daemon, their retries, and streams of questions and answers.

Whatever ends a call early (an error, Ctrl-C, a time-out) leaves the caller's objects whole: an answer that is not read to its end is
never taken for the answer to a later question. This module does not need numpy."""
from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from time import monotonic, sleep
from typing import Any, Generic, TypeVar

import grpc

from parley import reach, wire
from parley.interrupts import Call, Channel, shielded
from parley.wire import Error, Patience

T = TypeVar("T")
Q = TypeVar("Q")
A = TypeVar("A")
WATCH_S, CAUSE_S = 0.25, 1.0  # how long to wait for a connection before a call is made that tells what prevents it; how long that call may take


class Link:
    """A channel to one daemon."""

    def __init__(self, address: str, key: str | None, tls: wire.Tls, patience: float) -> None:
        self.address, self.patience, self.metadata = wire.address_of(address), patience, wire.metadata_of(key)
        credentials, options = wire.channel_arguments(tls)
        self.is_tls = credentials is not None
        self.channel = Channel(grpc.insecure_channel(self.address, options) if credentials is None
                               else grpc.secure_channel(self.address, credentials, options))
        self._is_reached = False

    def error_of(self, failure: Any) -> Error:
        """Converts an exception of a call of this channel."""
        return wire.error_of(failure, self.address, self.is_tls)

    def _answer_of(self, future: Any) -> Any:
        """Waits for a call's answer. The call does not outlive this."""
        try:
            return future.result()
        except grpc.RpcError as e:
            raise self.error_of(e) from None
        finally:
            future.cancel()

    def reach(self) -> None:
        """Waits until the channel is connected for the first time. Use it before a call that is not safe to repeat: such a call would
        fail if connecting took long."""
        if self._is_reached:
            return
        end, waiting = monotonic() + self.patience, wire.Waiting()
        ready = Call(shielded(grpc.channel_ready_future, self.channel))
        try:
            while True:
                try:
                    ready.result(timeout=max(0.0, min(WATCH_S, end - monotonic())))
                    break
                except grpc.FutureTimeoutError:
                    self._raise_cause(monotonic() >= end, waiting)
        finally:
            ready.cancel()
        self._is_reached = True

    def _raise_cause(self, is_over: bool, waiting: wire.Waiting) -> None:
        """Raises why the channel is not connected: a cause that waiting does not change, or, if the time is over, any."""
        error = Error("UNAVAILABLE", reach.SILENT[1].format(self.address), reach.SILENT[0])
        try:
            self.channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=CAUSE_S)
        except grpc.RpcError as e:
            found = self.error_of(e)
            error = found if found.reason else error
        if is_over or error.reason in reach.FINAL:
            raise error from None
        waiting.failed(error)

    def once(self, method: str, request: Any, response: type[T]) -> T:
        """Makes a unary call, once; method is "Service/Name"."""
        call = self.channel.unary_unary(f"/parley.v1.{method}", type(request).SerializeToString, response.FromString)  # type: ignore[attr-defined]
        try:
            answer: T = call(request, metadata=self.metadata)
            return answer
        except grpc.RpcError as e:
            raise self.error_of(e) from None

    def wait(self, method: str, request: Any, response: type[T]) -> T:
        """Like once, for calls that take long: an interruption ends the call at the daemon, too. It costs some more."""
        call = self.channel.unary_unary(f"/parley.v1.{method}", type(request).SerializeToString, response.FromString)  # type: ignore[attr-defined]
        answer: T = self._answer_of(call.future(request, metadata=self.metadata))
        return answer

    def retried(self, attempt: Callable[[], T]) -> T:
        """Returns what attempt returns, and makes it again while its failure may be temporary. Use it only for what is safe to repeat."""
        patience = Patience(self.patience)
        while True:
            try:
                return attempt()
            except grpc.RpcError as e:
                error = self.error_of(e)
            except Error as e:
                error = e
            sleep(patience.wait_after(error))

    def call(self, method: str, request: Any, response: type[T]) -> T:
        """Like once, but repeats the call while its failure may be temporary. Use it only for calls that are safe to repeat."""
        return self.retried(lambda: self.once(method, request, response))

    def stream(self, method: str, request: Any, response: type[T]) -> Any:
        call = self.channel.unary_stream(f"/parley.v1.{method}", type(request).SerializeToString, response.FromString)  # type: ignore[attr-defined]
        return call(request, metadata=self.metadata)

    def read(self, method: str, request: Any, parse: Callable[[bytes], A], take: Callable[[Iterator[A]], T]) -> T:
        """Makes a call that is answered by a stream, once, and returns what take makes of the answers. The call does not outlive this."""
        stream = self.channel.unary_stream(f"/parley.v1.{method}", type(request).SerializeToString, parse)(request, metadata=self.metadata)
        try:
            return take(stream)
        except StopIteration:
            raise Error("UNAVAILABLE", f"the daemon ended the answer to {method} before it was complete") from None
        except grpc.RpcError as e:
            raise self.error_of(e) from None
        finally:
            stream.cancel()

    def upload(self, method: str, messages: Iterable[Q], serialise: Callable[[Q], bytes], response: type[T]) -> T:
        """Makes a call that sends a stream, once, and returns its answer. The call does not outlive this."""
        call = self.channel.stream_unary(f"/parley.v1.{method}", serialise, response.FromString)  # type: ignore[attr-defined]
        answer: T = self._answer_of(call.future(iter(messages), metadata=self.metadata))
        return answer


class Dialogue(Generic[Q, A]):
    """A stream on which questions are asked one after the other. It is opened by the first question. Only one thread at a time may use
    it, but any thread may close it."""

    def __init__(self, link: Link, method: str, serialise: Callable[[Q], bytes], parse: Callable[[bytes], A]) -> None:
        self._link, self._method, self._serialise, self._parse = link, method, serialise, parse
        self._outgoing: SimpleQueue[Q | None] | None = None
        self._call: Any = None

    @property
    def is_open(self) -> bool:
        return self._call is not None

    @property
    def stream(self) -> object:
        """What stands for the stream that is open now, or None."""
        return self._call

    def put(self, question: Q) -> None:
        """Sends one message of a question. Does not wait."""
        outgoing = self._outgoing  # read once: another thread may close the stream meanwhile
        if self._call is None or outgoing is None:
            method = self._link.channel.stream_stream(f"/parley.v1.{self._method}", self._serialise, self._parse)
            self._outgoing = outgoing = SimpleQueue()
            self._call = method(iter(outgoing.get, None), metadata=self._link.metadata)
        outgoing.put(question)

    def take(self) -> A:
        """Waits for the next message of the answer."""
        call = self._call  # read once: another thread may close the stream meanwhile
        if call is None:
            raise Error("UNAVAILABLE", f"the stream of {self._method} is closed")
        try:
            answer: A = next(call)
            return answer
        except StopIteration:
            raise Error("UNAVAILABLE", f"the daemon ended the stream of {self._method}") from None
        except grpc.RpcError as e:
            raise self._link.error_of(e) from None

    @contextlib.contextmanager
    def whole(self, timeout: float = 0, late: Callable[[], Error] | None = None) -> Iterator[None]:
        """Around a question and its whole answer: if anything is raised before the end, the stream ends, and the next question opens a
        new one. timeout: seconds (0: none) after which the stream ends and `late` is raised."""
        timer: threading.Timer | None = None
        is_late = threading.Event()
        if timeout > 0:
            def end() -> None:
                is_late.set()
                self.close()

            timer = threading.Timer(timeout, end)
            timer.daemon = True
            timer.start()
        try:
            yield
        except BaseException as e:
            self.close()
            if is_late.is_set() and isinstance(e, Error) and late is not None:
                raise late() from None
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def close(self) -> None:
        """Ends the stream; the next question opens a new one."""
        call, outgoing, self._call, self._outgoing = self._call, self._outgoing, None, None
        if call is not None:
            call.cancel()
        if outgoing is not None:
            outgoing.put(None)
