"""From Renyi DP to a ceiling (S1 Theorem 2)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import logsumexp

from lostwax.bounds import checks
from lostwax.bounds.ceiling import Ceiling
from lostwax.bounds.gaussian import closed_above
from lostwax.bounds.step_law import StepLaw


def from_rdp(log_baseline: float, orders: Sequence[float], epsilons: Sequence[float]) -> Ceiling:
    """Ceiling under (order, epsilon)-RDP for several orders at once: the least of the bounds.

    Offer real orders from 1.05 up: the best one often lies between 2 and 8. An infinite epsilon drops its order.
    """
    log_kappa = checks.log_baseline(log_baseline)
    a, eps = np.asarray(orders, float), np.asarray(epsilons, float)
    if a.ndim != 1 or a.shape != eps.shape or a.size == 0:
        raise ValueError(
            f"Expected orders and epsilons of one length, got shapes {a.shape} and {eps.shape}. "
            "Give one epsilon for each order."
        )
    if not (a > 1).all():
        raise ValueError(f"Expected orders above 1, got {a[~(a > 1)][0]}. Leave that order out.")
    if not (eps >= 0).all():
        raise ValueError(f"Expected epsilons of 0 or more, got {eps[~(eps >= 0)][0]}. Leave that order out.")
    shrink = -np.expm1(-np.log(a))  # 1 - 1 / a, to the last digit also where a is near 1
    logs = shrink * (log_kappa + eps)  # (kappa e^eps)^((a - 1) / a)
    best = int(np.argmin(logs))
    if logs[best] >= 0:
        return Ceiling(log_kappa, 0.0, log_kappa, "Renyi DP")
    return closed_above(float(logs[best]), log_kappa, "Renyi DP", float(eps[best]))


def renyi_epsilons(noise_multiplier: float, sample_rate: float, steps: int, orders: Sequence[float]) -> list[float]:
    """Renyi epsilons of T Poisson-sampled Gaussian steps, remove direction: T log E_nu[R^a] / (a - 1).

    By the trapezium rule, which is exact to rounding for these integrands; real orders are as good as whole ones.
    """
    noise, rate = checks.noise_multiplier(noise_multiplier), checks.sample_rate(sample_rate)
    count = checks.steps(steps)
    if rate == 1:
        return [order * count / (2 * noise**2) for order in orders]
    step = StepLaw(noise, rate)
    z = np.linspace(-12.0, 12 + max(orders) / noise, max(4001, int(max(orders) / noise * 40)))
    log_null = math.log(z[1] - z[0]) - z**2 / 2 - 0.5 * math.log(2 * math.pi)
    loss = step.loss(z)
    return [count * max(0.0, float(logsumexp(log_null + order * loss))) / (order - 1) for order in orders]
