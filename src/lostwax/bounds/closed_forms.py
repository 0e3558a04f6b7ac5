"""Ceilings in closed form, those of other privacy guarantees too; epsilon; probabilities kept as logs, bisection."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import betaincinv, gammainc, gammaln, log_ndtr, ndtri_exp

from lostwax.bounds import checks
from lostwax.bounds.ceiling import SMALLEST, Ceiling

ROUNDING = 4e-13  # relative error of a log computed here, measured against 60 digits in tests/bounds/closed_forms


class Interval(NamedTuple):
    """Both ends of a number."""

    low: float
    high: float


def gaussian(log_baseline: float, noise_multiplier: float, steps: int = 1, records: int = 1) -> Ceiling:
    """Ceiling for T full-batch Gaussian steps: Phi(Phi^-1(kappa) + k sqrt(T) / s) (Kaissis et al. 2023, 2307.03928)."""
    log_kappa = checks.log_baseline(log_baseline)
    noise = checks.noise_multiplier(noise_multiplier)
    distance = checks.records(records) * math.sqrt(checks.steps(steps)) / noise
    z = normal_quantile(log_kappa)
    ceiling = closed(float(log_ndtr(z + distance)), log_kappa, "Gaussian closed form")
    return replace(ceiling, log_slope=-distance * (z + distance / 2))  # d/dk Phi(z + m) = phi(z + m) / phi(z)


def single_step(log_baseline: float, noise_multiplier: float, sample_rate: float, records: int = 1) -> Ceiling:
    """Ceiling for one subsampled step: the sum over i of P[Binomial(k, q) = i] Phi(Phi^-1(kappa) + i / s).

    The mixture's ratio to the null grows with x, so the best test is again a threshold on x.
    """
    log_kappa = checks.log_baseline(log_baseline)
    noise = checks.noise_multiplier(noise_multiplier)
    rate, group = checks.sample_rate(sample_rate), checks.records(records)
    slack = 1e-14 * group if group > 1 else 0.0  # the log factorials of a group carry an absolute error
    log_weights = log_binomial(group, rate)
    z, moves = normal_quantile(log_kappa), np.arange(group + 1) / noise
    reached = z + moves
    log_gamma = float(np.logaddexp.reduce(log_weights + log_ndtr(reached)))
    if log_gamma >= -0.7:  # near 1, through its complement
        log_gamma = math.log1p(-math.exp(float(np.logaddexp.reduce(log_weights + log_ndtr(-reached)))))
    ceiling = closed(log_gamma, log_kappa, "single-step closed form, Poisson sampling", slack)
    return replace(ceiling, log_slope=float(np.logaddexp.reduce(log_weights - moves * (z + moves / 2))))


def log_binomial(trials: int, rate: float) -> np.ndarray:
    """Log probabilities of 0..trials successes."""
    i = np.arange(trials + 1)
    if rate == 1:
        return np.where(i == trials, 0.0, -np.inf)
    choose = gammaln(trials + 1) - gammaln(i + 1) - gammaln(trials - i + 1)
    weights: np.ndarray = choose + i * math.log(rate) + (trials - i) * math.log1p(-rate)
    return weights


def normal_quantile(log_probability: float) -> float:
    """Phi^-1 of exp(log_probability), with one Newton step on log Phi to take the last digits."""
    z = float(ndtri_exp(log_probability))
    if log_probability > -0.5:
        return z  # near 1 the log has too few digits to gain any
    log_value = float(log_ndtr(z))
    slope = math.exp(-z * z / 2 - 0.5 * math.log(2 * math.pi) - log_value)  # phi / Phi
    return z + (log_probability - log_value) / slope


def closed(log_gamma: float, log_kappa: float, method: str, slack: float = 0.0) -> Ceiling:
    """A closed form with its rounding error on both sides (`slack`: the absolute part), within [kappa, 1)."""
    log_gamma = max(log_gamma, log_kappa)
    log_upper = min(0.0, log_gamma * (1 - ROUNDING) + slack)
    log_lower = max(log_kappa, min(log_gamma * (1 + ROUNDING) - slack, -SMALLEST))
    return Ceiling(log_lower, log_upper, log_kappa, method)


def closed_above(log_gamma: float, log_kappa: float, method: str, *exponents: float) -> Ceiling:
    """An upper limit in closed form, with the rounding of these exponents."""
    slack = 1e-15 * (1 + abs(log_kappa) + sum(exponents))
    return replace(closed(log_gamma, log_kappa, method, slack), log_lower=log_kappa)


def exp(x: float) -> float:
    """exp(x), inf where it overflows."""
    return math.exp(x) if x < 709 else math.inf


def log(x: float) -> float:
    """log(x), -inf at 0."""
    return math.log(x) if x > 0 else -math.inf


def log_add(a: float, b: float) -> float:
    """log(exp(a) + exp(b))."""
    high, low = max(a, b), min(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


def log_one_minus(log_x: float) -> float:
    """log(1 - exp(log_x)) with all its digits at both ends; -inf from log_x = 0 on."""
    if log_x >= 0:
        return -math.inf
    return math.log1p(-math.exp(log_x)) if log_x < -0.7 else math.log(-math.expm1(log_x))


def bisect(low: float, high: float, is_low: Callable[[float], bool], rounds: int) -> Interval:
    """Both ends around the number up to which `is_low` holds, after this many halvings."""
    for _ in range(rounds):
        middle = (low + high) / 2
        low, high = (middle, high) if is_low(middle) else (low, middle)
    return Interval(low, high)


# Other privacy guarantees, and the epsilon of a training run.

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


# The baseline kappa, the success of the best blind guess (Balle et al. 2022, section VII-D).

DIMENSION = "It is the number of coordinates of a record."
RADIUS = "It is the distance up to which a guess counts as a success."


def log_kappa_ball(eta: float, dimension: int) -> float:
    """Log baseline of a record uniform in the unit ball, rebuilt to a Euclidean distance of eta: eta^d."""
    eta = checks.positive("eta", eta, RADIUS)
    d = checks.whole("dimension", dimension, DIMENSION)
    if eta >= 1:
        raise ValueError(
            f"Expected eta={eta!r} to be below 1, the radius of the ball: every record is within 1 of the centre, so a "
            "blind guess always succeeds. Choose a smaller eta."
        )
    return d * math.log(eta)


def log_kappa_gaussian(eta: float, sigma: float, dimension: int) -> float:
    """Log baseline of a record N(w, sigma^2 I), rebuilt to a distance of eta: P[chi2_d <= eta^2 / sigma^2]."""
    eta = checks.positive("eta", eta, RADIUS)
    sigma = checks.positive("sigma", sigma, "It is the standard deviation of the prior in each coordinate.")
    shape = checks.whole("dimension", dimension, DIMENSION) / 2
    x = (eta / sigma) ** 2 / 2
    if x > shape:  # in the bulk or beyond: nothing underflows
        return min(0.0, math.log(float(gammainc(shape, x))))
    # P(a, x) = x^a exp(-x) / Gamma(a + 1) * (1 + x / (a + 1) + x^2 / ((a + 1)(a + 2)) + ...), positive terms
    term, series, n = 1.0, 1.0, 0
    while term > 1e-17 * series:
        n += 1
        term *= x / (shape + n)
        series += term
    return shape * math.log(x) - x - float(gammaln(shape + 1)) + math.log(series)


def kappa_from_samples(
    samples: np.ndarray, metric: Callable[[np.ndarray, np.ndarray], np.ndarray], eta: float, confidence: float = 0.95
) -> float:
    """Upper limit of the baseline from N independent records of the prior (sharper than Hayes et al. 2023, app. J).

    The best guess is a fixed point, and the number of records near it is binomial: its Clopper-Pearson limit bounds
    kappa. That point is unknown, but records within eta of it are within 2 eta of each other, so the largest count
    around a *sample* at radius 2 eta is at least as large. `metric(samples, centre)` returns N distances and must
    satisfy the triangle inequality (the root of the mean squared error does, the mean squared error does not).
    """
    eta = checks.not_negative("eta", eta, RADIUS)
    confidence = checks.probability("confidence", confidence, "It is the chance that the limit holds, like 0.95.")
    number = len(samples)
    if number < 2:
        raise ValueError(f"Expected two or more samples, got {number}. Draw more records from the prior.")
    most = 0
    for centre in samples:
        distances = np.asarray(metric(samples, centre))
        if distances.shape != (number,) or not (distances >= 0).all():
            raise ValueError(
                f"Expected metric(samples, centre) to return {number} distances of 0 or more, got shape "
                f"{distances.shape}. Compare every sample with the one centre."
            )
        most = max(most, int((distances <= 2 * eta).sum()))
    return 1.0 if most == number else float(betaincinv(most + 1, number - most, confidence))


def log_kappa_pixels(dimension: int, tolerance: float, fraction: float) -> float:
    """Log baseline for a share `fraction` of d pixels, uniform in [0, 1], within `tolerance`.

    A guess of 1/2 hits each pixel independently with p = 2 tolerance, so the baseline is the binomial tail
    P[Binomial(d, p) >= fraction d]; p^(d fraction) in Hayes et al. 2023, appendix I, leaves out the choice of pixels.
    """
    d = checks.whole("dimension", dimension, DIMENSION)
    tolerance = checks.positive("tolerance", tolerance, "It is the distance allowed in each pixel, like 32 / 255.")
    share = checks.positive("fraction", fraction, "It is the share of pixels that must be close, in (0, 1].")
    if share > 1:
        raise ValueError(f"Expected fraction={fraction!r} to lie in (0, 1]. It is a share, not a count of pixels.")
    if (p := 2 * tolerance) >= 1:
        raise ValueError(
            f"Expected tolerance={tolerance!r} to be below 1/2: every pixel is within 1/2 of mid-grey, so a blind "
            f"guess always succeeds. It is in units of [0, 1]: 32 of 255 grey levels are 32/255 = {32 / 255:.4f}."
        )
    return min(0.0, float(np.logaddexp.reduce(log_binomial(d, p)[math.ceil(share * d - 1e-9) :])))
