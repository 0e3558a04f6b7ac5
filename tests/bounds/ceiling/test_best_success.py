"""The best success among given candidates, against closed forms."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from lostwax.bounds import best_success
from lostwax.bounds.closed_forms import gaussian


@pytest.mark.parametrize("distance", [0.5, 2.0])
def test_two_candidates_are_a_test_between_two_gaussians(distance):
    vectors = np.array([[0.3, 0.1], [0.3, 0.1 + distance]])
    got = best_success((vectors @ vectors.T)[None].repeat(100, 0), draws=1_000)
    assert got == pytest.approx(norm.cdf(distance / 2), abs=4 * 0.5 / 100_000**0.5)


@pytest.mark.parametrize(("candidates", "length"), [(10, 2.0), (3, 1.0)])
def test_orthonormal_candidates_are_a_race(candidates, length):
    """The right one wins where N(length, 1) exceeds c - 1 others of N(0, 1)."""
    wanted, _ = quad(lambda x: norm.pdf(x - length) * norm.cdf(x) ** (candidates - 1), -10, 14)
    got = best_success(length**2 * np.eye(candidates)[None].repeat(100, 0), draws=1_000)
    assert got == pytest.approx(wanted, abs=4 * 0.5 / 100_000**0.5)
    assert got < gaussian(np.log(1 / candidates), 1 / length).upper


def test_candidates_that_look_alike_are_a_guess():
    assert best_success(np.ones((50, 4, 4)), draws=1_000) == pytest.approx(0.25, abs=0.01)


def test_what_is_no_gram_matrix_is_refused():
    with pytest.raises(ValueError, match=r"Expected gram to hold a matrix \(c, c\)"):
        best_success(np.eye(3))
