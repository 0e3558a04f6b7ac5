"""At least k of n records: no attack that is played exceeds it, and one record of one is the ceiling itself."""

import math
import runpy
from itertools import pairwise
from pathlib import Path

import mpmath
import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from lostwax.bounds import Poisson, Records, bound
from lostwax.bounds.closed_forms import gaussian
from lostwax.bounds.curve import CeilingCurve, at_least, log_most_informed

GAMES = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks" / "goals.py"))
RUNS = 50_000


def curve(noise):
    return CeilingCurve(lambda log_kappa: gaussian(log_kappa, noise))


def test_one_of_one():
    for noise, kappa in ((0.5, 0.1), (2.0, 0.5), (2.0, 1e-4)):
        assert at_least(curve(noise), kappa, 1, 1) == pytest.approx(ndtr(ndtri(kappa) + 1 / noise), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("noise", "n"), [(1.0, 6), (3.0, 20), (6.0, 60)])
def test_attacks_that_are_played_stay_below(noise, n):
    """Signs with orthogonal gradients, each tested alone; and on one line, all guessed at once."""
    one = ndtr(1 / noise)  # opposite gradients, blind 1/2
    line = GAMES["signs_along_one_line"](noise, n, RUNS)
    for k in range(1, n + 1, max(1, n // 6)):
        limit = at_least(curve(noise), 0.5, k, n)
        assert binom.sf(k - 1, n, one) <= limit + 1e-9
        assert (line >= k).mean() <= limit + 4 * math.sqrt(0.25 / RUNS)


def test_falls_with_k_and_with_noise_and_is_below_markov():
    n, kappa = 12, 0.1
    for noise in (1.0, 3.0):
        limits = [at_least(curve(noise), kappa, k, n) for k in range(1, n + 1)]
        assert all(a >= b - 1e-7 for a, b in pairwise(limits))
        one = ndtr(ndtri(kappa) + 1 / noise)
        assert all(limit <= min(1.0, n * one / k) + 1e-6 for k, limit in enumerate(limits, start=1))
        less = [at_least(curve(noise / 1.3), kappa, k, n) for k in range(1, n + 1)]
        assert all(a <= b + 1e-7 for a, b in zip(limits, less, strict=True))


def test_a_blind_adversary_is_allowed_what_it_can_do():
    """With very much noise, the number of right guesses is binomial."""
    for k in (1, 3, 6):
        assert at_least(curve(1e6), 0.3, k, 10) >= binom.sf(k - 1, 10, 0.3) - 1e-9


def test_mixtures_of_attacks_stay_below():
    """Good on some releases and hopeless on others: what a limit on the mean alone would allow."""
    random = np.random.default_rng(0)
    noise, n = 2.0, 10
    for _ in range(5):
        bits = random.integers(2, size=(RUNS, n))
        weights = random.dirichlet([0.5] * n) ** 0.5  # of orthogonal directions in a common one
        together = ((2 * bits - 1) * weights).sum(1)
        along = together + noise * np.linalg.norm(weights) * random.standard_normal(RUNS)
        guesses = (along[:, None] * weights > 0).astype(int)
        right = (guesses == bits).sum(1)
        for k in (6, 8, 10):
            assert (right >= k).mean() <= at_least(curve(noise), 0.5, k, n) + 4 * math.sqrt(0.25 / RUNS)


def test_what_a_blind_guess_always_reaches_is_no_news():
    ceiling = bound(noise_multiplier=1.0, baseline=0.1, goal=Records(1, of=500))
    assert ceiling.upper == 1
    assert 0 <= ceiling.advantage <= 1
    assert "blind guess" in str(ceiling)
    assert ceiling._repr_html_()


def test_the_interval_holds_the_independent_tests():
    run = {"noise_multiplier": 1.0, "steps": 50, "sampling": Poisson(0.05), "baseline": 0.1}
    ceiling, one = bound(**run, goal=Records(3, of=8)), bound(**run)
    assert ceiling.baseline == pytest.approx(binom.sf(2, 8, 0.1))
    assert ceiling.lower == pytest.approx(binom.sf(2, 8, one.lower), rel=1e-6)
    assert ceiling.lower < ceiling.upper < 3 * ceiling.lower


@pytest.mark.parametrize("nats", [1e-9, 1e-3, 0.2, 5.0])
@pytest.mark.parametrize("blind", [1e-250, 1e-6, 0.05, 0.5, 0.97])
def test_what_few_nats_allow_is_the_root_from_above(blind, nats):
    log_most = log_most_informed(math.log(blind), nats)
    if log_most == 0:
        assert -math.log(blind) <= nats
        return
    with mp.workdps(40):
        p, b = mpmath.exp(mpf(log_most)), mpmath.exp(mpf(math.log(blind)))
        divergence = p * mpmath.log(p / b) + (1 - p) * mpmath.log((1 - p) / (1 - b))
        assert nats <= divergence <= nats * (1 + 1e-9) + 1e-10


def test_independent_tests_say_no_more_than_their_nats():
    """n records with orthogonal gradients: each test has Phi(1 / s) at most, and 1 / (2 s^2) nats are said of each."""
    for noise in (0.7, 1.5, 4.0):
        for n, k in ((3, 3), (10, 8), (40, 30), (200, 140)):
            log_blind = math.log(binom.sf(k - 1, n, 0.5))
            assert binom.logsf(k - 1, n, ndtr(1 / noise)) <= log_most_informed(log_blind, n / (2 * noise**2)) + 1e-12


def test_eight_of_ten_signs():
    """The number of docs/bounds.md: what is said of all records together is sharper than one record at a time."""
    ceiling = bound(noise_multiplier=3.0, baseline=0.5, goal=Records(8, of=10))
    assert ceiling.upper < 0.4132 < 0.6 < at_least(curve(3.0), 0.5, 8, 10)
    assert ceiling.lower > 0.22
