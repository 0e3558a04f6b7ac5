"""The bounds to compare with, against closed forms and printed tables."""

import math

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from lostwax.bounds import bound, from_dp
from lostwax.bounds.closed_forms import gaussian
from lostwax.bounds.random_batches import subsampled
from of_papers import paper_lib

OTHERS = paper_lib("other_bounds")
monte_carlo, fano_advantage, best_success = OTHERS.monte_carlo, OTHERS.fano_advantage, OTHERS.best_success
exact_reconstruction, delta_from_success = OTHERS.exact_reconstruction, OTHERS.delta_from_success
from_rdp, renyi_epsilons, from_zcdp = OTHERS.from_rdp, OTHERS.renyi_epsilons, OTHERS.from_zcdp

RUN = (math.log(0.1), 1.0, 0.05, 40)


@pytest.fixture(scope="module")
def exact():
    return bound(noise_multiplier=1.0, sample_rate=0.05, steps=40, baseline=0.1, tolerance=1e-6).upper


def test_both_estimates_are_near_and_the_limits_hold(exact):
    for seed in range(5):
        repaired = monte_carlo(*RUN, samples=40_000, seed=seed)
        printed = monte_carlo(*RUN, samples=40_000, seed=seed, repaired=False)
        assert repaired.estimate == pytest.approx(exact, rel=0.03)
        assert printed.estimate == pytest.approx(exact, rel=0.1)
        assert repaired.lower <= exact <= repaired.upper
        assert (printed.lower, printed.upper) == (repaired.lower, repaired.upper)
        assert not repaired.certified


def test_more_samples_narrow_the_limits():
    few, many = (monte_carlo(*RUN, samples=n) for n in (2_000, 100_000))
    assert many.upper - many.lower < 0.3 * (few.upper - few.lower)


def test_full_batches_agree_with_the_closed_form():
    estimate = monte_carlo(math.log(0.1), 2.0, 1.0, 4, samples=200_000).estimate
    assert estimate == pytest.approx(bound(noise_multiplier=2.0, steps=4, baseline=0.1).upper, rel=0.01)


def test_it_is_reproducible():
    assert monte_carlo(*RUN, samples=2_000, seed=3) == monte_carlo(*RUN, samples=2_000, seed=3)
    assert monte_carlo(*RUN, samples=2_000, seed=3) != monte_carlo(*RUN, samples=2_000, seed=4)


def test_ratios_that_all_underflow_leave_the_limits_open():
    ceiling = monte_carlo(math.log(0.1), 0.01, 1.0, 100, samples=1_000)
    assert ceiling.upper == 1.0
    assert 0.1 <= ceiling.lower <= 1.0


GUO = {  # S3 Table 2
    10: [0.976, 0.593, 0.380, 0.274, 0.213, 0.174],
    100: [0.861, 0.346, 0.195, 0.131, 0.097, 0.076],
}
NOISES = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]


@pytest.mark.parametrize("size", [10, 100])
def test_table_2_to_three_decimals(size):
    values = [fano_advantage([1 / size] * size, noise) for noise in NOISES]
    assert values == pytest.approx(GUO[size], abs=5.1e-4)


@pytest.mark.parametrize("size", [10, 100])
@pytest.mark.parametrize("noise", NOISES)
def test_it_lies_above_the_exact_advantage(size, noise):
    assert bound(noise_multiplier=noise, baseline=1 / size).advantage <= fano_advantage([1 / size] * size, noise)


def test_fano_between_no_noise_and_no_signal():
    assert fano_advantage([0.5, 0.5], 1e6) < 1e-2
    assert fano_advantage([0.5, 0.5], 1e-3) == 1.0
    assert fano_advantage([0.7, 0.2, 0.1], 1.0) <= 1


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


@pytest.mark.parametrize(("candidates", "epsilon"), [(2, 0.0), (2, 1.0), (10, 3.0), (1000, 2.0)])
def test_exact_reconstruction_is_reached_by_randomised_response(candidates, epsilon):
    grown = math.exp(epsilon)
    assert exact_reconstruction(candidates, epsilon).upper == pytest.approx(grown / (candidates - 1 + grown))
    assert exact_reconstruction(candidates, epsilon).upper <= from_dp(-math.log(candidates), epsilon).upper + 1e-12


def test_theorem_5_returns_the_guarantee_it_came_from():
    # under (epsilon, delta)-DP the weighted pair is told apart with success at most (e^eps + delta) / (1 + e^eps)
    epsilon, delta = 0.7, 1e-3
    success = (math.exp(epsilon) + delta) / (1 + math.exp(epsilon))
    assert delta_from_success(success, epsilon) == pytest.approx(delta, rel=1e-9)
    assert delta_from_success(0.5, epsilon) == 0.0
    assert delta_from_success(0.9, 5000.0) == 0.0


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: exact_reconstruction(1, 1.0), "candidates"),
        (lambda: delta_from_success(1.5, 1.0), "success"),
        (lambda: fano_advantage([0.5, 0.6], 1.0), "prior"),
        (lambda: monte_carlo(math.log(1e-9), 1.0, 0.1, 10), "lostwax.bound"),
        (lambda: monte_carlo(-1.0, 1.0, 0.1, 10, samples=10), "samples"),
    ],
)
def test_they_refuse(call, match):
    with pytest.raises(ValueError, match=match):
        call()


ORDERS = [1 + float(x) for x in np.geomspace(0.05, 100, 300)]


@pytest.mark.parametrize("log_kappa", [math.log(0.1), math.log(1e-6), -4000.0])
@pytest.mark.parametrize("noise", [0.5, 2.0, 30.0])
def test_renyi_lies_above_the_exact_ceiling(log_kappa, noise):
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


def test_rounding_of_renyi_is_on_the_safe_side():
    """Against sixty digits, also at orders so near 1 that 1 - 1 / a has few digits."""
    random = np.random.default_rng(0)
    with mpmath.workdps(60):
        for _ in range(200):
            log_kappa, epsilon = -math.exp(random.uniform(-5, 9)), math.exp(random.uniform(-8, 5))
            order = 1 + math.exp(random.uniform(-20, 4))
            exact = (1 - 1 / mpmath.mpf(order)) * (mpmath.mpf(log_kappa) + epsilon)
            assert from_rdp(log_kappa, [order], [epsilon]).log_upper >= min(exact, 0)


def test_zcdp_never_falls_again():
    log_kappa = math.log(0.1)
    values = [from_zcdp(log_kappa, rho).log_upper for rho in np.linspace(0, 10, 50)]
    assert np.all(np.diff(values) >= 0)
    assert values[0] == pytest.approx(log_kappa)
    assert values[-1] == 0


@pytest.mark.parametrize("log_kappa", [math.log(0.1), -50.0, -4000.0])
def test_it_lies_above_the_gaussian_it_describes(log_kappa):
    for noise in (0.3, 1.0, 20.0):
        rho = 10 / (2 * noise**2)
        assert gaussian(log_kappa, noise, 10).log_upper <= from_zcdp(log_kappa, rho).log_upper


def test_rounding_of_zcdp_is_on_the_safe_side():
    random = np.random.default_rng(0)
    with mpmath.workdps(60):
        for _ in range(200):
            log_kappa, rho = -math.exp(random.uniform(-5, 9)), math.exp(random.uniform(-8, 5))
            gap = max(mpmath.mpf(0), mpmath.sqrt(-log_kappa) - mpmath.sqrt(rho))
            assert from_zcdp(log_kappa, rho).log_upper >= -(gap**2)
