"""Both ends against the plain definition on small laws: sort all outcomes by ratio, take them from the top."""

import math

import numpy as np
import pytest

from bounds.composed.test_composed import plain_power
from lostwax.bounds.composed import log_lower_end, log_upper_end
from lostwax.bounds.step_law import StepLaw, cut, place_window

RUNS = [(1.0, 0.2, 6, 0.1, 1), (0.5, 0.05, 4, 1e-9, 1), (3.0, 0.9, 9, 0.8, 1), (1.5, 0.1, 5, 1e-3, 3)]


@pytest.mark.parametrize(("noise", "rate", "steps", "kappa", "records"), RUNS)
def test_the_upper_end_is_the_best_test_of_the_spread_law(noise, rate, steps, kappa, records):
    step = StepLaw(noise, rate, records)
    window = place_window(step, steps, math.log(kappa), 1e-2)
    cells = cut(step, window.spacing, window.right)
    null = plain_power(cells.spread, steps)
    hit = null * np.exp(steps * step.log_least + window.spacing * np.arange(null.size))
    size, power = np.cumsum(null[::-1]), np.cumsum(hit[::-1])
    plain = np.interp(kappa, size, power) - math.expm1(steps * math.log1p(-cells.escaped))
    upper, _ = log_upper_end(cells, window, steps, math.log(kappa))
    assert math.exp(upper) >= plain * (1 - 1e-12)
    assert math.exp(upper) == pytest.approx(plain, rel=1e-6)


@pytest.mark.parametrize(("noise", "rate", "steps", "kappa", "records"), RUNS)
def test_the_lower_end_is_the_power_of_a_test_on_cells(noise, rate, steps, kappa, records):
    step = StepLaw(noise, rate, records)
    window = place_window(step, steps, math.log(kappa), 1e-2)
    cells = cut(step, window.spacing, window.right)
    null, hit = plain_power(cells.seen.null, steps), plain_power(cells.seen.hit, steps)
    size, power = np.cumsum(null[::-1]), np.cumsum(hit[::-1])
    plain = np.interp(kappa, size, power)
    lower = math.exp(log_lower_end(cells.seen, window, steps, math.log(kappa)))
    assert lower <= plain * (1 + 1e-9)
    assert lower == pytest.approx(plain, rel=1e-6)
