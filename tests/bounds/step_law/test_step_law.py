import math

import numpy as np
import pytest

from lostwax.bounds.step_law import StepLaw

Z = np.linspace(-6, 14, 81)


@pytest.mark.parametrize("records", [1, 2, 7])
def test_the_ratio_is_that_of_the_densities(records):
    noise, rate = 0.8, 0.3
    step = StepLaw(noise, rate, records)
    mixture = sum(
        math.comb(records, i) * rate**i * (1 - rate) ** (records - i) * np.exp(-((Z - i / noise) ** 2) / 2)
        for i in range(records + 1)
    )
    np.testing.assert_allclose(step.loss(Z), np.log(mixture) + Z**2 / 2, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("records", [1, 3, 40])
def test_solve_inverts_the_excess(records):
    step = StepLaw(0.8, 0.05, records)
    np.testing.assert_allclose(step.solve(step.log_excess(Z)), Z, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("records", [1, 3, 40])
@pytest.mark.parametrize("growth", [1e-9, 1e-3, 2.0])
def test_growth_is_solved_to_full_relative_precision(records, growth):
    step = StepLaw(0.8, 0.05, records)
    shares = step.shares(Z)
    width = step.solve_growth(shares, np.full_like(Z, growth))
    grown = sum(share * np.expm1((i + 1) * width / 0.8) for i, share in enumerate(shares))
    np.testing.assert_allclose(np.log1p(grown), growth, rtol=1e-13)


def test_rare_draws_are_cut_off_and_accounted_for():
    step = StepLaw(1.0, 0.01, 500, log_negligible=math.log(1e-20))
    assert step.log_weights.size < 60
    assert np.exp(step.log_weights).sum() + step.escaped == pytest.approx(1, abs=1e-12)
    assert 0 < step.escaped < 1e-20


def test_masses_of_half_lines():
    step = StepLaw(0.7, 0.2, 3)
    below = math.exp(step.log_excess_below(0.4))
    nothing_drawn = 0.8**3 * 0.5 * math.erfc(-0.4 / math.sqrt(2))
    assert below + nothing_drawn + math.exp(step.log_mass_above(0.4)) == pytest.approx(1, abs=1e-13)
