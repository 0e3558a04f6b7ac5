"""Randomness by key: a draw depends on a seed and on what it is for, never on what was drawn before."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np


def generator(seed: int, *key: int | str) -> np.random.Generator:
    """The generator of one purpose: `generator(seed, "order", model, epoch)`.

    numpy's: torch's CPU generator keeps 32 bits of its seed, and among a million models some would be twins.
    """
    digest = blake2b(repr((int(seed), *key)).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest, "big")))
