"""Weights as small whole numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from lostwax.defences.defence import final_weights
from lostwax.types import Release
from lostwax.types.fields import between, check_fields


@final
@dataclass(frozen=True)
class Quantised:
    """Every weight as a whole number of `bits` bits, times a scale for each tensor: `Quantised(8)` is int8.

    Symmetric, the most common kind: the largest weight of a tensor, by its size, is +-127 times the scale.
    """

    bits: int = 8

    def __post_init__(self) -> None:
        check_fields(self, bits=between(2, 16, "[]"))

    def __call__(self, release: Release, numbers: Sequence[int], *, seed: int) -> Release:
        """Nothing is drawn."""
        return Release({name: self._quantised(value) for name, value in final_weights(self, release).items()})

    def _quantised(self, value: Tensor) -> Tensor:
        levels = 2 ** (self.bits - 1) - 1
        weights = value.flatten(1)  # (m, size)
        largest = weights.abs().amax(1, keepdim=True)  # (m, 1), levels times the scale
        shares = weights / torch.where(largest == 0, 1, largest)  # in [-1, 1]
        quantised: Tensor = (shares * levels).round() / levels * largest  # the largest stays exactly as it was
        return quantised.view(value.shape)

    @classmethod
    def examples(cls) -> tuple[Quantised, ...]:
        """Instances to test."""
        return cls(), cls(bits=4)
