import math

import pytest

from lostwax.bounds.epsilon import epsilon_of


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


def test_a_coarser_grid_only_raises_it():
    fine, coarse = (epsilon_of(1.0, 0.05, 50, 1e-5, interval) for interval in (1e-4, 1e-2))
    assert fine <= coarse <= 1.2 * fine


def test_no_noise_no_privacy():
    assert epsilon_of(0.0, 0.1, 10, 1e-5) == math.inf
