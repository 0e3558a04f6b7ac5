"""The gradient of stacked nets with one hidden layer, near the speed of their two large products.

The same numbers as `stacked.gradient`, to rounding, for the victims that papers train by the ten thousand.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lostwax.losses import CrossEntropy
from lostwax.trainers.fused.layers import code, flattens, plain
from lostwax.trainers.stacked import Architecture, Batch, Params
from lostwax.types import Loss

UNROLLED = 128  # hidden units times classes: so many sums fit the registers of a thread
WARP = 32  # threads, each with a record
LARGEST = 128  # hidden units, or classes, in a tile
TILE = 2048  # numbers of the hidden layer in a tile


@dataclass(frozen=True)
class FusedMLP:
    """Linear, activation, Linear under cross-entropy, as a stacked gradient."""

    first: str  # names of the two layers
    last: str
    activation: int  # as the kernels number them

    @classmethod
    def of(cls, net: Architecture, loss: Loss, dtype: torch.dtype) -> FusedMLP | None:
        """For nets it knows, in float32; None for all others."""
        if type(loss) is not CrossEntropy or dtype != torch.float32 or not plain(net.net):
            return None
        layers = list(net.net.named_children())
        layers = layers[1:] if layers and flattens(layers[0][1]) else layers
        if len(layers) != 3 or net.constants:
            return None
        (first, one), (_, activation), (last, two) = layers
        if type(one) is not nn.Linear or type(two) is not nn.Linear or one.bias is None or two.bias is None:
            return None
        number = code(activation)
        if number is None or max(one.out_features, two.out_features) > LARGEST:
            return None
        return cls(first, last, number)

    def __call__(self, net: Architecture, loss: Loss, params: Params, batch: Batch) -> Params:
        """The gradient of each model's mean loss over its batch, (m, ...)."""
        weight, bias = params[f"{self.first}.weight"], params[f"{self.first}.bias"]
        out_weight, out_bias = params[f"{self.last}.weight"], params[f"{self.last}.bias"]
        m, h, d = weight.shape
        x, y = _shared(batch, weight)  # (n, d), (n,)
        own_x, own_y = _own(batch, weight)  # (m, k, d), (m, k)
        hidden = (weight.reshape(m * h, d) @ x.mT).view(m, h, -1)  # the first large product, (m, h, n)
        own_hidden = torch.bmm(weight, own_x.mT)  # (m, h, k)
        slopes = [
            torch.empty_like(value, memory_format=torch.contiguous_format) for value in (out_weight, bias, out_bias)
        ]
        with torch.cuda.device(weight.get_device()):  # where Triton launches
            self._middle(hidden, y, own_hidden, own_y, out_weight, bias, out_bias, slopes, batch.size)
        to_weight = torch.mm(hidden.view(m * h, -1), x).view(m, h, d)  # the second; hidden is d loss / d itself now
        if own_x.shape[1]:
            to_weight.baddbmm_(own_hidden, own_x)
        names = (f"{self.last}.weight", f"{self.first}.bias", f"{self.last}.bias")
        gradient = {f"{self.first}.weight": to_weight, **dict(zip(names, slopes, strict=True))}
        return {name: gradient[name] for name in params}

    def _middle(
        self,
        hidden: Tensor,
        y: Tensor,
        own_hidden: Tensor,
        own_y: Tensor,
        out_weight: Tensor,
        bias: Tensor,
        out_bias: Tensor,
        slopes: list[Tensor],
        records: int,
    ) -> None:
        """From pre-activations to their gradients, in place, and to the three small gradients."""
        from lostwax.trainers.fused import mlp_kernel as kernel

        (m, h, n), k, c = hidden.shape, own_hidden.shape[2], out_weight.shape[1]
        numbers = [value.contiguous() for value in (out_weight, bias, out_bias)]
        arrays = (hidden, y, n, own_hidden, own_y, k, *numbers, *slopes)
        if h * c <= UNROLLED:
            kernel.middle_unrolled[(m,)](
                *arrays, 1 / records, ACTIVATION=self.activation, H=h, C=c, BLOCK=WARP, num_warps=1
            )
            return
        units, classes = (max(16, 1 << (size - 1).bit_length()) for size in (h, c))
        kernel.middle[(m,)](
            *arrays,
            h,
            c,
            1 / records,
            ACTIVATION=self.activation,
            H=units,
            C=classes,
            BLOCK=max(16, TILE // max(units, classes)),
            PRECISION="tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32",
        )


def _shared(batch: Batch, like: Tensor) -> tuple[Tensor, Tensor]:
    if not batch.shared:
        return like.new_empty(0, like.shape[-1]), torch.empty(0, dtype=torch.long, device=like.device)
    ((x, y),) = batch.shared
    return x.flatten(1), y.contiguous()


def _own(batch: Batch, like: Tensor) -> tuple[Tensor, Tensor]:
    if not batch.own:
        return like.new_empty(len(like), 0, like.shape[-1]), torch.empty(
            len(like), 0, dtype=torch.long, device=like.device
        )
    ((x, y),) = batch.own
    return x.flatten(2), y.contiguous()
