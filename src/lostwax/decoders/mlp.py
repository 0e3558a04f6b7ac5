"""A fully connected decoder."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import nn

from lostwax.decoders.noise import InputNoise
from lostwax.types.fields import at_least, between, check_fields


@dataclass(frozen=True)
class MLPDecoder:
    """`depth` hidden layers of `width` ReLUs (S1 Table V: p-1000-1000-d), fed with noise on the standardised weights.

    The noise is not in S1; wide and noisy beats the printed recipe, which overfits.
    """

    width: int = 1000
    depth: int = 2
    input_noise: float = 0.1
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_fields(self, width=at_least(1), depth=at_least(0), input_noise=at_least(0), dropout=between(0, 1, "[)"))

    def build(self, features: int, shape: tuple[int, ...], *, bounded: bool = True) -> nn.Module:
        """(m, features) -> (m, *shape); within [0, 1] where `bounded`."""
        layers: list[nn.Module] = [InputNoise(self.input_noise)]
        inputs = features
        for _ in range(self.depth):
            layers += [nn.Linear(inputs, self.width), nn.ReLU(), nn.Dropout(self.dropout)]
            inputs = self.width
        layers += [nn.Linear(inputs, math.prod(shape)), nn.Unflatten(1, shape)]
        return nn.Sequential(*layers, nn.Sigmoid() if bounded else nn.Identity())

    @classmethod
    def examples(cls) -> tuple[MLPDecoder, ...]:
        """Instances to test."""
        return cls(), cls(width=8, depth=1, input_noise=0.0, dropout=0.1), cls(depth=0)
