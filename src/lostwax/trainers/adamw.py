"""Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

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
class AdamW(Adaptive):
    """Steps scaled by running moments of the gradient; weight decay shrinks the parameters themselves."""

    weight_decay: float = 1e-2

    def update(self, state: State, gradient: Params, lr: float, number: int) -> State:
        """As torch.optim.AdamW:  theta = (1 - lr weight_decay) theta  before the step."""
        shrunk = {name: (1 - lr * self.weight_decay) * value for name, value in state.params.items()}
        return self.adapt(State(shrunk, state.buffers), gradient, lr, number)

    @classmethod
    def examples(cls) -> tuple[AdamW, ...]:
        """Instances to test."""
        return (
            cls(lr=1e-2, epochs=4, weight_decay=1e-2, dtype=torch.float64),
            cls(lr=1e-2, epochs=2, batch_size=4, schedule=Linear()),
            cls(lr=1e-2, epochs=2, batch_size=5, order_seed=None, init=LeCunNormal(seed=None), tile=4),
        )
