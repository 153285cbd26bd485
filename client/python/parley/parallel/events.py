"""Events between threads that combine: one is set when any, or all, of others are. They have levels: who waits for one that
is set does not wait, whenever it was set."""
from __future__ import annotations

import threading

# Of all events together: whoever waits asks again what it waits for.
_changed = threading.Condition()


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
        """Whether it is set, at the latest after so many seconds."""
        with _changed:
            return _changed.wait_for(self.is_set, timeout)

    def __or__(self, other: Event) -> OrEvent:
        return OrEvent(self, other)

    def __and__(self, other: Event) -> AndEvent:
        return AndEvent(self, other)


class _Combined(Event):
    """Its parts alone decide: set and clear do nothing."""

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
    """Set while any of them is."""

    def is_set(self) -> bool:
        return any(e.is_set() for e in self.events)


class AndEvent(_Combined):
    """Set while all of them are."""

    def is_set(self) -> bool:
        return all(e.is_set() for e in self.events)
