"""Where to look: the tilt, the spacing and the window that resolve the T-step test at a given null probability.

Nothing here is part of the proof. A bad choice costs width, never validity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import erfcx

from lostwax.bounds.cells import LEFT
from lostwax.bounds.step_law import Array, StepLaw

LOG_OUTSIDE = math.log(1e-18)  # aim at this mass outside the window


@dataclass(frozen=True)
class Aim:
    """tilt: lambda of the law exp(lambda L) dnu that is centred on the threshold, where its mean is.

    below, above: how far the window reaches from that law's mean; slope_below, slope_above: the Chernoff
    exponents that prove it; spacing: the width of a cell; right: the last z of the grid; span: its range of losses.
    """

    tilt: float
    mean: float
    spacing: float
    below: float
    above: float
    slope_below: float
    slope_above: float
    right: float
    span: float


def aim(step: StepLaw, steps: int, log_kappa: float, tolerance: float, threshold: float | None = None) -> Aim:
    """Solve the saddle point T K'(lambda) = threshold, K the cumulants of one step's loss under nu.

    A threshold not yet known is taken where P_nu[L > T K'(lambda)] = kappa to first order. That is poor where a
    single lucky step carries the tilted law far away, and better once the threshold itself has been found.
    """
    right = _right(step, log_kappa + math.log(tolerance) - math.log(steps) - 7)
    z = np.linspace(LEFT, right, max(4001, int((right - LEFT) / 0.05)))
    curve = _Cumulants(z, step.loss(z), steps)
    tilt = _saddle(curve, log_kappa) if threshold is None else _centre(curve, threshold)
    _, mean, variance = curve(tilt)
    deviation = math.sqrt(variance)
    # Spreading widens L by about h^2 / 6 a step, merging by h^2 / 12; gamma moves by half of mu's density at the
    # threshold times that. Mills' ratio of the saddle point gives the density relative to gamma.
    mills = float(erfcx((tilt - 1) * deviation / math.sqrt(2))) / 2
    density = 1 / (math.sqrt(2 * math.pi) * deviation * mills) if mills < math.inf else 0.0
    spacing = math.sqrt(4 * tolerance / (steps * max(density, 1e-200)))
    spacing = min(spacing, deviation / math.sqrt(steps) / 4, 20 / (step.noise * (right + 4)))
    above, slope_above = _reach(curve, tilt, deviation, +1)
    below, slope_below = _reach(curve, tilt, deviation, -1)
    span = float(curve.loss[-1]) - step.log_least
    return Aim(tilt, mean, spacing, below, above, slope_below, slope_above, right, span)


@dataclass(frozen=True)
class _Cumulants:
    """T times the log moments of one step's loss under nu and their first two derivatives, by the trapezium rule."""

    z: Array
    loss: Array
    steps: int

    def __call__(self, tilt: float) -> tuple[float, float, float]:
        exponent = tilt * self.loss - self.z**2 / 2
        highest = float(exponent.max())
        weight = np.exp(exponent - highest)
        total = float(weight.sum())
        mean = float(weight @ self.loss) / total
        variance = float(weight @ (self.loss - mean) ** 2) / total
        step = float(self.z[1] - self.z[0])
        log_moment = highest + math.log(total * step) - 0.5 * math.log(2 * math.pi)
        return self.steps * log_moment, self.steps * mean, self.steps * max(variance, 1e-300)


def _right(step: StepLaw, log_mass: float) -> float:
    """The z beyond which mu has no more than this mass. Farther out, a tilt finds only what does not matter."""
    low, high = LEFT + 1, (len(step.log_weights) - 1) / step.noise + 2 + math.sqrt(-2 * log_mass)
    for _ in range(40):
        z = (low + high) / 2
        low, high = (z, high) if step.log_mass_above(z) > log_mass else (low, z)
    return high


def _saddle(curve: _Cumulants, log_kappa: float) -> float:
    """The tilt in [0, ...) whose mean is exceeded with null probability kappa, to first order."""

    def log_tail(tilt: float) -> float:
        moment, mean, variance = curve(tilt)
        return moment - tilt * mean + math.log(float(erfcx(tilt * math.sqrt(variance / 2))) / 2)

    return _least(lambda tilt: log_tail(tilt) <= log_kappa)


def _centre(curve: _Cumulants, threshold: float) -> float:
    """The tilt in [0, ...) whose mean is the threshold."""
    return _least(lambda tilt: curve(tilt)[1] >= threshold)


def _least(reached: Callable[[float], bool]) -> float:
    """The least tilt in [0, ...) from which on the condition holds."""
    if reached(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while not reached(high) and high < 1e12:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def _reach(curve: _Cumulants, tilt: float, deviation: float, side: int) -> tuple[float, float]:
    """The least distance d from the mean, and its exponent, with tilted mass beyond d at most exp(LOG_OUTSIDE)."""
    moment, mean, _ = curve(tilt)

    def distance(slope: float) -> float:
        growth = curve(tilt + side * slope)[0] - moment - side * slope * mean
        return (growth - LOG_OUTSIDE) / slope

    slopes = np.geomspace(0.02, 30, 24) / deviation
    distances = [distance(float(slope)) for slope in slopes]
    best = int(np.argmin(distances))
    return distances[best], float(slopes[best])
