"""A floor under the mean squared error of unbiased attacks (Guo et al. 2022a, quoted in S3 appendix K)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lostwax.bounds import checks


def mse_lower_bound(diameters: Sequence[float], epsilon: float) -> float:
    """Least mean squared error of an *unbiased* attack under (2, epsilon)-RDP: mean diameter^2 / 4(e^eps - 1).

    A biased attack can do better: this is no ceiling on success.
    """
    sides = np.asarray(diameters, float)
    if sides.ndim != 1 or sides.size == 0 or not (np.isfinite(sides) & (sides > 0)).all():
        raise ValueError(
            f"Expected diameters to be one positive number per coordinate, got {diameters!r}. "
            "For pixels in [0, 1] pass [1.0] * dimension."
        )
    epsilon = checks.positive("epsilon", epsilon, "It is the Renyi epsilon at order 2; at 0 nothing leaks at all.")
    log_floor = math.log(float(np.mean(sides**2)) / 4) - epsilon - math.log(-math.expm1(-epsilon))
    return math.exp(log_floor)
