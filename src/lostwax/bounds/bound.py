"""How often any attack can rebuild a record, given the noise."""

from __future__ import annotations

from typing import Literal

from lostwax.bounds import checks
from lostwax.bounds.ceiling import Ceiling
from lostwax.bounds.inequalities import from_dp
from lostwax.bounds.subsampled import subsampled

TOLERANCE = 1e-4


def bound(
    *,
    noise_multiplier: float | None = None,
    sample_rate: float = 1.0,
    steps: int = 1,
    baseline: float | None = None,
    log_baseline: float | None = None,
    tolerance: float = TOLERANCE,
    records: int = 1,
    sampling: Literal["poisson", "shuffled", "fixed"] = "poisson",
    epsilon: float | None = None,
    delta: float = 0.0,
) -> Ceiling:
    """Certified ceiling on the success of any reconstruction attack on DP-SGD, or on any (epsilon, delta)-DP mechanism.

    The adversary sees every noisy step and knows all records except the secret; each step sums clipped gradients over a
    Poisson sample and adds Gaussian noise of `noise_multiplier` times the clipping norm. With `epsilon` and `delta`
    instead, the ceiling holds for every mechanism with that guarantee, and is higher.

    Give the success of the best blind guess (`baseline`) or its natural log. With `records` > 1, that many are rebuilt
    at once, and the baseline is that of the whole group. `tolerance` is the relative width of the interval to aim at.
    Shuffled or fixed-size batches (`sampling`) are refused below a rate of 1.
    """
    log_kappa = checks.baseline(baseline, log_baseline)
    if epsilon is not None:
        of_noise = (noise_multiplier, sample_rate, steps, records, sampling, tolerance)
        if of_noise != (None, 1.0, 1, 1, "poisson", TOLERANCE):
            raise ValueError(
                "bound: epsilon is that of the whole training, for one record. Leave out noise_multiplier, "
                "sample_rate, steps, records, sampling and tolerance, or, for a sharper ceiling, epsilon."
            )
        return from_dp(log_kappa, epsilon, delta)
    if noise_multiplier is None:
        raise ValueError(
            "bound: the noise is missing. Pass noise_multiplier, with sample_rate and steps, or the epsilon and delta "
            "of a privacy guarantee."
        )
    if delta != 0:
        raise ValueError(
            f"bound: delta={delta:g} belongs to an epsilon. A ceiling of noise_multiplier needs none: leave it out."
        )
    checks.sampling(sampling, checks.sample_rate(sample_rate))
    return subsampled(log_kappa, noise_multiplier, sample_rate, steps, tolerance, records)
