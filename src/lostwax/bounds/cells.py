"""The privacy loss of one step, cut into cells of equal width, with the two discrete laws that enclose it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from lostwax.bounds.step_law import Array, StepLaw

UNIT = 2.0**-53
LEFT = -10.0  # below this z the left-over mass is one cell
EMPTY = -45.0  # log of a null mass that is left out of the sum over 10^9 steps without a trace
# Gauss-Legendre rules by `reach`, a bound on the logarithmic slope across a cell: n nodes err by at most
# reach^(2n) (n!)^4 / ((2n + 1) (2n)!^3), below 1e-13 of the integral for each line.
RULES = ((0.03, 3), (0.3, 4), (2.0, 8), (24.0, 20))
QUADRATURE = 1e-13


@dataclass(frozen=True)
class LossLaw:
    """Masses exp(log_mass) of a loss on the lattice log_least + spacing * index, each right up to `relative`."""

    index: Array
    log_mass: Array
    relative: float


@dataclass(frozen=True)
class Cells:
    """One step's losses in cells [l_j, l_(j+1)], l_j = log b_0 + j h.

    spread: nu after each cell's mass is split onto its two ends so that the mean of R = dmu/dnu is kept
        (connect the dots). The ratio of this law to its null is exp(loss) exactly. E[f(R)] grows for every convex
        f, step by step and so for products of independent steps: an upper bound on every hockey-stick divergence.
    merged_null, merged: nu and mu after a tester is told only the cell's number: no test can gain by that.
    escaped: mu-mass of what neither holds (losses beyond the grid, draws cut off).
    """

    spread: LossLaw
    merged_null: LossLaw
    merged: LossLaw
    escaped: float


def cut(step: StepLaw, spacing: float, right: float) -> Cells:
    """Cut the losses of z <= right into cells of the given width."""
    first, last = _first(step, spacing), _index(step, spacing, right)
    j = np.arange(first, max(first, last) + 1)
    # The excess at l_j is b_0 expm1(j h), and from l_j to l_(j+1) it grows by 1 + expm1(h) / (1 - exp(-j h)).
    z = step.solve(step.log_least + _log_expm1(j * spacing))
    shares = step.shares(z)
    width = step.solve_growth(shares, np.log1p(math.expm1(spacing) / -np.expm1(-j * spacing)))
    reach = width * (np.abs(z) + width + 3 + len(shares) / step.noise)
    wide = np.flatnonzero(reach > RULES[-1][0])
    skip = 0 if wide.size == 0 else min(int(wide[-1]) + 1, j.size - 1)  # too wide for the rules: leave to the left cell
    j, z, width, reach, shares = j[skip:], z[skip:], width[skip:], reach[skip:], shares[:, skip:]

    log_down, log_up = _split(step, z[:-1], width[:-1], reach[:-1], shares[:, :-1])
    log_cell = np.logaddexp(log_down, log_up)
    log_hit = step.log_least + spacing * j[:-1] + np.logaddexp(log_down, log_up + spacing)  # mu of a cell
    log_left, log_left_hit = float(log_ndtr(z[0])), _log_left_hit(step, float(z[0]))
    log_left_down, log_left_up = _split_left(step, float(z[0]), float(j[0] * spacing))
    ups, downs = np.append(log_left_up, log_up), np.append(log_down, -np.inf)
    relative = _relative(step, z, log_left_down - log_left)
    number = np.append(j[0] - 1, j[:-1])
    return Cells(
        spread=LossLaw(np.append(0, j), np.append(log_left_down, np.logaddexp(ups, downs)), relative),
        merged_null=LossLaw(number, np.append(log_left, log_cell), relative),
        merged=LossLaw(number, np.append(log_left_hit, log_hit), relative),
        escaped=(step.escaped + math.exp(step.log_mass_above(float(z[-1])))) * (1 + 1e-9),
    )


def _log_left_hit(step: StepLaw, z: float) -> float:
    """Log of the mu-mass left of z."""
    return float(np.logaddexp(step.log_least + float(log_ndtr(z)), step.log_excess_below(z)))


def _split_left(step: StepLaw, z: float, height: float) -> tuple[float, float]:
    """Log null masses that the cell left of z, where R = b_0 exp(height), sends to its ends.

    The ends are b_0 and R(z), and the upper share is E[excess] / excess(z). Where the cell is all but empty the
    lower end is R = 0 instead, which adds to no event: a wider spread, so still an upper bound, and it keeps the
    lattice short.
    """
    log_left = float(log_ndtr(z))
    log_excess = step.log_least + float(_log_expm1(np.array(height)))
    log_up = min(step.log_excess_below(z) - log_excess, log_left)
    kept = -math.expm1(log_up - log_left)
    if log_left < EMPTY or kept < 1e-9:
        return -math.inf, _log_left_hit(step, z) - step.log_least - height
    return log_left + math.log(kept), log_up


def _split(step: StepLaw, z: Array, width: Array, reach: Array, shares: Array) -> tuple[Array, Array]:
    """Log null masses that each cell sends to its lower and to its upper end.

    At z_j + t the upper end receives (R - R_j) / (R_(j+1) - R_j) = sum_i share_i expm1(i t / s) / the same at the
    full width, and the lower end the rest. All terms are positive, and no node is so near an end that digits cancel.
    """
    down, up = np.zeros_like(z), np.zeros_like(z)
    lowest = -1.0
    for highest, count in RULES:
        here = np.flatnonzero((reach > lowest) & (reach <= highest))
        lowest = highest
        if here.size == 0:
            continue
        nodes, weights = np.polynomial.legendre.leggauss(count)
        start, size, share = z[here], width[here], shares[:, here]
        whole = _growth(step, share, size)
        for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
            t = node * size
            density = weight * np.exp(-t * (start + t / 2))  # phi(z + t) / phi(z)
            upper = _growth(step, share, t) / whole
            up[here] += density * upper
            down[here] += density * (1 - upper)
    log_density = np.log(width) - z * z / 2 - 0.5 * math.log(2 * math.pi)
    return log_density + np.log(down), log_density + np.log(up)


def _growth(step: StepLaw, shares: Array, t: Array) -> Array:
    growth = np.zeros_like(t)
    for i, share in enumerate(shares, start=1):
        growth += share * np.expm1(i * t / step.noise)
    return growth


def _relative(step: StepLaw, z: Array, log_kept: float) -> float:
    """Relative error of every mass: quadrature, edges (s times a log), densities (z^2 / 2), binomial, left cell."""
    far = float(np.abs(z[[0, -1]]).max())
    draws = len(step.log_weights)
    rounding = UNIT * (64 * step.records + 4 * far**2 + 16 * draws * (far + 1) * (step.noise + 1 / step.noise + 1))
    cancelled = 8 * UNIT * math.exp(-log_kept) if log_kept > -math.inf else 0.0
    return QUADRATURE + rounding + cancelled


def _first(step: StepLaw, spacing: float) -> int:
    return max(1, _index(step, spacing, LEFT))


def _index(step: StepLaw, spacing: float, z: float) -> int:
    """The last j with l_j at or below the loss at z."""
    gap = float(step.log_excess(np.array([z]))[0]) - step.log_least
    return math.floor(float(np.logaddexp(0.0, gap)) / spacing)


def _log_expm1(x: Array) -> Array:
    """log(exp(x) - 1) for x > 0."""
    value: Array = x + np.log(-np.expm1(-x))
    return value
