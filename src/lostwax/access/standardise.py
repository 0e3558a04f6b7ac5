"""What is seen of a model, brought to one scale."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

STILL = 1e-3  # a coordinate that moves less than this share of the median one does not move
COLUMNS = 1024  # float64 copies are made of so many columns at a time


@dataclass(frozen=True, eq=False)
class Standardise:
    """Zero mean and unit deviation over the shadow models, in the coordinates that move (S1 section V-A c).

    Pixels that are black in all known records leave first-layer weights that differ between models by rounding alone.
    Divided by their tiny deviation they would feed an attack noise of any size, so they are dropped.
    """

    kept: Tensor  # (kept,) whole numbers below `features`
    mean: Tensor  # (kept,) float64
    deviation: Tensor  # (kept,) float64
    features: int

    @classmethod
    def fit(cls, seen: Tensor) -> Standardise:
        """The statistics of (m, features), in float64: float32 would lose small moves of large weights."""
        moments = [
            torch.std_mean(columns.double(), dim=0, correction=0) for columns in torch.split(seen, COLUMNS, dim=1)
        ]
        deviation = torch.cat([part for part, _ in moments])  # (features,)
        mean = torch.cat([part for _, part in moments])
        moving = deviation > torch.finfo(seen.dtype).eps * mean.abs()  # by more than rounding
        if not moving.any():
            raise ValueError(
                f"Standardise: all {len(seen)} models look the same, so nothing of a record can be seen in them. "
                "Train for more than no steps, on more than one record, or give access to more of the model."
            )
        kept = (moving & (deviation > STILL * deviation[moving].median())).nonzero()[:, 0]
        return cls(kept, mean[kept], deviation[kept], seen.shape[1])

    def __call__(self, seen: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        """(m, features) -> (m, kept)."""
        if seen.shape[1] != self.features:
            raise ValueError(
                f"Standardise: expected {self.features} numbers a model, as the shadow models have, "
                f"got {seen.shape[1]}. Is it another net, or another access?"
            )
        scaled = seen.new_empty(len(seen), len(self.kept), dtype=dtype)
        for start in range(0, len(self.kept), COLUMNS):
            block = slice(start, start + COLUMNS)
            scaled[:, block] = (seen[:, self.kept[block]].double() - self.mean[block]) / self.deviation[block]
        return scaled
