"""Each record in one random step per epoch: against integration, samples, and what is known in closed form."""

import math
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bounds import reference
from lostwax.bounds.ceiling import Ceiling
from lostwax.bounds.closed_forms import gaussian
from lostwax.bounds.composed import narrowed
from lostwax.bounds.octaves import Shift, sum_of
from lostwax.bounds.random_batches import Epoch, balls_in_bins, largest_step, subsampled

CASES = [(1.0, 0.1), (0.5, 1e-6), (4.0, 0.5), (0.7, 1e-3)]


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize(("noise", "kappa"), CASES)
def test_one_epoch_agrees_with_integration(noise, kappa, steps):
    exact = reference.one_of_few_steps(noise, steps, math.log(kappa))
    for tolerance in (1e-2, 1e-5):
        ceiling = balls_in_bins(math.log(kappa), noise, steps, 1, tolerance)
        assert ceiling.log_lower <= exact <= ceiling.log_upper
        assert ceiling.relative_width <= tolerance


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "kappa"), CASES)
def test_two_steps_agree_with_integration_in_high_precision(noise, kappa):
    exact = reference.one_of_two_steps(noise, math.log(kappa))
    assert exact == pytest.approx(reference.one_of_few_steps(noise, 2, math.log(kappa)), rel=1e-11)
    ceiling = balls_in_bins(math.log(kappa), noise, 2, 1, 1e-6)
    assert ceiling.log_lower <= exact <= ceiling.log_upper


@pytest.mark.parametrize(
    ("noise", "epochs", "kappa"), [(0.5, 1, 1e-6), (1.0, 10, 0.1), (5.0, 100, 1e-4), (20.0, 7, 0.5)]
)
def test_one_step_per_epoch_is_a_full_batch(noise, epochs, kappa):
    log_kappa = math.log(kappa)
    exact = gaussian(log_kappa, noise, epochs)
    assert balls_in_bins(log_kappa, noise, 1, epochs) == exact
    # without the short cut: a sum of one variable, composed
    total = sum_of(noise, 1, 1024, highest=1 / noise + 9, negligible=1e-18, shifts=(Shift(1 / noise),))
    epoch = Epoch(total, epochs)
    place = partial(epoch.window, log_kappa, 1e-4)
    found = narrowed(Ceiling(log_kappa, 0.0, log_kappa, ""), epochs, 1e-4, place, epoch.cells)
    assert found.log_lower <= exact.log_upper
    assert exact.log_lower <= found.log_upper
    assert found.relative_width <= 1e-4


@pytest.mark.parametrize(
    ("noise", "steps", "epochs", "kappa"),
    [(1.0, 100, 10, 0.1), (0.5, 1000, 1, 0.1), (2.0, 5, 20, 0.01), (0.6, 3, 3, 0.3)],
)
def test_inside_the_limits_of_samples(noise, steps, epochs, kappa):
    low, high = reference.sampled_limits(noise, steps, epochs, kappa, samples=20_000, seed=1)
    ceiling = balls_in_bins(math.log(kappa), noise, steps, epochs)
    assert low <= ceiling.upper
    assert ceiling.lower <= high
    assert ceiling.relative_width <= 1e-4


def test_the_settings_of_the_docs():
    """As good as Poisson sampling, where shuffling is at least 0.51 and 0.60."""
    first, second = balls_in_bins(math.log(0.1), 1.0, 100, 10), balls_in_bins(math.log(0.1), 0.5, 1000, 1)
    assert 0.1928 < first.lower <= first.upper < 0.1930
    assert 0.1460 < second.lower <= second.upper < 0.1461
    assert subsampled(math.log(0.1), 1.0, 0.01, 1000).upper == pytest.approx(0.1942, abs=1e-4)


@pytest.mark.parametrize(("noise", "steps"), [(1e-3, 100), (0.05, 7), (0.1, 100), (1e6, 10)])
def test_it_is_valid_beyond_the_range_of_the_tolerance(noise, steps):
    for log_kappa in (math.log(0.3), -30.0, -800.0):
        ceiling = balls_in_bins(log_kappa, noise, steps, 3)
        assert log_kappa <= ceiling.log_lower <= ceiling.log_upper <= gaussian(log_kappa, noise, 3).log_upper


@pytest.mark.parametrize(
    ("noise", "steps", "epochs", "kappa"), [(15.1267, 3, 2, 0.0123), (1.0, 1155, 1, 0.0067), (1.0, 10_000, 100, 1e-6)]
)
def test_merged_tails_do_not_spoil_the_test(noise, steps, epochs, kappa):
    """In each of these, tiny masses at the ends once outweighed the tilted law."""
    assert balls_in_bins(math.log(kappa), noise, steps, epochs).relative_width <= 1e-4


def test_the_largest_step_is_a_lower_end():
    for noise, steps, kappa in [(0.5, 100, 0.1), (1.0, 7, 1e-6), (0.3, 1000, 0.01)]:
        assert largest_step(math.log(kappa), noise, steps) <= balls_in_bins(math.log(kappa), noise, steps, 1).log_upper


SETTINGS = {
    "noise": st.floats(0.5, 30),
    "steps": st.integers(2, 10_000),
    "epochs": st.integers(1, 100),
    "log_kappa": st.floats(math.log(1e-6), math.log(0.9)),
}


@settings(max_examples=12, deadline=None, derandomize=True)
@given(**SETTINGS)
def test_the_interval_is_narrow_and_inside_what_is_known(noise, steps, epochs, log_kappa):
    ceiling = balls_in_bins(log_kappa, noise, steps, epochs)
    assert log_kappa <= ceiling.log_lower <= ceiling.log_upper <= gaussian(log_kappa, noise, epochs).log_upper
    assert ceiling.relative_width <= 1e-4
    assert ceiling.certified


@settings(max_examples=4, deadline=None, derandomize=True)
@given(**SETTINGS, factor=st.floats(1.01, 2))
def test_it_moves_the_right_way(noise, steps, epochs, log_kappa, factor):
    ceiling = balls_in_bins(log_kappa, noise, steps, epochs)
    assert balls_in_bins(log_kappa, noise * factor, steps, epochs).log_lower <= ceiling.log_upper
    assert balls_in_bins(log_kappa * factor, noise, steps, epochs).log_lower <= ceiling.log_upper
    assert balls_in_bins(log_kappa, noise, 2 * steps, epochs).log_lower <= ceiling.log_upper  # twice the places to hide
    assert ceiling.log_lower <= balls_in_bins(log_kappa, noise, steps, epochs + 1).log_upper
