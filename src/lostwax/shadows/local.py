"""Shadow models on this machine, one chunk after the other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import nn

from lostwax.types import Cohort, Records, Release, Threat, Trainer


@final
@dataclass(frozen=True)
class Local:
    """Trains models in chunks of about `chunk`; None takes what a quarter of the free memory holds.

    A chunk is a whole number of the trainer's tiles, at least one: its size changes no byte of a model.
    """

    chunk: int | None = None

    def __post_init__(self) -> None:
        if self.chunk is not None and self.chunk < 1:
            raise ValueError(f"Local: expected chunk >= 1, or None, got {self.chunk}.")

    def __call__(
        self, trainer: Trainer, net: nn.Module, threat: Threat, pool: Records, *, models: int, seed: int
    ) -> Iterator[tuple[Cohort, Release]]:
        """Models 0 .. models - 1 in order: each chunk's training sets, and what was released of them."""
        if models < 1:
            raise ValueError(f"Local: expected models >= 1, got {models}.")
        first = threat.deal(pool, 1, seed=seed)
        tile = trainer.tile_size(net, first)
        chunk = max((self.chunk or _affordable(net, first)) // tile, 1) * tile
        for start in range(0, models, chunk):
            cohort = threat.deal(pool, min(chunk, models - start), seed=seed, start=start)
            yield cohort, trainer(net, cohort, seed=seed)

    @classmethod
    def examples(cls) -> tuple[Local, ...]:
        """Instances to test."""
        return cls(), cls(chunk=8)


def _affordable(net: nn.Module, one: Cohort) -> int:
    """How many models fit a quarter of the free memory: a release, its copy in the making, the secrets."""
    numbers = 2 * sum(value.numel() for value in net.parameters()) + one.own.x.numel() + one.own.inputs.numel()
    return max(_free_bytes(one.own.x.device) // 4 // (8 * numbers), 1)


def _free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if "SC_AVPHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 2 << 30  # where the system does not say
