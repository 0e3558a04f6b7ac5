"""Slow, plain and independent: the ceiling of T subsampled steps from the definition, to 25 digits.

With M(u) = E_nu[R^u] for one step and L the loss of T of them, both tails are contour integrals,
    nu(L > c) = 1/(2 pi i) * integral of M(u)^T exp(-u c) / u du            on Re u = a > 0,
    mu(L > c) = 1/(2 pi i) * integral of M(u)^T exp(-(u - 1) c) / (u - 1) du, plus 1 when a < 1.
By Neyman and Pearson gamma(nu(L > c)) = mu(L > c): choosing c gives a pair (kappa, gamma) with no discretisation.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
from mpmath import mp, mpc, mpf
from scipy.optimize import brentq, minimize_scalar
from scipy.special import ndtr

from of_papers import paper_lib

limits = paper_lib("other_bounds").limits


def contour_pair(
    noise: float, rate: float, steps: int, threshold: float, line: float, *, half_width: float, nodes: int
) -> tuple[float, float]:
    """(log kappa, log gamma) of the test L > threshold; trapezium rule on line + i [-half_width, half_width]."""
    with mp.workdps(30):
        losses, weights = _one_step(noise, rate)
        step = mpf(half_width) / nodes
        null, hit = mpf(0), mpf(0)
        for k in range(nodes + 1):
            u = mpc(line, k * step)
            moment = mpmath.fsum(w * mpmath.exp(u * loss) for w, loss in zip(weights, losses, strict=True))
            power = moment**steps * mpmath.exp(-u * threshold)
            share = mpf(1) / 2 if k == 0 else mpf(1)  # the two halves are conjugate
            null += share * (power / u).real
            hit += share * (power / (u - 1)).real
        scale = step / mpmath.pi
        gamma = hit * scale * mpmath.exp(threshold) + (1 if line < 1 else 0)
        return float(mpmath.log(null * scale)), float(mpmath.log(gamma))


def gaussian_pair(log_kappa: float, distance: float) -> mpf:
    """log Phi(Phi^-1(kappa) + distance) to 40 digits."""
    with mp.workdps(60):
        z = _quantile(mpf(log_kappa)) + mpf(distance)
        return mpmath.log(mpmath.ncdf(z)) if z < 0 else mpmath.log1p(-mpmath.ncdf(-z))


def single_step(log_kappa: float, noise: float, rate: float) -> mpf:
    """log of (1 - q) kappa + q Phi(Phi^-1(kappa) + 1 / s) to 40 digits."""
    with mp.workdps(60):
        q, z = mpf(rate), _quantile(mpf(log_kappa))
        return mpmath.log((1 - q) * mpmath.exp(mpf(log_kappa)) + q * mpmath.ncdf(z + 1 / mpf(noise)))


def _quantile(log_kappa: mpf) -> mpf:
    """Newton on log Phi, from the first term of the tail expansion."""
    z = -mpmath.sqrt(-2 * log_kappa) if log_kappa < -2 else mpf(0)
    for _ in range(200):
        value = mpmath.ncdf(z)
        move = (mpmath.log(value) - log_kappa) * value / mpmath.npdf(z)
        z -= move
        if abs(move) < mpf(10) ** -50:
            break
    return z


def _one_step(noise: float, rate: float) -> tuple[list[mpf], list[mpf]]:
    """Losses and null weights of one step on an equidistant grid: exponentially accurate for a smooth integrand."""
    s, q, h = mpf(noise), mpf(rate), mpf(min(0.125, noise / 4))
    reach = math.ceil((13 + 3 / noise) / float(h))
    points = [k * h for k in range(-math.ceil(13 / float(h)), reach + 1)]
    losses = [mpmath.log(1 - q + q * mpmath.exp(z / s - 1 / (2 * s * s))) for z in points]
    return losses, [h * mpmath.npdf(z) for z in points]


def one_of_two_steps(noise: float, log_kappa: float) -> float:
    """log gamma of one epoch of two steps with the record in one of them, by integration in 25 digits."""
    with mp.workdps(25):
        s = mpf(noise)

        def exceeds(left: mpf, shift: mpf) -> mpf:
            """P[Y_1 + Y_2 > left], Y = exp(z / s - 1 / (2 s^2)), the first z shifted."""
            edge = s * mpmath.log(left) + 1 / (2 * s)  # beyond it, the first is enough

            def rest(z: mpf) -> mpf:
                remaining = left - mpmath.exp(z / s - 1 / (2 * s * s))
                needed = s * mpmath.log(remaining) + 1 / (2 * s) if remaining > 0 else -mpmath.inf
                return mpmath.npdf(z - shift) * mpmath.ncdf(-needed)

            cuts = [edge - mpf(d) for d in (*range(60, 2, -2), 1.5, 0.7, 0.3, 0.1, 0.02, 0)]
            return mpmath.quad(rest, cuts, maxdegree=4) + mpmath.ncdf(shift - edge)

        def null(log_t: mpf) -> mpf:
            return mpmath.log(exceeds(2 * mpmath.exp(log_t), mpf(0))) - mpf(log_kappa)

        log_t = mpmath.findroot(null, (mpf(0), mpf(1)), solver="anderson", tol=1e-16, verify=False)
        return float(mpmath.log(exceeds(2 * mpmath.exp(log_t), 1 / s)))


def one_of_few_steps(noise: float, steps: int, log_kappa: float) -> float:
    """The same for any number of steps, in double precision: nested Gauss rules, graded towards the edge."""
    nodes, weights = np.polynomial.legendre.leggauss(16)
    cuts = np.concatenate([np.arange(-60.0, -2.0), -np.geomspace(2, 1e-6, 40), [0.0]])  # a deviation wide at most
    centre, half = (cuts[1:] + cuts[:-1]) / 2, np.diff(cuts) / 2
    away = (centre[:, None] + half[:, None] * nodes).ravel()
    weight = (half[:, None] * weights).ravel()

    def exceeds(left: np.ndarray, remaining: int, shift: float) -> np.ndarray:
        """P[the remaining Y add up to more than `left`], the first of them shifted."""
        with np.errstate(divide="ignore"):
            edge = noise * np.log(np.maximum(left, 0)) + 1 / (2 * noise)
        if remaining == 1:
            return ndtr(shift - edge)
        total = ndtr(shift - edge)
        for where in np.flatnonzero(edge > -30):
            z = edge[where] + away
            rest = exceeds(left[where] - np.exp(z / noise - 1 / (2 * noise**2)), remaining - 1, 0.0)
            total[where] += weight @ (np.exp(-((z - shift) ** 2) / 2) * rest) / math.sqrt(2 * math.pi)
        return total

    def null(log_t: float) -> float:
        found = float(exceeds(np.array([steps * math.exp(log_t)]), steps, 0.0)[0])
        return math.log(max(found, 1e-300)) - log_kappa

    log_t = brentq(null, -8 / noise, 8 / noise, xtol=1e-13)
    return math.log(float(exceeds(np.array([steps * math.exp(log_t)]), steps, 1 / noise)[0]))


def sampled_limits(
    noise: float, steps: int, epochs: int, kappa: float, *, samples: int, seed: int, failure: float = 1e-6
) -> tuple[float, float]:
    """Limits of gamma for balls-in-bins from sampled ratios, each wrong with probability `failure`."""
    generator = np.random.default_rng(seed)
    loss = np.zeros(samples)
    at_once = max(1, 2_000_000 // steps)
    for _ in range(epochs):
        for first in range(0, samples, at_once):
            z = generator.standard_normal((min(at_once, samples - first), steps))
            loss[first : first + at_once] += np.log(np.exp(z / noise - 1 / (2 * noise**2)).mean(1))
    return limits(np.exp(np.minimum(loss, 700.0)), kappa, failure)


def grid_delta(noise: float, steps: int, rate: float | None = None):
    """t -> E_nu[(R - t)_+] of T steps by the trapezium rule in T dimensions; one step per epoch if no rate is given."""
    size = {1: 20_001, 2: 801, 3: 161}[steps]
    z = np.linspace(-7.5, 7.5 + 1 / noise, size)
    weight = (z[1] - z[0]) * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    moved = np.exp(z / noise - 1 / (2 * noise**2))
    one = moved if rate is None else 1 - rate + rate * moved
    ratio, mass = one, weight
    for _ in range(steps - 1):
        ratio = (np.add if rate is None else np.multiply).outer(ratio, one).ravel()
        mass = np.multiply.outer(mass, weight).ravel()
    if rate is None:
        ratio = ratio / steps
    return lambda t: float(mass @ np.maximum(ratio - t, 0.0))


def best_answer(delta, prior) -> float:
    """max over q of sum_a p_a gamma(q_a), by its dual, from the definition."""

    def dual(log_level: float) -> float:
        level = math.exp(log_level)
        return level + sum(p * delta(level / p) for p in prior)

    found = minimize_scalar(dual, bounds=(-12.0, 4.0), method="bounded", options={"xatol": 1e-5})
    return float(found.fun)
