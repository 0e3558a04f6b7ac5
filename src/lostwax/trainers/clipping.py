"""Per-record gradient clipping for m stacked models: no record contributes more than C to a sum, whatever its values.

A gradient is divided by a power of two near its largest entry before its norm is computed, so that no square overflows,
and one that is not finite counts as zero. Both depend on that record alone, as the privacy proof requires.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from lostwax.games import Loss
from lostwax.trainers.stacked import Architecture, Batch, Params, Part, linear, record_gradients


class Sample(NamedTuple):
    """The records of one step, and which of them were sampled."""

    batch: Batch
    included: tuple[Tensor, ...]  # (m, b) for each part of the batch: 1 if the record was sampled, else 0

    @classmethod
    def whole(cls, batch: Batch, models: int) -> Sample:
        inputs = [x for x, _ in (*batch.shared, *batch.own)]
        ones = (x.new_ones(()).expand(models, size) for x, size in zip(inputs, batch.sizes, strict=True))
        return cls(batch, tuple(ones))


class Clipping(Protocol):
    """A method of per-record clipping."""

    def total(self, net: Architecture, loss: Loss, params: Params, sample: Sample, clip: float) -> Params:
        """(m, ...) the sum over a model's sampled records of  g min(1, C / |g|); 0 for g that is not finite."""

    def norms(self, net: Architecture, loss: Loss, params: Params, batch: Batch) -> tuple[Tensor, ...]:
        """(m, b) for each part of the batch: |g| of every record, before clipping; inf if g is not finite."""


def clip_factor(norm: Tensor, clip: float) -> Tensor:
    """min(1, C / |g|)."""
    return (clip / norm).clamp_max(1)


def binary_scale(largest: Tensor) -> Tensor:
    """The largest power of two <= `largest`, by which division is exact; 1 for 0."""
    mantissa, _ = torch.frexp(largest)  # in [1/2, 1)
    return torch.where(largest > 0, largest / (2 * mantissa), 1.0)


def slopes_along(net: Architecture, loss: Loss, params: Params, direction: Params, records: Part) -> Tensor:
    """(m, b) <gradient of a record's loss, direction>, for records (m, b, ...), by one forward-mode pass."""

    def of_one_model(params: Params, direction: Params, x: Tensor, y: Tensor) -> Tensor:
        outputs, moved, *_ = torch.func.jvp(lambda params: net(params, x), (params,), (direction,))
        along: Tensor = (loss.residual(outputs, y) * moved).sum(-1)
        return along  # <d loss / d outputs, J direction>

    stacked: Callable[..., Tensor] = torch.func.vmap(of_one_model)
    return stacked(params, direction, *records)


NUMBERS_AT_A_TIME = 1 << 25  # of per-record gradients in memory at a time


@dataclass(frozen=True)
class PerRecord:
    """Clipping by definition, for any net: computes per-record gradients in blocks, to bound memory."""

    def total(self, net: Architecture, loss: Loss, params: Params, sample: Sample, clip: float) -> Params:
        total = {name: torch.zeros_like(value) for name, value in params.items()}
        for part, included in zip(_parts(net, loss, params, sample.batch), sample.included, strict=True):
            for rows, scaled, scale, norm in part:
                factor = included[:, rows] * torch.minimum(scale, clip / norm)  # (m, rows)
                for name, gradient in scaled.items():
                    total[name] += torch.einsum("mb,mb...->m...", factor, gradient)
        return total

    def norms(self, net: Architecture, loss: Loss, params: Params, batch: Batch) -> tuple[Tensor, ...]:
        parts = _parts(net, loss, params, batch)
        each = ([torch.where(scale > 0, scale * norm, torch.inf) for _, _, scale, norm in part] for part in parts)
        return tuple(torch.cat(norms, 1) for norms in each)


