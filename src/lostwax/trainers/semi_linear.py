"""The semi-linear response: a record's own gradient where its model is, only the known records' answer linear.

Linear response fails first where a record is learnt: its gradient shrinks on the way. Here it is taken at
theta_t + delta_t, and the answer is still exact for the known records,

    <u, delta theta_T(z)> = sum_t <c_t(u), grad l(theta_t + delta_t, z)> / n.

Only the place delta_t is approximate: there the known records answer through the leading part of their Hessians,
H_t = Q^T (Q H_t Q^T) Q with the rows of Q an orthonormal basis of what the Hessians move most. So a record still costs
its own gradients, and two products with Q per step, whatever n is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lostwax.games import Records
from lostwax.seeds import generator
from lostwax.trainers.derivatives import each
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
        _, swept, weights = self.adjoints
        pushes = {step.number: weight * push for (step, push), weight in zip(swept, weights, strict=True)}
        like = swept[0][1]
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


def _own_slopes(base: BaseTrajectory, step: BaseStep, moved: State, records: Records) -> Params:
    """(m, ...) grad l(theta_t + delta_t, z) of each record z."""
    here = {name: value + moved.params[name] for name, value in step.state.params.items()}
    own = Batch((), ((records.inputs.unsqueeze(1), records.y.unsqueeze(1)),))
    with float32_products(base.trainer.tf32):
        return gradient(base.net, base.trainer.loss, here, own)
