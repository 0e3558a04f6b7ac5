"""One noisy step: a Gaussian against the mixture of Gaussians with a sampled record, and its privacy loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import erfcx, log_ndtr

from lostwax.bounds import checks
from lostwax.bounds.ceiling import Array
from lostwax.bounds.closed_forms import bisect, log_binomial


@dataclass(frozen=True)
class StepLaw:
    """The pair (mu, nu) of one step, in the coordinate z = x / s that is standard normal under nu.

    With k records in the group, each sampled with probability q, the clipped sum moves by a vector of length at
    most i when i of them are drawn. Kahane's inequality (for centred Gaussian families, larger covariances raise
    every convex function of the sum of exp(X - var / 2)) makes the aligned vectors the worst case, so
    nu = N(0, s^2) against mu = sum over i of b_i N(i, s^2), b = Binomial(k, q), dominates the step
    (Ganesh, arXiv 2401.10294). k = 1 is the pair of Hayes et al. 2023. Its ratio
        R(z) = b_0 + excess(z),   excess(z) = sum over i >= 1 of b_i exp(i z / s - i^2 / (2 s^2)),
    grows with z from b_0 to infinity. Negligibly rare draws are cut off into `escaped`.
    """

    noise: float
    rate: float
    records: int = 1
    log_negligible: float = -math.inf  # log of the weight that may be cut off from the binomial's upper end

    @cached_property
    def log_weights(self) -> Array:
        """log b_i for i = 0..I."""
        weights = log_binomial(self.records, self.rate)
        tails = np.logaddexp.accumulate(weights[::-1])[::-1]  # log P[Binomial >= i]
        return weights[: max(2, int((tails > self.log_negligible).sum()))]

    @cached_property
    def escaped(self) -> float:
        """The weight of the draws that were cut off."""
        return float(np.exp(log_binomial(self.records, self.rate)[self.log_weights.size :]).sum())

    @property
    def log_least(self) -> float:
        """log b_0: the infimum of the loss log R."""
        return self.records * math.log1p(-self.rate)

    @cached_property
    def _shifts(self) -> Array:
        return np.arange(1, self.log_weights.size)[:, None]  # (I, 1)

    @cached_property
    def _offsets(self) -> Array:
        return self.log_weights[1:, None] - self._shifts**2 / (2 * self.noise**2)  # (I, 1)

    def _log_terms(self, z: Array) -> Array:
        return np.asarray(self._offsets + self._shifts * (z / self.noise))  # (I, n)

    def log_excess(self, z: Array) -> Array:
        """log(R(z) - b_0)."""
        terms = self._log_terms(z)
        return np.asarray(terms[0] if len(terms) == 1 else np.logaddexp.reduce(terms))

    def loss(self, z: Array) -> Array:
        """The privacy loss log R(z)."""
        return np.asarray(np.logaddexp(self.log_least, self.log_excess(z)))

    def shares(self, z: Array) -> Array:
        """Each draw's share of the excess at z: (I, n), columns that add up to 1."""
        return np.asarray(np.exp(self._log_terms(z) - self.log_excess(z)))

    def solve(self, log_excess: Array) -> Array:
        """The z at which log(R - b_0) takes these values.

        The log of the excess is convex, increasing and never below any of its terms: the least root of a single term
        is right of the root, and Newton's method descends from there.
        """
        z: Array = (self.noise * (log_excess - self._offsets) / self._shifts).min(0)
        if len(self._shifts) == 1:
            return z
        for _ in range(60):
            slope = (self.shares(z) * self._shifts).sum(0) / self.noise
            move = (self.log_excess(z) - log_excess) / slope
            z = z - move
            if float(np.abs(move).max()) < 1e-15 * (1 + float(np.abs(z).max())):
                break
        return z

    def solve_growth(self, shares: Array, log_growth: Array) -> Array:
        """The step d > 0 with log excess(z + d) - log excess(z) = log_growth, to full relative precision.

        The left side is log1p(sum over i of share_i expm1(i d / s)): no large numbers are subtracted.
        """
        if len(shares) == 1:
            return self.noise * log_growth
        step: Array = self.noise * log_growth / (shares * self._shifts).sum(0)  # right of the root, by convexity
        for _ in range(60):
            grown = (shares * np.expm1(self._shifts * step / self.noise)).sum(0)
            slope = (shares * self._shifts * np.exp(self._shifts * step / self.noise)).sum(0) / self.noise
            move = (np.log1p(grown) - log_growth) * (1 + grown) / slope
            step = step - move
            if float(np.abs(move / step).max()) < 4e-16:
                break
        return step

    def log_excess_below(self, z: float) -> float:
        """Log of the mu-mass of drawn steps below z: sum over i >= 1 of b_i Phi(z - i / s)."""
        reach = log_ndtr(z - self._shifts[:, 0] / self.noise)
        return float(np.logaddexp.reduce(self.log_weights[1:] + reach))

    def log_mass_above(self, z: float) -> float:
        """Log of the mu-mass above z."""
        shifts = np.arange(self.log_weights.size)
        return float(np.logaddexp.reduce(self.log_weights + log_ndtr(shifts / self.noise - z)))


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


