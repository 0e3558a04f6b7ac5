"""Adam (Kingma and Ba 2015)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch

from lostwax.inits import LeCunNormal
from lostwax.schedules import Linear
from lostwax.trainers.adaptive import adapt, moments
from lostwax.trainers.batches import Batches
from lostwax.trainers.descent import Descent, State
from lostwax.trainers.stacked import Params


@final
@dataclass(frozen=True, kw_only=True)
class Adam(Descent):
    """Steps scaled by running moments of the gradient; weight decay is added to the gradient.

    All records at once unless `batch_size` is set. `order_seed` is public: with an int everybody knows the
    order of the batches and all models share it, with None each model draws its own.
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    batch_size: int | None = None
    epochs: int = 100
    order_seed: int | None = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._expect("betas", "two numbers in [0, 1)", len(self.betas) == 2 and all(0 <= b < 1 for b in self.betas))
        self._expect("eps", "> 0", self.eps > 0)
        self._expect("batch_size", ">= 1, or None", self.batch_size is None or self.batch_size >= 1)
        self._expect("epochs", ">= 1", self.epochs >= 1)

    @property
    def batches(self) -> Batches:
        """All records at once, or batches of `batch_size`."""
        return Batches(epochs=self.epochs, size=self.batch_size, order_seed=self.order_seed)

    def buffers(self, params: Params) -> tuple[Params, ...]:
        """Running means of the gradient and of its square."""
        return moments(params)

    def update(self, state: State, gradient: Params, lr: float, number: int) -> State:
        """As torch.optim.Adam."""
        if self.weight_decay:
            gradient = {name: torch.add(g, state.params[name], alpha=self.weight_decay) for name, g in gradient.items()}
        return adapt(state, gradient, lr, self.betas, self.eps, number)

    @classmethod
    def examples(cls) -> tuple[Adam, ...]:
        """Instances to test."""
        return (
            cls(lr=1e-2, epochs=4, weight_decay=1e-2, dtype=torch.float64),
            cls(lr=1e-2, epochs=2, batch_size=4, schedule=Linear()),
            cls(lr=1e-2, epochs=2, batch_size=5, order_seed=None, init=LeCunNormal(seed=None), tile=4),
        )
