"""What happens to weights between training and the eyes of the adversary."""

from __future__ import annotations

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

    def rounding(self, exact: TrainingMap, z: Tensor, label: Tensor) -> Tensor:
        """(g,) how far releases of models trained on z (g, u) are from training in float64; or what that rounds."""
        cohort, ideal = exact.cohort(z, label), exact(z, label)
        as_released = self.trainer(exact.net, cohort, seed=self.seed).flat().double()
        steps = exact.trainer.batches.steps(cohort.records)
        own = torch.finfo(torch.float64).eps * steps**0.5 * ideal.norm(dim=1)  # steps that round independently
        return torch.maximum((as_released - ideal).norm(dim=1), own)
