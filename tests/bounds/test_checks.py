"""Each error names the argument, says what came, and what to do instead."""

import math

import numpy as np
import pytest

from lostwax import bounds

RUN = {"noise_multiplier": 1.0, "sample_rate": 0.1, "steps": 10, "baseline": 0.1}
TARGET = {"max_success": 0.3, "baseline": 0.1}
NAN = math.nan


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("noise_multiplier", 0.0, ValueError),
        ("noise_multiplier", -1.0, ValueError),
        ("noise_multiplier", math.inf, ValueError),
        ("noise_multiplier", NAN, ValueError),
        ("noise_multiplier", "1", TypeError),
        ("noise_multiplier", None, ValueError),
        ("sample_rate", 0.0, ValueError),
        ("sample_rate", 1.5, ValueError),
        ("sample_rate", NAN, ValueError),
        ("steps", 0, ValueError),
        ("steps", 2.5, ValueError),
        ("steps", math.inf, ValueError),
        ("steps", True, TypeError),
        ("baseline", 0.0, ValueError),
        ("baseline", 1.0, ValueError),
        ("baseline", -0.1, ValueError),
        ("baseline", NAN, ValueError),
        ("log_baseline", -1.0, ValueError),
        ("tolerance", 0.0, ValueError),
        ("tolerance", 1.0, ValueError),
    ],
)
def test_bound_refuses(name, value, error):
    with pytest.raises(error, match=name) as caught:
        bounds.bound(**RUN | {name: value})
    assert str(caught.value).count(".") >= 2, "an error says what to do as well"


def test_bound_wants_one_baseline():
    with pytest.raises(ValueError, match="got neither"):
        bounds.bound(noise_multiplier=1.0)


@pytest.mark.parametrize("value", [0.0, 1.0, math.inf, -math.inf, NAN])
def test_a_log_baseline_is_negative_and_finite(value):
    with pytest.raises(ValueError, match="log_baseline"):
        bounds.bound(noise_multiplier=1.0, log_baseline=value)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"max_success": 0.1}, "max_success"),
        ({"max_success": 0.05}, "Noise does not help"),
        ({"max_success": 1.0}, "max_success"),
        ({"baseline": NAN}, "baseline"),
        ({"sample_rate": -1.0}, "sample_rate"),
        ({"steps": 0}, "steps"),
        ({"delta": 0.0}, "delta"),
    ],
)
def test_calibrate_refuses(changes, match):
    with pytest.raises(ValueError, match=match):
        bounds.calibrate(**TARGET | changes)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: bounds.from_dp(-1.0, -1.0), "epsilon"),
        (lambda: bounds.from_dp(-1.0, 1.0, -0.1), "delta"),
        (lambda: bounds.log_kappa_ball(0.0, 3), "eta"),
        (lambda: bounds.log_kappa_ball(0.5, 0), "dimension"),
        (lambda: bounds.log_kappa_gaussian(1.0, 0.0, 3), "sigma"),
        (lambda: bounds.kappa_from_samples(np.zeros((1, 2)), lambda a, b: np.zeros(1), 1.0, 0.9), "samples"),
        (lambda: bounds.kappa_from_samples(np.zeros((3, 2)), lambda a, b: np.zeros(2), 1.0, 0.9), "metric"),
        (lambda: bounds.log_kappa_pixels(10, 0.1, 1.5), "fraction"),
    ],
)
def test_the_others_refuse(call, match):
    with pytest.raises(ValueError, match=match):
        call()
