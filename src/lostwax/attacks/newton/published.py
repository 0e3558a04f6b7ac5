"""How the owner makes a release, and what that does to the weights."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.newton.training_map import TrainingMap
from lostwax.defences import undefended
from lostwax.games import Release, Trainer


class Published(NamedTuple):
    """How the owner makes a release: training, its arithmetic and its defences."""

    trainer: Trainer
    seed: int  # the adversary's: its noise has the size of the victim's, but other values

    @property
    def defended(self) -> bool:
        """True if a defence changes the weights after training."""
        return undefended(self.trainer) is not self.trainer

    def units(self, exact: TrainingMap, z: Tensor, label: Tensor) -> Tensor:
        """(p,) the defence's noise on each weight: the root mean square over its tensor, or at least rounding.

        Measured on models trained on z (m, u), each with its own noise.
        """
        ideal, released = (models.params for models in self._both(exact, z, label))
        least = torch.finfo(torch.float64).eps * torch.cat([value.double().flatten() for value in ideal.values()])
        units = [
            (released[name].double() - value.double()).square().mean().sqrt().nan_to_num(0.0).expand(value[0].numel())
            for name, value in ideal.items()
        ]
        return torch.cat(units).clamp_min(float(least.square().mean().sqrt().nan_to_num(1.0)))

    def simulated(self, exact: TrainingMap, z: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """(m, p) models trained on z (m, u), and the defence's noise on each."""
        ideal, released = (exact.in_units(models.flat().double()) for models in self._both(exact, z, label))
        return ideal, released - ideal

    def _both(self, exact: TrainingMap, z: Tensor, label: Tensor) -> tuple[Release, Release]:
        """Models trained on z (m, u) in float64, and as they would be released, each with its own noise."""
        cohort = replace(exact.cohort(z, label), index=torch.arange(len(z), device=z.device))
        return exact.trainer(exact.net, cohort, seed=self.seed), self.trainer(exact.net, cohort, seed=self.seed)

    def rounding(self, exact: TrainingMap, z: Tensor, label: Tensor) -> Tensor:
        """(g,) distance of models trained on z (g, u), as released, from training in float64; at least its rounding."""
        cohort, ideal = exact.cohort(z, label), exact(z, label)
        as_released = exact.in_units(self.trainer(exact.net, cohort, seed=self.seed).flat().double())
        steps = exact.trainer.batches.steps(cohort.records)
        own = torch.finfo(torch.float64).eps * steps**0.5 * ideal.norm(dim=1)  # steps that round independently
        return torch.maximum((as_released - ideal).norm(dim=1), own)