# The privacy loss of one step in cells of equal width, and two discrete laws that enclose it.


UNIT = 2.0**-53
LEFT = -10.0  # below this z the left-over mass is one cell
EMPTY = -45.0  # log of a null mass that is negligible even over 10^9 steps
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
class CellTest:
    """What a test sees, the number of a cell: its law under nu and under mu, and the mu-mass that is in no cell."""

    null: LossLaw
    hit: LossLaw
    missing: float


@dataclass(frozen=True)
class LossCells:
    """One step's losses in cells [l_j, l_(j+1)], l_j = log b_0 + j h.

    spread: nu after each cell's mass is split onto its two ends so that the mean of R = dmu/dnu is kept
        (connect the dots). The ratio of this law to its null is exp(loss) exactly. E[f(R)] grows for every convex
        f, step by step and so for products of independent steps: an upper bound on every hockey-stick divergence.
    escaped: mu-mass that is not in `spread` (losses beyond the grid, draws cut off).
    surplus: by how much the mu-mass of T steps, `spread` and `escaped` together, may exceed 1.
    seen: no test on the cell's number alone is stronger than the best.
    """

    log_least: float
    spread: LossLaw
    escaped: float
    seen: CellTest
    surplus: float = 0.0


def cut(step: StepLaw, spacing: float, right: float) -> LossCells:
    """Cut the losses of z <= right into cells of the given width."""
    first, last = max(1, _index(step, spacing, LEFT)), _index(step, spacing, right)
    j = np.arange(first, max(first, last) + 1)
    # The excess at l_j is b_0 expm1(j h), and from l_j to l_(j+1) it grows by 1 + expm1(h) / (1 - exp(-j h)).
    z = step.solve(step.log_least + _log_expm1(j * spacing))
    shares = step.shares(z)
    width = step.solve_growth(shares, np.log1p(math.expm1(spacing) / -np.expm1(-j * spacing)))
    reach = width * (np.abs(z) + width + 3 + len(shares) / step.noise)
    wide = np.flatnonzero(reach > RULES[-1][0])
    skip = 0 if wide.size == 0 else min(int(wide[-1]) + 1, j.size - 1)  # too wide for the rules: part of the left cell
    j, z, width, reach, shares = j[skip:], z[skip:], width[skip:], reach[skip:], shares[:, skip:]

    down, up = split_masses(z[:-1], width[:-1], reach[:-1], shares[:, :-1], step.noise)
    log_density = np.log(width[:-1]) - z[:-1] * z[:-1] / 2 - 0.5 * math.log(2 * math.pi)
    log_down, log_up = log_density + np.log(down), log_density + np.log(up)
    log_cell = np.logaddexp(log_down, log_up)
    log_hit = step.log_least + spacing * j[:-1] + np.logaddexp(log_down, log_up + spacing)  # mu of a cell
    log_left, log_left_hit = float(log_ndtr(z[0])), _log_left_hit(step, float(z[0]))
    log_left_down, log_left_up = _split_left(step, float(z[0]), float(j[0] * spacing))
    ups, downs = np.append(log_left_up, log_up), np.append(log_down, -np.inf)
    relative = mass_error(step.noise, float(np.abs(z[[0, -1]]).max()), step.records, len(step.log_weights))
    if log_left_down > -math.inf:
        relative += 8 * UNIT * math.exp(log_left - log_left_down)  # what cancels in the left cell
    number = np.append(j[0] - 1, j[:-1])
    escaped = (step.escaped + math.exp(step.log_mass_above(float(z[-1])))) * (1 + 1e-9)
    null = LossLaw(number, np.append(log_left, log_cell), relative)
    hit = LossLaw(number, np.append(log_left_hit, log_hit), relative)
    spread = LossLaw(np.append(0, j), np.append(log_left_down, np.logaddexp(ups, downs)), relative)
    return LossCells(step.log_least, spread, escaped, CellTest(null, hit, missing=escaped))


