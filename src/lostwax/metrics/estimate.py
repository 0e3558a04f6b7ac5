"""A number with its uncertainty."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv


class Estimate(NamedTuple):
    """What was measured over a number of games, and the interval that holds the true value."""

    value: float
    low: float
    high: float
    games: int
    confidence: float = 0.95

    def __str__(self) -> str:
        interval = f"{100 * self.confidence:g} % CI {self.low:.3f}-{self.high:.3f}"
        return f"{self.value:.3f} ({self.games:,} games, {interval})"


def clopper_pearson(won: float, trials: float, confidence: float = 0.95) -> tuple[float, float]:
    """The interval of a rate that holds with at least this confidence, however small the rate or the sample.

    Counts need not be whole: 40 of 100 guesses from 20 independent releases are 8 of 20.
    """
    tail = (1 - confidence) / 2
    low = float(betaincinv(won, trials - won + 1, tail)) if won > 0 else 0.0
    high = float(betaincinv(won + 1, trials - won, 1 - tail)) if won < trials else 1.0
    return low, high


def median_interval(scores: NDArray[np.float64], confidence: float = 0.95) -> tuple[float, float] | None:
    """Two of the scores between which the median lies with this confidence, whatever their law; None for too few.

    At 95 % it takes 6 of them.

    Infinite scores are no obstacle: only their order counts.
    """
    from scipy.stats import quantile_test

    ranks = quantile_test(np.arange(len(scores)), p=0.5).confidence_interval(confidence)
    if math.isnan(ranks.low) or math.isnan(ranks.high):
        return None
    ordered = np.sort(scores)
    return float(ordered[int(ranks.low)]), float(ordered[int(ranks.high)])


def check_confidence(source: str, confidence: float) -> None:
    """Between 0 and 1, or an error."""
    if not 0 < confidence < 1:
        raise ValueError(f"{source}: expected a confidence between 0 and 1, like 0.95, got {confidence}.")


def as_scores(source: str, name: str, scores: ArrayLike) -> NDArray[np.float64]:
    """One number a game, infinite ones allowed."""
    numbers = np.asarray(scores, dtype=np.float64)
    if numbers.ndim != 1 or numbers.size == 0:
        raise ValueError(f"{source}: expected {name} to hold one number a game, got shape {numbers.shape}.")
    if np.isnan(numbers).any():
        raise ValueError(
            f"{source}: {name} holds {int(np.isnan(numbers).sum())} numbers that are not a number (nan), first in game "
            f"{int(np.isnan(numbers).argmax())}. A guess that failed must count as infinitely wrong, not drop out."
        )
    return numbers
