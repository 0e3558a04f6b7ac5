"""Which rows a record is stored in while a model is trained, seen from inside (S4 section 4)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.access.superparameters import Neuron, neurons, row_layers
from lostwax.trainers.descent import Descent
from lostwax.trainers.traces import own_slopes
from lostwax.types import Cohort


class Scales(NamedTuple):
    """A step adds to each row the layer's input times `scale` (S4 Eq. 2): in the first layer, a copy of the record."""

    rows: tuple[Neuron, ...]
    scale: Tensor  # (m, t, rows)

    @property
    def stored(self) -> Tensor:
        """(m, t, rows) whether the step stores anything: B-scale (S4 Eq. 4). Its sum over rows is S4 Fig. 5."""
        return self.scale != 0

    def of(self, module: str) -> Scales:
        """The rows of one layer."""
        places = [place for place, row in enumerate(self.rows) if row.module == module]
        if not places:
            there = ", ".join(dict.fromkeys(row.module for row in self.rows))
            raise ValueError(f"Scales.of: no row lies in module '{module}'. There are rows in {there}.")
        return Scales(tuple(self.rows[place] for place in places), self.scale[..., places])


def row_scales(trainer: Descent, net: nn.Module, cohort: Cohort, *, seed: int) -> Scales:
    """The scale of every row, at every step, for every secret:  d loss(secret) / d bias  (S4 Eq. 3).

    A convolution's is a sum over positions, each of which stores another patch.
    """
    biases = [layer.params[-1] for layer in row_layers(net).values()]
    for name in biases:
        if name.rpartition(".")[2] != "bias":
            raise ValueError(
                f"row_scales: expected a bias in every layer that is trained, but {name} has none beside it. Scales "
                "are read off biases: give the layer one (bias=True), or freeze it."
            )
    steps = [torch.cat([slopes[name] for name in biases], 1) for slopes in own_slopes(trainer, net, cohort, seed=seed)]
    return Scales(neurons(net), torch.stack(steps, 1))
