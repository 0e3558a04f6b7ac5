"""The semi-linear response: a record's own gradient where its model is, only the known records' answer linear.

Linear response fails first where a record is learnt: its gradient shrinks on the way. Here it is taken at
theta_t + delta_t, and the answer is still exact for the known records,

    <u, delta theta_T(z)> = sum_t <c_t(u), grad l(theta_t + delta_t, z)> / n.

Only the place delta_t is approximate: there the known records answer through the leading part of their Hessians,
H_t = Q^T (Q H_t Q^T) Q with the rows of Q an orthonormal basis of what the Hessians move most. So a record still costs
its own gradients, and two products with Q per step, whatever n is. Of a small net the whole Hessians fit in memory:
delta_T is then followed itself, and no c_t are needed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lostwax.games import Records
from lostwax.seeds import generator
from lostwax.trainers.derivatives import each, quiet
from lostwax.trainers.linear_response import (
    GRADIENT_NUMBERS,
    Adjoints,
    BaseStep,
    BaseTrajectory,
    as_inputs,
    flat,
    rows_of,
)
from lostwax.trainers.stacked import Batch, Params, gradient
from lostwax.trainers.stepwise import State, float32_products

SAMPLED_STEPS = 4  # whose Hessians choose the basis
ROUNDS = 2  # of the power iteration


class LeadingHessians(NamedTuple):
    """The leading part of the known records' Hessian at every step."""

    basis: Tensor  # (q, p) orthonormal rows
    answers: Tensor  # (t, q, q) Q H_t Q^T

    @classmethod
    def of(cls, base: BaseTrajectory, rank: int, *, seed: int = 0) -> LeadingHessians:
        """By power iteration from random directions (Halko, Martinsson and Tropp 2011); costs rank products a step."""
        like = flat(base.end)
        rank = min(rank, like.shape[1])
        drawn = generator(seed, "leading Hessians").standard_normal((rank, like.shape[1]))
        basis = torch.from_numpy(drawn).to(like)
        steps = np.unique(np.linspace(0, len(base.schedule) - 1, SAMPLED_STEPS).round()).tolist()
        for _ in range(ROUNDS):
            answers = [_answer(base, step, basis) for step in base.steps() if step.number in steps]
            basis = torch.linalg.svd(torch.cat(answers), full_matrices=False).Vh[:rank]
        return cls(basis, torch.stack([_answer(base, step, basis) @ basis.mT for step in base.steps()]))

    def __call__(self, step: BaseStep, directions: Tensor) -> Tensor:
        """H_t d of directions d (m, p), approximately."""
        return (directions @ self.basis.mT) @ self.answers[step.number] @ self.basis


def _answer(base: BaseTrajectory, step: BaseStep, directions: Tensor) -> Tensor:
    return flat(base.known_answer(step, base.shaped(directions)))


class SemiLinear(NamedTuple):
    """Semi-linear responses in the directions of the adjoints."""

    adjoints: Adjoints
    hessians: LeadingHessians

    @property
    def form(self) -> str:
        """In words."""
        return "Semi-linear response"

    def __call__(self, records: Records) -> Tensor:
        """(m, r) <u, delta theta_T(z)> of m records z."""
        base = self.adjoints.base
        records = as_inputs(records, base.kept[0])
        some = rows_of(GRADIENT_NUMBERS, self.hessians.basis, self.hessians.basis.shape[1])
        rows = torch.split(torch.arange(len(records), device=records.y.device), some)
        return torch.cat([self._some(base, records[part]) for part in rows])

    def tangents(self, records: Records, directions: Records) -> Tensor:
        """(m, k, r) as the adjoints', with a record's gradient along the base trajectory."""
        return self.adjoints.tangents(records, directions)

    def along(self, kept: Tensor) -> SemiLinear:
        """Some of the directions."""
        return self._replace(adjoints=self.adjoints.along(kept))

    def _some(self, base: BaseTrajectory, records: Records) -> Tensor:
        swept = self.adjoints.swept
        pushes, like = {step.number: push for step, push in swept}, swept[0][1]
        total = like.new_zeros(len(records), len(like))
        moved = each(base.kept[0], lambda value: value.new_zeros(len(records), *value.shape[1:]))
        for step in base.steps():
            answer = self.hessians(step, flat(moved.params))
            if step.secret:
                own = flat(_own_slopes(base, step, moved, records))
                if step.number in pushes:
                    total += own @ pushes[step.number].mT
                answer = answer + own / step.size
            moved = base.moved(step, moved, base.shaped(answer))
        return total


