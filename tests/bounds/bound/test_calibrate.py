import math

import pytest
from scipy.stats import norm

import lostwax as lw
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


@pytest.mark.parametrize(("success", "advice"), [(5, "for 5 % pass 0.05"), (0, "for instance 0.05"), (250, "0.05")])
def test_a_success_is_a_share_not_a_percentage(success, advice):
    with pytest.raises(ValueError, match=rf"max_success={success} .* a share between 0 and 1: .*{advice}"):
        calibrate(max_success=success, baseline=0.01)


def test_an_epsilon_that_is_not_tight_says_so():
    """Balls in bins: the ceiling counts the secret draw, epsilon does not; so it is far above Poisson sampling's."""
    settings = {"max_success": 0.05, "baseline": 0.01, "steps": 100}
    poisson = calibrate(**settings, sampling=lw.bounds.Poisson(0.05))
    in_bins = calibrate(**settings, sampling=lw.bounds.BallsInBins(epochs=5))
    assert in_bins.epsilon > 2 * poisson.epsilon
    assert abs(in_bins.noise_multiplier / poisson.noise_multiplier - 1) < 0.1
    for shown in (str(in_bins), in_bins._repr_html_()):
        assert "valid but not tight" in shown
    assert "tight" not in str(poisson) + poisson._repr_html_()
    banded = lw.bounds.Correlated(norm=1.0, bands=2, batches=lw.bounds.BallsInBins(epochs=5))
    assert "not tight" in str(calibrate(**settings, sampling=banded))
