"""A column of the missing row from quantiles of the values of all rows.

With one value x added to the known values v, sorted, the order statistic of number i is x clipped to v[i - 1], v[i]. A
quantile is one order statistic, or half-way between two: it tells x, or on which side of it x is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lostwax.games.trees import Bools, Bounds, Floats, Ints, Quantiles

GAMES = 2_000  # computed together: 4 MB per array of 255 quantiles
NEAREST = 3  # quantiles on each side of a value that are looked at
ROUNDINGS = 8  # of the numbers that half-way quantiles are made of


class Known(NamedTuple):
    """The known values of some games, sorted: all values (n,) without the one at a place."""

    ordered: Floats  # (n,)
    place: Ints  # (g, 1); n in all games: all are known

    @property
    def size(self) -> int:
        """How many are known."""
        return len(self.ordered) - int(self.place[0, 0] < len(self.ordered))

    def at(self, number: Ints) -> Floats:
        """(g, k) the known values of some numbers (k,) or (g, k); infinite below the first and above the last."""
        padded = np.concatenate([[-np.inf], self.ordered, [np.inf, np.inf]])
        found: Floats = padded[number + 1 + (number >= self.place)]
        return found

    def quantiles(self, quantiles: Quantiles) -> Floats:
        """(g, q) order statistics of the known values, or half-way between two of them."""
        lower, upper = _places(self.size, quantiles)
        below, above = self.at(lower), self.at(upper)
        found: Floats = above - (above - below) * 0.5 * (lower != upper)
        return found


def narrowed_by_quantiles(quantiles: Quantiles, values: Floats, games: Ints, bounds: Bounds) -> Bounds:
    """Bounds (g,) of one column with values (n,), narrowed."""
    counted = ~np.isnan(values) if quantiles.rows is None else quantiles.rows & ~np.isnan(values)
    taking_part = np.ones(len(values), dtype=bool) if quantiles.rows is None else quantiles.rows
    ordered = np.sort(values[counted])
    low, high, maybe_missing = bounds.low.copy(), bounds.high.copy(), bounds.maybe_missing.copy()
    for start in range(0, len(games), GAMES):
        some = np.arange(start, min(start + GAMES, len(games)))
        for present in (True, False):  # a missing value leaves all other values, one more than otherwise
            at = some[taking_part[games[some]] & (counted[games[some]] == present)]
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
    found, t = known.quantiles(quantiles), quantiles.thresholds  # (g, q), (k,)
    place = np.minimum(np.searchsorted(t, found), len(t) - 1)
    distinct = 1 + (np.diff(found, axis=1) != 0).sum(1)
    same: Bools = (t[place] == found).all(1) & (distinct == len(t))
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
    size = np.where(half, np.abs(middle) + np.abs(t).max(), 0)
    slack = ROUNDINGS * np.finfo(np.float64).eps * size
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
