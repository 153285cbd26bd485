"""Threads and processes that pass their exceptions to their parent."""
from __future__ import annotations

import multiprocessing
import signal
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from parley.parallel.worker import cut


class ThreadException(Exception):
    """The exceptions of a thread as text, with their tracebacks."""


class ProcessException(Exception):
    """The exceptions of a process as text, with their tracebacks, or the signal that killed the process."""


def _run(target: Callable[..., Any] | None, args: Sequence[Any], kwargs: Mapping[str, Any], cleaner: Callable[[], Any] | None) -> str:
    """Runs the body and the cleaner and returns their exceptions as text; "" if there were none."""
    raised = list[BaseException]()
    for body in (lambda: target and target(*args, **kwargs)), cleaner:
        try:
            if body is not None:
                body()
        except BaseException as e:  # SystemExit, too: the parent must see it
            raised.append(e)
    return "".join(f"\nException {i}:\n{''.join(traceback.format_exception(e))}" for i, e in enumerate(raised))


class Thread(threading.Thread):
    """A threading.Thread with a cleaner, which runs after the body, even if the body has raised an exception."""

    def __init__(self, group: None = None, target: Callable[..., Any] | None = None, name: str | None = None, args: Sequence[Any] = (),
                 kwargs: Mapping[str, Any] | None = None, cleaner: Callable[[], Any] | None = None, *, daemon: bool | None = None) -> None:
        super().__init__(group, target, name, args, kwargs, daemon=daemon)
        self._body, self._said = (target, args, kwargs or {}, cleaner), ""

    def run(self) -> None:
        self._said = _run(*self._body)

    @property
    def exception(self) -> ThreadException | None:
        return ThreadException(self._said) if self._said else None

    def watch(self) -> None:
        """Raises ThreadException if the thread has raised an exception; every call raises it again."""
        if self._said:
            raise ThreadException(self._said)


def _child(pipe: Any, target: Any, args: Any, kwargs: Any, cleaner: Any) -> None:
    said = _run(target, args, kwargs, cleaner)
    if said:
        pipe.send(cut(said))  # a pipe has room for it, whether or not anybody reads


class Process:
    """A process with the methods of multiprocessing.Process, made in the context ctx, and with a cleaner like Thread. A signal that kills
    it counts as an exception, too."""

    def __init__(self, group: None = None, target: Callable[..., Any] | None = None, name: str | None = None, args: Sequence[Any] = (),
                 kwargs: Mapping[str, Any] | None = None, cleaner: Callable[[], Any] | None = None, ctx: Any = multiprocessing, *,
                 daemon: bool | None = None) -> None:
        self._pipe, self._child_end = ctx.Pipe(duplex=False)
        self._process = ctx.Process(group=group, target=_child, name=name, args=(self._child_end, target, args, kwargs or {}, cleaner),
                                    daemon=daemon)
        self._said, self._is_raised = "", False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._process, name)

    def start(self) -> None:
        self._process.start()
        self._child_end.close()  # only the child has this end now, so the pipe ends with the child

    @property
    def exception(self) -> ProcessException | None:
        if not self._said and not self._pipe.closed:
            # First: what it sent is there then. Processes that were forked meanwhile have its end of the pipe, too.
            has_ended = self._process.exitcode is not None
            if self._pipe.poll():
                try:
                    self._said = self._pipe.recv()
                except EOFError:
                    self._process.join()
                    self._said = self._killed()
                self._pipe.close()
            elif has_ended:
                self._said = self._killed()
                self._pipe.close()
        return ProcessException(self._said) if self._said else None

    def _killed(self) -> str:
        number = -(self._process.exitcode or 0)
        names = {int(s): f" ({s.name})" for s in signal.Signals}
        return f"the process was killed by signal {number}{names.get(number, '')}" if number > 0 else ""

    def watch(self) -> None:
        """Raises ProcessException, once, if the process has ended with an exception or by a signal."""
        found = None if self._is_raised else self.exception
        if found is not None:
            self._process.join()
            self._is_raised = True
            raise found
