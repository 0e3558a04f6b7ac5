import math

import mpmath
import numpy as np
import pytest

from lostwax.bounds import from_zcdp
from lostwax.bounds.closed_forms import gaussian


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


def test_rounding_is_on_the_safe_side():
    random = np.random.default_rng(0)
    with mpmath.workdps(60):
        for _ in range(200):
            log_kappa, rho = -math.exp(random.uniform(-5, 9)), math.exp(random.uniform(-8, 5))
            gap = max(mpmath.mpf(0), mpmath.sqrt(-log_kappa) - mpmath.sqrt(rho))
            assert from_zcdp(log_kappa, rho).log_upper >= -(gap**2)
