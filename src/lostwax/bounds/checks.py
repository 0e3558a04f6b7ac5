"""Checks of the arguments that bounds take."""

from __future__ import annotations

import math
from numbers import Real

MAX_STEPS = 10**9
MOST_RECORDS = 1000
MAX_COUNT = 2**53  # a float counts no further
LARGEST_FLOAT = 1e300  # larger integers overflow a float


def log_baseline(value: float) -> float:
    """The log of a probability in (0, 1)."""
    number = _number("log_baseline", value)
    if not -math.inf < number < 0:
        raise ValueError(
            f"Expected log_baseline={value!r} to be a finite number below 0: it is the natural log of the blind "
            "guess's success, for instance math.log(0.1). Pass a probability as baseline= to lostwax.bound."
        )
    return number


def probability(name: str, value: float, remedy: str) -> float:
    """A probability in (0, 1)."""
    number = _number(name, value)
    if not 0 < number < 1:
        raise ValueError(f"Expected {name}={value!r} to lie in (0, 1), both ends excluded. {remedy}")
    return number


def tolerance(value: float) -> float:
    """The relative width of a ceiling."""
    return probability("tolerance", value, "It is the relative width to aim at, for instance 1e-4.")


def max_success(value: float) -> float:
    """The success that an attack may have; a percentage is recognised."""
    number = _number("max_success", value)
    example = f"for {number:g} % pass {number / 100:g}" if 1 < number < 100 else "for instance 0.05"
    remedy = f"It is the highest success that any attack may have, a share between 0 and 1: {example}."
    return probability("max_success", value, remedy)


def baseline(value: float | None, log_value: float | None) -> float:
    """The log baseline, from exactly one of both forms."""
    if value is None and log_value is not None:
        return log_baseline(log_value)
    if value is None or log_value is not None:
        count = "neither" if value is None else "both"
        raise ValueError(
            f"Expected exactly one of baseline and log_baseline, got {count}. The baseline is the success of the "
            "best blind guess, for instance 1/10 for ten equally likely candidates; below 1e-300 pass its log."
        )
    remedy = (
        "It is the success of the best blind guess; below 1e-300 pass its natural log as log_baseline. On data: "
        "lostwax.bounds.kappa_from_samples."
    )
    return math.log(probability("baseline", value, remedy))


def positive(name: str, value: float, remedy: str) -> float:
    """A finite number above 0."""
    number = _number(name, value)
    if not 0 < number < math.inf:
        raise ValueError(f"Expected {name}={value!r} to be finite and above 0. {remedy}")
    return number


def not_negative(name: str, value: float, remedy: str) -> float:
    """A finite number of 0 or more."""
    number = _number(name, value)
    if not 0 <= number < math.inf:
        raise ValueError(f"Expected {name}={value!r} to be finite and at least 0. {remedy}")
    return number


def privacy(epsilon: float, delta: float = 0.0) -> tuple[float, float]:
    """Epsilon and delta of a privacy guarantee."""
    epsilon = not_negative("epsilon", epsilon, "It is the epsilon of the privacy guarantee.")
    delta = not_negative("delta", delta, "It is the delta of the privacy guarantee, at least 0.")
    if delta >= 1:
        raise ValueError(
            f"Expected delta={delta!r} to lie in [0, 1). It is the chance that the guarantee of epsilon fails, for "
            "instance 1e-5; from 1 on nothing is guaranteed."
        )
    return epsilon, delta


def noise_multiplier(value: float) -> float:
    """The noise's standard deviation divided by the clipping norm."""
    remedy = "It is the noise's standard deviation divided by the clipping norm of the summed gradients."
    return positive("noise_multiplier", value, remedy)


def sample_rate(value: float, name: str = "sample_rate") -> float:
    """The chance of each record to enter each step."""
    number = _number(name, value)
    if not 0 < number <= 1:
        raise ValueError(
            f"Expected {name}={value!r} to lie in (0, 1]. It is the chance of each record to enter each step "
            "(Poisson sampling); use 1.0 for full batches."
        )
    return number


def whole(name: str, value: int, remedy: str, *, lowest: int = 1, highest: int = MAX_STEPS) -> int:
    """A whole number; 3.0 is accepted."""
    number = _number(name, value)
    if not lowest <= number <= highest or number != math.floor(number):
        raise ValueError(f"Expected {name}={value!r} to be a whole number from {lowest} to {highest}. {remedy}")
    return int(number)


def steps(value: int) -> int:
    """How many noisy steps are released."""
    return whole("steps", value, "It is the number of noisy updates, epochs times batches per epoch.")


def epochs(value: int) -> int:
    """How many passes over the records."""
    return whole("epochs", value, "It is the number of passes over the records.")


def records(value: int, name: str = "records") -> int:
    """How many records are rebuilt at once."""
    return whole(name, value, "It is a number of records.", highest=MOST_RECORDS)


def _number(name: str, value: float) -> float:
    """The value as a float; NaN and other types are refused."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"Expected {name} to be a number, got {type(value).__name__}. Pass a plain int or float.")
    if isinstance(value, int) and abs(value) > LARGEST_FLOAT:
        raise ValueError(f"Expected {name} to be a number of at most {LARGEST_FLOAT:g}, got a larger one.")
    number = float(value)
    if math.isnan(number):
        raise ValueError(f"Expected {name} to be a number, got NaN. Look for an undefined value upstream.")
    return number
