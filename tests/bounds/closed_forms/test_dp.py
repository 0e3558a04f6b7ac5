import math

import mpmath
import numpy as np
import pytest

from lostwax.bounds import from_dp


def test_small_baselines_grow_by_the_exponential():
    assert from_dp(math.log(1e-6), 2.0).upper == pytest.approx(1e-6 * math.exp(2), rel=1e-12)
    assert from_dp(math.log(1e-6), 2.0, 1e-5).upper == pytest.approx(1e-6 * math.exp(2) + 1e-5, rel=1e-12)


def test_randomised_response_meets_the_bound_on_both_sides():
    epsilon = 1.3
    truthful = math.exp(epsilon) / (1 + math.exp(epsilon))  # P[answer 1 | secret 1]; kappa = 1 - truthful
    assert from_dp(math.log1p(-truthful), epsilon).upper == pytest.approx(truthful, rel=1e-12)
    higher = from_dp(math.log(0.9), epsilon).upper  # beyond the corner the complement binds
    assert higher == pytest.approx(1 - 0.1 * math.exp(-epsilon), rel=1e-12)


def test_no_privacy_no_bound():
    assert from_dp(math.log(0.3), 1000.0).upper == 1.0
    assert from_dp(math.log(0.3), 0.0, 0.8).upper == 1.0
    assert from_dp(-4000.0, 800.0).log_upper == pytest.approx(-3200.0, rel=1e-12)


@pytest.mark.parametrize("delta", [1.0, 2.0])
def test_a_delta_is_a_chance(delta):
    with pytest.raises(ValueError, match=rf"delta={delta} to lie in \[0, 1\)"):
        from_dp(math.log(0.3), 1.0, delta)


def test_rounding_is_on_the_safe_side():
    """Against sixty digits: no upper end is below its theorem."""
    random = np.random.default_rng(0)
    with mpmath.workdps(60):
        for _ in range(200):
            log_kappa, epsilon = -math.exp(random.uniform(-5, 9)), math.exp(random.uniform(-8, 5))
            delta = float(random.choice([0, 1e-5, 1e-12]))
            kappa, grown = mpmath.exp(log_kappa), mpmath.exp(epsilon)
            event = min(mpmath.mpf(1), grown * kappa + delta, 1 - (1 - kappa - delta) / grown)
            assert from_dp(log_kappa, epsilon, delta).log_upper >= mpmath.log(event)


def test_zero_epsilon_leaves_the_blind_guess():
    assert from_dp(math.log(0.3), 0.0).upper == pytest.approx(0.3, rel=1e-12)
