"""A record as a row of numbers, to be regressed, drawn and clipped."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.coordinates import Coordinates, as_records, flat
from lostwax.types import Hints, Records


class Frame(NamedTuple):
    """Coordinates of a record, one a number, and of its label where that is a number too.

    A class is no coordinate: every class has an ensemble of its own.
    """

    unknowns: Coordinates
    like: Records  # one record, for shapes and dtypes

    @classmethod
    def of(cls, prior: Records) -> Frame:
        """The frame of records like the prior's."""
        return cls(Coordinates.of(prior, constants=True), prior[:1])

    @property
    def device(self) -> torch.device:
        """Where all is computed."""
        return self.unknowns.origin.device

    @property
    def unit(self) -> Tensor:
        """(q,) what one of each coordinate is in the record's own numbers."""
        return self.unknowns.directions.diagonal()

    def coordinates(self, records: Records) -> Tensor:
        """(n, q) in float64."""
        return self.unknowns.of_records(flat(records))

    def records(self, coordinates: Tensor, classes: Tensor) -> Records:
        """(n, q) and (n,) -> records in the prior's dtype; where labels are numbers, the classes are not used."""
        return as_records(self.unknowns(coordinates), classes, self.like)

    def within(self, coordinates: Tensor, told: Tensor) -> Tensor:
        """(n, q) moved into the prior's range, and as told (q,) where something is; nan where it is not."""
        inside = self.unknowns.clamped(coordinates)
        return torch.where(told.isnan(), inside, told)

    def told(self, hints: Hints | None, game: int) -> Tensor:
        """(q,) the coordinates of a game's secret that the hints tell, nan for the others."""
        x, y = (part.new_full(part.shape, torch.nan, dtype=torch.float64) for part in (self.like.x, self.like.y))
        if hints is not None and hints.parts is not None:
            x = hints.parts[game].to(x)  # (1, ...), k = 1
        if hints is not None and hints.labels is not None:
            y = hints.labels[game].to(y)
        z = flat(Records(x, y if self.like.y.is_floating_point() else self.like.y))[0]  # (q,)
        numbers = self.unknowns.of_records(torch.where(z.isnan(), self.unknowns.origin, z))
        return torch.where(z.isnan(), torch.nan, numbers)
