"""Full-batch gradient descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch

from lostwax.inits import LeCunNormal
from lostwax.schedules import Cosine
from lostwax.trainers.batches import Batches
from lostwax.trainers.descent import Descent
from lostwax.trainers.fused import heads as fused_heads
from lostwax.trainers.gram import Dual, Head
from lostwax.trainers.momentum import descend, velocity
from lostwax.trainers.stacked import Architecture, Params
from lostwax.trainers.stepwise import State, float32_products
from lostwax.types import Cohort
from lostwax.types.fields import Range, at_least, between


@final
@dataclass(frozen=True, kw_only=True)
class GD(Descent):
    """Gradient descent on all records at once: `GD(lr=0.2, momentum=0.9, steps=100)` is the victim of S1."""

    lr: float = 0.1
    momentum: float = 0.0
    steps: int = 100

    def _ranges(self) -> dict[str, Range]:
        return {"momentum": between(0, 1, "[)"), "steps": at_least(1)}

    @property
    def batches(self) -> Batches:
        """All records, `steps` times."""
        return Batches(epochs=self.steps)

    def buffers(self, params: Params) -> tuple[Params, ...]:
        """A velocity, where there is momentum."""
        return velocity(params, self.momentum)

    def update(self, state: State, gradient: Params, lr: float, number: int) -> State:
        """Heavy ball, as torch.optim.SGD."""
        return descend(state, gradient, lr, self.momentum, self.weight_decay)

    def _end(self, net: Architecture, cohort: Cohort, seed: int) -> Params:
        """Heads on few records are trained in coordinates: `update` is linear, and does to those what it does here."""
        head = Head.of(net, cohort)
        if head is None:
            return super()._end(net, cohort, seed)
        with float32_products(self.tf32):
            dual = head.dual(self._start(net, cohort, seed).params, cohort)
            return dual.params(self._coordinates(dual))

    def _coordinates(self, dual: Dual) -> Params:
        """Those after training: by one kernel where there is one, else step by step."""
        rates = [self.lr * self.schedule(number, self.steps) for number in range(self.steps)]
        if fused_heads.knows(dual, self.loss):
            return fused_heads.descended(dual, rates, momentum=self.momentum, weight_decay=self.weight_decay)
        state = State(dual.origin, self.buffers(dual.origin))
        for number, rate in enumerate(rates):
            state = self.update(state, dual.gradient(self.loss, state.params), rate, number)
        return state.params

    @classmethod
    def examples(cls) -> tuple[GD, ...]:
        """Instances to test."""
        return (
            cls(lr=0.2, momentum=0.9, steps=5),
            cls(lr=0.2, steps=4, weight_decay=1e-2, schedule=Cosine(warmup=1), dtype=torch.float64),
            cls(lr=0.2, momentum=0.5, steps=3, init=LeCunNormal(seed=None), tile=4),
        )
