"""The gradient of stacked convolutional nets, with nothing between their products.

The same numbers as `stacked.gradient`, to rounding, for the image victims that papers train by the thousand. Each layer
is one product over tiles gathered from the layer below (`conv_kernel.py`), with bias and activation on the way out.
Its activations are all that is kept, and on the way back the gradient is written over them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

import torch
from torch import Tensor, nn

from lostwax.losses import CrossEntropy
from lostwax.trainers.fused.correlation import Correlation
from lostwax.trainers.fused.layers import IDENTITY, code, flattens, plain
from lostwax.trainers.stacked import Architecture, Batch, Params
from lostwax.types import Loss

VECTOR = 4  # numbers that a GPU loads at once: records are filled up to a multiple of so many channels


class Layer(NamedTuple):
    """A convolution or a linear layer, and the activation after it."""

    name: str
    module: nn.Conv2d | nn.Linear
    activation: nn.Module  # nn.Identity after the last


class Done(NamedTuple):
    """A layer on the way forward: what the way back needs of it."""

    layer: Layer
    sizes: Correlation
    sources: list[Tensor]  # (m, n, height, width, channels) what it saw: shared and own records, or the layer below
    kernel: Tensor  # (m, outputs, rows, columns, channels)


@dataclass(frozen=True)
class FusedCNN:
    """Convolutions, then linear layers, under cross-entropy, as a stacked gradient."""

    layers: tuple[Layer, ...]

    @classmethod
    def of(cls, net: Architecture, loss: Loss, dtype: torch.dtype) -> FusedCNN | None:
        """For nets it knows, in float32; None for all others."""
        if type(loss) is not CrossEntropy or dtype != torch.float32 or not plain(net.net):
            return None
        parts = [(name, part) for name, part in net.net.named_modules(remove_duplicate=False) if name]
        at = next((number for number, (_, part) in enumerate(parts) if flattens(part)), 0)
        chain = [*parts[:at], *parts[at + 1 :], ("", nn.Identity())]  # layer, activation, layer, activation, ...
        pairs = list(zip(chain[::2], chain[1::2], strict=False))
        layers = [Layer(name, module, end) for (name, module), (_, end) in pairs if _simple(module)]
        kinds = [nn.Conv2d] * (at // 2) + [nn.Linear] * (len(pairs) - at // 2)
        if at == 0 or len(chain) % 2 or [type(layer.module) for layer in layers] != kinds or net.constants:
            return None
        tied = len({id(layer.module) for layer in layers}) < len(layers)
        return None if tied or any(code(layer.activation) is None for layer in layers[:-1]) else cls(tuple(layers))

    def __call__(self, net: Architecture, loss: Loss, params: Params, batch: Batch) -> Params:
        """The gradient of each model's mean loss over its batch, (m, ...)."""
        sources, y = _records(batch, len(next(iter(params.values()))))
        way: list[Done] = []
        for layer in self.layers:
            done, out = _forward(layer, sources, params)
            way.append(done)
            sources = [out]
        residual = loss.residual(out.flatten(2), y) / batch.size  # (m, n, classes)
        slope = residual.contiguous()  # d loss / d pre-activations, of the last layer and then of those below
        gradient: Params = {}
        for done, below in zip(reversed(way), [*reversed(way[:-1]), None], strict=True):
            gradient |= _gradient(done, slope, params)
            if below is not None:
                (active,) = done.sources
                done.sizes.backward(slope, done.kernel, active, _code(below.layer))
                slope = active
        return {name: gradient[name] for name in params}


def _forward(layer: Layer, sources: list[Tensor], params: Params) -> tuple[Done, Tensor]:
    """The layer's activations, (m, n, height, width, channels)."""
    weight, bias = params[f"{layer.name}.weight"], params[f"{layer.name}.bias"].contiguous()
    height, width, channels = sources[0].shape[2:]
    if isinstance(layer.module, nn.Linear):  # it sees each picture as one pixel
        weight = weight.reshape(*weight.shape[:2], channels, height, width)
        sizes = Correlation(1, 1, channels * height * width, 1, 1, weight.shape[1], 1, 1, 1, 0, 0)
    else:
        sizes = _sizes(layer.module, height, width, channels)
    kernel = _channels_last(weight, channels)
    records = [source.shape[1] for source in sources]
    out = weight.new_empty(len(weight), sum(records), sizes.out_height, sizes.out_width, sizes.outputs)
    for source, target in zip(sources, torch.split(out, records, 1), strict=True):
        sizes.forward(source, kernel, bias, target, _code(layer))
    return Done(layer, sizes, sources, kernel), out


def _gradient(done: Done, slope: Tensor, params: Params) -> Params:
    """Of the layer's own parameters, from d loss / d its pre-activations."""
    weight, bias = (f"{done.layer.name}.{kind}" for kind in ("weight", "bias"))
    parts = torch.split(slope, [source.shape[1] for source in done.sources], 1)
    kernels, biases = zip(*map(done.sizes.weights, done.sources, parts), strict=True)
    kernel = torch.stack(kernels).sum(0).view_as(done.kernel)
    channels_first = kernel.movedim(-1, 2)  # (m, outputs, channels, rows, columns)
    if isinstance(done.layer.module, nn.Conv2d):
        channels_first = channels_first[:, :, : done.layer.module.in_channels]  # without those filled up
    return {weight: channels_first.reshape(params[weight].shape).contiguous(), bias: torch.stack(biases).sum(0)}


def _records(batch: Batch, m: int) -> tuple[list[Tensor], Tensor]:
    """Shared and own records as pictures, channels last, and all their labels, (m, n)."""
    parts = [*batch.shared, *batch.own]
    filled = [_channels_last(x, -(-x.shape[-3] // VECTOR) * VECTOR) for x, _ in parts]
    pictures = [x.expand(m, *x.shape[-4:]) for x in filled]  # shared ones are not copied
    return pictures, torch.cat([y.expand(m, y.shape[-1]) for _, y in parts], 1)


def _channels_last(values: Tensor, channels: int) -> Tensor:
    """(..., c, height, width) as (..., height, width, channels) in one piece, zeros in channels beyond c."""
    return nn.functional.pad(values.movedim(-3, -1), (0, channels - values.shape[-3])).contiguous()


def _sizes(module: nn.Conv2d, height: int, width: int, channels: int) -> Correlation:
    (rows, columns), (stride, _) = module.kernel_size, module.stride
    pad_rows, pad_columns = (int(pad) for pad in module.padding)
    return Correlation(
        *(height, width, channels),
        *((height + 2 * pad_rows - rows) // stride + 1, (width + 2 * pad_columns - columns) // stride + 1),
        *(module.out_channels, rows, columns, stride, pad_rows, pad_columns),
    )


def _simple(module: nn.Module) -> TypeGuard[nn.Conv2d | nn.Linear]:
    """A linear layer or a convolution that `Correlation` can describe."""
    if type(module) is nn.Linear:
        return module.bias is not None
    return (
        type(module) is nn.Conv2d
        and module.bias is not None
        and module.groups == 1
        and module.dilation == (1, 1)
        and module.stride[0] == module.stride[1]
        and module.padding_mode == "zeros"
        and not isinstance(module.padding, str)
    )


def _code(layer: Layer) -> int:
    number = code(layer.activation)
    return IDENTITY if number is None else number
