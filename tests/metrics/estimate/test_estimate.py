import numpy as np
import pytest
from scipy.stats import binom

from lostwax.metrics.estimate import clopper_pearson, median_interval, spread_interval


@pytest.mark.parametrize("games", [6, 7, 10, 31, 100, 401])
def test_the_median_lies_between_with_95_percent(games):
    """Whatever the law: as many scores lie below the median as heads among so many throws of a coin."""
    low, high = median_interval(np.random.default_rng(0).permutation(games).astype(float))
    assert binom.cdf(high, games, 0.5) - binom.cdf(low, games, 0.5) >= 0.95
    assert low <= np.median(np.arange(games)) <= high


def test_five_scores_enclose_no_median_and_infinite_ones_have_their_place():
    assert median_interval(np.arange(5.0)) is None
    assert median_interval(np.array([1.0, 2.0, 3.0, np.inf, np.inf, np.inf])) == (1.0, np.inf)


@pytest.mark.parametrize("spread", [0.3, 0.6])
@pytest.mark.parametrize("mean", [0.03, 0.2, 0.5, 0.9])
def test_the_mean_of_a_rate_that_varies_is_covered(mean, spread):
    trials, random = 40, np.random.default_rng(0)
    size = 1 / (spread**2 * mean * (1 - mean)) - 1
    won = random.binomial(trials, random.beta(mean * size, (1 - mean) * size, 20_000))
    intervals = np.array([spread_interval(number, trials, spread) for number in range(trials + 1)])
    low, high = intervals[won].T
    assert ((low <= mean) & (mean <= high)).mean() > 0.95
    assert (mean < low).mean() < 0.025 + 0.004
    assert (mean > high).mean() < 0.025 + 0.004
    assert (np.diff(intervals, axis=0) > 0).all()  # more games that are won move both ends


def test_without_spread_it_is_the_interval_of_independent_trials():
    for won, trials in ((0, 9), (4, 9), (3.5, 9), (9, 9)):
        assert spread_interval(won, trials, 0.0) == clopper_pearson(won, trials)
    np.testing.assert_allclose(spread_interval(4, 9, 1e-3), clopper_pearson(4, 9), atol=1e-5)
    scores = np.random.default_rng(1).normal(size=50)
    assert median_interval(scores, spread=1e-4) == median_interval(scores)
    low, high = median_interval(scores, spread=0.6)
    assert low < median_interval(scores)[0]
    assert high > median_interval(scores)[1]
    assert median_interval(scores[:3], spread=0.6) is None


def test_parts_of_a_trial_widen_it():
    low, high = spread_interval(3.5, 9, 0.6)
    assert low == pytest.approx(spread_interval(3, 9, 0.6)[0])
    assert high == pytest.approx(spread_interval(4, 9, 0.6)[1])
