"""Models that were trained on nothing, but look as if they were."""

from __future__ import annotations

import math

import numpy as np
import torch

from lostwax.seeds import generator
from lostwax.shadows.game import Game
from lostwax.types import Release

FEWEST = 4_096  # shadow models whose covariance is taken; ...
A_NUMBER = 8  # ... or so many for each number of a model


def gaussian_weights(game: Game, models: int) -> Release:
    """Normal weights with the mean and the covariance of the game's shadow models (S2, Algorithms 2 and 3).

    What an attack makes of them owes nothing to any training set. With z standard normal, and the deviations of s
    shadow models from their mean as rows of D, z D / sqrt(s - 1) has the covariance D^T D / (s - 1): the matrix itself
    is never needed.
    """
    tile, one = game.tile(), game.trainer(game.net, game.deal(range(1)), seed=game.seed)
    shadows = max(FEWEST, A_NUMBER * one.flat().shape[1])
    parts = [
        game.trainer(game.net, game.deal(range(start, min(start + tile, shadows))), seed=game.seed).flat()
        for start in range(0, shadows, tile)
    ]
    flat = torch.cat(parts)  # (s, p)
    mean = flat.mean(0)
    draws = generator(game.seed, "gaussian weights").standard_normal((models, shadows), dtype=np.float32)
    drawn = mean + torch.from_numpy(draws).to(flat) @ flat.sub_(mean) / math.sqrt(shadows - 1)  # (models, p)
    sizes = [value[0].numel() for value in one.params.values()]
    cut = torch.split(drawn, sizes, dim=1)
    return Release(
        {name: part.reshape(models, *one.params[name].shape[1:]) for name, part in zip(one.params, cut, strict=True)}
    )
