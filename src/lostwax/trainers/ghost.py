"""Clipping in chains of linear layers, with the gradient of no single record ever made (ghost clipping).

A linear layer's gradient for one record is the outer product of two vectors, delta a^T, so that its norm is the product
of theirs (Goodfellow, arXiv 1510.01799), and the clipped sum is a product of two matrices:

    |g|^2 = sum over layers of (|a|^2 + 1) |delta|^2        the 1 for the bias
    sum_i f_i delta_i a_i^T = (f delta)^T A
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.trainers.clipping import Sample, clip_factor
from lostwax.trainers.fused.layers import plain
from lostwax.trainers.stacked import Architecture, Batch, Params, Part, linear
from lostwax.types import Loss


class Outer(NamedTuple):
    """The gradients of one linear layer, a record each: slope a^T."""

    name: str  # what its parameters' names begin with
    inputs: Tensor  # (b, d)  a
    slope: Tensor  # (b, h)  delta = d loss / d outputs


@dataclass(frozen=True)
class Ghost:
    """For nets that are linear layers with parameter-free ones between them, one after the other."""

    chain: tuple[tuple[str, nn.Module], ...]  # each with what its parameters' names begin with: "0.", or nothing

    @classmethod
    def of(cls, net: Architecture, record: Tensor) -> Ghost | None:
        """For such nets, where every linear layer sees rows; None for all others."""
        alone = type(net.net) is nn.Linear
        whole = nn.Sequential(net.net) if alone else net.net
        named = [("", net.net)] if alone else list(net.net.named_modules(remove_duplicate=False))[1:]
        chain = tuple((f"{name}." if name else "", part) for name, part in named)
        linears = [part for _, part in chain if type(part) is nn.Linear]
        others = [part for _, part in chain if type(part) is not nn.Linear]
        free = all(not list(part.parameters()) and not list(part.buffers()) for part in others)
        if not plain(whole) or not free or net.constants or len({id(part) for part in linears}) < len(linears):
            return None
        h = record.unsqueeze(0)
        for _, part in chain:
            if type(part) is nn.Linear and h.ndim != 2:
                return None
            h = linear(h, part.weight.detach().to(h)) if type(part) is nn.Linear else part(h)
        return cls(chain) if linears else None

    def total(self, net: Architecture, loss: Loss, params: Params, sample: Sample, clip: float) -> Params:
        """(m, ...) the sum over a model's records of  g min(1, C / |g|)."""

        def of_one_model(
            params: Params, shared: tuple[Part, ...], own: tuple[Part, ...], included: tuple[Tensor, ...]
        ) -> Params:
            total: Params = {}
            for (x, y), counted in zip(shared + own, included, strict=True):
                layers = self._backward(loss, params, x, y)
                factor = counted * clip_factor(_norm(layers, params), clip)  # (b,)
                for name, inputs, slope in layers:
                    clipped = (slope * factor.unsqueeze(-1)).mT  # (h, b)
                    _add(total, f"{name}weight", clipped @ inputs)  # (h, d)
                    if f"{name}bias" in params:
                        _add(total, f"{name}bias", clipped.sum(-1))  # (h,)
            return {name: total[name] for name in params}

        stacked: Callable[..., Params] = torch.func.vmap(of_one_model, in_dims=(0, None, 0, 0))
        return stacked(params, sample.batch.shared, sample.batch.own, sample.included)

    def norms(self, net: Architecture, loss: Loss, params: Params, batch: Batch) -> tuple[Tensor, ...]:
        """(m, b) for each part of the batch: |g| of every record, before clipping."""

        def of_one_model(params: Params, shared: tuple[Part, ...], own: tuple[Part, ...]) -> tuple[Tensor, ...]:
            return tuple(_norm(self._backward(loss, params, x, y), params) for x, y in shared + own)

        stacked: Callable[..., tuple[Tensor, ...]] = torch.func.vmap(of_one_model, in_dims=(0, None, 0))
        return stacked(params, batch.shared, batch.own)

    def _backward(self, loss: Loss, params: Params, x: Tensor, y: Tensor) -> list[Outer]:
        """One model forward and back, down to the first linear layer's outputs and no further."""
        h = x
        seen: list[tuple[str, Tensor, Callable[[Tensor], tuple[Tensor]] | None]] = []
        for name, part in self.chain:
            if type(part) is nn.Linear:
                seen.append((name, h, None))
                h = linear(h, params[f"{name}weight"], params.get(f"{name}bias"))  # (b, h)
            elif seen:
                h, pull, *_ = torch.func.vjp(part, h)
                seen.append(("", h, pull))
            else:
                h = part(h)  # nothing below it is trained
        slope = loss.residual(h, y)  # (b, c)
        layers: list[Outer] = []
        for number, (name, inputs, back) in reversed(list(enumerate(seen))):
            if back is not None:
                (slope,) = back(slope)
                continue
            layers.append(Outer(name, inputs, slope))
            if number > 0:
                slope = (params[f"{name}weight"].mT @ slope.mT).mT  # (b, d)
        return layers


def _norm(layers: list[Outer], params: Params) -> Tensor:
    """(b,) |g| over all layers."""
    squares = [
        (inputs.square().sum(-1) + float(f"{name}bias" in params)) * slope.square().sum(-1)
        for name, inputs, slope in layers
    ]
    return torch.stack(squares).sum(0).sqrt()


def _add(total: Params, name: str, more: Tensor) -> None:
    total[name] = total[name] + more if name in total else more
