"""Weights in a narrower float."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch

from lostwax.defences.defence import final_weights
from lostwax.types import Release
from lostwax.types.fields import check_fields, expect


@final
@dataclass(frozen=True)
class Rounded:
    """Every weight as a float of 16 bits, as models are often stored: `Rounded(torch.bfloat16)`.

    float16 keeps 11 binary digits, bfloat16 8. A weight beyond float16's range (65,504) becomes infinite, as in a file.
    """

    dtype: torch.dtype = torch.float16

    def __post_init__(self) -> None:
        check_fields(self)
        expect(self, "dtype", "torch.float16 or torch.bfloat16", self.dtype in (torch.float16, torch.bfloat16))

    def __call__(self, release: Release, numbers: Sequence[int], *, seed: int) -> Release:
        """Nothing is drawn."""
        weights = final_weights(self, release)
        return Release({name: value.to(self.dtype).to(value.dtype) for name, value in weights.items()})

    @classmethod
    def examples(cls) -> tuple[Rounded, ...]:
        """Instances to test."""
        return cls(), cls(torch.bfloat16)
