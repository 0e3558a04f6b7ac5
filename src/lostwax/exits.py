"""User code that ends the program: an error that names its file and line, never a result."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LIBRARIES = ("stdlib", "platstdlib", "purelib", "platlib")
_OTHERS = (*(Path(sysconfig.get_path(name)).resolve() for name in _LIBRARIES), Path(__file__).resolve().parent)


class ExitedError(Exception):
    """User code called sys.exit. Not a ValueError: it fails the audit, not just the attack that was running."""


@contextmanager
def exits_refused(what: str) -> Iterator[None]:
    """Raise ExitedError where the code inside exits. `what` names the code: "audit: the training function"."""
    try:
        yield
    except SystemExit as stop:
        raise ExitedError(
            f"{what} ended the program: {_called(stop)}{_place(stop)}. An exit code says nothing of the audit: raise "
            "an exception where something is wrong, and return where nothing is."
        ) from stop


def is_own(filename: str) -> bool:
    """Is it a file of the user's, rather than of Python, a library or lostwax?"""
    if filename.startswith("<"):
        return False  # frozen modules, generated code
    path = Path(filename).resolve()
    return not any(path.is_relative_to(folder) for folder in _OTHERS)


def _called(stop: SystemExit) -> str:
    plain = stop.code is None or isinstance(stop.code, int)
    return f"sys.exit({'' if stop.code is None else stop.code if plain else '...'})"


def _place(stop: SystemExit) -> str:
    """The last line of the user's own code on the way to the exit, or of anybody's."""
    frames = traceback.extract_tb(stop.__traceback__)
    ours = [frame for frame in frames if is_own(frame.filename)] or frames
    return f" in {ours[-1].filename}, line {ours[-1].lineno}" if ours else ""
