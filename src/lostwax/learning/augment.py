"""More shadow targets than the prior has records, by small changes to them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import nn

from lostwax.fields import at_least, between, check_fields
from lostwax.games import Records
from lostwax.seeds import generator


@runtime_checkable
class Augment(Protocol):
    """A way to make more records."""

    def objection(self, records: Records) -> str | None:
        """Why it does not apply to such records, as a clause; None if it does."""

    def __call__(self, records: Records, count: int, *, seed: int) -> Records:
        """`count` records: those given, then variants of them in turn."""


@dataclass(frozen=True)
class Repeats:
    """The same records again, for random training, where one record gives many models."""

    def objection(self, records: Records) -> str | None:
        return None

    def __call__(self, records: Records, count: int, *, seed: int) -> Records:
        return records[torch.arange(count, device=records.x.device) % len(records)]


@dataclass(frozen=True)
class Shifts:
    """Images shifted by up to `pixels` each way, with edges replicated."""

    pixels: int = 1

    def __post_init__(self) -> None:
        check_fields(self, pixels=at_least(1))

    def objection(self, records: Records) -> str | None:
        return _immovable("Shifts", records)

    def __call__(self, records: Records, count: int, *, seed: int) -> Records:
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


@dataclass(frozen=True)
class Affine:
    """Images rotated, scaled and shifted a little, with bilinear interpolation and edges replicated.

    Each is rotated about its middle by up to `degrees`, scaled by a factor in 1 - `scale` to 1 + `scale`, and shifted
    by up to `pixels` along both axes, all uniformly. With `mirror`, half of them are mirrored left to right, which
    suits pictures of things, but not of writing.
    """

    degrees: float = 5.0
    scale: float = 0.05
    pixels: float = 1.0
    mirror: bool = False

    def __post_init__(self) -> None:
        check_fields(self, degrees=at_least(0), scale=between(0, 1, "[)"), pixels=at_least(0))

    def objection(self, records: Records) -> str | None:
        return _immovable("Affine", records)

    def __call__(self, records: Records, count: int, *, seed: int) -> Records:
        repeated = Repeats()(records, count, seed=seed)
        height, width = repeated.x.shape[2:]
        draws = torch.from_numpy(generator(seed, "affine").uniform(-1, 1, (count, 4))).to(repeated.x)
        angle, factor = math.radians(self.degrees) * draws[:, 0], 1 + self.scale * draws[:, 1]
        cos, sin = angle.cos() / factor, angle.sin() / factor  # (count,)
        right, down = (self.pixels * draws[:, 2:]).T
        # Relative to the middle, pixel p shows what was at R p / factor - shift. Grid units are half sides.
        sides = torch.ones_like(angle)
        if self.mirror:
            sides -= 2 * torch.from_numpy(generator(seed, "mirror").integers(0, 2, count)).to(sides)  # (count,) 1 or -1
        across = torch.stack([cos, -sin * height / width, -2 * right / width], 1) * sides[:, None]
        along = torch.stack([sin * width / height, cos, -2 * down / height], 1)
        turns = torch.stack([across, along], 1)  # (count, 2, 3)
        grid = nn.functional.affine_grid(turns, list(repeated.x.shape), align_corners=False)  # (count, h, w, 2)
        moved = nn.functional.grid_sample(repeated.x, grid, padding_mode="border", align_corners=False)
        moved[: len(records)] = records.x[:count]
        return Records(moved, repeated.y)


def _immovable(augment: str, records: Records) -> str | None:
    """Why these records cannot be transformed, as a clause."""
    if records.features is not None:
        return f"{augment} moves x, but the net trains on features that were computed from the original x."
    if records.x.ndim != 4:
        return f"{augment} moves images (n, channels, height, width), but the prior has shape {tuple(records.x.shape)}."
    return None
