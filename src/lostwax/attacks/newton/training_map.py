"""Training as a function of the secret records, with its derivatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.games import Cohort, Records
from lostwax.shadows.linear_response import Responses
from lostwax.trainers.descent import Descent, quick_tangents, quiet
from lostwax.trainers.stacked import Architecture, Batch, Params
from lostwax.trainers.stepwise import State

Own = tuple[Tensor, ...]  # the unknown part of a step's secret records: inputs (m, b, ...), labels if they are numbers


class Unrolled(NamedTuple):
    """The training of m games step by step: products with its Jacobian that never form it.

    Only the states between steps are stored (checkpointing), so memory does not grow with steps times records.
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
    """Of the shapes of the state."""
    params, *buffers = ({name: torch.zeros_like(v) for name, v in part.items()} for part in (state[0], *state[1]))
    return params, tuple(buffers)


SMOOTH = 0.1  # relative difference allowed between a finite difference and its tangent


@dataclass(frozen=True, eq=False)
class TrainingMap:
    """(z, label) -> A(z): the flat parameters after training on the known records and k secrets.

    z holds the u numbers of the k records, one record after the other, each followed by its label if that is a number.
    Parameters are divided by `units`, those of a defence's noise, to weight each by its precision. With `responses`
    they are seen in some directions only, r numbers instead of p, and tangents are those of the linear response; where
    models are not `trained`, so are the weights.
    """

    net: nn.Module
    trainer: Descent
    known: Records
    secrets: int = 1  # k
    units: Tensor | None = None  # (p,) of the parameters; None: 1
    responses: Responses | None = None
    trained: bool = True

    @property
    def numbers(self) -> int:
        """d, the numbers of one record without its label."""
        return self.known.x.shape[1:].numel()

    @property
    def unknowns(self) -> int:
        """u, the size of z."""
        y = self.known.y
        return self.secrets * (self.numbers + (y.shape[1:].numel() if y.is_floating_point() else 0))

    @property
    def together(self) -> int:
        """Number of models computed at a time."""
        device = self.known.x.device
        z, label = torch.zeros(1, self.unknowns, device=device), torch.zeros(1, self.secrets, dtype=torch.long)
        return self.trainer.tile_size(self.net, self.cohort(z, label.to(device)))

    def computed_in(self, dtype: torch.dtype, *, tf32: bool = False) -> TrainingMap:
        """The same map in other arithmetic."""
        trainer = replace(self.trainer, dtype=dtype, tf32=tf32)
        return replace(self, trainer=trainer, known=self.known.to(dtype))

    def __call__(self, z: Tensor, label: Tensor) -> Tensor:
        """(m, u) and classes (m, k) -> (m, p), m models trained at once."""
        if self.responses is not None and not self.trained:
            return self.responses(self._secret(z, label))
        return self.in_units(self.trainer(self.net, self.cohort(z, label), seed=0).flat())

    def in_units(self, parameters: Tensor) -> Tensor:
        """Parameters of models (..., p) as they are compared; without responses, also differences of them."""
        if self.responses is not None:
            return self.responses.access.reduced(parameters)
        return parameters if self.units is None else parameters / self.units.to(parameters)

    def tangents(self, z: Tensor, label: Tensor, directions: Tensor) -> Tensor:
        """dA / dz at one z (u,) of classes (k,), along directions (r, u), in forward mode: (p, r).

        They are batched like shadow models: each costs about one training, and by responses one record's gradients.
        """
        if self.responses is not None:
            return self.responded(z[None], label[None], self.responses, directions)[0]
        at = z.to(self.known.x.dtype)
        with quiet():
            quick = self._quick_tangents(z, label, directions.to(at))
        if quick is not None:
            return self.in_units(quick).mT

        def along(direction: Tensor) -> Tensor:
            moved: Tensor = torch.func.jvp(partial(self._weights, label=label), (at,), (direction,))[1]
            return moved

        with quiet():
            tangents: Tensor = torch.func.vmap(along, chunk_size=self.together)(directions.to(at))  # (r, p)
        return self.in_units(tangents).mT

    def _quick_tangents(self, z: Tensor, label: Tensor, directions: Tensor) -> Tensor | None:
        if self.known.y.is_floating_point():
            return None
        moved = directions.view(len(directions), self.secrets, *self.known.x.shape[1:])
        return quick_tangents(self.trainer, self.net, self.cohort(z[None], label[None]), moved)

    def _weights(self, z: Tensor, label: Tensor) -> Tensor:
        return self.trainer.differentiable(self.net, self.cohort(z[None], label[None]), seed=0).flat()[0]

    def smooth(self, z: Tensor, label: Tensor, direction: Tensor) -> bool:
        """True if a central difference along `direction` (u,) at z (u,) agrees with the tangent: no kinks nearby."""
        tangent = self.tangents(z, label, direction.unsqueeze(0))[:, 0]  # (p,)
        ahead, behind = self(torch.stack([z + direction, z - direction]), label.expand(2, -1))
        return bool(((ahead - behind) / 2 - tangent).norm() <= SMOOTH * tangent.norm())

    def responded(self, z: Tensor, label: Tensor, responses: Responses, directions: Tensor) -> Tensor:
        """(g, p, r) the same at many z (g, u) of classes (g, k), by responses."""
        towards = self._secret(directions, label[:1].expand(len(directions), -1))
        return responses.tangents(self._secret(z, label), towards).mT

    def _secret(self, z: Tensor, label: Tensor) -> Records:
        """(m, ...) the one secret of each row."""
        own = self.cohort(z, label).own
        return Records(own.x[:, 0], own.y[:, 0])

    def cohort(self, z: Tensor, label: Tensor) -> Cohort:
        """Each row of z as the secrets of a model. All are model 0: nothing in their training is private."""
        m, k, d = len(z), self.secrets, self.numbers
        numbers = z.to(self.known.x.dtype).reshape(m, k, -1)
        y = numbers[..., d:].reshape(m, k, *self.known.y.shape[1:]) if self.known.y.is_floating_point() else label
        own = Records(numbers[..., :d].reshape(m, k, *self.known.x.shape[1:]), y)
        return Cohort(self.known, own, torch.zeros(m, dtype=torch.long, device=z.device))
