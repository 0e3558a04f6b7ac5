"""The records of an audit, as the page shows them: beside their reconstructions, and those most at risk."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lostwax.games import Cells, Columns, Kept
from lostwax.grades import Grade

if TYPE_CHECKING:
    from torch import Tensor

    from lostwax.audits import Audit, Finding

PICTURES = 8  # per row
TABLES = 3  # per row
NUMBERS = 12  # features per table
ROUNDING = 1e-9  # of the largest value of a column
MOST_LISTED = 4  # values of a set that are named


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
    gallery = [_row(audit, released, name, games) for name, games in _examples(audit).items()]
    if better.rebuilt.sum() > released.rebuilt.sum():
        first = next(iter(_examples(audit).values()))
        gallery.append(_row(audit, better, f"the first row again, from the model {better.name}", first))
    return tuple(gallery)


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
    pictured, only = are_pictures(audit), slice(index, index + 1)
    shown: list[int] = []
    if not pictured:  # of a wide table the columns that are not zero: the words of a text
        nonzero = np.flatnonzero((truth.ravel() != 0) | (guess.ravel() != 0)).tolist()
        shown = list(range(truth.size)) if truth.size <= NUMBERS or len(nonzero) > truth.size / 2 else nonzero
    ours = [] if pictured else cells(audit, audit.truth.x[only])[0]
    theirs = [] if pictured else cells(audit, finding.guess.records.x[only, 0])[0]
    known = None if pictured else known_cells(audit, finding, index)
    names = () if pictured else table_columns(audit).names
    return Pair(
        game=int(audit.games[index]),
        position=index,
        error=float(finding.errors[audit.criterion][index]),
        rebuilt=bool(finding.rebuilt[index]),
        label=labels(audit, audit.truth.y[only])[0],
        guessed_label=labels(audit, finding.guess.records.y[only, 0])[0],
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


def known_in_words(cells: Cells, columns: Columns, row: int) -> list[str]:
    """What is known of each cell of a row: "exact", "2 to 5", "red or blue", "estimated", "unknown"."""
    return [_known(cells, columns, row, column) for column in range(len(columns.categories))]


def _known(cells: Cells, columns: Columns, row: int, column: int) -> str:
    how = Kept(int(cells.kept[row, column]))
    if how is Kept.EXACT:
        return "exact"
    if how in (Kept.LOST, Kept.ESTIMATED):
        return "unknown" if how is Kept.LOST else "estimated"
    bounds = cells.every_bound()
    low, high, missing = (part[row, column].item() for part in bounds[:3])
    or_missing = " or missing" if missing and cells.bounds is not None else ""
    if column in bounds.codes:
        named = [columns.text(column, code) for code in np.flatnonzero(bounds.codes[column][row]).tolist()]
        listed = " or ".join(named) if len(named) <= MOST_LISTED else f"one of {len(named)} values"
        return f"{listed}{or_missing}"
    if abs(low) == abs(high) == np.inf or columns.categories[column]:
        return "one of several values" if how is Kept.SET else "within an interval"
    first, last = columns.text(column, low), columns.text(column, high)
    if first == last:
        return f"{first}{or_missing}"
    span = f"{first} to {last}" if low > -np.inf else f"at most {last}"
    return f"{span if high < np.inf else f'at least {first}'}{or_missing}"


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


MOST_RISKY = 20  # records listed
NAMED_COLUMNS = 6  # columns named per record
FEW_COLUMNS = 3  # if there are more columns, "all" stands for their names


class RiskyRecord(NamedTuple):
    """One record, and how well it is rebuilt."""

    row: int  # of the table that was passed; of a way of training: the game
    rebuilt: bool
    error: float  # by the headline metric
    without: float  # the error of the best baseline
    columns: str  # those that come back, by name; of words the word itself; empty where this is not shown


def most_at_risk(audit: Audit, *, records: bool) -> tuple[RiskyRecord, ...]:
    """The records that the worst line rebuilds best; none where nothing was found, or named by luck.

    Names of columns are only given with `records`: those of a text are its words.
    """
    if not (audit.grade.leaks or (audit.grade is Grade.UNDECIDED and audit.chance is None)):
        return ()
    finding = audit.finding(audit.conclusion.line.name)
    errors = finding.errors[audit.metric]
    without = np.minimum.reduce([by_metric[audit.metric] for by_metric in audit.baselines.values()])
    worth = finding.rebuilt | (audit.beats_baselines(finding) if audit.chance is None else False)
    target = finding.target if audit.conclusion.by_target else None
    if target is not None:
        worth = worth | target.read.any(1)
    order = [place for place in np.lexsort((errors, ~finding.rebuilt)).tolist() if worth[place]][:MOST_RISKY]
    named = records and has_records(audit) and not are_pictures(audit) and audit.chance is None
    back = _come_back(audit, finding, order) if named else None
    names = table_columns(audit).names if named else ()
    words = cells(audit, audit.truth.x[order]) if named and audit.adversary.unit == "word" else None
    if back is not None and target is not None:
        names, back = (*names, "target"), np.column_stack([back, target.read[order].any(1)])
    return tuple(
        RiskyRecord(
            row=int(audit.games[place]),
            rebuilt=bool(finding.rebuilt[place]),
            error=float(errors[place]),
            without=float(without[place]),
            columns=words[number][0] if words else "" if back is None else _listed(names, back[number]),
        )
        for number, place in enumerate(order)
    )


def _come_back(audit: Audit, finding: Finding, places: list[int]) -> NDArray[np.bool_]:
    """(places, columns) which cells are known exactly; or, where the audit does not tell, within the threshold."""
    if finding.cells is not None and finding.cells.each is not None:
        return np.asarray(finding.cells.each.kept[places] == Kept.EXACT)
    truth = audit.truth.x.double().cpu().flatten(1).numpy()
    guess = finding.guess.records.x[:, 0].double().cpu().flatten(1).numpy()
    scale = truth.std(0)  # of the records tried
    return np.asarray(np.abs(guess - truth)[places] <= audit.threshold * scale) | finding.rebuilt[places, None]


def _listed(names: tuple[str, ...], back: NDArray[np.bool_]) -> str:
    """all 10; age, sex and 3 more; none."""
    come_back = [names[place] for place in np.flatnonzero(back)]
    if len(come_back) in (0, len(names)):
        return f"all {len(names)}" if come_back and len(names) > FEW_COLUMNS else ", ".join(come_back) or "none exactly"
    more = len(come_back) - NAMED_COLUMNS
    return ", ".join(come_back[:NAMED_COLUMNS]) + (f" and {more} more" if more > 0 else "")
