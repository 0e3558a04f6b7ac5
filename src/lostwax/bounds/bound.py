"""How often any attack can rebuild a record, or what else is at risk, given the noise; and the noise to keep it low."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import overload

from lostwax.bounds import checks
from lostwax.bounds.ceiling import Ceiling, Floor
from lostwax.bounds.closed_forms import ADJACENCY, normal_quantile
from lostwax.bounds.goals import (
    Goal,
    MeanSquaredError,
    Success,
    guarantee_leak,
    noise_leak,
    wanted,
    wanted_success,
)
from lostwax.bounds.last_weights import seen_batches
from lostwax.bounds.random_batches import LEAST_NOISE
from lostwax.bounds.sampling import Sampling
from lostwax.cards import card
from lostwax.numerals import at_most, percent, round_up
from lostwax.released import LastWeights

TOLERANCE = 1e-4  # relative width of a ceiling
SHARP_TOLERANCE = 1e-6  # ... and of the last one of `calibrate`
LEAST_TOLERANCE = 1e-10  # that ceilings reach
MAX_NOISE = 1e12
MAX_NOISE_ERROR = 0.01  # relative


@overload
def bound(
    *,
    noise_multiplier: float | None = None,
    sample_rate: float = 1.0,
    steps: int = 1,
    baseline: float | None = None,
    log_baseline: float | None = None,
    tolerance: float = TOLERANCE,
    sampling: Sampling | None = None,
    goal: Success | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    released: LastWeights | None = None,
) -> Ceiling: ...


@overload
def bound(
    *,
    noise_multiplier: float | None = None,
    sample_rate: float = 1.0,
    steps: int = 1,
    baseline: float | None = None,
    log_baseline: float | None = None,
    tolerance: float = TOLERANCE,
    sampling: Sampling | None = None,
    goal: MeanSquaredError,
    epsilon: float | None = None,
    delta: float = 0.0,
    released: LastWeights | None = None,
) -> Floor: ...


def bound(
    *,
    noise_multiplier: float | None = None,
    sample_rate: float = 1.0,
    steps: int = 1,
    baseline: float | None = None,
    log_baseline: float | None = None,
    tolerance: float = TOLERANCE,
    sampling: Sampling | None = None,
    goal: Goal | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    released: LastWeights | None = None,
) -> Ceiling | Floor:
    """Certified ceiling on the success of any attack on DP-SGD, or on any (epsilon, delta)-DP mechanism.

    The adversary sees every noisy step and knows all records except the secret; each of `steps` updates, in all epochs
    together, sums clipped gradients over a batch and adds Gaussian noise of `noise_multiplier` times the clipping norm.
    `sampling` says how batches are drawn: Poisson(rate), BallsInBins(epochs), Shuffled(epochs), FixedSize(n, b),
    TruncatedPoisson(rate, n, largest), Cyclic(epochs) or FullBatch(), all of `lw.bounds`; Correlated(norm, bands,
    batches) if the noise is correlated. `sample_rate` alone is Poisson sampling at that rate. With `epsilon` and
    `delta` instead, the ceiling holds for every mechanism with that guarantee, and is higher.

    `goal` says what is at risk: Record() (the default), Records(k) together or Records(k, of=n), Attribute(prior),
    Membership(fpr), all of `lw.bounds`; MeanSquaredError(prior) gives a `Floor` under the error instead. For records,
    give the success of the best blind guess (`baseline`) or its natural log. The answer states what it assumes.
    `tolerance` is the relative width of the interval to aim at. `released=lw.bounds.LastWeights(lr, smoothness,
    convexity)` is for convex losses of which nobody sees any weights but the last.
    """
    log_kappa = None if baseline is None and log_baseline is None else checks.baseline(baseline, log_baseline)
    goal = wanted(goal)
    goal.checked(log_kappa)
    if epsilon is not None:
        others = (noise_multiplier, sample_rate, steps, sampling, tolerance, released)
        if others != (None, 1.0, 1, None, TOLERANCE, None):
            raise ValueError(
                "bound: epsilon is that of the whole training, for one record. Leave out noise_multiplier, "
                "sample_rate, steps, sampling and tolerance, and released, or, for a sharper ceiling, epsilon."
            )
        return goal.answer(guarantee_leak(epsilon, delta), log_kappa, TOLERANCE)
    if noise_multiplier is None:
        raise ValueError(
            "bound: the noise is missing. Pass noise_multiplier, with sample_rate and steps, or the epsilon and delta "
            "of a privacy guarantee."
        )
    if delta != 0:
        raise ValueError(
            f"bound: delta={delta:g} belongs to an epsilon. A ceiling of noise_multiplier needs none: leave it out."
        )
    noise, count = checks.noise_multiplier(noise_multiplier), checks.steps(steps)
    tolerance = checks.tolerance(tolerance)
    return goal.answer(
        noise_leak(noise, count, seen_batches(sampling, sample_rate, count, released)), log_kappa, tolerance
    )


@dataclass(frozen=True)
class Plan:
    """Noise that provably meets a target (0: met without noise), the ceiling that proves it, and (epsilon, delta)."""

    noise_multiplier: float
    epsilon: float
    delta: float
    ceiling: Ceiling
    adjacency: str = ADJACENCY
    epsilon_words: str = ""  # why epsilon is much larger than the ceiling suggests, where it is

    def __str__(self) -> str:
        lines = (
            f"noise multiplier {self.noise_multiplier:.6g}: {self.ceiling}",
            f"epsilon {self.epsilon:.4g} at delta {self.delta:g} ({self.adjacency})",
            self.epsilon_words,
        )
        return "\n".join(line for line in lines if line)

    def _repr_html_(self) -> str:
        limit, blind = at_most(self.ceiling.upper), percent(self.ceiling.baseline)
        return card(
            "calm",
            kicker="plan",
            headline=f"Noise multiplier {round_up(self.noise_multiplier)} limits every attack to {limit}.",
            facts=(
                (round_up(self.noise_multiplier), "noise multiplier", "standard deviation of the noise over the clip"),
                (
                    round_up(self.epsilon) if math.isfinite(self.epsilon) else "∞",
                    "ε",
                    f"at δ = {self.delta:g}; {self.adjacency}",
                ),
                (limit, "ceiling", f"success of any attack; a blind guess has {blind}"),
            ),
            text=[self.epsilon_words] if self.epsilon_words else [],
            small=self.ceiling.method,
        )


def calibrate(
    *,
    max_success: float,
    baseline: float | None = None,
    log_baseline: float | None = None,
    sample_rate: float = 1.0,
    steps: int = 1,
    delta: float = 1e-5,
    sampling: Sampling | None = None,
    goal: Success | None = None,
    released: LastWeights | None = None,
) -> Plan:
    """Least noise multiplier whose certified ceiling is at most `max_success`.

    To one part in ten thousand for Poisson sampling and closed forms, in a thousand for others and for other goals than
    Record(). Within a thousandth of the baseline it may be 1 % above the least; closer targets are refused. `sampling`,
    `goal` and `released` are those of `bound`.
    """
    aim = wanted_success(goal)
    log_kappa = None if baseline is None and log_baseline is None else checks.baseline(baseline, log_baseline)
    aim.checked(log_kappa)
    target = checks.max_success(max_success)
    count = checks.steps(steps)
    batches = seen_batches(sampling, sample_rate, count, released)
    delta = checks.probability("delta", delta, "It is the delta at which epsilon is reported, for instance 1e-5.")

    def at(noise: float, tolerance: float) -> Ceiling:
        return aim.answer(noise_leak(noise, count, batches), log_kappa, tolerance)

    blind = at(MAX_NOISE, TOLERANCE).log_baseline
    if math.log(target) <= blind:
        stated = f"baseline={baseline!r}" if log_baseline is None else f"exp(log_baseline={log_baseline!r})"
        stated = f"the blind guess's {math.exp(blind):.6g}" if log_kappa is None else stated
        raise ValueError(
            f"Expected max_success={max_success!r} to be above {stated}. Noise does not help against a blind "
            "guess: raise max_success, or choose a baseline with more candidates."
        )
    _check_resolved(target, blind, LEAST_TOLERANCE)
    if aim.is_one_record:
        noise, ceiling = _least_noise(target, blind, batches, count, at)
    else:
        noise, ceiling = _by_bisection(target, at)
    epsilon = batches.epsilon(noise, count, delta)
    return Plan(noise, epsilon, delta, ceiling, batches.adjacency, batches.epsilon_words)


def _by_bisection(target: float, at: Callable[[float, float], Ceiling]) -> tuple[float, Ceiling]:
    """For any goal: from above, to a thousandth."""
    high = 1.0
    while at(high, TOLERANCE).upper > target:
        high *= 2
        if high > MAX_NOISE:
            raise ValueError(
                f"Expected max_success={target!r} to be further above the baseline: this close, no noise is known to "
                "be enough. Raise max_success."
            )
    noise = _least_met(lambda noise: at(noise, TOLERANCE).upper <= target, high, MAX_NOISE_ERROR / 20)
    return noise, at(noise, TOLERANCE)


def _least_noise(
    target: float, log_kappa: float, sampling: Sampling, steps: int, at: Callable[[float, float], Ceiling]
) -> tuple[float, Ceiling]:
    """For one record: bracketed by full batches, then by the slope."""
    log_target = math.log(target)

    def excess(noise: float, tolerance: float) -> float:
        return at(noise, tolerance).log_upper - log_target

    # Full batches: Phi(Phi^-1(kappa) + sqrt(T) / s) = target. The same noise is enough for any sampling.
    gap = normal_quantile(log_target) - normal_quantile(log_kappa)
    full = min(sampling.length(steps) / gap, MAX_NOISE) if gap > 0 else MAX_NOISE
    if sampling.as_full_batches(steps):  # and needed
        return _first_to_meet(target, full, 1e-13, lambda noise: at(noise, SHARP_TOLERANCE))
    log_limit = sampling.log_limit(log_kappa, steps)
    if math.exp(log_limit) < target:
        of_sampling = at(1.0, TOLERANCE).assumptions[1:]
        return 0.0, Ceiling(log_kappa, log_limit, log_kappa, "the limit of no noise", assumptions=of_sampling)
    noise = _least_met(lambda noise: excess(noise, TOLERANCE) <= 0, full, TOLERANCE)
    slope = max((excess(0.9 * noise, TOLERANCE / 10) - excess(noise / 0.9, TOLERANCE / 10)) / math.log(1 / 0.81), 1e-6)
    close = sampling.precision
    sharp = min(SHARP_TOLERANCE * close / 2e-5, max(1e-9, slope * close / 4))  # a flat ceiling needs a smaller width
    for _ in range(8):
        move = excess(noise, sharp) / slope
        noise = min(full, noise * math.exp(max(-0.5, min(0.5, move))))
        if abs(move) < close / 4:
            break
    met = _first_to_meet(target, noise, close, lambda noise: at(noise, sharp))
    _check_resolved(target, log_kappa, met[1].relative_width if sampling.tight else sharp)
    return met


def _check_resolved(target: float, log_kappa: float, width: float) -> None:
    """Refuse a target that determines the noise s to no better than `MAX_NOISE_ERROR`.

    Near the blind guess gamma is kappa (1 + c / s): known to `width`, it determines s to width / log(gamma / kappa).
    """
    if width > MAX_NOISE_ERROR * (math.log(target) - log_kappa):
        raise ValueError(
            f"Expected max_success={target!r} to be further above the baseline: this close, ceilings (known to a "
            f"relative {width:.0e}) do not determine the noise. Raise max_success."
        )


def _least_met(is_met: Callable[[float], bool], noise: float, precision: float) -> float:
    """The least noise that meets a condition, from one that does, by bisection on its log."""
    low, high = noise / 2, noise
    while low > LEAST_NOISE and is_met(low):
        low, high = low / 2, low
    while high / low > 1 + precision:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_met(middle) else (middle, high)
    return high


def _first_to_meet(target: float, noise: float, gap: float, at: Callable[[float], Ceiling]) -> tuple[float, Ceiling]:
    """The first of noise (1 + gap), noise (1 + 2 gap), noise (1 + 4 gap), ... that provably meets the target."""
    while (ceiling := at(enough := noise * (1 + gap))).upper > target:
        gap *= 2
    return enough, ceiling
