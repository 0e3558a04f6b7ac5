"""One layer of m stacked nets on a GPU, forward and backward: how the kernels of `conv_kernel.py` are called."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Block(NamedTuple):
    """What a program works on at a time: from the sizes alone, so that the same models give the same bytes.

    The rules below are among the quickest of about ten, layer by layer, for S1's CIFAR-10 model on an H200, and keep
    to the 99 KiB of shared memory that smaller GPUs have too.
    """

    pixels: int
    taps: int
    outputs: int
    stages: int  # blocks in flight

    def options(self) -> dict[str, int]:
        """As the kernels name them."""
        return dict(zip(("PIXELS", "TAPS", "WIDE", "num_stages"), self, strict=True))


class Correlation(NamedTuple):
    """A convolution, by its sizes; a linear layer is the convolution of a picture of one pixel.

    Pictures are (m, n, height, width, channels), each model's in one piece; models may share them (a stride of 0).
    Kernels are (m, outputs, rows, columns, channels), and a tap is one place of the last three axes. Only the order
    in memory counts: a linear layer takes the same tensors, its last three axes read as one.
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
        """active <- d loss / d pre-activations of the layer below, whose activations it held.

        `slope` is d loss / d pre-activations of this layer. Every input gathers from all outputs that saw it, through
        the tap by which they did: a correlation with the kernel turned round, outputs and channels exchanged.
        """
        height, width = (self.out_height - 1) * self.stride + 1, (self.out_width - 1) * self.stride + 1
        if self.stride > 1:  # outputs stand `stride` inputs apart
            spread = slope.new_zeros(*slope.shape[:2], height, width, self.outputs)
            spread[:, :, :: self.stride, :: self.stride] = slope
            slope = spread
        turned = Correlation(
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
        from lostwax.trainers.fused.conv_kernel import correlate_weights

        (m, n), block = source.shape[:2], self.weights_block()
        pixels = n * self.out_height * self.out_width
        share = self.share()
        shares = -(-pixels // share)
        kernel_sums = slope.new_empty(m, shares, self.outputs, self.rows, self.columns, self.channels)
        bias_sums = slope.new_empty(m, shares, self.outputs)
        with torch.cuda.device(source.get_device()):  # where Triton launches
            correlate_weights[(m * shares, -(-self.taps // block.taps), -(-self.outputs // block.outputs))](
                source,
                source.stride(0),
                slope,
                slope.stride(0),
                kernel_sums,
                bias_sums,
                m,
                pixels,
                shares,
                share,
                **self._constants(),
                **block.options(),
            )
        return kernel_sums.sum(1), bias_sums.sum(1)

    @property
    def taps(self) -> int:
        """How many inputs an output sees."""
        return self.rows * self.columns * self.channels

    @property
    def linear(self) -> bool:
        """Whether a record is one pixel."""
        return self.height == self.width == self.out_height == self.out_width == 1

    def block(self) -> Block:
        """For a layer, forward or backward: a product (pixels, taps) (taps, outputs)."""
        outputs = _power_of_two(self.outputs, most=128 if self.linear else 64)
        most = 64 if self.linear and outputs == 16 else 32
        taps = _power_of_two(self.taps // 4, most=most)  # four blocks or more, so that loads run ahead
        return Block(64 if self.linear else 128, taps, outputs, stages=4 if taps == 16 else 3)

    def weights_block(self) -> Block:
        """For its gradient: a product (outputs, pixels) (pixels, taps).

        No more than 32 outputs: from 64 on, Triton takes Hopper's own product, which in TF32 reads no operand across
        its memory order, and would reorder each block first.
        """
        return Block(32, _power_of_two(self.taps, most=256), _power_of_two(self.outputs, most=32), stages=3)

    def share(self) -> int:
        """How many pixels a program sums for a gradient."""
        return 1024 if self.linear else 4096

    def _correlate(self, source: Tensor, kernel: Tensor, bias: Tensor | None, target: Tensor, **kind: int) -> None:
        from lostwax.trainers.fused.conv_kernel import correlate

        (m, n), block = source.shape[:2], self.block()
        pixels = n * self.out_height * self.out_width
        with torch.cuda.device(source.get_device()):  # where Triton launches
            correlate[(m * -(-pixels // block.pixels), -(-self.outputs // block.outputs))](
                source,
                source.stride(0),
                kernel,
                bias,
                target,
                target.stride(0),
                m,
                pixels,
                **kind,
                **self._constants(),
                **block.options(),
            )

    def _constants(self) -> dict[str, int | str]:
        exact = torch.get_float32_matmul_precision() == "highest"
        sizes = {name.upper(): value for name, value in self._asdict().items()}
        return {**sizes, "PRECISION": "tf32x3" if exact else "tf32"}


def _power_of_two(size: int, *, most: int) -> int:
    """The least that holds so many, from 16 (what a product of tiles takes) to `most`."""
    return min(most, max(16, 1 << (size - 1).bit_length()))