def _parts(
    net: Architecture, loss: Loss, params: Params, batch: Batch
) -> Iterator[Iterator[tuple[slice, Params, Tensor, Tensor]]]:
    """For each part of the batch, some rows at a time: scaled gradients (m, b, ...), scale and scaled norm (m, b).

    The largest entry of a scaled gradient is in [1, 2). A gradient that is not finite, and its scale, become 0.
    """
    some = max(NUMBERS_AT_A_TIME // sum(value.numel() for value in params.values()), 1)

    def scaled_gradients(x: Tensor, y: Tensor, own: bool) -> Iterator[tuple[slice, Params, Tensor, Tensor]]:
        for start in range(0, y.shape[1 if own else 0], some):
            rows = slice(start, start + some)
            records = (x[:, rows], y[:, rows]) if own else (x[rows], y[rows])
            gradients = record_gradients(net, loss, params, records, own=own)
            largest = torch.stack([part.flatten(2).abs().amax(2) for part in gradients.values()]).amax(0)  # (m, b)
            finite, scale = largest.isfinite(), binary_scale(largest)
            scaled = {}
            for name, gradient in gradients.items():
                shape = (*scale.shape, *(1,) * (gradient.ndim - 2))
                scaled[name] = torch.where(finite.view(shape), gradient / scale.view(shape), 0.0)
            norm = torch.stack([part.flatten(2).square().sum(2) for part in scaled.values()]).sum(0).sqrt()
            yield rows, scaled, torch.where(finite, scale, 0.0), norm

    yield from (scaled_gradients(x, y, own=False) for x, y in batch.shared)
    yield from (scaled_gradients(x, y, own=True) for x, y in batch.own)


# Ghost clipping, for chains of linear layers: no per-record gradient is ever formed.
#
# The gradient of a linear layer for one record is the outer product delta a^T, so its norm is the product of the two
# norms (Goodfellow, arXiv 1510.01799), and the clipped sum is a matrix product:
#
#     |g|^2 = sum over layers of (|a|^2 + 1) |delta|^2        the 1 for the bias
#     sum_i f_i delta_i a_i^T = (f delta)^T A


class Scaled(NamedTuple):
    """The per-record gradients of one linear layer as scale * slope (inputs, ones)^T."""

    name: str  # the prefix of its parameters' names
    inputs: Tensor  # (b, d) a, and ...
    ones: Tensor | None  # (b,) ... the input of the bias, the larger of the two in [1, 2); None without a bias
    slope: Tensor  # (b, h) delta, its largest entry in [1, 2), or 0
    scale: Tensor  # (b,) in float64, since the product of two scales may overflow: 0 if the gradient is 0

    @classmethod
    def of(cls, name: str, inputs: Tensor, slope: Tensor, *, bias: bool) -> Scaled:
        """Of slope = d loss / d outputs (b, h) and inputs (b, d). If not finite, they become 0, the scale infinite.

        The scale of the inputs depends on them alone, so shared records are scaled once.
        """
        most_in, most_out = inputs.abs().amax(-1), slope.abs().amax(-1)  # (b,)
        if bias:
            most_in = most_in.clamp_min(1)
        scale_in, scale_out = binary_scale(most_in), binary_scale(most_out)
        finite_in, finite_out = most_in.isfinite(), most_out.isfinite()
        size = torch.where((most_in == 0) | (most_out == 0), 0.0, scale_in.double() * scale_out.double())
        scale = torch.where(finite_in & finite_out, size, torch.inf)
        inputs = torch.where(finite_in.unsqueeze(-1), inputs / scale_in.unsqueeze(-1), 0.0)
        slope = torch.where(finite_out.unsqueeze(-1), slope / scale_out.unsqueeze(-1), 0.0)
        return cls(name, inputs, torch.where(finite_in, 1 / scale_in, 0.0) if bias else None, slope, scale)

    def square(self) -> Tensor:
        inputs = self.inputs.square().sum(-1)
        return (inputs if self.ones is None else inputs + self.ones.square()) * self.slope.square().sum(-1)


@dataclass(frozen=True)
class Ghost:
    """Ghost clipping for sequential nets of linear layers and layers without parameters."""

    chain: tuple[tuple[str, nn.Module], ...]  # each with the prefix of its parameters' names: "0.", or empty

    @classmethod
    def of(cls, net: Architecture, record: Tensor) -> Ghost | None:
        """None unless the net is such a chain, and every linear layer gets 2-d inputs."""
        others = [part for _, part in net.layers if type(part) is not nn.Linear]
        if net.constants or any(list(part.parameters()) for part in others) or len(others) == len(net.layers):
            return None
        h = record.unsqueeze(0)
        for _, part in net.layers:
            if type(part) is nn.Linear and h.ndim != 2:
                return None
            h = linear(h, part.weight.detach().to(h)) if type(part) is nn.Linear else part(h)
        return cls(net.layers)

    def total(self, net: Architecture, loss: Loss, params: Params, sample: Sample, clip: float) -> Params:

        def of_one_model(
            params: Params, shared: tuple[Part, ...], own: tuple[Part, ...], included: tuple[Tensor, ...]
        ) -> Params:
            sums: dict[str, list[Tensor]] = {name: [] for name in params}
            for (x, y), counted in zip(shared + own, included, strict=True):
                layers = self._backward(loss, params, x, y)
                most, length = _norm_of_layers(layers)
                for layer in layers:
                    # g = scale slope inputs^T and |g| = most length, so  g min(1, C / |g|)  has the factor
                    size = torch.minimum(layer.scale, layer.scale / most * (clip / length))  # (b,)
                    factor = counted * torch.where(size.isfinite(), size, 0.0).to(counted)
                    clipped = (layer.slope * factor.unsqueeze(-1)).mT  # (h, b)
                    sums[f"{layer.name}weight"].append(clipped @ layer.inputs)  # (h, d)
                    if layer.ones is not None:
                        sums[f"{layer.name}bias"].append((clipped * layer.ones).sum(-1))  # (h,)
            return {name: functools.reduce(torch.add, parts) for name, parts in sums.items()}

        stacked: Callable[..., Params] = torch.func.vmap(of_one_model, in_dims=(0, None, 0, 0))
        return stacked(params, sample.batch.shared, sample.batch.own, sample.included)

    def norms(self, net: Architecture, loss: Loss, params: Params, batch: Batch) -> tuple[Tensor, ...]:

        def of_one_model(params: Params, shared: tuple[Part, ...], own: tuple[Part, ...]) -> tuple[Tensor, ...]:
            sizes = [(x, _norm_of_layers(self._backward(loss, params, x, y))) for x, y in shared + own]
            return tuple((most * length).to(x.dtype) for x, (most, length) in sizes)

        stacked: Callable[..., tuple[Tensor, ...]] = torch.func.vmap(of_one_model, in_dims=(0, None, 0))
        return stacked(params, batch.shared, batch.own)

    def _backward(self, loss: Loss, params: Params, x: Tensor, y: Tensor) -> list[Scaled]:
        """Forward and backward pass of one model, down to the outputs of the first linear layer."""
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
                h = part(h)  # no parameters before it
        slope = loss.residual(h, y)  # (b, c)
        layers: list[Scaled] = []
        for number, (name, inputs, back) in reversed(list(enumerate(seen))):
            if back is not None:
                (slope,) = back(slope)
                continue
            layers.append(Scaled.of(name, inputs, slope, bias=f"{name}bias" in params))
            if number > 0:
                slope = (params[f"{name}weight"].mT @ slope.mT).mT  # (b, d)
        return layers


def _norm_of_layers(layers: list[Scaled]) -> tuple[Tensor, Tensor]:
    """(b,) twice, in float64: the largest scale of a layer, inf if g is not finite, and |g| divided by it, never 0."""
    tiny = torch.finfo(torch.float64).tiny
    most = torch.stack([layer.scale for layer in layers]).amax(0).clamp_min(tiny)
    squares = [(layer.scale / most).square() * layer.square().double() for layer in layers]
    return most, torch.stack(squares).sum(0).nan_to_num(nan=1.0).sqrt().clamp_min(tiny)
