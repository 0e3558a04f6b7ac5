"""The gradient of a net with one small hidden layer, and its tangents along many directions.

What `torch.func.jvp` of `stacked.gradient` gives, to rounding, near the speed of its two large products.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lostwax.trainers.fused.mlp import UNROLLED, WARP, FusedMLP
from lostwax.trainers.stacked import Architecture, Batch, Params
from lostwax.types import Loss

SHARE = 2_560  # records that a program goes through


@dataclass(frozen=True)
class MLPTangent:
    """Linear, activation, Linear under cross-entropy; hidden units times classes up to UNROLLED."""

    names: FusedMLP
    activation: nn.Module

    @classmethod
    def of(cls, net: Architecture, loss: Loss, dtype: torch.dtype) -> MLPTangent | None:
        """For nets it knows, in float32; None for all others."""
        names = FusedMLP.of(net, loss, dtype)
        if names is None:
            return None
        sums = net.net.get_parameter(f"{names.last}.weight").numel()  # hidden units times classes
        return None if sums > UNROLLED else cls(names, list(net.net.children())[-2])

    def __call__(self, params: Params, moved: Params, batch: Batch, moved_batch: Batch) -> tuple[Params, Params]:
        """The gradient (1, ...) of one model, and its tangents (r, ...).

        `moved` (r, ...) are tangents of the parameters (1, ...), and the own records of `moved_batch` (r, k, d) those
        of the model's own records.
        """
        w, b, v, c = (params[name][0] for name in self._parameters)
        dw, db, dv, dc = (moved[name].contiguous() for name in self._parameters)
        x, y, own = _records(batch, w)  # (n, d), (n,), k: all of them, its own last
        first = len(x) - own
        moved_x = moved_batch.own[0][0].flatten(2) if own else w.new_zeros(len(dw), 0, w.shape[1])  # (r, k, d)

        active = self.activation(torch.addmm(b.unsqueeze(1), w, x.mT))  # (h, n)
        softmax = torch.addmm(c.unsqueeze(1), v, active).softmax(0)  # (c, n)
        residual = softmax.scatter_add(0, y.unsqueeze(0), softmax.new_full((1, len(y)), -1.0)) / batch.size
        slope = torch.func.vjp(self.activation, torch.addmm(b.unsqueeze(1), w, x.mT))[1](v.mT @ residual)[0]  # (h, n)
        gradient = (slope @ x, slope.sum(1), residual @ active.mT, residual.sum(1))

        r, h, d = dw.shape
        hidden = (dw.view(r * h, d) @ x.mT).view(r, h, -1)  # dW x, the first large product
        hidden[:, :, first:] += (moved_x @ w.mT).mT  # and W dx
        to_bias, to_weight, to_out = self._middle(hidden, active, softmax, y, v, db, dv, dc, 1 / batch.size)
        to_first = (hidden.view(r * h, -1) @ x).view(r, h, d)  # the second; hidden is the slope's tangent now
        to_first += slope[:, first:] @ moved_x
        tangents = (to_first, to_bias, to_weight, to_out)
        return (
            {name: value.unsqueeze(0) for name, value in zip(self._parameters, gradient, strict=True)},
            dict(zip(self._parameters, tangents, strict=True)),
        )

    @property
    def _parameters(self) -> tuple[str, ...]:
        return tuple(f"{layer}.{kind}" for layer in (self.names.first, self.names.last) for kind in ("weight", "bias"))

    def _middle(
        self,
        hidden: Tensor,
        active: Tensor,
        softmax: Tensor,
        y: Tensor,
        weight: Tensor,
        moved_bias: Tensor,
        moved_weight: Tensor,
        moved_out_bias: Tensor,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """From tangents of pre-activations to those of their gradients, in place, and to the three small ones."""
        from lostwax.trainers.fused.tangent_kernel import middle_tangent

        (r, h, n), c = hidden.shape, len(softmax)
        shares = max(1, -(-n // SHARE))
        sums = [hidden.new_empty(r, shares, *shape) for shape in ((h,), (c, h), (c,))]
        with torch.cuda.device(hidden.get_device()):  # where Triton launches
            middle_tangent[(r, shares)](
                *(hidden, active.contiguous(), softmax.contiguous(), y, n, SHARE),
                *(weight.contiguous(), moved_bias, moved_weight, moved_out_bias, *sums, scale),
                ACTIVATION=self.names.activation,
                H=h,
                C=c,
                BLOCK=WARP,
                num_warps=1,
            )
        to_bias, to_weight, to_out = (part.sum(1) for part in sums)
        return to_bias, to_weight, to_out


def _records(batch: Batch, like: Tensor) -> tuple[Tensor, Tensor, int]:
    """All records of one model, its own last, and how many these are."""
    shared = [(x.flatten(1), y) for x, y in batch.shared]
    own = [(x[0].flatten(1), y[0]) for x, y in batch.own]
    x, y = (torch.cat(part) for part in zip(*shared, *own, strict=True))
    return x.to(like), y, sum(len(labels) for _, labels in own)
