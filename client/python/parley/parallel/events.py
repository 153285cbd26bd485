"""Events between threads that can be combined: a combined event is set while any, or all, of its parts are set. wait returns at once if
the event is set already."""
from __future__ import annotations

from parley.interrupts import Condition

# One condition for all events: each waiting thread then checks its own event again.
_changed = Condition()


class Event:
    """threading.Event's methods, and `a | b`, `a & b`."""

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        with _changed:
            self._is_set = True
            _changed.notify_all()

    def clear(self) -> None:
        with _changed:
            self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the event is set, at most `timeout` seconds, and returns whether it is set."""
        with _changed:
            return _changed.wait_for(self.is_set, timeout)

    def __or__(self, other: Event) -> OrEvent:
        return OrEvent(self, other)

    def __and__(self, other: Event) -> AndEvent:
        return AndEvent(self, other)


class _Combined(Event):
    """An event whose state follows from its parts; set and clear do nothing."""

    def __init__(self, *events: Event) -> None:
        super().__init__()
        for e in events:
            if not isinstance(e, Event):
                raise TypeError(f"a part is a {type(e).__module__}.{type(e).__qualname__}, it is to be an event of parley.parallel")
        self.events = events

    def set(self) -> None:
        pass

    def clear(self) -> None:
        pass


class OrEvent(_Combined):
    """Is set while any of its parts is set."""

    def is_set(self) -> bool:
        return any(e.is_set() for e in self.events)


class AndEvent(_Combined):
    """Is set while all of its parts are set."""

    def is_set(self) -> bool:
        return all(e.is_set() for e in self.events)
