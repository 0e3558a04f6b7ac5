"""The least mean squared error of any attack, from what the release can say about a record at most."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from lostwax.bounds.step_law import Array
from lostwax.cards import card
from lostwax.numerals import number, percent

DOWN = 1 - 1e-9  # covers rounding
GRID = 4001  # places of a guess that are tried
COARSE = 201  # places of a guess in the iteration
ROUNDS = 200
METHOD = "mutual information and the rate-distortion function (Shannon 1959)"


@dataclass(frozen=True)
class Floor:
    """The mean squared error per number that no attack is below, biased or not.

    `blind` is that of the best guess without the model; `information` the nats that the release can say, at most.
    """

    error: float
    blind: float
    information: float
    method: str = METHOD
    certified: bool = True
    assumptions: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """Of the blind guess's error, at least this share is left."""
        return self.error / self.blind

    def numbers(self) -> dict[str, float]:
        """What follows from the fields."""
        return {"share": self.share}

    @property
    def sentence(self) -> str:
        """One line in words."""
        return (
            f"mean squared error at least {self.error:.5g} (blind guess {self.blind:.5g}, {self.share:.5g} of that; "
            f"at most {self.information:.4g} nats; certified, {self.method})"
        )

    def __str__(self) -> str:
        """The floor in one line, and what it assumes."""
        return "\n".join([self.sentence, *(f"assumes: {one}" for one in self.assumptions)])

    def _repr_html_(self) -> str:
        """A card, for notebooks."""
        return card(
            "calm" if self.share >= 0.5 else "warning",
            kicker="floor",
            grade="certified",
            headline=f"No attack has a mean squared error below {number(self.error)}.",
            text=[f"Assumes: {one}" for one in self.assumptions],
            facts=(
                (number(self.error), "floor", "mean squared error of the best attack"),
                (number(self.blind), "blind guess", "mean squared error without the model"),
                (percent(self.share), "left", "of the blind guess's error"),
            ),
            small=self.method,
        )


def gaussian_floor(deviations: Array, information: float) -> float:
    """Mean over independent Gaussian numbers of the least squared error: reverse water-filling.

    D_i = min(level, sigma_i^2), the level such that the sum of log(sigma_i^2 / D_i) / 2 is the information.
    """
    logs = np.sort(2 * np.log(deviations))[::-1]  # of the variances, falling
    covered = np.arange(1, logs.size + 1)
    levels = (np.cumsum(logs) - 2 * information) / covered  # if the first i numbers are above the level
    after = np.append(logs[1:], -math.inf)
    level = float(levels[np.flatnonzero(levels >= after)[0]])
    return float(np.exp(np.minimum(logs, level)).mean()) * DOWN


def discrete_floor(values: Array, prior: Array, information: float) -> float:
    """The least squared error of guessing a number that takes these values with these probabilities.

    For every s > 0 and every l(x) >= 0 with sum_x p(x) l(x) exp(-s (x - y)^2) <= 1 for all y,
        s D + I >= sum_x p(x) log l(x)
    (Csiszar 1974). Blahut's iteration finds a good l, which is then scaled so that the condition holds for all y.
    """
    low, high = float(values.min()), float(values.max())
    mean = float(prior @ values)
    variance = float(prior @ (values - mean) ** 2)
    x = (values - mean) / (high - low)
    log_prior = np.log(prior)
    grid = np.linspace(float(x.min()), float(x.max()), GRID)
    places = np.concatenate([np.linspace(grid[0], grid[-1], COARSE), [0.0], x if x.size <= COARSE else []])

    def floor(s: float) -> float:
        kernel = np.exp(-s * (x[:, None] - places) ** 2)  # (values, places)
        weight = np.full(places.size, 0.5 / places.size)
        weight[COARSE] += 0.5  # the mean: the blind guess
        for _ in range(ROUNDS):
            reached = kernel @ weight
            weight = weight * ((prior / reached) @ kernel)
        log_l = -np.log(kernel @ weight)
        log_sums = logsumexp(log_prior + log_l - s * (grid[:, None] - x) ** 2, axis=1)  # (grid,)
        # At its largest, the sum g has g'' >= -2 s g: within half a spacing of there it is g (1 - s spacing^2 / 4).
        gap = s * (grid[1] - grid[0]) ** 2 / 4
        most = float(log_sums.max()) - math.log1p(-gap)
        return (float(prior @ log_l) - most - information) / s

    first = max(np.geomspace(0.3, 2e4, 24).tolist(), key=floor)
    best = max(floor(s) for s in (first * np.geomspace(0.6, 1.6, 11)).tolist())
    return max(0.0, min(variance, best * (high - low) ** 2) * DOWN)
