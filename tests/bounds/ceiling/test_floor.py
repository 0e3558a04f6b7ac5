"""The least squared error: known rate-distortion functions, and estimates that are played."""

import math
import runpy
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import entr

from lostwax.bounds import BallsInBins, MeanSquaredError, Poisson, bound
from lostwax.bounds.ceiling import discrete_floor, gaussian_floor
from lostwax.bounds.step_law import step_divergence
from of_papers import paper_lib

GAMES = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks" / "goals.py"))


def test_gaussian_numbers_by_brute_force():
    """Information is shared between two numbers in the best way."""
    for a, b, total in ((1.0, 1.0, 0.7), (2.0, 0.5, 0.3), (2.0, 0.5, 3.0)):

        def error(first, a=a, b=b, total=total):
            return (a**2 * math.exp(-2 * first) + b**2 * math.exp(-2 * (total - first))) / 2

        best = minimize_scalar(error, bounds=(0, total), method="bounded", options={"xatol": 1e-10}).fun
        assert gaussian_floor(np.array([a, b]), total) == pytest.approx(min(best, error(0), error(total)), rel=1e-6)
    assert gaussian_floor(np.array([3.0]), 0.0) == pytest.approx(9.0)


def test_two_values_by_brute_force():
    """The best channel from a sign to an estimate, among those with two or three outputs, is above."""
    values, prior = np.array([-0.5, 0.5]), np.array([0.5, 0.5])
    for flip in (0.01, 0.1, 0.3, 0.45):
        information = math.log(2) - entr(flip) - entr(1 - flip)
        error = 0.25 * (1 - (1 - 2 * flip) ** 2)  # of the conditional mean
        floor = discrete_floor(values, prior, information)
        assert floor <= error
        assert floor >= 0.8 * error - 0.003
    assert discrete_floor(values, prior, 0.0) == pytest.approx(0.25, rel=1e-3)
    assert discrete_floor(values, prior, math.log(2)) <= 1e-3


def test_random_channels_are_above_the_floor():
    random = np.random.default_rng(0)
    for _ in range(8):
        size = int(random.integers(2, 6))
        values, prior = np.cumsum(random.random(size) + 0.1), random.dirichlet([1.0] * size)
        channel = random.dirichlet([0.3] * int(random.integers(2, 7)), size)  # (values, outputs)
        joint = prior[:, None] * channel
        output = joint.sum(0)
        information = float(entr(output).sum() - prior @ entr(channel).sum(1))
        guess = (values @ joint) / np.maximum(output, 1e-300)
        error = float((joint * (values[:, None] - guess) ** 2).sum())
        assert discrete_floor(values, prior, max(0.0, information)) <= error + 1e-9


@pytest.mark.parametrize(("steps", "dimension"), [(1, 10), (10, 100), (30, 784)])
def test_gaussian_records_played(steps, dimension):
    """Near where little is released: a linear estimate is nearly the best there."""
    played = GAMES["gaussian_numbers"](1.0, steps, dimension, 200_000 // dimension)
    floor = bound(noise_multiplier=1.0, steps=steps, goal=MeanSquaredError([1.0] * dimension))
    assert floor.error <= played * 1.01
    assert played <= floor.error + 0.03


def test_an_age_played():
    values, prior = np.arange(20.0, 100.0, 10), np.full(8, 1 / 8)
    goal = MeanSquaredError(dict(zip(values.tolist(), prior.tolist(), strict=True)))
    for noise, near in ((1.0, 0.4), (3.0, 0.9), (10.0, 0.98)):
        floor = bound(noise_multiplier=noise, goal=goal)
        played = GAMES["column"](noise, 1, values, prior, 50_000)
        assert near * played <= floor.error <= played * 1.01


def test_the_divergence_of_a_step_is_between_its_bounds():
    for noise, rate in ((0.5, 0.01), (1.0, 0.1), (3.0, 0.5), (0.2, 0.3), (1.0, 1e-3)):
        exact = step_divergence(noise, rate)
        order_two = math.log1p(rate**2 * math.expm1(1 / noise**2))
        assert exact <= min(rate / (2 * noise**2), order_two) * (1 + 1e-6) + 1e-14
        assert exact == pytest.approx(
            paper_lib("other_bounds").renyi_epsilons(noise, rate, 1, [1 + 1e-4])[0], rel=1e-2, abs=1e-13
        )


def test_the_information_of_an_epoch_is_above_a_sampled_one():
    random, noise, steps = np.random.default_rng(0), 1.0, 20
    z = random.standard_normal((100_000, steps))
    z[:, 0] += 1 / noise
    loss = np.log(np.exp(z / noise - 1 / (2 * noise**2)).mean(1))
    sampled = float(loss.mean()) - 4 * float(loss.std()) / math.sqrt(len(loss))
    assert sampled <= BallsInBins(1).information(noise, steps)
    assert BallsInBins(20).information(noise, 20) == pytest.approx(10.0)  # one step per epoch


def test_little_information_leaves_the_blind_guess():
    floor = bound(noise_multiplier=100.0, steps=10, sampling=Poisson(0.01), goal=MeanSquaredError([1.0, 2.0]))
    assert floor.share == pytest.approx(1.0, abs=1e-4)
    assert "at least 2.5" in str(floor)
    assert "No attack has a mean squared error below" in floor._repr_html_()
    assert floor.numbers() == {"share": floor.share}
