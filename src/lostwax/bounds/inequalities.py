"""Ceilings from other privacy guarantees, and the epsilon of a training run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from scipy.special import logsumexp

from lostwax.bounds import checks
from lostwax.bounds.ceiling import Ceiling
from lostwax.bounds.closed_forms import closed_above, log, log_add
from lostwax.bounds.step_law import StepLaw

ADJACENCY = "add or remove one record"


@cache  # dp-accounting takes a second or more
def epsilon_of(noise_multiplier: float, sample_rate: float, steps: int, delta: float, interval: float = 1e-4) -> float:
    """The epsilon at this delta of T Poisson-sampled Gaussian steps, add-or-remove adjacency, rounded up.

    `interval` is the width of dp-accounting's loss grid: coarser is faster and only raises epsilon.
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
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    loss = 1 / (2 * noise_multiplier**2)  # of a step that drew the record, mean
    grid = PLDAccountant(relation, value_discretization_interval=interval * max(1.0, loss)).compose(step, steps)
    epsilon = float(grid.get_epsilon(delta))
    if epsilon == math.inf:  # delta is below the mass that the grid cuts off; Renyi DP cuts off none
        epsilon = float(RdpAccountant(neighboring_relation=relation).compose(step, steps).get_epsilon(delta))
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


def from_dp(log_baseline: float, epsilon: float, delta: float = 0.0) -> Ceiling:
    """Ceiling under (epsilon, delta)-DP (Balle et al. 2022, Corollary 3 for delta = 0).

    The null is the mechanism run on a data set without the record: another one in its place (substitution, as in Balle
    et al. 2022) or none (add or remove, as in Hayes et al. 2023). An event of null probability kappa has probability at
    most exp(epsilon) kappa + delta; its complement at least exp(-epsilon) (1 - kappa - delta).
    """
    log_kappa = checks.log_baseline(log_baseline)
    epsilon, delta = checks.privacy(epsilon, delta)
    log_event = log_add(log_kappa + epsilon, log(delta))
    log_complement = log_add(log(-math.expm1(-epsilon)), log_add(log_kappa, log(delta)) - epsilon)
    # 1 - e^-eps (1 - kappa - delta) = (1 - e^-eps) + e^-eps (kappa + delta): positive terms
    ceiling = closed_above(min(0.0, log_event, log_complement), log_kappa, "(epsilon, delta)-DP", epsilon)
    if ceiling.log_upper == 0:
        return replace(ceiling, log_slope=-math.inf)
    return replace(ceiling, log_slope=epsilon if log_event < log_complement else -epsilon)


def from_rdp(log_baseline: float, orders: Sequence[float], epsilons: Sequence[float]) -> Ceiling:
    """Ceiling under (order, epsilon)-RDP, the least over several orders (Balle et al. 2022, Theorem 2).

    Pass real orders from 1.05 up: the best is often between 2 and 8. An infinite epsilon drops its order.
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
    """Renyi epsilons of T Poisson-sampled Gaussian steps, remove direction: T log E_nu[R^a] / (a - 1)."""
    noise, rate = checks.noise_multiplier(noise_multiplier), checks.sample_rate(sample_rate)
    count = checks.steps(steps)
    if rate == 1:
        return [order * count / (2 * noise**2) for order in orders]
    z = np.linspace(-12.0, 12 + max(orders) / noise, max(4001, int(max(orders) / noise * 40)))
    log_null = math.log(z[1] - z[0]) - z**2 / 2 - 0.5 * math.log(2 * math.pi)
    loss = StepLaw(noise, rate).loss(z)
    return [count * max(0.0, float(logsumexp(log_null + order * loss))) / (order - 1) for order in orders]


def step_divergence(noise_multiplier: float, sample_rate: float) -> float:
    """KL(mu || nu) = E_nu[R log R] of one Poisson-sampled Gaussian step, rounded up.

    The trapezium rule errs by less than 1e-12 of a function that is this smooth; R log R + 1 - R has no negative parts
    that could cancel.
    """
    noise, rate = checks.noise_multiplier(noise_multiplier), checks.sample_rate(sample_rate)
    if rate == 1 or noise < 0.05:
        return rate / (2 * noise**2)  # KL is convex
    h = min(1.0, noise) / 20
    z = np.arange(-12, 12 + 1 / noise, h)
    loss = StepLaw(noise, rate).loss(z)
    terms = np.exp(-(z**2) / 2) * (np.exp(loss) * loss - np.expm1(loss))
    return float(terms.sum()) * h / math.sqrt(2 * math.pi) * (1 + 1e-9) + 1e-15


def from_zcdp(log_baseline: float, rho: float) -> Ceiling:
    """Ceiling under rho-zCDP: exp(-(sqrt(log 1/kappa) - sqrt(rho))^2), and 1 from rho = log 1/kappa on.

    Balle et al. 2022, Corollary 4, whose formula falls again beyond that point, where its best order is below 1.
    """
    log_kappa = checks.log_baseline(log_baseline)
    rho = checks.not_negative("rho", rho, "It is the zCDP parameter, T / (2 s^2) for T full-batch Gaussian steps.")
    gap = max(0.0, math.sqrt(-log_kappa) - math.sqrt(rho))
    return closed_above(-(gap**2), log_kappa, "zero-concentrated DP", rho)
