"""Mini-batch stochastic gradient descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch

from lostwax.inits import LeCunNormal
from lostwax.schedules import StepDecay
from lostwax.trainers.batches import Batches
from lostwax.trainers.descent import Descent
from lostwax.trainers.momentum import descend, velocity
from lostwax.trainers.stacked import Params
from lostwax.trainers.stepwise import State
from lostwax.types.fields import Range, at_least, between


@final
@dataclass(frozen=True, kw_only=True)
class SGD(Descent):
    """Gradient descent on batches in a new random order each epoch.

    `order_seed` is public: with an int everybody knows the order and all models share it, with None each
    model draws its own.
    """

    lr: float = 0.1
    momentum: float = 0.0
    batch_size: int = 64
    epochs: int = 10
    order_seed: int | None = 0

    def _ranges(self) -> dict[str, Range]:
        return {"momentum": between(0, 1, "[)"), "batch_size": at_least(1), "epochs": at_least(1)}

    @property
    def batches(self) -> Batches:
        """Batches of `batch_size`; the last of an epoch may be smaller."""
        return Batches(epochs=self.epochs, size=self.batch_size, order_seed=self.order_seed)

    def buffers(self, params: Params) -> tuple[Params, ...]:
        """A velocity, where there is momentum."""
        return velocity(params, self.momentum)

    def update(self, state: State, gradient: Params, lr: float, number: int) -> State:
        """Heavy ball, as torch.optim.SGD."""
        return descend(state, gradient, lr, self.momentum, self.weight_decay)

    @classmethod
    def examples(cls) -> tuple[SGD, ...]:
        """Instances to test."""
        private = cls(lr=0.1, momentum=0.9, batch_size=4, epochs=2, order_seed=None, tile=4)
        return (
            cls(lr=0.1, momentum=0.9, batch_size=4, epochs=2, weight_decay=1e-3, schedule=StepDecay(every=3)),
            private,
            cls(
                lr=0.1,
                batch_size=5,
                epochs=1,
                order_seed=None,
                init=LeCunNormal(seed=None),
                dtype=torch.float64,
            ),
        )
