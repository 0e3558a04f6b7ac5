"""Columns of the missing row from thresholds that are made of the values of all rows: histogram bins.

A threshold that no known values explain was made with the missing value, and tells it. One that two known neighbours
explain tells that the missing value is not between them.

Of quantiles: with one value x added to the known values v, sorted, the order statistic of number i is x clipped to
v[i - 1], v[i]. A quantile is one order statistic, or half-way between two: it tells x, or on which side of it x is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from lostwax.games.trees import Bools, Bounds, ColumnThresholds, Cuts, Floats, Forest, Ints, Quantiles
from lostwax.progress import counted

LARGEST = np.finfo(np.float64).max
MAX_GAMES = 2_000  # computed together: 4 MB per array of 255 quantiles
NEAREST = 3  # quantiles on each side of a value that are looked at
ROUNDINGS = 8  # of the numbers that half-way quantiles are made of


def narrowed_by_cuts(forest: Forest, x: Floats, games: Ints, bounds: Bounds) -> Bounds:
    """Bounds (g, d) of the missing row of each game, narrowed by the thresholds of `forest.cuts` and `.quantiles`."""
    if not forest.cuts and not forest.quantiles:
        return bounds
    low, high, maybe_missing = bounds.low.copy(), bounds.high.copy(), bounds.maybe_missing.copy()
    for cuts in counted(forest.cuts, "thresholds: columns", len(forest.cuts)):
        at, column = np.s_[:, cuts.column], Column.of(cuts, x[:, cuts.column], games)
        if cuts.values:
            low[at], high[at], present = _by_values(cuts, column, low[at], high[at])
        else:
            low[at], high[at], present = _by_midpoints(cuts, column, low[at], high[at], forest.single)
        maybe_missing[at] &= ~present
    for quantiles in forest.quantiles:
        at = np.s_[:, quantiles.column]
        narrowed = _by_quantiles(quantiles, x[at], games, Bounds(low[at], high[at], maybe_missing[at]))
        low[at], high[at], maybe_missing[at], _ = narrowed
    return bounds._replace(low=low, high=high, maybe_missing=maybe_missing)


def _rows_of(thresholds: ColumnThresholds, values: Floats) -> tuple[Bools, Bools]:
    """(n,) the rows that take part in thresholds, and those of them that have a value."""
    part = np.ones(len(values), dtype=bool) if thresholds.rows is None else thresholds.rows
    return part, part & ~np.isnan(values)


class Column(NamedTuple):
    """The distinct values u of one column, and which of them is not known in each game.

    In game i all values are known except that of row i. If no other row has it, u without it is known; otherwise u.
    """

    values: Floats  # (k,) u, sorted
    taking_part: Bools  # (g,) the values of the missing row count
    unknown: Ints  # (g,) the number in u of the missing row's value if it has it alone; k: all of u are known

    @classmethod
    def of(cls, thresholds: ColumnThresholds, values: Floats, games: Ints) -> Column:
        """The column whose n values are given, some of which the thresholds are made of."""
        taking_part, valued = _rows_of(thresholds, values)
        distinct, number, count = np.unique(values[valued], return_inverse=True, return_counts=True)
        numbers = np.full(len(values), len(distinct))
        numbers[valued] = np.where(count[number] == 1, number, len(distinct))
        return cls(distinct, taking_part[games], numbers[games])

    @property
    def alone(self) -> Bools:
        """(g,) games whose missing row has a value that no other row has."""
        return self.unknown < len(self.values)

    def neighbours(self) -> tuple[Floats, Floats]:
        """(g,) the known values next to the unknown one; infinite where there is none."""
        padded = np.concatenate([[-np.inf], self.values, [np.inf, np.inf]])
        return padded[self.unknown], padded[np.minimum(self.unknown + 2, len(padded) - 1)]

    def among_known(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Bounds (g,) that are known values, where all are known."""
        among = self.taking_part & ~self.alone & (len(self.values) > 0)
        padded = np.concatenate([[-np.inf], self.values, [np.inf]])
        up = np.maximum(low, padded[np.searchsorted(self.values, low) + 1])
        down = np.minimum(high, padded[np.searchsorted(self.values, high, side="right")])
        return np.where(among, up, low), np.where(among, down, high)


