"""Heads on fewer records than features (Maciazek and Allison 2025), trained exactly in dual coordinates.

The gradient of a linear layer is a linear combination of its inputs, so full-batch descent stays in the span

    W_t = s_t W_0 + A_t X / n       b_t = s_t b_0 + A_t 1 / n       (X a model's n records, A_t n numbers per output)

With the Gram matrix X X^T computed once, a step costs n^2 products per output instead of 2 n d.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.games import Cohort, Loss
from lostwax.losses import CrossEntropy
from lostwax.trainers.stacked import Architecture, Params, flattens

SCALE, ROWS = "scale of the start", "rows of the records"  # s_t and A_t; cannot be names of module parameters


class Head(NamedTuple):
    """A net that begins with a linear layer."""

    weight: str  # the names of the layer's parameters
    bias: str | None
    later: Architecture | None  # the layers after it; None for a linear head

    @classmethod
    def of(cls, net: Architecture, cohort: Cohort) -> Head | None:
        """None unless the whole net is trained, without shared records, on at most as many records as features."""
        layers, inputs = net.layers, cohort.own.inputs  # (m, n, ...)
        if len({id(layer) for _, layer in layers}) < len(layers):
            return None
        if layers and flattens(layers[0][1]):
            layers, inputs = layers[1:], inputs.flatten(2)
        if not layers or net.constants or len(cohort.shared):
            return None
        (prefix, first), *behind = layers
        if type(first) is not nn.Linear or inputs.ndim != 3 or inputs.shape[1] > first.in_features:
            return None
        later = nn.Sequential(OrderedDict((name.removesuffix("."), layer) for name, layer in behind))
        bias = None if first.bias is None else f"{prefix}bias"
        return cls(f"{prefix}weight", bias, Architecture(later, {}) if behind else None)

    def dual(self, start: Params, cohort: Cohort) -> Dual:
        """The heads of a cohort, in dual coordinates."""
        x = cohort.own.inputs.flatten(2)
        gram, outputs = x @ x.mT, start[self.weight] @ x.mT
        if self.bias is not None:
            gram, outputs = gram + 1, outputs + start[self.bias].unsqueeze(-1)
        return Dual(self, start, x, cohort.own.y, gram, outputs)


class Dual(NamedTuple):
    """m heads in dual coordinates."""

    head: Head
    start: Params  # (m, ...) W_0, b_0 and the parameters of the later layers
    x: Tensor  # (m, n, d)
    y: Tensor  # (m, n, ...)
    gram: Tensor  # (m, n, n) inner products of the records; plus 1 with a bias, the weight of a constant feature
    outputs: Tensor  # (m, h, n) of the first layer before training

    @property
    def origin(self) -> Params:
        """W_0 = 1 W_0 + 0 X, and the other layers unchanged. The scale is on the CPU, to avoid kernel launches."""
        other_layers = {
            name: value for name, value in self.start.items() if name not in (self.head.weight, self.head.bias)
        }
        return {SCALE: torch.ones((), dtype=torch.float64), ROWS: torch.zeros_like(self.outputs), **other_layers}

    def gradient(self, loss: Loss, at: Params) -> Params:
        """The gradient of the mean loss, sum_i g_i x_i / n with g = d loss / d outputs: 0 for s, and g for A."""
        out = self._combined(at, self.outputs, self.gram)  # s W_0 X^T + A X X^T / n, (m, h, n)
        if self.head.later is None:
            together = out.transpose(0, 1).flatten(1)  # (h, m n): the loss treats all records alike
            residual = loss.residual(together.mT, self.y.flatten(0, 1)).mT
            slopes, to_out = Params(), residual.reshape(-1, *self.y.shape[:2]).transpose(0, 1)
        else:
            slopes, to_out = _pulled_back(self.head.later, loss, _behind(at), out, self.y)
        behind = {name: slope / self.records for name, slope in slopes.items()}
        return {SCALE: torch.zeros((), dtype=torch.float64), ROWS: to_out, **behind}

    def params(self, at: Params) -> Params:
        weight, bias = self.head.weight, self.head.bias
        trained = {**self.start, **_behind(at)}
        trained[weight] = self._combined(at, self.start[weight], self.x)  # (m, h, d)
        if bias is not None:
            trained[bias] = at[SCALE] * self.start[bias] + at[ROWS].mean(-1)  # (m, h)
        return trained

    @property
    def records(self) -> int:
        return int(self.gram.shape[-1])

    def _combined(self, at: Params, start: Tensor, records: Tensor) -> Tensor:
        """s start + A records / n. If training diverges, s overflows to infinity, as it would step by step."""
        scale = float(at[SCALE].to(start.dtype))
        return torch.baddbmm(start, at[ROWS], records, beta=scale, alpha=1 / self.records)


def _behind(at: Params) -> Params:
    """The parameters of the layers after the first."""
    return {name: value for name, value in at.items() if name not in (SCALE, ROWS)}


def _pulled_back(later: Architecture, loss: Loss, params: Params, out: Tensor, y: Tensor) -> tuple[Params, Tensor]:
    """Backpropagate through the later layers: to their parameters (m, ...), and to the first layer's outputs."""

    def of_one_model(params: Params, out: Tensor, y: Tensor) -> tuple[Params, Tensor]:
        outputs, pull, *_ = torch.func.vjp(lambda params, out: later(params, out.mT), params, out)
        to_params, to_out = pull(loss.residual(outputs, y))
        return dict(to_params), to_out

    stacked: Callable[..., tuple[Params, Tensor]] = torch.func.vmap(of_one_model)
    return stacked(params, out, y)  # (m, ...), (m, h, n)


