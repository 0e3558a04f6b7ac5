"""Values within the boxes of rows, by what the boxes of all rows tell about each column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lostwax.attacks.whole_table.places import Boxes, Grid
from lostwax.games.boosting import BoostedSums
from lostwax.games.trees import Floats, Ints

UPDATES = 20  # of the frequencies of codes
SMOOTHING = 0.5  # of a row, added to the frequency of each code, on average
PARTS = 8  # of the values between two thresholds
FLOOR = 0.05  # of a bell's height, added everywhere


def values_of(
    sums: BoostedSums, grid: Grid, boxes: Boxes, ends: tuple[Floats, Floats], random: np.random.Generator
) -> Floats:
    """(n, d) a value for each cell within its box; NaN where no tree splits the column.

    Each column has the frequencies of codes that fit all rows best; between two thresholds it is a bell, by the `ends`
    (d,), which are two deviations from its mean. Numbers are quantiles of what a box has of it: a row alone in its box
    is at the median, rows that share all of a box are spread. Public values are dealt by their frequencies to all rows
    that share the bounds of the column: were each row guessed alone, all would have the common value.
    """
    x = np.full(boxes.low.shape, np.nan)
    of_rows = _shares(np.concatenate(boxes, axis=1), random)
    for column, (values, cuts) in enumerate(zip(grid.values, grid.cuts, strict=True)):
        low, high = boxes.low[:, column].astype(np.intp), boxes.high[:, column].astype(np.intp)
        if values is not None:
            cumulated = _cumulated(low, high, np.ones((len(values), 1)))
            at = cumulated[low] + _shares(np.stack([low, high], 1), random) * (cumulated[high + 1] - cumulated[low])
            x[:, column] = values[(np.searchsorted(cumulated, at, side="right") - 1).clip(low, high)]
        elif len(cuts):
            known = [np.nan if end is None else float(end[column]) for end in (sums.low, sums.high)]
            assumed = [float(end[column]) for end in ends]
            edges = _edges(cuts, known, assumed)
            parts = np.arange(PARTS) / PARTS
            fine = np.append((edges[:-1, None] + parts * np.diff(edges)[:, None]).ravel(), edges[-1])
            cumulated = _cumulated(low, high, _bell(fine, *assumed).reshape(-1, PARTS))
            start, end = cumulated[low * PARTS], cumulated[(high + 1) * PARTS]
            numbers = np.interp(start + of_rows * (end - start), cumulated, fine)
            if sums.values and (cuts == np.round(cuts)).all():
                numbers = np.floor(numbers)  # whole numbers below the next threshold
            x[:, column] = np.maximum(numbers, edges[low])
    return x


def _shares(keys: Ints, random: np.random.Generator) -> Floats:
    """(n,) of each row the middle of its part of 0 to 1; rows with the same keys (n, k) share it in a random order."""
    _, number, count = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    number = number.ravel()
    order = np.lexsort((random.random(len(keys)), number))
    rank = np.empty(len(keys))
    rank[order] = np.arange(len(keys)) - np.repeat(np.cumsum(count) - count, count)
    return np.asarray((rank + 0.5) / count[number])


def _bell(fine: Floats, low: float, high: float) -> Floats:
    """(m - 1,) the weight between each two of (m,) points: most in the middle of what is assumed."""
    middle = (fine[1:] + fine[:-1]) / 2
    distance = (middle - (low + high) / 2) / max((high - low) / 4, np.finfo(float).tiny)
    return np.asarray(np.diff(fine) * (np.exp(-(distance**2) / 2) + FLOOR) + np.finfo(float).tiny)


def _cumulated(low: Ints, high: Ints, weight: Floats) -> Floats:
    """(codes * parts + 1,) sums of the frequencies that fit all rows best (EM), shared by weight (codes, parts)."""
    codes, prior = np.arange(len(weight)), weight.sum(1) / weight.sum()
    within = (low[:, None] <= codes) & (codes <= high[:, None])  # (n, codes)
    mass = prior
    for _ in range(UPDATES):
        parts = within * mass
        mass = (parts / parts.sum(1, keepdims=True)).sum(0) + SMOOTHING * len(weight) * prior
    shared = mass[:, None] * weight / weight.sum(1, keepdims=True)
    return np.concatenate([[0.0], np.cumsum(shared)])


def _edges(cuts: Floats, known: Sequence[float], assumed: Sequence[float]) -> Floats:
    """Where bins begin and end: at thresholds; outside at extremes that the file tells, or about two bins away."""
    step = 2 * float(np.ptp(cuts)) / (len(cuts) - 1) if len(cuts) > 1 else np.inf
    first, last = max(min(assumed[0], cuts[0]), cuts[0] - step), min(max(assumed[1], cuts[-1]), cuts[-1] + step)
    if cuts[0] >= 0:
        first = max(first, 0.0)  # few columns have values of both signs on one side of all thresholds
    ends = [guess if np.isnan(end) else end for end, guess in zip(known, (first, last), strict=True)]
    return np.concatenate([[ends[0]], cuts, [ends[1]]])
