"""Adam."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch

from lostwax.inits import LeCunNormal
from lostwax.schedules import Linear
from lostwax.trainers.adaptive import Adaptive
from lostwax.trainers.stacked import Params
from lostwax.trainers.stepwise import State


@final
@dataclass(frozen=True, kw_only=True)
class Adam(Adaptive):
    """Steps scaled by running moments of the gradient; weight decay is added to the gradient."""

    def update(self, state: State, gradient: Params, lr: float, number: int) -> State:
        """As torch.optim.Adam."""
        if self.weight_decay:
            gradient = {name: torch.add(g, state.params[name], alpha=self.weight_decay) for name, g in gradient.items()}
        return self.adapt(state, gradient, lr, number)

    @classmethod
    def examples(cls) -> tuple[Adam, ...]:
        """Instances to test."""
        return (
            cls(lr=1e-2, epochs=4, weight_decay=1e-2, dtype=torch.float64),
            cls(lr=1e-2, epochs=2, batch_size=4, schedule=Linear()),
            cls(lr=1e-2, epochs=2, batch_size=5, order_seed=None, init=LeCunNormal(seed=None), tile=4),
        )
