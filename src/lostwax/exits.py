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
        code = "" if stop.code is None else stop.code if isinstance(stop.code, int) else "..."
        frames = traceback.extract_tb(stop.__traceback__)
        last = ([frame for frame in frames if is_own(frame.filename)] or frames)[-1:]  # of user code, else of any
        where = "".join(f" in {frame.filename}, line {frame.lineno}" for frame in last)
        raise ExitedError(
            f"{what} ended the program: sys.exit({code}){where}. Raise an exception on failure, and return on success."
        ) from stop


def is_own(filename: str) -> bool:
    """Whether it is a file of the user, not of Python, a library or lostwax."""
    if filename.startswith("<"):
        return False  # frozen modules, generated code
    path = Path(filename).resolve()
    return not any(path.is_relative_to(folder) for folder in _OTHERS)