# On a GPU one kernel does all steps of a linear head: the launches of single steps take longer than their arithmetic.
MAX_REGISTER_CELLS = 1024  # records times classes, each rounded up, that fit the registers of a program
CELLS_PER_WARP = 128  # none is spilled to memory on Hopper


def has_kernel(dual: Dual, loss: Loss) -> bool:
    """Whether a kernel applies: on a GPU with Triton, linear heads, cross-entropy, float32."""
    if dual.head.later is not None or type(loss) is not CrossEntropy or dual.gram.dtype != torch.float32:
        return False
    return math.prod(_tile(dual)) <= MAX_REGISTER_CELLS and dual.gram.is_cuda and find_spec("triton") is not None


def _tile(dual: Dual) -> tuple[int, int]:
    """The numbers of records and classes, rounded up to valid tile sizes."""
    _, c, n = dual.outputs.shape
    return max(16, 1 << (n - 1).bit_length()), max(16, 1 << (c - 1).bit_length())


def descended(dual: Dual, rates: Sequence[float], *, momentum: float, weight_decay: float) -> Params:
    """The coordinates after momentum descent at these rates: as `GD.update`, to rounding."""
    from lostwax.trainers.fused.kernels import descend

    m, c, n = dual.outputs.shape
    scale, speed, scales = 1.0, 0.0, []
    for rate in rates:  # the steps of s, whose gradient is 0
        scales.append(scale)
        speed = momentum * speed + weight_decay * scale
        scale -= rate * speed
    plan = torch.tensor([rates, scales], dtype=torch.float32).to(dual.gram.device, non_blocking=True)  # (2, t)
    rows = torch.empty_like(dual.outputs, memory_format=torch.contiguous_format)
    arrays = (rows, dual.outputs.contiguous(), dual.gram.contiguous(), dual.y.contiguous(), *plan.unbind())
    records, classes = _tile(dual)
    warps = records * classes // CELLS_PER_WARP
    with torch.cuda.device(rows.get_device()):  # where Triton launches
        descend[(m,)](*arrays, n, c, len(rates), momentum, weight_decay, N=records, C=classes, num_warps=warps)
    return {SCALE: torch.tensor(scale, dtype=torch.float64), ROWS: rows}