def _by_values(cuts: Cuts, column: Column, low: Floats, high: Floats) -> tuple[Floats, Floats, Bools]:
    """Each threshold is a value: one that no known row has is the missing value. Bounds, and (g,) if there is one."""
    used = np.isin(column.values, cuts.thresholds)
    value, shown = np.append(column.values, np.nan)[column.unknown], np.append(used, False)[column.unknown]
    low = np.maximum(low, np.where(shown, value, -np.inf))
    high = np.minimum(high, np.where(shown, value, np.inf))
    return *(column.among_known(low, high) if cuts.complete else (low, high)), shown


def _by_midpoints(cuts: Cuts, column: Column, low: Floats, high: Floats, single: bool) -> tuple[Floats, Floats, Bools]:
    """Each threshold is half-way between neighbours: two that are known, or the missing value and one of them."""
    u, t, games = column.values, cuts.thresholds, len(column.unknown)
    t = t[~np.isin(t, u)]  # rounded to a value: of neighbours so close it is not known which
    padded = np.concatenate([[-np.inf], u, [np.inf]])
    gap = np.searchsorted(u, t)  # t lies between u[gap - 1] and u[gap]
    shared = _explained(cuts.between, padded[gap], padded[gap + 1], t, single)

    # The same again where the value on one side of a threshold is not known: the gap is wider.
    before, after = column.neighbours()
    first = np.searchsorted(t, before, side="right")
    count = np.where(column.alone, np.searchsorted(t, after) - first, 0)
    game = np.repeat(np.arange(games), count)
    each = np.arange(len(game)) - np.repeat(np.cumsum(count) - count, count) + first[game]
    wider = _explained(cuts.between, before[game], after[game], t[each], single)

    low, high, present, by_secret = low.copy(), high.copy(), np.zeros(games, dtype=bool), ~wider.by_known
    np.maximum.at(low, game[by_secret], wider.low[by_secret])
    np.minimum.at(high, game[by_secret], wider.high[by_secret])
    present[game[by_secret]] = True

    # No value lies in a gap between known neighbours whose threshold is made of them: bounds do not end in one.
    empty, empty_wider = np.full((2, len(u) + 1), np.nan), np.full((2, games), np.nan)  # open intervals
    for explained, at, ends in ((shared, gap, empty), (wider, game, empty_wider)):
        known = explained.by_known & (explained.empty_low < explained.empty_high)
        ends[:, at[known]] = explained.empty_low[known], explained.empty_high[known]

    def moved(bound: Floats, end: int) -> Floats:
        gap = np.searchsorted(u, bound)
        around = column.alone & ((gap == column.unknown) | (gap == column.unknown + 1))
        ends = np.where(around, empty_wider, empty[:, gap])  # (2, g)
        within = column.taking_part & (ends[0] < bound) & (bound < ends[1])
        return np.where(within, ends[end], bound)

    low, high = moved(low, 1), moved(high, 0)
    if cuts.complete and len(t) == len(cuts.thresholds) and not shared.tight.any():
        low, high = column.among_known(low, high)
    return low, high, present


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


def middle_rank(low: Ints, high: Ints) -> Ints:
    """Half-way between two places, rounded down; their sum may be too large for int64."""
    middle: Ints = (low >> 1) + (high >> 1) + (low & high & 1)
    return middle


def _float32_at_least(x: Floats) -> Floats:
    """The smallest float32 that is not below x."""
    with np.errstate(over="ignore"):
        nearest = x.astype(np.float32)
    above: Floats = np.where(nearest < x, np.nextafter(nearest, np.float32(np.inf)), nearest).astype(np.float64)
    return above


# quantiles


class Known(NamedTuple):
    """The known values of some games, sorted: all values (n,) without the one at a place."""

    ordered: Floats  # (n,)
    place: Ints  # (g, 1); n in all games: all are known

    @property
    def size(self) -> int:
        return len(self.ordered) - int(self.place[0, 0] < len(self.ordered))

    def at(self, number: Ints) -> Floats:
        """(g, k) the known values of some numbers (k,) or (g, k); infinite below the first and above the last."""
        padded = np.concatenate([[-np.inf], self.ordered, [np.inf, np.inf]])
        values: Floats = padded[number + 1 + (number >= self.place)]
        return values


