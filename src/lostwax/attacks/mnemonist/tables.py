"""Shadow models back from the table that they were flattened into."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lostwax.attacks.reconn import ShadowTable
from lostwax.inits import trainable
from lostwax.types import Access, Release


def seen_by(access: Access, net: nn.Module, table: ShadowTable) -> ShadowTable:
    """The same models through another access, from one to all weights."""
    models, told = models_and_told(table)
    return table._replace(seen=torch.cat([access(net, release_of(net, models)), told], 1))


def models_and_told(table: ShadowTable) -> tuple[Tensor, Tensor]:
    """All weights of the models (s, p), and the numbers of their secrets that are told (s, told)."""
    models, told = torch.split(table.seen, [table.seen.shape[1] - table.told, table.told], 1)
    return models, told


def release_of(net: nn.Module, flat: Tensor) -> Release:
    """The models whose parameters lie side by side in (s, p): `Release.flat` undone."""
    params = trainable(net)
    parts = torch.split(flat, [value.numel() for value in params.values()], 1)
    named = zip(params.items(), parts, strict=True)
    return Release({name: part.reshape(len(flat), *value.shape) for (name, value), part in named})
