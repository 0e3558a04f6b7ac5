"""An error in the user's own code, as the user should see it: their files and lines, nobody else's."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

import lostwax

_LIBRARIES = ("stdlib", "platstdlib", "purelib", "platlib")
_OTHERS = tuple(Path(path).resolve() for path in (*map(sysconfig.get_path, _LIBRARIES), *lostwax.__path__))


def own_frames(error: BaseException) -> str | None:
    """The frames of the user's own files and the error itself; None where the user's code has no part in it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_own(frame.filename)]
    if not frames and not isinstance(error, SyntaxError):
        return None
    return "".join([*traceback.format_list(frames), *traceback.format_exception_only(error)]).rstrip()


def _is_own(filename: str) -> bool:
    if filename.startswith("<"):
        return False  # frozen modules, generated code
    path = Path(filename).resolve()
    return not any(path.is_relative_to(folder) for folder in _OTHERS)
