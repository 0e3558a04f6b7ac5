"""Fused gradients of stacked nets with one hidden layer; equal to `stacked.gradient` to rounding."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lostwax.games import Loss
from lostwax.losses import CrossEntropy
from lostwax.trainers.stacked import Architecture, Batch, Params, Part, code, flattens

MAX_UNROLLED = 128  # hidden units times classes whose sums fit the registers of a thread
WARP = 32  # threads, one record each
MAX_TILE_SIDE = 128  # hidden units, or classes, per tile
TILE_NUMBERS = 2048  # of the hidden layer, per tile
RECORDS_PER_PROGRAM = 2_560  # of tangents


@dataclass(frozen=True)
class FusedMLP:
    """The gradient of Linear, activation, Linear under cross-entropy."""

    first: str  # the prefixes of the two layers' parameters: "1."
    last: str
    activation: int  # as the kernels number them

    @classmethod
    def of(cls, net: Architecture, loss: Loss, dtype: torch.dtype) -> FusedMLP | None:
        """None unless the net and loss are supported, in float32."""
        if type(loss) is not CrossEntropy or dtype != torch.float32 or net.constants:
            return None
        layers = net.layers[1:] if net.layers and flattens(net.layers[0][1]) else net.layers
        if len(layers) != 3:
            return None
        (first, hidden), (_, activation), (last, out) = layers
        if type(hidden) is not nn.Linear or type(out) is not nn.Linear or hidden.bias is None or out.bias is None:
            return None
        number = code(activation)
        if number is None or max(hidden.out_features, out.out_features) > MAX_TILE_SIDE:
            return None
        return cls(first, last, number)

    def __call__(self, net: Architecture, loss: Loss, params: Params, batch: Batch) -> Params:
        weight, names = params[f"{self.first}weight"], [f"{self.last}weight", f"{self.first}bias", f"{self.last}bias"]
        small = [params[name].contiguous() for name in names]
        m, h, d = weight.shape
        nobody, nothing = weight.new_empty(m, 0, d), torch.empty(m, 0, dtype=torch.long, device=weight.device)
        ((x, y),) = batch.shared or ((nobody[0], nothing[0]),)
        ((own_x, own_y),) = batch.own or ((nobody, nothing),)
        x, y = x.flatten(1), y.contiguous()  # (n, d), (n,)
        own_x, own_y = own_x.flatten(2), own_y.contiguous()  # (m, k, d), (m, k)
        hidden = (weight.reshape(m * h, d) @ x.mT).view(m, h, -1)  # the first large product, (m, h, n)
        own_hidden = torch.bmm(weight, own_x.mT)  # (m, h, k)
        slopes = [torch.empty_like(value) for value in small]
        with torch.cuda.device(weight.get_device()):  # where Triton launches
            self._middle((hidden, y), (own_hidden, own_y), small, slopes, batch.size)
        to_weight = torch.mm(hidden.view(m * h, -1), x).view(m, h, d)  # the second; hidden now holds its gradient
        if own_x.shape[1]:
            to_weight.baddbmm_(own_hidden, own_x)
        gradient = {f"{self.first}weight": to_weight, **dict(zip(names, slopes, strict=True))}
        return {name: gradient[name] for name in params}

    def _middle(self, shared: Part, own: Part, small: list[Tensor], slopes: list[Tensor], records: int) -> None:
        """Replace pre-activations by their gradients, in place, and compute the three small gradients."""
        from lostwax.trainers.fused import kernels as kernel

        (hidden, y), (own_hidden, own_y) = shared, own
        (m, h, n), k, c = hidden.shape, own_hidden.shape[2], small[0].shape[1]
        arrays = (hidden, y, n, own_hidden, own_y, k, *small, *slopes)
        if h * c <= MAX_UNROLLED:
            sizes = {"ACTIVATION": self.activation, "H": h, "C": c, "BLOCK": WARP}
            kernel.middle_unrolled[(m,)](*arrays, 1 / records, **sizes, num_warps=1)
            return
        units, classes = (max(16, 1 << (size - 1).bit_length()) for size in (h, c))
        kernel.middle[(m,)](
            *(*arrays, h, c, 1 / records),
            ACTIVATION=self.activation,
            H=units,
            C=classes,
            BLOCK=max(16, TILE_NUMBERS // max(units, classes)),
            PRECISION="tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32",
        )


@dataclass(frozen=True)
class MLPTangent:
    """The gradient of Linear, activation, Linear under cross-entropy, and its tangents along many directions.

    Equal to `torch.func.jvp` of `stacked.gradient`, to rounding, for hidden units times classes up to MAX_UNROLLED.
    """

    names: FusedMLP
    activation: nn.Module

    @classmethod
    def of(cls, net: Architecture, loss: Loss, dtype: torch.dtype) -> MLPTangent | None:
        """None unless the net and loss are supported, in float32."""
        names = FusedMLP.of(net, loss, dtype)
        if names is None:
            return None
        sums = net.net.get_parameter(f"{names.last}weight").numel()  # hidden units times classes
        return None if sums > MAX_UNROLLED else cls(names, list(net.net.children())[-2])

    def __call__(self, params: Params, moved: Params, batch: Batch, moved_batch: Batch) -> tuple[Params, Params]:
        """The gradient (1, ...) of one model, and its tangents (r, ...).

        `moved` (r, ...) are tangents of the parameters (1, ...), and the own records of `moved_batch` (r, k, d) those
        of the model's own records.
        """
        w, b, v, c = (params[name][0] for name in self._parameters)
        dw, db, dv, dc = (moved[name].contiguous() for name in self._parameters)
        parts = [(x.flatten(1), y) for x, y in batch.shared] + [(x[0].flatten(1), y[0]) for x, y in batch.own]
        x, y = (torch.cat(side) for side in zip(*parts, strict=True))  # (n, d), (n,): all of them, its own last
        x, first = x.to(w), sum(len(y) for _, y in batch.shared)
        moved_x = moved_batch.own[0][0].flatten(2) if batch.own else w.new_zeros(len(dw), 0, w.shape[1])  # (r, k, d)

        active = self.activation(torch.addmm(b.unsqueeze(1), w, x.mT))  # (h, n)
        softmax = torch.addmm(c.unsqueeze(1), v, active).softmax(0)  # (c, n)
        residual = softmax.scatter_add(0, y.unsqueeze(0), softmax.new_full((1, len(y)), -1.0)) / batch.size
        slope = torch.func.vjp(self.activation, torch.addmm(b.unsqueeze(1), w, x.mT))[1](v.mT @ residual)[0]  # (h, n)
        gradient = (slope @ x, slope.sum(1), residual @ active.mT, residual.sum(1))

        r, h, d = dw.shape
        hidden = (dw.view(r * h, d) @ x.mT).view(r, h, -1)  # dW x, the first large product
        hidden[:, :, first:] += (moved_x @ w.mT).mT  # and W dx
        small = self._middle(hidden, [active, softmax, y, v], [db, dv, dc], 1 / batch.size)
        to_first = (hidden.view(r * h, -1) @ x).view(r, h, d)  # the second; hidden now holds the slope's tangent
        to_first += slope[:, first:] @ moved_x
        gradients = {name: value.unsqueeze(0) for name, value in zip(self._parameters, gradient, strict=True)}
        return gradients, dict(zip(self._parameters, (to_first, *small), strict=True))

    @property
    def _parameters(self) -> tuple[str, ...]:
        return tuple(f"{layer}{kind}" for layer in (self.names.first, self.names.last) for kind in ("weight", "bias"))

    def _middle(self, hidden: Tensor, shared: list[Tensor], moved: list[Tensor], scale: float) -> list[Tensor]:
        """Replace tangents of pre-activations by those of their gradients, in place; returns the three small ones.

        `shared` are the activations, the softmax, the labels and the last weight; `moved` the small tangents.
        """
        from lostwax.trainers.fused.kernels import middle_tangent

        active, softmax, y, weight = (value.contiguous() for value in shared)
        (r, h, n), c = hidden.shape, len(softmax)
        shares = max(1, -(-n // RECORDS_PER_PROGRAM))
        sums = [hidden.new_empty(r, shares, *shape) for shape in ((h,), (c, h), (c,))]
        with torch.cuda.device(hidden.get_device()):  # where Triton launches
            middle_tangent[(r, shares)](
                *(hidden, active, softmax, y, n, RECORDS_PER_PROGRAM, weight, *moved, *sums, scale),
                **{"ACTIVATION": self.names.activation, "H": h, "C": c, "BLOCK": WARP, "num_warps": 1},
            )
        return [part.sum(1) for part in sums]
