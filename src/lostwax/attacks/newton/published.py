"""What happens to weights between training and the eyes of the adversary."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.newton.training_map import TrainingMap
from lostwax.defences import Defended
from lostwax.types import Trainer


class Published(NamedTuple):
    """The owner's way to a release, arithmetic and defences and all."""

    trainer: Trainer
    seed: int  # the adversary's own: a defence draws other noise than the victim's, as large

    @property
    def defended(self) -> bool:
        """Is something done to the weights after training?"""
        return isinstance(self.trainer, Defended)

    def units(self, exact: TrainingMap, z: Tensor, label: Tensor) -> Tensor:
        """(p,) how large the defence's noise on each weight is: the root mean square over its tensor.

        Measured on models trained on z (m, u), each with noise drawn for itself. A defence changes tensors by very
        different amounts, most often in proportion to their weights; one number for all weights would be that of the
        layer with the largest. A tensor that is released as it was trained has the unit of rounding.
        """
        cohort = replace(exact.cohort(z, label), index=torch.arange(len(z), device=z.device))
        ideal = exact.trainer(exact.net, cohort, seed=self.seed).params
        released = self.trainer(exact.net, cohort, seed=self.seed).params
        least = torch.finfo(torch.float64).eps * torch.cat([value.double().flatten() for value in ideal.values()])
        units = [
            (released[name].double() - value.double()).square().mean().sqrt().nan_to_num(0.0).expand(value[0].numel())
            for name, value in ideal.items()
        ]
        return torch.cat(units).clamp_min(float(least.square().mean().sqrt().nan_to_num(1.0)))

    def rounding(self, exact: TrainingMap, z: Tensor, label: Tensor) -> Tensor:
        """(g,) how far releases of models trained on z (g, u) are from training in float64; or what that rounds."""
        cohort, ideal = exact.cohort(z, label), exact(z, label)
        as_released = exact.in_units(self.trainer(exact.net, cohort, seed=self.seed).flat().double())
        steps = exact.trainer.batches.steps(cohort.records)
        own = torch.finfo(torch.float64).eps * steps**0.5 * ideal.norm(dim=1)  # steps that round independently
        return torch.maximum((as_released - ideal).norm(dim=1), own)
