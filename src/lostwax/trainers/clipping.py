"""Clipped gradients of single records, of m stacked models at once.

No record contributes more than C to a sum, whatever its numbers. A gradient is divided by a power of two near its
largest entry before its norm is computed, so that no square overflows, and a gradient that is not finite counts as
zero: both are functions of that record alone, which is what the privacy proof asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from lostwax.trainers.stacked import Architecture, Batch, Params, Part
from lostwax.types import Loss


class Sample(NamedTuple):
    """The records of one step, some of which count."""

    batch: Batch
    included: tuple[Tensor, ...]  # (m, b) for each part of the batch: 1 where the record was drawn, else 0

    @classmethod
    def whole(cls, batch: Batch, models: int) -> Sample:
        """Every record counts."""
        ones = [x.new_ones(()) for x, _ in (*batch.shared, *batch.own)]
        sizes = [len(y) for _, y in batch.shared] + [y.shape[1] for _, y in batch.own]
        return cls(batch, tuple(one.expand(models, size) for one, size in zip(ones, sizes, strict=True)))


class Clipping(Protocol):
    """A way to clip the gradient of every record on its own."""

    def total(self, net: Architecture, loss: Loss, params: Params, sample: Sample, clip: float) -> Params:
        """(m, ...) the sum over a model's records of  g min(1, C / |g|); of g that is not finite, 0."""
        ...

    def norms(self, net: Architecture, loss: Loss, params: Params, batch: Batch) -> tuple[Tensor, ...]:
        """(m, b) for each part of the batch: |g| of every record, before clipping; inf where g is not finite."""
        ...


def clip_factor(norm: Tensor, clip: float) -> Tensor:
    """min(1, C / |g|)."""
    return (clip / norm).clamp_max(1)


def binary_scale(largest: Tensor) -> Tensor:
    """The largest power of two up to `largest` > 0, to divide by without rounding; 1 for 0."""
    mantissa, _ = torch.frexp(largest)  # in [1/2, 1)
    return torch.where(largest > 0, largest / (2 * mantissa), 1.0)


def slopes_along(net: Architecture, loss: Loss, params: Params, direction: Params, records: Part) -> Tensor:
    """(m, b) <gradient of a record's loss, direction>, for records (m, b, ...), with no gradient ever made.

    It is the derivative of the loss along the direction: one pass forward, by whatever net.
    """

    def of_one_model(params: Params, direction: Params, x: Tensor, y: Tensor) -> Tensor:
        outputs, moved, *_ = torch.func.jvp(lambda params: net(params, x), (params,), (direction,))
        along: Tensor = (loss.residual(outputs, y) * moved).sum(-1)
        return along  # <d loss / d outputs, J direction>

    stacked: Callable[..., Tensor] = torch.func.vmap(of_one_model)
    return stacked(params, direction, *records)
