"""The limit on an audit's time: what is left of it, and the alarm that keeps it."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class TimeUp(BaseException):
    """The time is over. It is no Exception, so that code which catches those and tries again is stopped too."""


@dataclass(frozen=True)
class Clock:
    """Runs from the start of an audit to its `end` (by `time.monotonic`); None: there is no limit."""

    end: float | None = None

    @classmethod
    def started(cls, minutes: float | None) -> Clock:
        """A clock that begins to run now."""
        return cls(None if minutes is None else time.monotonic() + 60 * minutes)

    @property
    def left(self) -> float:
        """Seconds until the end, infinite without a limit; not below zero."""
        return math.inf if self.end is None else max(self.end - time.monotonic(), 0.0)

    @property
    def can_stop(self) -> bool:
        """Is there an alarm? Not without a limit, in another thread than the main one, or on a system that has none."""
        in_main = threading.current_thread() is threading.main_thread()
        return self.end is not None and hasattr(signal, "SIGALRM") and in_main

    @contextmanager
    def alarm(self, *, early: float = 0.0) -> Iterator[None]:
        """Raise TimeUp at the end, or some seconds `early`, where it `can_stop`.

        A call into compiled code is stopped when it returns. Code that catches even TimeUp goes on, but what it gives
        is not taken: part of its work was cut.
        """
        if not self.can_stop:
            yield
            return
        rang = False

        def stop(*_: object) -> None:
            nonlocal rang
            rang = True
            raise TimeUp

        before = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, max(self.left - early, 1e-3))
        try:
            yield
        finally:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0)
            finally:  # it may ring just now
                signal.signal(signal.SIGALRM, before)
        if rang:
            raise TimeUp


def in_words(seconds: float) -> str:
    """About how long that is."""
    if seconds == math.inf:
        return "an unknown time"
    for unit, size in (("hours", 3_600), ("minutes", 60)):
        if seconds >= 1.5 * size:
            return f"about {seconds / size:,.1f} {unit}"
    return f"about {seconds:.2g} s"
