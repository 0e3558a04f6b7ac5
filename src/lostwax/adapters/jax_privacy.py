"""How JAX Privacy draws its batches, as arguments of `lw.bound`."""

from __future__ import annotations

import math
from typing import Any

from numpy.typing import ArrayLike

from lostwax import bounds


def mechanism(
    strategy: Any, *, noise_multiplier: float | None = None, records: int | None = None, matrix: ArrayLike | None = None
) -> dict[str, Any]:
    """Noise, steps and sampling: `lw.bound(**lw.adapters.jax_privacy.mechanism(strategy, ...), baseline=0.1)`.

    Args:
        strategy: A value of `jax_privacy.batch_selection`, or a `DPKerasConfig`.
        noise_multiplier: The noise on the sum of clipped gradients, over the clipping norm. A config has its own.
        records: The number of records; batches of a fixed or largest size need it.
        matrix: The matrix C of correlated noise C^-1 Z, or the first column of a Toeplitz one: see `Correlated.of`.

    `BallsInBinsSampling` puts a record into the same batch of every epoch: `BallsInBins(epochs, redrawn=False)`. A
    `DPKerasConfig` without `poisson_sampling_in_fit` shuffles, while its epsilon is that of Poisson sampling.
    """
    if hasattr(strategy, "batch_selection_strategy"):
        raise ValueError(
            "jax_privacy.mechanism: an execution plan may add correlated noise. Pass its dp_event to "
            "lw.adapters.dp_accounting.mechanism, or its batch_selection_strategy with noise_multiplier and matrix."
        )
    if hasattr(strategy, "poisson_sampling_in_fit"):
        if matrix is not None:
            raise ValueError("jax_privacy.mechanism: a DPKerasConfig adds independent noise. Do not pass matrix.")
        noise_multiplier = strategy.noise_multiplier if noise_multiplier is None else noise_multiplier
        steps, sampling = _keras(strategy)
    else:
        steps, sampling = _drawn(strategy, records)
    if noise_multiplier is None:
        raise ValueError(
            "jax_privacy.mechanism: the noise is missing. Pass noise_multiplier: the noise's standard deviation on the "
            "sum of clipped gradients, divided by the clipping norm."
        )
    if matrix is not None and type(sampling) is bounds.BallsInBins:
        bins = bounds.Correlated.in_bins(matrix, steps, sampling.epochs)
        return {"noise_multiplier": float(noise_multiplier), "steps": steps, "sampling": bins}
    if matrix is not None:
        separation = int(getattr(strategy, "cycle_length", 1))
        noise, inner = bounds.Correlated.of(matrix), bounds.Poisson(1.0) if sampling == bounds.FullBatch() else sampling
        simple = inner in (bounds.Poisson(inner.share(steps)), bounds.Cyclic(inner.visits(steps)))
        if noise.bands is None or noise.bands > separation or not simple:
            raise ValueError(
                f"jax_privacy.mechanism: the matrix has {noise.bands} diagonals, and only CyclicPoissonSampling with a "
                "cycle_length of as many, and without truncation, has a certified ceiling with it."
            )
        return {
            "noise_multiplier": float(noise_multiplier),
            "steps": int(strategy.iterations),
            "sampling": bounds.Correlated(noise.norm, separation, inner),
        }
    return {"noise_multiplier": float(noise_multiplier), "steps": steps, "sampling": sampling}


def _drawn(strategy: Any, records: int | None) -> tuple[int, bounds.Sampling]:
    """Steps that a record can be in, and the sampling."""
    kind = type(strategy).__name__
    steps = int(getattr(strategy, "iterations", 0))
    if kind == "CyclicPoissonSampling":
        rate, cycle, largest = strategy.sampling_prob, int(strategy.cycle_length), strategy.truncated_batch_size
        visits = math.ceil(steps / cycle)
        if largest is not None:
            # Groups that are drawn independently may hold all records, which makes cuts more likely.
            equal = strategy.partition_type.name == "EQUAL_SPLIT"
            group = _known(records, kind) // (cycle if equal else 1)
            return visits, bounds.TruncatedPoisson(float(rate), group, int(largest))
        if rate < 1:
            return visits, bounds.Poisson(float(rate))
        return (steps, bounds.FullBatch()) if cycle == 1 else (steps, bounds.Cyclic(visits))
    if kind == "BallsInBinsSampling":
        epochs = math.ceil(steps / strategy.cycle_length)
        return epochs * int(strategy.cycle_length), bounds.BallsInBins(epochs, redrawn=False)
    if kind == "FixedBatchSampling" and not strategy.replace:
        return steps, bounds.FixedSize(_known(records, kind), int(strategy.batch_size))
    limit, why = "", ""
    if (separation := getattr(strategy, "min_sep", None)) is not None:
        cycles = math.ceil(steps / separation)
        limit = f" It is at most that of sampling=lw.bounds.Cyclic({cycles}), which may be quoted."
    if getattr(strategy, "replace", False):
        why = " with replacement: a record may be in a batch several times"
    raise ValueError(f"jax_privacy.mechanism: no ceiling is known for batches drawn by {kind}{why}.{limit}")


def _known(records: int | None, kind: str) -> int:
    if records is None:
        raise ValueError(f"jax_privacy.mechanism: {kind} of a fixed or largest size needs records, their number.")
    return records


def _keras(config: Any) -> tuple[int, bounds.Sampling]:
    """Steps and sampling of a `DPKerasConfig`."""
    size, steps = config.effective_batch_size, int(config.train_steps)
    # Batches are accumulated across the end of an epoch, unless it holds a whole number of steps.
    again = config.poisson_sampling_in_fit or config.train_size % size
    if config.gradient_accumulation_steps != 1 and again:
        raise ValueError(
            "jax_privacy.mechanism: with accumulated batches a record may be in a step several times, and no ceiling "
            "is known. Use larger batches, or shuffle with a train_size that is a multiple of effective_batch_size."
        )
    if config.poisson_sampling_in_fit:
        return steps, bounds.Poisson(size / config.train_size)
    per_epoch = max(1, config.train_size // size)
    epochs = math.ceil(steps / per_epoch)
    return epochs * per_epoch, bounds.Shuffled(epochs)
