"""Where a record is looked for, and by what it is judged."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from lostwax.attacks.gradient.normal_law import NormalLaw

TYPICAL = 16  # records, for a typical length of gradients


class Search(Protocol):
    """What descent needs to know of the unknowns v (m, starts, ...) behind the records."""

    @property
    def low(self) -> float:
        """The least number of a record."""

    @property
    def high(self) -> float:
        """The largest."""

    @property
    def unit(self) -> float:
        """The size of v, by which Adam's steps are measured."""

    def start(self, draws: np.random.Generator, count: int) -> Tensor:
        """(count, ...) where to begin."""

    def records(self, v: Tensor, labels: Tensor) -> Tensor:
        """(m, starts, ...) the records of these labels that v stands for."""

    def confine(self, v: Tensor) -> None:
        """Bring v back to where it may be, in place."""

    def misfit(self, clipped: Tensor, rest: Tensor) -> Tensor:
        """How badly clipped gradients explain what is unexplained, number by number, in units of the clipping norm."""

    def of_steps(self, misfit: Tensor, silence: Tensor) -> Tensor:
        """(m, t, starts) of whole steps, from their misfit if the secret is in them and if not, (m, t, 1)."""

    def surprise(self, v: Tensor) -> Tensor:
        """(m, starts) what speaks against v before any step is seen, in the units of the misfit."""

    def typical(self, draws: np.random.Generator, labels: Tensor) -> list[Tensor]:
        """Records (m, starts, ...) whose gradients say by how much those of v are clipped at first; none: as later."""

    def own(self, factor: Tensor) -> Tensor:
        """By how much a record's gradient is clipped for its own length, as descent is to see it."""


class Anywhere(NamedTuple):
    """S3's: any record within the range of the data, by Eq. 1."""

    like: Tensor  # one record
    low: float
    high: float

    @property
    def unit(self) -> float:
        """v is the record."""
        return self.high - self.low

    def start(self, draws: np.random.Generator, count: int) -> Tensor:
        """Uniform noise."""
        return self.low + self.unit * torch.from_numpy(draws.random((count, *self.like.shape))).to(self.like)

    def records(self, v: Tensor, labels: Tensor) -> Tensor:
        """v itself."""
        return v

    def confine(self, v: Tensor) -> None:
        """To the range."""
        v.clamp_(self.low, self.high)

    def misfit(self, clipped: Tensor, rest: Tensor) -> Tensor:
        """-<clip(g), gbar> + |clip(g) - gbar|_1 (S3 Eq. 1)."""
        return (clipped - rest).abs() - clipped * rest

    def of_steps(self, misfit: Tensor, silence: Tensor) -> Tensor:
        """All hold it."""
        return misfit

    def surprise(self, v: Tensor) -> Tensor:
        """Nothing is known beforehand."""
        return v.new_zeros(v.shape[:2])

    def typical(self, draws: np.random.Generator, labels: Tensor) -> list[Tensor]:
        """None."""
        return []

    def own(self, factor: Tensor) -> Tensor:
        """As it is, and changing with the record."""
        return factor


class Likeliest(NamedTuple):
    """Ours: the likeliest record under the noise of DP-SGD and a normal law of records."""

    law: NormalLaw
    like: Tensor  # one record
    low: float
    high: float
    noise: float  # sigma, on every number of a step
    rate: float = 1.0  # q, with which the secret is drawn for a step

    @property
    def unit(self) -> float:
        """v is in deviations of the law."""
        return 1.0

    def start(self, draws: np.random.Generator, count: int) -> Tensor:
        """Near the middle of the law."""
        return torch.from_numpy(draws.random((count, len(self.law.directions)))).to(self.like) - 0.5

    def records(self, v: Tensor, labels: Tensor) -> Tensor:
        """Of the law."""
        return self.law(v, labels).view(*labels.shape, *self.like.shape)

    def confine(self, v: Tensor) -> None:
        """The law does."""

    def misfit(self, clipped: Tensor, rest: Tensor) -> Tensor:
        """sigma^2 times the negative log-likelihood of normal noise."""
        return (clipped - rest).square() / 2

    def of_steps(self, misfit: Tensor, silence: Tensor) -> Tensor:
        """The same for a mixture: - sigma^2 ln((1 - q) exp(-silence / sigma^2) + q exp(-misfit / sigma^2))."""
        if self.rate == 1:
            return misfit
        if self.noise == 0:
            return torch.minimum(misfit, silence)  # the limit
        gain = (silence - misfit) / self.noise**2  # in nats, for the secret having been drawn
        missed = torch.full_like(gain, math.log1p(-self.rate))
        return silence - self.noise**2 * torch.logaddexp(missed, gain + math.log(self.rate))

    def surprise(self, v: Tensor) -> Tensor:
        """sigma^2 times - log p(v), v ~ N(0, I)."""
        return self.noise**2 * v.square().sum(2) / 2

    def typical(self, draws: np.random.Generator, labels: Tensor) -> list[Tensor]:
        """Some of the law: where descent begins, no record is near enough to tell its own length by."""
        numbers = draws.standard_normal((TYPICAL, 1, 1, len(self.law.directions)))
        found = [self.records(v.expand(*labels.shape, -1), labels) for v in torch.from_numpy(numbers).to(self.like)]
        return [x.clamp(self.low, self.high) for x in found]

    def own(self, factor: Tensor) -> Tensor:
        """As it is, but held while the slope is taken.

        Were it to change with the record, the noise that a record takes on would make its gradient longer and so the
        clipped record fainter: the likeliest record under that model is a shadow of itself.
        """
        return factor.detach()
