"""Fresh shadow models without end, for a reconstructor that learns from each only once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Protocol

import torch
from torch import nn

from lostwax.seeds import generator
from lostwax.shadows.game import Game
from lostwax.types import Cohort, Records, Release, Threat, Trainer


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
