"""Certified ceilings of random batches: Poisson sampling, one random step per epoch, shuffling; a sampled estimate."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from scipy.special import log_ndtr

from lostwax.bounds import checks
from lostwax.bounds.ceiling import SMALLEST, Array, Ceiling
from lostwax.bounds.closed_forms import bisect, exp, gaussian, log_add, log_one_minus, single_step
from lostwax.bounds.composed import fitted, log_lower_end, narrowed
from lostwax.bounds.octaves import FIRST, OVER, Shift, SumLaw, sum_of
from lostwax.bounds.step_law import (
    UNIT,
    CellTest,
    Cumulants,
    LossCells,
    LossLaw,
    StepLaw,
    Window,
    cut,
    place_window,
    window_of,
)

LEAST_NOISE = 0.01  # of Poisson sampling: below, Gaussians are 100 deviations apart, and the ceiling that of no noise
LOG_VISIBLE = 40.0  # exp(-40) is below the rounding error
# One step per epoch, by the law of sums: outside this range of noise only the bounds in closed form, as the loss spans
# hundreds of octaves below, and the ratio hardly differs from 1 above.
NOISE_OF_SUMS = (0.1, 1e3)
POINTS_PER_OCTAVE = (768, 2048)  # for a width of 1e-4: a second attempt where the first is not enough
MAX_POINTS_PER_OCTAVE = 8192
COARSE_NOISE = 0.4  # with less, a quarter of the points is as precise
LOG_CUT_OFF = 7.0  # exp(-7) of the tolerance may be cut off; more would only blur the tilted law
WINDOW_LOSSES = 4000  # that place the window
FAR = 30.0  # deviations at which Phi is rounded to 1
POINT_ROUNDING = 1e-12  # covers the rounding of the points, about 1e-14
# The test of shuffled batches
LEAST_SHUFFLED_NOISE = 0.3  # below, the test is that by the largest step alone
SHUFFLED_TOLERANCE = 1e-3  # of its power
SHUFFLED_EXPONENT = 2.6  # of its statistic: the best of those tried, to 1e-3 of the power
SHUFFLED = (
    "shuffled batches: at most one full-batch step per epoch (the batch of each record is given away), at least a test "
    "on the pair of Chua et al. 2024 (the other gradients are opposite)"
)


def subsampled(
    log_baseline: float,
    noise_multiplier: float,
    sample_rate: float,
    steps: int,
    tolerance: float = 1e-4,
    records: int = 1,
) -> Ceiling:
    """Ceiling for T steps of Gaussian noise on Poisson samples, to a relative width of `tolerance`.

    gamma(kappa) = sup { mu(E) : nu(E) <= kappa } with nu = N(0, s^2)^T and mu the T-fold mixture of `StepLaw`.
    Upper end: one step's loss is spread onto a lattice (`LossCells`), raised to the power T by one transform, and put
    through the duality (`log_upper_end`). Lower end: the exact power of a test that sees only the cells. Both
    converge like T h^2 in the cell width h, which is refined until they meet. The interval is valid at any width; if
    `tolerance` is out of reach it is wider, as `relative_width` shows.
    """
    log_kappa = checks.log_baseline(log_baseline)
    noise = checks.noise_multiplier(noise_multiplier)
    rate, count = checks.sample_rate(sample_rate), checks.steps(steps)
    tolerance = checks.tolerance(tolerance)
    group = checks.records(records)
    if rate == 1:
        return gaussian(log_kappa, noise, count, group)
    if count == 1:
        return single_step(log_kappa, noise, rate, group)
    ceiling = _bracket(log_kappa, noise, rate, count, group)
    if ceiling.relative_width <= tolerance * 1e-3:
        return ceiling
    step = StepLaw(max(noise, LEAST_NOISE), rate, group, log_negligible=log_kappa - math.log(count) - 30)
    narrow = narrowed(
        ceiling,
        count,
        tolerance,
        lambda threshold: place_window(step, count, log_kappa, tolerance, threshold),
        lambda window: cut(step, window.spacing, window.right),
    )
    if noise >= LEAST_NOISE:
        return narrow
    return replace(narrow, log_upper=ceiling.log_upper, log_slope=ceiling.log_slope)


def _bracket(log_kappa: float, noise: float, rate: float, steps: int, group: int) -> Ceiling:
    """An interval in closed form.

    At least the single-step ceiling (ignore the other steps). At most the full-batch ceiling, and at most
    1 - (1 - q)^(k T) (1 - kappa): if no record of the group is ever drawn, nothing leaks. That is also the lower end if
    the noise is so small that every draw of a record is visible.
    """
    low = single_step(log_kappa, noise, rate, group).log_lower
    full = gaussian(log_kappa, noise, steps, group)
    log_never = steps * group * math.log1p(-rate)
    log_untouched = log_never + log_one_minus(log_kappa)  # log of 1 - the limit
    limit, slack = log_one_minus(log_untouched), 1e-13 * (1 - log_untouched)
    never = min(0.0, limit + slack)
    far = math.sqrt(2 * (LOG_VISIBLE - log_kappa + math.log(steps)))  # T Phi(-far) <= kappa exp(-LOG_VISIBLE)
    if 1 / noise > far + 10:  # a step with a record is beyond `far`, except with probability Phi(-10) = 1e-23
        low = max(low, min(limit - slack, -SMALLEST))
    slope = full.log_slope if full.log_upper < never else log_never
    method = "privacy-loss distribution, Poisson sampling"
    return Ceiling(low, max(low, min(full.log_upper, never)), log_kappa, method, log_slope=slope)


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
    tolerance = checks.tolerance(tolerance)
    if bins == 1:
        return gaussian(log_kappa, noise, count)
    low = max(log_kappa, min(largest_step(log_kappa, noise, bins), -SMALLEST))
    full = gaussian(log_kappa, noise, count)
    method = "privacy-loss distribution, balls-in-bins sampling"
    ceiling = Ceiling(low, max(low, full.log_upper), log_kappa, method, log_slope=full.log_slope)
    if not NOISE_OF_SUMS[0] <= noise <= NOISE_OF_SUMS[1] or ceiling.relative_width <= tolerance * 1e-3:
        return ceiling
    cut_off = LOG_CUT_OFF - math.log(tolerance) + math.log(count) - log_kappa
    highest = 1 / noise + math.sqrt(2 * cut_off)
    finer = math.sqrt(max(1.0, 1e-4 / tolerance))  # the width falls like 1 / points^2
    for wanted in POINTS_PER_OCTAVE:
        points = min(MAX_POINTS_PER_OCTAVE, 64 * math.ceil(wanted * finer / 64))  # no large primes
        points //= 1 if noise >= COARSE_NOISE else 4
        shifts = (Shift(1 / noise),)
        epoch = Epoch(sum_of(noise, bins, points, highest=highest, negligible=exp(-cut_off), shifts=shifts), count)
        ceiling = narrowed(ceiling, count, tolerance, partial(epoch.window, log_kappa, tolerance), epoch.cells)
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

    highest = 50 + null / noise + math.sqrt(-2 * log_kappa)
    c = bisect(-50.0, highest, lambda c: not log_exceeds(c, null) <= log_kappa, 80).high
    c += 1e-9 * (1 + abs(c))
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
        return np.log(points / self.total.count) + POINT_ROUNDING, mass

    @property
    def _log_least(self) -> float:
        return float(self._null[0][0])

    def window(self, log_kappa: float, tolerance: float, threshold: float | None) -> Window:
        """The window of all epochs."""
        span = float(self._null[0][-1]) - self._log_least
        law = self._spread(span / WINDOW_LOSSES)
        curve = Cumulants(self._log_least + law.index * span / WINDOW_LOSSES, law.log_mass, self.epochs)
        return window_of(curve, log_kappa, tolerance, widest=math.inf, span=span, threshold=threshold)

    def _spread(self, spacing: float) -> LossLaw:
        """Each mass is split onto two points of the lattice of losses so that the mean of R is kept."""
        loss, mass = self._null
        place = (loss - self._log_least) / spacing
        j = np.floor(place).astype(int)
        share = np.expm1((place - j) * spacing) / math.expm1(spacing)
        return _law(np.append(j, j + 1), np.append(mass * (1 - share), mass * share))

    def cells(self, window: Window) -> LossCells:
        """Both laws on a lattice of losses."""
        loss, mass = self._null
        escaped = self.total.escaped / self.total.count
        excess = max(0.0, float(mass @ np.exp(loss)) - 1 + 1e-12)
        growth = math.expm1(min(600.0, self.epochs * math.log1p(excess)))
        over, under, hit = (law[self._here] for law in self.total.masses.reshape(3, -1))
        known = np.where(under > over / 2, hit, 0.0)
        return LossCells(
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


def shuffled(log_baseline: float, noise_multiplier: float, steps: int, epochs: int) -> Ceiling:
    """Ceiling for `epochs` passes in a new random order, cut into `steps` batches of a fixed size.

    Upper end: who knows the batch of each record sees one Gaussian step per epoch. Lower end (Chua et al. 2024, How
    Private are DP-SGD Implementations?): all other gradients point against the record's, so that leaving it out moves
    its batch by 1, and the record itself by 2. Test, per epoch, by the sum of exp(2.6 z / s) over the steps.
    """
    log_kappa = checks.log_baseline(log_baseline)
    noise = checks.noise_multiplier(noise_multiplier)
    bins, count = checks.steps(steps), checks.epochs(epochs)
    ceiling = replace(gaussian(log_kappa, noise, count), method=SHUFFLED)
    if bins == 1:
        return ceiling
    low = largest_step(log_kappa, noise, bins, null=1.0, shift=2.0)
    if LEAST_SHUFFLED_NOISE <= noise <= NOISE_OF_SUMS[1]:
        low = max(low, _opposite_gradients(log_kappa, noise, bins, count))
    low = max(log_kappa, min(low, -SMALLEST, ceiling.log_upper))
    return replace(ceiling, log_lower=low)


def _opposite_gradients(log_kappa: float, noise: float, bins: int, epochs: int) -> float:
    """Log power of the test, for all epochs."""
    points = POINTS_PER_OCTAVE[0] // (2 if noise >= COARSE_NOISE else 8)
    reach = math.sqrt(2 * (math.log(1 / SHUFFLED_TOLERANCE) + math.log(epochs) - log_kappa))
    shifts, negligible = (Shift(1 / noise, above=True), Shift(2 / noise)), math.exp(-(reach**2) / 2)
    statistic = noise / SHUFFLED_EXPONENT
    total = sum_of(statistic, bins, points, highest=2 / noise + reach, negligible=negligible, shifts=shifts)
    null, hit = (total.masses[FIRST + i].ravel() for i in range(2))
    here = np.flatnonzero((null > 0) & (hit > 0))
    score, log_null = np.log(hit[here] / null[here]), np.log(null[here])
    span = float(score.max() - score.min())
    curve = Cumulants(score, log_null, epochs)
    window = fitted(window_of(curve, log_kappa, SHUFFLED_TOLERANCE, widest=math.inf, span=span))
    cells = seen(null[here], hit[here], float(score.min()), float(score.max()), window.spacing)
    return log_lower_end(cells, window, epochs, log_kappa)
