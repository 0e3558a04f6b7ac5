"""Values within the boxes of rows, by what the boxes of all rows and two moments tell about each column.

Each column has the frequencies of codes that fit all rows best (EM). Within codes it is the most random distribution
with its public mean and deviation (maximum entropy): so a column that no tree splits has the right frequencies too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lostwax.attacks.whole_table.listing import most_random
from lostwax.attacks.whole_table.places import Boxes, Grid
from lostwax.games.boosting import BoostedSums
from lostwax.games.trees import Floats, Ints

UPDATES = 20  # of the frequencies of codes
SMOOTHING = 0.5  # of a row, added to the frequency of each code, on average
PARTS = 16  # of the values between two thresholds
MAX_WHOLE = 4096  # whole numbers of a column; more are treated as other numbers
NEAR = 0.3  # deviations: a guess is the value with most of its distribution this near
FLAT = 0.05  # of a bell's height, added everywhere
TINY = 1e-300


class _Column(NamedTuple):
    """Values that a column may have."""

    points: Floats  # (k,) sorted
    code: Ints  # (k,) of the grid
    weight: Floats  # (k,) before boxes and moments


def values_of(
    sums: BoostedSums, grid: Grid, boxes: Boxes, ends: tuple[Floats, Floats], random: np.random.Generator
) -> Floats:
    """(n, d) a value for each cell within its box; NaN where no tree splits the column, of numbers.

    `ends` (d,) are two deviations from the mean of each column. A row alone in its box is where most of the box's
    distribution is near; rows that share all of a box are spread over its quantiles, in each column in another order:
    in one order all columns would rise together, and agree with rows more often than chance does.
    """
    x = np.full(boxes.low.shape, np.nan)
    _, shared, count = np.unique(np.concatenate(boxes, axis=1), axis=0, return_inverse=True, return_counts=True)
    shared = shared.ravel()
    alike = count[shared]
    for index, (values, cuts) in enumerate(zip(grid.values, grid.cuts, strict=True)):
        if values is None and not len(cuts):
            continue
        mean, deviation = (ends[0][index] + ends[1][index]) / 2, (ends[1][index] - ends[0][index]) / 4
        column = _public(values) if values is not None else _numbers(sums, cuts, index, mean, deviation)
        low, high = (part[:, index].astype(np.intp) for part in boxes)
        mass = _masses(column, low, high, mean, deviation)
        cumulated = np.concatenate([[0.0], np.cumsum(mass)])
        first, last = np.searchsorted(column.code, low), np.searchsorted(column.code, high, side="right")
        start, end = cumulated[first], cumulated[last]
        rank = _ranks(shared, count, random)
        at = np.searchsorted(cumulated, start + (rank + 0.5) / alike * (end - start), side="right") - 1
        alone = np.flatnonzero(alike == 1)
        bounds, number = np.unique(np.stack([first, last], 1)[alone], axis=0, return_inverse=True)
        nearest = [begin + _likeliest(column.points[begin:to], mass[begin:to], deviation) for begin, to in bounds]
        at[alone] = np.array(nearest, dtype=np.intp)[number.ravel()] if len(alone) else at[alone]
        x[:, index] = column.points[np.clip(at, first, last - 1)]
    return x


def _ranks(number: Ints, count: Ints, random: np.random.Generator) -> Ints:
    """(n,) the place of each row among the `count` of its number, in a random order."""
    order = np.lexsort((random.random(len(number)), number))
    rank = np.empty(len(number), dtype=np.int64)
    rank[order] = np.arange(len(number)) - np.repeat(np.cumsum(count) - count, count)
    return rank


def _likeliest(points: Floats, mass: Floats, deviation: float) -> int:
    """Which of some points has most of the mass near it; the middle one of several."""
    first, last = (np.searchsorted(points, points + side * NEAR * deviation) for side in (-1, 1))
    cumulated = np.concatenate([[0.0], np.cumsum(mass)])
    near = cumulated[np.maximum(last, first + 1)] - cumulated[first]  # at least the point itself
    best = np.flatnonzero(near >= near.max() * (1 - 1e-9))
    middle = float((points * mass).sum() / max(mass.sum(), TINY))
    return int(best[np.abs(points[best] - middle).argmin()])


def _public(values: Floats) -> _Column:
    return _Column(values, np.arange(len(values)), np.ones(len(values)))


def _numbers(sums: BoostedSums, cuts: Floats, index: int, mean: float, deviation: float) -> _Column:
    """Numbers between thresholds: whole ones, or the middles of parts."""
    known = [np.nan if end is None else float(end[index]) for end in (sums.low, sums.high)]
    edges = _edges(cuts, known, (mean - 2 * deviation, mean + 2 * deviation))
    if sums.values and (cuts == np.round(cuts)).all() and edges[-1] - edges[0] < MAX_WHOLE:
        points = np.arange(np.ceil(edges[0]), np.floor(edges[-1]) + 1)
        code = np.searchsorted(cuts, points, "right" if sums.strict else "left")
        if len(np.unique(code)) == len(cuts) + 1:
            return _Column(points, code, np.ones(len(points)))
    parts, size = (np.arange(PARTS) + 0.5) / PARTS, np.diff(edges)
    points = (edges[:-1, None] + parts * size[:, None]).ravel()
    bell = np.exp(-(((points - mean) / max(deviation, TINY)) ** 2) / 2) + FLAT
    weight = np.maximum(np.repeat(size / PARTS, PARTS) * bell, TINY)
    return _Column(points, np.repeat(np.arange(len(size)), PARTS), weight)


def _masses(column: _Column, low: Ints, high: Ints, mean: float, deviation: float) -> Floats:
    """(k,) the share of each point: within codes by moments, of codes those that fit all rows best."""
    codes, scale = column.code[-1] + 1, max(deviation, TINY)
    unit = np.clip((column.points - mean) / scale, -8, 8)
    powers, zero = np.stack([unit, unit**2], 1), np.zeros(1, dtype=np.intp)
    moments = np.array([0.0, 1.0])
    within = (low[:, None] <= np.arange(codes)) & (np.arange(codes) <= high[:, None])  # (n, codes)
    _, mass = most_random(powers, column.weight, zero, np.ones(1), moments)
    share = prior = np.bincount(column.code, mass, codes)
    for _ in range(UPDATES):
        parts = within * share
        share = (parts / np.maximum(parts.sum(1, keepdims=True), TINY)).sum(0) + SMOOTHING * codes * prior
        share = share / share.sum()
    # codes have their frequencies now, and points the moments once more, as far as codes allow
    used, first = np.unique(column.code, return_index=True)
    _, mass = most_random(powers, np.maximum(mass, TINY), first, np.maximum(share[used], TINY), moments)
    return mass


def _edges(cuts: Floats, known: Sequence[float], assumed: Sequence[float]) -> Floats:
    """Where bins begin and end: at thresholds; outside at extremes that the file tells, or about two bins away."""
    step = 2 * float(np.ptp(cuts)) / (len(cuts) - 1) if len(cuts) > 1 else np.inf
    first, last = max(min(assumed[0], cuts[0]), cuts[0] - step), min(max(assumed[1], cuts[-1]), cuts[-1] + step)
    if cuts[0] > 0:
        first = max(first, 0.0)  # few columns have values of both signs on one side of all thresholds
    ends = [guess if np.isnan(end) else end for end, guess in zip(known, (first, last), strict=True)]
    return np.concatenate([[ends[0]], cuts, [ends[1]]])
