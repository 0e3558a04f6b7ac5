"""Run a command with user code in a child process; only an exit code that the command reports counts.

User code can end its process with any exit code (os._exit, a crash in compiled code) or hang in compiled code, so the
process whose exit code is read runs none of it. It forks before torch is imported: that is quick and safe.
"""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from lostwax.clock import on_deadline

NO_VERDICT = 2  # the exit code
POLL = 0.2  # seconds between checks on the child, at most
FORWARD_AFTER = 1.0  # seconds before Ctrl-C is forwarded: a terminal sends it to both processes
EXIT_GRACE = 10.0  # seconds for the child to exit after its verdict
NEVER = float("inf")
PR_SET_PDEATHSIG = 1  # of prctl(2)


def judged(command: Callable[[], int]) -> int:
    """The exit code that the command reports from a child process; 2 if it ends without a report.

    Without fork (Windows) the command runs in this process.
    """
    if not hasattr(os, "fork"):
        return command()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    (reports, report_to), (lifeline, parent_end) = os.pipe(), os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        _end_with(parent)
        for end in (reports, parent_end):
            os.close(end)
        _be_child(command, report_to, lifeline)
    for end in (report_to, lifeline):
        os.close(end)
    return _Parent(child, reports).wait()  # `parent_end` stays open as long as this process lives


def _be_child(command: Callable[[], int], report_to: int, lifeline: int) -> NoReturn:
    """Run the command, and report its deadlines and its verdict; a crash prints where it was."""

    def report(name: str, value: object) -> None:
        with suppress(BrokenPipeError):
            os.write(report_to, f"{name} {value}\n".encode())

    threading.Thread(target=_die_with_parent, args=(lifeline,), daemon=True).start()
    faulthandler.enable(2, all_threads=False)
    on_deadline(lambda latest: report("deadline", NEVER if latest is None else latest))
    code = command()
    report("verdict", code)
    sys.exit(code)


def _end_with(parent: int) -> None:
    """Have Linux kill this process when its parent ends, even while compiled code holds the interpreter."""
    if sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):  # no such function here: the thread that reads the pipe is left
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended before
            os.kill(os.getpid(), signal.SIGKILL)


def _die_with_parent(lifeline: int) -> None:
    """Wait for the parent to end; it holds the other end of this pipe and never writes."""
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGKILL)


class _Parent:
    """Waits for the child, enforces its deadline, and forwards signals."""

    def __init__(self, child: int, reports: int) -> None:
        self.child, self.reports = child, reports
        self.open, self.begun_line = True, b""  # whether the pipe is open, and the start of an incomplete line
        self.verdict: int | None = None
        self.deadline = NEVER
        self.late = False
        self.signals: dict[int, float] = {}  # to forward, and when
        os.set_blocking(reports, False)

    def wait(self) -> int:
        """The exit code."""
        with self._signals_caught():
            code = os.waitstatus_to_exitcode(self._status())
        self._read_reports()
        if self.verdict is not None:
            return self.verdict
        if -code in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            return 128 - code  # as a shell expects it
        below = "\n" if sys.stderr is not None and sys.stderr.isatty() else ""  # what the child was showing
        print(f"{below}lostwax: {self._why(code)}", file=sys.stderr)
        return NO_VERDICT

    def _status(self) -> int:
        """The child's exit status; it is killed after its deadline."""
        while True:
            if self.open:
                select.select([self.reports], [], [], POLL)
                self._read_reports()
            else:  # it is about to end
                time.sleep(POLL / 10)
            ended, status = os.waitpid(self.child, os.WNOHANG)
            if ended:
                return status
            now = time.monotonic()
            for number in [number for number, when in self.signals.items() if when <= now]:
                del self.signals[number]
                os.kill(self.child, number)
            if now > self.deadline:
                self.late = True
                os.kill(self.child, signal.SIGKILL)

    def _read_reports(self) -> None:
        """Read the deadlines and the verdict that the child has reported."""
        while self.open:
            try:
                text = os.read(self.reports, 4096)
            except BlockingIOError:
                return
            self.open = bool(text)
            *lines, self.begun_line = (self.begun_line + text).split(b"\n")
            for name, value in (line.split() for line in lines):
                if name == b"deadline":
                    self.deadline = float(value)
                else:
                    self.verdict, self.deadline = int(value), time.monotonic() + EXIT_GRACE

    def _why(self, code: int) -> str:
        """Why there is no verdict, as a sentence."""
        if self.late:
            return (
                "max_minutes is over, and the recipe could not be interrupted: it is in compiled code, or catches "
                "every exception. The process was killed: no result."
            )
        if code < 0:
            memory = " It may have run out of memory." if -code == signal.SIGKILL else ""
            return f"the process that ran the recipe was killed by {signal.Signals(-code).name}: no result.{memory}"
        return (
            f"the process that ran the recipe was ended by os._exit({code}): no result. Raise an exception to report "
            "an error, and return otherwise."
        )

    @contextmanager
    def _signals_caught(self) -> Iterator[None]:
        """Forward Ctrl-C and kill to the child, unless they are ignored here, as under nohup."""

        def note(number: int, _: object) -> None:
            self.signals.setdefault(number, time.monotonic() + (FORWARD_AFTER if number == signal.SIGINT else 0.0))

        forwarded = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        caught = [number for number in forwarded if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, note) for number in caught}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
