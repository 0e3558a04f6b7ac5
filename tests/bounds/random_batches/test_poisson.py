import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st

from bounds import reference
from lostwax.bounds.closed_forms import gaussian, single_step
from lostwax.bounds.random_batches import subsampled
from lostwax.bounds.step_law import StepLaw

CONTOURS = [  # noise, rate, steps, threshold, line of integration, its half width and nodes
    (1.0, 0.01, 1000, 0.45, 3.0, 50.0, 250),
    (2.0, 0.5, 100, 3.0, 0.8, 16.0, 220),
    (0.5, 0.005, 3000, 3.75, 1.5, 16.0, 180),
    (4.0, 0.2, 2000, 9.0, 3.0, 8.0, 160),
]


@pytest.mark.parametrize(("noise", "rate", "steps", "threshold", "line", "half_width", "nodes"), CONTOURS)
def test_the_contour_integral_lies_inside(noise, rate, steps, threshold, line, half_width, nodes):
    log_kappa, log_gamma = reference.contour_pair(
        noise, rate, steps, threshold, line, half_width=half_width, nodes=nodes
    )
    for tolerance in (1e-4, 1e-6):
        ceiling = subsampled(log_kappa, noise, rate, steps, tolerance)
        assert ceiling.log_lower <= log_gamma <= ceiling.log_upper
        assert ceiling.relative_width <= tolerance


def test_the_accountant_of_dp_accounting_agrees_from_above():
    """Its pessimistic loss distribution, remove direction, through the same duality."""
    noise, rate, steps, kappa = 1.05507, 0.02, 1000, 0.1
    law = pld.from_gaussian_mechanism(noise, sampling_prob=rate, value_discretization_interval=1e-4)
    composed = law.self_compose(steps)._pmf_remove
    levels = np.linspace(-2, 4, 4001)
    upper = min(composed.get_delta_for_epsilon(levels) + np.exp(levels) * kappa)
    ceiling = subsampled(math.log(kappa), noise, rate, steps, 1e-6)
    assert ceiling.lower <= upper
    assert upper == pytest.approx(ceiling.upper, rel=2e-5)


@pytest.mark.parametrize(("rate", "steps", "kappa"), [(0.01, 50, 0.1), (0.3, 3, 1e-9), (1e-4, 1000, 1e-3)])
def test_without_noise_all_that_is_left_is_never_being_drawn(rate, steps, kappa):
    limit = 1 - (1 - rate) ** steps * (1 - kappa)
    for noise in (1e-9, 1e-3, 0.02):
        ceiling = subsampled(math.log(kappa), noise, rate, steps)
        assert ceiling.lower <= limit <= ceiling.upper * (1 + 1e-12)
        assert ceiling.lower == pytest.approx(limit, rel=1e-3)


def test_the_limit_of_no_noise_keeps_the_digits_of_a_tiny_baseline():
    ceiling = subsampled(math.log(1e-18), 1e-3, 1e-20, 100)  # 1e-18 blind, and as much from being drawn
    assert ceiling.upper == pytest.approx(2e-18, rel=1e-9)


def test_a_rate_near_one_approaches_full_batches():
    close = subsampled(math.log(0.01), 3.0, 1 - 1e-7, 20)
    assert close.upper == pytest.approx(gaussian(math.log(0.01), 3.0, 20).upper, rel=1e-4)


@pytest.mark.parametrize(("kappa", "records"), [(0.1, 1), (1e-9, 1), (0.01, 3)])
def test_two_steps_agree_with_a_plain_integral(kappa, records):
    """Two steps on a fine grid: sort the pairs by their ratio and add up from the top."""
    noise, rate = 0.9, 0.3
    z = np.arange(-9, 9 + records / noise, 0.008) + 0.004
    loss = StepLaw(noise, rate, records).loss(z)
    mass = np.exp(-(z**2) / 2) * 0.008 / math.sqrt(2 * math.pi)
    ratios = np.add.outer(loss, loss).ravel()
    null = np.multiply.outer(mass, mass).ravel()
    order = np.argsort(-ratios)
    sizes = np.cumsum(null[order])
    powers = np.cumsum((null * np.exp(ratios))[order])
    plain = float(np.interp(kappa, sizes, powers))
    ceiling = subsampled(math.log(kappa), noise, rate, 2, records=records)
    assert ceiling.upper == pytest.approx(plain, rel=3e-4)


