"""The optimum of an objective with an L1 penalty: Newton's method on the weights that are not zero.

At the optimum the gradient g of the smooth part is -l1 sign(w) for each weight w that is not zero, and |g| <= l1 for
all others. Within one orthant the objective is smooth: Newton steps minimise it there, and a weight that reaches zero
stays there. Then weights whose |g| exceeds l1 are freed, and the search goes on (the active-set method of Lee et al.
2006, "Efficient sparse coding algorithms").
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import NamedTuple

import torch
from torch import Tensor

from lostwax.games import Loss, Records, Stationary
from lostwax.games.fitted import curvature_times

FREEING_ROUNDS = 200  # in which weights are freed
STEPS_PER_ROUND = 100  # per round
DAMPING = 1e-13  # of each diagonal entry: flat directions (softmax shifts, collinear columns) do not move
NEARLY = 100  # times its rounding error: a slope that counts as zero if no step makes it smaller
VISIBLE = 1e3  # times the rounding error of the objective: a decrease that shows in its value
SHORTEST = 1e-9  # of a Newton step


class Polished(NamedTuple):
    """The model at its optimum; `converged` is False if there is none."""

    model: Stationary
    converged: bool
    iterations: int


def sparse_optimum(model: Stationary, table: Records, weight: Tensor) -> Polished:
    """Minimise from the model's own weights; the result keeps only the weights that the optimum needs."""
    problem = _Orthant.of(model, table, weight)
    theta = problem.start
    signs, free = theta.sign(), ((theta != 0) | (problem.l1 == 0)) & ~problem.dropped
    iterations = 0
    for _ in range(FREEING_ROUNDS):
        theta, signs, free, converged, steps = _minimise(problem, theta, signs, free)
        iterations += steps
        gradient, noise = problem.gradient(theta), problem.rounding(theta)
        beyond = torch.where(free | problem.dropped, -torch.inf, (gradient.abs() - problem.l1) / noise)
        added = beyond > NEARLY
        if not converged or not added.any():
            return Polished(problem.model(theta), converged, iterations)
        signs, free = torch.where(added, -gradient.sign(), signs), free | added
    return Polished(problem.model(theta), False, iterations)


class _Minimum(NamedTuple):
    """The end of a search among the free weights; those that reached zero are no longer free."""

    theta: Tensor
    signs: Tensor
    free: Tensor
    converged: bool
    steps: int


def _minimise(problem: _Orthant, theta: Tensor, signs: Tensor, free: Tensor) -> _Minimum:
    for iteration in range(STEPS_PER_ROUND):
        slope, noise = problem.gradient(theta) + problem.l1 * signs, problem.rounding(theta)
        above = excess(slope[free], noise[free])
        if above <= 1:
            return _Minimum(theta, signs, free, True, iteration)
        step = problem.newton_step(theta, slope, free)
        while (wrong := free & (theta == 0) & (problem.l1 > 0) & (step * signs <= 0)).any():  # freed, but not needed
            free = free & ~wrong
            step = problem.newton_step(theta, slope, free)
        value, expected = problem.value(theta), float((slope * step).sum())
        seen = -expected > VISIBLE * torch.finfo(theta.dtype).eps * abs(value)  # else compare slopes, not values
        size = 1.0
        while True:
            candidate = problem.within(theta + size * step, signs, free)
            if seen:
                better = problem.value(candidate) <= value + 1e-4 * min(0.0, float((slope * (candidate - theta)).sum()))
            else:
                left = free & ((candidate != 0) | (problem.l1 == 0))
                candidate_slope = problem.gradient(candidate) + problem.l1 * signs
                better = excess(candidate_slope[left], noise[left]) < above / 2
            if better:
                break
            size /= 2
            if size < (SHORTEST if seen else 0.2):  # no step helps: at the optimum up to rounding, or stuck
                return _Minimum(theta, signs, free, above <= NEARLY, iteration)
        theta = candidate
        free = free & ((theta != 0) | (problem.l1 == 0))
        signs = torch.where(problem.l1 > 0, theta.sign(), signs)
    return _Minimum(theta, signs, free, False, STEPS_PER_ROUND)


def excess(slope: Tensor, rounding: Tensor) -> float:
    """The largest coordinate of a slope in units of its rounding error; infinite for NaN, zero if there are none."""
    sizes = (slope.abs() / rounding).nan_to_num(nan=torch.inf)
    return float(sizes.max()) if sizes.numel() else 0.0


