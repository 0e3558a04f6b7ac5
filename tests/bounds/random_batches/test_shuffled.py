import math

import numpy as np
import pytest

from lostwax.bounds.closed_forms import gaussian
from lostwax.bounds.random_batches import balls_in_bins, shuffled


def test_the_settings_of_the_docs():
    first, second = shuffled(math.log(0.1), 1.0, 100, 10), shuffled(math.log(0.1), 0.5, 1000, 1)
    assert 0.516 < first.lower < 0.53
    assert first.upper == pytest.approx(0.970, abs=1e-4)
    assert 0.604 < second.lower < 0.61
    assert second.upper == pytest.approx(0.7638, abs=1e-4)
    assert "Chua" in first.method
    assert "one full-batch step per epoch" in first.method


@pytest.mark.parametrize(
    ("noise", "steps", "epochs", "kappa"), [(1.0, 20, 3, 0.1), (0.5, 100, 1, 0.02), (2.0, 4, 10, 0.3)]
)
def test_the_lower_end_is_not_above_the_best_test_of_the_pair(noise, steps, epochs, kappa):
    """The likelihood ratio of the pair, sampled: the best test has at least the certified power."""
    generator, games = np.random.default_rng(0), 30_000
    losses = []
    for shift in (1.0, 2.0):
        loss = np.zeros(games)
        for _ in range(epochs):
            z = generator.standard_normal((games, steps))
            z[:, 0] += shift / noise
            moved = np.exp(2 * z / noise - 2 / noise**2).sum(1)
            loss += np.log(moved / np.exp(z / noise - 1 / (2 * noise**2)).sum(1))
        losses.append(loss)
    power = float((losses[1] > np.quantile(losses[0], 1 - kappa)).mean())
    lower = shuffled(math.log(kappa), noise, steps, epochs).lower
    assert lower <= power + 0.015
    assert lower >= power - 0.03


@pytest.mark.parametrize("noise", [1e-3, 0.5, 3.0, 1e4])
@pytest.mark.parametrize(("steps", "epochs"), [(1, 5), (2, 1), (100, 20)])
def test_it_is_valid_everywhere(noise, steps, epochs):
    for log_kappa in (math.log(0.5), math.log(1e-5), -200.0):
        ceiling = shuffled(log_kappa, noise, steps, epochs)
        assert log_kappa <= ceiling.log_lower <= ceiling.log_upper == gaussian(log_kappa, noise, epochs).log_upper
        assert ceiling.certified


def test_shuffling_hides_less_than_balls_in_bins():
    assert shuffled(math.log(0.1), 0.5, 1000, 1).lower > 4 * balls_in_bins(math.log(0.1), 0.5, 1000, 1).upper
