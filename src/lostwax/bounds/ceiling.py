"""The answers: an upper limit of the success of every attack, a lower limit of its error, and how they are known."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.special import logsumexp

from lostwax.cards import card
from lostwax.numerals import at_most, number, percent

Array = np.ndarray
SMALLEST = 5e-324  # the least positive float, where an upper end underflows
LARGE_ADVANTAGE = 0.5  # above this, hardly a limit
THREE_DEVIATIONS = 0.00135  # P[N(0, 1) > 3]
ROUNDED_DOWN = 1 - 1e-9  # covers the rounding of a floor
GUESSES, COARSE_GUESSES = 4001, 201  # places of a guess that are tried at the end, and in Blahut's iteration
BLAHUT_ROUNDS = 200


@dataclass(frozen=True)
class Ceiling:
    """An interval for the best reconstruction success gamma of any attack, kept in logs.

    `upper` is the ceiling. `lower` is the success of the best *test* between the two output distributions, or the blind
    guess. `certified`: both ends are proved, rounding included. Otherwise they are confidence limits of a sampled
    `estimate`; or, without one, the baseline is an upper confidence limit of the blind guess. `assumptions` are what
    must be true of the training and the adversary, in words. `log_slope`: of a line through (baseline, upper) that
    lies above the ceiling of every other baseline.
    """

    log_lower: float
    log_upper: float
    log_baseline: float
    method: str
    certified: bool = True
    estimate: float | None = None
    assumptions: tuple[str, ...] = field(default=(), compare=False)
    quantity: str = "success"
    log_slope: float | None = field(default=None, compare=False, repr=False)

    @property
    def upper(self) -> float:
        """The ceiling as a probability, rounded up."""
        return min(1.0, max(SMALLEST, math.exp(self.log_upper) * (1 + 4e-16)))

    @property
    def lower(self) -> float:
        """The lower end as a probability, rounded down."""
        return math.exp(self.log_lower) * (1 - 4e-16)

    @property
    def baseline(self) -> float:
        """The success kappa of the best blind guess (0 where it underflows: use `log_baseline`)."""
        return math.exp(self.log_baseline)

    @property
    def advantage(self) -> float:
        """(gamma - kappa) / (1 - kappa) at the upper end: what the release adds to a blind guess."""
        gain = -math.expm1(self.log_baseline - self.log_upper)  # 1 - kappa / gamma
        return self.upper * gain / -math.expm1(self.log_baseline)

    @property
    def log_amplification(self) -> float:
        """Log of gamma / kappa at the upper end."""
        return self.log_upper - self.log_baseline

    @property
    def amplification(self) -> float:
        """gamma / kappa at the upper end (inf beyond the range of floats: use `log_amplification`)."""
        return math.exp(self.log_amplification) if self.log_amplification < 709 else math.inf

    @property
    def blind_at_most(self) -> bool:
        """True if the baseline is an upper confidence limit of the blind guess."""
        return not self.certified and self.estimate is None

    def numbers(self) -> dict[str, float]:
        ends = {"upper": self.upper, "lower": self.lower}
        return ends | {"advantage": self.advantage, "amplification": self.amplification}

    def broken_by(self, won: int, games: int) -> bool:
        """True if this many games won contradict the ceiling by three standard errors or more."""
        from scipy.stats import binom

        return bool(binom.sf(won - 1, games, self.upper) < THREE_DEVIATIONS)

    @property
    def relative_width(self) -> float:
        """(upper - lower) / upper."""
        return -math.expm1(self.log_lower - self.log_upper)

    def __str__(self) -> str:
        return "\n".join([self.sentence, *(f"assumes: {assumption}" for assumption in self.assumptions)])

    @property
    def sentence(self) -> str:
        low, high = _probability(self.log_lower), _probability(self.log_upper)
        if self.blind_at_most:
            blind = _probability(self.log_baseline)
            return f"{self.quantity} at most {high} (blind guess at most {blind}; not certified, {self.method})"
        value = high if low == high else f"between {low} and {high}"
        return (
            f"{self.quantity} {'' if self.certified else 'estimated '}{value} "
            f"(blind guess {_probability(self.log_baseline)}, {_probability(self.log_amplification)} times that; "
            f"{'certified' if self.certified else 'not certified'}, {self.method})"
        )

    def _repr_html_(self) -> str:
        limit = at_most(self.upper)
        blind = f"{'at most ' if self.blind_at_most else ''}{percent(self.baseline)}"
        return card(
            "calm" if self.certified and self.advantage <= LARGE_ADVANTAGE else "warning",
            kicker="ceiling",
            grade="certified" if self.certified else "not certified",
            headline=f"{'No attack succeeds' if self.certified else 'Estimate: no attack succeeds'} in more than "
            f"{limit} of games.",
            text=[f"Assumes: {assumption}" for assumption in self.assumptions],
            facts=(
                (limit, "ceiling", f"{self.quantity} of the best attack, in the long run"),
                (blind, "blind guess", "success without the model"),
                (percent(self.advantage), "advantage", "of what guessing leaves to win"),
            ),
            small=self.method,
        )


def _probability(logarithm: float) -> str:
    """exp(logarithm) to five digits, even where it over- or underflows."""
    if abs(logarithm) < 600:
        return f"{math.exp(logarithm):.5g}"
    exponent = math.floor(logarithm / math.log(10))
    return f"{math.exp(logarithm - exponent * math.log(10)):.4f}e{exponent:+d}"


@dataclass(frozen=True)
class Floor:
    """The mean squared error per number that no attack is below, biased or not.

    `blind` is that of the best guess without the model; `information` the nats that the release can say, at most.
    """

    error: float
    blind: float
    information: float
    method: str = "mutual information and the rate-distortion function (Shannon 1959)"
    certified: bool = True
    assumptions: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """Of the blind guess's error, at least this share is left."""
        return self.error / self.blind

    def numbers(self) -> dict[str, float]:
        return {"share": self.share}

    @property
    def sentence(self) -> str:
        return (
            f"mean squared error at least {self.error:.5g} (blind guess {self.blind:.5g}, {self.share:.5g} of that; "
            f"at most {self.information:.4g} nats; certified, {self.method})"
        )

    def __str__(self) -> str:
        return "\n".join([self.sentence, *(f"assumes: {assumption}" for assumption in self.assumptions)])

    def _repr_html_(self) -> str:
        return card(
            "calm" if self.share >= 0.5 else "warning",
            kicker="floor",
            grade="certified",
            headline=f"No attack has a mean squared error below {number(self.error)}.",
            text=[f"Assumes: {assumption}" for assumption in self.assumptions],
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
    return float(np.exp(np.minimum(logs, level)).mean()) * ROUNDED_DOWN


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
    grid = np.linspace(float(x.min()), float(x.max()), GUESSES)
    coarse = np.linspace(grid[0], grid[-1], COARSE_GUESSES)
    places = np.concatenate([coarse, [0.0], x if x.size <= COARSE_GUESSES else []])

    def floor(s: float) -> float:
        kernel = np.exp(-s * (x[:, None] - places) ** 2)  # (values, places)
        weight = np.full(places.size, 0.5 / places.size)
        weight[COARSE_GUESSES] += 0.5  # the mean: the blind guess
        for _ in range(BLAHUT_ROUNDS):
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
    return max(0.0, min(variance, best * (high - low) ** 2) * ROUNDED_DOWN)
