"""White-box access to some neurons of the released model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.inits import trainable
from lostwax.types import Release
from lostwax.types.fields import check_fields

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class Neuron(NamedTuple):
    """An output of a layer, or a channel of a convolution. Its incoming weights and bias are a row, or superparameter.

    S4 section 5.1: training stores a record by rows, a scaled copy of the layer's input in each.
    """

    module: str  # as in net.named_modules()
    number: int

    def __str__(self) -> str:
        return f"{self.module}[{self.number}]"


class RowLayer(NamedTuple):
    """A layer whose parameters have one slice a neuron."""

    neurons: int
    params: tuple[str, ...]  # those that are trained, (neurons, ...) each


def row_layers(net: nn.Module) -> dict[str, RowLayer]:
    """The linear and convolutional layers that are trained, by name. What other layers train lies in no row."""
    trained, found = trainable(net), {}
    for module, layer in net.named_modules():
        if isinstance(layer, LAYERS):
            names = (f"{module}.{part}".removeprefix(".") for part in ("weight", "bias"))
            if params := tuple(name for name in names if name in trained):
                found[module] = RowLayer(len(trained[params[0]]), params)
    return found


def neurons(net: nn.Module) -> tuple[Neuron, ...]:
    """All that have a row, layer by layer."""
    return tuple(Neuron(module, n) for module, layer in row_layers(net).items() for n in range(layer.neurons))


@dataclass(frozen=True)
class Superparameters:
    """The rows of some neurons, side by side: `Superparameters((Neuron("1", 0), Neuron("1", 7)))`."""

    rows: tuple[Neuron, ...]

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.rows:
            raise ValueError("Superparameters: expected rows of at least one neuron, got none.")

    def __call__(self, net: nn.Module, release: Release) -> Tensor:
        """(m, features), in the order of the net whatever the order of the rows."""
        layers, wanted = row_layers(net), set(self.rows)
        for row in self.rows:
            _check(row, layers)
        seen = [
            release.params[name][:, row.number].reshape(len(release), -1)
            for row in neurons(net)
            if row in wanted
            for name in layers[row.module].params
        ]
        return torch.cat(seen, 1)

    @classmethod
    def examples(cls) -> tuple[Superparameters, ...]:
        """Instances to test, on a net with layers "1" and "3"."""
        return cls((Neuron("1", 0),)), cls((Neuron("1", 2), Neuron("3", 1)))


def _check(row: Neuron, layers: Mapping[str, RowLayer]) -> None:
    layer = layers.get(row.module)
    if layer is None or not 0 <= row.number < layer.neurons:
        there = ", ".join(f"{module}[0] to {module}[{each.neurons - 1}]" for module, each in layers.items())
        raise ValueError(f"Superparameters: the net has no row {row}. Of rows it trains {there or 'none'}.")
