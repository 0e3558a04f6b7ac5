"""The shadow models of one game, and the engines that train them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import nn

from lostwax.games import Cohort, Records, Release, Threat, Trainer
from lostwax.progress import counted
from lostwax.seeds import generator


class Game(NamedTuple):
    """Everything that determines a shadow model, except its number."""

    net: nn.Module
    trainer: Trainer
    threat: Threat
    pool: Records
    seed: int

    def deal(self, numbers: range) -> Cohort:
        """The training sets of these models."""
        return self.threat.deal(self.pool, len(numbers), seed=self.seed, start=numbers.start)

    def tile(self) -> int:
        """How many models the trainer computes at a time; chunks of whole tiles give the same bytes."""
        return self.trainer.tile_size(self.net, self.deal(range(1)))


class Engine(Protocol):
    """Where shadow models are trained. On one kind of device, all engines give the same bytes."""

    def __call__(
        self, trainer: Trainer, net: nn.Module, threat: Threat, pool: Records, *, models: int, seed: int
    ) -> Iterator[tuple[Cohort, Release]]:
        """Models 0 .. models - 1, in order, in chunks of the engine's choice."""

    def parts(self, game: Game, spans: Iterable[range]) -> Iterator[tuple[Cohort, Release]]:
        """The models of each span (whole tiles), in order; spans are requested lazily."""


def together(parts: Sequence[tuple[Cohort, Release]]) -> tuple[Cohort, Release]:
    """Concatenate several chunks of one game."""
    if len(parts) == 1:
        return parts[0]
    cohorts, releases = zip(*parts, strict=True)
    own = Records.together([cohort.own for cohort in cohorts])
    cohort = Cohort(cohorts[0].shared, own, torch.cat([cohort.index for cohort in cohorts]))
    return cohort, Release.together([Release(release.params) for release in releases])


class Augmentation(Protocol):
    """Data augmentation."""

    def __call__(self, records: Records, count: int, *, seed: int) -> Records:
        """`count` records: the given ones, then augmented copies of each in turn."""


def stream(
    net: nn.Module,
    *,
    trainer: Trainer,
    threat: Threat,
    prior: Records,
    augment: Augmentation | None = None,
    seed: int = 0,
    start: int = 0,
) -> Iterator[tuple[Cohort, Release]]:
    """An endless stream of new shadow models `start`, start + 1, ..., one tile at a time, trained on demand.

    Model i does not depend on `start`, so an interrupted stream can be resumed. With `augment`, every model is trained
    on augmented copies of its secrets.
    """
    if start < 0:
        raise ValueError(f"stream: expected start >= 0, got {start}.")
    game = Game(net, trainer, threat, prior, seed)
    tile = game.tile()
    for number in count(start // tile):
        cohort = game.deal(range(number * tile, (number + 1) * tile))
        if augment is not None:
            cohort = _augmented(cohort, augment, int(generator(seed, "stream", number).integers(2**63)))
        release = trainer(net, cohort, seed=seed)
        skipped = max(start - number * tile, 0)
        yield cohort[skipped:], Release({name: value[skipped:] for name, value in release.params.items()})


def _augmented(cohort: Cohort, augment: Augmentation, seed: int) -> Cohort:
    """Replace each secret by an augmented copy."""
    own = cohort.own
    m, k = own.x.shape[:2]
    features = None if own.features is None else own.features.flatten(0, 1)
    dealt = Records(own.x.flatten(0, 1), own.y.flatten(0, 1), features)  # (m k, ...)
    made = augment(dealt, 2 * m * k, seed=seed)[m * k :]  # the first half are the originals
    return Cohort(cohort.shared, made[torch.arange(m * k, device=made.x.device).view(m, k)], cohort.index)


FEWEST = 4_096  # at least this many models for the covariance, ...
PER_PARAMETER = 2  # ... or this many per parameter, ...
MOST = 2**31  # ... with at most this many numbers in all


def covariance_models(p: int) -> int:
    """How many shadow models of p parameters are trained to estimate their covariance."""
    return max(FEWEST, min(PER_PARAMETER * p, MOST // p))


def gaussian_weights(game: Game, models: int) -> Release:
    """Normal weights with the mean and covariance of the shadow models (Maciazek and Allison 2025, Algorithms 2 and 3).

    With z standard normal and the rows of D the deviations of s shadow models from their mean, z D / sqrt(s - 1) has
    the covariance D^T D / (s - 1), and the relative error of the variance in any direction is sqrt(2 / s), whatever p.
    """
    one = game.trainer(game.net, game.deal(range(1)), seed=game.seed)
    origin = one.flat()  # (1, p) subtracted before summing, to reduce rounding
    p, tile = origin.shape[1], game.tile()
    shadows = covariance_models(p)
    random = generator(game.seed, "gaussian weights")
    total, drawn_total, mixed = (origin.new_zeros(shape) for shape in ((1, p), (models, 1), (models, p)))
    for start in counted(range(0, shadows, tile), "models without secrets: tiles", -(-shadows // tile)):
        some = range(start, min(start + tile, shadows))
        off = game.trainer(game.net, game.deal(some), seed=game.seed).flat() - origin  # (some, p)
        draws = torch.from_numpy(random.standard_normal((len(some), models), dtype=np.float32)).to(off)
        total += off.sum(0)
        drawn_total += draws.sum(0).unsqueeze(1)
        mixed += draws.mT @ off
    mean = total / shadows  # from the origin, (1, p)
    drawn = origin + mean + (mixed - drawn_total * mean) / math.sqrt(shadows - 1)  # z D = z off - (z 1) mean
    cut = torch.split(drawn, [value[0].numel() for value in one.params.values()], dim=1)
    named = zip(one.params.items(), cut, strict=True)
    return Release({name: part.reshape(models, *value.shape[1:]) for (name, value), part in named})
