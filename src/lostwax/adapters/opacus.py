"""A model trained with Opacus: what its accountant has seen, in the words of `lw.bound`."""

from __future__ import annotations

import warnings
from typing import Any


def mechanism(privacy_engine: Any) -> dict[str, Any]:
    """The noise, rate and steps so far: `lw.bound(**lw.adapters.opacus.mechanism(privacy_engine), baseline=0.1)`.

    Takes a PrivacyEngine or its accountant. Where noise or rate changed on the way, the least noise and the largest
    rate stand for all steps: less noise and more sampling only ever tell more, so the ceiling holds, if loosely.
    The accountant does not know how batches were drawn: it takes them for Poisson samples, Opacus' default.
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
    if len(set(noises)) > 1 or len(set(rates)) > 1:
        warnings.warn(
            f"opacus.mechanism: noise or rate changed while training ({len(history)} settings). The least noise "
            f"({least:g}) and the largest rate ({most:g}) stand for all {sum(steps)} steps: a ceiling that holds, but "
            "not the lowest.",
            stacklevel=2,
        )
    return {"noise_multiplier": least, "sample_rate": most, "steps": int(sum(steps))}
