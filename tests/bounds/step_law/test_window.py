import math

import numpy as np
import pytest

from lostwax.bounds.composed import compose
from lostwax.bounds.step_law import LOG_OUTSIDE, StepLaw, cut, place_window

RUNS = [(1.0, 0.01, 1000, 0.1), (0.5, 0.1, 50, 1e-9), (10.0, 0.7, 400, 1e-30), (2.0, 0.05, 300, 0.9)]


@pytest.mark.parametrize(("noise", "rate", "steps", "kappa"), RUNS)
def test_the_window_holds_the_tilted_law_and_the_threshold(noise, rate, steps, kappa):
    step = StepLaw(noise, rate)
    window = place_window(step, steps, math.log(kappa), 1e-3)
    law = compose(cut(step, window.spacing, window.right).spread, steps, window.tilt, window.spacing, window)
    assert law.outside < 1e3 * math.exp(LOG_OUTSIDE)
    assert law.mass.sum() == pytest.approx(1, abs=1e-9)
    threshold = steps * step.log_least + window.spacing * law.crossing(math.log(kappa))
    assert abs(threshold - window.mean) < window.below + window.above


@pytest.mark.parametrize(("noise", "rate", "steps", "kappa"), RUNS[:3])
def test_a_known_threshold_becomes_the_mean(noise, rate, steps, kappa):
    step = StepLaw(noise, rate)
    first = place_window(step, steps, math.log(kappa), 1e-3)
    again = place_window(step, steps, math.log(kappa), 1e-3, threshold=0.9 * first.mean)
    assert again.mean == pytest.approx(0.9 * first.mean, rel=1e-6)


def test_a_smaller_tolerance_means_smaller_cells():
    step = StepLaw(1.0, 0.01)
    widths = [place_window(step, 1000, math.log(0.1), tolerance).spacing for tolerance in (1e-2, 1e-4, 1e-6)]
    assert np.all(np.diff(widths) < 0)
