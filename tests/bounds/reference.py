"""Slow, plain and independent: the ceiling of T subsampled steps from the definition, to 25 digits.

With M(u) = E_nu[R^u] for one step and L the loss of T of them, both tails are contour integrals,
    nu(L > c) = 1/(2 pi i) * integral of M(u)^T exp(-u c) / u du            on Re u = a > 0,
    mu(L > c) = 1/(2 pi i) * integral of M(u)^T exp(-(u - 1) c) / (u - 1) du, plus 1 when a < 1.
By Neyman and Pearson gamma(nu(L > c)) = mu(L > c): choosing c gives a pair (kappa, gamma) with no discretisation.
"""

from __future__ import annotations

import math

import mpmath
from mpmath import mp, mpc, mpf


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
