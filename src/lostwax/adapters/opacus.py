"""The noise, sampling rate and steps of a model trained with Opacus, as arguments of `lw.bound`."""

from __future__ import annotations

import math
import warnings
from typing import Any

from lostwax.bounds import Cyclic, Sampling, Shuffled


def mechanism(privacy_engine: Any, data_loader: Any = None, *, poisson: bool = False) -> dict[str, Any]:
    """The noise, rate and steps so far: `lw.bound(**lw.adapters.opacus.mechanism(engine, loader), baseline=0.1)`.

    Args:
        privacy_engine: A PrivacyEngine or its accountant, after training.
        data_loader: The loader that `make_private` returned: the accountant does not record how batches were drawn, and
            always assumes Poisson sampling. With `poisson_sampling=False` it shuffles, and the result has a `sampling`.
        poisson: Without a loader, states that sampling was Poisson.

    If noise or rate changed during training, the smallest noise and the largest rate are used for all steps: the
    ceiling still holds, but is loose.
    """
    accountant = getattr(privacy_engine, "accountant", privacy_engine)
    history = getattr(accountant, "history", None)
    if not isinstance(history, list):
        got = type(privacy_engine).__name__
        raise TypeError(f"opacus.mechanism: expected an Opacus PrivacyEngine or its accountant, got {got}.")
    if not history:
        raise ValueError("opacus.mechanism: the accountant has recorded no step. Pass the engine after training.")
    noises, rates, steps = zip(*history, strict=True)
    least, most = float(min(noises)), float(max(rates))
    sampling: Sampling | None = None
    if data_loader is not None:
        passes = math.ceil(sum(rate * count for _, rate, count in history) - 1e-9)
        drawn = _drawn(data_loader, most, passes)
        sampling, most = (None, max(most, drawn)) if isinstance(drawn, float) else (drawn, most)
    elif not poisson:
        raise ValueError(
            "opacus.mechanism: the accountant does not record how batches were drawn, and the ceiling holds only for "
            "Poisson sampling. Pass the data loader that make_private returned, mechanism(engine, data_loader), or "
            "poisson=True if make_private was called with poisson_sampling=True (its default)."
        )
    if len(set(noises)) > 1 or len(set(rates)) > 1:
        warnings.warn(
            f"opacus.mechanism: noise or rate changed during training ({len(history)} settings). The smallest noise "
            f"({least:g}) and the largest rate ({most:g}) are used for all {sum(steps)} steps: the ceiling holds, but "
            "is not the lowest.",
            stacklevel=2,
        )
    if sampling is not None:
        return {"noise_multiplier": least, "steps": passes * max(1, math.floor(1 / most + 1e-9)), "sampling": sampling}
    return {"noise_multiplier": least, "sample_rate": most, "steps": int(sum(steps))}


def _drawn(data_loader: Any, rate: float, passes: int) -> Sampling | float:
    """How a loader draws its batches, over all passes through the data; of Poisson sampling and full batches the rate.

    `rate` is what the accountant recorded for a step: with accumulated gradients, a step holds several batches.
    """
    from opacus.utils.uniform_sampler import DistributedUniformWithReplacementSampler, UniformWithReplacementSampler
    from torch.utils.data import RandomSampler, SequentialSampler

    sampler = getattr(data_loader, "batch_sampler", None)
    order = getattr(sampler, "sampler", None)
    if isinstance(sampler, UniformWithReplacementSampler | DistributedUniformWithReplacementSampler):
        return float(sampler.sample_rate)
    if rate >= 1:
        if isinstance(order, SequentialSampler) or getattr(order, "replacement", True) is False:
            return 1.0  # every record once in every batch
    elif (stated := getattr(sampler, "sampling", None)) is not None:  # of lostwax
        if abs(rate * len(data_loader) - 1) > 1e-6:
            raise ValueError("opacus.mechanism: several batches were accumulated in a step. Draw larger batches.")
        sampling: Sampling = stated(passes)
        return sampling
    elif isinstance(order, SequentialSampler):
        return Cyclic(passes)
    elif isinstance(order, RandomSampler) and not order.replacement:
        return Shuffled(passes)
    kind = type(data_loader if sampler is None else sampler).__name__
    raise ValueError(
        f"opacus.mechanism: the data loader draws batches by {kind}, not by Poisson sampling. Train with "
        "make_private(..., poisson_sampling=True) and pass the loader it returns."
    )
