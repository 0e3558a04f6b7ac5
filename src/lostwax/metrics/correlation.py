"""Do two metrics tell the same story?"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from lostwax.metrics.estimate import Estimate, as_scores, check_confidence
from lostwax.seeds import generator

FEWEST = 4
BLOCK_NUMBERS = 2_000_000

Array = NDArray[np.float64]


class Correlation(NamedTuple):
    """How two metrics' errors go together over the games (S1 Figs 5 and 19)."""

    pearson: Estimate  # of the errors: on a straight line?
    spearman: Estimate  # of their ranks: in one order?


def correlation(
    first: ArrayLike, second: ArrayLike, *, confidence: float = 0.95, resamples: int = 2_000, seed: int = 0
) -> Correlation:
    """Both correlations of two metrics' errors, (games,) each, with percentile bootstrap intervals over games."""
    check_confidence("correlation", confidence)
    one, other = as_scores("correlation", "first", first), as_scores("correlation", "second", second)
    if len(one) != len(other) or len(one) < FEWEST:
        raise ValueError(
            f"correlation: expected the errors of the same games twice, {FEWEST} games or more, "
            f"got {len(one)} and {len(other)}."
        )
    for name, errors in (("first", one), ("second", other)):
        if not np.isfinite(errors).all() or np.ptp(errors) == 0:
            wrong = "the same in every game" if np.isfinite(errors).all() else "infinite in some games"
            raise ValueError(f"correlation: the errors of {name} are {wrong}, so nothing goes with them.")
    if resamples < 100:
        raise ValueError(f"correlation: expected 100 resamples or more for an interval, got {resamples}.")
    games, random = len(one), generator(seed, "correlation")
    drawn: list[tuple[Array, Array]] = []
    for start in range(0, resamples, block := max(1, BLOCK_NUMBERS // games)):
        rows = random.integers(games, size=(min(block, resamples - start), games))  # (resamples, games)
        drawn.append((pearson(one[rows], other[rows]), spearman(one[rows], other[rows])))
    statistics: tuple[Callable[[Array, Array], Array], ...] = (pearson, spearman)
    estimates = []
    for statistic, resampled in zip(statistics, zip(*drawn, strict=True), strict=True):
        # a resample of equal errors has no correlation (nan): it is left out
        low, high = np.nanquantile(np.concatenate(resampled), [(1 - confidence) / 2, (1 + confidence) / 2])
        estimates.append(Estimate(float(statistic(one, other)), float(low), float(high), games, confidence))
    return Correlation(*estimates)


def pearson(first: Array, second: Array) -> Array:
    """Cosine of the angle between the centred errors, (..., games) twice -> (...); nan where one is constant."""
    one, other = (errors - errors.mean(-1, keepdims=True) for errors in (first, second))
    size = np.sqrt((one**2).sum(-1) * (other**2).sum(-1))
    with np.errstate(invalid="ignore"):
        cosine: Array = np.clip((one * other).sum(-1) / size, -1, 1)
    return cosine


def spearman(first: Array, second: Array) -> Array:
    """Pearson's correlation of the ranks, ties sharing their mean rank."""
    return pearson(rankdata(first, axis=-1), rankdata(second, axis=-1))
