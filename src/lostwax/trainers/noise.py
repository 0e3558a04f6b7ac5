"""Gaussian noise for many models, each from a generator of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import torch
from torch import Tensor

from lostwax.seeds import generator
from lostwax.trainers.stacked import Params

HIGHEST = 2**31 - 1  # all bits of an int32 but its sign


def gaussian_noise(like: Params, numbers: Sequence[int], *, seed: int) -> Iterator[Params]:
    """Step by step N(0, 1) in the shape of stacked parameters, private to the model's number.

    Bits are drawn on the CPU, by as many threads as torch has, and made normal on the device, in float32: the noise is
    the same to rounding on every device and in every dtype.
    """
    private = [generator(seed, "noise", number) for number in numbers]
    one = next(iter(like.values()))
    sizes = [value[0].numel() for value in like.values()]
    numbers_drawn = 2 * -(-sum(sizes) // 2)  # in pairs
    workers = max(1, min(torch.get_num_threads(), len(private)))
    shares = [range(worker, len(private), workers) for worker in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        while True:
            # pinned, to be sent quickly
            bits = torch.empty(len(private), numbers_drawn, dtype=torch.int32, pin_memory=one.is_cuda)
            list(pool.map(partial(_draw, private, bits.numpy()), shares))
            normal = _box_muller(bits.to(one.device))[:, : sum(sizes)].to(one.dtype)  # (m, p)
            parts = torch.split(normal, sizes, dim=1)
            yield {name: part.view(like[name].shape) for name, part in zip(like, parts, strict=True)}


def _draw(private: Sequence[np.random.Generator], bits: np.ndarray, models: range) -> None:
    """The rows of these models; numpy lets other threads run meanwhile."""
    for model in models:
        drawn = private[model].integers(2**64, size=bits.shape[1] // 2, dtype=np.uint64)  # faster than 32 bits a time
        bits[model] = drawn.view(np.int32)


def _box_muller(bits: Tensor) -> Tensor:
    """Two normals from two uniforms: sqrt(-2 ln u) cos(v), sqrt(-2 ln u) sin(v), u in (0, 1), v in [-pi, pi)."""
    first, second = bits.tensor_split(2, dim=1)  # (m, p / 2) each
    u = first.bitwise_and(HIGHEST).float().add_(0.5).mul_(2.0**-31)
    radius = u.log_().mul_(-2).sqrt_()
    angle = second.float().mul_(math.pi * 2.0**-31)
    return torch.cat([radius * angle.cos(), radius * angle.sin()], 1)
