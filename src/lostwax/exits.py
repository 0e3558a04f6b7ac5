"""User code that calls sys.exit: turned into an error that names the file and line."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LIBRARIES = ("stdlib", "platstdlib", "purelib", "platlib")
_OTHERS = (*(Path(sysconfig.get_path(name)).resolve() for name in _LIBRARIES), Path(__file__).resolve().parent)


class ExitedError(Exception):
    """User code called sys.exit. Not a ValueError, so that it fails the audit and not only the running attack."""


@contextmanager
def exits_refused(what: str) -> Iterator[None]:
    """Raise ExitedError if the code inside exits. `what` names the code: "audit: the training function"."""
    try:
        yield
    except SystemExit as stop:
        raise ExitedError(
            f"{what} ended the program: {_called(stop)}{_origin(stop)}. Raise an exception on failure, and return on "
            "success."
        ) from stop


def is_own(filename: str) -> bool:
    """Whether it is a file of the user, not of Python, a library or lostwax."""
    if filename.startswith("<"):
        return False  # frozen modules, generated code
    path = Path(filename).resolve()
    return not any(path.is_relative_to(folder) for folder in _OTHERS)


def _called(stop: SystemExit) -> str:
    plain = stop.code is None or isinstance(stop.code, int)
    return f"sys.exit({'' if stop.code is None else stop.code if plain else '...'})"


def _origin(stop: SystemExit) -> str:
    """The last line of user code before the exit, else of any code."""
    frames = traceback.extract_tb(stop.__traceback__)
    ours = [frame for frame in frames if is_own(frame.filename)] or frames
    return f" in {ours[-1].filename}, line {ours[-1].lineno}" if ours else ""
