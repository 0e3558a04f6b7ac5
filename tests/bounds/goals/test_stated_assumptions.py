"""Games that break a bound whose baseline leaves out what the adversary knows, and keep ours, which states it."""

import numpy as np
import pytest
from scipy.stats import norm

from lostwax.bounds import FullBatch, Record, Records, bound

GAMES, NOISE = 20_000, 2.0


def named(candidates, noise, random):
    """How often the posterior names the right one of orthogonal gradients, all equally likely."""
    z = random.integers(candidates, size=GAMES)
    x = noise * random.standard_normal((GAMES, candidates))
    x[np.arange(GAMES), z] += 1
    return float((x.argmax(1) == z).mean())


def test_auxiliary_knowledge_breaks_the_baseline_that_leaves_it_out():
    """A hundred values in the population; a public register leaves two of them for each person."""
    random, without = np.random.default_rng(0), 1 / 100
    success = named(2, NOISE, random)
    run = {"noise_multiplier": NOISE, "sampling": FullBatch()}
    population, register = (bound(**run, baseline=kappa) for kappa in (without, 1 / 2))
    assert success > 10 * population.upper  # "violated"
    assert success <= register.upper + 3 * np.sqrt(0.25 / GAMES)
    assert any("all that the adversary knows besides the release" in line for line in population.assumptions)


def test_knowledge_that_differs_from_person_to_person_counts_by_its_mean():
    """gamma is concave: half of the people have two values left, the others fifty."""
    random = np.random.default_rng(1)
    success = (named(2, NOISE, random) + named(50, NOISE, random)) / 2
    mean = (1 / 2 + 1 / 50) / 2
    assert success <= bound(noise_multiplier=NOISE, baseline=mean, goal=Record()).upper + 3 * np.sqrt(0.25 / GAMES)


@pytest.mark.parametrize(("k", "n"), [(1, 4), (3, 4), (4, 4), (8, 10)])
def test_several_targets_and_approximate_success(k, n):
    """Each of n secret numbers in [0, 1] moves its own coordinate; a guess within 0.1 counts as a success.

    The best blind guess is an interval of length 0.2. Given x = secret + noise, the likeliest interval is that around
    the truncated normal's mode.
    """
    random, noise, eta = np.random.default_rng(2), 0.7, 0.1
    secrets = random.random((GAMES, n))
    x = secrets + noise * random.standard_normal((GAMES, n))
    guess = x.clip(eta, 1 - eta)
    right = (np.abs(guess - secrets) <= eta).sum(1) >= k
    ceiling = bound(noise_multiplier=noise, baseline=2 * eta, goal=Records(k, of=n))
    assert right.mean() <= ceiling.upper + 3 * np.sqrt(0.25 / GAMES)
    assert right.mean() > norm.sf(3) or k > 3
