"""Run a command with user code in a child process; only an exit code that the command reports counts.

User code can end its process with any exit code (os._exit, a crash in compiled code) or hang in compiled code, so the
process whose exit code is read runs none of it. It forks before torch is imported: that is quick and safe.
"""

from __future__ import annotations

import faulthandler
import os
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from lostwax.clock import on_deadline
from lostwax.exits import is_own

NO_VERDICT = 2  # the exit code
POLL = 0.2  # seconds between checks on the child, at most
FORWARD_AFTER = 1.0  # seconds before Ctrl-C is forwarded: a terminal sends it to both processes
EXIT_GRACE = 10.0  # seconds for the child to exit after its verdict
TRACE_GRACE = 1.0  # seconds for it to write its traceback before it is killed
MAX_TRACE = 65_536  # bytes
LINE = re.compile(r'^  File "(.*)", line (\d+) in ', re.MULTILINE)  # faulthandler's format, most recent call first
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
    (reports, report_to), (traces, trace_to), (lifeline, parent_end) = os.pipe(), os.pipe(), os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        _end_with(parent)
        for end in (reports, traces, parent_end):
            os.close(end)
        _be_child(command, report_to, trace_to, lifeline)
    for end in (report_to, trace_to, lifeline):
        os.close(end)
    return _Parent(child, reports, traces).wait()  # `parent_end` stays open as long as this process lives


def _be_child(command: Callable[[], int], report_to: int, trace_to: int, lifeline: int) -> NoReturn:
    """Run the command; report its deadlines and its verdict, and write a traceback if it ends abnormally."""

    def report(name: str, value: object) -> None:
        with suppress(BrokenPipeError):
            os.write(report_to, f"{name} {value}\n".encode())

    threading.Thread(target=_die_with_parent, args=(lifeline,), daemon=True).start()
    _trace_abnormal_ends(trace_to)
    on_deadline(lambda latest: report("deadline", NEVER if latest is None else latest))
    try:
        code = command()
    except SystemExit as stop:  # from the command line itself (help, usage): commands refuse all others
        code = stop.code if isinstance(stop.code, int) else NO_VERDICT if stop.code else 0
    report("verdict", code)
    sys.exit(code)


def _trace_abnormal_ends(trace_to: int) -> None:
    """Write a traceback when the process crashes, is about to be killed, or calls os._exit."""
    os.set_blocking(trace_to, False)  # what does not fit into the pipe is lost
    faulthandler.enable(trace_to, all_threads=False)
    faulthandler.register(signal.SIGUSR1, trace_to)
    child, end = os.getpid(), os._exit

    def trace_and_end(status: int) -> NoReturn:
        if os.getpid() == child:  # not in its own child processes, which normally end this way
            faulthandler.dump_traceback(trace_to, all_threads=False)
        end(status)

    os._exit = trace_and_end


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

    def __init__(self, child: int, reports: int, traces: int) -> None:
        self.child, self.reports, self.traces = child, reports, traces
        self.open, self.begun_line = True, b""  # whether the pipe is open, and the start of an incomplete line
        self.verdict: int | None = None
        self.deadline = NEVER
        self.late = False
        self.signals: dict[int, float] = {}  # to forward, and when
        for end in (reports, traces):
            os.set_blocking(end, False)

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
        killed = NEVER
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
            if now > self.deadline and killed == NEVER:
                self.late, killed = True, now + TRACE_GRACE
                os.kill(self.child, signal.SIGUSR1)
            if now > killed:
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
        at = self._location()
        if self.late:
            return (
                f"max_minutes is over, and the code{at} could not be interrupted: it is in compiled code, or catches "
                "every exception. The process was killed: no result."
            )
        if code < 0:
            memory = " It may have run out of memory." if -code == signal.SIGKILL else ""
            return f"the process that ran the recipe was killed by {signal.Signals(-code).name}{at}: no result.{memory}"
        if at:
            return (
                f"the process that ran the recipe was ended by os._exit({code}){at}: no result. Raise an exception to "
                "report an error, and return otherwise."
            )
        return f"the process that ran the recipe ended with exit code {code} and without a result."

    def _location(self) -> str:
        """The last line in the child's traceback, of the user's code if there is one."""
        try:
            text = os.read(self.traces, MAX_TRACE).decode(errors="replace")
        except BlockingIOError:
            return ""
        frames = LINE.findall(text)
        chosen = [frame for frame in frames if is_own(frame[0])] or frames
        return f" in {chosen[0][0]}, line {chosen[0][1]}" if chosen else ""

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
