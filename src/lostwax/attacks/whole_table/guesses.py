"""What is likely where boosted trees prove nothing: shares of rows whose sums come close, and values within boxes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import optimize, sparse

from lostwax.attacks.whole_table.places import Boxes, Grid
from lostwax.attacks.whole_table.subsets import Knapsacks
from lostwax.games.boosting import BoostedSums
from lostwax.games.trees import Floats, Ints

PRICE = 3.0  # log odds for which a sum may be off by what one row adds to it
SECONDS = 10.0
UPDATES = 20  # of the frequencies of codes
SMOOTHING = 0.5  # of a row, added to the frequency of each code


def likely(problem: Knapsacks, chances: Floats, low: Ints | None, seconds: float, random: np.random.Generator) -> Ints:
    """(p, l) numbers of rows that come close to the sums, drawn by `chances` (p, l), by a linear program.

    A sum may be off, at a price, in units of what one row adds to it. The likeliest shares would send all rows to large
    leaves: their log odds are perturbed, which draws shares (perturb and MAP). Without time left, only by `chances`.
    """
    place, leaf = np.nonzero(problem.possible)
    ends, sums = np.nonzero(np.isfinite(problem.rounding))
    variables, count = len(place), len(problem.count)
    values = np.where((ends[:, None] == leaf), problem.values[ends[:, None], place[None], sums[:, None]], 0.0)  # (e, v)
    size = np.maximum(np.abs(values).max(1, initial=0.0), 1e-12)
    off = sparse.identity(len(ends), format="csr")
    conservation = sparse.csr_array((np.ones(variables), (place, np.arange(variables))), shape=(count, variables))
    matrix = sparse.block_array([[conservation, None, None], [sparse.csr_array(values / size[:, None]), off, -off]])
    right = np.concatenate([problem.count, problem.totals[ends, sums] / size])
    odds = np.log(np.maximum(chances[place, leaf], 1e-12)) + random.gumbel(size=variables)
    cost = np.concatenate([-odds, np.full(2 * len(ends), PRICE)])
    least = np.zeros(variables) if low is None else low[place, leaf]
    bounds = np.stack([np.concatenate([least, np.zeros(2 * len(ends))]), np.full(len(cost), np.inf)], 1)
    limit = min(seconds, SECONDS)
    options = {"time_limit": limit}
    result = None
    if limit > 0:
        result = optimize.linprog(cost, A_eq=matrix, b_eq=right, bounds=bounds, method="highs", options=options)
    shares = chances / chances.sum(1, keepdims=True) * problem.count[:, None]
    if result is not None and result.x is not None:
        shares = np.zeros_like(shares)
        shares[place, leaf] = result.x[:variables]
    numbers = np.floor(shares + 1e-6).astype(np.int64)
    missing = problem.count - numbers.sum(1)
    ties = 1e-3 * random.random(shares.shape)
    rank = np.argsort(np.argsort(-np.where(problem.possible, shares - numbers + ties, -np.inf), axis=1), axis=1)
    return np.asarray(numbers + (rank < missing[:, None]), dtype=np.int64)


def values_of(
    sums: BoostedSums, grid: Grid, boxes: Boxes, ends: tuple[Floats, Floats], random: np.random.Generator
) -> Floats:
    """(n, d) a value for each cell within its box; NaN where no tree splits the column.

    Beyond the outer thresholds values go to the extremes in the file, or a little way to the `ends` (d,).
    """
    x = np.full(boxes.low.shape, np.nan)
    for column, (values, cuts) in enumerate(zip(grid.values, grid.cuts, strict=True)):
        low, high = boxes.low[:, column].astype(np.intp), boxes.high[:, column].astype(np.intp)
        if values is None and not len(cuts):
            continue
        codes = _drawn(low, high, int(grid.codes[column]), random)
        if values is not None:
            x[:, column] = values[codes]
            continue
        known = [np.nan if end is None else float(end[column]) for end in (sums.low, sums.high)]
        edges = _edges(cuts, known, [float(end[column]) for end in ends])
        for code in np.unique(codes):
            rows = random.permutation(np.flatnonzero(codes == code))
            start, end = edges[code], edges[code + 1]
            spread = (np.arange(len(rows)) + 0.5) / len(rows)
            if sums.values and (cuts == np.round(cuts)).all():
                x[rows, column] = np.floor(start + spread * (end - start))  # whole numbers below the next threshold
            else:
                x[rows, column] = start + spread * (end - start)
    return x


def _drawn(low: Ints, high: Ints, count: int, random: np.random.Generator) -> Ints:
    """(n,) a code between `low` and `high` for each row, by the frequencies that fit all rows best (EM)."""
    codes = np.arange(count)
    within = (low[:, None] <= codes) & (codes <= high[:, None])  # (n, codes)
    mass = np.ones(count)
    for _ in range(UPDATES):
        parts = within * mass
        mass = (parts / parts.sum(1, keepdims=True)).sum(0) + SMOOTHING
    parts = np.cumsum(within * mass, axis=1)
    return np.asarray((parts < (random.random(len(low)) * parts[:, -1])[:, None]).sum(1).clip(low, high))


def _edges(cuts: Floats, known: Sequence[float], assumed: Sequence[float]) -> Floats:
    """Where bins begin and end: at thresholds; outside at extremes that the file tells, or about two bins away."""
    step = 2 * float(np.ptp(cuts)) / (len(cuts) - 1) if len(cuts) > 1 else np.inf
    first, last = max(min(assumed[0], cuts[0]), cuts[0] - step), min(max(assumed[1], cuts[-1]), cuts[-1] + step)
    if cuts[0] >= 0:
        first = max(first, 0.0)  # few columns have values of both signs on one side of all thresholds
    ends = [guess if np.isnan(end) else end for end, guess in zip(known, (first, last), strict=True)]
    return np.concatenate([[ends[0]], cuts, [ends[1]]])
