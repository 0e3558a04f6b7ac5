"""The limit on an audit's time: what is left of it, and how work is stopped that would exceed it. Light to import.

Python code is interrupted here. What cannot be interrupted, compiled code, ends with its process: a supervising one
(`cli/child.py`) hears of every deadline.
"""

from __future__ import annotations

import ctypes
import math
import random
import signal
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from types import FrameType
from typing import TypeVar

RING_AGAIN = 1.0  # seconds until the alarm rings again for code that has caught it
SLOW_RINGS = 3  # after which it rings without a pause
QUICK_RING = 1e-4  # seconds, about, between those
STOPPING = 5.0  # seconds for work in another thread to stop, before it is left behind
SLACK, SLACK_SHARE = 8.0, 0.08  # seconds, or a share of the limit, after which a supervising process ends this one
LONGEST_TIMER = 1e8  # seconds: three years, which every timer can count

Result = TypeVar("Result")


class TimeUp(BaseException):
    """The time is over. It is no Exception, so that code which catches those and tries again is stopped too."""

    still_running = False  # work that could not be stopped is still running in its thread


@dataclass(frozen=True)
class Clock:
    """Runs from the start of an audit to its `end` (by `time.monotonic`); None: there is no limit."""

    end: float | None = None
    slack: float = SLACK  # seconds beyond the end, for a call into compiled code to return

    @classmethod
    def started(cls, minutes: float | None) -> Clock:
        """A clock that begins to run now."""
        if minutes is None:
            return cls()
        return cls(time.monotonic() + 60 * minutes, max(SLACK, SLACK_SHARE * 60 * minutes))

    @property
    def left(self) -> float:
        """Seconds until the end, infinite without a limit; not below zero."""
        return math.inf if self.end is None else max(self.end - time.monotonic(), 0.0)

    def run(self, work: Callable[[], Result], *, early: float = 0.0) -> Result:
        """Do the work, and raise TimeUp at the end, or some seconds `early`.

        In the main thread an alarm interrupts it. Elsewhere, and on systems without alarms, the work is done in a
        separate thread, which is interrupted, and abandoned if that does not stop it. A call into compiled code is
        stopped when it returns. What work gives that was interrupted is never taken.
        """
        if self.end is None:
            return work()
        seconds = min(max(self.left - early, 1e-3), LONGEST_TIMER)
        alarm = hasattr(signal, "SIGALRM") and threading.current_thread() is threading.main_thread()
        _announce(self.end + self.slack)
        try:
            return _with_alarm(work, seconds) if alarm else _in_thread(work, seconds)
        finally:
            _announce(None)


_listeners: list[Callable[[float | None], None]] = []


def on_deadline(listener: Callable[[float | None], None]) -> None:
    """Register a function that gets every new deadline (`time.monotonic`), and None when the work is done."""
    _listeners.append(listener)


def _announce(deadline: float | None) -> None:
    for listener in _listeners:
        listener(deadline)


def _with_alarm(work: Callable[[], Result], seconds: float) -> Result:
    """By a signal, which is raised in whatever Python code runs.

    A loop with a bare `except:` catches it, and is interrupted again and again until it is hit outside of its `try`.
    """
    rings, over = 0, False

    def ring(_: int, frame: FrameType | None) -> None:
        nonlocal rings
        if over:
            return
        rings += 1
        signal.setitimer(
            signal.ITIMER_REAL, RING_AGAIN if rings <= SLOW_RINGS else QUICK_RING * random.uniform(0.01, 1)
        )
        if frame is None or frame.f_code is not _with_alarm.__code__:  # here nothing is left to interrupt
            raise TimeUp

    start, before = time.monotonic(), signal.signal(signal.SIGALRM, ring)
    timer, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        result = work()
    except Exception:
        if rings:  # what it makes of the interruption
            raise TimeUp from None
        raise
    finally:
        over = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if timer:  # somebody else's, that was running before
            signal.setitimer(signal.ITIMER_REAL, max(timer - (time.monotonic() - start), 1e-3), interval)
    if rings:
        raise TimeUp
    return result


def _in_thread(work: Callable[[], Result], seconds: float) -> Result:
    """By an exception that Python raises in the thread of the work, whenever it next runs Python code."""
    results: list[Result] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            results.append(work())
        except BaseException as error:  # raised again by the thread that waits
            errors.append(error)

    thread = threading.Thread(target=copy_context().run, args=(body,), name="lostwax, limited in time", daemon=True)
    thread.start()
    thread.join(seconds)
    if not thread.is_alive():
        if errors:
            raise errors[0]
        return results[0]
    end = time.monotonic() + STOPPING
    while thread.is_alive() and time.monotonic() < end:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(TimeUp))
        thread.join(0.01)
    stop = TimeUp()
    stop.still_running = thread.is_alive()
    raise stop


def in_words(seconds: float) -> str:
    """About how long that is."""
    if seconds == math.inf:
        return "an unknown time"
    for unit, size in (("hours", 3_600), ("minutes", 60)):
        if seconds >= 1.5 * size:
            return f"about {seconds / size:,.1f} {unit}"
    return f"about {seconds:.2g} s"
