"""The first question of a privacy engineer: with this noise, how often can anyone rebuild a record?"""

from __future__ import annotations

from typing import Literal

from lostwax.bounds import checks
from lostwax.bounds.ceiling import Ceiling
from lostwax.bounds.subsampled import subsampled


def bound(
    *,
    noise_multiplier: float,
    sample_rate: float = 1.0,
    steps: int = 1,
    baseline: float | None = None,
    log_baseline: float | None = None,
    tolerance: float = 1e-4,
    records: int = 1,
    sampling: Literal["poisson", "shuffled", "fixed"] = "poisson",
) -> Ceiling:
    """Certified ceiling on the success of any reconstruction attack on DP-SGD.

    The adversary sees every noisy step and knows all records but the secret one; each step sums clipped gradients
    over a Poisson sample and adds Gaussian noise of `noise_multiplier` times the clipping norm.

    Parameters
    ----------
    baseline, log_baseline
        Success of the best blind guess, or its natural log; give one.
    tolerance
        Relative width of the interval to aim at.
    records
        How many records are rebuilt at once; the baseline then speaks of the whole group. Each is sampled on its
        own and clipped on its own, so that i drawn records shift a step by at most i (see `StepLaw`).
    sampling
        How batches are drawn. Shuffled or fixed-size batches are refused below a rate of 1, with the cure.
    """
    checks.sampling(sampling, checks.sample_rate(sample_rate))
    return subsampled(checks.baseline(baseline, log_baseline), noise_multiplier, sample_rate, steps, tolerance, records)
