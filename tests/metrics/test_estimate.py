import numpy as np
import pytest
from scipy.stats import binom

from lostwax.metrics.estimate import median_interval


@pytest.mark.parametrize("games", [6, 7, 10, 31, 100, 401])
def test_the_median_lies_between_with_95_percent(games):
    """Whatever the law: as many scores lie below the median as heads among so many throws of a coin."""
    low, high = median_interval(np.random.default_rng(0).permutation(games).astype(float))
    assert binom.cdf(high, games, 0.5) - binom.cdf(low, games, 0.5) >= 0.95
    assert low <= np.median(np.arange(games)) <= high


def test_five_scores_enclose_no_median_and_infinite_ones_have_their_place():
    assert median_interval(np.arange(5.0)) is None
    assert median_interval(np.array([1.0, 2.0, 3.0, np.inf, np.inf, np.inf])) == (1.0, np.inf)
