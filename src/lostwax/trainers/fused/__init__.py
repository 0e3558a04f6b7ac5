"""Gradients of stacked nets by fused Triton kernels on a GPU; equal to `stacked.gradient` to rounding."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import NamedTuple, TypeGuard

import torch
from torch import Tensor, nn

from lostwax.games import Loss
from lostwax.losses import CrossEntropy
from lostwax.trainers.stacked import (
    Architecture,
    Batch,
    Gradient,
    Params,
    Part,
    code,
    flattens,
    is_plain_convolution,
)


def fused(net: Architecture, loss: Loss, dtype: torch.dtype, device: torch.device) -> Gradient | None:
    """A fused gradient, which is not differentiable, or None without a GPU, Triton or a kernel for the net."""
    if device.type != "cuda" or find_spec("triton") is None:
        return None
    return FusedMLP.of(net, loss, dtype) or _proven(FusedCNN.of(net, loss, dtype))


def _proven(cnn: FusedCNN | None) -> FusedCNN | None:
    """None unless all convolutions are of a kind verified on a GPU: channels a multiple of eight, no padding.

    Triton 3.6 miscompiles the loads of padded 3 x 3 windows of four channels on Hopper; its interpreter and other
    windows are correct.
    """
    modules = [] if cnn is None else [layer.module for layer in cnn.layers]
    convolutions = [part for part in modules if isinstance(part, nn.Conv2d)]
    return cnn if all(part.out_channels % 8 == 0 and part.padding == (0, 0) for part in convolutions) else None


# Nets with one hidden layer.

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


# Convolutional nets.
#
# Each layer is one matrix product over tiles gathered from the layer below (`conv_kernels.py`), fused with bias and
# activation. Only activations are kept, and the backward pass overwrites them with gradients.


class Block(NamedTuple):
    """The block sizes of a kernel. They depend only on the layer's sizes, so that the same models give the same bytes.

    Measured on an H200 for the CIFAR-10 model of Balle et al. 2022, within the 99 KiB of shared memory of smaller GPUs.
    """

    pixels: int
    taps: int
    outputs: int
    stages: int  # blocks in flight

    def options(self) -> dict[str, int]:
        return dict(zip(("PIXELS", "TAPS", "WIDE", "num_stages"), self, strict=True))


class ConvShape(NamedTuple):
    """The sizes of a convolution; a linear layer is the convolution of an image of one pixel.

    Images are (m, n, height, width, channels), contiguous per model; models may share them (a stride of 0). Kernels are
    (m, outputs, rows, columns, channels), and a tap is one position in the last three axes. A linear layer takes the
    same tensors, with the last three axes read as one.
    """

    height: int
    width: int
    channels: int
    out_height: int
    out_width: int
    outputs: int
    rows: int
    columns: int
    stride: int
    pad_rows: int
    pad_columns: int

    def forward(self, source: Tensor, kernel: Tensor, bias: Tensor, target: Tensor, activation: int) -> None:
        """target <- f(source * kernel + bias), (m, n, out_height, out_width, outputs)."""
        self._correlate(source, kernel, bias, target, ACTIVATION=activation, BACKWARD=False)

    def backward(self, slope: Tensor, kernel: Tensor, active: Tensor, activation: int) -> None:
        """active <- d loss / d pre-activations of the layer below, in place of its activations.

        `slope`, that of this layer, is correlated with the kernel turned by 180 degrees, outputs and channels swapped.
        """
        height, width = (self.out_height - 1) * self.stride + 1, (self.out_width - 1) * self.stride + 1
        if self.stride > 1:  # outputs stand `stride` inputs apart
            spread = slope.new_zeros(*slope.shape[:2], height, width, self.outputs)
            spread[:, :, :: self.stride, :: self.stride] = slope
            slope = spread
        turned = ConvShape(
            *(height, width, self.outputs),
            *(self.height, self.width, self.channels),
            *(self.rows, self.columns),
            stride=1,
            pad_rows=self.rows - 1 - self.pad_rows,
            pad_columns=self.columns - 1 - self.pad_columns,
        )
        kernel = kernel.reshape(len(kernel), self.outputs, self.rows, self.columns, self.channels)
        kernel = kernel.flip(2, 3).permute(0, 4, 2, 3, 1).contiguous()  # (m, channels, rows, columns, outputs)
        turned._correlate(slope, kernel, None, active, ACTIVATION=activation, BACKWARD=True)

    def weights(self, source: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
        """d loss / d kernel and d loss / d bias: sums over shares of the pixels, then over the shares."""
        from lostwax.trainers.fused.conv_kernels import correlate_weights

        (m, n), block = source.shape[:2], self.weights_block()
        pixels, share = n * self.out_height * self.out_width, self.share()
        shares = -(-pixels // share)
        kernel_sums = slope.new_empty(m, shares, self.outputs, self.rows, self.columns, self.channels)
        bias_sums = slope.new_empty(m, shares, self.outputs)
        with torch.cuda.device(source.get_device()):  # where Triton launches
            correlate_weights[(m * shares, -(-self.taps // block.taps), -(-self.outputs // block.outputs))](
                *(source, source.stride(0), slope, slope.stride(0), kernel_sums, bias_sums, m, pixels, shares, share),
                **self._constants(),
                **block.options(),
            )
        return kernel_sums.sum(1), bias_sums.sum(1)

    @property
    def taps(self) -> int:
        """The number of inputs per output."""
        return self.rows * self.columns * self.channels

    @property
    def linear(self) -> bool:
        return self.height == self.width == self.out_height == self.out_width == 1

    def block(self) -> Block:
        """For a layer, forward or backward: a product (pixels, taps) (taps, outputs)."""
        outputs = _power_of_two(self.outputs, most=128 if self.linear else 64)
        most = 64 if self.linear and outputs == 16 else 32
        taps = _power_of_two(self.taps // 4, most=most)  # at least four blocks, so that loads are pipelined
        return Block(64 if self.linear else 128, taps, outputs, stages=4 if taps == 16 else 3)

    def weights_block(self) -> Block:
        """For the weight gradient: a product (outputs, pixels) (pixels, taps).

        At most 32 outputs: from 64 on, Triton uses Hopper's WGMMA, which in TF32 cannot read transposed operands and
        would reorder each block first.
        """
        return Block(32, _power_of_two(self.taps, most=256), _power_of_two(self.outputs, most=32), stages=3)

    def share(self) -> int:
        """The number of pixels that a program sums for a gradient."""
        return 1024 if self.linear else 4096

    def _correlate(self, source: Tensor, kernel: Tensor, bias: Tensor | None, target: Tensor, **kind: int) -> None:
        from lostwax.trainers.fused.conv_kernels import correlate

        (m, n), block = source.shape[:2], self.block()
        pixels = n * self.out_height * self.out_width
        with torch.cuda.device(source.get_device()):  # where Triton launches
            correlate[(m * -(-pixels // block.pixels), -(-self.outputs // block.outputs))](
                *(source, source.stride(0), kernel, bias, target, target.stride(0), m, pixels),
                **kind,
                **self._constants(),
                **block.options(),
            )

    def _constants(self) -> dict[str, int | str]:
        exact = torch.get_float32_matmul_precision() == "highest"
        sizes = {name.upper(): value for name, value in self._asdict().items()}
        return {**sizes, "PRECISION": "tf32x3" if exact else "tf32"}


def _power_of_two(size: int, *, most: int) -> int:
    """`size` rounded up to a power of two, from 16 (the smallest tile of a product) to `most`."""
    return min(most, max(16, 1 << (size - 1).bit_length()))


VECTOR = 4  # numbers per vector load: channels are padded to a multiple of it


class Layer(NamedTuple):
    """A convolution or a linear layer, and the activation after it."""

    prefix: str  # of its parameters' names: "0."
    module: nn.Conv2d | nn.Linear
    activation: int  # as the kernels number them; IDENTITY after the last


class Done(NamedTuple):
    """A layer after its forward pass, with what its backward pass needs."""

    layer: Layer
    sizes: ConvShape
    sources: list[Tensor]  # (m, n, height, width, channels) its inputs: shared and own records, or the layer below
    kernel: Tensor  # (m, outputs, rows, columns, channels)


@dataclass(frozen=True)
class FusedCNN:
    """The gradient of convolutions, then linear layers, under cross-entropy."""

    layers: tuple[Layer, ...]

    @classmethod
    def of(cls, net: Architecture, loss: Loss, dtype: torch.dtype) -> FusedCNN | None:
        """None unless the net and loss are supported, in float32."""
        if type(loss) is not CrossEntropy or dtype != torch.float32:
            return None
        parts = net.layers
        at = next((number for number, (_, part) in enumerate(parts) if flattens(part)), 0)
        chain = [*parts[:at], *parts[at + 1 :], ("", nn.Identity())]  # layer, activation, layer, activation, ...
        pairs = list(zip(chain[::2], chain[1::2], strict=False))
        layers = [
            Layer(prefix, module, activation)
            for (prefix, module), (_, end) in pairs
            if _is_supported(module) and (activation := code(end)) is not None
        ]
        kinds = [nn.Conv2d] * (at // 2) + [nn.Linear] * (len(pairs) - at // 2)
        if at == 0 or len(chain) % 2 or [type(layer.module) for layer in layers] != kinds or net.constants:
            return None
        return cls(tuple(layers))

    def __call__(self, net: Architecture, loss: Loss, params: Params, batch: Batch) -> Params:
        sources, y = _records(batch, len(next(iter(params.values()))))
        passed: list[Done] = []
        for layer in self.layers:
            done, out = _forward(layer, sources, params)
            passed.append(done)
            sources = [out]
        residual = loss.residual(out.flatten(2), y) / batch.size  # (m, n, classes)
        slope = residual.contiguous()  # d loss / d pre-activations, of the last layer and then of those below
        gradient: Params = {}
        for done, below in zip(reversed(passed), [*reversed(passed[:-1]), None], strict=True):
            gradient |= _gradient(done, slope, params)
            if below is not None:
                (active,) = done.sources
                done.sizes.backward(slope, done.kernel, active, below.layer.activation)
                slope = active
        return {name: gradient[name] for name in params}


def _forward(layer: Layer, sources: list[Tensor], params: Params) -> tuple[Done, Tensor]:
    """The layer's activations, (m, n, height, width, channels)."""
    weight, bias = params[f"{layer.prefix}weight"], params[f"{layer.prefix}bias"].contiguous()
    height, width, channels = sources[0].shape[2:]
    if isinstance(layer.module, nn.Linear):  # an image of one pixel
        weight = weight.reshape(*weight.shape[:2], channels, height, width)
        sizes = ConvShape(1, 1, channels * height * width, 1, 1, weight.shape[1], 1, 1, 1, 0, 0)
    else:
        (rows, columns), (stride, _) = layer.module.kernel_size, layer.module.stride
        pad_rows, pad_columns = (int(pad) for pad in layer.module.padding)
        sizes = ConvShape(
            *(height, width, channels),
            *((height + 2 * pad_rows - rows) // stride + 1, (width + 2 * pad_columns - columns) // stride + 1),
            *(layer.module.out_channels, rows, columns, stride, pad_rows, pad_columns),
        )
    kernel = _channels_last(weight, channels)
    records = [source.shape[1] for source in sources]
    out = weight.new_empty(len(weight), sum(records), sizes.out_height, sizes.out_width, sizes.outputs)
    for source, target in zip(sources, torch.split(out, records, 1), strict=True):
        sizes.forward(source, kernel, bias, target, layer.activation)
    return Done(layer, sizes, sources, kernel), out


def _gradient(done: Done, slope: Tensor, params: Params) -> Params:
    """The gradient of the layer's parameters, from d loss / d pre-activations."""
    weight, bias = (f"{done.layer.prefix}{kind}" for kind in ("weight", "bias"))
    parts = torch.split(slope, [source.shape[1] for source in done.sources], 1)
    kernels, biases = zip(*map(done.sizes.weights, done.sources, parts), strict=True)
    kernel = torch.stack(kernels).sum(0).view_as(done.kernel)
    channels_first = kernel.movedim(-1, 2)  # (m, outputs, channels, rows, columns)
    if isinstance(done.layer.module, nn.Conv2d):
        channels_first = channels_first[:, :, : done.layer.module.in_channels]  # without padding
    return {weight: channels_first.reshape(params[weight].shape).contiguous(), bias: torch.stack(biases).sum(0)}


def _records(batch: Batch, m: int) -> tuple[list[Tensor], Tensor]:
    """Shared and own records as images, channels last, and all their labels, (m, n)."""
    parts = [*batch.shared, *batch.own]
    padded = [_channels_last(x, -(-x.shape[-3] // VECTOR) * VECTOR) for x, _ in parts]
    images = [x.expand(m, *x.shape[-4:]) for x in padded]  # shared ones are not copied
    return images, torch.cat([y.expand(m, y.shape[-1]) for _, y in parts], 1)


def _channels_last(values: Tensor, channels: int) -> Tensor:
    """(..., c, height, width) as contiguous (..., height, width, channels), zero-padded beyond c."""
    return nn.functional.pad(values.movedim(-3, -1), (0, channels - values.shape[-3])).contiguous()


def _is_supported(module: nn.Module) -> TypeGuard[nn.Conv2d | nn.Linear]:
    """Whether it is a linear layer or a convolution that `ConvShape` can describe."""
    if type(module) is nn.Linear:
        return module.bias is not None
    square = isinstance(module, nn.Conv2d) and module.dilation == (1, 1) and module.stride[0] == module.stride[1]
    return square and is_plain_convolution(module) and module.bias is not None