def _by_quantiles(quantiles: Quantiles, values: Floats, games: Ints, bounds: Bounds) -> Bounds:
    """Bounds (g,) of one column with values (n,), narrowed."""
    taking_part, valued = _rows_of(quantiles, values)
    ordered = np.sort(values[valued])
    low, high, maybe_missing = bounds.low.copy(), bounds.high.copy(), bounds.maybe_missing.copy()
    for start in range(0, len(games), MAX_GAMES):
        some = np.arange(start, min(start + MAX_GAMES, len(games)))
        for present in (True, False):  # a missing value leaves all other values, one more than otherwise
            at = some[taking_part[games[some]] & (valued[games[some]] == present)]
            if len(at) == 0:
                continue
            place = np.searchsorted(ordered, values[games[at]]) if present else np.array([len(ordered)])
            known = Known(ordered, place[:, None])
            some_low, some_high = _between(quantiles, known)
            low[at], high[at] = np.maximum(low[at], some_low), np.minimum(high[at], some_high)
            maybe_missing[at] &= _same(quantiles, known)
    return bounds._replace(low=low, high=high, maybe_missing=maybe_missing)


def _places(n: int, quantiles: Quantiles) -> tuple[Ints, Ints]:
    """The order statistics (q,) that each quantile of n values is made of: one, or two neighbours."""
    places = np.percentile(np.arange(n), quantiles.percentages, method=quantiles.method)
    return np.floor(places).astype(np.intp), np.ceil(places).astype(np.intp)


def _same(quantiles: Quantiles, known: Known) -> Bools:
    """(g,) the known values alone have these quantiles."""
    lower, upper = _places(known.size, quantiles)
    below, above, t = known.at(lower), known.at(upper), quantiles.thresholds  # (g, q), (g, q), (k,)
    of_known = above - (above - below) * 0.5 * (lower != upper)
    place = np.minimum(np.searchsorted(t, of_known), len(t) - 1)
    distinct = 1 + (np.diff(of_known, axis=1) != 0).sum(1)
    same: Bools = (t[place] == of_known).all(1) & (distinct == len(t))
    return same


def _between(quantiles: Quantiles, known: Known) -> tuple[Floats, Floats]:
    """(g,) bounds of the one value that gives these quantiles together with the known ones."""
    lower, upper = _places(known.size + 1, quantiles)
    near = np.arange(len(lower))[None]  # (g, k)
    if known.size < len(known.ordered):  # quantiles far from the value say less about it
        near = (np.searchsorted(lower, known.place) + np.arange(-NEAREST, NEAREST + 1)).clip(0, len(lower) - 1)
    lower, upper = lower[near], upper[near]
    below, middle, above = known.at(lower - 1), known.at(upper - 1), known.at(upper)  # x is clipped to (below, above)
    half = lower != upper  # then the quantile is half-way between `middle` and x, clipped
    t = quantiles.thresholds
    slack = ROUNDINGS * np.finfo(np.float64).eps * np.where(half, np.abs(middle) + np.abs(t).max(), 0)
    lowest = np.where(half, (below + middle) / 2, below) - slack  # the quantile, if x is far below
    highest = np.where(half, (above + middle) / 2, above) + slack
    if len(t) == len(quantiles.percentages):
        first = last = t[near]
    else:  # merged quantiles: any threshold that is possible
        first = np.append(t, np.inf)[np.searchsorted(t, lowest)]
        last = np.append(-np.inf, t)[np.searchsorted(t, highest, side="right")]
    at_least = np.where(half, 2 * first - middle, first) - 2 * slack
    at_most = np.where(half, 2 * last - middle, last) + 2 * slack
    low = np.where(first > lowest + 2 * slack, at_least, -np.inf).max(1)
    high = np.where(last < highest - 2 * slack, at_most, np.inf).min(1)
    return low, high
