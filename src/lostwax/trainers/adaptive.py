"""What Adam and AdamW share: steps scaled by running moments of the gradient (Kingma and Ba 2015)."""

from __future__ import annotations

import math
from abc import ABC
from dataclasses import dataclass

import torch
from torch import Tensor

from lostwax.trainers.batches import Batches
from lostwax.trainers.descent import Descent
from lostwax.trainers.stacked import Params
from lostwax.trainers.stepwise import State
from lostwax.types.fields import Range, above, at_least, between


@dataclass(frozen=True, kw_only=True)
class Adaptive(Descent, ABC):
    """All records at once unless `batch_size` is set.

    `order_seed` is public: with an int everybody knows the order of the batches and all models share it, with None
    each model draws its own.
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    batch_size: int | None = None
    epochs: int = 100
    order_seed: int | None = 0

    def _ranges(self) -> dict[str, Range]:
        return {"betas": between(0, 1, "[)"), "eps": above(0), "batch_size": at_least(1), "epochs": at_least(1)}

    @property
    def batches(self) -> Batches:
        """All records at once, or batches of `batch_size`."""
        return Batches(epochs=self.epochs, size=self.batch_size, order_seed=self.order_seed)

    def buffers(self, params: Params) -> tuple[Params, ...]:
        """Running means of the gradient and of its square, both 0."""
        zeros = {name: torch.zeros_like(value) for name, value in params.items()}
        return zeros, zeros

    def adapt(self, state: State, gradient: Params, lr: float, number: int) -> State:
        """torch.optim.Adam:  a = beta1 a + (1 - beta1) g,  b = beta2 b + (1 - beta2) g^2,

        theta = theta - lr a' / (sqrt(b') + eps),  with a' and b' divided by 1 - beta^(number + 1).
        """
        beta1, beta2 = self.betas
        first, second = state.buffers
        a = {name: torch.lerp(first[name], g, 1 - beta1) for name, g in gradient.items()}
        b = {name: torch.addcmul(beta2 * second[name], g, g, value=1 - beta2) for name, g in gradient.items()}
        rate = lr / (1 - beta1 ** (number + 1))
        scale = math.sqrt(1 - beta2 ** (number + 1))
        moved = {
            name: torch.addcdiv(value, a[name], _root(b[name]) / scale + self.eps, value=-rate)
            for name, value in state.params.items()
        }
        return State(moved, (a, b))


def _root(b: Tensor) -> Tensor:
    """sqrt(b), its derivative 0 and not infinite at b = 0: a pixel that is always black moves no weight."""
    return b.clamp_min(torch.finfo(b.dtype).tiny).sqrt()
