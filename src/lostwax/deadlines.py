"""Deadlines of time-limited work, for a supervising process. Light to import."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_listeners: list[Callable[[float | None], None]] = []


def on_deadline(listener: Callable[[float | None], None]) -> None:
    """Register a function that gets every new deadline (`time.monotonic`), and None when the work is done."""
    _listeners.append(listener)


@contextmanager
def announced(deadline: float) -> Iterator[None]:
    """Tell the listeners by when the code inside must be done; it cannot stop itself."""
    for listener in _listeners:
        listener(deadline)
    try:
        yield
    finally:
        for listener in _listeners:
            listener(None)
