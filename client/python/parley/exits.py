"""What threads have to end before the interpreter does. A daemon thread that comes back from native code while the interpreter ends is unwound,
and C++ (torch's, for example) aborts the process then: "terminate called without an active exception"."""
from __future__ import annotations

import multiprocessing.util
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

EXIT_S = 1.0  # how long a process that ends, or a member that leaves by an exception, waits for what its threads compute
BEFORE_ALL = 100  # the priority of what ends before the pools of the process, which may be in use


class Ending:
    """Around what a daemon thread does without end. When the process ends, is_over is set and `end` is called; then the process waits until
    the block is left, for EXIT_S at most. A thread that the process waits for anyway is not ended: it may be all that the process does."""

    def __init__(self, end: Callable[[], Any]) -> None:
        self.is_over, self._is_left, self._end_block = threading.Event(), threading.Event(), end
        self._at_exit: Any = None

    def _end(self) -> None:
        self.is_over.set()
        self._end_block()
        self._is_left.wait(EXIT_S)

    def __enter__(self) -> Ending:
        if threading.current_thread().daemon:  # not atexit's: the children that multiprocessing forks do not come there
            self._at_exit = multiprocessing.util.Finalize(None, self._end, exitpriority=BEFORE_ALL)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._is_left.set()
        if self._at_exit is not None:
            self._at_exit.cancel()
