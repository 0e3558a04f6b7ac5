"""Gaussian noise for many models, each by a key of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from itertools import count

import numpy as np
import torch
from torch import Tensor

from lostwax.seeds import key
from lostwax.trainers.stacked import Params

HIGHEST = 2**31 - 1  # all bits of an int32 but its sign
BLOCK = 8  # numbers that the generator makes at a time, from one count: four words of 64 bits


def gaussian_noise(like: Params, numbers: Sequence[int], *, seed: int) -> Iterator[Params]:
    """Step by step N(0, 1) in the shape of stacked parameters, private to the model's number.

    The bits are a function of (seed, model, step, place) and nothing else, Philox-4x64 (Salmon et al., "Parallel random
    numbers: as easy as 1, 2, 3", 2011): numpy's on a CPU, the same by Triton on a GPU. They are made normal in float32:
    the noise is the same to rounding on every device and in every dtype.
    """
    one = next(iter(like.values()))
    sizes = [value[0].numel() for value in like.values()]
    blocks = -(-sum(sizes) // BLOCK)
    keys = [key(seed, "noise", number) for number in numbers]
    on_gpu = one.is_cuda and find_spec("triton") is not None
    steps = bits_by_triton(keys, blocks, one.device) if on_gpu else bits_by_numpy(keys, blocks)
    for bits in steps:
        normal = _box_muller(bits.to(one.device))[:, : sum(sizes)].to(one.dtype)  # (m, p)
        parts = torch.split(normal, sizes, dim=1)
        yield {name: part.view(like[name].shape) for name, part in zip(like, parts, strict=True)}


def bits_by_numpy(keys: Sequence[int], blocks: int) -> Iterator[Tensor]:
    """Step by step int32 (m, 8 blocks), by as many threads as torch has."""
    private = [np.random.Generator(np.random.Philox(key=one)) for one in keys]
    workers = max(1, min(torch.get_num_threads(), len(private)))
    shares = [range(worker, len(private), workers) for worker in range(workers)]
    with ThreadPoolExecutor(workers) as pool:
        while True:
            bits = torch.empty(len(private), BLOCK * blocks, dtype=torch.int32)
            list(pool.map(partial(_draw, private, bits.numpy()), shares))
            yield bits


def bits_by_triton(keys: Sequence[int], blocks: int, device: torch.device) -> Iterator[Tensor]:
    """The same bits, made on the device."""
    from lostwax.trainers.fused.philox_kernel import CHUNK, philox

    words = np.frombuffer(b"".join(one.to_bytes(16, "little") for one in keys), np.int64).reshape(-1, 2)
    halves = torch.from_numpy(words.copy()).to(device)  # (m, 2) the low half of each key, and the high one
    for step in count():
        bits = torch.empty(len(keys), BLOCK * blocks, dtype=torch.int32, device=device)
        philox[(len(keys), -(-blocks // CHUNK))](bits.view(torch.int64), halves, step * blocks, blocks)
        yield bits


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
    return torch.cat([angle.cos().mul_(radius), angle.sin_().mul_(radius)], 1)
