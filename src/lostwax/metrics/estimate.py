"""A number with its uncertainty."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, betaln
from scipy.stats import rankdata

from lostwax.seeds import generator

ROUNDING = 1e-9  # of a number of trials
LEAST_SPREAD = 1e-4  # that changes an interval


class Estimate(NamedTuple):
    """A mean over games with its confidence interval."""

    value: float
    low: float
    high: float
    games: int
    confidence: float = 0.95

    def __str__(self) -> str:
        interval = f"{100 * self.confidence:g} % CI {self.low:.3f}-{self.high:.3f}"
        return f"{self.value:.3f} ({self.games:,} games, {interval})"


def clopper_pearson(won: float, trials: float, confidence: float = 0.95) -> tuple[float, float]:
    """The interval of a rate, with at least this confidence for every rate and sample size.

    Counts need not be whole: 40 of 100 guesses from 20 independent releases are 8 of 20.
    """
    tail = (1 - confidence) / 2
    low = float(betaincinv(won, trials - won + 1, tail)) if won > 0 else 0.0
    high = float(betaincinv(won + 1, trials - won, 1 - tail)) if won < trials else 1.0
    return low, high


def spread_interval(won: float, trials: int, spread: float, confidence: float = 0.95) -> tuple[float, float]:
    """The interval of a rate from trials that share one draw of it, as games that share one split of a table do.

    The rate of a draw has the mean p, which is estimated, and the standard deviation `spread` in log-odds, which is
    spread p (1 - p) in the rate; it is beta distributed, and the number of trials that are won beta-binomial.
    """
    if spread < LEAST_SPREAD:
        return clopper_pearson(won, trials, confidence)
    tail = (1 - confidence) / 2
    fewest, most = math.floor(won + ROUNDING), math.ceil(won - ROUNDING)
    low = _bisected(lambda p: 1 - _at_most(fewest - 1, trials, p, spread) < tail, 0.0, won / trials) if fewest else 0.0
    high = 1.0 if most >= trials else _bisected(lambda p: _at_most(most, trials, p, spread) > tail, won / trials, 1.0)
    return low, high


def _at_most(won: int, trials: int, mean: float, spread: float) -> float:
    """P[at most as many are won]: beta-binomial, with variance (spread p (1 - p))^2 of the rate."""
    size = 1 / (spread**2 * mean * (1 - mean)) - 1  # a + b of the beta distribution
    k = np.arange(won + 1)
    ways = -np.log1p(trials) - betaln(k + 1, trials - k + 1)  # log of the binomial coefficients
    a, b = mean * size, (1 - mean) * size
    return float(np.exp(ways + betaln(a + k, b + trials - k) - betaln(a, b)).sum())


def _bisected(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Where a condition that holds at the low end ceases to."""
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return (low + high) / 2