def curvatures(loss: Loss, outputs: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """The Hessian of each row's weighted loss in its outputs, (n, c, c)."""
    units = torch.eye(outputs.shape[1], dtype=outputs.dtype, device=outputs.device)
    columns = [curvature_times(loss, outputs, y, unit.expand_as(outputs)) for unit in units]
    return torch.stack(columns, 2) * weight[:, None, None]


def damped_solve(hessians: Tensor, gradients: Tensor) -> Tensor:
    """-H^-1 g for a stack of problems, scaled to a unit diagonal, with as little damping as Cholesky needs."""
    size = hessians.diagonal(dim1=1, dim2=2).clamp_min(torch.finfo(hessians.dtype).tiny).sqrt()  # (k, D)
    scaled = hessians / size[:, :, None] / size[:, None, :]
    eye = torch.eye(size.shape[1], dtype=size.dtype, device=size.device)
    damping = DAMPING
    while damping <= 10 * size.shape[1]:  # a unit diagonal with entries up to one is positive definite by then
        factors, failed = torch.linalg.cholesky_ex(scaled + damping * eye)
        if not failed.any():
            return -torch.cholesky_solve((gradients / size)[..., None], factors)[..., 0] / size
        damping = 10 * damping
    return torch.zeros_like(gradients)  # the curvature overflows: no step


@dataclass(frozen=True)
class _Orthant:
    """The objective as a function of theta = (W, b + W m), the weights of features centred at their mean m.

    Without an intercept, or with a penalised one, m = 0.
    """

    template: Stationary
    y: Tensor
    weight: Tensor
    features: Tensor  # (n, D) centred, with a column of ones
    sizes: Tensor  # (n, D) of the features before they were centred
    centre: Tensor  # (D,) m, with a zero for the column of ones
    ridge: Tensor  # (c, D)
    l1: Tensor  # (c, D)
    dropped: Tensor  # (c, D)

    @classmethod
    def of(cls, template: Stationary, table: Records, weight: Tensor) -> _Orthant:
        """The problem with features centred at their weighted mean."""
        _, f = template.factors(table, weight)  # (n, D)
        centre, strengths, slack = torch.zeros_like(f[0]), template.strengths(), template.slack()
        if template.bias is not None and template.bias_l1 is None and not template.bias_ridge.any():
            centre[:-1] = (weight @ f[:, :-1]) / weight.sum()
        l1 = torch.zeros_like(slack) if strengths is None else strengths
        return cls(template, table.y, weight, f - centre, f.abs(), centre, template.ridges(), l1, slack.isinf())

    @property
    def start(self) -> Tensor:
        """The model's weights."""
        weight, bias = self.template.weight, self.template.bias
        if bias is None:
            return weight.clone()
        return torch.cat([weight, (bias + weight @ self.centre[:-1])[:, None]], 1)

    def model(self, theta: Tensor) -> Stationary:
        """The model with these weights."""
        if self.template.bias is None:
            return replace(self.template, weight=theta, stopped_early=False)
        weight = theta[:, :-1]
        return replace(self.template, weight=weight, bias=theta[:, -1] - weight @ self.centre[:-1], stopped_early=False)

    def within(self, theta: Tensor, signs: Tensor, free: Tensor) -> Tensor:
        """The nearest point of the orthant: weights of the other sign become zero."""
        crossed = free & (self.l1 > 0) & (theta * signs < 0)
        return torch.where(crossed, 0.0, theta)

    def value(self, theta: Tensor) -> float:
        """The objective; where m is not zero, the intercept has no penalty."""
        losses = self.weight @ self.template.loss(self.features @ theta.mT, self.y)
        penalty = (self.ridge * theta.square() / 2 + self.l1 * theta.abs()).sum()
        return float(torch.nan_to_num(losses + penalty, nan=torch.inf))

    def gradient(self, theta: Tensor) -> Tensor:
        """The gradient of its smooth part, (c, D)."""
        return self._residual(theta).mT @ self.features + self.ridge * theta

    def rounding(self, theta: Tensor) -> Tensor:
        """The rounding error of each coordinate of the gradient, (c, D), as `games.fitted.rounding` has it."""
        outputs = self.features @ theta.mT  # (n, c)
        sizes = self.sizes @ theta.abs().mT  # of each product W f
        sensitivity = curvature_times(self.template.loss, outputs, self.y, sizes).abs()
        uncertain = self._residual(theta).abs() + self.weight[:, None] * sensitivity
        finfo = torch.finfo(theta.dtype)
        return finfo.eps * (uncertain.mT @ self.features.abs() + self.ridge * theta.abs() + self.l1) + finfo.tiny

    def newton_step(self, theta: Tensor, slope: Tensor, free: Tensor) -> Tensor:
        """-H^-1 slope on the free weights, zero on the others, (c, D)."""
        curvature = curvatures(self.template.loss, self.features @ theta.mT, self.y, self.weight)  # (n, c, c)
        ends = [0, *free.sum(1).cumsum(0).tolist()]
        blocks = [slice(start, stop) for start, stop in pairwise(ends)]  # the free weights of each output
        hessian = self.features.new_zeros(ends[-1], ends[-1])
        for i, k in product(range(len(blocks)), repeat=2):
            if curvature[:, i, k].any():
                weighted = curvature[:, i, k, None] * self.features[:, free[k]]
                hessian[blocks[i], blocks[k]] = self.features[:, free[i]].mT @ weighted
        hessian.diagonal().add_(self.ridge[free])
        step = torch.zeros_like(theta)
        step[free] = damped_solve(hessian[None], slope[free][None])[0]
        return step

    def _residual(self, theta: Tensor) -> Tensor:
        return self.weight[:, None] * self.template.loss.residual(self.features @ theta.mT, self.y)
