"""A record as a row of numbers, to be regressed, drawn and clipped."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.decoders import Span
from lostwax.types import Hints, Records


class Frame(NamedTuple):
    """Coordinates of a record: its numbers in the shares of `Span`, and its label where that is a number too.

    A class is no coordinate: every class has an ensemble of its own.
    """

    span: Span
    label_span: Span | None  # None for classes
    like: Records  # one record, for shapes and dtypes

    @classmethod
    def of(cls, prior: Records) -> Frame:
        """The frame of records like the prior's."""
        labels = Span.of(prior.y.double()) if prior.y.is_floating_point() else None
        return cls(Span.of(prior.x.double()), labels, prior[:1])

    @property
    def numbers(self) -> int:
        """d, the coordinates of x; those of a label come after."""
        return self.like.x.numel()

    def coordinates(self, records: Records) -> Tensor:
        """(n, q) in float64."""
        shares = self.span.shares(records.x.double()).flatten(1)  # (n, d)
        if self.label_span is None:
            return shares
        return torch.cat([shares, self.label_span.shares(records.y.double()).reshape(len(shares), -1)], 1)

    def records(self, coordinates: Tensor, classes: Tensor) -> Records:
        """(n, q) and (n,) -> records in the prior's dtype; where labels are numbers, the classes are not used."""
        x, y = torch.tensor_split(coordinates, [self.numbers], dim=1)
        numbers = self.span.records(x.reshape(-1, *self.like.x.shape[1:])).to(self.like.x.dtype)
        if self.label_span is None:
            return Records(numbers, classes.to(self.like.y))
        return Records(numbers, self.label_span.records(y.reshape(-1, *self.like.y.shape[1:])).to(self.like.y.dtype))

    def within(self, coordinates: Tensor, told: Tensor) -> Tensor:
        """(n, q) moved into the prior's range, and as told (q,) where something is; nan where it is not."""
        if self.span.bounded:
            x, y = torch.tensor_split(coordinates, [self.numbers], dim=1)
            coordinates = torch.cat([x.clamp(0, 1), y], 1)
        return torch.where(told.isnan(), coordinates, told)

    def told(self, hints: Hints | None, game: int) -> Tensor:
        """(q,) the coordinates of a game's secret that the hints tell, nan for the others."""
        x, y = (part.new_full(part.shape, torch.nan, dtype=torch.float64) for part in (self.like.x, self.like.y))
        if hints is not None and hints.parts is not None:
            x = hints.parts[game].to(x)  # (1, ...), k = 1
        if hints is not None and hints.labels is not None:
            y = hints.labels[game].to(y)
        return self.coordinates(Records(x, y))[0]
