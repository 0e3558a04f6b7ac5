import math

import pytest
from scipy.stats import norm

from lostwax.bounds import bound, calibrate

CASES = [
    (0.3, 0.1, 0.02, 1000),
    (0.02, 0.01, 0.5, 30),
    (0.9, 0.1, 0.1, 100),
    (2e-6, 1e-6, 0.01, 500),
    (0.1003, 0.1, 0.01, 100),
]


@pytest.mark.parametrize(("target", "baseline", "rate", "steps"), CASES)
def test_the_noise_is_enough_and_hardly_less_is_not(target, baseline, rate, steps):
    plan = calibrate(max_success=target, baseline=baseline, sample_rate=rate, steps=steps)
    run = {"sample_rate": rate, "steps": steps, "baseline": baseline}
    assert plan.ceiling.upper <= target
    assert bound(noise_multiplier=plan.noise_multiplier, **run).lower <= target
    assert bound(noise_multiplier=0.9999 * plan.noise_multiplier, **run, tolerance=1e-8).lower > target


@pytest.mark.parametrize(("target", "baseline", "steps"), [(0.2, 0.1, 100), (0.6, 1e-3, 1), (0.11, 0.1, 10_000)])
def test_full_batches_have_a_closed_form(target, baseline, steps):
    plan = calibrate(max_success=target, baseline=baseline, steps=steps)
    assert plan.ceiling.upper <= target
    assert bound(noise_multiplier=0.9999 * plan.noise_multiplier, steps=steps, baseline=baseline).lower > target


@pytest.mark.parametrize(("target", "log_baseline", "rate", "steps"), [(0.2, -800.0, 1.0, 10), (0.3, -30.0, 0.2, 30)])
def test_a_blind_guess_too_small_for_a_float(target, log_baseline, rate, steps):
    plan = calibrate(max_success=target, log_baseline=log_baseline, sample_rate=rate, steps=steps)
    run = {"sample_rate": rate, "steps": steps, "log_baseline": log_baseline}
    assert plan.ceiling.upper <= target
    assert bound(noise_multiplier=0.9998 * plan.noise_multiplier, **run, tolerance=1e-8).lower > target


def test_a_log_is_the_number_it_is_of():
    run = {"max_success": 0.3, "steps": 10}
    assert calibrate(log_baseline=math.log(0.1), **run) == calibrate(baseline=0.1, **run)
    with pytest.raises(ValueError, match="exactly one of baseline and log_baseline, got both"):
        calibrate(baseline=0.1, log_baseline=math.log(0.1), **run)
    with pytest.raises(ValueError, match=r"max_success=0.3 to be above exp\(log_baseline=-1.0\)"):
        calibrate(log_baseline=-1.0, **run)


def test_the_example_of_the_notes():
    plan = calibrate(max_success=0.3, baseline=0.1, sample_rate=0.02, steps=1000)
    assert plan.noise_multiplier == pytest.approx(1.05507, abs=5e-5)
    assert plan.adjacency == "add or remove one record"
    assert "add or remove one record" in str(plan)


def test_a_record_that_is_hardly_ever_drawn_needs_no_noise():
    plan = calibrate(max_success=0.2, baseline=0.1, sample_rate=1e-3, steps=10)
    assert plan.noise_multiplier == 0
    assert plan.epsilon == math.inf
    assert plan.ceiling.upper <= 0.2


@pytest.mark.parametrize(("gain", "rate", "steps"), [(1e-14, 1.0, 1), (1e-9, 0.1, 10), (3e-5, 0.01, 1_000)])
def test_so_near_the_blind_guess_the_noise_cannot_be_told(gain, rate, steps):
    """At 3e-5 it was a hundred times too large."""
    with pytest.raises(ValueError, match=r"do not determine the noise.* Raise max_success"):
        calibrate(max_success=0.1 * (1 + gain), baseline=0.1, sample_rate=rate, steps=steps)


@pytest.mark.parametrize(("gain", "rate", "steps"), [(2e-8, 1.0, 4), (1e-5, 0.5, 3), (1e-4, 0.1, 10)])
def test_near_the_blind_guess_it_is_that_of_the_first_order(gain, rate, steps):
    """log gamma - log kappa = q sqrt(T) phi(Phi^-1(kappa)) / (kappa s) + ..."""
    plan = calibrate(max_success=0.1 * (1 + gain), baseline=0.1, sample_rate=rate, steps=steps)
    first_order = rate * math.sqrt(steps) * norm.pdf(norm.ppf(0.1)) / (0.1 * gain)
    assert plan.noise_multiplier == pytest.approx(first_order, rel=0.01)
