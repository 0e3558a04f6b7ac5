"""Randomness by key: a draw depends on a seed and on what it is for, never on what was drawn before."""

from __future__ import annotations

from hashlib import blake2b
from operator import index

import numpy as np

GENERATION = 2  # of the ways in which seeds become draws: when one changes, models of before are other models


def key(seed: int, *purpose: int | str) -> int:
    """128 bits for one purpose."""
    words = (int(seed), *(part if isinstance(part, str) else index(part) for part in purpose))
    return int.from_bytes(blake2b(repr(words).encode(), digest_size=16).digest(), "big")


def generator(seed: int, *purpose: int | str) -> np.random.Generator:
    """The generator of one purpose: `generator(seed, "order", epoch)`.

    numpy's: torch's CPU generator keeps 32 bits of its seed, and among a million models some would be twins.
    """
    return np.random.Generator(np.random.PCG64(key(seed, *purpose)))
