"""The differential privacy of the same training run: in closed form, or from dp-accounting."""

from __future__ import annotations

import math

ADJACENCY = "add or remove one record"


def epsilon_of(noise_multiplier: float, sample_rate: float, steps: int, delta: float, interval: float = 1e-4) -> float:
    """The epsilon at this delta of T Poisson-sampled Gaussian steps, add-or-remove adjacency, rounded up.

    `interval` is the width of dp-accounting's loss grid: coarser is faster and only raises epsilon. Where there is
    little noise and losses are large, it grows with them: memory goes by losses over their grid. Full batches need
    none, T steps tell as much as one with less noise, and sampled ones tell no more than these.
    """
    if noise_multiplier == 0:
        return math.inf
    full = _gaussian_epsilon(math.sqrt(steps) / noise_multiplier, delta)
    if sample_rate == 1:
        return full
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.privacy_accountant import NeighboringRelation
    from dp_accounting.rdp import RdpAccountant

    step = dp_event.PoissonSampledDpEvent(sample_rate, dp_event.GaussianDpEvent(noise_multiplier))
    one = NeighboringRelation.ADD_OR_REMOVE_ONE
    loss = 1 / (2 * noise_multiplier**2)  # of a step that drew the record, mean
    grid = PLDAccountant(one, value_discretization_interval=interval * max(1.0, loss)).compose(step, steps)
    epsilon = float(grid.get_epsilon(delta))
    if epsilon == math.inf:  # delta is less than what the grid cuts off: Renyi DP cuts nothing off
        epsilon = float(RdpAccountant(neighboring_relation=one).compose(step, steps).get_epsilon(delta))
    return min(full, epsilon)


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
