"""Models that were trained on nothing, but look as if they were."""

from __future__ import annotations

import math

import numpy as np
import torch

from lostwax.seeds import generator
from lostwax.shadows.game import Game
from lostwax.types import Release

FEWEST = 4_096  # shadow models whose covariance is taken; ...
A_NUMBER = 2  # ... or so many for each number of a model, ...
MOST = 2**31  # ... as long as they come to no more numbers than this


def covariance_models(p: int) -> int:
    """How many shadow models of p numbers each are trained for their covariance."""
    return max(FEWEST, min(A_NUMBER * p, MOST // p))


def gaussian_weights(game: Game, models: int) -> Release:
    """Normal weights with the mean and the covariance of the game's shadow models (S2, Algorithms 2 and 3).

    What an attack makes of them owes nothing to any training set. With z standard normal, and the deviations of s
    shadow models from their mean as rows of D, z D / sqrt(s - 1) has the covariance D^T D / (s - 1): the matrix itself
    is never needed, nor are all shadow models at once. Along any direction the variance is right to sqrt(2 / s) of
    itself, however many numbers a model has.
    """
    one = game.trainer(game.net, game.deal(range(1)), seed=game.seed)
    origin = one.flat()  # (1, p) from which sums are taken, for their rounding
    p, tile = origin.shape[1], game.tile()
    shadows = covariance_models(p)
    random = generator(game.seed, "gaussian weights")
    total, drawn_total, mixed = (origin.new_zeros(shape) for shape in ((1, p), (models, 1), (models, p)))
    for start in range(0, shadows, tile):
        some = range(start, min(start + tile, shadows))
        off = game.trainer(game.net, game.deal(some), seed=game.seed).flat() - origin  # (some, p)
        draws = torch.from_numpy(random.standard_normal((len(some), models), dtype=np.float32)).to(off)
        total += off.sum(0)
        drawn_total += draws.sum(0).unsqueeze(1)
        mixed += draws.mT @ off
    mean = total / shadows  # from the origin, (1, p)
    drawn = origin + mean + (mixed - drawn_total * mean) / math.sqrt(shadows - 1)  # z D = z off - (z 1) mean
    sizes = [value[0].numel() for value in one.params.values()]
    cut = torch.split(drawn, sizes, dim=1)
    return Release(
        {name: part.reshape(models, *one.params[name].shape[1:]) for name, part in zip(one.params, cut, strict=True)}
    )
