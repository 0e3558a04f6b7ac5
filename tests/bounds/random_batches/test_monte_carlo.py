import math

import pytest

from lostwax.bounds import bound, monte_carlo

RUN = (math.log(0.1), 1.0, 0.05, 40)


@pytest.fixture(scope="module")
def exact():
    return bound(noise_multiplier=1.0, sample_rate=0.05, steps=40, baseline=0.1, tolerance=1e-6).upper


def test_both_estimates_are_near_and_the_limits_hold(exact):
    for seed in range(5):
        repaired = monte_carlo(*RUN, samples=40_000, seed=seed)
        printed = monte_carlo(*RUN, samples=40_000, seed=seed, repaired=False)
        assert repaired.estimate == pytest.approx(exact, rel=0.03)
        assert printed.estimate == pytest.approx(exact, rel=0.1)
        assert repaired.lower <= exact <= repaired.upper
        assert (printed.lower, printed.upper) == (repaired.lower, repaired.upper)
        assert not repaired.certified


def test_more_samples_narrow_the_limits():
    few, many = (monte_carlo(*RUN, samples=n) for n in (2_000, 100_000))
    assert many.upper - many.lower < 0.3 * (few.upper - few.lower)


def test_full_batches_agree_with_the_closed_form():
    estimate = monte_carlo(math.log(0.1), 2.0, 1.0, 4, samples=200_000).estimate
    assert estimate == pytest.approx(bound(noise_multiplier=2.0, steps=4, baseline=0.1).upper, rel=0.01)


def test_it_is_reproducible():
    assert monte_carlo(*RUN, samples=2_000, seed=3) == monte_carlo(*RUN, samples=2_000, seed=3)
    assert monte_carlo(*RUN, samples=2_000, seed=3) != monte_carlo(*RUN, samples=2_000, seed=4)


def test_ratios_that_all_underflow_leave_the_limits_open():
    ceiling = monte_carlo(math.log(0.1), 0.01, 1.0, 100, samples=1_000)
    assert ceiling.upper == 1.0
    assert 0.1 <= ceiling.lower <= 1.0
