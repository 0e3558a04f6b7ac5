"""A trainer whose models pass through a defence before anybody sees them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import nn

from lostwax.defences.defence import Defence
from lostwax.defences.quantised import Quantised
from lostwax.defences.rounded import Rounded
from lostwax.defences.weight_noise import WeightNoise
from lostwax.seeds import generator
from lostwax.trainers import GD, Optimum
from lostwax.types import Cohort, Release, Step, Trainer
from lostwax.types.fields import check_fields


@final
@dataclass(frozen=True)
class Defended:
    """Train, then change what is released: `Defended(GD(...), by=Rounded(torch.float16))`.

    A trainer itself, so the defence is known to the adversary like the rest of the procedure: shadow models pass
    through it too, and an attack learns from releases like the victim's. Defences follow each other as
    `Defended(Defended(GD(...), by=WeightNoise(0.01)), by=Quantised())`, each with randomness of its own.
    """

    trainer: Trainer
    by: Defence

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def defences(self) -> int:
        """How many follow each other."""
        return 1 + (self.trainer.defences if isinstance(self.trainer, Defended) else 0)

    def __call__(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Release:
        """Train one model for each set of the cohort, and defend each."""
        own_seed = int(generator(seed, "defence", self.defences).integers(2**63))
        return self.by(self.trainer(net, cohort, seed=seed), cohort.index.tolist(), seed=own_seed)

    def transcript(self, net: nn.Module, cohort: Cohort, *, seed: int) -> Iterator[Step]:
        """Every step of the training; the defence comes after the last."""
        return self.trainer.transcript(net, cohort, seed=seed)

    def tile_size(self, net: nn.Module, cohort: Cohort) -> int:
        """The trainer's: a defence looks at one model at a time."""
        return self.trainer.tile_size(net, cohort)

    @classmethod
    def examples(cls) -> tuple[Defended, ...]:
        """Instances to test."""
        trainer = GD(lr=0.2, momentum=0.9, steps=5)
        return (
            cls(trainer, by=Rounded(torch.bfloat16)),
            cls(cls(trainer, by=WeightNoise(0.01)), by=Quantised()),
            cls(Optimum(), by=WeightNoise(0.1)),
        )


def undefended(trainer: Trainer) -> Trainer:
    """The trainer behind all defences."""
    return undefended(trainer.trainer) if isinstance(trainer, Defended) else trainer
