"""The heavy-ball step that GD and SGD share."""

from __future__ import annotations

import torch

from lostwax.trainers.stacked import Params
from lostwax.trainers.stepwise import State


def velocity(params: Params, momentum: float) -> tuple[Params, ...]:
    """The buffers before the first step: v = 0, or none without momentum."""
    return ({name: torch.zeros_like(value) for name, value in params.items()},) if momentum else ()


def descend(state: State, gradient: Params, lr: float, momentum: float, weight_decay: float) -> State:
    """torch.optim.SGD:  g = gradient + weight_decay theta,  v = momentum v + g,  theta = theta - lr v."""
    params, direction = state.params, gradient
    if weight_decay:
        direction = {name: torch.add(g, params[name], alpha=weight_decay) for name, g in direction.items()}
    if state.buffers:
        (v,) = state.buffers
        direction = {name: torch.add(g, v[name], alpha=momentum) for name, g in direction.items()}
    moved = {name: torch.sub(params[name], d, alpha=lr) for name, d in direction.items()}
    return State(moved, (direction,) if state.buffers else ())