class EveryWeight(NamedTuple):
    """Semi-linear responses with the whole Hessians, t p^2 numbers; their tangents are semi-linear too."""

    base: BaseTrajectory
    hessians: Tensor  # (t, p, p) of the known records at every step
    directions: Tensor  # (r, p)

    @classmethod
    def of(cls, base: BaseTrajectory, directions: Tensor) -> EveryWeight:
        """In these directions (r, p); costs p Hessian products a step."""
        every = torch.eye(directions.shape[1]).to(directions)
        return cls(base, torch.stack([_answer(base, step, every) for step in base.steps()]), directions)

    @property
    def form(self) -> str:
        """In words."""
        return "Semi-linear response"

    def __call__(self, records: Records) -> Tensor:
        """(m, r) <u, delta theta_T(z)> of m records z."""
        records = as_inputs(records, self.base.kept[0])
        some = rows_of(GRADIENT_NUMBERS, self.directions, self.directions.shape[1])
        rows = torch.split(torch.arange(len(records), device=records.y.device), some)
        return torch.cat([self._followed(records[part]) @ self.directions.mT for part in rows])

    def tangents(self, records: Records, directions: Records) -> Tensor:
        """(m, k, r) the derivatives of <u, delta theta_T(z)> at m records z, along k directions of z."""
        records, directions = (as_inputs(part, self.base.kept[0]) for part in (records, directions))
        numbers = records.y.is_floating_point()

        def along(x: Tensor, y: Tensor, dx: Tensor, dy: Tensor) -> Tensor:
            def delta(x: Tensor, y: Tensor = y) -> Tensor:
                return self._followed(Records(x.unsqueeze(0), y.unsqueeze(0)))[0]

            at, by = ((x, y), (dx, dy)) if numbers else ((x,), (dx,))
            tangent: Tensor = torch.func.jvp(delta, at, by)[1]
            return tangent

        some = rows_of(GRADIENT_NUMBERS, self.directions, self.directions.shape[1])
        each_way = torch.func.vmap(along, (None, None, 0, 0), chunk_size=some)
        each_record = torch.func.vmap(each_way, (0, 0, None, None), chunk_size=max(1, some // len(directions)))
        with quiet():
            found: Tensor = each_record(records.inputs, records.y, directions.inputs, directions.y)
        return found @ self.directions.mT

    def along(self, kept: Tensor) -> EveryWeight:
        """Some of the directions."""
        return self._replace(directions=self.directions[kept])

    def _followed(self, records: Records) -> Tensor:
        """(m, p) delta theta_T of each record."""
        moved = each(self.base.kept[0], lambda value: value.new_zeros(len(records), *value.shape[1:]))
        for step in self.base.steps():
            with float32_products(self.base.trainer.tf32):
                answer = flat(moved.params) @ self.hessians[step.number]
            if step.secret:
                answer = answer + flat(_own_slopes(self.base, step, moved, records)) / step.size
            moved = self.base.moved(step, moved, self.base.shaped(answer))
        return flat(moved.params)


def _own_slopes(base: BaseTrajectory, step: BaseStep, moved: State, records: Records) -> Params:
    """(m, ...) grad l(theta_t + delta_t, z) of each record z."""
    here = {name: value + moved.params[name] for name, value in step.state.params.items()}
    own = Batch((), ((records.inputs.unsqueeze(1), records.y.unsqueeze(1)),))
    with float32_products(base.trainer.tf32):
        return gradient(base.net, base.trainer.loss, here, own)
