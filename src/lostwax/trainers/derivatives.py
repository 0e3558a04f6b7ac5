"""Derivatives of training with respect to a model's own records."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from lostwax.games import Cohort, Records
from lostwax.trainers.descent import Descent
from lostwax.trainers.fused.mlp import MLPTangent
from lostwax.trainers.stacked import Architecture, Batch, Params, gradient
from lostwax.trainers.stepwise import State, float32_products


def quick_tangents(trainer: Descent, net: nn.Module, cohort: Cohort, directions: Tensor) -> Tensor | None:
    """(r, p) the jvp of `trainer.differentiable` along directions (r, k, ...), to rounding; None without a kernel."""
    device, dtype = cohort.own.inputs.device, trainer.computes_in(net)
    ours = Architecture.of(net, device, dtype)
    push = MLPTangent.of(ours, trainer.loss, dtype)
    if push is None or device.type != "cuda" or find_spec("triton") is None:
        return None
    return pushed(trainer, ours, push, cohort, directions)


def pushed(trainer: Descent, net: Architecture, push: MLPTangent, cohort: Cohort, directions: Tensor) -> Tensor:
    """The same with a given kernel."""
    r = len(directions)
    moved_own = Records(directions, cohort.own.y.expand(r, *cohort.own.y.shape[1:]))
    moved_cohort = Cohort(cohort.shared, moved_own, cohort.index.expand(r))  # batches use the same positions of both
    state = trainer._start(net, cohort, 0)
    moved = each(state, lambda value: value.new_zeros(r, *value.shape[1:]))  # the start does not depend on the records
    steps = trainer.batches.steps(cohort.records)
    batches = (trainer.batches(training_sets, seed=0) for training_sets in (cohort, moved_cohort))
    for number, (batch, moved_batch) in enumerate(zip(*batches, strict=True)):
        with float32_products(trainer.tf32):
            gradient, moved_gradient = push(state.params, moved.params, batch, moved_batch)
        lr = trainer.lr * trainer.schedule(number, steps)
        state, moved = stepped(trainer, (state, gradient), (moved, moved_gradient), lr, number)
    return torch.cat([value.flatten(1) for value in moved.params.values()], 1)


def each(state: State, change: Callable[[Tensor], Tensor]) -> State:
    """The same change of every tensor of a state."""
    params, *buffers = (
        {name: change(value) for name, value in part.items()} for part in (state.params, *state.buffers)
    )
    return State(params, tuple(buffers))


def stepped(
    trainer: Descent, at: tuple[State, Params], moved: tuple[State, Params], lr: float, number: int
) -> tuple[State, State]:
    """The optimiser's step, and its derivative along all directions."""

    def update(state: State, gradient: Params) -> State:
        return trainer.update(state, gradient, lr, number)

    def along(state: State, gradient: Params) -> State:
        direction = (
            each(state, lambda value: value.unsqueeze(0)),
            {name: g.unsqueeze(0) for name, g in gradient.items()},
        )
        tangent: State = torch.func.jvp(update, at, direction)[1]
        return tangent

    after = update(*at)
    if trainer.linear_update:  # its own derivative
        return after, update(*moved)
    tangents: State = torch.func.vmap(along)(*moved)
    return after, each(tangents, lambda value: value.squeeze(1))  # (r, 1, ...) -> (r, ...)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence a deprecation warning that torch's own forward-mode rules raise."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*torch.jit.script.*", category=FutureWarning)
        yield


def own_slopes(trainer: Descent, net: nn.Module, cohort: Cohort, *, seed: int) -> Iterator[Params]:
    """d loss(secret) / d parameters before every step, (m, ...); with several secrets, of their mean loss."""
    secret_records = cohort.own.to(trainer.computes_in(net))
    ours = Architecture.of(net, secret_records.inputs.device, trainer.computes_in(net))
    secrets = Batch(shared=(), own=((secret_records.inputs, secret_records.y),))  # (m, k, ...)
    for step in trainer.transcript(net, cohort, seed=seed):
        yield gradient(ours, trainer.loss, dict(step.params), secrets)
