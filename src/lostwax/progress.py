"""Progress of long work, on stderr: live in a terminal and in a notebook, as a line every ten seconds elsewhere."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

LIVE = (0.3, 0.25)  # seconds until something is shown, and between updates
LINES = (1.5, 10.0)  # the same where lines cannot be overwritten
STOPPING = 1.0  # seconds to wait for the thread that shows it


class Stage:
    """Work with a name, and how much of it is done; without a total only the time is known."""

    def __init__(self, what: str, total: int | None) -> None:
        self.what, self.total, self.done = what, total, 0
        self.start = self.counted = time.monotonic()

    def advance(self, done: int) -> None:
        self.done, self.counted = self.done + done, time.monotonic()

    def __str__(self) -> str:
        now = time.monotonic()
        spent = now - self.start
        if self.total is None:
            return f"{self.what}, {clock_time(spent)}"
        text = f"{self.what} {min(self.done, self.total):,} of {self.total:,}"
        if not 0 < self.done < self.total:
            return f"{text}, {clock_time(spent)}"
        left = (self.counted - self.start) / self.done * (self.total - self.done)
        return f"{text}, about {clock_time(max(left - (now - self.counted), 1.0))} left"


_stages: list[Stage] = []  # that run now, each inside the one before it


@contextmanager
def progress(what: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show a stage of work while it runs; yields the function that counts what is done of its total.

    Stages may be nested. Short work shows nothing.
    """
    stage = Stage(what, total)
    shown = _Shown() if not _stages else None
    _stages.append(stage)
    try:
        if shown is not None:
            shown.thread.start()
        yield stage.advance
    finally:
        if stage in _stages:  # also those inside that an interruption has left
            del _stages[_stages.index(stage) :]
        if shown is not None:
            shown.stop(stage)


Item = TypeVar("Item")


def counted(items: Iterable[Item], what: str, total: int) -> Iterator[Item]:
    """The items, one after the other, as a stage of work."""
    with progress(what, total) as advance:
        for item in items:
            yield item
            advance(1)


class _Shown:
    """A thread that shows the stages as long as one runs."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.last = ""
        self.thread = threading.Thread(
            target=copy_context().run, args=(self._show, _screen()), name="lostwax, progress", daemon=True
        )

    def stop(self, stage: Stage) -> None:
        self.last = f"{stage.what} took {clock_time(time.monotonic() - stage.start)}"
        self.over.set()
        with suppress(RuntimeError):  # interrupted before it was started
            self.thread.join(STOPPING)

    def _show(self, kind: type[_Terminal] | type[_Notebook] | type[_Lines]) -> None:
        first, between = kind.pace
        if self.over.wait(first):
            return
        screen = kind()
        with suppress(OSError, ValueError):  # stderr is closed: the work goes on
            while True:
                screen.show([str(stage) for stage in list(_stages)])
                if self.over.wait(between):
                    break
            screen.close(self.last)


class _Terminal:
    """Lines below everything else that is printed; they vanish at the end."""

    pace = LIVE

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        tty = sys.stdout is not None and sys.stdout.isatty()
        console = Console(stderr=True)
        self.live = Live(console=console, transient=True, auto_refresh=False, redirect_stdout=tty)
        self.started = False

    def show(self, stages: list[str]) -> None:
        from rich.text import Text

        if not self.started:
            self.live.start()
            self.live.console.show_cursor(True)  # which a killed process could not bring back
            self.started = True
        turning = "|/-\\"[int(time.monotonic() / LIVE[1]) % 4]
        lines = "\n".join(f"{'  ' * depth if depth else turning + ' '}{stage}" for depth, stage in enumerate(stages))
        self.live.update(Text(lines, no_wrap=True, overflow="ellipsis"), refresh=True)

    def close(self, last: str) -> None:
        self.live.stop()


class _Notebook:
    """One output of the cell, which is updated; it stays, so short work has none."""

    pace = (1.0, LIVE[1])

    def __init__(self) -> None:
        self.handle: Any = None

    def show(self, stages: list[str]) -> None:
        text = {"text/plain": f"lostwax: {' > '.join(stages)}"}
        if self.handle is None:
            self.handle = import_module("IPython.display").display(text, raw=True, display_id=True)
        else:
            self.handle.update(text, raw=True)

    def close(self, last: str) -> None:
        if self.handle is not None:
            self.handle.update({"text/plain": f"lostwax: {last}"}, raw=True)


class _Lines:
    """A line now and then: for a pipe, a file, the log of a build."""

    pace = LINES

    def show(self, stages: list[str]) -> None:
        print(f"lostwax: {' > '.join(stages)}", file=sys.stderr, flush=True)

    def close(self, last: str) -> None:
        pass


def _screen() -> type[_Terminal] | type[_Notebook] | type[_Lines]:
    if "ipykernel" in sys.modules and hasattr(import_module("IPython").get_ipython(), "kernel"):
        return _Notebook
    moves = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    if moves and find_spec("rich") is not None:
        return _Terminal
    return _Lines


def clock_time(seconds: float) -> str:
    """12 s, 3 min 20 s, 2 h 5 min."""
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    if total < 3_600:
        return f"{total // 60} min {total % 60} s"
    return f"{total // 3_600} h {total % 3_600 // 60} min"