def _log_left_hit(step: StepLaw, z: float) -> float:
    """Log of the mu-mass left of z."""
    return float(np.logaddexp(step.log_least + float(log_ndtr(z)), step.log_excess_below(z)))


def _split_left(step: StepLaw, z: float, height: float) -> tuple[float, float]:
    """Log null masses that the cell left of z, where R = b_0 exp(height), sends to its ends.

    The ends are b_0 and R(z), and the upper share is E[excess] / excess(z). If the cell is nearly empty the lower end
    is R = 0 instead, which adds to no event: a wider spread, so still an upper bound, and a shorter lattice.
    """
    log_left = float(log_ndtr(z))
    log_excess = step.log_least + float(_log_expm1(np.array(height)))
    log_up = min(step.log_excess_below(z) - log_excess, log_left)
    lower_share = -math.expm1(log_up - log_left)
    if log_left < EMPTY or lower_share < 1e-9:
        return -math.inf, _log_left_hit(step, z) - step.log_least - height
    return log_left + math.log(lower_share), log_up


def split_masses(
    z: Array, width: Array, reach: Array, shares: Array, noise: float, rules: Sequence[tuple[float, int]] = RULES
) -> tuple[Array, Array]:
    """Null masses that the cells [z, z + width] send to their lower and upper ends, over width phi(z).

    At z + t the upper end receives (R - R_j) / (R_(j+1) - R_j) = sum_i share_i expm1(i t / s) / the same at the full
    width, and the lower end what is left. All terms are positive, and no node is so near an end that digits cancel.
    """

    def growth(shares: Array, t: Array) -> Array:
        return np.asarray(sum(share * np.expm1(i * t / noise) for i, share in enumerate(shares, start=1)))

    down, up = np.zeros_like(z), np.zeros_like(z)
    lowest = -1.0
    for highest, count in rules:
        here = np.flatnonzero((reach > lowest) & (reach <= highest))
        lowest = highest
        nodes, weights = np.polynomial.legendre.leggauss(count)
        start, size, share = z[here], width[here], shares[:, here]
        full_growth = growth(share, size)
        for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
            t = node * size
            density = weight * np.exp(-t * (start + t / 2))  # phi(z + t) / phi(z)
            upper = growth(share, t) / full_growth
            up[here] += density * upper
            down[here] += density * (1 - upper)
    return down, up


def mass_error(noise: float, farthest: float, records: int = 1, draws: int = 1) -> float:
    """Relative error of every mass: quadrature, binomial, densities (z^2 / 2), edges (s times a log)."""
    rounding = 64 * records + 4 * farthest**2 + 16 * draws * (farthest + 1) * (noise + 1 / noise + 1)
    return QUADRATURE + UNIT * rounding


def _index(step: StepLaw, spacing: float, z: float) -> int:
    """The last j with l_j at or below the loss at z."""
    gap = float(step.log_excess(np.array([z]))[0]) - step.log_least
    return math.floor(float(np.logaddexp(0.0, gap)) / spacing)


def _log_expm1(x: Array) -> Array:
    """log(exp(x) - 1) for x > 0."""
    return np.asarray(x + np.log(-np.expm1(-x)))


# The tilt, the spacing and the window that resolve the T-step test at a given null probability. None of it is part of
# the proof: a bad choice makes the interval wider, never invalid.


LOG_OUTSIDE = math.log(1e-18)  # intended mass outside the window


