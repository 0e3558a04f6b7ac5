"""A command that runs user code, in a child process: only a verdict that it reports counts.

User code can end its process (os._exit, a crash in compiled code), with any exit code, or not return from a call into
compiled code. So the process whose exit code is read runs none of it. By then it has imported neither torch nor
anything else that is large, so that a fork is quick and safe.
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

from lostwax.deadlines import on_deadline
from lostwax.exits import is_own

NO_VERDICT = 2  # the exit code
LOOK = 0.2  # seconds between looks at the child, at most
PASSED_ON = 1.0  # seconds after which Ctrl-C is passed on to a child that has not ended: a terminal tells both
AFTERWARDS = 10.0  # seconds for the child to end after its verdict
SHOWN = 1.0  # seconds for it to show where it is, before it is killed
SEEN = 65_536  # bytes of where it was
LINE = re.compile(r'^  File "(.*)", line (\d+) in ', re.MULTILINE)  # as faulthandler writes it, the last call first
NEVER = float("inf")


def judged(command: Callable[[], int]) -> int:
    """The exit code that the command reports from a child process; 2 where it ends without a report.

    Where there is no fork (Windows) the command runs in this process.
    """
    if not hasattr(os, "fork"):
        return command()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    (heard, said), (seen, shown), (lifeline, held) = os.pipe(), os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        for end in (heard, seen, held):
            os.close(end)
        _be_child(command, said, shown, lifeline)
    for end in (said, shown, lifeline):
        os.close(end)
    return _Parent(child, heard, seen).wait()  # `held` stays open as long as this process lives


def _be_child(command: Callable[[], int], said: int, shown: int, lifeline: int) -> NoReturn:
    """Run the command and report the deadlines that it sets, and the verdict; and show where it is if it ends badly."""

    def report(name: str, value: object) -> None:
        with suppress(BrokenPipeError):
            os.write(said, f"{name} {value}\n".encode())

    threading.Thread(target=_die_with_parent, args=(lifeline,), daemon=True).start()
    _show_ends(shown)
    on_deadline(lambda latest: report("deadline", NEVER if latest is None else latest))
    try:
        code = command()
    except SystemExit as stop:  # of the command line itself: help, usage. Commands refuse all others
        code = stop.code if isinstance(stop.code, int) else NO_VERDICT if stop.code else 0
    report("verdict", code)
    sys.exit(code)


def _show_ends(shown: int) -> None:
    """Write the lines of Python that run when the process crashes, is about to be killed, or ends itself."""
    os.set_blocking(shown, False)  # what does not fit into the pipe is lost
    faulthandler.enable(shown, all_threads=False)
    faulthandler.register(signal.SIGUSR1, shown)
    child, end = os.getpid(), os._exit

    def show_and_end(status: int) -> NoReturn:
        if os.getpid() == child:  # not in processes that it starts, which end so every time
            faulthandler.dump_traceback(shown, all_threads=False)
        end(status)

    os._exit = show_and_end


def _die_with_parent(lifeline: int) -> None:
    """Wait for the end of the parent, which alone holds the other end of this pipe and never writes."""
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGKILL)


class _Parent:
    """Waits for the child, keeps its deadline, and passes signals on."""

    def __init__(self, child: int, heard: int, seen: int) -> None:
        self.child, self.heard, self.seen = child, heard, seen
        self.open, self.rest = True, b""  # is there more to hear, and the beginning of a line
        self.verdict: int | None = None
        self.deadline = NEVER
        self.late = False
        self.signals: dict[int, float] = {}  # those to pass on, and when
        for end in (heard, seen):
            os.set_blocking(end, False)

    def wait(self) -> int:
        """The exit code."""
        with self._signals_caught():
            code = os.waitstatus_to_exitcode(self._status())
        self._listen()
        if self.verdict is not None:
            return self.verdict
        if -code in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            return 128 - code  # as a shell expects it
        print(f"lostwax: {self._why(code)}", file=sys.stderr)
        return NO_VERDICT

    def _status(self) -> int:
        """How the child ended; it is killed where it does not in time."""
        killed = NEVER
        while True:
            if self.open:
                select.select([self.heard], [], [], LOOK)
                self._listen()
            else:  # it ends just now, or something that it started holds on to it
                time.sleep(LOOK / 10)
            ended, status = os.waitpid(self.child, os.WNOHANG)
            if ended:
                return status
            now = time.monotonic()
            for number in [one for one, when in self.signals.items() if when <= now]:
                del self.signals[number]
                os.kill(self.child, number)
            if now > self.deadline and killed == NEVER:
                self.late, killed = True, now + SHOWN
                os.kill(self.child, signal.SIGUSR1)
            if now > killed:
                os.kill(self.child, signal.SIGKILL)

    def _listen(self) -> None:
        """Take what the child has reported."""
        while self.open:
            try:
                words = os.read(self.heard, 4096)
            except BlockingIOError:
                return
            self.open = bool(words)
            *lines, self.rest = (self.rest + words).split(b"\n")
            for name, value in (line.split() for line in lines):
                if name == b"deadline":
                    self.deadline = float(value)
                else:
                    self.verdict, self.deadline = int(value), time.monotonic() + AFTERWARDS

    def _why(self, code: int) -> str:
        """Why there is no verdict, as a sentence."""
        at = self._place()
        if self.late:
            return (
                f"max_minutes is over, and what was running{at} could not be stopped: it is in a call into compiled "
                "code, or catches every interruption. Its process was ended, and there is no result."
            )
        if code < 0:
            memory = " Perhaps memory ran out." if -code == signal.SIGKILL else ""
            return f"the process that ran the recipe was killed by {signal.Signals(-code).name}{at}: no result.{memory}"
        if at:
            return (
                f"the process that ran the recipe was ended by os._exit({code}){at}. An exit code says nothing of the "
                "audit: raise an exception where something is wrong, and return where nothing is."
            )
        return f"the process that ran the recipe ended with exit code {code} and without a result."

    def _place(self) -> str:
        """The last line of the user's code that the child has shown, or of anybody's."""
        try:
            text = os.read(self.seen, SEEN).decode(errors="replace")
        except BlockingIOError:
            return ""
        frames = LINE.findall(text)
        ours = [frame for frame in frames if is_own(frame[0])] or frames
        return f" in {ours[0][0]}, line {ours[0][1]}" if ours else ""

    @contextmanager
    def _signals_caught(self) -> Iterator[None]:
        """Ctrl-C and kill are for the child, unless they are ignored here, as behind nohup."""

        def note(number: int, _: object) -> None:
            self.signals.setdefault(number, time.monotonic() + (PASSED_ON if number == signal.SIGINT else 0.0))

        caught = [one for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if _heeded(one)]
        before = {number: signal.signal(number, note) for number in caught}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _heeded(number: signal.Signals) -> bool:
    return signal.getsignal(number) is not signal.SIG_IGN
