"""Shuffled batches: what is proved on either side, and nothing in between is known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from lostwax.bounds import checks
from lostwax.bounds.balls_in_bins import FEWER, MOST_NOISE, POINTS, largest_step, seen
from lostwax.bounds.ceiling import SMALLEST, Ceiling
from lostwax.bounds.closed_forms import gaussian
from lostwax.bounds.composed import fitted, log_lower_end
from lostwax.bounds.octaves import FIRST, Shift, sum_of
from lostwax.bounds.step_law import Cumulants, window_of

METHOD = (
    "shuffled batches: at most one full-batch step per epoch (the batch of each record is given away), at least a test "
    "on the pair of Chua et al. 2024 (the other gradients are opposite)"
)
LEAST_NOISE = 0.3  # below, the test is that by the largest step alone
TOLERANCE = 1e-3  # of the power of the test
EXPONENT = 2.6  # of the statistic: the best of those tried, to 1e-3 of the power


def shuffled(log_baseline: float, noise_multiplier: float, steps: int, epochs: int) -> Ceiling:
    """Ceiling for `epochs` passes in a new random order, cut into `steps` batches of a fixed size.

    Upper end: who knows the batch of each record sees one Gaussian step per epoch. Lower end (Chua et al. 2024, How
    Private are DP-SGD Implementations?): all other gradients point against the record's, so that leaving it out moves
    its batch by 1, and the record itself by 2. Test, per epoch, by the sum of exp(2.6 z / s) over the steps.
    """
    log_kappa = checks.log_baseline(log_baseline)
    noise = checks.noise_multiplier(noise_multiplier)
    bins, count = checks.steps(steps), checks.epochs(epochs)
    ceiling = replace(gaussian(log_kappa, noise, count), method=METHOD)
    if bins == 1:
        return ceiling
    low = largest_step(log_kappa, noise, bins, null=1.0, shift=2.0)
    if LEAST_NOISE <= noise <= MOST_NOISE:
        low = max(low, _opposite_gradients(log_kappa, noise, bins, count))
    low = max(log_kappa, min(low, -SMALLEST, ceiling.log_upper))
    return replace(ceiling, log_lower=low)


def _opposite_gradients(log_kappa: float, noise: float, bins: int, epochs: int) -> float:
    """Log power of the test, for all epochs."""
    points = POINTS[0] // (2 if noise >= FEWER else 8)
    reach = math.sqrt(2 * (math.log(1 / TOLERANCE) + math.log(epochs) - log_kappa))
    shifts = (Shift(1 / noise, above=True), Shift(2 / noise))
    total = sum_of(
        noise / EXPONENT, bins, points, highest=2 / noise + reach, negligible=math.exp(-(reach**2) / 2), shifts=shifts
    )
    null, hit = (total.masses[FIRST + i].ravel() for i in range(2))
    here = np.flatnonzero((null > 0) & (hit > 0))
    score, log_null = np.log(hit[here] / null[here]), np.log(null[here])
    span = float(score.max() - score.min())
    curve = Cumulants(score, log_null, epochs)
    window = fitted(window_of(curve, log_kappa, TOLERANCE, widest=math.inf, span=span))
    cells = seen(null[here], hit[here], float(score.min()), float(score.max()), window.spacing)
    return log_lower_end(cells, window, epochs, log_kappa)
