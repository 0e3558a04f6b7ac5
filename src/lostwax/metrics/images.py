"""What a metric of images is given."""

from __future__ import annotations

from torch import Tensor


def as_images(source: str, guess: Tensor, truth: Tensor) -> tuple[Tensor, Tensor]:
    """Both as (games, channels, height, width); (games, height, width) counts as grey."""
    if guess.shape != truth.shape:
        raise ValueError(
            f"{source}: expected one guess of the truth's shape a game, "
            f"got {tuple(guess.shape)} for a truth of {tuple(truth.shape)}."
        )
    if truth.ndim == 3:
        return guess.unsqueeze(1), truth.unsqueeze(1)
    if truth.ndim != 4 or truth.shape[1] not in (1, 3):
        raise ValueError(
            f"{source} compares images: expected shape (games, 1 or 3, height, width) or (games, height, width), "
            f"got {tuple(truth.shape)}. Reshape flattened images first, and judge tables by MSE or SpreadRMSE."
        )
    return guess, truth
