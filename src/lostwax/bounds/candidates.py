"""How often the best of all attacks is right about given candidates: what a ceiling leaves room for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def best_success(gram: NDArray[np.float64], *, draws: int = 400, seed: int = 0) -> float:
    """Success of the likeliest answer among equally likely candidates, for full batches; estimated, mean over games.

    `gram` (games, c, c) holds K_ij = sum_t <g_i, g_j> / (C sigma)^2 of the candidates' clipped gradients. The products
    of what is seen with each candidate, y = K e_z + N(0, K), say all there is to know of which one, z, was trained on,
    and the likeliest is the one of the largest y_i - K_ii / 2. A ceiling (`bound`) knows of the candidates nothing but
    K_ii <= T / sigma^2, and lies above.
    """
    kernel = np.asarray(gram, float)
    if kernel.ndim != 3 or kernel.shape[1] != kernel.shape[2] or kernel.shape[1] < 2:
        raise ValueError(
            f"Expected gram to hold a matrix (c, c) of two candidates or more for every game, got shape {kernel.shape}."
        )
    games, c = kernel.shape[:2]
    random = np.random.default_rng(seed)
    values, vectors = np.linalg.eigh(kernel)
    root = vectors * np.sqrt(values.clip(min=0))[:, None]  # (games, c, c)  K = root root^T
    z = random.integers(c, size=(games, draws))
    noise = np.einsum("gij,gdj->gdi", root, random.standard_normal((games, draws, c)))
    y = kernel[np.arange(games)[:, None], z] + noise  # (games, draws, c)
    best = (y - np.einsum("gii->gi", kernel)[:, None] / 2).argmax(2)
    return float((best == z).mean())
