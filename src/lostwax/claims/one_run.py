"""How much one training run gave away: canaries that were in or out of it by coins, and what the guesses prove."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import binom

from lostwax.bounds import Sampling
from lostwax.bounds.closed_forms import bisect
from lostwax.bounds.curve import CeilingCurve
from lostwax.bounds.goals import guarantee_leak, noise_leak

Array = NDArray[np.float64]
BASELINES = ndtr(np.concatenate([np.linspace(-7, -3.5, 8), np.linspace(-3, 3, 25), np.linspace(3.5, 5, 3)]))
SLOPES = np.geomspace(1e-6, 1e6, 400)  # of lines above a trade-off
SHARES = (1.0, 0.5, 0.25, 0.1, 0.04, 0.015)  # of the canaries that are guessed, half of them as members
TOLERANCE = 1e-3  # of ceilings
DOUBLINGS, HALVINGS = 6, 8  # of the noise that would explain the guesses
LARGEST_EPSILON = 30.0
ALARM = 0.01  # a claim is called false at a smaller p-value


class Guesses(NamedTuple):
    """So many guesses about canaries, of which so many are right."""

    canaries: int
    number: int
    right: int


@dataclass(frozen=True)
class Exchange:
    """How often a guess about a coin can be right, by how often it is wrong, over the same outcomes of other coins.

    For an event that is decided by the release and the other coins, let u be its probability without the canary if
    "in" is guessed there, v with it if "out" is. The guess is then wrong with probability w = (u + v) / 2, and right
    with at most (gamma(u) + gamma'(v)) / 2, gamma' being the ceiling of what training without the canary may do that
    training with it does with probability v. Straight lines lie above: gamma(u) <= delta(s) + s u, and
    gamma'(v) <= 1 - s + s delta(1 / s) + s v, so that right <= height(s) + s w for every s > 0.
    """

    heights: Array  # of the lines with these `SLOPES`

    @classmethod
    def of(cls, curve: CeilingCurve) -> Exchange:
        """From the ceilings for one record."""
        known = curve.with_points(*BASELINES.tolist())
        there, back = known.delta(SLOPES), known.delta(1 / SLOPES)
        return cls((there + 1 - SLOPES + SLOPES * back) / 2)

    def least_wrong(self, right: float) -> float:
        """At least this often wrong."""
        return max(0.0, float(((right - self.heights) / SLOPES).max()))


def refutes(guesses: Guesses, exchange: Exchange, doubt: float) -> bool:
    """True if as many guesses are right, or more, with less than this probability, wherever `exchange` holds.

    Let T_j be the probability that j or more are right. Summed over canaries, "this guess is right, and j or more
    are" has probability E[W; W >= j] = j T_j + S_j, S_j the sum of T beyond j, and "this one is wrong, and j - 1 or
    more are right" has (r - j + 1) T_(j-1) - T_j - S_j. So each T_(j-1) is at least what `least_wrong` says of those
    above, which only grows with them: the least of all have T = 0 above the number right, and must not exceed 1
    (compare Mahloujifar, Melis and Chaudhuri 2025, arXiv 2410.22235).
    """
    m, r, right = guesses
    tail, beyond = doubt, 0.0
    for j in range(right, 0, -1):
        wrong = m * exchange.least_wrong((j * tail + beyond) / m)
        below = max(tail, (wrong + tail + beyond) / (r - j + 1))
        if below > 1:
            return True
        tail, beyond = below, beyond + tail
    return False


def p_value(exchange: Exchange, guesses: Guesses) -> float:
    """At most this often as many guesses are right, or more."""
    return math.exp(bisect(-40.0, 0.0, lambda log: not refutes(guesses, exchange, math.exp(log)), 24).high)


def p_value_of_epsilon(epsilon: float, delta: float, guesses: Guesses) -> float:
    """The same for (epsilon, delta)-differential privacy (Steinke, Nasr and Jagielski 2023, 2305.08846, Theorem 5.2).

    With delta = 0 each guess is right with probability q = e^epsilon / (1 + e^epsilon) at most, whatever the others
    are, so that a binomial tail bounds them. A delta moves m of them at most, where that helps most.
    """
    m, r, right = guesses
    if right == 0:
        return 1.0
    q = 1 / (1 + math.exp(-epsilon))
    few = np.arange(1, right + 1)
    gained = (binom.cdf(right - 1, r, q) - binom.cdf(right - 1 - few, r, q)) / few
    return min(1.0, float(binom.sf(right - 1, r, q)) + 2 * m * delta * float(gained.max()))


def least_epsilon(delta: float, guesses: Guesses, doubt: float) -> float:
    """Smaller epsilons are refuted by these guesses, with an error rate of `doubt`."""
    if p_value_of_epsilon(0.0, delta, guesses) >= doubt:
        return 0.0
    return bisect(0.0, LARGEST_EPSILON, lambda epsilon: p_value_of_epsilon(epsilon, delta, guesses) < doubt, 40).low


@dataclass(frozen=True)
class Claim:
    """What is claimed of a run: noise on sums, or an epsilon; `delta` is also that at which epsilon is stated."""

    noise_multiplier: float | None
    steps: int
    sampling: Sampling
    epsilon: float | None
    delta: float

    @cached_property
    def exchange(self) -> Exchange:
        """As claimed."""
        if self.noise_multiplier is None:
            return Exchange.of(guarantee_leak(self.stated_epsilon, self.delta).curves(TOLERANCE)[0])
        return self.with_noise(self.noise_multiplier)

    def with_noise(self, noise: float) -> Exchange:
        """With another noise multiplier."""
        return Exchange.of(noise_leak(noise, self.steps, self.sampling).curves(TOLERANCE)[0])

    @cached_property
    def stated_epsilon(self) -> float:
        """At `delta`."""
        if self.epsilon is not None:
            return self.epsilon
        return self.epsilon_of(self.noise_multiplier or 0.0)

    def epsilon_of(self, noise: float) -> float:
        """Of these steps with another noise multiplier."""
        return self.sampling.epsilon(noise, self.steps, self.delta)

    def least_epsilon(self, every: Sequence[Guesses], doubt: float) -> float:
        """Of this mechanism: more noise than some amount is refuted by one of these, each at this error rate."""
        if self.noise_multiplier is None:
            return 0.0

        def refuted(noise: float) -> bool:
            exchange = self.with_noise(noise)
            return any(refutes(guesses, exchange, doubt) for guesses in every)

        high = self.noise_multiplier
        for _ in range(DOUBLINGS):
            if refuted(high):
                break
            high *= 2
        else:
            return 0.0
        low = high / 2
        for _ in range(DOUBLINGS):
            if not refuted(low):
                break
            low, high = low / 2, low
        for _ in range(HALVINGS):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if refuted(middle) else (middle, high)
        return self.epsilon_of(high)


@dataclass(frozen=True)
class OneRun:
    """What the guesses about the canaries of one run prove: a lower bound on epsilon, at this confidence.

    `epsilon` holds for any training. `mechanism_epsilon` is sharper, and holds if the run is what is claimed except for
    the amount of noise. `p_value` is that of the claim itself.
    """

    canaries: int
    guesses: Guesses  # those with the smallest p-value
    scored: str  # how canaries were scored for them
    epsilon: float
    mechanism_epsilon: float
    delta: float
    confidence: float
    claimed: float  # epsilon at delta
    p_value: float
    seconds: float = 0.0

    @property
    def refuted(self) -> bool:
        """True if the claim is false, but for an error rate of 1 %."""
        return self.p_value < ALARM

    def __str__(self) -> str:
        """A few lines in words."""
        sure, at = f"{100 * self.confidence:g} % confidence", f"at delta {self.delta:g}"
        right = f"{self.guesses.right} of {self.guesses.number} guesses right, about {self.canaries:,} canaries"
        if self.refuted:
            lines = [f"The claim is false (p = {self.p_value:.2g}): {right} ({self.scored})."]
        else:
            lines = [f"The claim is not contradicted (p = {self.p_value:.2g}): {right} ({self.scored})."]
        lines.append(f"epsilon is at least {self.epsilon:.3g} {at} ({sure}), whatever the training does.")
        if self.mechanism_epsilon > self.epsilon:
            lines.append(
                f"If it is the claimed mechanism with some noise: at least {self.mechanism_epsilon:.3g} ({sure})."
            )
        return "\n".join([*lines, f"The claim is epsilon {self.claimed:.3g} {at}."])


def judged(claim: Claim, scores: Mapping[str, Array], inside: NDArray[np.bool_], *, confidence: float = 0.95) -> OneRun:
    """Every share of guesses by every score is a separate test, at an equal part of the error rate (Bonferroni)."""
    every = [(name, guesses) for name, values in scores.items() for guesses in counted(values, inside)]
    doubt = (1 - confidence) / len(every)
    tested = [(p_value(claim.exchange, guesses), name, guesses) for name, guesses in every]
    least, name, best = min(tested, key=lambda test: (test[0], -test[2].right / test[2].number))
    guesses = [guesses for _, guesses in every]
    return OneRun(
        canaries=len(inside),
        guesses=best,
        scored=name,
        epsilon=max(least_epsilon(claim.delta, part, doubt) for part in guesses),
        mechanism_epsilon=claim.least_epsilon(guesses, doubt),
        delta=claim.delta,
        confidence=confidence,
        claimed=claim.stated_epsilon,
        p_value=min(1.0, least * len(every)),
    )


def counted(scores: Array, inside: NDArray[np.bool_]) -> list[Guesses]:
    """Guesses on the largest and the smallest scores, for each of the `SHARES`; equal scores come in a fixed order."""
    m = len(scores)
    order = np.argsort(scores, kind="stable")
    every = []
    for share in SHARES:
        half = max(1, min(m // 2, round(share * m / 2)))  # no canary is guessed both in and out
        right = int(inside[order[-half:]].sum()) + int((~inside[order[:half]]).sum())
        every.append(Guesses(m, 2 * half, right))
    return list(dict.fromkeys(every))
