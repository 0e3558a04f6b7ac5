"""Originals beside reconstructions: the best, the middling and the worst."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

    from lostwax.audits import Audit, Finding

PICTURES = 8  # a row
TABLES = 3  # a row
NUMBERS = 12  # of a record, in a table


class Pair(NamedTuple):
    """One record and what was made of it."""

    game: int  # its number in the audit
    place: int  # ... and its place in its list of games
    error: float
    rebuilt: bool
    label: str
    guessed_label: str
    pictures: tuple[str, str] | None  # data URIs: original, reconstruction
    numbers: tuple[
        tuple[str, float, float], ...
    ]  # the same for records that are no pictures, by name, the first NUMBERS
    more: int  # how many numbers are left out


class Row(NamedTuple):
    """Some pairs and what they are examples of."""

    name: str
    pairs: tuple[Pair, ...]


def has_records(audit: Audit) -> bool:
    """Does it hold its records, or was it read back without them?"""
    return audit.truth.x[0].numel() > 0


def are_pictures(audit: Audit) -> bool:
    """Grey (h, w) or (1, h, w), or in colours (3, h, w)."""
    shape = audit.truth.x.shape[1:]
    return len(shape) == 2 or (len(shape) == 3 and shape[0] in (1, 3))


def rows(audit: Audit) -> tuple[Row, ...]:
    """The examples of the first line of an audit, each game once; then some of a line that rebuilds more."""
    released = audit.findings[0]
    better = max(audit.findings, key=lambda finding: int(finding.rebuilt.sum()))
    found = [_row(audit, released, name, places) for name, places in _examples(audit).items()]
    if better.rebuilt.sum() > released.rebuilt.sum():
        first = next(iter(_examples(audit).values()))
        found.append(_row(audit, better, f"the first of these again, from the model {better.name}", first))
    return tuple(found)


def _examples(audit: Audit) -> dict[str, list[int]]:
    """Places of the best, the median and the worst games; where a candidate had to be picked, of right and wrong."""
    each = PICTURES if are_pictures(audit) else TABLES
    if audit.chance is not None:
        right = audit.findings[0].rebuilt
        picked = {"picked right": np.flatnonzero(right), "picked wrong": np.flatnonzero(~right)}
        return {name: places[:each].tolist() for name, places in picked.items() if len(places)}
    order = np.argsort(audit.findings[0].errors[audit.criterion], kind="stable").tolist()
    if len(order) <= each:
        return {"every game": order}
    each = min(each, len(order) // 3) or 1
    middle = (len(order) - each) // 2
    return {"best": order[:each], "around the median": order[middle : middle + each], "worst": order[-each:]}


def _row(audit: Audit, finding: Finding, name: str, places: list[int]) -> Row:
    return Row(name, tuple(pair(audit, finding, place) for place in places))


def labels(audit: Audit, values: Tensor) -> list[str]:
    """Class names, or numbers to six digits: (games,) or (games, targets)."""
    if values[0].numel() != 1:
        return [""] * len(values)
    plain = values.reshape(len(values)).tolist()
    if audit.classes and not values.is_floating_point():
        return [str(audit.classes[int(value)]) for value in plain]
    return [f"{value:.6g}" for value in plain]


def pair(audit: Audit, finding: Finding, place: int) -> Pair:
    """The record of the game at this place of the audit's list, and what the finding has of it."""
    truth = audit.truth.x[place].double().cpu().numpy()
    guess = finding.guess.records.x[place, 0].double().cpu().reshape(truth.shape).numpy()
    pictured = are_pictures(audit)
    one = slice(place, place + 1)
    return Pair(
        game=int(audit.games[place]),
        place=place,
        error=float(finding.errors[audit.criterion][place]),
        rebuilt=bool(finding.rebuilt[place]),
        label=labels(audit, audit.truth.y[one])[0],
        guessed_label=labels(audit, finding.guess.records.y[one, 0])[0],
        pictures=(_data_uri(truth, truth), _data_uri(guess, truth)) if pictured else None,
        numbers=() if pictured else _numbers(audit, truth, guess),
        more=0 if pictured else max(0, truth.size - NUMBERS),
    )


def _numbers(
    audit: Audit, truth: NDArray[np.float64], guess: NDArray[np.float64]
) -> tuple[tuple[str, float, float], ...]:
    names = audit.columns if len(audit.columns) == truth.size else [str(place + 1) for place in range(truth.size)]
    return tuple(zip(names, truth.ravel().tolist(), guess.ravel().tolist(), strict=True))[:NUMBERS]


def _data_uri(image: NDArray[np.float64], truth: NDArray[np.float64]) -> str:
    """A PNG inside the page; pixels that are no number are black, all are cut to the range of the original's kind."""
    from matplotlib.image import imsave

    low, high = min(0.0, float(truth.min())), max(1.0, float(truth.max()))
    scaled = np.clip((np.nan_to_num(image, posinf=high, neginf=low) - low) / (high - low), 0, 1)
    if scaled.ndim == 3:
        scaled = scaled[0] if len(scaled) == 1 else np.moveaxis(scaled, 0, -1)
    file = io.BytesIO()
    imsave(file, scaled, cmap="gray", vmin=0, vmax=1, format="png")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")
