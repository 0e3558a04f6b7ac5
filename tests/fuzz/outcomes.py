"""What becomes of a hostile input: accepted, refused in a sentence of ours, or one of the outcomes that are bugs."""

import linecache
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import lostwax

SOURCE = str(Path(lostwax.__file__).parent)
LIMIT = 30  # seconds


class Outcome(StrEnum):
    OK = "ok"
    REFUSED = "clear error"
    RAW = "raw traceback"
    SLOW = "too slow"
    WRONG = "silently wrong"
    QUOTES = "quotes data"


BUGS = (Outcome.RAW, Outcome.SLOW, Outcome.WRONG, Outcome.QUOTES)
MARK, NUMBER = "Zzyzx", 918273.5  # a cell of text and one of numbers that no message may quote


class Case(NamedTuple):
    """An input and what is done with it."""

    kind: str
    name: str
    run: Callable[[], Any]
    accept: Callable[[Any], bool] = lambda result: True  # whether this result of an accepted input is right


class Found(NamedTuple):
    case: Case
    outcome: Outcome
    message: str = ""


class TooSlowError(BaseException):
    """No Exception, which what is tested could catch."""


def play(case: Case, limit: int = LIMIT) -> Found:
    """Run a case, and say what became of it."""
    try:
        with _alarm(limit), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = case.run()
    except TooSlowError:
        return Found(case, Outcome.SLOW, f"more than {limit} s")
    except (ValueError, TypeError, OSError, KeyError) as error:
        said = "\n".join(_chain(error))
        if MARK in said or str(int(NUMBER)) in said:
            return Found(case, Outcome.QUOTES, said)
        if is_ours(error):
            return Found(case, Outcome.REFUSED, str(error))
        return Found(case, Outcome.RAW, "".join(traceback.format_exception(error)[-6:]))
    except Exception as error:
        return Found(case, Outcome.RAW, "".join(traceback.format_exception(error)[-6:]))
    return Found(case, Outcome.OK if case.accept(result) else Outcome.WRONG)


def is_ours(error: Exception) -> bool:
    """Was it raised by a raise statement of the package, with a sentence?"""
    frames = traceback.extract_tb(error.__traceback__)
    line = linecache.getline(frames[-1].filename, frames[-1].lineno or 0).strip()
    return frames[-1].filename.startswith(SOURCE) and line.startswith("raise") and len(str(error).split()) > 3


def _chain(error: BaseException | None) -> Iterator[str]:
    """What a traceback prints: the error, and those that it came from."""
    while error is not None:
        yield str(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def counts(found: list[Found]) -> str:
    """A table: one line per kind of input, one column per outcome."""
    table = Counter((one.case.kind, one.outcome) for one in found)
    kinds = sorted({one.case.kind for one in found})
    head = f"{'':24}" + "".join(f"{outcome:>16}" for outcome in Outcome)
    lines = [f"{kind:24}" + "".join(f"{table[kind, outcome]:>16,}" for outcome in Outcome) for kind in kinds]
    whole = Counter(one.outcome for one in found)
    return "\n".join([head, *lines, f"{'all':24}" + "".join(f"{whole[outcome]:>16,}" for outcome in Outcome)])


@contextmanager
def _alarm(seconds: int):
    def ring(*_: Any) -> None:
        raise TooSlowError

    before, started = signal.signal(signal.SIGALRM, ring), time.monotonic()
    left = signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        if left:  # an alarm of whoever runs the tests
            signal.alarm(max(1, left - int(time.monotonic() - started)))
