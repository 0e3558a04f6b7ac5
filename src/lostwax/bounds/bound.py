"""How often any attack can rebuild a record, or what else is at risk, given the noise."""

from __future__ import annotations

from typing import overload

from lostwax.bounds import checks
from lostwax.bounds.ceiling import Ceiling
from lostwax.bounds.floor import Floor
from lostwax.bounds.goals import Goal, MeanSquaredError, Success, wanted
from lostwax.bounds.leaks import Guarantee, Noise
from lostwax.bounds.sampling import Sampling, drawn

TOLERANCE = 1e-4


@overload
def bound(
    *,
    noise_multiplier: float | None = None,
    sample_rate: float = 1.0,
    steps: int = 1,
    baseline: float | None = None,
    log_baseline: float | None = None,
    tolerance: float = TOLERANCE,
    sampling: Sampling | str | None = None,
    goal: Success | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    records: int | None = None,
) -> Ceiling: ...


@overload
def bound(
    *,
    noise_multiplier: float | None = None,
    sample_rate: float = 1.0,
    steps: int = 1,
    baseline: float | None = None,
    log_baseline: float | None = None,
    tolerance: float = TOLERANCE,
    sampling: Sampling | str | None = None,
    goal: MeanSquaredError,
    epsilon: float | None = None,
    delta: float = 0.0,
    records: int | None = None,
) -> Floor: ...


def bound(
    *,
    noise_multiplier: float | None = None,
    sample_rate: float = 1.0,
    steps: int = 1,
    baseline: float | None = None,
    log_baseline: float | None = None,
    tolerance: float = TOLERANCE,
    sampling: Sampling | str | None = None,
    goal: Goal | None = None,
    epsilon: float | None = None,
    delta: float = 0.0,
    records: int | None = None,
) -> Ceiling | Floor:
    """Certified ceiling on the success of any attack on DP-SGD, or on any (epsilon, delta)-DP mechanism.

    The adversary sees every noisy step and knows all records except the secret; each of `steps` updates, in all epochs
    together, sums clipped gradients over a batch and adds Gaussian noise of `noise_multiplier` times the clipping norm.
    `sampling` says how batches are drawn: Poisson(rate), BallsInBins(epochs), Shuffled(epochs), FixedSize(n, b),
    TruncatedPoisson(rate, n, largest), Cyclic(epochs) or FullBatch(), all of `lw.bounds`; Correlated(norm, bands,
    batches) if the noise is correlated. `sample_rate` alone is Poisson sampling at that rate. With `epsilon` and
    `delta` instead, the ceiling holds for every mechanism with that guarantee, and is higher.

    `goal` says what is at risk: Record() (the default), Records(k) together or Records(k, of=n), Attribute(prior),
    Membership(fpr), all of `lw.bounds`; MeanSquaredError(prior) gives a `Floor` under the error instead. For records,
    give the success of the best blind guess (`baseline`) or its natural log. The answer states what it assumes.
    `tolerance` is the relative width of the interval to aim at. (`records` and names of samplings as text are
    deprecated.)
    """
    log_kappa = None if baseline is None and log_baseline is None else checks.baseline(baseline, log_baseline)
    goal = wanted(goal, records)
    goal.checked(log_kappa)
    if epsilon is not None:
        if (noise_multiplier, sample_rate, steps, sampling, tolerance) != (None, 1.0, 1, None, TOLERANCE):
            raise ValueError(
                "bound: epsilon is that of the whole training, for one record. Leave out noise_multiplier, "
                "sample_rate, steps, sampling and tolerance, or, for a sharper ceiling, epsilon."
            )
        return goal.answer(Guarantee(epsilon, delta), log_kappa, TOLERANCE)
    if noise_multiplier is None:
        raise ValueError(
            "bound: the noise is missing. Pass noise_multiplier, with sample_rate and steps, or the epsilon and delta "
            "of a privacy guarantee."
        )
    if delta != 0:
        raise ValueError(
            f"bound: delta={delta:g} belongs to an epsilon. A ceiling of noise_multiplier needs none: leave it out."
        )
    noise, count = checks.noise_multiplier(noise_multiplier), checks.steps(steps)
    tolerance = checks.probability("tolerance", tolerance, "It is the relative width to aim at, for instance 1e-4.")
    return goal.answer(Noise(noise, count, drawn(sampling, sample_rate, count)), log_kappa, tolerance)
