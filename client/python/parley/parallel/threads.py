"""Threads that compute calls. A process that ends does not wait for them, as it would for those of concurrent.futures."""
from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any


class Threads:
    """At most n threads, which begin when there is work for them."""

    def __init__(self, n: int, name: str) -> None:
        self._n, self._name, self._lock = n, name, threading.Lock()
        self._work: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        # Guarded by the lock:
        self._begun = list[threading.Thread]()
        self._n_left = 0  # work that none has ended yet
        self._is_over = False

    def submit(self, work: Callable[[], Any]) -> None:
        """Has a thread call work(). Raises RuntimeError after end()."""
        with self._lock:
            if self._is_over:
                raise RuntimeError("the threads take no more calls")
            if len(self._begun) < min(self._n, self._n_left + 1):
                thread = threading.Thread(target=self._live, name=f"{self._name}_{len(self._begun)}", daemon=True)
                thread.start()
                self._begun.append(thread)
            self._n_left += 1
            self._work.put(work)

    def _live(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except BaseException:  # it is told of, and the thread lives on
                threading.excepthook(threading.ExceptHookArgs([*sys.exc_info(), threading.current_thread()]))
            del work  # it has the call's arguments
            with self._lock:
                self._n_left -= 1
        self._work.put(None)  # for the next thread

    def end(self, drops: bool = False) -> None:
        """Takes no more work; the threads end behind what was taken. drops: work that none has begun is not done."""
        with self._lock:
            self._is_over = True
            while drops:
                try:
                    self._work.get_nowait()
                except Empty:
                    break
            self._work.put(None)

    def join(self, seconds: float) -> None:
        """Waits for the threads after end(), for `seconds` at most."""
        end = time.monotonic() + seconds
        for thread in self._begun:
            thread.join(max(end - time.monotonic(), 0.0))
