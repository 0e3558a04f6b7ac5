"""The step with running moments that Adam and AdamW share."""

from __future__ import annotations

import math

import torch

from lostwax.trainers.descent import State
from lostwax.trainers.stacked import Params


def moments(params: Params) -> tuple[Params, ...]:
    """The buffers before the first step: both moments 0."""
    zeros = {name: torch.zeros_like(value) for name, value in params.items()}
    return zeros, zeros


def adapt(state: State, gradient: Params, lr: float, betas: tuple[float, float], eps: float, number: int) -> State:
    """torch.optim.Adam:  a = beta1 a + (1 - beta1) g,  b = beta2 b + (1 - beta2) g^2,

    theta = theta - lr a' / (sqrt(b') + eps),  with a' and b' divided by 1 - beta^(number + 1).
    """
    beta1, beta2 = betas
    first, second = state.buffers
    a = {name: torch.lerp(first[name], g, 1 - beta1) for name, g in gradient.items()}
    b = {name: torch.addcmul(beta2 * second[name], g, g, value=1 - beta2) for name, g in gradient.items()}
    rate = lr / (1 - beta1 ** (number + 1))
    scale = math.sqrt(1 - beta2 ** (number + 1))
    moved = {
        name: torch.addcdiv(value, a[name], _root(b[name]) / scale + eps, value=-rate)
        for name, value in state.params.items()
    }
    return State(moved, (a, b))


def _root(b: torch.Tensor) -> torch.Tensor:
    """sqrt(b), its derivative 0 and not infinite at b = 0: a pixel that is always black moves no weight."""
    return b.clamp_min(torch.finfo(b.dtype).tiny).sqrt()
