"""Columns of the missing row from thresholds that are made of the values of all rows: histogram bins.

A threshold that no known values explain was made with the missing value, and tells it. One that two known neighbours
explain tells that the missing value is not between them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from lostwax.attacks.trees.quantiles import narrowed_by_quantiles
from lostwax.games.trees import Bools, Bounds, Cuts, Floats, Forest, Ints
from lostwax.progress import counted


def narrowed_by_cuts(forest: Forest, x: Floats, games: Ints, bounds: Bounds) -> Bounds:
    """Bounds (g, d) of the missing row of each game, narrowed by the thresholds of `forest.cuts` and `.quantiles`."""
    if not forest.cuts and not forest.quantiles:
        return bounds
    low, high, maybe_missing = bounds.low.copy(), bounds.high.copy(), bounds.maybe_missing.copy()
    for cuts in counted(forest.cuts, "thresholds: columns", len(forest.cuts)):
        column = Column.of(x[:, cuts.column], games, cuts.rows)
        found = _values(cuts, column) if cuts.values else _midpoints(cuts, column, forest.single)
        at = np.s_[:, cuts.column]
        low[at], high[at] = np.maximum(low[at], found.low), np.minimum(high[at], found.high)
        low[at], high[at] = found.excluded.narrowed(column, low[at], high[at])
        maybe_missing[at] &= ~found.present
        if cuts.complete and found.only_known:
            low[at], high[at] = _among_known(column, low[at], high[at])
    for quantiles in forest.quantiles:
        at = np.s_[:, quantiles.column]
        one = Bounds(low[at], high[at], maybe_missing[at])
        low[at], high[at], maybe_missing[at], _ = narrowed_by_quantiles(quantiles, x[:, quantiles.column], games, one)
    return bounds._replace(low=low, high=high, maybe_missing=maybe_missing)


class Column(NamedTuple):
    """The distinct values u of one column, and which of them is not known in each game.

    In game i all values are known except that of row i. If no other row has it, u without it is known; otherwise u.
    """

    values: Floats  # (k,) u, sorted
    taking_part: Bools  # (g,) the values of the missing row count
    unknown: Ints  # (g,) the number in u of the missing row's value if it has it alone; k: all of u are known

    @classmethod
    def of(cls, values: Floats, games: Ints, rows: Bools | None) -> Column:
        """The column whose n values are given, made of some of the rows."""
        counted = ~np.isnan(values) if rows is None else rows & ~np.isnan(values)
        distinct, number, count = np.unique(values[counted], return_inverse=True, return_counts=True)
        numbers = np.full(len(values), len(distinct))
        numbers[counted] = np.where(count[number] == 1, number, len(distinct))
        taking_part = np.ones(len(games), dtype=bool) if rows is None else rows[games]
        return cls(distinct, taking_part, numbers[games])

    @property
    def alone(self) -> Bools:
        """(g,) games whose missing row has a value that no other row has."""
        return self.unknown < len(self.values)

    def neighbours(self) -> tuple[Floats, Floats]:
        """(g,) the known values next to the unknown one; infinite where there is none."""
        padded = np.concatenate([[-np.inf], self.values, [np.inf, np.inf]])
        return padded[self.unknown], padded[np.minimum(self.unknown + 2, len(padded) - 1)]


class Excluded(NamedTuple):
    """Gaps between known neighbours in which no value can lie: their thresholds are made of the neighbours."""

    low: Floats  # (k + 1,) of the gap below each of u, and of that above all; the open interval (low, high)
    high: Floats  # (k + 1,)
    own_low: Floats  # (g,) of the gap that is around the unknown value of each game
    own_high: Floats  # (g,)

    @classmethod
    def nothing(cls, column: Column) -> Excluded:
        """No gap is excluded."""
        gaps, games = len(column.values) + 1, len(column.unknown)
        return cls(*(np.full(size, np.nan) for size in (gaps, gaps, games, games)))

    def narrowed(self, column: Column, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Bounds (g,) that do not end within a gap."""
        return self._ends(column, low)[1], self._ends(column, high)[0]

    def _ends(self, column: Column, bound: Floats) -> tuple[Floats, Floats]:
        """The ends (g,) of the excluded interval that each bound is in; the bound itself where there is none."""
        gap = np.searchsorted(column.values, bound)
        own = column.alone & ((gap == column.unknown) | (gap == column.unknown + 1))
        low = np.where(own, self.own_low, self.low[gap])
        high = np.where(own, self.own_high, self.high[gap])
        within = column.taking_part & (low < bound) & (bound < high)
        return np.where(within, low, bound), np.where(within, high, bound)


