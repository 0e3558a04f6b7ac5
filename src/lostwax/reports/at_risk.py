"""The records most at risk, by the number of their row, and the columns that come back."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lostwax.games import Kept
from lostwax.grades import Grade
from lostwax.reports.gallery import are_pictures, has_records, table_columns

if TYPE_CHECKING:
    from lostwax.audits import Audit, Finding

MOST = 20  # records listed
NAMED = 6  # columns named per record
FEW = 3  # if there are more columns, "all" stands for their names


class RiskyRecord(NamedTuple):
    """One record, and how well it is rebuilt."""

    row: int  # of the table that was passed; of a way of training: the game
    rebuilt: bool
    error: float  # by the headline metric
    without: float  # the error of the best baseline
    columns: str  # those that come back, by name; empty where this is not shown


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
    order = [place for place in np.lexsort((errors, ~finding.rebuilt)).tolist() if worth[place]][:MOST]
    named = records and has_records(audit) and not are_pictures(audit) and audit.chance is None
    back = _come_back(audit, finding, order) if named else None
    names = table_columns(audit).names if named else ()
    if back is not None and target is not None:
        names, back = (*names, "target"), np.column_stack([back, target.read[order].any(1)])
    return tuple(
        RiskyRecord(
            row=int(audit.games[place]),
            rebuilt=bool(finding.rebuilt[place]),
            error=float(errors[place]),
            without=float(without[place]),
            columns="" if back is None else _listed(names, back[number]),
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
    found = [names[place] for place in np.flatnonzero(back)]
    if len(found) in (0, len(names)):
        return f"all {len(names)}" if found and len(names) > FEW else ", ".join(found) or "none exactly"
    more = len(found) - NAMED
    return ", ".join(found[:NAMED]) + (f" and {more} more" if more > 0 else "")
