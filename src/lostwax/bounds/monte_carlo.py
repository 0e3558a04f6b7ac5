"""The sampled ceiling of Hayes et al. (2023): an estimate with confidence limits, for comparison, not certified."""

from __future__ import annotations

import math
import sys

import numpy as np

from lostwax.bounds import checks
from lostwax.bounds.ceiling import Ceiling
from lostwax.bounds.step_law import Array, StepLaw


def monte_carlo(
    log_baseline: float,
    noise_multiplier: float,
    sample_rate: float,
    steps: int,
    *,
    samples: int = 1_000_000,
    confidence: float = 0.95,
    repaired: bool = True,
    seed: int = 0,
) -> Ceiling:
    """Estimate gamma from sampled likelihood ratios R = dmu/dnu under nu.

    Hayes et al. 2023, Algorithm 1, sums the top kappa N of N ratios, which is erratic: R has a heavy tail. Since
    E_nu[R] = 1, the `repaired` form takes 1 minus the mean of the bottom (1 - kappa) N, which are bounded. Both limits
    hold together with the given confidence, for either estimate.
    """
    log_kappa = checks.log_baseline(log_baseline)
    noise = checks.noise_multiplier(noise_multiplier)
    rate, count = checks.sample_rate(sample_rate), checks.steps(steps)
    number = checks.whole("samples", samples, "It is the number of sampled runs, like 1,000,000.", lowest=1000)
    confidence = checks.probability("confidence", confidence, "It is the chance that both limits hold.")
    kappa = math.exp(log_kappa)
    if kappa * number < 10:
        raise ValueError(
            f"Expected at least 10 / baseline samples, got {number} for a baseline of {kappa:.3g}. "
            "Sampling cannot see events this rare: use lostwax.bound, which is exact."
        )
    ratios = np.exp(np.minimum(_losses(noise, rate, count, number, seed), 700.0))
    low, high = limits(ratios, kappa, (1 - confidence) / 3)
    ordered = np.sort(ratios)
    top = round(kappa * number)
    value = 1 - ordered[:-top].sum() / number if repaired else ordered[-top:].sum() / number
    method = f"Monte Carlo, {'bottom' if repaired else 'top'} ratios of {number}, limits at {confidence:g}"
    estimate = min(1.0, max(kappa, float(value)))
    return Ceiling(math.log(max(low, kappa)), math.log(min(high, 1.0)), log_kappa, method, False, estimate)


def _losses(noise: float, rate: float, steps: int, number: int, seed: int) -> Array:
    """Log ratios of `number` runs drawn from nu, one step at a time: (number,)."""
    generator = np.random.default_rng(seed)
    if rate == 1:
        distance = math.sqrt(steps) / noise
        return distance * generator.standard_normal(number) - distance**2 / 2
    step = StepLaw(noise, rate)
    return np.asarray(sum(step.loss(generator.standard_normal(number)) for _ in range(steps)))


def limits(ratios: Array, kappa: float, failure: float) -> tuple[float, float]:
    """Limits of gamma, each of three statements wrong with chance `failure`.

    The first half of the ratios selects a level t, the second evaluates it, so that t does not depend on the second.
    Upper: gamma <= E[(R - t)_+] + t kappa = 1 - E[min(R, t)] + t kappa.
    Lower: the test R > t has power 1 - E[R; R <= t], and is diluted where its null probability exceeds kappa.
    """
    half = ratios.size // 2
    level = max(float(np.quantile(ratios[:half], 1 - kappa)), sys.float_info.min)  # all may underflow
    held_out = ratios[half:]
    high = 1 - level * _mean_limit(np.minimum(held_out, level) / level, failure, -1) + level * kappa
    size = _mean_limit((held_out > level).astype(float), failure, +1)
    power = 1 - level * _mean_limit(np.where(held_out <= level, held_out, 0.0) / level, failure, +1)
    return power * min(1.0, kappa / size), high


def _mean_limit(values: Array, failure: float, side: int) -> float:
    """One-sided limit of the mean of values in [0, 1]: empirical Bernstein (Maurer and Pontil 2009, Theorem 4)."""
    n, log_term = values.size, math.log(2 / failure)
    spread = math.sqrt(2 * float(values.var(ddof=1)) * log_term / n) + 7 * log_term / (3 * (n - 1))
    return min(1.0, max(0.0, float(values.mean()) + side * spread))
