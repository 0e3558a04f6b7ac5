"""Sums and complements of probabilities that are kept as logs."""

from __future__ import annotations

import math


def exp(x: float) -> float:
    """exp(x), inf where it overflows."""
    return math.exp(x) if x < 709 else math.inf


def log(x: float) -> float:
    """log(x), -inf at 0."""
    return math.log(x) if x > 0 else -math.inf


def log_add(a: float, b: float) -> float:
    """log(exp(a) + exp(b))."""
    high, low = max(a, b), min(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


def log_one_minus(log_x: float) -> float:
    """log(1 - exp(log_x)) with all its digits at both ends; -inf from log_x = 0 on."""
    if log_x >= 0:
        return -math.inf
    return math.log1p(-math.exp(log_x)) if log_x < -0.7 else math.log(-math.expm1(log_x))
