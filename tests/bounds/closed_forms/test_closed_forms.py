import math

import mpmath
import numpy as np
import pytest

from bounds import reference
from lostwax.bounds.closed_forms import ROUNDING, gaussian, log_binomial, normal_quantile, single_step
from lostwax.bounds.random_batches import subsampled

LOG_BASELINES = (-0.05, math.log(0.5), math.log(0.1), -30.0, -230.0, -2000.0, math.log(10) * -2000)


@pytest.mark.parametrize("log_kappa", LOG_BASELINES)
@pytest.mark.parametrize("distance", [1e-3, 0.3, 1.0, 7.0, 30.0, 95.0])
def test_full_batches_agree_with_sixty_digits(log_kappa, distance):
    exact = reference.gaussian_pair(log_kappa, distance)
    ceiling = gaussian(log_kappa, 1 / distance)
    if exact < -1e-290:
        assert abs(ceiling.log_upper / float(exact) - 1) < 1e-12
        assert abs(ceiling.log_lower / float(exact) - 1) < 1e-12
    assert ceiling.log_lower <= exact <= ceiling.log_upper


@pytest.mark.parametrize("log_kappa", LOG_BASELINES)
@pytest.mark.parametrize(("noise", "rate"), [(0.02, 0.3), (0.3, 0.001), (1.0, 0.5), (10.0, 0.99), (300.0, 1e-6)])
def test_one_sampled_step_agrees_with_sixty_digits(log_kappa, noise, rate):
    exact = reference.single_step(log_kappa, noise, rate)
    ceiling = single_step(log_kappa, noise, rate)
    assert abs(ceiling.log_upper / float(exact) - 1) < 1e-12
    assert ceiling.log_lower <= exact <= ceiling.log_upper


def test_the_stated_rounding_covers_random_cases():
    generator = np.random.default_rng(0)
    for log_kappa, distance in zip(
        -np.exp(generator.uniform(-3, 8.4, 60)), np.exp(generator.uniform(-6, 4.8, 60)), strict=True
    ):
        exact = float(reference.gaussian_pair(float(log_kappa), float(distance)))
        if exact < -1e-290:
            value = gaussian(float(log_kappa), 1 / float(distance)).log_upper
            assert abs(value / exact - 1) < 2 * ROUNDING


def test_quantile_inverts_the_normal_law():
    for log_probability in LOG_BASELINES:
        z = normal_quantile(log_probability)
        with mpmath.workdps(40):
            assert abs(mpmath.log(mpmath.ncdf(z)) / log_probability - 1) < 1e-13


def test_steps_and_records_enter_through_the_distance():
    assert gaussian(-3.0, 2.0, steps=100).log_upper == pytest.approx(gaussian(-3.0, 0.2).log_upper, rel=1e-12)
    assert gaussian(-3.0, 2.0, records=4).log_upper == pytest.approx(gaussian(-3.0, 0.5).log_upper, rel=1e-12)


def test_subsampled_hands_over_to_the_closed_forms():
    assert subsampled(-3.0, 1.3, 1.0, 50) == gaussian(-3.0, 1.3, 50)
    assert subsampled(-3.0, 1.3, 0.2, 1, records=3) == single_step(-3.0, 1.3, 0.2, 3)


def test_certainty_is_never_reported_from_below():
    ceiling = gaussian(math.log(0.5), 1e-3, steps=1000)
    assert ceiling.upper == 1.0
    assert ceiling.lower < 1
    assert ceiling.log_lower < 0


def test_binomial_weights_add_up():
    assert np.exp(log_binomial(30, 0.2)).sum() == pytest.approx(1, abs=1e-13)
    assert np.exp(log_binomial(5, 1.0)).tolist() == [0, 0, 0, 0, 0, 1]
