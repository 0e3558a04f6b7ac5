"""What anybody reads who opens the released file and knows nothing else: the rows that it holds, and its extremes.

A class with a single row is held too: its mean, or its counts, are that row.

The audits of tables find these by comparing the file with the table (`adapters/sklearn/scan.py`). That they are there
is a property of the file: whoever opens it sees the same numbers, with the scaler beside them that puts them back into
their units.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from lostwax.attacks.closed_form.stored import row_keys
from lostwax.audits.ladder import Rung
from lostwax.audits.scoring import Scoring
from lostwax.games import Adversary, Cells, Extremes, Kept, Part, ReleasedTable
from lostwax.games.cells import Bools
from lostwax.games.trees import Ints
from lostwax.grades import Grade

SEARCH = "search of the file"
FEWEST_VALUES = 10  # of a column: the extremes of one with fewer are no news
NAMES = 0.5  # of the rows have a value of a column that no other row has: it names them


def rung_of_anyone(released: ReleasedTable, threshold: float) -> Rung:
    """Every row of the table that the file holds, and what of it comes back in the units of the table."""
    n, sample = len(released.table), released.sample
    attacker = Adversary(0, n if sample is None else sample.population, "row")
    rung = Rung(attacker, Grade.NOT_FOUND, SEARCH, tried=n, games=0 if sample is None else n)
    extremes = sum(_unique_extremes(part, ends) for part in released.parts for ends in part.fitted.extremes)
    if any(part.fitted.stored or part.fitted.sums for part in released.parts):
        cells_held, is_rebuilt = _read(released, threshold)
        won, singles = int(is_rebuilt.sum()), extremes + int(cells_held.sum())
        if won:
            return replace(rung, grade=Grade.EXACT, rebuilt=won, certified=won, cells=extremes)
        if (cells_held > 1).any() or (cells_held > 0).mean() >= NAMES:
            return replace(rung, grade=Grade.RECOGNISABLE, cells=singles)
        extremes = singles
    if extremes:
        return replace(rung, grade=Grade.BETTER_THAN_CHANCE, cells=extremes)
    if unread := (*released.unread, *released.attached):
        return replace(rung, grade=Grade.UNDECIDED, reason=" ".join(unread))
    return rung


def _read(released: ReleasedTable, threshold: float) -> tuple[Ints, Bools]:
    """(n,) how many cells of each row the file holds, and which rows come back from it within the threshold.

    A cell that is guessed can be right by chance: it counts as wrong by a standard deviation.
    """
    table, n = released.table, len(released.table)
    cells = Cells.lost(n, table.x.shape[1])
    for part in released.parts:
        for rows, values in _stored(part, n):
            cells = cells.or_else(_at(part.back(values), rows, n))
    blind = released.columns.blind(table.x, torch.arange(n))
    scoring = Scoring.of_cells(table.x, released.columns, threshold)
    errors = scoring.scores(cells.filled(blind), table.x).criterion
    is_held = np.asarray(cells.kept > Kept.LOST)
    guessed = ~is_held & (table.x != table.x[0]).any(0).numpy()
    return is_held.sum(1), is_held.any(1) & (errors <= threshold) & (guessed.mean(1) <= threshold**2)


def _stored(part: Part, n: int) -> Iterator[tuple[Tensor, Tensor]]:
    """For each array of stored rows, the rows of the release (k,) that are in it, and their values in this part.

    A list of categories holds a value once, however many rows have it: it tells of rows that are alone with theirs.
    """
    rows = torch.arange(len(part.fitted.table)) if part.rows is None else part.rows
    table, weight = part.fitted.table[rows], part.fitted.weight[rows]
    seen = table.x
    for sums in part.fitted.sums:
        member = sums.membership(table.y, weight) > 0  # (n, groups)
        groups = (member.sum(0) == 1) & (sums.counts > 0)
        rows = member[:, groups].int().argmax(0)
        if len(rows) and len(seen) == n:
            yield rows, (sums.totals / sums.counts[:, None])[groups]
    for stored in part.fitted.stored:
        values = seen.to(stored.x.dtype)
        distinct, key = np.unique(np.concatenate([row_keys(values), row_keys(stored.x)]), return_inverse=True)
        times, times_stored = (np.bincount(of, minlength=len(distinct)) for of in np.split(key, [len(values)]))
        enough = times if stored.x.shape[1] == 1 else 1
        rows = torch.from_numpy(np.flatnonzero((times_stored >= enough)[key[: len(values)]]))
        if len(rows) and len(seen) == n:
            yield rows, values[rows].to(seen.dtype)


def _at(cells: Cells, rows: Tensor, n: int) -> Cells:
    """The cells of some rows among those of all n."""
    every = Cells.lost(n, cells.values.shape[1])
    every.values[rows.numpy()], every.kept[rows.numpy()] = cells.values, cells.kept
    return every


def _unique_extremes(part: Part, extremes: Extremes) -> int:
    """How many values of single rows are the published minimum or maximum of a column that has many values."""
    x = part.fitted.table.x
    is_end = (x == extremes.low.to(x)) | (x == extremes.high.to(x))  # (n, d)
    alone = ((x == extremes.low.to(x)).sum(0) == 1).long() + ((x == extremes.high.to(x)).sum(0) == 1).long()
    many = torch.tensor([len(torch.unique(column)) >= FEWEST_VALUES for column in x.unbind(1)])
    return int((alone * many * is_end.any(0)).sum())
