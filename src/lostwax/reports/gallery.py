"""Originals beside reconstructions: best, median and worst."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lostwax.audits.cells import known_in_words
from lostwax.games import Columns

if TYPE_CHECKING:
    from torch import Tensor

    from lostwax.audits import Audit, Finding

PICTURES = 8  # per row
TABLES = 3  # per row
NUMBERS = 12  # features per table
ROUNDING = 1e-9  # of the largest value of a column


class ShownCell(NamedTuple):
    """One column of a record."""

    name: str
    original: str
    rebuilt: str
    known: str | None  # "exact", "2 to 5", "red or blue", "unknown"; None where the audit does not tell


class Pair(NamedTuple):
    """One record and its reconstruction."""

    game: int  # its number in the audit
    position: int  # in the audit's list of games
    error: float
    rebuilt: bool
    label: str
    guessed_label: str
    pictures: tuple[str, str] | None  # data URIs: original, reconstruction
    cells: tuple[ShownCell, ...]  # for tables: the first columns
    more: int  # how many columns are left out


class GalleryRow(NamedTuple):
    """A titled row of examples."""

    name: str
    pairs: tuple[Pair, ...]


def has_records(audit: Audit) -> bool:
    """False if the audit was read back without its records."""
    return audit.truth.x[0].numel() > 0


def are_pictures(audit: Audit) -> bool:
    """True for grey (h, w), (1, h, w) or colour (3, h, w) images."""
    shape = audit.truth.x.shape[1:]
    return len(shape) == 2 or (len(shape) == 3 and shape[0] in (1, 3))


def rows(audit: Audit) -> tuple[GalleryRow, ...]:
    """Examples of the audit's first line, then some of the line that rebuilds most, if that is another."""
    released = audit.findings[0]
    better = max(audit.findings, key=lambda finding: int(finding.rebuilt.sum()))
    found = [_row(audit, released, name, games) for name, games in _examples(audit).items()]
    if better.rebuilt.sum() > released.rebuilt.sum():
        first = next(iter(_examples(audit).values()))
        found.append(_row(audit, better, f"the first row again, from the model {better.name}", first))
    return tuple(found)


def _examples(audit: Audit) -> dict[str, list[int]]:
    """Indices of the best, median and worst games; with candidates, of the right and the wrong ones."""
    each = PICTURES if are_pictures(audit) else TABLES
    if audit.chance is not None:
        right = audit.findings[0].rebuilt
        chosen = {"right candidate": np.flatnonzero(right), "wrong candidate": np.flatnonzero(~right)}
        return {name: games[:each].tolist() for name, games in chosen.items() if len(games)}
    order = np.argsort(audit.findings[0].errors[audit.criterion], kind="stable").tolist()
    if len(order) <= each:
        return {"every game": order}
    each = min(each, len(order) // 3) or 1
    middle = (len(order) - each) // 2
    return {"best": order[:each], "around the median": order[middle : middle + each], "worst": order[-each:]}


def _row(audit: Audit, finding: Finding, name: str, games: list[int]) -> GalleryRow:
    return GalleryRow(name, tuple(pair(audit, finding, index) for index in games))


def labels(audit: Audit, values: Tensor) -> list[str]:
    """Class names, or numbers to six digits: (games,) or (games, targets)."""
    if values[0].numel() != 1:
        return [""] * len(values)
    plain = values.reshape(len(values)).tolist()
    if audit.classes and not values.is_floating_point():
        return [str(audit.classes[int(value)]) for value in plain]
    return [f"{value:.6g}" for value in plain]


def cells(audit: Audit, x: Tensor) -> list[list[str]]:
    """Each row (n, d) of a table as its owner writes it; what is only rounding beside its column is shown as 0."""
    columns = table_columns(audit)
    rounding = ROUNDING * audit.truth.x.double().cpu().flatten(1).abs().nan_to_num().amax(0)  # (d,)
    plain = x.double().cpu().flatten(1)
    shown = plain.masked_fill(plain.abs() < rounding, 0.0).tolist()
    return [[columns.text(place, value) for place, value in enumerate(row)] for row in shown]


def table_columns(audit: Audit) -> Columns:
    """The columns of the audited table; numbered from 1 where they have no names."""
    width = audit.truth.x[0].numel()
    names = audit.columns if len(audit.columns) == width else tuple(str(place + 1) for place in range(width))
    return Columns(names, audit.categories or ((),) * width)


def pair(audit: Audit, finding: Finding, index: int) -> Pair:
    """The record and the finding's reconstruction of the game at this index of the audit's list."""
    truth = audit.truth.x[index].double().cpu().numpy()
    guess = finding.guess.records.x[index, 0].double().cpu().reshape(truth.shape).numpy()
    pictured, one = are_pictures(audit), slice(index, index + 1)
    shown: list[int] = []
    if not pictured:  # of a wide table the columns that are not zero: the words of a text
        filled = np.flatnonzero((truth.ravel() != 0) | (guess.ravel() != 0)).tolist()
        shown = list(range(truth.size)) if truth.size <= NUMBERS or len(filled) > truth.size / 2 else filled
    ours = [] if pictured else cells(audit, audit.truth.x[one])[0]
    theirs = [] if pictured else cells(audit, finding.guess.records.x[one, 0])[0]
    known = None if pictured else known_cells(audit, finding, index)
    names = () if pictured else table_columns(audit).names
    return Pair(
        game=int(audit.games[index]),
        position=index,
        error=float(finding.errors[audit.criterion][index]),
        rebuilt=bool(finding.rebuilt[index]),
        label=labels(audit, audit.truth.y[one])[0],
        guessed_label=labels(audit, finding.guess.records.y[one, 0])[0],
        pictures=(_data_uri(truth, truth), _data_uri(guess, truth)) if pictured else None,
        cells=tuple(
            ShownCell(names[place], ours[place], theirs[place], None if known is None else known[place])
            for place in shown[:NUMBERS]
        ),
        more=max(0, len(shown) - NUMBERS),
    )


def known_cells(audit: Audit, finding: Finding, index: int) -> list[str] | None:
    """What is known of each cell of a game, in words; None where the audit does not tell."""
    if finding.cells is None or finding.cells.each is None:
        return None
    return known_in_words(finding.cells.each, table_columns(audit), index)


def _data_uri(image: NDArray[np.float64], truth: NDArray[np.float64]) -> str:
    """A PNG as a data URI; NaN is black, and values are clipped to the range of the original (at least [0, 1])."""
    from matplotlib.image import imsave

    low, high = min(0.0, float(truth.min())), max(1.0, float(truth.max()))
    scaled = np.clip((np.nan_to_num(image, posinf=high, neginf=low) - low) / (high - low), 0, 1)
    if scaled.ndim == 3:
        scaled = scaled[0] if len(scaled) == 1 else np.moveaxis(scaled, 0, -1)
    file = io.BytesIO()
    imsave(file, scaled, cmap="gray", vmin=0, vmax=1, format="png")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")
