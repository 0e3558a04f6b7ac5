"""What sums, stored rows and extremes of two releases tell of the rows that only the first was fitted on.

A mean is a sum over rows: the number of rows times the mean, in the first release minus in the second, is the sum of
the rows that were removed. One row comes back as it is, and nobody has to be known: only how many rows each release was
fitted on. Of two rows, sums of squares (variances) leave two values per column.

Each part of a pipeline sees its own encoding of the table, fitted anew with each release. Rows that are in both tables
show how the two encodings of a column hang together (`PlaceMap`): the same numbers, another shift and scale, or a
column that only one has, such as a category that only the removed row had.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from lostwax.attacks.closed_form import row_keys
from lostwax.games import Cells, Columns, Kept, Part, Present, ReleasedTable, Stored
from lostwax.games.cells import Revealed

SAME = 1e-9  # of a column's spread: two numbers are equal
SURE = 1e-6  # of a column's spread: a number that rounding moves by less is exact
EPSILON = torch.finfo(torch.float64).eps
DIGITS = 6  # decimal places that a column's values may be limited to
WHOLE = 1e-6  # of the last place: a number with so many digits is a whole multiple of it


class Changes(NamedTuple):
    """Which rows differ between two tables."""

    removed: Tensor  # (k,) rows of the first table that the second does not have
    added: Tensor  # (j,) rows of the second that the first does not have
    shared: tuple[Tensor, Tensor]  # (s,) the others, in both

    @classmethod
    def of(cls, first: Sequence[object], second: Sequence[object]) -> Changes:
        """From a key per row; equal rows are paired in their order."""
        places = defaultdict[object, list[int]](list)
        for row, key in enumerate(second):
            places[key].append(row)
        pairs = torch.tensor([(row, places[key].pop(0)) for row, key in enumerate(first) if places[key]])
        in_first, in_second = pairs.reshape(-1, 2).long().unbind(1)
        removed, added = (_others(len(keys), rows) for keys, rows in ((first, in_first), (second, in_second)))
        return cls(removed, added, (in_first, in_second))

    def reversed(self) -> Changes:
        """The same with the two tables exchanged."""
        return Changes(self.added, self.removed, self.shared[::-1])


def _others(count: int, rows: Tensor) -> Tensor:
    return torch.ones(count, dtype=torch.bool).index_fill(0, rows, False).nonzero().flatten()


class PlaceMap(NamedTuple):
    """The second release's encoding of rows as an affine map of the first one's, column by column."""

    column: Tensor  # (d,) which column of the second it is; -1: of none
    slope: Tensor  # (d,) second = slope first + offset
    offset: Tensor  # (d,)
    still: Tensor  # (d,) of a column that only the first has: its value in all rows of both tables; NaN: not constant

    @classmethod
    def of(cls, first: Tensor, second: Tensor) -> PlaceMap:
        """From the rows that both tables have, (s, d) and (s, e)."""
        column = _aligned(first, second)
        there = second[:, column.clamp_min(0)]
        absent = first.isnan() | there.isnan()
        low = torch.where(absent, torch.inf, first).argmin(0)  # (d,) rows
        high = torch.where(absent, -torch.inf, first).argmax(0)
        ends = torch.arange(first.shape[1])
        spread = first[high, ends] - first[low, ends]
        varies = spread > 0
        slope = torch.where(varies, (there[high, ends] - there[low, ends]) / torch.where(varies, spread, 1.0), 1.0)
        identical = ((there == first) | (first.isnan() & there.isnan())).all(0)
        slope = torch.where(identical, 1.0, slope)
        offset = torch.where(identical, 0.0, there[low, ends] - slope * first[low, ends])
        gap = torch.where(absent, 0.0, there - slope * first - offset).abs().amax(0)
        scale = slope.abs() * first.nan_to_num().abs().amax(0) + offset.abs()
        agrees = (column >= 0) & (gap <= SAME * scale.clamp_min(1e-300)) & (slope != 0)
        still = torch.where(varies | (column >= 0), torch.nan, first[0] if len(first) else torch.nan)
        return cls(torch.where(agrees, column, -1), slope, offset, still)

    @property
    def usable(self) -> Tensor:
        """(d,) columns whose sums can be compared."""
        return (self.column >= 0) | ~self.still.isnan()

    @property
    def exact(self) -> Tensor:
        """(d,) columns that both releases see alike, to the last bit."""
        return (self.slope == 1) & (self.offset == 0)

    def rows(self, second: Tensor) -> Tensor:
        """(n, e) rows as the second release sees them, as the first does, (n, d); NaN where that is not known."""
        there = (second[:, self.column.clamp_min(0)] - self.offset) / self.slope
        return torch.where(self.column >= 0, there, self.still)

    def totals(self, second: Tensor, counts: Tensor) -> Tensor:
        """(g, e) sums of rows with these weights (g,), as the first release sees them, (g, d)."""
        there = (second[:, self.column.clamp_min(0)] - counts[:, None] * self.offset) / self.slope
        return torch.where(self.column >= 0, there, counts[:, None] * self.still)

    def squares(self, second: Tensor, totals: Tensor, counts: Tensor) -> Tensor:
        """(g, e) sums of squares of rows with these sums (g, e), as the first release sees them, (g, d)."""
        at = self.column.clamp_min(0)
        centred = second[:, at] - 2 * self.offset * totals[:, at] + counts[:, None] * self.offset.square()
        return torch.where(self.column >= 0, centred / self.slope.square(), counts[:, None] * self.still.square())


def _aligned(first: Tensor, second: Tensor) -> Tensor:
    """(d,) the column of the second that each is, by order; those that only one has are constant in common rows."""
    d, e = first.shape[1], second.shape[1]
    if d == e:
        return torch.arange(d)
    constants = [(rows == rows[:1]).all(0).tolist() for rows in (first, second)]
    column, there = torch.full((d,), -1), 0
    for here in range(d):
        while there < e and not torch.equal(first[:, here], second[:, there]) and constants[1][there]:
            there += 1
        if there < e and torch.equal(first[:, here], second[:, there]):
            column[here], there = there, there + 1
        elif not constants[0][here]:
            return torch.full((d,), -1)
    return column


class Subtracted(NamedTuple):
    """What the two releases tell of the removed rows, and what of them was not compared."""

    answers: tuple[Revealed, ...]  # (k, d) cells of the first table each
    certain: tuple[Cells, ...]  # (k, d) those that follow without any assumption
    unread: tuple[str, ...]  # sentences
    sources: tuple[str, ...]  # what the cells come from


Squares = Mapping[int, Tensor]  # of the sums of a part, by their place: (groups, d) sums of squares


def matched_parts(first: ReleasedTable, second: ReleasedTable) -> Iterator[tuple[Part, Part | None]]:
    """Each part of the first release beside the same part of the second; None: it has no such part."""
    places = defaultdict[object, list[Part]](list)
    for part in second.parts:
        places[_kind(part)].append(part)
    for part in first.parts:
        there = places[_kind(part)]
        yield part, there.pop(0) if there else None


def _kind(part: Part) -> object:
    fitted = part.fitted
    several = (fitted.sums, fitted.stored, fitted.extremes, fitted.present)
    return fitted.name, *map(bool, several), fitted.model is None, fitted.forest is None


def subtracted(
    first: ReleasedTable,
    second: ReleasedTable,
    changes: Changes,
    squares: tuple[Sequence[Squares], Sequence[Squares]],
) -> Subtracted:
    """The first release minus the second, part by part; `squares` are those of the parts of each."""
    answers, certain, unread, sources = list[Revealed](), list[Cells](), list[str](), list[str]()
    numbers = [{id(part): place for place, part in enumerate(released.parts)} for released in (first, second)]
    pairs, spreads = list[_Pair](), list[Spread]()
    for here, there in matched_parts(first, second):
        facts = here.fitted
        if there is None:
            unread.append(f"{facts.name} has no counterpart in the other release, and was not compared.")
            continue
        if facts.hazards is not None:
            unread.append(f"{facts.name}'s coefficients were not compared: a Cox model is solved with all other rows.")
        if facts.model is None and facts.forest is None and len(facts.table) != len(first.table):
            unread.append(f"{facts.name} was fitted on a part of the rows, and was not compared.")
            continue
        more = squares[0][numbers[0][id(here)]], squares[1][numbers[1][id(there)]]
        pairs.append(_Pair(here, there, changes, first.columns, second.columns, more))
        spreads += pairs[-1].spreads()
    for pair in pairs:
        for answer, is_certain, source in (
            *pair.by_sums(),
            *pair.by_stored(),
            *pair.by_extremes(),
            *pair.by_present(spreads),
        ):
            answers.append(answer)
            certain += [answer.candidates[0]] if is_certain else []
            sources.append(source)
        unread += pair.unread
    return Subtracted(tuple(answers), tuple(certain), tuple(dict.fromkeys(unread)), tuple(dict.fromkeys(sources)))


Told = tuple[Revealed, bool, str]  # an answer, whether it is certain, and what it comes from
Spread = tuple[float, ...]  # of a column: mean and sum of squared deviations in the first release, and in the second


class _Pair:
    """One part in both releases."""

    def __init__(
        self,
        here: Part,
        there: Part,
        changes: Changes,
        columns: Columns,
        others: Columns,
        squares: tuple[Squares, Squares],
    ) -> None:
        self.here, self.there, self.changes, self.squares = here, there, changes, squares
        self.columns, self.others = columns, others
        both = [part.fitted.table.x[rows] for part, rows in zip((here, there), changes.shared, strict=True)]
        self.map = PlaceMap.of(*both)
        self.count, self.width = len(changes.removed), len(columns.categories)
        self.unread = list[str]()

    def answer(
        self, games: Sequence[int], rows: Tensor, kept: Kept = Kept.EXACT, label: Tensor | None = None
    ) -> Revealed:
        """Rows (g, D) of this part as what is known of some games."""
        cells = self.here.back(rows).at_most(kept)
        lost = Cells.lost(self.count, self.width)
        values, known = lost.values, lost.kept
        values[list(games)], known[list(games)] = cells.values, cells.kept
        size = torch.zeros(self.count, dtype=torch.float64)
        size[list(games)] = 1.0
        labels = None
        if label is not None and (in_table := self.here.labels(label)) is not None:
            labels = in_table.new_zeros(self.count, *in_table.shape[1:])
            labels[list(games)] = in_table
        certain = (size > 0) if kept is Kept.EXACT else None
        return Revealed((Cells(values, known),), labels, size, size > 0, certain)

    def spreads(self) -> list[Spread]:
        """Of each column of a sum of all rows that has a sum of squares."""
        moments = list[Tensor]()
        for part, squares in zip((self.here, self.there), self.squares, strict=True):
            every = [place for place, sums in enumerate(part.fitted.sums) if not sums.by_label and place in squares]
            for sums, square in [(part.fitted.sums[place], squares[place]) for place in every[:1]]:
                moments += [sums.totals[0] / sums.counts[0], square[0] - sums.totals[0].square() / sums.counts[0]]
        same = len(moments) == 4 and len({len(each) for each in moments}) == 1
        return [tuple(column) for column in torch.stack(moments, 1).tolist()] if same else []

    def by_sums(self) -> Iterator[Told]:
        """Differences of sums, group by group."""
        fitted, other, (here, there), common = self.here.fitted, self.there.fitted, self.squares, self.changes.shared
        for place, (sums, later) in enumerate(zip(fitted.sums, other.sums, strict=False)):
            weighted = sums.weighted and not torch.equal(fitted.weight[common[0]], other.weight[common[1]])
            if weighted or not bool(self.map.usable.any()):
                why = "the weights of all rows changed" if weighted else "the steps before it changed all rows"
                self.unread.append(f"{sums.source} was not compared: {why}.")
                continue
            labels = fitted.table.y[self.changes.removed], other.table.y[self.changes.added]
            by_label = sums.by_label and self.here.labelled
            if sums.by_label and not by_label and min(int(fitted.table.y.min()), int(other.table.y.min())) < 0:
                self.unread.append(f"{sums.source} was not compared: it is that of some rows, which change.")
                continue
            groups = len(sums.counts) if by_label else 1
            totals, counts = (_joined(each, groups) for each in (sums.totals, sums.counts))
            totals_later, counts_later = (_joined(each, groups) for each in (later.totals, later.counts))
            if len(totals_later) != groups:
                self.unread.append(f"{sums.source} was not compared: the classes changed.")
                continue
            moved = self.map.totals(totals_later, counts_later)
            difference, count = totals - moved, counts - counts_later  # (groups, D), (groups,)
            error = 8 * EPSILON * (totals.abs() + moved.abs())
            quadratic = None
            if place in here and place in there:
                after = self.map.squares(_joined(there[place], groups), totals_later, counts_later)
                quadratic = _joined(here[place], groups) - after
            for group in range(groups):
                removed, added = (
                    [row for row, label in enumerate(side.tolist()) if not by_label or label == group]
                    for side in labels
                )
                if not removed:
                    continue
                label = torch.full((len(removed),), group) if by_label else None
                square = None if quadratic is None else quadratic[group]
                solved = _solved(difference[group], count[group], square, error[group], len(removed), len(added))
                for rows, known in solved:
                    exact_columns = rows if known < Kept.EXACT else self._checked(rows)
                    certain = known is Kept.EXACT and not added
                    yield self.answer(removed, exact_columns, known, label if not added else None), certain, sums.source

    def _checked(self, rows: Tensor) -> Tensor:
        """Whole numbers to the last bit, where both tables have only such in a column."""
        table = self.here.fitted.table.x
        whole_numbers = (table == table.round()).all(0)
        return torch.where(whole_numbers & ((rows - rows.round()).abs() < 0.01), rows.round(), rows)

    def by_stored(self) -> Iterator[Told]:
        """Rows, or categories of a column, that the second release does not hold."""
        fitted, other = self.here.fitted, self.there.fitted
        for stored, later in zip(fitted.stored, other.stored, strict=False):
            every_row = len(stored.x) == len(fitted.table) and len(later.x) == len(other.table)
            listed = not self.here.labelled and stored.x.shape[1] == 1  # the values of a column, each once
            gone = self._gone(stored, later)
            if not len(gone):
                continue
            rows, label = stored.x[gone].double(), None if stored.y is None else stored.y[gone]
            if len(rows) == self.count:
                order = self._order(rows)
                yield (
                    self.answer(range(self.count), rows[order], label=None if label is None else label[order]),
                    every_row or (listed and self.count == 1),
                    stored.source,
                )
            elif self.count == 1 and not every_row and not listed:
                first = self.answer([0], rows[:1], Kept.SET, None if label is None else label[:1])
                several = tuple(self.answer([0], row[None], Kept.SET).candidates[0] for row in rows[1:])
                yield first._replace(candidates=(*first.candidates, *several)), False, stored.source

    def _gone(self, stored: Stored, later: Stored) -> list[int]:
        """Places of rows that the second release does not hold, each as often as it is missing."""
        if self.map.usable.all():
            ours, theirs = stored.x.double(), self.map.rows(later.x.double())
            scale = self.here.fitted.table.x.nan_to_num().abs().amax(0).clamp_min(1e-300)
            grid = 1e-7 * scale if not self.map.exact.all() else None
            keys = [row_keys(rows if grid is None else (rows / grid).round()) for rows in (ours, theirs)]
        else:  # categories by their names
            cells = [part.back(rows.x.double()) for part, rows in ((self.here, stored), (self.there, later))]
            there = recoded(cells[1], self.others, self.columns)
            keys = [
                row_keys(torch.from_numpy(np.where(each.kept > Kept.LOST, each.values.astype(float), np.nan)))
                for each in (cells[0], there)
            ]
        left = Counter(keys[1].tolist())
        gone = []
        for place, key in enumerate(keys[0].tolist()):
            left[key] -= 1
            if left[key] < 0:
                gone.append(place)
        return gone

    def _order(self, rows: Tensor) -> list[int]:
        """Which of the rows each game is compared with: the best matching, as they have no order."""
        truth = self.here.fitted.table.x[self.changes.removed]
        costs = (truth[:, None] - rows[None]).nan_to_num().abs().sum(2)
        return [int(place) for place in linear_sum_assignment(costs.numpy())[1]]

    def by_extremes(self) -> Iterator[Told]:
        """An extreme that the second release does not have belongs to a removed row."""
        fitted, other = self.here.fitted, self.there.fitted
        if self.count > 1:
            return
        tolerance = torch.where(self.map.exact, 0.0, SAME * fitted.table.x.nan_to_num().abs().amax(0))
        for extreme, later in zip(fitted.extremes, other.extremes, strict=False):
            low, high = (self.map.rows(end[None])[0] for end in (later.low, later.high))
            low, high = torch.where(self.map.slope > 0, low, high), torch.where(self.map.slope > 0, high, low)
            only = (self.map.column < 0) & ~self.map.still.isnan()  # a column that only the first release has
            row = torch.where((extreme.low < low - tolerance) & extreme.low.isfinite(), extreme.low, torch.nan)
            row = torch.where((extreme.high > high + tolerance) & extreme.high.isfinite(), extreme.high, row)
            row = torch.where(only & extreme.high.isfinite() & (extreme.high != self.map.still), extreme.high, row)
            if not row.isnan().all():
                yield self.answer([0], row[None]), True, extreme.source

    def by_present(self, spreads: Sequence[Spread]) -> Iterator[Told]:
        """Means over the rows that have a value, of how many of them is not known."""
        if self.count != 1 or len(self.changes.added):
            return
        for present, later in zip(self.here.fitted.present, self.there.fitted.present, strict=False):
            row, estimate = _of_present(present, later, len(self.here.fitted.table), spreads)
            yield self.answer([0], row[None]), True, present.source
            yield self.answer([0], estimate[None], Kept.ESTIMATED), False, present.source


def _joined(totals: Tensor, groups: int) -> Tensor:
    """Of each class; or of all rows, where groups are not classes (clusters change with the fit)."""
    return totals.sum(0, keepdim=True) if groups == 1 else totals


def _solved(
    difference: Tensor, count: Tensor, square: Tensor | None, error: Tensor, removed: int, added: int
) -> Iterator[tuple[Tensor, Kept]]:
    """Rows (removed, D) with this sum, and sum of squares, after `added` others were subtracted."""
    if removed == 1 and not added:
        yield (difference / count)[None], Kept.EXACT
        return
    if not added:
        share = count / removed  # the weight of a row
        mean = difference / count
        if removed == 2 and square is not None:
            half = (2 * square / share - (difference / share).square()).clamp_min(0).sqrt() / 2
            yield torch.stack([mean + half, mean - half]), Kept.SET
        yield mean.expand(removed, -1), Kept.ESTIMATED
    elif removed == added == 1 and square is not None:
        changed = difference.abs() > error
        row = torch.where(changed, (square / torch.where(changed, difference, 1.0) + difference) / 2, torch.nan)
        yield row[None], Kept.EXACT


def _of_present(present: Present, later: Present, rows: int, spreads: Sequence[Spread]) -> tuple[Tensor, Tensor]:
    """(d,) the value of the removed row in each column, and (d,) an estimate: c m - (c - 1) m' for c rows with a value.

    It is missing (infinite) where the mean m is the m' of before. c is not known. With a sum of squared deviations q
    of the same column, after missing values were filled in with the mean, c (c - 1) (m - m')^2 = q - q'. Where values
    have few decimal places, c m and (c - 1) m' are multiples of the last one: exact if a single c satisfies that. The
    estimate has all rows for c.
    """
    value, estimate = torch.full_like(present.means, torch.nan), rows * present.means - (rows - 1) * later.means
    for column, (mean, after) in enumerate(zip(present.means.tolist(), later.means.tolist(), strict=True)):
        if mean == after:
            value[column] = torch.inf
            continue
        here = [each for each in spreads if math.isclose(each[0], mean) and math.isclose(each[2], after)]
        if here:
            square = (here[0][1] - here[0][3]) / (mean - after) ** 2
            count = round((1 + math.sqrt(max(0.0, 1 + 4 * square))) / 2)
            if abs(count * (count - 1) - square) < WHOLE * max(1.0, square):
                value[column] = count * mean - (count - 1) * after
        else:
            value[column] = _by_decimals(mean, after, rows)
    return value, estimate


def _by_decimals(mean: float, after: float, rows: int) -> float:
    """The value, where it and all others have few decimal places; NaN where several numbers of rows are possible."""
    counts = torch.arange(1, rows + 1, dtype=torch.float64)
    for places in range(DIGITS):
        totals = torch.stack([counts * mean, (counts - 1) * after]) * 10.0**places  # (2, n)
        error = WHOLE + 8 * EPSILON * totals.abs()
        if float(error.max()) > 1e-3:
            break
        fits = ((totals - totals.round()).abs() < error).all(0)
        if bool(fits.any()):
            first, second = totals[:, fits][:, 0].round().tolist()
            return (first - second) / 10.0**places if int(fits.sum()) == 1 else math.nan
    return math.nan


def recoded(cells: Cells, columns: Columns, target: Columns) -> Cells:
    """The cells with the codes of another table's columns; a category that it does not have is lost."""
    values, known = cells.values.astype(np.float64), cells.kept.copy()
    for column, (names, others) in enumerate(zip(columns.categories, target.categories, strict=True)):
        if not names or names == others:
            continue
        code = {name: number for number, name in enumerate(others)}
        codes = np.array([code.get(name, np.nan) for name in names] + [np.nan])
        place = np.where(np.isnan(values[:, column]), len(names), np.nan_to_num(values[:, column])).astype(int)
        gone = ~np.isnan(values[:, column]) & np.isnan(codes[place])
        values[:, column], known[gone, column] = codes[place], Kept.LOST
    return Cells(values, known)
