"""Nets that are one linear layer: what the closed form can solve."""

from __future__ import annotations

from torch import nn


def linear_layer(net: nn.Module) -> nn.Linear | None:
    """The net's linear layer, if the net is nothing else (an nn.Linear, perhaps after an nn.Flatten)."""
    layers = [net] if not isinstance(net, nn.Sequential) else [part for part in net if not isinstance(part, nn.Flatten)]
    return layers[0] if len(layers) == 1 and isinstance(layers[0], nn.Linear) else None