class ColumnBounds(NamedTuple):
    """What the thresholds of one column say about the missing value of each game."""

    low: Floats  # (g,)
    high: Floats  # (g,)
    present: Bools  # (g,) there is a value
    excluded: Excluded
    only_known: bool  # of a complete list: where all thresholds are explained, the value is one of the known


def _values(cuts: Cuts, column: Column) -> ColumnBounds:
    """Each threshold is a value: one that no known row has is the missing value."""
    used = np.isin(column.values, cuts.thresholds)
    value = np.append(column.values, np.nan)[column.unknown]
    shown = np.append(used, False)[column.unknown]
    low, high = np.where(shown, value, -np.inf), np.where(shown, value, np.inf)
    return ColumnBounds(low, high, shown, Excluded.nothing(column), only_known=True)


def _midpoints(cuts: Cuts, column: Column, single: bool) -> ColumnBounds:
    """Each threshold is half-way between neighbours: two that are known, or the missing value and one of them."""
    u, t = column.values, cuts.thresholds
    t = t[~np.isin(t, u)]  # rounded to a value: of neighbours so close it is not known which
    padded = np.concatenate([[-np.inf], u, [np.inf]])
    gap = np.searchsorted(u, t)  # t lies between u[gap - 1] and u[gap]
    excluded = Excluded.nothing(column)
    shared = _explained(cuts.between, padded[gap], padded[gap + 1], t, single)
    _exclude(shared, gap, excluded.low, excluded.high)

    # The same again where the value on one side of a threshold is not known: the gap is wider.
    before, after = column.neighbours()
    first = np.searchsorted(t, before, side="right")
    count = np.where(column.alone, np.searchsorted(t, after) - first, 0)
    game = np.repeat(np.arange(len(count)), count)
    each = np.arange(len(game)) - np.repeat(np.cumsum(count) - count, count) + first[game]
    own = _explained(cuts.between, before[game], after[game], t[each], single)
    _exclude(own, game, excluded.own_low, excluded.own_high)

    low, high = np.full(len(count), -np.inf), np.full(len(count), np.inf)
    np.maximum.at(low, game[~own.by_known], own.low[~own.by_known])
    np.minimum.at(high, game[~own.by_known], own.high[~own.by_known])
    present = np.zeros(len(count), dtype=bool)
    present[game[~own.by_known]] = True
    return ColumnBounds(
        low, high, present, excluded, only_known=len(t) == len(cuts.thresholds) and not shared.tight.any()
    )


class Explained(NamedTuple):
    """How thresholds between two known neighbours a < b can come about."""

    by_known: Bools  # half-way between a and b
    low: Floats  # the missing value, if it lies between a and b, is at least
    high: Floats  # ... and at most
    empty_low: Floats  # if half-way between a and b, there is none in the open interval (empty_low, empty_high)
    empty_high: Floats
    tight: Bools  # three values so close that the thresholds between them are the same


