"""A head as a set of neurons."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.types import Release


class Neurons(NamedTuple):
    """The first linear layer of a head, and what hangs on each of its neurons."""

    weight: str  # the names of its parameters
    bias: str | None
    outgoing: str | None  # the weight of the layer behind it; None where it is the last
    neurons: int

    @classmethod
    def of(cls, net: nn.Module) -> Neurons | None:
        """Of a linear layer, or of several in a row with activations between them; None for other nets."""
        named = [("", net)] if isinstance(net, nn.Linear) else list(net.named_children())
        layers = [(name, layer) for name, layer in named if any(True for _ in layer.parameters())]
        linear = [(name, layer) for name, layer in layers if isinstance(layer, nn.Linear)]
        if not isinstance(net, nn.Linear | nn.Sequential) or not linear or len(linear) < len(layers):
            return None
        (name, first), *behind = linear
        prefix = f"{name}." if name else ""
        return cls(
            f"{prefix}weight",
            None if first.bias is None else f"{prefix}bias",
            f"{behind[0][0]}.weight" if behind else None,
            first.out_features,
        )

    def tokens(self, release: Release) -> Tensor:
        """(m, neurons, numbers): a neuron's row, its bias, the weights that lead on from it; then what all share."""
        params = release.params
        own = [params[self.weight]]  # (m, h, d)
        if self.bias is not None:
            own.append(params[self.bias].unsqueeze(-1))  # (m, h, 1)
        if self.outgoing is not None:
            own.append(params[self.outgoing].mT)  # (m, h, c)
        common = [value for name, value in params.items() if name not in (self.weight, self.bias, self.outgoing)]
        shared = [value.flatten(1).unsqueeze(1).expand(-1, self.neurons, -1) for value in common]
        return torch.cat([*own, *shared], -1)
