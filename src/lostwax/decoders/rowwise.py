"""A decoder that reads a model row by row: every row is a copy of what its layer was shown, clean or not."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from lostwax.access.seen_rows import SeenLayer, SeenRows
from lostwax.decoders.decoder import Decoder
from lostwax.decoders.mlp import MLPDecoder
from lostwax.decoders.noise import InputNoise
from lostwax.types.fields import at_least, check_fields

SMALLEST, LARGEST = -5.0, 3.0  # of a row's size and its logarithm: beyond, all are alike
BESIDE = 3  # the numbers that gates are told of a row beside its summary: log size, size, bias


@dataclass(frozen=True)
class RowDecoder:
    """Every row by its direction, weighed by gates that look at all rows, and summed layer by layer.

    A row has moved by a multiple of what its layer was shown (S4 Eq. 2), and by what the known records did to it. With
    ReLU a row may hold a clean copy of one record and mere noise of the next, so that no choice of rows suits all
    (`MnemonistRecoNN` makes one), and a large row is not a good one. Here a row counts by its direction, and a small
    net with two layers of `width` decides for each model anew how much, and with which sign: from the size and the bias
    of every row, and `summary` numbers of its direction. Of each layer's rows it makes `sums`, and `picture` makes the
    record of these.
    """

    sums: int = 4
    summary: int = 16
    width: int = 128
    input_noise: float = 0.05
    picture: Decoder = field(default_factory=lambda: MLPDecoder(depth=0, input_noise=0.0))

    def __post_init__(self) -> None:
        check_fields(self, sums=at_least(1), summary=at_least(1), width=at_least(1), input_noise=at_least(0))

    def build(self, rows: SeenRows, shape: tuple[int, ...], *, bounded: bool = True) -> nn.Module:
        """(m, features) -> (m, *shape), where these rows lie among the features; within [0, 1] where `bounded`."""
        pooled = self.sums * sum(layer.place.shape[1] for layer in rows.layers) + len(rows.others)
        return nn.Sequential(RowSums(rows, self), self.picture.build(pooled, shape, bounded=bounded))

    @classmethod
    def examples(cls) -> tuple[RowDecoder, ...]:
        """Instances to test."""
        return cls(), cls(sums=2, summary=2, width=8, input_noise=0.0, picture=MLPDecoder(width=8, depth=1))


class RowSums(nn.Module):
    """(m, features) -> (m, sums * columns of all layers + others)."""

    others: Tensor

    def __init__(self, rows: SeenRows, settings: RowDecoder) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Layer(layer, settings) for layer in rows.layers)
        self.register_buffer("others", rows.others)
        self.heights = [len(layer.place) for layer in rows.layers]
        told = [len(layer.place) * (_summary(layer, settings) + BESIDE) for layer in rows.layers]
        self.gates = nn.Sequential(
            nn.Linear(sum(told) + len(rows.others), settings.width),
            nn.ReLU(),
            nn.Linear(settings.width, settings.width),
            nn.ReLU(),
            nn.Linear(settings.width, settings.sums * sum(self.heights)),
            nn.Unflatten(1, (settings.sums, sum(self.heights))),
        )

    def forward(self, features: Tensor) -> Tensor:
        """The sums of directions, by gates that depend on the model."""
        directions, about = zip(*(layer(features) for layer in self.layers), strict=True)
        others = features[:, self.others]
        gates = torch.split(self.gates(torch.cat([*about, others], 1)), self.heights, 2)  # (m, sums, rows) a layer
        sums = [(gate @ copies).flatten(1) for gate, copies in zip(gates, directions, strict=True)]
        return torch.cat([*sums, others], 1)


class _Layer(nn.Module):
    """One layer's rows: directions (m, rows, columns), and what the gates are told about them (m, rows * told)."""

    place: Tensor
    unit: Tensor

    def __init__(self, layer: SeenLayer, settings: RowDecoder) -> None:
        super().__init__()
        self.register_buffer("place", layer.place.clamp_min(0))
        self.register_buffer("unit", layer.unit.float())
        self.biased = layer.biased
        self.noise = InputNoise(settings.input_noise)
        columns, numbers = layer.place.shape[1], _summary(layer, settings)
        self.summary = nn.Identity() if numbers == columns else nn.Linear(columns, numbers, bias=False)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        moved = features[:, self.place] * self.unit  # (m, rows, columns), in deviations of the row
        size = moved.norm(dim=2, keepdim=True).clamp_min(torch.finfo(moved.dtype).tiny)
        direction = self.noise(moved / size * math.sqrt(moved.shape[2]))
        bias = direction[..., -1:] if self.biased else torch.zeros_like(size)
        beside = size.log().clamp(SMALLEST, LARGEST), size.clamp_max(LARGEST), bias  # (m, rows, 1) each
        return direction, torch.cat([self.summary(direction), *beside], 2).flatten(1)


def _summary(layer: SeenLayer, settings: RowDecoder) -> int:
    """How many numbers of a direction the gates are told: all, where there are no more."""
    return min(settings.summary, int(layer.place.shape[1]))
