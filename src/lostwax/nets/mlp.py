"""Fully connected nets."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from torch import nn


def mlp(*sizes: int, activation: Callable[[], nn.Module] = nn.ELU) -> nn.Sequential:
    """Layers of the given sizes, inputs first: `mlp(784, 10, 10)` is the released model of S1, Table V."""
    if len(sizes) < 2 or min(sizes) < 1:
        raise ValueError(f"mlp: expected two sizes or more, each at least 1, got {sizes}.")
    first, *later = (nn.Linear(wide, narrow) for wide, narrow in pairwise(sizes))
    layers: list[nn.Module] = [nn.Flatten(), first]
    for linear in later:
        layers += [activation(), linear]
    return nn.Sequential(*layers)
