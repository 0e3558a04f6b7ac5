"""Clipping by definition: the gradient of every record, for any net."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from lostwax.trainers.clipping import Sample, binary_scale
from lostwax.trainers.stacked import Architecture, Batch, Params, Part
from lostwax.types import Loss

NUMBERS = 1 << 25  # of gradients that are held at a time


@dataclass(frozen=True)
class PerRecord:
    """Makes the gradients of some records at a time, so many that memory does not grow with the batch."""

    def total(self, net: Architecture, loss: Loss, params: Params, sample: Sample, clip: float) -> Params:
        """(m, ...) the sum over a model's records of  g min(1, C / |g|); of g that is not finite, 0."""
        total = {name: torch.zeros_like(value) for name, value in params.items()}
        for (part, is_own), included in zip(_parts(sample.batch), sample.included, strict=True):
            for rows, gradients in _some_at_a_time(net, loss, params, part, is_own):
                scaled, scale = _scaled(gradients)
                factor = included[:, rows] * torch.minimum(scale, clip / _norm(scaled))  # (m, rows)
                for name, gradient in scaled.items():
                    total[name] += torch.einsum("mb,mb...->m...", factor, gradient)
        return total

    def norms(self, net: Architecture, loss: Loss, params: Params, batch: Batch) -> tuple[Tensor, ...]:
        """(m, b) for each part of the batch: |g| of every record, before clipping; inf where g is not finite."""
        return tuple(
            torch.cat([_length(gradients) for _, gradients in _some_at_a_time(net, loss, params, part, is_own)], 1)
            for part, is_own in _parts(batch)
        )


def record_gradients(net: Architecture, loss: Loss, params: Params, records: Part, *, own: bool = True) -> Params:
    """(m, b, ...) the gradient of each record's loss; `own` records are (m, b, ...), others (b, ...) for all models."""

    def of_one_record(params: Params, x: Tensor, y: Tensor) -> Params:
        outputs, pull, *_ = torch.func.vjp(lambda params: net(params, x.unsqueeze(0)), params)
        (gradient,) = pull(loss.residual(outputs, y.unsqueeze(0)))
        return dict(gradient)

    of_one_model = torch.func.vmap(of_one_record, in_dims=(None, 0, 0))
    side = 0 if own else None
    gradients: Params = torch.func.vmap(of_one_model, in_dims=(0, side, side))(params, *records)
    return gradients


def _some_at_a_time(
    net: Architecture, loss: Loss, params: Params, part: Part, own: bool
) -> Iterator[tuple[slice, Params]]:
    x, y = part
    axis = 1 if own else 0
    rows = max(NUMBERS // sum(value.numel() for value in params.values()), 1)
    for start in range(0, x.shape[axis], rows):
        some = slice(start, start + rows)
        piece = (x[:, some], y[:, some]) if own else (x[some], y[some])
        yield some, record_gradients(net, loss, params, piece, own=own)


def _parts(batch: Batch) -> list[tuple[Part, bool]]:
    return [(part, False) for part in batch.shared] + [(part, True) for part in batch.own]


def _scaled(gradients: Params) -> tuple[Params, Tensor]:
    """Gradients with a largest entry in [1, 2), 0 where they are not finite, and the scale (m, b) they are divided by.

    The scale is 0 where they are not finite.
    """
    largest = torch.stack([gradient.flatten(2).abs().amax(2) for gradient in gradients.values()]).amax(0)  # (m, b)
    finite, scale = largest.isfinite(), binary_scale(largest)
    scaled = {}
    for name, gradient in gradients.items():
        ones = (1,) * (gradient.ndim - 2)
        divided = gradient / scale.view(*scale.shape, *ones)
        scaled[name] = torch.where(finite.view(*scale.shape, *ones), divided, 0.0)
    return scaled, torch.where(finite, scale, 0.0)


def _length(gradients: Params) -> Tensor:
    """(m, b) the norm of a gradient of any size."""
    scaled, scale = _scaled(gradients)
    return torch.where(scale > 0, scale * _norm(scaled), torch.inf)


def _norm(gradients: Params) -> Tensor:
    """(m, b) over all parameters."""
    return torch.stack([gradient.flatten(2).square().sum(2) for gradient in gradients.values()]).sum(0).sqrt()
