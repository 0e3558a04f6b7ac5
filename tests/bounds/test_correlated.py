"""Correlated noise: what a record moves, by the matrix itself."""

import math
import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from lostwax.bounds import (
    BallsInBins,
    Correlated,
    Cyclic,
    FixedSize,
    FullBatch,
    Poisson,
    Records,
    Shuffled,
    bound,
    calibrate,
)

GAMES = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "goals.py"))
BAND = [1.0, 0.5, 0.375]
RUN = {"noise_multiplier": 1.5, "steps": 12, "baseline": 0.1}


def toeplitz(column, steps):
    c = np.zeros((steps, steps))
    for lag, value in enumerate(column):
        c += value * np.eye(steps, k=-lag)
    return c


def test_a_matrix_is_its_longest_column_and_its_bands():
    matrix, short = Correlated.of(toeplitz(BAND, 12)), Correlated.of(BAND)
    assert matrix == short
    assert short.bands == 3
    assert short.norm == pytest.approx(np.linalg.norm(BAND))
    assert Correlated.of(np.eye(5)).bands == 1


def test_one_step_in_closed_form():
    """Prefix sums by DP-FTRL: C is a square root of the lower triangle, a Toeplitz matrix without bands."""
    steps = 64
    root = np.cumprod([1.0, *((2 * k - 1) / (2 * k) for k in range(1, steps))])
    c = toeplitz(root, steps)
    assert np.allclose(c @ c, np.tril(np.ones((steps, steps))))
    exact = ndtr(ndtri(0.1) + float(np.linalg.norm(c, axis=0).max()) / 4)
    for sampling in (Correlated.of(c), Correlated(float(np.linalg.norm(root)))):
        ceiling = bound(noise_multiplier=4.0, steps=steps, baseline=0.1, sampling=sampling)
        assert ceiling.upper == pytest.approx(exact, rel=1e-9)
        assert ceiling.certified


def test_independent_noise_is_the_identity():
    for batches in (Poisson(0.2), BallsInBins(3), Cyclic(4), FullBatch()):
        same, plain = (bound(**RUN, sampling=sampling) for sampling in (Correlated(1.0, 1, batches), batches))
        assert (same.lower, same.upper) == (plain.lower, plain.upper)


def test_a_longer_column_needs_more_noise():
    target = {"max_success": 0.5, "baseline": 0.1, "steps": 12}
    for batches in (Poisson(0.5), Cyclic(4)):
        one, two = (calibrate(**target, sampling=Correlated(norm, 1, batches)) for norm in (1.0, 2.0))
        assert two.noise_multiplier == pytest.approx(2 * one.noise_multiplier, rel=1e-3)
        assert two.epsilon == pytest.approx(one.epsilon, rel=1e-2)


def test_columns_that_are_apart_add_up_by_their_squares():
    """The worst of all records that are in steps three apart, by the matrix."""
    c, norm = toeplitz(BAND, 12), float(np.linalg.norm(BAND))
    moved = max(float(np.linalg.norm(c[:, first::3].sum(1))) for first in range(3))
    assert moved <= 2 * norm + 1e-12
    ceiling = bound(**RUN, sampling=Correlated.of(BAND, Cyclic(4)))
    assert ceiling.upper == pytest.approx(ndtr(ndtri(0.1) + 2 * norm / 1.5), rel=1e-9)
    assert ceiling.upper >= ndtr(ndtri(0.1) + moved / 1.5)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_banded_with_poisson_sampling_played(rate):
    runs = 20_000
    ceiling = bound(noise_multiplier=1.0, steps=60, baseline=0.1, sampling=Correlated.of(BAND, Poisson(rate)))
    played = GAMES["true_positives"](*GAMES["banded"](np.array(BAND), rate, 1.0, 60, runs), 0.1)
    slope = math.exp(ceiling.log_slope)
    assert played == pytest.approx(ceiling.upper, abs=4 * math.sqrt((0.25 + slope**2 * 0.09) / runs))


def test_several_records_may_be_in_different_steps():
    one, two = (bound(**RUN, sampling=Correlated.of(BAND, Poisson(0.3)), goal=Records(k)) for k in (1, 2))
    assert one.upper < two.upper
    together = bound(noise_multiplier=1.5 / float(np.linalg.norm(BAND)), steps=4, baseline=0.1, goal=Records(2))
    assert two.upper <= together.upper * (1 + 1e-9)


@pytest.mark.parametrize(
    ("made", "error", "words"),
    [
        (lambda: Correlated(0.0), ValueError, "norm=0.0"),
        (lambda: Correlated(1.0, 0), ValueError, "bands=0"),
        (lambda: Correlated(1.0, 2, Shuffled(3)), ValueError, "Nothing is proved"),
        (lambda: Correlated(1.0, 2, FixedSize(10, 2)), ValueError, "Nothing is proved"),
        (lambda: Correlated(1.0, 2, Correlated(1.0)), ValueError, "Nothing is proved"),
        (lambda: Correlated(1.0, 2, Poisson), TypeError, "value like"),
        (lambda: Correlated.of(np.ones((3, 3))), ValueError, "lower triangular"),
        (lambda: Correlated.of([]), ValueError, "lower triangular"),
        (lambda: bound(**RUN, sampling=Correlated(1.0, 3, Cyclic(5))), ValueError, "at most 4 epochs"),
        (lambda: bound(**RUN, sampling=Correlated(1.0, batches=Cyclic(2))), ValueError, "at most 1 epochs"),
    ],
)
def test_what_is_not_proved_is_refused(made, error, words):
    with pytest.raises(error, match=words):
        made()
