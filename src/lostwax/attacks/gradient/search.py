"""Where a record is looked for, and by what it is judged."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from lostwax.attacks.gradient.normal_law import NormalLaw


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

    def left_open(self, reach: Tensor) -> Tensor:
        """Deviations of v once all steps are seen, if clipped gradients move so far (m, starts) as a record moves by 1.

        Squared, and summed over the steps.
        """

    def around(self, draws: np.random.Generator, v: Tensor, spread: Tensor, labels: Tensor, pairs: int) -> list[Tensor]:
        """Records (m, starts, ...) so far from v's that say how gradients are clipped; none: each by its own length."""


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

    def left_open(self, reach: Tensor) -> Tensor:
        """Nothing: v is taken as it is."""
        return torch.zeros_like(reach).unsqueeze(2)

    def around(self, draws: np.random.Generator, v: Tensor, spread: Tensor, labels: Tensor, pairs: int) -> list[Tensor]:
        """None."""
        return []


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
        gain = (silence - misfit) / self.noise**2  # in nats, for the secret having been drawn
        missed = torch.full_like(gain, math.log1p(-self.rate))
        return silence - self.noise**2 * torch.logaddexp(missed, gain + math.log(self.rate))

    def surprise(self, v: Tensor) -> Tensor:
        """sigma^2 times - log p(v), v ~ N(0, I)."""
        return self.noise**2 * v.square().sum(2) / 2

    def left_open(self, reach: Tensor) -> Tensor:
        """(m, starts, r) sigma / sqrt(sigma^2 + q reach |d_i|^2), as if every direction d_i moved gradients alike."""
        seen = self.rate * reach.unsqueeze(2) * self.law.directions.square().sum(1)
        return self.noise / (self.noise**2 + seen).sqrt()

    def around(self, draws: np.random.Generator, v: Tensor, spread: Tensor, labels: Tensor, pairs: int) -> list[Tensor]:
        """z(v + s xi) and z(v - s xi), xi ~ N(0, I).

        Some numbers leave the range of the data, and stay out: the law has the second moments of records, so that its
        draws are as long as records are. Brought back into the range they would be shorter.
        """
        numbers = torch.from_numpy(draws.standard_normal((pairs, 1, 1, v.shape[2]))).to(v)
        return [self.records(v + side * spread * one, labels) for one in numbers for side in (1, -1)]
