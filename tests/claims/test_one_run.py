"""What guesses about the canaries of one run prove: against published numbers, a linear programme and simulations."""

import math

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from lostwax.bounds import FullBatch, Poisson
from lostwax.bounds.goals import guarantee_leak, noise_leak
from lostwax.claims.one_run import (
    SLOPES,
    Claim,
    Exchange,
    Guesses,
    counted,
    judged,
    least_epsilon,
    p_value,
    p_value_of_epsilon,
    refutes,
)


def gaussian_exchange(noise):
    return Exchange.of(noise_leak(noise, 1, FullBatch()).curves(1e-4)[0])


def test_published_values_are_reproduced():
    """Steinke, Nasr and Jagielski 2023: appendix D, and figure 11 in section 7."""
    assert least_epsilon(1e-4, Guesses(1000, 100, 75), 0.05) == pytest.approx(0.673, abs=5e-4)
    assert least_epsilon(1e-5, Guesses(100_000, 1510, 1439), 0.05) == pytest.approx(2.675, abs=1e-3)


def test_pure_privacy_is_a_binomial_tail():
    q = 1 / (1 + math.exp(-1.3))
    assert p_value_of_epsilon(1.3, 0.0, Guesses(200, 50, 45)) == pytest.approx(binom.sf(44, 50, q))
    assert p_value_of_epsilon(1.3, 1e-3, Guesses(200, 50, 45)) > binom.sf(44, 50, q)
    assert p_value_of_epsilon(1.3, 0.0, Guesses(200, 50, 0)) == 1


@pytest.mark.parametrize("noise", [0.5, 1.0, 3.0])
def test_lines_are_above_the_exact_exchange_of_a_gaussian(noise):
    """A symmetric trade-off: right <= gamma(wrong), here Phi(Phi^-1(w) + 1 / noise)."""
    exchange = gaussian_exchange(noise)
    for wrong in (1e-4, 1e-2, 0.1, 0.3):
        right = ndtr(ndtri(wrong) + 1 / noise)
        above = float((exchange.heights + SLOPES * wrong).min())
        assert right <= above <= right * 1.07
        assert exchange.least_wrong(right) <= wrong * (1 + 1e-9)


def largest_tail(exchange, guesses):
    """The same by a linear programme over the probabilities of 0..r right guesses."""
    m, r, right = guesses
    rows, limits = [], []
    numbers = np.arange(r + 1)
    for j in range(1, r + 1):
        for height, slope in zip(exchange.heights, SLOPES, strict=True):
            if 1e-3 < slope < 1e3:
                row = np.where(numbers >= j, numbers, 0) - slope * np.where(numbers >= j - 1, r - numbers, 0)
                rows.append(row / m)
                limits.append(height)
    solved = linprog(
        -(numbers >= right).astype(float), np.array(rows), np.array(limits), np.ones((1, r + 1)), [1.0], (0, 1), "highs"
    )
    return -solved.fun


@pytest.mark.parametrize("guesses", [Guesses(10, 10, 9), Guesses(40, 12, 11), Guesses(100, 8, 8), Guesses(20, 20, 14)])
@pytest.mark.parametrize("noise", [1.0, 2.5])
def test_the_recursion_is_the_linear_programme(noise, guesses):
    exchange = gaussian_exchange(noise)
    assert p_value(exchange, guesses) == pytest.approx(largest_tail(exchange, guesses), rel=1e-3)


def played(mean, canaries, random):
    inside = random.random(canaries) < 0.5
    return random.standard_normal(canaries) + mean * inside, inside


@pytest.mark.parametrize("mean", [0.3, 1.0, 2.0])
def test_a_true_claim_is_hardly_ever_refuted(mean):
    """Canaries at the edge of what a Gaussian mechanism permits, 1,000 runs: each p-value is too small too rarely."""
    random, exchange, refuted = np.random.default_rng(0), gaussian_exchange(1 / mean), 0
    for _ in range(1000):
        every = counted(*played(mean, 60, random))
        refuted += any(refutes(guesses, exchange, 0.05 / len(every)) for guesses in every)
    assert refuted <= 50


def test_a_false_claim_is_refuted_and_epsilon_is_below_the_truth():
    random = np.random.default_rng(1)
    scores, inside = played(3.0, 1000, random)  # noise 1 / 3 instead of 2
    claim = Claim(2.0, 1, FullBatch(), None, 1e-5)
    result = judged(claim, {"scores": scores}, inside)
    assert result.refuted
    truth = claim.epsilon_of(1 / 3)
    assert claim.stated_epsilon < result.epsilon < result.mechanism_epsilon < truth
    assert "The claim is false" in str(result)


def test_coins_alone_prove_nothing():
    random = np.random.default_rng(2)
    for seed in range(2):
        scores, inside = random.standard_normal(500), np.random.default_rng(seed).random(500) < 0.5
        result = judged(Claim(1.0, 10, Poisson(0.1), None, 1e-5), {"scores": scores}, inside)
        assert not result.refuted
        assert result.epsilon < 0.6


def test_everything_given_away_with_probability_delta_is_permitted():
    """The claim (0, delta): nothing, but for delta, where all coins are seen."""
    guesses, delta = Guesses(100, 100, 100), 0.02
    assert p_value_of_epsilon(0.0, delta, guesses) >= delta
    assert p_value(Exchange.of(guarantee_leak(1e-9, delta).curves(1e-4)[0]), guesses) >= delta * 0.99


def test_guesses_are_the_ends_of_the_scores():
    scores = np.arange(100.0)
    inside = scores >= 50
    every = counted(scores, inside)
    assert every[0] == Guesses(100, 100, 100)
    assert all(guesses.right == guesses.number for guesses in every)
    assert counted(scores, ~inside)[0].right == 0


@pytest.mark.parametrize("canaries", [2, 3, 7, 31, 999])
def test_no_canary_is_guessed_both_in_and_out(canaries):
    scores = np.arange(float(canaries))
    every = counted(scores, scores >= canaries / 2)
    assert all(guesses.number <= canaries for guesses in every)
    assert every[0].number == canaries - canaries % 2
