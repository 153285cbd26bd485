"""A channel of gRPC whose calls Ctrl-C may interrupt at any place, as may other signals whose handlers raise.

Python raises KeyboardInterrupt in the main thread between any two instructions, thus also where gRPC has just taken one of its locks and not
yet begun the block that gives it back. The lock then stays taken, and the next call on the channel waits for ever. So while the main
thread is in gRPC's code, the handler that is installed for a signal runs as always, but what it raises waits: until gRPC has returned, which
a call that is cancelled at once does soon, or until no lock is taken. A handler that raises nothing changes nothing. Of what several raise
the last is raised, with the one before as its context.

Other locks of the package are safe where `with` takes them in C: threading's Lock and RLock, and the Condition and the Event of this module.

A process that is forked has a copy of the channel without its threads: there calls would wait for ever, or mix with those of the process that
made the channel. They are refused.

This module does not need numpy."""
from __future__ import annotations

import _thread
import functools
import os
import signal
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from parley.wire import Error

T = TypeVar("T")

# Without their conversion to enums, which takes longer than all else here.
_get, _set = getattr(signal.getsignal, "__wrapped__", signal.getsignal), getattr(signal.signal, "__wrapped__", signal.signal)
AGAIN_AFTER = 0.002  # seconds until a place without a lock is looked for again
WAITING = {"code", "details", "exception", "initial_metadata", "trailing_metadata"}  # methods of a call that may wait for its end
SIGNALS = tuple(map(int, (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)))


class _Helper:
    """A thread that does what a handler of signals must not do itself."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], Any]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        if self._thread is None or not self._thread.is_alive():  # a process that was forked has it no more
            self._thread = threading.Thread(target=self._live, name="parley-interrupts", daemon=True)
            self._thread.start()

    def do(self, work: Callable[[], Any]) -> None:
        self._work.put(work)

    def _live(self) -> None:
        while True:
            self._work.get()()


_HELPER = _Helper()


def _is_main() -> bool:
    return threading.get_ident() == threading.main_thread().ident


class _Shield:
    """The handler of signals while the main thread is in gRPC's code."""

    def __init__(self, before: dict[int, Callable[..., Any]], end: Callable[[], Any] | None, wherever: bool) -> None:
        self._before, self._end, self._wherever = before, end, wherever
        self.raised: BaseException | None = None
        self._have_raised = set[int]()  # signals, which come again until what their handlers raised is raised here
        self._lock, self._is_over = threading.Lock(), False
        self.is_left = False  # what the handler of another signal raised may have kept this one in its place

    def __call__(self, number: int, frame: Any) -> None:
        if self.is_left:
            self._before[number](number, frame)
            return
        if number not in self._have_raised:
            try:
                self._before[number](number, frame)
                return
            except BaseException as e:
                self._have_raised.add(number)
                if e.__context__ is None and e is not self.raised:
                    e.__context__ = self.raised
                self.raised = e
        if self._wherever:
            if self._end is not None:
                _HELPER.do(self._end)
        elif frame is not None and frame.f_code.co_filename not in (threading.__file__, __file__):
            assert self.raised is not None
            raise self.raised  # gRPC takes its locks by threading's functions: in this frame none is being taken or given back
        else:
            _HELPER.do(functools.partial(self._again, number))

    def _again(self, number: int) -> None:
        """Has the handler called once more."""
        time.sleep(AGAIN_AFTER)
        with self._lock:
            if not self._is_over:
                _thread.interrupt_main(signal.Signals(number))

    def open(self) -> None:
        for number in self._before:
            _set(number, self)

    def close(self) -> None:
        with self._lock:
            self._is_over = True
        for number, before in self._before.items():
            _set(number, before)  # calls the handler before, if it is due


def _handler_of(number: int) -> Any:
    found = _get(number)
    while isinstance(found, _Shield) and found.is_left:
        found = found._before[number]
    return found


