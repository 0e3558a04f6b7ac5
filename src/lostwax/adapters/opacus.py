"""A model trained with Opacus: what its accountant has seen, in the words of `lw.bound`."""

from __future__ import annotations

import warnings
from typing import Any


def mechanism(privacy_engine: Any, data_loader: Any = None, *, poisson: bool = False) -> dict[str, Any]:
    """The noise, rate and steps so far: `lw.bound(**lw.adapters.opacus.mechanism(engine, loader), baseline=0.1)`.

    Takes a PrivacyEngine or its accountant, and the data loader that `make_private` returned. The accountant does not
    know how batches were drawn, and the ceiling holds for Poisson samples only, or for full batches. So the loader has
    to show it; where the loader is gone, `poisson=True` states it. Where noise or rate changed on the way, the least
    noise and the largest rate stand for all steps: less noise and more sampling only ever tell more, so the ceiling
    holds, if loosely.
    """
    accountant = getattr(privacy_engine, "accountant", privacy_engine)
    history = getattr(accountant, "history", None)
    if not isinstance(history, list):
        raise TypeError(
            "opacus.mechanism: expected a PrivacyEngine of Opacus, or its accountant, "
            f"got {type(privacy_engine).__name__}."
        )
    if not history:
        raise ValueError(
            "opacus.mechanism: the accountant has seen no step. Pass the engine that trained the model, after training."
        )
    noises, rates, steps = zip(*history, strict=True)
    least, most = float(min(noises)), float(max(rates))
    if data_loader is not None:
        most = max(most, _poisson_rate(data_loader, full_batches=most >= 1))
    elif not poisson:
        raise ValueError(
            "opacus.mechanism: the accountant does not know how batches were drawn, and the ceiling holds for Poisson "
            "samples only. Pass the data loader that make_private returned, mechanism(engine, data_loader), or say "
            "poisson=True if make_private was called with poisson_sampling=True, its default."
        )
    if len(set(noises)) > 1 or len(set(rates)) > 1:
        warnings.warn(
            f"opacus.mechanism: noise or rate changed while training ({len(history)} settings). The least noise "
            f"({least:g}) and the largest rate ({most:g}) stand for all {sum(steps)} steps: a ceiling that holds, but "
            "not the lowest.",
            stacklevel=2,
        )
    return {"noise_multiplier": least, "sample_rate": most, "steps": int(sum(steps))}


def _poisson_rate(data_loader: Any, *, full_batches: bool) -> float:
    """The rate at which a loader draws every record; other than Poisson samples and full batches are refused."""
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
        f"opacus.mechanism: the data loader draws its batches by {kind}, not as Poisson samples, and no ceiling of "
        "lw.bound holds for shuffled batches. Train with make_private(..., poisson_sampling=True) and pass the loader "
        "that it returns."
    )
