"""Results that come later. A function that a member of a group or a worker of a pool computes for others may return a Future, or be async:
then no thread waits for it, and the caller gets its result when it is there.

    >>> from parley.parallel import Future, wait_all
    >>> round = Future()  # of three callers, the last of which sets the result
    >>> mine = [round.then(lambda f, i=i: f.wait()[i]) for i in range(3)]
    >>> round.set_result([0, 10, 20])
    >>> wait_all(mine)
    [0, 10, 20]

The names are those of torch.futures."""
from __future__ import annotations

import contextlib
import inspect
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any

from parley.parallel.tasks import AsyncResult

if TYPE_CHECKING:
    import asyncio


class Future(AsyncResult):
    """A result that comes later: a call's, or one that its maker sets. Any thread may use it. It can also be awaited."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._is_set = False  # guarded by the lock, as the next: by set_result or set_exception
        self._after: list[Callable[[Future], Any]] | None = []  # None: they were called

    def set_result(self, value: Any) -> None:
        """Sets the result, once, and calls the callbacks on this thread."""
        self._set(value, None)

    def set_exception(self, error: BaseException) -> None:
        """Like set_result; those who wait get the exception."""
        self._set(None, error)

    def _set(self, value: Any, error: BaseException | None) -> None:
        with self._lock:
            if self._is_set or self._done.is_set():
                raise RuntimeError("the future has its result already")
            self._is_set = True
        self._settle(value, error)

    def _settle(self, value: Any, error: BaseException | None) -> None:
        super()._settle(value, error)
        with self._lock:
            after, self._after = self._after or [], None
        for callback in after:
            self._call(callback)

    def _call(self, callback: Callable[[Future], Any]) -> None:
        try:
            callback(self)
        except BaseException:  # it is told of, and the other callbacks are called all the same
            threading.excepthook(threading.ExceptHookArgs([*sys.exc_info(), threading.current_thread()]))

    def done(self) -> bool:
        return self.ready()

    def wait(self, timeout: float | None = None) -> Any:
        """Waits and returns the result. Raises multiprocessing.TimeoutError after timeout seconds."""
        return self.get(timeout)

    def value(self) -> Any:
        """The result, which must be there."""
        if not self.ready():
            raise RuntimeError("the future has no result yet: call wait()")
        return self.get()

    def add_done_callback(self, callback: Callable[[Future], Any]) -> None:
        """Has callback(self) called when the result is there: by the thread that sets it, or at once."""
        with self._lock:
            if self._after is not None:
                self._after.append(callback)
                return
        self._call(callback)

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """Returns a future of what callback(self) returns or raises, which is called when the result is there."""
        found = Future()

        def go_on(done: Future) -> None:
            try:
                value = callback(done)
            except BaseException as e:
                found._settle(None, e)
            else:
                found._settle(value, None)

        self.add_done_callback(go_on)
        return found

    def __reduce__(self) -> Any:
        raise RuntimeError("a future cannot be pickled: return it from the function that is called")

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio

        loop = asyncio.get_running_loop()
        come = loop.create_future()

        def tell(_: Future) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: whoever waited has been cancelled
                loop.call_soon_threadsafe(lambda: None if come.done() else come.set_result(None))

        self.add_done_callback(tell)
        yield from come
        return self.get(0)


def collect_all(futures: Iterable[Future]) -> Future:
    """Returns a future of the list of these futures, which it has when all of them have their results."""
    all_of, found, lock = list(futures), Future(), threading.Lock()
    left = len(all_of)

    def count(_: Future) -> None:
        nonlocal left
        with lock:
            left -= 1
            is_last = left == 0
        if is_last:
            found._settle(all_of, None)

    for one in all_of:
        one.add_done_callback(count)
    if not all_of:
        found._settle(all_of, None)
    return found


def wait_all(futures: Iterable[Future], timeout: float | None = None) -> list[Any]:
    """Waits for all of them and returns their results. Raises the first one's error, in their order, after all have ended."""
    end = None if timeout is None else time.monotonic() + timeout
    done = collect_all(futures).wait(None if end is None else max(end - time.monotonic(), 0.0))
    return [one.get() for one in done]


THREAD = "parley-coroutines"
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None  # guarded by the lock: of a thread that computes the coroutines of all groups


def _of_coroutine(coroutine: Any) -> Future:
    import asyncio

    global _loop
    found = Future()
    with _lock:
        if _loop is None or all(t.name != THREAD for t in threading.enumerate()):  # a process that was forked has the thread no more
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, daemon=True, name=THREAD).start()
        loop = _loop

    async def compute() -> None:
        try:
            value = await coroutine
        except BaseException as e:
            found._settle(None, e)
        else:
            found._settle(value, None)

    asyncio.run_coroutine_threadsafe(compute(), loop)
    return found


def later(value: Any) -> Future | None:
    """The future of a value that comes later: a Future, or what an async function returned, whose computing begins. None: it is there."""
    if isinstance(value, Future):
        return value
    return _of_coroutine(value) if inspect.isawaitable(value) else None


def resolved(value: Any) -> Any:
    """Waits for a value that comes later, and for what that may return in turn."""
    while (future := later(value)) is not None:
        value = future.get()
    return value


def all_resolved(values: list[Any]) -> list[Any]:
    """Like resolved, for several, which are computed side by side."""
    begun = [later(value) for value in values]
    return [value if future is None else resolved(future) for value, future in zip(values, begun, strict=True)]