def shielded(does: Callable[..., T], *args: Any, end: Callable[[], Any] | None = None, undo: Callable[[T], Any] | None = None,
             wherever: bool = True, **more: Any) -> T:
    """Calls a function of gRPC. What a handler of a signal raises meanwhile is raised when the function has returned; `end`, which another
    thread calls then, makes it return early, and `undo` gets what it returned, which the caller does not. wherever: false for a blocking
    unary call, which nothing ends: there it is raised as soon as no lock is taken."""
    before = {number: handler for number in SIGNALS if callable(handler := _handler_of(number))} if _is_main() else {}
    if not before:
        return does(*args, **more)
    _HELPER.begin()
    shield = _Shield(before, end, wherever)
    try:
        shield.open()
        done = does(*args, **more)
        if shield.raised is not None and undo is not None:
            undo(done)
        return done
    finally:
        try:
            shield.close()
        finally:
            shield.is_left = True
        if shield.raised is not None:
            raise shield.raised


class Condition(threading.Condition):
    """threading's, whose lock a `with` takes in C alone. threading's own does so by a line of Python, behind which Ctrl-C may be raised: the
    lock then stays taken."""

    __enter__ = property(lambda self: self._lock.__enter__)
    __exit__ = property(lambda self: self._lock.__exit__)


class Event(threading.Event):
    """threading's, with such a condition."""

    def __init__(self) -> None:
        super().__init__()
        self._cond = Condition(threading.Lock())


class Owned:
    """What only the process that made it may use."""

    def __init__(self) -> None:
        self.pid = os.getpid()

    def is_here(self) -> bool:
        return self.pid == os.getpid()

    def check(self) -> None:
        if not self.is_here():
            raise Error("FAILED_PRECONDITION", f"this connection was made by the process {self.pid}, which has forked this one: connect here, too")


_FORKED = list[Any]()  # what a process that was forked has of another one's: gRPC cannot free it here


class Call(Owned):
    """A call of gRPC, or a future of its: what waits may be interrupted, which cancels the call."""

    def __init__(self, call: Any) -> None:
        super().__init__()
        self._call = call

    def __iter__(self) -> Call:
        return self

    def __next__(self) -> Any:
        self.check()
        return shielded(self._call.__next__, end=self._call.cancel)

    def result(self, timeout: float | None = None) -> Any:
        self.check()
        return shielded(self._call.result, timeout, end=self._call.cancel)

    def cancel(self) -> Any:
        return shielded(self._call.cancel) if self.is_here() else False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._call, name)
        if not callable(found):
            return found
        return functools.partial(shielded, found, end=self._call.cancel if name in WAITING else None)

    def __del__(self) -> None:
        if not self.is_here():
            _FORKED.append(self._call)
        elif _is_main():  # gRPC takes the call's lock when it frees the call, and what is raised there is lost: another thread does it
            _HELPER.do(functools.partial(id, self._call))


class _Method(Owned):
    def __init__(self, method: Any, is_unary: bool) -> None:
        super().__init__()
        self._method, self._is_unary = method, is_unary

    def __call__(self, *args: Any, **more: Any) -> Any:
        self.check()
        if self._is_unary:
            return shielded(self._method, *args, wherever=False, **more)
        return Call(shielded(self._method, *args, undo=_cancel, **more))

    def future(self, *args: Any, **more: Any) -> Call:
        self.check()
        return Call(shielded(self._method.future, *args, undo=_cancel, **more))


def _cancel(call: Any) -> None:
    call.cancel()


class Channel(Owned):
    """A channel of gRPC, with those of its methods that this package uses."""

    def __init__(self, channel: Any) -> None:
        super().__init__()
        self._channel = channel

    def __reduce__(self) -> Any:
        raise TypeError("a connection cannot be pickled: connect in the process that is to use it")

    def _method(self, kind: str, is_unary: bool, *args: Any) -> _Method:
        self.check()
        return _Method(shielded(getattr(self._channel, kind), *args), is_unary)

    def unary_unary(self, *args: Any) -> _Method:
        return self._method("unary_unary", True, *args)

    def unary_stream(self, *args: Any) -> _Method:
        return self._method("unary_stream", False, *args)

    def stream_unary(self, *args: Any) -> _Method:
        return self._method("stream_unary", False, *args)

    def stream_stream(self, *args: Any) -> _Method:
        return self._method("stream_stream", False, *args)

    def subscribe(self, *args: Any, **more: Any) -> None:
        self.check()
        shielded(self._channel.subscribe, *args, **more)

    def unsubscribe(self, *args: Any) -> None:
        shielded(self._channel.unsubscribe, *args)

    def close(self) -> None:
        if self.is_here():
            shielded(self._channel.close)

    def __del__(self) -> None:
        if not self.is_here():
            _FORKED.append(self._channel)
