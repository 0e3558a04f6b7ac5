import math

import numpy as np
import pytest

from lostwax.bounds.inequalities import mse_lower_bound


def test_the_squared_error_of_unbiased_attacks():
    assert mse_lower_bound([1.0, 2.0], 0.5) == pytest.approx(2.5 / (4 * math.expm1(0.5)))
    assert mse_lower_bound([1.0], 1000.0) == 0.0


def test_the_sample_mean_of_a_gaussian_obeys_it():
    """x + N(0, s^2) is an unbiased guess of x in [0, 1] with error s^2, and (2, 1 / s^2)-RDP for that range."""
    for noise in (0.3, 1.0, 3.0):
        assert mse_lower_bound([1.0], 1 / noise**2) <= noise**2
        guesses = 0.4 + noise * np.random.default_rng(0).standard_normal(10_000)
        assert np.mean((guesses - 0.4) ** 2) >= mse_lower_bound([1.0], 1 / noise**2)
