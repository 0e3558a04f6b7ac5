"""Gradients of single records.

By definition one backward pass per record, which `torch.func.vmap` batches for any net. For layers in a row, one
backward pass serves all records: with a_i the layer's input and d_i = d loss_i / d output, the gradient of record i is

    d_i a_i^T                 of a linear layer's weights,
    sum_s d_is w_is^T         of a convolution's, w_is the window of a_i at position s,

and d_i, summed over positions, of its bias. vmap computes the second as a grouped convolution, a group for each record,
which is slow. The windows are a view with repeated strides, so that one copy and one batched product serve all records
(`torch.nn.functional.unfold` copies record by record on a GPU).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeGuard

import torch
from torch import Tensor, nn

from lostwax.games import Loss
from lostwax.trainers.stacked import Architecture, Params, Part, code, flattens, plain

WINDOW_NUMBERS = {"cpu": 1 << 23, "cuda": 1 << 27}  # at a time: about a cache, and 1 GiB in double precision
POOLING = (nn.MaxPool2d, nn.AvgPool2d)
DIMENSIONS: dict[type[nn.Module], int] = {nn.Linear: 2, nn.Conv2d: 4}  # of the layer's inputs


def record_gradients(net: Architecture, loss: Loss, params: Params, records: Part, *, own: bool = True) -> Params:
    """(m, b, ...) of m stacked models, for any net; `own` records are (m, b, ...), shared ones (b, ...)."""

    def of_one_record(params: Params, x: Tensor, y: Tensor) -> Params:
        outputs, pull, *_ = torch.func.vjp(lambda params: net(params, x.unsqueeze(0)), params)
        (gradient,) = pull(loss.residual(outputs, y.unsqueeze(0)))
        return dict(gradient)

    of_one_model = torch.func.vmap(of_one_record, in_dims=(None, 0, 0))
    side = 0 if own else None
    gradients: Params = torch.func.vmap(of_one_model, in_dims=(0, side, side))(params, *records)
    return gradients


def layered_gradients(net: Architecture, loss: Loss, params: Params, records: Part) -> Params | None:
    """(b, ...) of one model, its params (1, ...), on records (b, ...); None unless it is layers in a row."""
    layers, (x, y) = _layers(net), records
    if layers is None:
        return None
    values = {**net.constants, **{name: value[0] for name, value in params.items()}}
    passed: list[tuple[_Layer, Tensor, Callable[[Tensor], tuple[Tensor]]]] = []  # layer, its input, its transpose
    for layer in layers:
        if layer.module is not None and x.ndim != DIMENSIONS[type(layer.module)]:
            return None
        before, call = x, partial(layer.call, values)
        x, pull, *_ = torch.func.vjp(call, before)
        passed.append((layer, before, pull))
    slope, gradients = loss.residual(x, y), Params()  # d loss / d outputs of the last layer, and then of those below
    lowest = min(number for number, layer in enumerate(layers) if layer.module is not None)
    for number, (layer, before, pull) in reversed(list(enumerate(passed))):
        gradients |= layer.gradients(before, slope)
        if number == lowest:
            break
        (slope,) = pull(slope)
    return {name: gradients[name] for name in params}


class _Layer(NamedTuple):
    name: str
    function: nn.Module
    module: nn.Linear | nn.Conv2d | None  # the same, if it has parameters

    def call(self, values: Params, x: Tensor) -> Tensor:
        """Its outputs, with its parameters from the net's."""
        start = f"{self.name}."
        layer_values = {name.removeprefix(start): value for name, value in values.items() if name.startswith(start)}
        outputs: Tensor = torch.func.functional_call(self.function, layer_values, (x,))
        return outputs

    def gradients(self, before: Tensor, slope: Tensor) -> Params:
        """(b, ...) of its parameters, from its inputs and d loss / d outputs."""
        if self.module is None:
            return {}
        if isinstance(self.module, nn.Conv2d):
            slope = slope.flatten(2)  # (b, outputs, positions)
            weight, bias = _window_sums(self.module, before, slope), slope.sum(2)
        else:
            weight, bias = slope.unsqueeze(2) * before.unsqueeze(1), slope
        return {f"{self.name}.weight": weight, f"{self.name}.bias": bias}


def _window_sums(module: nn.Conv2d, before: Tensor, slope: Tensor) -> Tensor:
    """(b, outputs, channels, rows, columns) sum over positions of slope (b, outputs, positions) times window."""
    taps, numbers = module.weight[0].numel(), WINDOW_NUMBERS["cpu" if before.device.type == "cpu" else "cuda"]
    records_at_a_time = max(1, numbers // (taps * slope.shape[2]))  # records at a time
    parts = []
    for a, d in zip(torch.split(before, records_at_a_time), torch.split(slope, records_at_a_time), strict=True):
        windows = _windows(module, a).reshape(len(a), taps, -1)  # copied
        parts.append(d @ windows.mT)
    return torch.cat(parts).view(len(slope), *module.weight.shape)


def _windows(module: nn.Conv2d, x: Tensor) -> Tensor:
    """(b, channels, rows, columns, positions down, positions across), a view of the padded inputs."""
    down, across = (int(pad) for pad in module.padding)
    x = nn.functional.pad(x, (across, across, down, down)).contiguous()
    sizes, strides = list(x.shape[:2]), list(x.stride()[:2])
    steps = zip(x.shape[2:], x.stride()[2:], module.kernel_size, module.dilation, module.stride, strict=True)
    places = [((size - dilation * (taps - 1) - 1) // step + 1, far * step) for size, far, taps, dilation, step in steps]
    sizes += [*module.kernel_size, *(count for count, _ in places)]
    strides += [far * dilation for far, dilation in zip(x.stride()[2:], module.dilation, strict=True)]
    return x.as_strided(sizes, [*strides, *(far for _, far in places)])


def _layers(net: Architecture) -> list[_Layer] | None:
    """The net's layers; None unless each maps records one by one, has a known gradient and occurs once."""
    every = [name for name, _ in net.net.named_parameters(remove_duplicate=False)]
    if not plain(net.net) or len(every) > len(list(net.net.named_parameters())):  # some are tied
        return None
    layers = []
    for name, part in net.net._modules.items():
        if part is None:
            return None
        if _supported(part):
            layers.append(_Layer(name, part, part))
        elif code(part) is not None or flattens(part) or type(part) in POOLING:
            layers.append(_Layer(name, part, None))
        else:
            return None
    return layers if any(layer.module is not None for layer in layers) else None


def _supported(part: nn.Module) -> TypeGuard[nn.Linear | nn.Conv2d]:
    """Whether it is a linear layer, or a convolution over zeros and windows."""
    if type(part) is nn.Linear:
        return True
    return (
        type(part) is nn.Conv2d
        and part.groups == 1
        and part.padding_mode == "zeros"
        and not isinstance(part.padding, str)
    )
