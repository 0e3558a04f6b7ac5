"""The noise, sampling rate and steps of a model trained with Opacus, as arguments of `lw.bound`."""

from __future__ import annotations

import warnings
from typing import Any


def mechanism(privacy_engine: Any, data_loader: Any = None, *, poisson: bool = False) -> dict[str, Any]:
    """The noise, rate and steps so far: `lw.bound(**lw.adapters.opacus.mechanism(engine, loader), baseline=0.1)`.

    Args:
        privacy_engine: A PrivacyEngine or its accountant, after training.
        data_loader: The loader that `make_private` returned. The ceiling holds only for Poisson sampling or full
            batches, and the accountant does not record how batches were drawn.
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
    if data_loader is not None:
        most = max(most, _poisson_rate(data_loader, full_batches=most >= 1))
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
    return {"noise_multiplier": least, "sample_rate": most, "steps": int(sum(steps))}


def _poisson_rate(data_loader: Any, *, full_batches: bool) -> float:
    """The sampling rate of a loader; anything but Poisson sampling and full batches is refused."""
    from opacus.utils.uniform_sampler import DistributedUniformWithReplacementSampler, UniformWithReplacementSampler
    from torch.utils.data import SequentialSampler

    sampler = getattr(data_loader, "batch_sampler", None)
    if isinstance(sampler, UniformWithReplacementSampler | DistributedUniformWithReplacementSampler):
        return float(sampler.sample_rate)
    order = getattr(sampler, "sampler", None)
    if full_batches and (isinstance(order, SequentialSampler) or getattr(order, "replacement", True) is False):
        return 1.0  # every record once in every batch
    kind = type(data_loader if sampler is None else sampler).__name__
    raise ValueError(
        f"opacus.mechanism: the data loader draws batches by {kind}, not by Poisson sampling. Train with "
        "make_private(..., poisson_sampling=True) and pass the loader it returns. For shuffled batches, "
        "lw.bound(..., sampling=lw.bounds.Shuffled(epochs)) gives an interval, whose upper end is far higher."
    )
