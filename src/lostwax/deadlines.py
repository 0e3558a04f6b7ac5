"""When work that is limited in time must be over, for a process that supervises this one. Light to import."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_listeners: list[Callable[[float | None], None]] = []


def on_deadline(listener: Callable[[float | None], None]) -> None:
    """Call it with every deadline (by `time.monotonic`) from now on, and with None when the work is done in time."""
    _listeners.append(listener)


@contextmanager
def announced(deadline: float) -> Iterator[None]:
    """The work inside must be over by then, or it cannot be stopped from inside."""
    for listener in _listeners:
        listener(deadline)
    try:
        yield
    finally:
        for listener in _listeners:
            listener(None)
