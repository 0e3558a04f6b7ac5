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

import torch
from torch import Tensor, nn

from lostwax.games import Loss
from lostwax.trainers.stacked import Architecture, Params, Part, code, device_kind, flattens, is_plain_convolution

WINDOW_NUMBERS = {"cpu": 1 << 23, "cuda": 1 << 27}  # at a time: about a cache, and 1 GiB in double precision
POOLING = (nn.MaxPool2d, nn.AvgPool2d)
DIMENSIONS: dict[type[nn.Module], int] = {nn.Linear: 2, nn.Conv2d: 4}  # of the inputs of layers with parameters


def record_gradient(net: Architecture, loss: Loss, params: Params, x: Tensor, y: Tensor) -> Params:
    """(...) of one model and one record, for any net."""
    outputs, pull, *_ = torch.func.vjp(lambda params: net(params, x.unsqueeze(0)), params)
    (gradient,) = pull(loss.residual(outputs, y.unsqueeze(0)))
    return dict(gradient)


def record_gradients(net: Architecture, loss: Loss, params: Params, records: Part, *, own: bool = True) -> Params:
    """(m, b, ...) of m stacked models, for any net; `own` records are (m, b, ...), shared ones (b, ...)."""

    def of_one_record(params: Params, x: Tensor, y: Tensor) -> Params:
        return record_gradient(net, loss, params, x, y)

    of_one_model = torch.func.vmap(of_one_record, in_dims=(None, 0, 0))
    side = 0 if own else None
    gradients: Params = torch.func.vmap(of_one_model, in_dims=(0, side, side))(params, *records)
    return gradients


def layered_gradients(net: Architecture, loss: Loss, params: Params, records: Part) -> Params | None:
    """(b, ...) of one model, its params (1, ...), on records (b, ...); None unless it is layers in a row."""
    layers, (x, y) = net.layers, records
    if type(net.net) is not nn.Sequential or not all(_is_supported(layer) for _, layer in layers):
        return None
    values = {**net.constants, **{name: value[0] for name, value in params.items()}}
    passed: list[tuple[str, nn.Module, Tensor, Callable[[Tensor], tuple[Tensor]]]] = []  # with inputs and transposes
    for prefix, layer in layers:
        if x.ndim != DIMENSIONS.get(type(layer), x.ndim):
            return None
        inside = {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}

        def call(x: Tensor, layer: nn.Module = layer, inside: Params = inside) -> Tensor:
            outputs: Tensor = torch.func.functional_call(layer, inside, (x,))
            return outputs

        before = x
        x, pull, *_ = torch.func.vjp(call, before)
        passed.append((prefix, layer, before, pull))
    lowest = next((number for number, (_, layer) in enumerate(layers) if type(layer) in DIMENSIONS), None)
    if lowest is None:
        return None
    slope, gradients = loss.residual(x, y), Params()  # d loss / d outputs of the last layer, and then of those below
    for number, (prefix, layer, before, pull) in reversed(list(enumerate(passed))):
        if type(layer) is nn.Conv2d:
            by_position = slope.flatten(2)  # (b, outputs, positions)
            gradients[f"{prefix}weight"] = _window_sums(layer, before, by_position)
            gradients[f"{prefix}bias"] = by_position.sum(2)
        elif type(layer) is nn.Linear:
            gradients[f"{prefix}weight"] = slope.unsqueeze(2) * before.unsqueeze(1)
            gradients[f"{prefix}bias"] = slope
        if number == lowest:
            break
        (slope,) = pull(slope)
    return {name: gradients[name] for name in params}


def _is_supported(layer: nn.Module) -> bool:
    """Whether it maps records one by one and has a known gradient."""
    known = code(layer) is not None or flattens(layer) or type(layer) in (nn.Linear, *POOLING)
    return known or is_plain_convolution(layer)


def _window_sums(module: nn.Conv2d, before: Tensor, slope: Tensor) -> Tensor:
    """(b, outputs, channels, rows, columns) sum over positions of slope (b, outputs, positions) times window."""
    taps, numbers = module.weight[0].numel(), WINDOW_NUMBERS[device_kind(before)]
    some = max(1, numbers // (taps * slope.shape[2]))  # records at a time
    parts = []
    for a, d in zip(torch.split(before, some), torch.split(slope, some), strict=True):
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
