"""Training as a function of the secret records, with its derivatives; how a release is made; the inverse problem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.attacks.least_squares import MAX_TABLE_NUMBERS, Dense, Linearised, Point, Rule, S
from lostwax.defences import undefended
from lostwax.games import Cohort, Records, Release, Trainer
from lostwax.learning.coordinates import Coordinates
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
        batches = tuple(trainer.batches(weights.cohort(z, label), seed=0))
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
        batches = self.weights.trainer.batches(self.weights.cohort(z, self.label), seed=0)
        return tuple(tuple(part for x, y in batch.own for part in ((x, y) if numbers else (x,))) for batch in batches)

    def _step(self, number: int) -> Callable[[State, Own], State]:
        batch = self.batches[number]

        def step(state: State, own: Own) -> State:
            records = tuple((own[0], own[1] if len(own) > 1 else y) for _, y in batch.own)
            trainer, steps = self.weights.trainer, len(self.batches)
            return trainer.step(self.net, state, Batch(batch.shared, records), number, steps)[0]

        return step


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
        at, tangents = z.to(self.known.x.dtype), None  # (r, p)
        directions = directions.to(at)

        def weights(z: Tensor) -> Tensor:
            return self.trainer.differentiable(self.net, self.cohort(z[None], label[None]), seed=0).flat()[0]

        with quiet():
            if not self.known.y.is_floating_point():
                moved = directions.view(len(directions), self.secrets, *self.known.x.shape[1:])
                tangents = quick_tangents(self.trainer, self.net, self.cohort(z[None], label[None]), moved)
            if tangents is None:
                along = partial(torch.func.jvp, weights, (at,))
                tangents = torch.func.vmap(lambda v: along((v,))[1], chunk_size=self.together)(directions)
        return self.in_units(tangents).mT

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


class Published(NamedTuple):
    """How the owner makes a release: training, its arithmetic and its defences."""

    trainer: Trainer
    seed: int  # the adversary's: its noise has the size of the victim's, but other values

    @property
    def defended(self) -> bool:
        """True if a defence changes the weights after training."""
        return undefended(self.trainer) is not self.trainer

    def units(self, exact: TrainingMap, z: Tensor, label: Tensor) -> Tensor:
        """(p,) the defence's noise on each weight: the root mean square over its tensor, or at least rounding.

        Measured on models trained on z (m, u), each with its own noise.
        """
        ideal, released = (models.params for models in self._both(exact, z, label))
        least = torch.finfo(torch.float64).eps * torch.cat([value.double().flatten() for value in ideal.values()])
        units = [
            (released[name].double() - value.double()).square().mean().sqrt().nan_to_num(0.0).expand(value[0].numel())
            for name, value in ideal.items()
        ]
        return torch.cat(units).clamp_min(float(least.square().mean().sqrt().nan_to_num(1.0)))

    def simulated(self, exact: TrainingMap, z: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """(m, p) models trained on z (m, u), and the defence's noise on each."""
        ideal, released = (exact.in_units(models.flat().double()) for models in self._both(exact, z, label))
        return ideal, released - ideal

    def _both(self, exact: TrainingMap, z: Tensor, label: Tensor) -> tuple[Release, Release]:
        """Models trained on z (m, u) in float64, and as they would be released, each with its own noise."""
        cohort = replace(exact.cohort(z, label), index=torch.arange(len(z), device=z.device))
        return exact.trainer(exact.net, cohort, seed=self.seed), self.trainer(exact.net, cohort, seed=self.seed)

    def rounding(self, exact: TrainingMap, z: Tensor, label: Tensor) -> Tensor:
        """(g,) distance of models trained on z (g, u), as released, from training in float64; at least its rounding."""
        cohort, ideal = exact.cohort(z, label), exact(z, label)
        as_released = exact.in_units(self.trainer(exact.net, cohort, seed=self.seed).flat().double())
        steps = exact.trainer.batches.steps(cohort.records)
        own = torch.finfo(torch.float64).eps * steps**0.5 * ideal.norm(dim=1)  # steps that round independently
        return torch.maximum((as_released - ideal).norm(dim=1), own)