def _explained(between: Callable[[Floats, Floats], Floats], a: Floats, b: Floats, t: Floats, single: bool) -> Explained:
    """Values x in (a, b) that a threshold t is half-way to from a or from b, and whether a and b do without."""
    has_a, has_b = np.isfinite(a), np.isfinite(b)
    some_a, some_b = np.where(has_a, a, t), np.where(has_b, b, t)
    with np.errstate(over="ignore"):
        by_known = has_a & has_b & (between(some_a, some_b) == t)
        above = _preimage(lambda x: between(some_a, x), t, t, b, single)  # x lies at or above t, and a below
        below = _preimage(lambda x: between(x, some_b), t, a, t, single)
        tight = has_a & has_b & (between(some_a, t) == t) & (between(t, some_b) == t)
    above_low, above_high = np.where(has_a, above[0], np.inf), np.where(has_a, above[1], -np.inf)
    below_low, below_high = np.where(has_b, below[0], np.inf), np.where(has_b, below[1], -np.inf)
    empty_low, empty_high = np.maximum(a, below_high), np.minimum(b, above_low)
    if not single:  # LightGBM takes neighbouring floats as one value, the larger
        empty_high = np.nextafter(empty_high, -np.inf)
    low, high = np.minimum(above_low, below_low), np.maximum(above_high, below_high)
    return Explained(by_known, low, high, empty_low, empty_high, tight)


def _exclude(explained: Explained, at: Ints, low: Floats, high: Floats) -> None:
    """Write the empty intervals of thresholds that known neighbours explain."""
    known = explained.by_known & (explained.empty_low < explained.empty_high)
    low[at[known]], high[at[known]] = explained.empty_low[known], explained.empty_high[known]


def _among_known(column: Column, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Bounds (g,) that are known values, where all are known."""
    among = column.taking_part & ~column.alone & (len(column.values) > 0)
    padded = np.concatenate([[-np.inf], column.values, [np.inf]])
    up = np.maximum(low, padded[np.searchsorted(column.values, low) + 1])
    down = np.minimum(high, padded[np.searchsorted(column.values, high, side="right")])
    return np.where(among, up, low), np.where(among, down, high)


LARGEST = np.finfo(np.float64).max


def _preimage(
    function: Callable[[Floats], Floats], t: Floats, a: Floats, b: Floats, single: bool
) -> tuple[Floats, Floats]:
    """The lowest and the highest x in (a, b) with function(x) = t, by bisection; low > high: there is none.

    `function` is monotone in each x. Rounding makes several x give the same t.
    """
    a, b = np.clip(a, -LARGEST, LARGEST), np.clip(b, -LARGEST, LARGEST)
    low = _first(lambda x: function(x) >= t, a, b)
    high = -_first(lambda x: function(-x) <= t, -b, -a)
    if single:
        low, high = _float32_at_least(low), -_float32_at_least(-high)
    none = (function(low) != t) | (function(high) != t)
    return np.where(none, np.inf, low), np.where(none, -np.inf, high)


def _first(reached: Callable[[Floats], Bools], a: Floats, b: Floats) -> Floats:
    """The first number in [a, b] that has reached something, b if none before it has."""
    low, high = rank(a), rank(b)
    while (low < high).any():
        middle = middle_rank(low, high)
        there = reached(at_rank(middle))
        low, high = np.where(there | (low >= high), low, middle + 1), np.where(there, np.minimum(high, middle), high)
    return at_rank(high)


def rank(x: Floats) -> Ints:
    """The place of each number among all numbers of float64, zero for zero: neighbours differ by one."""
    bits = (x + 0.0).astype(np.float64).view(np.int64)  # + 0.0: -0.0 is 0.0
    return np.where(bits < 0, np.iinfo(np.int64).min - bits, bits)


def at_rank(place: Ints) -> Floats:
    """The inverse of `rank`."""
    bits = np.where(place < 0, np.iinfo(np.int64).min - place, place)
    return bits.astype(np.int64).view(np.float64)


def middle_rank(one: Ints, other: Ints) -> Ints:
    """Half-way between two places, rounded down; their sum may be too large for int64."""
    middle: Ints = (one >> 1) + (other >> 1) + (one & other & 1)
    return middle


def _float32_at_least(x: Floats) -> Floats:
    """The smallest float32 that is not below x."""
    with np.errstate(over="ignore"):
        nearest = x.astype(np.float32)
    above: Floats = np.where(nearest < x, np.nextafter(nearest, np.float32(np.inf)), nearest).astype(np.float64)
    return above
