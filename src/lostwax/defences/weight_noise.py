"""Noise on the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from lostwax.defences.defence import final_weights
from lostwax.seeds import generator
from lostwax.types import Release
from lostwax.types.fields import above, check_fields


@final
@dataclass(frozen=True)
class WeightNoise:
    """Gaussian noise on every weight, `sigma` times the root mean square of its tensor.

    No differential privacy follows from it: how far one record can move the weights is not bounded, and the noise's
    own size depends on the records.
    """

    sigma: float

    def __post_init__(self) -> None:
        check_fields(self, sigma=above(0))

    def __call__(self, release: Release, numbers: Sequence[int], *, seed: int) -> Release:
        """A draw for each model, by the seed and its number."""
        weights = final_weights(self, release)
        if len(numbers) != len(release):
            raise ValueError(
                f"WeightNoise: expected the number of each of {len(release)} models, got {len(numbers)} numbers."
            )
        return Release({name: self._noisy(value, name, numbers, seed) for name, value in weights.items()})

    def _noisy(self, value: Tensor, name: str, numbers: Sequence[int], seed: int) -> Tensor:
        exact = value.double().flatten(1)  # (m, size)
        draws = [generator(seed, "weight noise", number, name).standard_normal(exact.shape[1]) for number in numbers]
        noise = torch.from_numpy(np.stack(draws)).to(value.device)  # (m, size)
        size = exact.square().mean(1, keepdim=True).sqrt()  # (m, 1)
        # its size in float32, so that the order in which a device adds changes no byte
        noisy: Tensor = exact + self.sigma * size.float().double() * noise
        return noisy.to(value.dtype).view(value.shape)

    @classmethod
    def examples(cls) -> tuple[WeightNoise, ...]:
        """Instances to test."""
        return cls(sigma=0.01), cls(sigma=1.0)
