"""Guo et al.'s ceiling on the advantage, through mutual information and Fano's inequality (S3 appendix H)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import entr

from lostwax.bounds import checks


def fano_advantage(prior: Sequence[float], noise_multiplier: float, squared_distance: float = 2.0) -> float:
    """Upper limit of (success - max p) / (1 - max p) for one Gaussian step and a discrete prior.

    `squared_distance` lies between any two candidates' clipped gradients in units of the clipping norm: 2 for
    orthonormal ones, which is what S3 Table 2 prints, and 4 in the worst case.
    """
    p = np.asarray(prior, float)
    if p.ndim != 1 or p.size < 2 or not (p > 0).all() or not math.isclose(float(p.sum()), 1.0, rel_tol=1e-9):
        raise ValueError(
            f"Expected prior to hold two or more positive probabilities that add up to 1, got {prior!r}. "
            "For n equally likely candidates pass [1 / n] * n."
        )
    noise = checks.noise_multiplier(noise_multiplier)
    remedy = "It is the squared distance between two candidates' clipped gradients."
    distance = checks.not_negative("squared_distance", squared_distance, remedy)
    alike = math.exp(-distance / (2 * noise**2))
    information = float(-(p * np.log(p + (1 - p) * alike)).sum())  # >= I(candidate; release)
    # Fano: the error t obeys h(t) + t log(n - 1) >= H(prior) - I, and the left side rises up to t = 1 - 1/n.
    missing = float(entr(p).sum()) - information
    low, high = 0.0, 1 - 1 / p.size
    for _ in range(100):
        t = (low + high) / 2
        if entr(t) + entr(1 - t) + t * math.log(p.size - 1) < missing:
            low = t
        else:
            high = t
    best = float(p.max())
    return min(1.0, max(0.0, (1 - low - best) / (1 - best)))
