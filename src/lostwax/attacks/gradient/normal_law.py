"""A normal law of records: a mean for every class, and one covariance within classes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

KEPT = 1e-3  # of the largest deviation: directions in which records vary less are left out


class NormalLaw(NamedTuple):
    """z = mean of its class + v directions, v ~ N(0, I)."""

    classes: Tensor  # (classes,) in increasing order
    means: Tensor  # (classes, u)
    directions: Tensor  # (r, u) principal ones, as long as a deviation

    @classmethod
    def of(cls, x: Tensor, y: Tensor) -> NormalLaw:
        """From records (n, ...) of classes (n,), in float64."""
        z = x.double().flatten(1)
        classes, place = torch.unique(y, return_inverse=True)
        count = torch.bincount(place).to(z).unsqueeze(1)
        means = z.new_zeros(len(classes), z.shape[1]).index_add(0, place, z) / count
        rest = z - means[place]
        variance, basis = torch.linalg.eigh(rest.mT @ rest / max(1, len(z) - len(classes)))  # the largest last
        deviation = variance.clamp_min(0).sqrt()
        kept = deviation > KEPT * deviation[-1]
        directions = (deviation * basis)[:, kept].mT.flip(0)
        return cls(classes, means.to(x), directions.to(x))

    def __call__(self, v: Tensor, y: Tensor) -> Tensor:
        """(..., r) of classes (...) -> (..., u)."""
        return self.means[torch.searchsorted(self.classes, y)] + v @ self.directions
