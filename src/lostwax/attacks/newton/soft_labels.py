"""Labels as unknown numbers: each record has a share of every class, for which training is solved, then one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from lostwax.attacks.newton.least_squares import Point
from lostwax.attacks.newton.set_problem import SetProblem, descend
from lostwax.attacks.newton.training_map import Problem, TrainingMap
from lostwax.games import Loss, Records
from lostwax.learning.coordinates import Coordinates


@dataclass(frozen=True)
class Mixed:
    """The mean loss over classes, each with a weight: y (..., n, classes)."""

    loss: Loss
    classes: tuple[int, ...]

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The loss of each record."""
        each = self.loss(*self._repeated(outputs))  # (..., n c)
        return (each.reshape(*outputs.shape[:-1], len(self.classes)) * y).sum(-1)

    def residual(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Its derivative by the outputs."""
        n, c, o = outputs.shape[-2], len(self.classes), outputs.shape[-1]
        each = self.loss.residual(*self._repeated(outputs)).reshape(*outputs.shape[:-2], n, c, o)
        return (each * y.unsqueeze(-1)).sum(-2)

    def label(self, outputs: Tensor, residual: Tensor) -> Tensor:
        """As that of the classes."""
        return self.loss.label(outputs, residual)

    def _repeated(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Each record with every class, (..., n c, outputs) and (n c,)."""
        label = torch.tensor(self.classes, device=outputs.device).repeat(outputs.shape[-2])
        return outputs.repeat_interleave(len(self.classes), -2), label


class Soft(NamedTuple):
    """Unknowns of k records, and the shares of their classes."""

    a: Tensor  # (k, r)
    shares: Tensor  # (k, c) of `classes`; each row sums to 1
    classes: tuple[int, ...]
    left: float  # of the residual: 0 where the release is nearly explained

    def labelled(self) -> tuple[Tensor, Tensor]:
        """Unknowns (k r,), sorted by class, and the classes (k,)."""
        label = torch.tensor(self.classes, device=self.shares.device)[self.shares.argmax(1)]
        order = label.argsort(stable=True)
        return self.a[order].flatten(), label[order]

    def ordered(self, label: Tensor) -> Tensor:
        """(k r,) the unknowns, in an order in which their classes are these (k,)."""
        places = [self.classes.index(one) for one in label.tolist()]
        _, rows = linear_sum_assignment(-self.shares[:, places].mT.cpu().numpy())
        return self.a[torch.from_numpy(rows).to(self.a.device)].flatten()


def soft_labels(sets: SetProblem, a: Tensor, classes: Sequence[int], free: int, jacobians: int) -> Soft:
    """Solve training for the classes of records a (k, r), and for the last `free` of the records themselves.

    From equal shares of all classes. The release has many more equations than there are shares.
    """
    k, r = a.shape
    span = sets.span
    assert span is not None  # it is what corners are found in
    c, inputs = len(classes), len(span.rows)
    if c == 1 and not free:  # nothing is unknown
        near = sets.near(a.flatten(), torch.tensor(classes, device=a.device).expand(k))
        return Soft(a, a.new_ones(k, 1), tuple(classes), 0.0 if near else 1.0)
    exact, quick = (_soft(part, tuple(classes)) for part in (sets.problem.exact, sets.problem.quick))
    a = torch.cat([a[k - free :], a[: k - free]])  # those that are free come first
    origin = torch.cat([a, torch.full_like(a[:, :1], span.constant), a.new_full((k, c), 1 / c)], 1)
    contrasts = torch.linalg.svd(torch.ones(1, c).to(a), full_matrices=True).Vh[1:]  # (c - 1, c) that sum to 0
    moves = a.new_zeros(free, r, k, inputs + c)
    shares = a.new_zeros(k, c - 1, k, inputs + c)
    for record in range(k):
        if record < free:
            moves[record, :, record, :r] = torch.eye(r)
        shares[record, :, record, inputs:] = contrasts
    directions = torch.cat([moves.view(free * r, origin.numel()), shares.view(k * (c - 1), origin.numel())])
    origin[:free, :r] = 0.0
    anywhere = torch.full_like(directions[:, 0], torch.inf)
    problem: Problem[Any] = Problem(exact, quick, Coordinates(origin.flatten(), directions, -anywhere, anywhere))
    start = torch.cat([a[:free].flatten(), a.new_zeros(k * (c - 1))])
    label = torch.zeros(k, dtype=torch.long, device=a.device)
    (point,) = problem.points(start[None], label[None], sets.released)
    inside = sets.inside._replace(records=free) if free else None

    def solved(here: Point) -> bool:
        """True if records of the likeliest classes nearly explain the release."""
        shares = problem.coordinates(here.a).view(k, inputs + c)[:, inputs:]
        label = torch.tensor(classes, device=a.device)[shares.argmax(1)]
        return sets.near(a.flatten(), label)

    stop = None if free else solved  # what is not a record yet explains nothing
    ended = descend(problem, inside, point, sets.released, jacobians, stop).point
    left = 0.0 if stop is not None and stop(ended) else ended.distance / max(point.distance, 1e-300)
    found = problem.coordinates(ended.a).view(k, inputs + c)
    return Soft(found[:, :r], found[:, inputs:], tuple(classes), left)


def _soft(weights: TrainingMap, classes: tuple[int, ...]) -> TrainingMap:
    trainer = replace(weights.trainer, loss=Mixed(weights.trainer.loss, classes))
    known = Records(weights.known.x, weights.known.x.new_zeros(0, len(classes)))
    return replace(weights, trainer=trainer, known=known)
