"""Each record in one batch per epoch, chosen uniformly and independently: a two-sided certified ceiling."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from scipy.special import log_ndtr

from lostwax.bounds import checks
from lostwax.bounds.ceiling import SMALLEST, Ceiling
from lostwax.bounds.closed_forms import exp, gaussian, log_add, log_one_minus
from lostwax.bounds.composed import narrowed
from lostwax.bounds.octaves import OVER, Shift, SumLaw, sum_of
from lostwax.bounds.step_law import UNIT, Array, Cells, CellTest, Cumulants, LossLaw, Window, window_of

METHOD = "privacy-loss distribution, balls-in-bins sampling"
POINTS = (768, 2048)  # per octave, for a width of 1e-4: a second attempt where the first is not enough
MOST_POINTS = 8192
FEWER = 0.4  # with less noise, a quarter of the points is as precise
LEAST_NOISE = 0.1  # below, only the bounds in closed form: the loss spans hundreds of octaves
MOST_NOISE = 1e3  # above, too: the ratio hardly differs from 1
NEGLIGIBLE = 7.0  # exp(-7) of the tolerance may be cut off; more would only blur the tilted law
COARSE = 4000  # losses that place the window
FAR = 30.0  # deviations
RAISED = 1e-12  # covers the rounding of the points, about 1e-14


def balls_in_bins(
    log_baseline: float, noise_multiplier: float, steps: int, epochs: int, tolerance: float = 1e-4
) -> Ceiling:
    """Ceiling for `epochs` passes of `steps` noisy steps, each record in one step per epoch.

    With nu the noise alone, an epoch's ratio dmu/dnu is R = (Y_1 + ... + Y_T) / T, Y = exp(z / s - 1 / (2 s^2)) with
    z ~ N(0, 1) (the pair that dominates: Chua et al. 2024, arXiv 2412.16802). `SumLaw` encloses its law from above,
    in the order of E[(R - t)_+], and from below, as that of a test; both are put on a lattice of losses log R, and
    composed over epochs as `subsampled` does with steps.
    """
    log_kappa = checks.log_baseline(log_baseline)
    noise = checks.noise_multiplier(noise_multiplier)
    bins, count = checks.steps(steps), checks.epochs(epochs)
    tolerance = checks.probability("tolerance", tolerance, "It is the relative width to aim at, for instance 1e-4.")
    if bins == 1:
        return gaussian(log_kappa, noise, count)
    low = max(log_kappa, min(largest_step(log_kappa, noise, bins), -SMALLEST))
    full = gaussian(log_kappa, noise, count)
    ceiling = Ceiling(low, max(low, full.log_upper), log_kappa, METHOD, log_slope=full.log_slope)
    if not LEAST_NOISE <= noise <= MOST_NOISE or ceiling.relative_width <= tolerance * 1e-3:
        return ceiling
    cut_off = NEGLIGIBLE - math.log(tolerance) + math.log(count) - log_kappa
    highest = 1 / noise + math.sqrt(2 * cut_off)
    finer = math.sqrt(max(1.0, 1e-4 / tolerance))  # the width falls like 1 / points^2
    for points in POINTS:
        few = min(MOST_POINTS, 64 * math.ceil(points * finer / 64)) // (1 if noise >= FEWER else 4)  # no large primes
        shift = Shift(1 / noise)
        total = sum_of(noise, bins, few, highest=highest, negligible=exp(-cut_off), shifts=(shift,))
        epoch = Epoch(total, count)
        place = partial(epoch.window, log_kappa, tolerance)
        ceiling = narrowed(ceiling, count, tolerance, place, epoch.cells)
        if ceiling.relative_width <= tolerance:
            break
    return ceiling


def largest_step(log_kappa: float, noise: float, bins: int, *, null: float = 0.0, shift: float = 1.0) -> float:
    """Log power of the test of one epoch by its largest step: a lower end in closed form.

    P[max z <= c] = Phi(c)^(T-1) Phi(c - shift / s); c is chosen such that the largest step of the null, whose shift is
    `null`, exceeds it with probability kappa at most.
    """

    def log_exceeds(c: float, moved: float) -> float:
        if c > FAR:  # the union bound, since Phi(c) is rounded to 1
            return log_add(math.log(bins) + float(log_ndtr(-c)), float(log_ndtr(moved / noise - c)))
        return log_one_minus((bins - 1) * float(log_ndtr(c)) + float(log_ndtr(c - moved / noise)))

    low, high = -50.0, 50 + null / noise + math.sqrt(-2 * log_kappa)
    for _ in range(80):
        c = (low + high) / 2
        low, high = (low, c) if log_exceeds(c, null) <= log_kappa else (c, high)
    c = high + 1e-9 * (1 + abs(high))
    alone = float(log_ndtr(shift / noise - c))
    return max(alone, log_exceeds(c, shift) if c <= FAR else alone) * (1 + 1e-12) - 1e-12


@dataclass(frozen=True)
class Epoch:
    """The losses of one epoch, from the law of T R."""

    total: SumLaw
    epochs: int

    @cached_property
    def _here(self) -> Array:
        return np.flatnonzero(self.total.masses[OVER].ravel())

    @cached_property
    def _null(self) -> tuple[Array, Array]:
        """The loss at the points with mass, raised by their rounding, and the masses under nu (an upper bound)."""
        points, mass = self.total.points[self._here], self.total.masses[OVER].ravel()[self._here]
        return np.log(points / self.total.count) + RAISED, mass

    @property
    def _log_least(self) -> float:
        return float(self._null[0][0])

    def window(self, log_kappa: float, tolerance: float, threshold: float | None) -> Window:
        """The window of all epochs."""
        span = float(self._null[0][-1]) - self._log_least
        law = self._spread(span / COARSE)
        curve = Cumulants(self._log_least + law.index * span / COARSE, law.log_mass, self.epochs)
        return window_of(curve, log_kappa, tolerance, widest=math.inf, span=span, threshold=threshold)

    def _spread(self, spacing: float) -> LossLaw:
        """Each mass is split onto two points of the lattice of losses so that the mean of R is kept."""
        loss, mass = self._null
        place = (loss - self._log_least) / spacing
        j = np.floor(place).astype(int)
        share = np.expm1((place - j) * spacing) / math.expm1(spacing)
        return _law(np.append(j, j + 1), np.append(mass * (1 - share), mass * share))

    def cells(self, window: Window) -> Cells:
        """Both laws on a lattice of losses."""
        loss, mass = self._null
        escaped = self.total.escaped / self.total.count
        excess = max(0.0, float(mass @ np.exp(loss)) - 1 + 1e-12)
        growth = math.expm1(min(600.0, self.epochs * math.log1p(excess)))
        over, under, hit = (law[self._here] for law in self.total.masses.reshape(3, -1))
        known = np.where(under > over / 2, hit, 0.0)
        return Cells(
            log_least=self._log_least,
            spread=self._spread(window.spacing),
            escaped=escaped * (1 + growth),
            seen=seen(mass, known, self._log_least, float(loss[-1]), window.spacing),
            surplus=growth + self.epochs * escaped * (1 + growth),
        )


def seen(null: Array, hit: Array, log_least: float, log_most: float, spacing: float) -> CellTest:
    """The law of a test that sees the log ratio of two laws in cells: from above under nu, from below under mu.

    It never rejects at points of lower ratios, where bounds of tiny masses are far apart. Larger ratios, where a tail
    was merged, would not fit into a window that was placed for the losses.
    """
    with np.errstate(divide="ignore"):
        score = np.log(hit) - np.log(null)
    here = np.flatnonzero(score >= log_least)
    number = np.floor((score[here].clip(log_least, log_most) - log_least) / spacing).astype(int)
    return CellTest(_law(number, null[here]), _law(number, hit[here]), max(0.0, 1 - float(hit[here].sum()) + 1e-12))


def _law(index: Array, mass: Array) -> LossLaw:
    """A law on the lattice from masses at these numbers."""
    total, added = np.bincount(index, mass), np.bincount(index)
    here = np.flatnonzero(total)
    return LossLaw(here, np.log(total[here]), UNIT * (64 + float(added.max())))
