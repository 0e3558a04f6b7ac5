"""The differential privacy of the same training run, from dp-accounting."""

from __future__ import annotations

import math

ADJACENCY = "add or remove one record"


def epsilon_of(noise_multiplier: float, sample_rate: float, steps: int, delta: float, interval: float = 1e-4) -> float:
    """The epsilon at this delta of T Poisson-sampled Gaussian steps, add-or-remove adjacency, rounded up.

    `interval` is the width of dp-accounting's loss grid: coarser is faster and only raises epsilon.
    """
    if noise_multiplier == 0:
        return math.inf
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.privacy_accountant import NeighboringRelation

    step: dp_event.DpEvent = dp_event.GaussianDpEvent(noise_multiplier)
    if sample_rate < 1:
        step = dp_event.PoissonSampledDpEvent(sample_rate, step)
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=interval)
    accountant.compose(step, steps)
    return float(accountant.get_epsilon(delta))