def test_sampling_two_records_is_between_its_bounds():
    """Moving both whenever either is drawn is worse; looking at one of the two is better."""
    noise, rate, steps, log_kappa = 1.5, 0.05, 200, math.log(0.01)
    both = subsampled(log_kappa, noise, rate, steps, records=2)
    assert subsampled(log_kappa, noise, rate, steps).log_lower <= both.log_upper
    assert both.log_lower <= subsampled(log_kappa, noise / 2, 1 - (1 - rate) ** 2, steps).log_upper
    assert both.relative_width <= 1e-4


SETTINGS = {
    "noise": st.floats(0.3, 30),
    "rate": st.floats(1e-3, 1),
    "steps": st.integers(1, 3000),
    "log_kappa": st.floats(math.log(1e-12), math.log(0.9)),
}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(**SETTINGS)
def test_the_interval_is_narrow_and_inside_what_is_known(noise, rate, steps, log_kappa):
    ceiling = subsampled(log_kappa, noise, rate, steps)
    assert log_kappa <= ceiling.log_lower <= ceiling.log_upper <= gaussian(log_kappa, noise, steps).log_upper
    assert single_step(log_kappa, noise, rate).log_lower <= ceiling.log_upper
    assert ceiling.relative_width <= 1e-4
    assert ceiling.certified


@settings(max_examples=25, deadline=None, derandomize=True)
@given(**SETTINGS, factor=st.floats(1.01, 2))
def test_it_moves_the_right_way(noise, rate, steps, log_kappa, factor):
    ceiling = subsampled(log_kappa, noise, rate, steps)
    assert subsampled(log_kappa, noise * factor, rate, steps).log_lower <= ceiling.log_upper
    assert subsampled(log_kappa, noise, rate / factor, steps).log_lower <= ceiling.log_upper
    assert subsampled(log_kappa * factor, noise, rate, steps).log_lower <= ceiling.log_upper
    assert ceiling.log_lower <= subsampled(log_kappa, noise, rate, steps + 5).log_upper


@pytest.mark.parametrize("log_kappa", [-230.0, -1000.0, -4605.0])
@pytest.mark.parametrize(
    ("noise", "rate", "steps"), [(0.3, 0.5, 100_000), (1.0, 0.001, 100_000), (30.0, 0.1, 1000), (1e4, 0.5, 7)]
)
def test_it_stays_valid_far_out(noise, rate, steps, log_kappa):
    ceiling = subsampled(log_kappa, noise, rate, steps)
    assert log_kappa <= ceiling.log_lower <= ceiling.log_upper <= gaussian(log_kappa, noise, steps).log_upper
    assert ceiling.lower < 1


@pytest.mark.parametrize("records", [1, 5, 40])
@pytest.mark.parametrize(("noise", "log_kappa"), [(1e-3, math.log(0.04)), (0.02, -500.0)])
def test_hardly_any_noise_is_the_limit_of_none_from_both_sides(noise, log_kappa, records):
    ceiling = subsampled(log_kappa, noise, 1e-3, 5, records=records)
    assert ceiling.relative_width < 1e-11
    assert ceiling.upper == pytest.approx(1 - 0.999 ** (5 * records) * (1 - math.exp(log_kappa)), rel=1e-9)


def test_little_noise_is_no_limit_at_a_tiny_baseline():
    """At exp(-4000) a draw is told from nothing only beyond 90 deviations."""
    assert subsampled(-4000.0, 0.02, 1e-3, 5).upper < 0.9 * (1 - 0.999**5)
