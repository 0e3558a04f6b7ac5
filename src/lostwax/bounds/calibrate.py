"""The noise that keeps every attack below a given success."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from lostwax.bounds import checks
from lostwax.bounds.ceiling import Ceiling
from lostwax.bounds.closed_forms import normal_quantile
from lostwax.bounds.goals import Success, wanted_success
from lostwax.bounds.inequalities import ADJACENCY
from lostwax.bounds.leaks import Noise
from lostwax.bounds.poisson import LEAST_NOISE
from lostwax.bounds.sampling import Sampling, drawn
from lostwax.cards import card
from lostwax.numerals import at_most, percent, round_up

COARSE = 1e-4  # relative width of ceilings during the search
SHARP = 1e-6  # relative width of the final ceilings
MOST_NOISE = 1e12
MOST_ERROR = 0.01  # relative error of the noise, at most
ROUNDED = 1e-10  # the least relative width of a ceiling


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
        """The noise, the ceiling, and epsilon."""
        lines = (
            f"noise multiplier {self.noise_multiplier:.6g}: {self.ceiling}",
            f"epsilon {self.epsilon:.4g} at delta {self.delta:g} ({self.adjacency})",
            self.epsilon_words,
        )
        return "\n".join(line for line in lines if line)

    def _repr_html_(self) -> str:
        """A card, for notebooks."""
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
    sampling: Sampling | str | None = None,
    goal: Success | None = None,
) -> Plan:
    """Least noise multiplier whose certified ceiling is at most `max_success`.

    To one part in ten thousand for Poisson sampling and closed forms, in a thousand for others and for other goals than
    Record(). Within a thousandth of the baseline it may be 1 % above the least; closer targets are refused. `sampling`
    and `goal` are those of `bound`.
    """
    aim = wanted_success(goal)
    log_kappa = None if baseline is None and log_baseline is None else checks.baseline(baseline, log_baseline)
    aim.checked(log_kappa)
    target = checks.max_success(max_success)
    count = checks.steps(steps)
    batches = drawn(sampling, sample_rate, count)
    delta = checks.probability("delta", delta, "It is the delta at which epsilon is reported, for instance 1e-5.")

    def at(noise: float, tolerance: float) -> Ceiling:
        return aim.answer(Noise(noise, count, batches), log_kappa, tolerance)

    blind = at(MOST_NOISE, COARSE).log_baseline
    if math.log(target) <= blind:
        given = f"baseline={baseline!r}" if log_baseline is None else f"exp(log_baseline={log_baseline!r})"
        given = f"the blind guess's {math.exp(blind):.6g}" if log_kappa is None else given
        raise ValueError(
            f"Expected max_success={max_success!r} to be above {given}. Noise does not help against a blind "
            "guess: raise max_success, or choose a baseline with more candidates."
        )
    _check_resolved(target, blind, ROUNDED)
    if aim.is_one_record:
        noise, ceiling = _least_noise(target, blind, batches, count, at)
    else:
        noise, ceiling = _by_bisection(target, at)
    epsilon = batches.epsilon(noise, count, delta)
    return Plan(noise, epsilon, delta, ceiling, batches.adjacency, batches.epsilon_words)


def _by_bisection(target: float, at: Callable[[float, float], Ceiling]) -> tuple[float, Ceiling]:
    """For any goal: from above, to a thousandth."""
    high = 1.0
    while at(high, COARSE).upper > target:
        high *= 2
        if high > MOST_NOISE:
            raise ValueError(
                f"Expected max_success={target!r} to be further above the baseline: this close, no noise is known to "
                "be enough. Raise max_success."
            )
    low = high / 2
    while low > LEAST_NOISE and at(low, COARSE).upper <= target:
        low, high = low / 2, low
    while high / low > 1 + MOST_ERROR / 20:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if at(middle, COARSE).upper <= target else (middle, high)
    return high, at(high, COARSE)


def _least_noise(
    target: float, log_kappa: float, sampling: Sampling, steps: int, at: Callable[[float, float], Ceiling]
) -> tuple[float, Ceiling]:
    """For one record: bracketed by full batches, then by the slope."""
    log_target = math.log(target)

    def excess(noise: float, tolerance: float) -> float:
        return at(noise, tolerance).log_upper - log_target

    # Full batches: Phi(Phi^-1(kappa) + sqrt(T) / s) = target. The same noise is enough for any sampling.
    gap = normal_quantile(log_target) - normal_quantile(log_kappa)
    visits = sampling.sensitivity * math.sqrt(sampling.visits(steps))
    full = min(visits / gap, MOST_NOISE) if gap > 0 else MOST_NOISE
    if sampling.as_full_batches(steps):  # and needed
        return _first_to_meet(target, full, 1e-13, lambda noise: at(noise, SHARP))
    log_limit = sampling.log_limit(log_kappa, steps)
    if math.exp(log_limit) < target:
        of_sampling = at(1.0, COARSE).assumptions[1:]
        return 0.0, Ceiling(log_kappa, log_limit, log_kappa, "the limit of no noise", assumptions=of_sampling)
    noise = _root(lambda noise: excess(noise, COARSE), full)
    slope = max((excess(0.9 * noise, COARSE / 10) - excess(noise / 0.9, COARSE / 10)) / math.log(1 / 0.81), 1e-6)
    close = sampling.precision
    sharp = min(SHARP * close / 2e-5, max(1e-9, slope * close / 4))  # a flat ceiling needs a smaller width
    for _ in range(8):
        move = excess(noise, sharp) / slope
        noise = min(full, noise * math.exp(max(-0.5, min(0.5, move))))
        if abs(move) < close / 4:
            break
    met = _first_to_meet(target, noise, close, lambda noise: at(noise, sharp))
    _check_resolved(target, log_kappa, met[1].relative_width if sampling.tight else sharp)
    return met


def _check_resolved(target: float, log_kappa: float, width: float) -> None:
    """Refuse a target that determines the noise s to no better than `MOST_ERROR`.

    Near the blind guess gamma is kappa (1 + c / s): known to `width`, it determines s to width / log(gamma / kappa).
    """
    if width > MOST_ERROR * (math.log(target) - log_kappa):
        raise ValueError(
            f"Expected max_success={target!r} to be further above the baseline: this close, ceilings (known to a "
            f"relative {width:.0e}) do not determine the noise. Raise max_success."
        )


def _root(excess: Callable[[float], float], high: float) -> float:
    """The noise at which a falling function is zero, by bisection on its log from above."""
    low = high / 2
    while excess(low) < 0 and low > LEAST_NOISE:
        low, high = low / 2, low
    while high / low > 1 + COARSE:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high


def _first_to_meet(target: float, noise: float, gap: float, at: Callable[[float], Ceiling]) -> tuple[float, Ceiling]:
    """The first of noise (1 + gap), noise (1 + 2 gap), noise (1 + 4 gap), ... that provably meets the target."""
    while (ceiling := at(enough := noise * (1 + gap))).upper > target:
        gap *= 2
    return enough, ceiling
