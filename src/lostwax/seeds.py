"""Randomness by key: a draw depends on the seed and its purpose, never on earlier draws."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from operator import index

import numpy as np

GENERATION = 2  # raised when any draw changes: stored models of another generation are not reused


def key(seed: int, *purpose: int | str) -> int:
    """A 128-bit key for one purpose."""
    parts = (int(seed), *(part if isinstance(part, str) else index(part) for part in purpose))
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=16).digest(), "big")


def generator(seed: int, *purpose: int | str) -> np.random.Generator:
    """A generator for one purpose: `generator(seed, "order", epoch)`.

    From numpy: torch's CPU generator keeps only 32 bits of its seed, so some of a million models would be equal.
    """
    return np.random.Generator(np.random.PCG64(key(seed, *purpose)))


def seed_torch(seed: int) -> None:
    """torch.manual_seed, which without an accelerator would take milliseconds to store a stack trace for one."""
    import torch

    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


@contextmanager
def one_thread() -> Iterator[None]:
    """torch computes on one thread: sums over threads round differently."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
