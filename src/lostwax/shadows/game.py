"""The shadow models of one game, and who trains them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import nn

from lostwax.games import Cohort, Records, Release, Threat, Trainer
from lostwax.seeds import generator


class Game(NamedTuple):
    """All that decides a shadow model but its number."""

    net: nn.Module
    trainer: Trainer
    threat: Threat
    pool: Records
    seed: int

    def deal(self, numbers: range) -> Cohort:
        """The training sets of these models."""
        return self.threat.deal(self.pool, len(numbers), seed=self.seed, start=numbers.start)

    def tile(self) -> int:
        """How many models the trainer computes at a time: whole tiles are the same to the last byte, however cut."""
        return self.trainer.tile_size(self.net, self.deal(range(1)))


class Engine(Protocol):
    """Where shadow models are trained. Which engine it is changes no byte of a model on one kind of device."""

    def __call__(
        self, trainer: Trainer, net: nn.Module, threat: Threat, pool: Records, *, models: int, seed: int
    ) -> Iterator[tuple[Cohort, Release]]:
        """Models 0 .. models - 1, in order, in chunks of the engine's choice."""
        ...

    def parts(self, game: Game, spans: Iterable[range]) -> Iterator[tuple[Cohort, Release]]:
        """The models of each span, whole tiles, in the order given; a span is asked for when there is room for it."""
        ...


def together(parts: Sequence[tuple[Cohort, Release]]) -> tuple[Cohort, Release]:
    """Several chunks of one game as one."""
    if len(parts) == 1:
        return parts[0]
    cohorts, releases = zip(*parts, strict=True)
    features = [cohort.own.features for cohort in cohorts if cohort.own.features is not None]
    own = Records(
        torch.cat([cohort.own.x for cohort in cohorts]),
        torch.cat([cohort.own.y for cohort in cohorts]),
        torch.cat(features) if features else None,
    )
    cohort = Cohort(cohorts[0].shared, own, torch.cat([cohort.index for cohort in cohorts]))
    names = releases[0].params
    return cohort, Release({name: torch.cat([release.params[name] for release in releases]) for name in names})


# Fresh shadow models without end, for a reconstructor that learns from each only once.


class Augment(Protocol):
    """A way to make more records of a few."""

    def __call__(self, records: Records, count: int, *, seed: int) -> Records:
        """`count` records: those given, then ones made of them in turn."""
        ...


def stream(
    net: nn.Module,
    *,
    trainer: Trainer,
    threat: Threat,
    prior: Records,
    augment: Augment | None = None,
    seed: int = 0,
    start: int = 0,
) -> Iterator[tuple[Cohort, Release]]:
    """Models `start`, start + 1, ... in order, a tile at a time, each made when it is asked for and never again.

    For models that are cheaper to train than to keep. Model i is the same wherever the stream starts, so that one which
    was broken off goes on from the number it had come to. With `augment`, every model is trained on records made anew
    from those it was dealt.
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


def _augmented(cohort: Cohort, augment: Augment, seed: int) -> Cohort:
    """Each secret replaced by one that was made of it."""
    own = cohort.own
    m, k = own.x.shape[:2]
    features = None if own.features is None else own.features.flatten(0, 1)
    dealt = Records(own.x.flatten(0, 1), own.y.flatten(0, 1), features)  # (m k, ...)
    made = augment(dealt, 2 * m * k, seed=seed)[m * k :]  # the first half are those given
    return Cohort(cohort.shared, made[torch.arange(m * k, device=made.x.device).view(m, k)], cohort.index)


# Models that were trained on nothing, but look as if they were.


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
