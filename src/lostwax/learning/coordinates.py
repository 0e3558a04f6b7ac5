"""A record as a vector of bounded unknowns, for attacks that solve for it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.games import Knowledge, Records
from lostwax.learning.decoders import Span


def unsolvable(knowledge: Knowledge, cure: str = "Use RecoNN.", *, keeps_parts: bool = False) -> str | None:
    """Why the numbers of a record cannot be solved for; None if they can."""
    prior = knowledge.prior
    if not prior.inputs.is_floating_point():
        return f"it needs records of floating-point numbers, and these are {prior.inputs.dtype}. For tokens use Tokens."
    if knowledge.facts.given.parts is not None and not keeps_parts:
        return "it solves for the whole record and cannot use known parts. Use RecoNN."
    if prior.features is not None:
        return f"the net trains on features of the records, through a backbone it cannot see. {cure}"
    return None


class Coordinates(NamedTuple):
    """z = origin + a directions, low <= a <= high: z a record's numbers (u,), a the r unknowns.

    Numbers that are constant in the prior are taken as known: they have no unknown, or one without effect.
    """

    origin: Tensor  # (u,)
    directions: Tensor  # (r, u), orthogonal
    low: Tensor  # (r,)
    high: Tensor  # (r,)

    @classmethod
    def of(cls, records: Records, *, constants: bool = False) -> Coordinates:
        """One unknown per number, in the coordinates of `Span`; with `constants` also for numbers that never vary."""
        span, label = Span.of(records.x.double()), _label(records)
        deviation = (label - label.mean(0)).square().mean(0).sqrt()  # (targets,)
        origin = torch.cat([span.shift.flatten(), label.mean(0)])
        unit = torch.cat([span.scale.flatten(), deviation])
        pixels = torch.arange(len(unit), device=unit.device) < span.shift.numel() if span.bounded else unit < 0
        varies = (unit > 0) | constants
        low, high = torch.where(pixels, 0.0, -torch.inf), torch.where(pixels, 1.0, torch.inf)
        return cls(origin, torch.diag(unit)[varies], low.to(unit)[varies], high.to(unit)[varies])

    @classmethod
    def principal(cls, records: Records, most: int | None = None) -> Coordinates:
        """The records' principal components, at `most` this many, in units of their deviations, unbounded."""
        z = flat(records)  # (n, u)
        mean = z.mean(0)
        if len(z) <= z.shape[1]:
            _, spread, basis = torch.linalg.svd(z - mean, full_matrices=False)
            deviation = spread / len(z) ** 0.5
        else:  # by the covariance where rows are many
            variance, columns = torch.linalg.eigh((z - mean).mT @ (z - mean) / len(z))  # the largest last
            deviation, basis = variance.flip(0).clamp_min(0).sqrt(), columns.mT.flip(0)
        rank = int((deviation > 1e-6 * deviation[0]).sum())
        deviation, basis = deviation[:rank][:most], basis[:rank][:most]
        return cls.anywhere(mean, deviation[:, None] * basis)

    @classmethod
    def anywhere(cls, origin: Tensor, directions: Tensor) -> Coordinates:
        high = torch.full_like(directions[:, 0], torch.inf)
        return cls(origin, directions, -high, high)

    def times(self, count: int) -> Coordinates:
        origin, low, high = (part.repeat(count) for part in (self.origin, self.low, self.high))
        return Coordinates(origin, torch.kron(torch.eye(count).to(origin), self.directions), low, high)

    def __call__(self, a: Tensor) -> Tensor:
        """(..., r) -> z (..., u)."""
        return self.origin + a @ self.directions

    def squared(self, deviations: Tensor) -> Tensor:
        """(..., u) squared deviations of z, from squared ones (..., r) of independent unknowns."""
        return deviations @ self.directions.square()

    def of_records(self, z: Tensor) -> Tensor:
        """(..., u) -> a (..., r): the nearest within the bounds."""
        length = self.directions.square().sum(1)  # (r,)
        return self.clamped((z - self.origin) @ self.directions.mT / torch.where(length > 0, length, 1.0))

    def clamped(self, a: Tensor) -> Tensor:
        """(..., r) within the bounds."""
        return torch.minimum(torch.maximum(a, self.low), self.high)


def classes_of(y: Tensor) -> Tensor:
    """(n,) the class of each record: 0 where labels are numbers, which count as numbers of the record."""
    return torch.zeros(len(y), dtype=torch.long, device=y.device) if y.is_floating_point() else y


def flat(records: Records) -> Tensor:
    """z of each record, (n, u)."""
    return torch.cat([records.x.double().flatten(1), _label(records)], 1)


def as_records(z: Tensor, classes: Tensor, like: Records) -> Records:
    """(n, u) and (n,) -> records in the shapes and dtypes of `like`; classes are not used where labels are numbers."""
    x, y = torch.tensor_split(z, [like.x.shape[1:].numel()], dim=1)
    labels = y.reshape(-1, *like.y.shape[1:]) if like.y.is_floating_point() else classes
    return Records(x.reshape(-1, *like.x.shape[1:]).to(like.x.dtype), labels.to(like.y))


def _label(records: Records) -> Tensor:
    """Labels that are numbers, (n, targets); (n, 0) where they are classes."""
    y = records.y
    return y.double().reshape(len(y), -1) if y.is_floating_point() else records.x.new_zeros(len(y), 0).double()
