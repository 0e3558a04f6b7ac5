"""A column of the missing row from quantiles of the values of all rows.

With one value x added to the known values v, sorted, the order statistic of number i is x clipped to v[i - 1], v[i]. A
quantile is one order statistic, or half-way between two: it tells x, or on which side of it x is.
"""

from __future__ import annotations

import numpy as np

from lostwax.games.trees import Bools, Bounds, Floats, Ints, Quantiles

GAMES = 2_000  # computed together: 4 MB per array of 255 quantiles
ROUNDINGS = 8  # of the numbers that half-way quantiles are made of


def quantiles_of(ordered: Floats, percentages: Floats) -> Floats:
    """The quantiles (..., q) of sorted values (..., n): order statistics, or half-way between two of them."""
    lower, upper = _places(ordered.shape[-1], percentages)
    below, above = ordered[..., lower], ordered[..., upper]
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
            known = _without(ordered, values[games[at]]) if present else ordered[None]
            some_low, some_high = _between(quantiles, known)
            low[at], high[at] = np.maximum(low[at], some_low), np.minimum(high[at], some_high)
            maybe_missing[at] &= _same(quantiles, known)
    return bounds._replace(low=low, high=high, maybe_missing=maybe_missing)


def _places(n: int, percentages: Floats) -> tuple[Ints, Ints]:
    """The order statistics (q,) that each quantile of n values is made of: one, or two neighbours."""
    places = np.percentile(np.arange(n), percentages, method="averaged_inverted_cdf")
    return np.floor(places).astype(np.intp), np.ceil(places).astype(np.intp)


def _without(ordered: Floats, values: Floats) -> Floats:
    """(g, n - 1) the sorted values without one of them."""
    place = np.searchsorted(ordered, values)[:, None]
    kept = np.arange(len(ordered) - 1)
    return ordered[kept + (kept >= place)]


def _same(quantiles: Quantiles, known: Floats) -> Bools:
    """(g,) the known values alone have these quantiles."""
    found, t = quantiles_of(known, quantiles.percentages), quantiles.thresholds  # (g, q), (k,)
    place = np.minimum(np.searchsorted(t, found), len(t) - 1)
    distinct = 1 + (np.diff(found, axis=1) != 0).sum(1)
    same: Bools = (t[place] == found).all(1) & (distinct == len(t))
    return same


def _between(quantiles: Quantiles, known: Floats) -> tuple[Floats, Floats]:
    """(g,) bounds of the one value that gives these quantiles together with the known values (g, n - 1)."""
    lower, upper = _places(known.shape[1] + 1, quantiles.percentages)
    edge = np.full((len(known), 1), np.inf)
    v = np.concatenate([-edge, known, edge], axis=1)  # v[i + 1] is the known value of number i
    below, above, middle = v[:, lower], v[:, upper + 1], v[:, upper]  # x is clipped to (below, above)
    half = lower != upper  # then the quantile is half-way between `middle` and x, clipped
    size = np.where(half, np.abs(middle) + np.abs(quantiles.thresholds).max(), 0)
    slack = ROUNDINGS * np.finfo(np.float64).eps * size
    lowest = np.where(half, (below + middle) / 2, below) - slack  # (g, q) the quantile, if x is far below
    highest = np.where(half, (above + middle) / 2, above) + slack

    t = quantiles.thresholds
    if len(t) == len(quantiles.percentages):
        first = last = np.broadcast_to(t, lowest.shape)
    else:  # merged quantiles: any threshold that is possible
        first = np.append(t, np.inf)[np.searchsorted(t, lowest)]
        last = np.append(-np.inf, t)[np.searchsorted(t, highest, side="right")]
    at_least = np.where(half, 2 * first - middle, first) - 2 * slack
    at_most = np.where(half, 2 * last - middle, last) + 2 * slack
    low = np.where(first > lowest + 2 * slack, at_least, -np.inf).max(1)
    high = np.where(last < highest - 2 * slack, at_most, np.inf).min(1)
    return low, high
