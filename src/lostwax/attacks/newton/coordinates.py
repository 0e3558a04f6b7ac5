"""The unknowns of an inversion: which records are looked for, and within what bounds."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.decoders import Span
from lostwax.types import Records


class Coordinates(NamedTuple):
    """z = origin + a directions, low <= a <= high: z a record's numbers (u,), a the r unknowns.

    Numbers that are the same in all records the adversary has are taken for known, and have no unknown.
    """

    origin: Tensor  # (u,)
    directions: Tensor  # (r, u), orthogonal
    low: Tensor  # (r,)
    high: Tensor  # (r,)

    @classmethod
    def of(cls, records: Records) -> Coordinates:
        """One unknown a number of the record: its share of the range, or its deviations from the mean (see Span)."""
        span, label = Span.of(records.x.double()), _label(records)
        deviation = (label - label.mean(0)).square().mean(0).sqrt()  # (targets,)
        origin = torch.cat([span.shift.flatten(), label.mean(0)])
        unit = torch.cat([span.scale.flatten(), deviation])
        pixels = torch.arange(len(unit), device=unit.device) < span.shift.numel() if span.bounded else unit < 0
        varies = unit > 0
        low, high = torch.where(pixels, 0.0, -torch.inf), torch.where(pixels, 1.0, torch.inf)
        return cls(origin, torch.diag(unit)[varies], low.to(unit)[varies], high.to(unit)[varies])

    @classmethod
    def principal(cls, records: Records, count: int) -> Coordinates:
        """The records' first `count` principal components, in their deviations, without bounds."""
        x = torch.cat([records.x.double().flatten(1), _label(records)], 1)  # (n, u)
        mean = x.mean(0)
        _, spread, basis = torch.linalg.svd(x - mean, full_matrices=False)
        deviation = spread[:count] / len(x) ** 0.5
        anywhere = torch.full_like(deviation, torch.inf)
        return cls(mean, deviation[:, None] * basis[:count], -anywhere, anywhere)

    def __call__(self, a: Tensor) -> Tensor:
        """(..., r) -> z (..., u)."""
        return self.origin + a @ self.directions

    def of_records(self, z: Tensor) -> Tensor:
        """(..., u) -> a (..., r): the nearest that the coordinates can say, within the bounds."""
        a = (z - self.origin) @ self.directions.mT / self.directions.square().sum(1)
        return torch.minimum(torch.maximum(a, self.low), self.high)


def flat(records: Records) -> Tensor:
    """z of each record, (n, u)."""
    return torch.cat([records.x.double().flatten(1), _label(records)], 1)


def _label(records: Records) -> Tensor:
    """Labels that are numbers, (n, targets); none where they are classes."""
    y = records.y
    return y.double().reshape(len(y), -1) if y.is_floating_point() else records.x.new_zeros(len(y), 0).double()
