"""The differential privacy of the same training run: in closed form, or from dp-accounting."""

from __future__ import annotations

import math

ADJACENCY = "add or remove one record"


def epsilon_of(noise_multiplier: float, sample_rate: float, steps: int, delta: float, interval: float = 1e-4) -> float:
    """The epsilon at this delta of T Poisson-sampled Gaussian steps, add-or-remove adjacency, rounded up.

    `interval` is the width of dp-accounting's loss grid: coarser is faster and only raises epsilon. Full batches need
    none: T steps tell as much as one with less noise.
    """
    if noise_multiplier == 0:
        return math.inf
    if sample_rate == 1:
        return _gaussian_epsilon(math.sqrt(steps) / noise_multiplier, delta)
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.privacy_accountant import NeighboringRelation

    step = dp_event.PoissonSampledDpEvent(sample_rate, dp_event.GaussianDpEvent(noise_multiplier))
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=interval)
    accountant.compose(step, steps)
    return float(accountant.get_epsilon(delta))


def _gaussian_epsilon(mu: float, delta: float) -> float:
    """Of one Gaussian step that a record moves by mu deviations (Balle and Wang 2018, Theorem 8)."""
    from scipy.optimize import brentq
    from scipy.special import log_ndtr, ndtr

    def excess(epsilon: float) -> float:
        return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))) - delta

    if excess(0.0) <= 0:
        return 0.0
    highest = mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta))  # the first term alone is below delta: Phi's tail
    return float(brentq(excess, 0.0, highest, xtol=1e-14 * highest, rtol=1e-12)) * (1 + 1e-9)
