"""Philox-4x64 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): bits as a function of a counter."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

BLOCK = 8  # numbers that the generator makes from one count: four words of 64 bits
SHARE = 1 << 16  # words that are worth a thread of their own


def bits(key: int, numbers: Tensor, blocks: int, *, before: int = 0) -> Tensor:
    """int32 (m, 8 blocks), a row for each number and where the numbers lie: numpy's on a CPU, by Triton on a GPU.

    A row is a function of the key (128 bits) and its number alone; `before` leaves out so many of its first blocks.
    """
    inside_func = torch._C._are_functorch_transforms_active()  # where tensors have no memory that a kernel could fill
    if numbers.is_cuda and not inside_func and find_spec("triton") is not None:
        return by_triton(key, numbers, blocks, before)
    return by_numpy(key, numbers, blocks, before).to(numbers.device)


def by_numpy(key: int, numbers: Tensor, blocks: int, before: int) -> Tensor:
    """By as many threads as torch has, where there is work for them."""
    rows = numbers.tolist()
    words = np.empty((len(rows), BLOCK * blocks // 2), np.uint64)
    workers = min(torch.get_num_threads(), len(rows), words.size // SHARE)
    if workers <= 1:
        _fill(key, before, words, rows)
    else:
        shares = [slice(worker, None, workers) for worker in range(workers)]
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(lambda share: _fill(key, before, words[share], rows[share]), shares))
    return torch.from_numpy(words.view(np.int32))


def _fill(key: int, before: int, words: np.ndarray, numbers: Sequence[int]) -> None:
    """Row by row; numpy lets other threads run meanwhile."""
    generator = np.random.Philox(key=key)
    fresh = generator.state  # to set it is ten times quicker than to make another generator
    for row, number in zip(words, numbers, strict=True):
        fresh["state"]["counter"][:] = before, 0, number, 0
        generator.state = fresh
        row[:] = generator.random_raw(len(row))


def by_triton(key: int, numbers: Tensor, blocks: int, before: int) -> Tensor:
    """The same bits, made on the device."""
    from lostwax.philox.kernel import CHUNK, philox

    low, high = np.frombuffer(key.to_bytes(16, "little"), np.int64).tolist()
    made = torch.empty(len(numbers), BLOCK * blocks, dtype=torch.int32, device=numbers.device)
    grid = (len(numbers), -(-blocks // CHUNK))
    with torch.cuda.device(made.get_device()):  # where Triton launches
        philox[grid](made.view(torch.int64), numbers.long().contiguous(), low, high, before, blocks)
    return made
