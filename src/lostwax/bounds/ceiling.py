"""An upper limit of the success of every attack, and how it is known."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lostwax.cards import card
from lostwax.numerals import at_most, percent

SMALLEST = 5e-324  # the least positive float, where an upper end underflows
LARGE = 0.5  # an advantage above this is hardly a limit
THREE_DEVIATIONS = 0.00135  # P[N(0, 1) > 3]


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
        """What follows from the logs."""
        names = ("upper", "lower", "advantage", "amplification")
        return {name: getattr(self, name) for name in names}

    def broken_by(self, won: int, games: int) -> bool:
        """True if this many games won contradict the ceiling by three standard errors or more."""
        from scipy.stats import binom

        return bool(binom.sf(won - 1, games, self.upper) < THREE_DEVIATIONS)

    @property
    def relative_width(self) -> float:
        """(upper - lower) / upper."""
        return -math.expm1(self.log_lower - self.log_upper)

    def __str__(self) -> str:
        """The ceiling in one line, and what it assumes."""
        return "\n".join([self.sentence, *(f"assumes: {one}" for one in self.assumptions)])

    @property
    def sentence(self) -> str:
        """One line in words."""
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
        """A card, for notebooks."""
        limit = at_most(self.upper)
        blind = f"{'at most ' if self.blind_at_most else ''}{percent(self.baseline)}"
        return card(
            "calm" if self.certified and self.advantage <= LARGE else "warning",
            kicker="ceiling",
            grade="certified" if self.certified else "not certified",
            headline=f"{'No attack succeeds' if self.certified else 'Estimate: no attack succeeds'} in more than "
            f"{limit} of games.",
            text=[f"Assumes: {one}" for one in self.assumptions],
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


def best_success(gram: NDArray[np.float64], *, draws: int = 400, seed: int = 0) -> float:
    """Success of the optimal attack among equally likely candidates, for full batches: a Monte Carlo mean over games.

    `gram` (games, c, c) holds K_ij = sum_t <g_i, g_j> / (C sigma)^2 of the candidates' clipped gradients. The products
    of the release with each candidate, y = K e_z + N(0, K), are a sufficient statistic for the secret z, and the
    likeliest has the largest y_i - K_ii / 2. A ceiling (`bound`) only uses K_ii <= T / sigma^2, and is higher.
    """
    kernel = np.asarray(gram, float)
    if kernel.ndim != 3 or kernel.shape[1] != kernel.shape[2] or kernel.shape[1] < 2:
        raise ValueError(
            f"Expected gram to hold a matrix (c, c) of two candidates or more for every game, got shape {kernel.shape}."
        )
    games, c = kernel.shape[:2]
    random = np.random.default_rng(seed)
    values, vectors = np.linalg.eigh(kernel)
    root = vectors * np.sqrt(values.clip(min=0))[:, None]  # (games, c, c)  K = root root^T
    z = random.integers(c, size=(games, draws))
    noise = np.einsum("gij,gdj->gdi", root, random.standard_normal((games, draws, c)))
    y = kernel[np.arange(games)[:, None], z] + noise  # (games, draws, c)
    best = (y - np.einsum("gii->gi", kernel)[:, None] / 2).argmax(2)
    return float((best == z).mean())