@dataclass(frozen=True)
class Window:
    """tilt: lambda of the law exp(lambda L) dnu whose mean is the threshold.

    below, above: distance of the window's ends from that mean; slope_below, slope_above: Chernoff exponents that prove
    them; spacing: the width of a cell; right: the last z of the grid; span: its range of losses.
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


def place_window(
    step: StepLaw, steps: int, log_kappa: float, tolerance: float, threshold: float | None = None
) -> Window:
    """The window of T steps of this kind."""
    log_beyond = log_kappa + math.log(tolerance) - math.log(steps) - 7  # of mu's mass beyond the last z
    highest = (len(step.log_weights) - 1) / step.noise + 2 + math.sqrt(-2 * log_beyond)
    right = bisect(LEFT + 1, highest, lambda z: step.log_mass_above(z) > log_beyond, 40).high
    z = np.linspace(LEFT, right, max(4001, int((right - LEFT) / 0.05)))
    log_mass = math.log(z[1] - z[0]) - z**2 / 2 - 0.5 * math.log(2 * math.pi)  # the trapezium rule
    curve = Cumulants(step.loss(z), log_mass, steps)
    widest = 20 / (step.noise * (right + 4))
    span = float(curve.loss[-1]) - step.log_least
    return window_of(curve, log_kappa, tolerance, widest=widest, span=span, right=right, threshold=threshold)


def window_of(
    curve: Cumulants,
    log_kappa: float,
    tolerance: float,
    *,
    widest: float,
    span: float,
    right: float = math.inf,
    threshold: float | None = None,
) -> Window:
    """Solve the saddle point T K'(lambda) = threshold, K the cumulants of one step's loss under nu.

    An unknown threshold is taken where P_nu[L > T K'(lambda)] = kappa to first order. That is poor where a single step
    dominates the tilted law; pass the threshold once it has been found.
    """
    steps = curve.steps
    tilt = _saddle(curve, log_kappa) if threshold is None else _least(lambda tilt: curve(tilt)[1] >= threshold)
    _, mean, variance = curve(tilt)
    deviation = math.sqrt(variance)
    # Spreading widens L by about h^2 / 6 a step, merging by h^2 / 12; gamma moves by half of mu's density at the
    # threshold times that. Mills' ratio of the saddle point gives the density relative to gamma.
    mills = float(erfcx((tilt - 1) * deviation / math.sqrt(2))) / 2
    density = 1 / (math.sqrt(2 * math.pi) * deviation * mills) if mills < math.inf else 0.0
    spacing = math.sqrt(4 * tolerance / (steps * max(density, 1e-200)))
    spacing = min(spacing, deviation / math.sqrt(steps) / 4, widest)
    above, slope_above = _reach(curve, tilt, deviation, +1)
    below, slope_below = _reach(curve, tilt, deviation, -1)
    return Window(tilt, mean, spacing, below, above, slope_below, slope_above, right, span)


@dataclass(frozen=True)
class Cumulants:
    """T times the log moments of one step's loss under nu and their first two derivatives."""

    loss: Array
    log_mass: Array
    steps: int

    def __call__(self, tilt: float) -> tuple[float, float, float]:
        """At this tilt."""
        exponent = tilt * self.loss + self.log_mass
        highest = float(exponent.max())
        weight = np.exp(exponent - highest)
        total = float(weight.sum())
        mean = float(weight @ self.loss) / total
        variance = float(weight @ (self.loss - mean) ** 2) / total
        log_moment = highest + math.log(total)
        return self.steps * log_moment, self.steps * mean, self.steps * max(variance, 1e-300)


def _saddle(curve: Cumulants, log_kappa: float) -> float:
    """The tilt in [0, ...) whose mean is exceeded with null probability kappa, to first order."""

    def log_tail(tilt: float) -> float:
        moment, mean, variance = curve(tilt)
        return moment - tilt * mean + math.log(float(erfcx(tilt * math.sqrt(variance / 2))) / 2)

    return _least(lambda tilt: log_tail(tilt) <= log_kappa)


def _least(reached: Callable[[float], bool]) -> float:
    """The least tilt in [0, ...) from which on the condition holds."""
    if reached(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while not reached(high) and high < 1e12:
        low, high = high, 2 * high
    return bisect(low, high, lambda tilt: not reached(tilt), 40).high


def _reach(curve: Cumulants, tilt: float, deviation: float, side: int) -> tuple[float, float]:
    """The least distance d from the mean, and its exponent, with tilted mass beyond d at most exp(LOG_OUTSIDE)."""
    moment, mean, _ = curve(tilt)

    def distance(slope: float) -> float:
        growth = curve(tilt + side * slope)[0] - moment - side * slope * mean
        return (growth - LOG_OUTSIDE) / slope

    slopes = (np.geomspace(0.02, 30, 24) / deviation).tolist()
    return min((distance(slope), slope) for slope in slopes)
