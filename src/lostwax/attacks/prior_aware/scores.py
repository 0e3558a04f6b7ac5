"""How the steps of a training speak for a candidate, in nats."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from lostwax.trainers import DPSGD


class Observed(NamedTuple):
    """What a step says of every candidate, in units of the clipping norm C, so that the secret's mean is 1."""

    products: Tensor  # (m, c)  <clip(g_z), gbar> / C^2
    squares: Tensor  # (m, c)  |clip(g_z)|^2 / C^2: 1 where it was clipped


@runtime_checkable
class Score(Protocol):
    """A rule to add up what is observed."""

    def __call__(self, steps: Iterator[Observed], trainer: DPSGD) -> Tensor:
        """(m, c) for each candidate; the highest is the answer."""
        ...


@dataclass(frozen=True)
class InnerProducts:
    """S3 Algorithm 2: sum_t <clip(g_z), gbar_t>. The best there is for full batches in which all are clipped."""

    def __call__(self, steps: Iterator[Observed], trainer: DPSGD) -> Tensor:
        """The products, summed."""
        return sum_of(step.products for step in steps) / trainer.noise_multiplier**2

    @classmethod
    def examples(cls) -> tuple[InnerProducts, ...]:
        """Instances to test."""
        return (cls(),)


@dataclass(frozen=True)
class LargestProducts:
    """S3 Algorithm 3, for mini-batches: only the largest q T products are summed, for about so many steps hold z."""

    def __call__(self, steps: Iterator[Observed], trainer: DPSGD) -> Tensor:
        """The largest so far are kept, step by step."""
        kept = max(1, round(trainer.sample_rate * trainer.steps))
        largest = next(steps).products.unsqueeze(-1)  # (m, c, 1)
        for step in steps:
            largest = torch.cat([largest, step.products.unsqueeze(-1)], -1)
            largest = largest.topk(min(kept, largest.shape[-1]), dim=-1).values  # (m, c, <= q T)
        return largest.sum(-1) / trainer.noise_multiplier**2

    @classmethod
    def examples(cls) -> tuple[LargestProducts, ...]:
        """Instances to test."""
        return (cls(),)


@dataclass(frozen=True)
class LogLikelihood:
    """S3 appendix G: sum_t ln(1 - q + q exp((|gbar_t|^2 - |gbar_t - clip(g_z)|^2) / (2 sigma^2 C^2))).

    The log of how likely the steps are with z, less that without: with ln p(z) added, no attack is right more often.
    """

    def __call__(self, steps: Iterator[Observed], trainer: DPSGD) -> Tensor:
        """|gbar|^2 - |gbar - g|^2 = 2 <g, gbar> - |g|^2."""
        q, variance = trainer.sample_rate, trainer.noise_multiplier**2
        gains = ((step.products - step.squares / 2) / variance for step in steps)
        if q == 1:
            return sum_of(gains)
        missed = math.log1p(-q)
        return sum_of(torch.logaddexp(gain + math.log(q), torch.full_like(gain, missed)) for gain in gains)

    @classmethod
    def examples(cls) -> tuple[LogLikelihood, ...]:
        """Instances to test."""
        return (cls(),)


def sum_of(terms: Iterator[Tensor]) -> Tensor:
    """In float64, one term at a time."""
    total = next(terms).double()
    for term in terms:
        total = total + term
    return total
