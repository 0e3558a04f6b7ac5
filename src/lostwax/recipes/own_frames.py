"""An error in the user's own code, as the user should see it: their files and lines, nobody else's."""

from __future__ import annotations

import traceback

from lostwax.exits import is_own


def own_frames(error: BaseException) -> str | None:
    """The frames of the user's own files and the error itself; None where the user's code has no part in it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_own(frame.filename)]
    if not frames and not isinstance(error, SyntaxError):
        return None
    return "".join([*traceback.format_list(frames), *traceback.format_exception_only(error)]).rstrip()
