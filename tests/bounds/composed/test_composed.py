import math

import numpy as np
import pytest

from lostwax.bounds.composed import compose
from lostwax.bounds.step_law import StepLaw, cut, place_window


def plain_power(law, steps):
    """The T-fold law by T direct convolutions of positive numbers: slow, and precise in every tail."""
    one = np.zeros(law.index[-1] + 1)
    one[law.index] = np.exp(law.log_mass)
    total = np.array([1.0])
    for _ in range(steps):
        total = np.convolve(total, one)
    return total


@pytest.mark.parametrize(
    ("noise", "rate", "steps", "kappa"), [(1.0, 0.2, 6, 0.1), (0.5, 0.05, 4, 1e-9), (3, 0.9, 9, 0.8)]
)
def test_the_transform_agrees_with_direct_convolution(noise, rate, steps, kappa):
    step = StepLaw(noise, rate)
    window = place_window(step, steps, math.log(kappa), 1e-2)
    law = cut(step, window.spacing, window.right).spread
    direct = plain_power(law, steps)
    fast = compose(law, steps, window.tilt, window.spacing, window)
    s = np.arange(direct.size)
    tilted = direct * np.exp(window.tilt * window.spacing * s - fast.log_scale)
    folded = np.zeros_like(fast.mass)
    np.add.at(folded, (s - fast.start) % fast.mass.size, tilted)
    assert np.linalg.norm(folded - fast.mass) <= fast.rounding + fast.relative
    inside = (s >= fast.start) & (s < fast.start + fast.mass.size)
    assert tilted[~inside].sum() <= fast.outside

    c = fast.crossing(math.log(kappa))
    above = fast.above(c, window.tilt)
    scale = math.exp(fast.log_size(c))
    assert scale * above.low <= direct[c + 1 :].sum() <= scale * above.high
    assert scale * above.low <= kappa * (1 + 1e-9)
    assert direct[c:].sum() >= kappa * (1 - 1e-9)
    decay = abs(window.tilt - 1)
    below = fast.below(c, decay)
    exact = (tilted * np.exp(-decay * window.spacing * np.maximum(c - s, 0)))[: c + 1].sum()
    assert below.low <= exact <= below.high
