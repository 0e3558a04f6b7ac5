"""What is seen of models, as rows to compare them by."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.access import Standardise
from lostwax.attacks.kernel_ridge.kernels import Kernel, Scale


class Sight(NamedTuple):
    """How models are looked at: standardised over shadow models, and then as a kernel likes it."""

    standardise: Standardise
    scale: Scale
    told: int  # how many of the kept features, the last, are numbers of the record
    dtype: torch.dtype  # of the rows

    @classmethod
    def of(cls, seen: Tensor, told: int = 0, *, dtype: torch.dtype, still: bool = False) -> Sight:
        """At the scale of models (s, features), of which the last `told` are numbers of their records.

        Models that may be `still` are not refused where they all look the same.
        """
        standardise = Standardise.fit(seen, told, still=still)
        kept = int((standardise.kept >= standardise.features - told).sum())
        features = standardise(seen, dtype)
        return cls(standardise, Scale.of(features[:, : features.shape[1] - kept]), kept, dtype)

    def __call__(self, seen: Tensor, kernel: Kernel) -> Tensor:
        """(m, features) -> (m, row), of which products are likenesses."""
        return kernel.rows(self.standardise(seen, self.dtype), self.told, self.scale)
