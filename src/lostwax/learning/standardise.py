"""What is seen of a model, standardised, and the neurons that its numbers belong to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.access import neurons, row_layers
from lostwax.games import Access, Release
from lostwax.games.facts import access_facts
from lostwax.inits import trainable

STILL = 1e-3  # a coordinate is constant if its deviation is below this share of the median one
COLUMNS = 1024  # columns that are copied to float64 at a time


@dataclass(frozen=True, eq=False)
class Standardise:
    """Zero mean and unit deviation over shadow models (Balle et al. 2022, section V-A c), where coordinates vary.

    Weights that differ by rounding only, as those of pixels that are always black, are dropped. Values are clamped to
    `reach` deviations from the mean, sqrt(s) for s shadow models: none of s numbers lies beyond.
    """

    kept: Tensor  # (kept,) whole numbers below `features`
    mean: Tensor  # (kept,) float64
    deviation: Tensor  # (kept,) float64
    features: int
    reach: float  # deviations

    @classmethod
    def fit(cls, seen: Tensor, beside: int = 0, *, still: bool = False) -> Standardise:
        """The statistics of (m, features), in float64: float32 would lose small changes of large weights.

        The last `beside` features are not weights, and are compared with each other only. Identical models raise,
        unless they may be `still`: then every coordinate is read as its mean, as in `refit`.
        """
        mean, deviation = _moments(seen)  # (features,) twice
        if still and not deviation.any():
            deviation = torch.full_like(deviation, torch.inf)
        if not deviation.any():
            raise ValueError(
                f"Standardise: all {len(seen)} models look the same, so nothing of a record can be seen in them. "
                "Train for more than no steps, on more than one record, or give access to more of the model."
            )
        kinds = torch.split(deviation, [len(deviation) - beside, beside])
        moving = torch.cat([kind >= STILL * kind[kind > 0].median() for kind in kinds]).nonzero()[:, 0]
        return cls(moving, mean[moving], deviation[moving], seen.shape[1], math.sqrt(len(seen)))

    @staticmethod
    def moves(seen: Tensor) -> bool:
        """Whether any feature of models (m, features) differs by more than rounding."""
        return bool(_moments(seen)[1].any())

    def refit(self, seen: Tensor) -> Standardise:
        """The same coordinates, standardised over other models (m, features), such as those of another known set."""
        self._check(seen)
        mean, deviation = _moments(seen[:, self.kept])  # (kept,) twice
        moving = torch.where(deviation > 0, deviation, torch.inf)  # constants are read as their mean
        return Standardise(self.kept, mean, moving, self.features, math.sqrt(len(seen)))

    def __call__(self, seen: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
        """(m, features) -> (m, kept)."""
        self._check(seen)
        scaled = seen.new_empty(len(seen), len(self.kept), dtype=dtype)
        for start in range(0, len(self.kept), COLUMNS):
            block = slice(start, start + COLUMNS)
            far = (seen[:, self.kept[block]].double() - self.mean[block]) / self.deviation[block]
            scaled[:, block] = far.clamp_(-self.reach, self.reach)
        return scaled

    def _check(self, seen: Tensor) -> None:
        if seen.shape[1] != self.features:
            raise ValueError(
                f"Standardise: expected {self.features} numbers per model, as the shadow models have, got "
                f"{seen.shape[1]}. Use the same net and access, and give the adversary the same numbers."
            )


def _moments(seen: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each column in float64; a deviation by rounding only is zero."""
    parts = [torch.std_mean(columns.double(), dim=0, correction=0) for columns in torch.split(seen, COLUMNS, dim=1)]
    deviation, mean = (torch.cat(part) for part in zip(*parts, strict=True))
    return mean, torch.where(deviation > torch.finfo(seen.dtype).eps * mean.abs(), deviation, 0.0)


NOWHERE = -1


class SeenLayer(NamedTuple):
    """The rows of one layer among standardised features, one row per neuron, as far as they are seen."""

    place: Tensor  # (rows, columns) the feature's number, -1 for a weight that was dropped
    unit: Tensor  # (rows, columns) its deviation, relative to the whole row's; 0 where it was dropped
    biased: bool  # whether the last column is a bias


class SeenRows(NamedTuple):
    """All rows, layer by layer, and the features that lie in no row."""

    layers: tuple[SeenLayer, ...]
    others: Tensor  # (others,) features of other layers, or given

    @classmethod
    def of(cls, net: nn.Module, access: Access, standardise: Standardise) -> SeenRows:
        """Found by applying the access to a model whose weights are their rows' numbers, and another for columns."""
        row, column = (access(net, Release(marks))[0].long() for marks in _marks(net))  # (seen,) each
        unplaced = row.new_full((standardise.features - len(row),), NOWHERE)
        row, column = (torch.cat([marks, unplaced])[standardise.kept.cpu()] for marks in (row, column))  # (kept,)
        deviation = standardise.deviation.cpu()
        layers, start = [], 0
        trained = trainable(net)
        for layer in row_layers(net).values():
            width = sum(trained[name][0].numel() for name in layer.params)  # incoming weights, then the bias
            layer_features = ((row >= start) & (row < start + layer.neurons)).nonzero()[:, 0]
            place = torch.full((layer.neurons, width), NOWHERE)
            unit = torch.zeros(layer.neurons, width, dtype=torch.float64)
            place[row[layer_features] - start, column[layer_features]] = layer_features
            unit[row[layer_features] - start, column[layer_features]] = deviation[layer_features]
            moves = unit.norm(dim=1) > 0
            if moves.any():
                row_norms = unit[moves].norm(dim=1, keepdim=True)
                layers.append(SeenLayer(place[moves], unit[moves] / row_norms, biased=len(layer.params) > 1))
            start += layer.neurons
        return cls(tuple(layers), (row == NOWHERE).nonzero()[:, 0])


def rows_objection(net: nn.Module, access: Access) -> str | None:
    """Why a decoder cannot read rows, as a sentence; None if it can."""
    if not access_facts(access).rows:
        return f"its decoder reads weights row by row, but the adversary sees {access!r}. Use access=Weights()."
    if not neurons(net):
        return "its decoder reads rows, and the net trains no linear or convolutional layer. Use MLPDecoder."
    return None


def _marks(net: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """One model of row numbers and one of columns, (1, ...) per parameter; -1 outside rows."""
    trained = trainable(net)
    rows = {name: torch.full((1, *value.shape), float(NOWHERE), dtype=torch.float64) for name, value in trained.items()}
    columns = {name: value.clone() for name, value in rows.items()}
    start = 0
    for layer in row_layers(net).values():
        numbers, before = torch.arange(layer.neurons, dtype=torch.float64), 0
        for name in layer.params:
            flat = rows[name][0].reshape(layer.neurons, -1)  # (neurons, columns), a view
            flat[:] = (start + numbers).unsqueeze(1)
            columns[name][0].reshape(layer.neurons, -1)[:] = before + torch.arange(flat.shape[1], dtype=torch.float64)
            before += flat.shape[1]
        start += layer.neurons
    return rows, columns
