import math

import pytest
from dp_accounting.dp_event import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.privacy_accountant import NeighboringRelation
from scipy.stats import binom, norm

from lostwax.bounds.closed_forms import epsilon_of


def test_epsilon_is_that_of_the_gaussian_mechanism():
    # Balle and Wang 2018: delta = Phi(1/(2s) - eps s) - e^eps Phi(-1/(2s) - eps s)
    noise, delta = 2.0, 1e-5
    epsilon = epsilon_of(noise, 1.0, 1, delta)

    def tail(x):
        return 0.5 * math.erfc(x / math.sqrt(2))

    reached = tail(epsilon * noise - 0.5 / noise) - math.exp(epsilon) * tail(epsilon * noise + 0.5 / noise)
    assert reached == pytest.approx(delta, rel=1e-2)
    assert reached <= delta
    assert epsilon_of(noise, 0.1, 1, delta) < epsilon


@pytest.mark.parametrize(
    ("noise", "steps", "delta"), [(1.0, 4, 1e-5), (5.0, 300, 1e-8), (0.4, 1, 0.1), (40.0, 1, 1e-3)]
)
def test_full_batches_agree_with_dp_accounting(noise, steps, delta):
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE).compose(GaussianDpEvent(noise), steps)
    theirs = accountant.get_epsilon(delta)  # rounded up to a grid
    assert epsilon_of(noise, 1.0, steps, delta) == pytest.approx(theirs, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("noise", [1e-2, 1e-3, 1e-6])
def test_hardly_any_noise(noise):
    mu = 1 / noise
    assert epsilon_of(noise, 1.0, 1, 1e-5) == pytest.approx(mu**2 / 2 + mu * norm.isf(1e-5), rel=1e-2)


def test_a_coarser_grid_only_raises_it():
    fine, coarse = (epsilon_of(1.0, 0.05, 50, 1e-5, interval) for interval in (1e-4, 1e-2))
    assert fine <= coarse <= 1.2 * fine


def test_no_noise_no_privacy():
    assert epsilon_of(0.0, 0.1, 10, 1e-5) == math.inf


@pytest.mark.parametrize("noise", [0.1, 0.02])
def test_hardly_any_noise_takes_no_more_memory(noise):
    """A drawn record is all but seen: epsilon is its loss, 1 / (2 s^2), as often as it is drawn but for delta."""
    drawn = int(binom.isf(1e-5, 1_000, 0.01))
    epsilon = epsilon_of(noise, 0.01, 1_000, 1e-5)  # a grid of 1e-4 would have 10^8 points at 0.02
    assert epsilon == pytest.approx(drawn / (2 * noise**2), rel=0.1)


def test_a_delta_below_what_a_grid_resolves():
    small, tiny = (epsilon_of(2.0, 0.01, 100, delta) for delta in (1e-10, 1e-20))
    assert small < tiny < epsilon_of(2.0, 1.0, 100, 1e-20) / 10


def test_sampling_never_raises_it():
    for noise, rate in ((0.3, 0.9), (3.0, 0.99)):
        assert epsilon_of(noise, rate, 20, 1e-5, 0.1) <= epsilon_of(noise, 1.0, 20, 1e-5)
