"""Triton kernels: convolutions of m stacked models as matrix products over gathered tiles.

Channels are last in memory, so that one row of a window, (columns, channels), is contiguous in the input. A tile of
windows, (pixels, taps), is then loaded directly from the input, without unfolding it. A tap is a position (row, column,
channel) of the kernel. Each input is loaded once per tap; on an H200 these kernels are limited by L2 bandwidth.

`correlate` is a layer's forward pass, and its backward pass to the input, with a rotated kernel. `correlate_weights` is
the gradient of the kernel. A linear layer is a convolution of an image of one pixel.
"""

# Triton code looks like Python but is untyped.
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

from lostwax.trainers.fused.kernels import activate
from lostwax.trainers.fused.kernels import slope as slope_of


@triton.jit
def _windows(
    source,  # (records, HEIGHT, WIDTH, CHANNELS) of one model
    pixel,  # (PIXELS,) numbers of output pixels, (record, row, column) flattened
    pixels,  # how many there are
    tap,  # (TAPS,)
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    OUT_HEIGHT: tl.constexpr,
    OUT_WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STRIDE: tl.constexpr,
    PAD_ROWS: tl.constexpr,
    PAD_COLUMNS: tl.constexpr,
    EVEN: tl.constexpr,  # whether no tap is beyond the last
):
    """The inputs at these taps of these pixels, (PIXELS, TAPS); zero outside."""
    RUN: tl.constexpr = COLUMNS * CHANNELS
    OVER_HEIGHT: tl.constexpr = PAD_ROWS != 0 or (OUT_HEIGHT - 1) * STRIDE + ROWS > HEIGHT  # windows reach outside
    OVER_WIDTH: tl.constexpr = PAD_COLUMNS != 0 or (OUT_WIDTH - 1) * STRIDE + COLUMNS > WIDTH
    record, place = pixel // (OUT_HEIGHT * OUT_WIDTH), pixel % (OUT_HEIGHT * OUT_WIDTH)
    top = place // OUT_WIDTH * STRIDE - PAD_ROWS
    left = place % OUT_WIDTH * STRIDE - PAD_COLUMNS
    row, along = tap // RUN, tap % RUN
    corner = source + record.to(tl.int64) * (HEIGHT * WIDTH * CHANNELS) + (top * WIDTH + left) * CHANNELS
    there = (pixel < pixels)[:, None]
    if not EVEN:
        there &= (tap < ROWS * RUN)[None, :]
    if OVER_HEIGHT:
        y = top[:, None] + row[None, :]
        there &= (y >= 0) & (y < HEIGHT)
    if OVER_WIDTH:
        x = left[:, None] + (along // CHANNELS)[None, :]
        there &= (x >= 0) & (x < WIDTH)
    return tl.load(corner[:, None] + (row * (WIDTH * CHANNELS) + along)[None, :], there, 0.0)


@triton.jit
def correlate(
    source,  # (m, records, HEIGHT, WIDTH, CHANNELS)
    source_stride,  # from one model to the next; 0 where they share it
    weight,  # (m, OUTPUTS, taps)
    bias,  # (m, OUTPUTS), forward only
    target,  # (m, records, OUT_HEIGHT, OUT_WIDTH, OUTPUTS)
    target_stride,
    models,
    pixels,  # records x OUT_HEIGHT x OUT_WIDTH
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    OUT_HEIGHT: tl.constexpr,
    OUT_WIDTH: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STRIDE: tl.constexpr,
    PAD_ROWS: tl.constexpr,
    PAD_COLUMNS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    BACKWARD: tl.constexpr,
    PIXELS: tl.constexpr,  # a tile of windows is (PIXELS, TAPS), and it is multiplied for WIDE outputs
    TAPS: tl.constexpr,
    WIDE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """target <- f(window . weight + bias); backward, target <- f' (window . weight), where target holds f."""
    model, block = (tl.program_id(0) % models).to(tl.int64), tl.program_id(0) // models
    taps: tl.constexpr = ROWS * COLUMNS * CHANNELS
    pixel, output = block * PIXELS + tl.arange(0, PIXELS), tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    source += model * source_stride
    weight += model * (OUTPUTS * taps)
    total = tl.zeros((PIXELS, WIDE), tl.float32)
    for first in tl.range(0, taps, TAPS):
        tap = first + tl.arange(0, TAPS)
        seen = _windows(
            source, pixel, pixels, tap, HEIGHT, WIDTH, CHANNELS, OUT_HEIGHT, OUT_WIDTH, ROWS, COLUMNS, STRIDE,
            PAD_ROWS, PAD_COLUMNS, taps % TAPS == 0,
        )  # fmt: skip  # (PIXELS, TAPS)
        known = (output < OUTPUTS)[None, :] & (tap < taps)[:, None]
        factor = tl.load(weight + (output * taps)[None, :] + tap[:, None], known, 0.0)  # (TAPS, WIDE)
        total = tl.dot(seen, factor, total, input_precision=PRECISION)
    place = target + model * target_stride + pixel.to(tl.int64)[:, None] * OUTPUTS + output[None, :]
    inside = (pixel < pixels)[:, None] & (output < OUTPUTS)[None, :]
    if BACKWARD:
        result = total * slope_of(tl.load(place, inside, 0.0), ACTIVATION)
    else:
        result = activate(total + tl.load(bias + model * OUTPUTS + output, output < OUTPUTS, 0.0)[None, :], ACTIVATION)
    tl.store(place, result, inside)


@triton.jit
def correlate_weights(
    source,  # (m, records, HEIGHT, WIDTH, CHANNELS)
    source_stride,  # from one model to the next; 0 where they share it
    slope,  # (m, records, OUT_HEIGHT, OUT_WIDTH, OUTPUTS), d loss / d pre-activation
    slope_stride,
    weight_sums,  # (m, shares, OUTPUTS, taps) the result, a sum over each share of the pixels
    bias_sums,  # (m, shares, OUTPUTS)
    models,
    pixels,
    shares,
    share,  # pixels in a share
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    OUT_HEIGHT: tl.constexpr,
    OUT_WIDTH: tl.constexpr,
    OUTPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STRIDE: tl.constexpr,
    PAD_ROWS: tl.constexpr,
    PAD_COLUMNS: tl.constexpr,
    PIXELS: tl.constexpr,  # as above
    TAPS: tl.constexpr,
    WIDE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """weight_sums[o, tap] = sum of slope[pixel, o] window[pixel, tap] over a share of the pixels."""
    model, number = (tl.program_id(0) % models).to(tl.int64), tl.program_id(0) // models
    taps: tl.constexpr = ROWS * COLUMNS * CHANNELS
    tap = tl.program_id(1) * TAPS + tl.arange(0, TAPS)
    output = tl.program_id(2) * WIDE + tl.arange(0, WIDE)
    source += model * source_stride
    slope += model * slope_stride
    end = tl.minimum(pixels, (number + 1) * share)
    total = tl.zeros((WIDE, TAPS), tl.float32)
    bias_total = tl.zeros((PIXELS, WIDE), tl.float32)
    for first in tl.range(number * share, end, PIXELS):
        pixel = first + tl.arange(0, PIXELS)
        seen = _windows(
            source, pixel, end, tap, HEIGHT, WIDTH, CHANNELS, OUT_HEIGHT, OUT_WIDTH, ROWS, COLUMNS, STRIDE,
            PAD_ROWS, PAD_COLUMNS, taps % TAPS == 0,
        )  # fmt: skip  # (PIXELS, TAPS)
        inside = (pixel < end)[:, None] & (output < OUTPUTS)[None, :]
        steep = tl.load(slope + pixel.to(tl.int64)[:, None] * OUTPUTS + output[None, :], inside, 0.0)  # (PIXELS, WIDE)
        total = tl.dot(tl.trans(steep), seen, total, input_precision=PRECISION)
        bias_total += steep
    here = model * shares + number
    known = (output < OUTPUTS)[:, None] & (tap < taps)[None, :]
    tl.store(weight_sums + here * (OUTPUTS * taps) + (output * taps)[:, None] + tap[None, :], total, known)
    if tl.program_id(1) == 0:  # all blocks of taps have the same sum
        tl.store(bias_sums + here * OUTPUTS + output, tl.sum(bias_total, 0), output < OUTPUTS)
