"""Counter-based random numbers: random access by model number, with the same bits on CPU and GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["bits", "happens", "normal", "on_host", "orders", "uniform"]

# Philox-4x64 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): bits as a function of a counter.
BLOCK = 8  # int32 numbers per counter value: four 64-bit words
MIN_THREAD_WORDS = 1 << 16  # words per thread, at least


def bits(key: int, numbers: Tensor, blocks: int, *, before: int = 0) -> Tensor:
    """int32 (m, 8 blocks) random bits, one row per number, on their device: by numpy on a CPU, by Triton on a GPU.

    A row depends only on the 128-bit key and its number; `before` skips its first blocks.
    """
    if numbers.is_cuda and not inside_func() and find_spec("triton") is not None:
        return by_triton(key, numbers, blocks, before)
    return by_numpy(key, numbers, blocks, before).to(numbers.device)


def inside_func() -> bool:
    """True inside torch.func.jvp, vmap and the like, where tensors have no memory to read or to fill."""
    return bool(torch._C._are_functorch_transforms_active())


def on_host(numbers: Tensor) -> NDArray[np.int64]:
    """Models' numbers (m,) for numpy: one copy; inside torch.func, where torch 2.8 reads single numbers only, m."""
    if inside_func():
        return np.array([int(number) for number in numbers], np.int64)
    return numbers.cpu().numpy().astype(np.int64, copy=False)


def by_numpy(key: int, numbers: Tensor, blocks: int, before: int) -> Tensor:
    """On up to as many threads as torch uses."""
    rows = on_host(numbers).tolist()
    words = np.empty((len(rows), BLOCK * blocks // 2), np.uint64)
    workers = min(torch.get_num_threads(), len(rows), words.size // MIN_THREAD_WORDS)
    if workers <= 1:
        _fill(key, before, words, rows)
    else:
        shares = [slice(worker, None, workers) for worker in range(workers)]
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(lambda share: _fill(key, before, words[share], rows[share]), shares))
    return torch.from_numpy(words.view(np.int32))


def _fill(key: int, before: int, words: np.ndarray, numbers: Sequence[int]) -> None:
    """Row by row; numpy releases the GIL."""
    generator = np.random.Philox(key=key)
    fresh = generator.state  # setting it is ten times faster than a new generator
    for row, number in zip(words, numbers, strict=True):
        fresh["state"]["counter"][:] = before, 0, number, 0
        generator.state = fresh
        row[:] = generator.random_raw(len(row))


def by_triton(key: int, numbers: Tensor, blocks: int, before: int) -> Tensor:
    """The same bits, computed on the GPU."""
    from lostwax.philox.kernel import CHUNK, philox

    low, high = np.frombuffer(key.to_bytes(16, "little"), np.int64).tolist()
    drawn = torch.empty(len(numbers), BLOCK * blocks, dtype=torch.int32, device=numbers.device)
    grid = (len(numbers), -(-blocks // CHUNK))
    with torch.cuda.device(drawn.get_device()):  # where Triton launches
        philox[grid](drawn.view(torch.int64), numbers.long().contiguous(), low, high, before, blocks)
    return drawn


# Reals are computed in float32 and agree to rounding on every device. Integers are the same everywhere.
MAX_INT32 = 2**31 - 1  # all bits of an int32 except its sign


def normal(key: int, numbers: Tensor, count: int, *, turn: int = 0) -> Tensor:
    """N(0, 1), (m, count); different turns of one count share no bits.

    Box-Muller: sqrt(-2 ln u) cos(v), sqrt(-2 ln u) sin(v), u in (0, 1], v in [-pi, pi]. The pairing depends on the
    count: a shorter draw is neither a prefix of a longer one nor independent of it.
    """
    blocks = -(-count // BLOCK)
    first, second = bits(key, numbers, blocks, before=turn * blocks).tensor_split(2, dim=1)  # (m, 4 blocks) each
    u = first.bitwise_and(MAX_INT32).float().add_(0.5).mul_(2.0**-31)
    radius = u.log_().mul_(-2).sqrt_()
    angle = second.float().mul_(math.pi * 2.0**-31)
    return torch.cat([angle.cos().mul_(radius), angle.sin_().mul_(radius)], 1)[:, :count]


def uniform(key: int, numbers: Tensor, count: int) -> Tensor:
    """Uniform in [-1, 1], (m, count)."""
    return bits(key, numbers, -(-count // BLOCK))[:, :count].float().mul_(2.0**-31)


def orders(key: int, numbers: Tensor, count: int) -> Tensor:
    """int64 (m, count): 0 .. count - 1 in random order, sorted by 64 random bits each."""
    drawn = bits(key, numbers, -(-2 * count // BLOCK)).view(torch.int64)[:, :count]
    return drawn.argsort(dim=1, stable=True)


def happens(key: int, numbers: Tensor, count: int, chance: float, *, turn: int = 0) -> Tensor:
    """bool (m, count): True with probability `chance` < 1, rounded down by at most 2^-63."""
    blocks = -(-2 * count // BLOCK)
    words = bits(key, numbers, blocks, before=turn * blocks).view(torch.int64)  # (m, 4 blocks)
    return words.bitwise_and_(2**63 - 1)[:, :count] < int(chance * 2**63)
