"""Poisson-sampled DP-SGD: a two-sided certified ceiling (Hayes et al. 2023, without sampling error)."""

from __future__ import annotations

import math
from dataclasses import replace

from lostwax.bounds import checks
from lostwax.bounds.ceiling import SMALLEST, Ceiling
from lostwax.bounds.closed_forms import gaussian, log_one_minus, single_step
from lostwax.bounds.composed import narrowed
from lostwax.bounds.step_law import StepLaw, cut, place_window

METHOD = "privacy-loss distribution, Poisson sampling"
NEGLIGIBLE = 40.0  # exp(-40) is below the rounding error
LEAST_NOISE = 0.01  # below, the Gaussians are 100 deviations apart: the ceiling is the limit of no noise


def subsampled(
    log_baseline: float,
    noise_multiplier: float,
    sample_rate: float,
    steps: int,
    tolerance: float = 1e-4,
    records: int = 1,
) -> Ceiling:
    """Ceiling for T steps of Gaussian noise on Poisson samples, to a relative width of `tolerance`.

    gamma(kappa) = sup { mu(E) : nu(E) <= kappa } with nu = N(0, s^2)^T and mu the T-fold mixture of `StepLaw`.
    Upper end: one step's loss is spread onto a lattice (`Cells`), raised to the power T by one transform (`Composed`)
    and put through the duality (`log_upper_end`). Lower end: the exact power of a test that sees only the cells. Both
    converge like T h^2 in the cell width h, which is refined until they meet. The interval is valid at any width; if
    `tolerance` is out of reach it is wider, as `relative_width` shows.
    """
    log_kappa = checks.log_baseline(log_baseline)
    noise = checks.noise_multiplier(noise_multiplier)
    rate, count = checks.sample_rate(sample_rate), checks.steps(steps)
    tolerance = checks.probability("tolerance", tolerance, "It is the relative width to aim at, for instance 1e-4.")
    group = checks.records(records)
    if rate == 1:
        return gaussian(log_kappa, noise, count, group)
    if count == 1:
        return single_step(log_kappa, noise, rate, group)
    ceiling = _bracket(log_kappa, noise, rate, count, group)
    if ceiling.relative_width <= tolerance * 1e-3:
        return ceiling
    step = StepLaw(max(noise, LEAST_NOISE), rate, group, log_negligible=log_kappa - math.log(count) - 30)
    narrow = narrowed(
        ceiling,
        count,
        tolerance,
        lambda threshold: place_window(step, count, log_kappa, tolerance, threshold),
        lambda window: cut(step, window.spacing, window.right),
    )
    if noise >= LEAST_NOISE:
        return narrow
    return replace(narrow, log_upper=ceiling.log_upper, log_slope=ceiling.log_slope)


def _bracket(log_kappa: float, noise: float, rate: float, steps: int, group: int) -> Ceiling:
    """An interval in closed form.

    At least the single-step ceiling (ignore the other steps). At most the full-batch ceiling, and at most
    1 - (1 - q)^(k T) (1 - kappa): if no record of the group is ever drawn, nothing leaks. That is also the lower end if
    the noise is so small that every draw of a record is visible.
    """
    low = single_step(log_kappa, noise, rate, group).log_lower
    full = gaussian(log_kappa, noise, steps, group)
    log_never = steps * group * math.log1p(-rate)
    log_untouched = log_never + log_one_minus(log_kappa)  # log of 1 - the limit
    limit, slack = log_one_minus(log_untouched), 1e-13 * (1 - log_untouched)
    never = min(0.0, limit + slack)
    far = math.sqrt(2 * (NEGLIGIBLE - log_kappa + math.log(steps)))  # T Phi(-far) <= kappa exp(-NEGLIGIBLE)
    if 1 / noise > far + 10:  # a step with a record is beyond `far`, except with probability Phi(-10) = 1e-23
        low = max(low, min(limit - slack, -SMALLEST))
    slope = full.log_slope if full.log_upper < never else log_never
    return Ceiling(low, max(low, min(full.log_upper, never)), log_kappa, METHOD, log_slope=slope)
