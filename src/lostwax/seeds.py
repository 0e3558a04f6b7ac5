"""Randomness by key: a draw depends on a seed and on what it is for, never on what was drawn before."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np


def key(seed: int, *purpose: int | str) -> int:
    """128 bits for one purpose."""
    return int.from_bytes(blake2b(repr((int(seed), *purpose)).encode(), digest_size=16).digest(), "big")


def generator(seed: int, *purpose: int | str) -> np.random.Generator:
    """The generator of one purpose: `generator(seed, "order", model, epoch)`.

    numpy's: torch's CPU generator keeps 32 bits of its seed, and among a million models some would be twins.
    """
    return np.random.Generator(np.random.PCG64(key(seed, *purpose)))
