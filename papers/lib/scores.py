"""The scores of Hayes et al. (2023) that the log-likelihood (`lw.PriorAware()`) is compared with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from lostwax.attacks.dp_steps.prior_aware import Observed
from lostwax.trainers import DPSGD
from lostwax.trainers.batches import total


@dataclass(frozen=True)
class InnerProducts:
    """sum_t <clip(g_z), gbar_t> (Hayes et al. 2023, Algorithm 2): optimal for full batches if all are clipped."""

    def __call__(self, steps: Iterator[Observed], trainer: DPSGD) -> Tensor:
        return total(step.products for step in steps) / trainer.noise_multiplier**2


@dataclass(frozen=True)
class LargestProducts:
    """The sum of the largest q T products, the expected number of steps with z (Hayes et al. 2023, Algorithm 3)."""

    def __call__(self, steps: Iterator[Observed], trainer: DPSGD) -> Tensor:
        count = max(1, round(trainer.rate * trainer.steps))
        largest = next(steps).products.unsqueeze(-1)  # (m, c, 1)
        for step in steps:
            largest = torch.cat([largest, step.products.unsqueeze(-1)], -1)
            largest = largest.topk(min(count, largest.shape[-1]), dim=-1).values  # (m, c, <= q T)
        return largest.sum(-1) / trainer.noise_multiplier**2
