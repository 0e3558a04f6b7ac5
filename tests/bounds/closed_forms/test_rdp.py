import math

import mpmath
import numpy as np
import pytest

from lostwax.bounds import from_rdp, from_zcdp
from lostwax.bounds.closed_forms import gaussian
from lostwax.bounds.random_batches import subsampled
from lostwax.bounds.step_law import renyi_epsilons

ORDERS = [1 + float(x) for x in np.geomspace(0.05, 100, 300)]


@pytest.mark.parametrize("log_kappa", [math.log(0.1), math.log(1e-6), -4000.0])
@pytest.mark.parametrize("noise", [0.5, 2.0, 30.0])
def test_it_lies_above_the_exact_ceiling(log_kappa, noise):
    for rate in (0.01, 1.0):
        exact = subsampled(max(log_kappa, -230.0), noise, rate, 30)
        loose = from_rdp(max(log_kappa, -230.0), ORDERS, renyi_epsilons(noise, rate, 30, ORDERS))
        assert exact.log_lower <= loose.log_upper
    loose = from_rdp(log_kappa, ORDERS, renyi_epsilons(noise, 1.0, 30, ORDERS))
    assert gaussian(log_kappa, noise, 30).log_upper <= loose.log_upper


def test_sampled_moments_agree_with_the_binomial_sum_at_whole_orders():
    noise, rate = 1.3, 0.07
    for order in (2, 3, 8):
        moment = sum(
            math.comb(order, k) * (1 - rate) ** (order - k) * rate**k * math.exp(k * (k - 1) / (2 * noise**2))
            for k in range(order + 1)
        )
        assert renyi_epsilons(noise, rate, 5, [order])[0] == pytest.approx(
            5 * math.log(moment) / (order - 1), rel=1e-10
        )


def test_many_orders_approach_the_zcdp_form():
    rho, log_kappa = 2.0, math.log(1e-9)
    many = from_rdp(log_kappa, ORDERS, [order * rho for order in ORDERS]).log_upper
    best = from_zcdp(log_kappa, rho).log_upper
    assert best <= many <= best * (1 - 1e-3)


def test_an_infinite_epsilon_only_drops_its_order():
    assert from_rdp(-9.0, [2.0, 4.0], [math.inf, 1.0]) == from_rdp(-9.0, [4.0], [1.0])
    assert from_rdp(-9.0, [2.0], [math.inf]).upper == 1.0


def test_rounding_is_on_the_safe_side():
    """Against sixty digits, also at orders so near 1 that 1 - 1 / a has few digits."""
    random = np.random.default_rng(0)
    with mpmath.workdps(60):
        for _ in range(200):
            log_kappa, epsilon = -math.exp(random.uniform(-5, 9)), math.exp(random.uniform(-8, 5))
            order = 1 + math.exp(random.uniform(-20, 4))
            exact = (1 - 1 / mpmath.mpf(order)) * (mpmath.mpf(log_kappa) + epsilon)
            assert from_rdp(log_kappa, [order], [epsilon]).log_upper >= min(exact, 0)
