"""Which row each number lies in that is seen of a model."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.access.layers import Layers
from lostwax.access.standardise import Standardise
from lostwax.access.superparameters import Superparameters, neurons, row_layers
from lostwax.access.weights import Weights
from lostwax.inits import trainable
from lostwax.types import Access, Release

NOWHERE = -1


class SeenLayer(NamedTuple):
    """The rows of one layer among standardised features, as far as they are seen."""

    place: Tensor  # (rows, columns) which feature it is, -1 for none: a weight that never moves is dropped
    unit: Tensor  # (rows, columns) its deviation, in that of the whole row; 0 where there is none
    biased: bool  # is the last column a bias?


class SeenRows(NamedTuple):
    """All rows, layer by layer, and the features that lie in no row."""

    layers: tuple[SeenLayer, ...]
    others: Tensor  # (others,) features: of other layers, or told

    @classmethod
    def of(cls, net: nn.Module, access: Access, standardise: Standardise) -> SeenRows:
        """Found out by showing the access a model whose every weight is its row's number, and its column's."""
        row, column = (access(net, Release(marks))[0].long() for marks in _marks(net))  # (seen,) each
        told = row.new_full((standardise.features - len(row),), NOWHERE)
        row, column = (torch.cat([marks, told])[standardise.kept.cpu()] for marks in (row, column))  # (kept,)
        deviation = standardise.deviation.cpu()
        layers, start = [], 0
        for layer, width in zip(row_layers(net).values(), _widths(net), strict=True):
            mine = ((row >= start) & (row < start + layer.neurons)).nonzero()[:, 0]
            place = torch.full((layer.neurons, width), NOWHERE)
            unit = torch.zeros(layer.neurons, width, dtype=torch.float64)
            place[row[mine] - start, column[mine]] = mine
            unit[row[mine] - start, column[mine]] = deviation[mine]
            moves = unit.norm(dim=1) > 0
            if moves.any():
                whole = unit[moves].norm(dim=1, keepdim=True)
                biased = len(layer.params) > 1
                layers.append(SeenLayer(place[moves], unit[moves] / whole, biased))
            start += layer.neurons
        return cls(tuple(layers), (row == NOWHERE).nonzero()[:, 0])


def rows_objection(net: nn.Module, access: Access) -> str | None:
    """Why no rows are seen, as a sentence."""
    if not isinstance(access, Weights | Layers | Superparameters):
        return f"its decoder reads weights row by row, but the adversary sees {access!r}. Use access=Weights()."
    if not neurons(net):
        return "its decoder reads rows, and the net trains no linear or convolutional layer. Use MLPDecoder."
    return None


def _widths(net: nn.Module) -> list[int]:
    """The columns of each layer's rows: incoming weights, then the bias."""
    trained = trainable(net)
    return [sum(trained[name][0].numel() for name in layer.params) for layer in row_layers(net).values()]


def _marks(net: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """One model of row numbers and one of columns, (1, ...) a parameter; -1 for what lies in no row."""
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
