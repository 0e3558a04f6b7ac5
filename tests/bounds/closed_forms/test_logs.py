import math

import pytest

from lostwax.bounds.closed_forms import exp, log, log_add, log_one_minus


@pytest.mark.parametrize("x", [1e-300, 1e-20, 1e-3, 0.3, 0.5])
def test_the_complement_keeps_its_digits_at_both_ends(x):
    assert log_one_minus(math.log(x)) == pytest.approx(math.log1p(-x), rel=1e-13)
    assert log_one_minus(math.log1p(-x)) == pytest.approx(math.log(x), rel=1e-13)


def test_a_tiny_probability_has_a_complement_below_one():
    assert log_one_minus(-500.0) == -math.exp(-500.0)
    assert log_one_minus(0.0) == -math.inf


def test_sums():
    assert log_add(math.log(2), math.log(3)) == pytest.approx(math.log(5))
    assert log_add(-math.inf, -3.0) == -3.0
    assert log_add(-math.inf, -math.inf) == -math.inf
    assert log_add(-5000.0, -5000.0) == pytest.approx(-5000 + math.log(2))


def test_ends():
    assert exp(1e6) == math.inf
    assert log(0.0) == -math.inf