CHANGED = 0.5  # of how far a direction moves the weights: the most by which it may differ, which doubles an error
GOOD, NEARLY = 0.3, 2  # as in `Rule`
POLISHING = Rule((1e-12, 1e-3, 1e-1, 1.0, 10.0), stalled=0.99, good=GOOD, nearly=NEARLY)
CAREFUL = Rule((1e-3, 1e-1, 1.0), stalled=0.99)  # of a first step, from far away


@dataclass(frozen=True, eq=False)
class Problem(Dense[S]):
    """The map from records to released parameters: residuals by `exact`, in float64, Jacobians by `quick`."""

    exact: TrainingMap
    quick: TrainingMap
    coordinates: Coordinates

    def linear(self, a: Tensor, label: Tensor) -> Linearised:
        """At one record."""
        return Linearised.of(self.quick.tangents(self.coordinates(a), label, self.coordinates.directions))

    def exact_tangents(self, a: Tensor, label: Tensor) -> Tensor:
        """(p, r) the Jacobian in float64."""
        return self.exact.tangents(self.coordinates(a), label, self.coordinates.directions)

    def moves(self, point: Point, along: Tensor, expected: Tensor) -> bool:
        """True if directions (w, r) move the weights at this point as a Jacobian of one nearby expects, (p, w).

        What the weights do not see at an answer at all, they see weakly nearby: so its weakest directions show it.
        """
        tangents = self.exact.tangents(self.coordinates(point.a), point.label, along @ self.coordinates.directions)
        return bool(((tangents.double() - expected).norm(dim=0) <= CHANGED * expected.norm(dim=0)).all())

    def linears(self, points: Sequence[Point]) -> list[Linearised]:
        """At the record of each point; together where they come from a linear response."""
        if not points or (responses := self.quick.responses) is None:
            return [self.linear(point.a, point.label) for point in points]
        z = self.coordinates(torch.stack([point.a for point in points]))
        label, along = torch.stack([point.label for point in points]), self.coordinates.directions
        rows = max(1, MAX_TABLE_NUMBERS // (len(responses.access.directions) * len(along)))
        parts = zip(torch.split(z, rows), torch.split(label, rows), strict=True)
        return [Linearised.of(each) for part in parts for each in self.quick.responded(*part, responses, along)]

    def points(self, a: Tensor, label: Tensor, released: Tensor) -> list[Point]:
        """At records (g, r) of classes (g, k), one per release (g, p)."""
        residuals = self.exact(self.coordinates(a), label) - released
        return [Point(*each) for each in zip(a, label, residuals, strict=True)]

    def residuals(self, searches: Sequence[S], tried: Tensor) -> Tensor:
        """(g, f, p) of models trained on the records with these unknowns (g, f, r)."""
        labels = torch.stack([search.point.label for search in searches]).repeat_interleave(tried.shape[1], 0)
        trained = self.exact(self.coordinates(tried.flatten(0, 1)), labels).double()  # (g f, p)
        return trained.view(*tried.shape[:2], -1) - torch.stack([search.released for search in searches]).unsqueeze(1)

    def linearise(self, searches: Sequence[S]) -> None:
        """Compute the Jacobian of each search at its point."""
        for search, linear in zip(searches, self.linears([search.point for search in searches]), strict=True):
            search.linear, search.jacobians, search.fresh = linear, search.jacobians + 1, True

    def quadratic(self, search: S) -> tuple[Tensor, Tensor, Tensor | float]:
        """|J s + residual|^2,  damped in units of the largest curvature."""
        normal, slope = search.linear.normal, search.linear.jacobian.double().mT @ search.point.residual
        return normal, slope, normal.diagonal().amax()

    @property
    def bounds(self) -> tuple[Tensor, Tensor] | None:
        """Those of the coordinates."""
        low, high = self.coordinates.low, self.coordinates.high
        return (low, high) if low.isfinite().any() or high.isfinite().any() else None
