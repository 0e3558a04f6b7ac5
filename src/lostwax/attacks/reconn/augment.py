"""More shadow targets than the prior has records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

from lostwax.seeds import generator
from lostwax.types import Records


class Augment(Protocol):
    """A way to make more records of a few."""

    def objection(self, records: Records) -> str | None:
        """Why it cannot be done with such records, as a clause; None when it can."""
        ...

    def __call__(self, records: Records, count: int, *, seed: int) -> Records:
        """`count` records: those given, then ones made of them in turn."""
        ...


@dataclass(frozen=True)
class Repeats:
    """The same records again. It helps where training is random, so that one record gives many models."""

    def objection(self, records: Records) -> str | None:
        """Every record can be repeated."""
        return None

    def __call__(self, records: Records, count: int, *, seed: int) -> Records:
        """Over and over."""
        return records[torch.arange(count, device=records.x.device) % len(records)]

    @classmethod
    def examples(cls) -> tuple[Repeats, ...]:
        """Instances to test."""
        return (cls(),)


@dataclass(frozen=True)
class Shifts:
    """Images moved by up to `pixels` each way, their edges drawn out to fill the gap."""

    pixels: int = 1

    def __post_init__(self) -> None:
        if self.pixels < 1:
            raise ValueError(f"Shifts: expected pixels >= 1, got {self.pixels}.")

    def objection(self, records: Records) -> str | None:
        """Only images can be shifted, and only where the net trains on them."""
        if records.features is not None:
            return "Shifts moves x, but the net trains on features that were computed from x where it was"
        if records.x.ndim != 4:
            return f"Shifts moves images (n, channels, height, width), but the prior has shape {tuple(records.x.shape)}"
        return None

    def __call__(self, records: Records, count: int, *, seed: int) -> Records:
        """The images where they are, then moved ones."""
        repeated = Repeats()(records, count, seed=seed)
        height, width = repeated.x.shape[2:]
        moves = generator(seed, "shifts").integers(0, 2 * self.pixels + 1, (count, 2))
        moves[: len(records)] = self.pixels  # the middle: not moved
        down, right = torch.from_numpy(moves).to(repeated.x.device).T[:, :, None]  # (count, 1) each
        rows = (down + torch.arange(height, device=down.device))[:, None, :, None]  # (count, 1, height, 1)
        columns = (right + torch.arange(width, device=down.device))[:, None, None, :]  # (count, 1, 1, width)
        padded = nn.functional.pad(repeated.x, [self.pixels] * 4, mode="replicate")
        image = torch.arange(count, device=down.device)[:, None, None, None]
        channel = torch.arange(repeated.x.shape[1], device=down.device)[None, :, None, None]
        return Records(padded[image, channel, rows, columns], repeated.y)

    @classmethod
    def examples(cls) -> tuple[Shifts, ...]:
        """Instances to test."""
        return cls(), cls(pixels=2)
