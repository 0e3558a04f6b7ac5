"""An event of dp-accounting, which JAX Privacy and TensorFlow Privacy use too, as arguments of `lw.bound`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

from lostwax.bounds import FixedSize, FullBatch, Poisson, Sampling, TruncatedPoisson


class _Part(NamedTuple):
    """Some steps of one kind."""

    noise: float
    sampling: Sampling
    steps: int


def mechanism(event: Any) -> dict[str, Any]:
    """Noise, steps and sampling of a `DpEvent`: `lw.bound(**lw.adapters.dp_accounting.mechanism(event), baseline=0.1)`.

    Args:
        event: A `dp_accounting.DpEvent`, or an accountant that has composed some (its ledger is read).

    An event says how the accountant *assumes* that batches were drawn. Accountants have no event for shuffled batches,
    and are often given one of Poisson sampling instead: see what the loop does, and pass another `sampling` if it
    differs. If noise or rate changed during training, the smallest noise and the largest rate are used for all steps:
    the ceiling still holds, but is loose. Full batches of several noises are added up exactly.
    """
    parts = [part for part in _parts(getattr(event, "ledger", event)) if part.steps > 0]
    if not parts:
        raise ValueError("dp_accounting.mechanism: the event has no noisy step. Pass it after it was composed.")
    noises, samplings = {part.noise for part in parts}, {part.sampling for part in parts}
    noise, steps = min(noises), sum(part.steps for part in parts)
    if len(noises) == len(samplings) == 1:
        return {"noise_multiplier": noise, "steps": steps, "sampling": parts[0].sampling}
    if noise > 0 and samplings == {FullBatch()}:  # squared distances add up
        distance = math.sqrt(sum(part.steps / part.noise**2 for part in parts))
        return {"noise_multiplier": (1 - 1e-15) / distance, "steps": 1, "sampling": FullBatch()}
    sampling = parts[0].sampling
    if len(samplings) > 1:
        if not samplings <= {FullBatch(), *(Poisson(each.share(1)) for each in samplings)}:
            kinds = ", ".join(sorted(map(repr, samplings)))
            raise ValueError(
                f"dp_accounting.mechanism: steps of several kinds were composed: {kinds}. No ceiling for all of them "
                "is known. Pass the event of one kind, or epsilon and delta of the whole to lw.bound."
            )
        sampling = Poisson(max(each.share(1) for each in samplings))
    warnings.warn(
        f"dp_accounting.mechanism: noise or rate changed during training. The smallest noise ({noise:g}) and the "
        f"largest rate are used for all {steps} steps: the ceiling holds, but is not the lowest.",
        stacklevel=2,
    )
    return {"noise_multiplier": noise, "steps": steps, "sampling": sampling}


def _parts(event: Any) -> Iterator[_Part]:
    """The steps of an event."""
    import dp_accounting as dp

    match event:
        case dp.NoOpDpEvent():
            return
        case dp.SelfComposedDpEvent(event=inner, count=count):
            yield from (part._replace(steps=part.steps * math.ceil(count)) for part in _parts(inner))
        case dp.ComposedDpEvent(events=events):
            for inner in events:
                yield from _parts(inner)
        case dp.GaussianDpEvent(noise_multiplier=noise):
            yield _Part(float(noise), FullBatch(), 1)
        case dp.PoissonSampledDpEvent(sampling_probability=rate, event=dp.GaussianDpEvent(noise_multiplier=noise)):
            if rate > 0:  # else no record is ever drawn
                yield _Part(float(noise), Poisson(float(rate)), 1)
        case dp.SampledWithoutReplacementDpEvent(
            source_dataset_size=n, sample_size=b, event=dp.GaussianDpEvent(noise_multiplier=noise)
        ):
            yield _Part(float(noise), FixedSize(int(n), int(b)), 1)
        case dp.dp_event.TruncatedSubsampledGaussianDpEvent():
            sizes = int(event.dataset_size), int(event.truncated_batch_size)
            yield _Part(float(event.noise_multiplier), TruncatedPoisson(float(event.sampling_probability), *sizes), 1)
        case dp.SingleEpochTreeAggregationDpEvent(noise_multiplier=noise, step_counts=counts):
            longest = max(counts) if isinstance(counts, list | tuple) else counts
            if longest < 1:
                return
            depth = math.ceil(math.log2(longest + 1))  # a record is in one leaf, and so in this many sums
            yield _Part(float(noise) / math.sqrt(depth) * (1 - 1e-15), FullBatch(), 1)
        case _:
            raise ValueError(
                f"dp_accounting.mechanism: nothing is known here about {type(event).__name__}. Supported are Gaussian "
                "noise on full batches, Poisson samples (truncated or not), samples without replacement and trees, and "
                "their compositions. Else pass epsilon and delta to lw.bound."
            )
