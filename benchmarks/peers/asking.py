"""What a peer answers for one of the pipelines, with its times and errors; imported by the scripts of the peers."""

import json
import resource
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from table_pipelines import CASES, SEED, final_step, fingerprint

LONGEST_ERROR = 160  # characters
PATIENCE = 4  # seconds by the clock for one of processor time


@dataclass(frozen=True)
class Release:
    """A fitted model with its members and other rows, as one tool is given them."""

    given: str
    model: Any
    X: Any  # members
    y: np.ndarray
    X_out: Any  # others
    y_out: np.ndarray
    table: Any  # members and others as in the owner's table
    table_out: Any
    columns: dict[str, list[int]]  # of the table: which columns of X hold them


def releases(case, rows) -> list[Release]:
    """The fitted model with its raw table; and its last step with the encoded table, if there is one."""
    X, X_out, y, y_out = case.split(rows)
    model = case.fitted(X, y)
    plain = hasattr(X, "select_dtypes") and X.select_dtypes("number").shape == X.shape
    raw = (X.to_numpy(), X_out.to_numpy()) if plain else (X, X_out)
    names = list(getattr(X, "columns", []))
    own = {name: [index] for index, name in enumerate(names)}
    found = [Release("the fitted object, raw table", model, raw[0], y, raw[1], y_out, X, X_out, own)]
    last, encoded, outputs = final_step(model, X)
    if last is not model:
        others = final_step(model, X_out)[1]
        held = {name: encodings(name, outputs) for name in names}
        found.append(Release("its last step, encoded table", last, encoded, y, others, y_out, X, X_out, held))
    return found


def encodings(name: str, outputs: list[str]) -> list[int]:
    """Where scikit-learn's names of encoded columns are those of this column: "scaler__age", "one-hot__job_clerk"."""
    ends = [output.split("__")[-1] for output in outputs]
    return [index for index, end in enumerate(ends) if end == name or end.startswith(f"{name}_")]


def auc(value: float, members: int, others: int) -> tuple[float, float, float]:
    """With its 95 % interval by Hanley and McNeil 1982."""
    same = value / (2 - value) - value**2  # covariance of two pairs with the same member
    other = 2 * value**2 / (1 + value) - value**2
    variance = (value * (1 - value) + (members - 1) * same + (others - 1) * other) / (members * others)
    half = 1.96 * max(variance, 0) ** 0.5
    return float(value), float(max(value - half, 0)), float(min(value + half, 1))


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Stop what takes longer, in processor time; a multiple of it by the clock, for work in other processes."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"no answer in {seconds:g} s")

    for clock, name, length in (
        (signal.ITIMER_PROF, signal.SIGPROF, seconds),
        (signal.ITIMER_REAL, signal.SIGALRM, PATIENCE * seconds),
    ):
        signal.signal(name, stop)
        signal.setitimer(clock, length)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def processor_seconds() -> float:
    """Used so far by this process and by those that it started and waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def asked(attack: Callable[[Release], dict[str, Any]], release: Release, seconds: float) -> dict[str, Any]:
    """The answer of one attack, or the error it raises."""
    check_random_state(None).seed(SEED)  # the generator that peers draw from
    start = processor_seconds()
    try:
        with limit(seconds):
            answer = {"values": attack(release)}
    except Exception as error:  # whatever the peer raises is its answer
        words = " ".join(str(error).split())
        short = words if len(words) <= LONGEST_ERROR else words[:LONGEST_ERROR] + " ..."
        answer = {"error": f"{type(error).__name__}: {short}"}
    return {"given": release.given, "seconds": processor_seconds() - start, **answer}


def main(attacks: dict[str, Callable[[Release], dict[str, Any]]]) -> None:
    """Print all answers for one case as JSON; the last step is tried only where the whole object is refused."""
    warnings.simplefilter("ignore")
    question = json.loads(sys.argv[1])
    case = next(case for case in CASES if case.name == question["case"])
    candidates = releases(case, question["rows"])
    answers = []
    for name, attack in attacks.items():
        for release in candidates:
            answers.append({"attack": name, **asked(attack, release, question["seconds"])})
            if "values" in answers[-1] or answers[-1]["error"].startswith(TimeoutError.__name__):
                break
    whole = candidates[0]
    print(json.dumps({"fingerprint": fingerprint(whole.model, whole.table_out), "answers": answers}))
