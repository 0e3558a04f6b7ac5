"""Lines above the ceiling of every baseline, and the answers that follow from them."""

import math

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from lostwax.bounds import BallsInBins, FixedSize, Poisson, Shuffled, TruncatedPoisson, from_dp
from lostwax.bounds.closed_forms import gaussian
from lostwax.bounds.curve import CeilingCurve, best_of_several, widest_gap
from lostwax.bounds.sampling import Cyclic

SAMPLINGS = [Poisson(0.05), Poisson(0.9), BallsInBins(5), Shuffled(5), FixedSize(200, 10), Cyclic(5)]
SAMPLINGS += [TruncatedPoisson(0.05, 200, 15), TruncatedPoisson(0.05, 200, 30)]
BASELINES = np.array([1e-9, 1e-4, 0.01, 0.1, 0.35, 0.5, 0.8, 0.97, 1 - 1e-6])


@pytest.mark.parametrize("records", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("noise", [0.02, pytest.param(0.4, marks=pytest.mark.slow), 2.0])
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=repr)
def test_each_line_is_above_all_ceilings(sampling, noise, records):
    found = [sampling.ceiling(math.log(k), noise, 100, 1e-4, records) for k in BASELINES.tolist()]
    lowest = np.array([ceiling.lower for ceiling in found])
    for ceiling in found:
        line = ceiling.upper + math.exp(ceiling.log_slope) * (BASELINES - ceiling.baseline)
        assert (line >= lowest * (1 - 1e-10)).all(), ceiling


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (1.0, 0.0), (1.0, 0.1), (8.0, 1e-5), (0.1, 0.9)])
def test_each_line_of_a_guarantee_is_above_all_ceilings(epsilon, delta):
    found = [from_dp(math.log(k), epsilon, delta) for k in BASELINES.tolist()]
    highest = np.array([ceiling.upper for ceiling in found])
    for ceiling in found:
        line = ceiling.upper + math.exp(ceiling.log_slope) * (BASELINES - ceiling.baseline)
        assert (line >= highest * (1 - 1e-10)).all()


def test_both_answers_in_closed_form():
    random = np.random.default_rng(0)
    q = np.linspace(1e-9, 1 - 1e-9, 100_001)
    for _ in range(20):
        distance, p = math.exp(random.uniform(-4, 1.5)), float(random.uniform(0.5, 0.99))
        curve = CeilingCurve(lambda k, distance=distance: gaussian(k, 1 / distance))
        gap = widest_gap(curve, 1e-6)
        assert gap.low - 1e-9 <= 2 * ndtr(distance / 2) - 1 <= gap.high + 1e-12
        exact = float((p * ndtr(ndtri(q) + distance) + (1 - p) * ndtr(ndtri(1 - q) + distance)).max())
        best = best_of_several(curve, np.array([p, 1 - p]), 1e-6)
        assert best.low - 1e-6 <= max(exact, p) <= best.high + 1e-9
        assert best.high - best.low < 1e-4


def test_values_without_probability_change_nothing():
    curve = CeilingCurve(lambda k: gaussian(k, 1.0))
    some, none = (best_of_several(curve, np.array(p), 1e-6) for p in ([0.7, 0.3], [0.7, 0.3, 0.0, 0.0]))
    assert some == none


def test_many_different_values():
    prior = np.random.default_rng(0).dirichlet([0.3] * 200)
    best = best_of_several(CeilingCurve(lambda k: gaussian(k, 1.0)), prior, 1e-3)
    assert prior.max() <= best.low <= best.high <= ndtr(ndtri(prior.max()) + 1)
    assert best.high - best.low < 0.01


def test_a_slope_beyond_all_known_points_is_reached():
    """The second point is within 1e-3 deviations of the wanted one: the next must be on its other side."""
    asked = []

    def at(log_kappa):
        asked.append(log_kappa)
        return Poisson(0.055).ceiling(log_kappa, 4.013, 1, 1e-6)

    gap = widest_gap(CeilingCurve(at), 1e-6)
    assert gap.high - gap.low < 1e-6
    assert len(asked) <= 8
