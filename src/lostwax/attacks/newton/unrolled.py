"""Products with the Jacobian of training that never form it, forward and in reverse, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.attacks.newton.training_map import TrainingMap, quiet
from lostwax.trainers.stacked import Architecture, Batch, Params
from lostwax.trainers.stepwise import State

Own = tuple[Tensor, ...]  # what of a step's own records is unknown: inputs (m, b, ...), labels if they are numbers


class Unrolled(NamedTuple):
    """The training of m games, kept step by step.

    A step depends on the state before it and on the records of its batch. Forward, a tangent is pushed through one step
    after the other; in reverse, a cotangent is pulled back through them from the last to the first. Only states are
    kept: what happens inside a step is computed again, so memory does not grow with the number of steps times that of
    records.
    """

    weights: TrainingMap
    net: Architecture
    z: Tensor  # (m, u)
    label: Tensor  # (m, k), of classes
    batches: tuple[Batch, ...]
    states: tuple[State, ...]  # before each step, and after the last

    @classmethod
    def of(cls, weights: TrainingMap, z: Tensor, label: Tensor) -> Unrolled:
        """Train on each row of z."""
        trainer, z = weights.trainer, z.to(weights.known.x.dtype)
        net = Architecture.of(weights.net, z.device, z.dtype)
        start = trainer.init(weights.net, [0] * len(z), seed=0)
        params = {name: value.to(z).contiguous() for name, value in start.items()}
        batches = _batches(weights, z, label)
        states = [State(params, trainer.buffers(params))]
        for number, batch in enumerate(batches):
            states.append(trainer.step(net, states[-1], batch, number, len(batches))[0])
        return cls(weights, net, z, label, batches, tuple(states))

    def forward(self, directions: Tensor) -> Tensor:
        """J v of each game, (m, u) -> (m, p)."""
        with quiet():
            unknown, towards, *_ = torch.func.jvp(self._unknown, (self.z,), (directions.to(self.z),))
            moved = State(*_zeros(self.states[0]))
            for number, state in enumerate(self.states[:-1]):
                at, by = (state, unknown[number]), (moved, towards[number])
                _, moved, *_ = torch.func.jvp(self._step(number), at, by)
        return self.weights.in_units(torch.cat([value.flatten(1) for value in moved.params.values()], 1))

    def backward(self, cotangents: Tensor) -> Tensor:
        """J^T w of each game, (m, p) -> (m, u)."""
        unknown, pull, *_ = torch.func.vjp(self._unknown, self.z)
        params, buffers = _zeros(self.states[-1])
        sizes = [value[0].numel() for value in params.values()]
        parts = torch.split(self.weights.in_units(cotangents.to(self.z)), sizes, 1)  # units are a diagonal matrix
        params = {name: part.view_as(params[name]) for name, part in zip(params, parts, strict=True)}
        back, slopes = State(params, buffers), list(unknown)
        for number in reversed(range(len(self.batches))):
            _, pull_step, *_ = torch.func.vjp(self._step(number), self.states[number], unknown[number])
            back, slopes[number] = pull_step(back)
        slope: Tensor = pull(tuple(slopes))[0]
        return slope

    def _unknown(self, z: Tensor) -> tuple[Own, ...]:
        """Each step's share of z. Linear: a step picks records."""
        numbers = self.weights.known.y.is_floating_point()
        batches = _batches(self.weights, z, self.label)
        return tuple(tuple(part for x, y in batch.own for part in ((x, y) if numbers else (x,))) for batch in batches)

    def _step(self, number: int) -> Callable[[State, Own], State]:
        batch = self.batches[number]

        def step(state: State, own: Own) -> State:
            records = tuple((own[0], own[1] if len(own) > 1 else y) for _, y in batch.own)
            trainer, steps = self.weights.trainer, len(self.batches)
            return trainer.step(self.net, state, Batch(batch.shared, records), number, steps)[0]

        return step


def _batches(weights: TrainingMap, z: Tensor, label: Tensor) -> tuple[Batch, ...]:
    return tuple(weights.trainer.batches(weights.cohort(z, label), seed=0))


def _zeros(state: State) -> tuple[Params, tuple[Params, ...]]:
    """As large as the state."""
    params, *buffers = ({name: torch.zeros_like(v) for name, v in part.items()} for part in (state[0], *state[1]))
    return params, tuple(buffers)