def median_interval(
    scores: NDArray[np.float64], confidence: float = 0.95, spread: float = 0.0
) -> tuple[float, float] | None:
    """A distribution-free interval of the median between two of the scores; None for too few (at 95 %, below 6).

    Scores may be infinite: only their order counts. `spread`: of the share below the median, as in `spread_interval`.
    """
    from scipy.stats import quantile_test

    if spread >= LEAST_SPREAD:
        ends = [k for k in range(len(scores) // 2) if _at_most(k, len(scores), 0.5, spread) <= (1 - confidence) / 2]
        ordered = np.sort(scores)
        return (float(ordered[ends[-1]]), float(ordered[-1 - ends[-1]])) if ends else None

    ranks = quantile_test(np.arange(len(scores)), p=0.5).confidence_interval(confidence)
    if math.isnan(ranks.low) or math.isnan(ranks.high):
        return None
    ordered = np.sort(scores)
    return float(ordered[int(ranks.low)]), float(ordered[int(ranks.high)])


def check_confidence(source: str, confidence: float) -> None:
    """Raise a ValueError unless it is between 0 and 1."""
    if not 0 < confidence < 1:
        raise ValueError(f"{source}: expected a confidence between 0 and 1, like 0.95, got {confidence}.")


def as_scores(source: str, name: str, scores: ArrayLike) -> NDArray[np.float64]:
    """One number per game; infinity is allowed, NaN is not."""
    numbers = np.asarray(scores, dtype=np.float64)
    if numbers.ndim != 1 or numbers.size == 0:
        raise ValueError(f"{source}: expected {name} to hold one number per game, got shape {numbers.shape}.")
    if (missing := np.isnan(numbers)).any():
        raise ValueError(
            f"{source}: {name} holds {int(missing.sum())} NaN, first in game {int(missing.argmax())}. Count a failed "
            "guess as infinitely wrong."
        )
    return numbers


MIN_GAMES = 4
BLOCK_NUMBERS = 2_000_000

Array = NDArray[np.float64]


class Correlation(NamedTuple):
    """Correlations of two metrics' errors over games."""

    pearson: Estimate  # of the errors
    spearman: Estimate  # of their ranks


def correlation(
    first: ArrayLike, second: ArrayLike, *, confidence: float = 0.95, resamples: int = 2_000, seed: int = 0
) -> Correlation:
    """Both correlations of two metrics' errors, (games,) each, with percentile bootstrap intervals over games."""
    check_confidence("correlation", confidence)
    first_errors, second_errors = as_scores("correlation", "first", first), as_scores("correlation", "second", second)
    if len(first_errors) != len(second_errors) or len(first_errors) < MIN_GAMES:
        wanted = f"the errors of the same games twice, {MIN_GAMES} games or more"
        raise ValueError(f"correlation: expected {wanted}, got {len(first_errors)} and {len(second_errors)}.")
    for name, errors in (("first", first_errors), ("second", second_errors)):
        if not np.isfinite(errors).all() or np.ptp(errors) == 0:
            wrong = "the same in every game" if np.isfinite(errors).all() else "infinite in some games"
            raise ValueError(f"correlation: the errors of {name} are {wrong}, so there is no correlation.")
    if resamples < 100:
        raise ValueError(f"correlation: expected 100 resamples or more for an interval, got {resamples}.")
    games, random = len(first_errors), generator(seed, "correlation")
    drawn: list[tuple[Array, Array]] = []
    for start in range(0, resamples, block := max(1, BLOCK_NUMBERS // games)):
        rows = random.integers(games, size=(min(block, resamples - start), games))  # (resamples, games)
        drawn.append(
            (pearson(first_errors[rows], second_errors[rows]), spearman(first_errors[rows], second_errors[rows]))
        )
    estimates = []
    for value, resampled in zip(
        (pearson(first_errors, second_errors), spearman(first_errors, second_errors)),
        zip(*drawn, strict=True),
        strict=True,
    ):
        # resamples of equal errors have no correlation (NaN) and are left out
        low, high = np.nanquantile(np.concatenate(resampled), [(1 - confidence) / 2, (1 + confidence) / 2])
        estimates.append(Estimate(float(value), float(low), float(high), games, confidence))
    return Correlation(*estimates)


def pearson(first: Array, second: Array) -> Array:
    """Pearson's correlation, (..., games) twice -> (...); NaN where one is constant."""
    first_deviations, second_deviations = (errors - errors.mean(-1, keepdims=True) for errors in (first, second))
    size = np.sqrt((first_deviations**2).sum(-1) * (second_deviations**2).sum(-1))
    with np.errstate(invalid="ignore"):
        cosine: Array = np.clip((first_deviations * second_deviations).sum(-1) / size, -1, 1)
    return cosine


def spearman(first: Array, second: Array) -> Array:
    """Pearson's correlation of the ranks, ties sharing their mean rank."""
    return pearson(rankdata(first, axis=-1), rankdata(second, axis=-1))
