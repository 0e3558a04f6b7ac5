"""The shadow models of one game, and who trains them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import nn

from lostwax.types import Cohort, Records, Release, Threat, Trainer


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
