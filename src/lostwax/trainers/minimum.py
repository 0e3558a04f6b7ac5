"""Newton's method down to the last bits, where other solvers stop early; and the optimum under an L1 penalty.

The search ends when every coordinate of the gradient is at its own rounding error: a norm would hide small ones.

With an L1 penalty, at the optimum the gradient g of the smooth part is -l1 sign(w) for each weight w that is not zero,
and |g| <= l1 for all others. Within one orthant the objective is smooth: Newton steps minimise it there, and a weight
that reaches zero stays there. Then weights whose |g| exceeds l1 are freed, and the search goes on (the active-set
method of Lee et al. 2006, "Efficient sparse coding algorithms").
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, product
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from lostwax.games import Loss, Records, Stationary
from lostwax.games.fitted import curvature_times

ITERATIONS = 100
FREEING_ROUNDS = 200  # in which weights are freed
DAMPING = 1e-13  # of each diagonal entry: flat directions (softmax shifts, collinear columns) do not move
NEARLY_ZERO = 100  # times its rounding error: a slope that counts as zero if no step makes it smaller
VISIBLE_DECREASE = 1e3  # times the rounding error of the objective: a decrease that shows in its value
MIN_STEP = 1e-9  # of a Newton step
FEW_NUMBERS = 100_000  # outputs, of which all columns of Hessians are computed at once


class NewtonProblem(Protocol):
    """A function of theta (c, D) to minimise."""

    def slope(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Its value, and its gradient."""

    def rounding(self, theta: Tensor) -> Tensor:
        """The rounding error of each coordinate of the gradient."""

    def newton_step(self, theta: Tensor, gradient: Tensor, noise: Tensor) -> Tensor:
        """-H^-1 g."""

    def moved(self, theta: Tensor, step: Tensor, size: float, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """theta after a share of the step, and the change of the value to first order."""


def minimum(problem: NewtonProblem, theta: Tensor) -> tuple[Tensor, bool]:
    """Where Newton's method with a line search ends, and whether that is an optimum."""
    value, gradient = problem.slope(theta)
    for _ in range(ITERATIONS):
        noise = problem.rounding(theta)
        above = excess(gradient, noise)
        if above <= 1:
            return theta, True
        step = problem.newton_step(theta, gradient, noise)
        visible = VISIBLE_DECREASE * torch.finfo(value.dtype).eps * value.abs()
        seen, size = -(gradient * step).sum() > visible, 1.0  # else compare gradients, not values
        while size > (MIN_STEP if seen else 0.2):  # so near the optimum the step length is not the problem
            candidate, change = problem.moved(theta, step, size, gradient)
            candidate_value, candidate_gradient = problem.slope(candidate)
            descends = candidate_value <= value + 1e-4 * change
            if descends if seen else excess(candidate_gradient, noise) < above / 2:
                break
            size /= 2
        else:  # no step helps: at the optimum up to rounding, or stuck in a flat direction
            return theta, above <= NEARLY_ZERO
        theta, value, gradient = candidate, candidate_value, candidate_gradient
    return theta, excess(gradient, problem.rounding(theta)) <= NEARLY_ZERO


def excess(slope: Tensor, rounding: Tensor) -> float:
    """The largest coordinate of a slope in units of its rounding error; infinite for NaN."""
    return float((slope.abs() / rounding).nan_to_num(nan=torch.inf).max())


def curvatures(loss: Loss, outputs: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """The Hessian of each row's weighted loss in its outputs, (n, c, c)."""
    (n, c), columns = outputs.shape, []
    at_once = c if outputs.numel() < FEW_NUMBERS else 1
    for units in torch.split(torch.eye(c, dtype=outputs.dtype, device=outputs.device), at_once):
        k = len(units)
        every, labels = outputs.repeat(k, 1), y.expand(k, *y.shape).flatten(0, 1)
        columns.append(curvature_times(loss, every, labels, units.repeat_interleave(n, 0)).view(k, n, c))
    return torch.cat(columns).permute(1, 2, 0) * weight[:, None, None]


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


class Polished(NamedTuple):
    """The model at its optimum; `converged` is False if there is none."""

    model: Stationary
    converged: bool


def sparse_optimum(model: Stationary, table: Records, weight: Tensor) -> Polished:
    """Minimise from the model's own weights; the result keeps only the weights that the optimum needs."""
    problem = _Orthant.of(model, table, weight)
    theta = problem.start
    for _ in range(FREEING_ROUNDS):
        theta, converged = minimum(problem, theta)
        if not converged or not problem.freed_more(theta):
            return Polished(problem.model(theta), converged)
    return Polished(problem.model(theta), False)


@dataclass
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
    start: Tensor  # (c, D)
    l1: Tensor  # (c, D)
    dropped: Tensor  # (c, D)
    signs: Tensor  # (c, D) of the orthant
    free: Tensor  # (c, D) weights that are not held at zero; they get fewer in a search
    freed: Tensor  # (c, D) those of them that begin at zero

    @classmethod
    def of(cls, template: Stationary, table: Records, weight: Tensor) -> _Orthant:
        _, f = template.factors(table, weight)  # (n, D)
        centre, strengths, slack = torch.zeros_like(f[0]), template.strengths(), template.slack()
        if template.bias is not None and template.bias_l1 is None and not template.bias_ridge.any():
            centre[:-1] = (weight @ f[:, :-1]) / weight.sum()
        l1 = torch.zeros_like(slack) if strengths is None else strengths
        start = template.weight.clone()
        if template.bias is not None:
            start = torch.cat([start, (template.bias + start @ centre[:-1])[:, None]], 1)
        dropped = slack.isinf()
        free = ((start != 0) | (l1 == 0)) & ~dropped
        orthant = (start, l1, dropped, start.sign(), free, torch.zeros_like(free))
        return cls(template, table.y, weight, f - centre, f.abs(), centre, template.ridges(), *orthant)

    def model(self, theta: Tensor) -> Stationary:
        if self.template.bias is not None:
            bias = theta[:, -1] - theta[:, :-1] @ self.centre[:-1]
            theta = torch.cat([theta[:, :-1], bias[:, None]], 1)
        return self.template.at(theta)

    def moves(self, theta: Tensor) -> Tensor:
        """(c, D) the weights that are free: one that reached zero stays there."""
        return self.free & ((theta != 0) | (self.l1 == 0) | self.freed)

    def freed_more(self, theta: Tensor) -> bool:
        """Free the weights that would lower the objective, if any."""
        free, gradient = self.moves(theta), self._smooth_gradient(theta)
        beyond = (gradient.abs() - self.l1) / self.rounding(theta)
        self.freed = (beyond > NEARLY_ZERO) & ~free & ~self.dropped
        self.signs = torch.where(self.freed, -gradient.sign(), torch.where(self.l1 > 0, theta.sign(), self.signs))
        self.free = free | self.freed
        return bool(self.freed.any())

    def slope(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """The objective, and its gradient in the free weights; where m is not zero, the intercept has no penalty."""
        losses = self.weight @ self.template.loss(self.features @ theta.mT, self.y)
        penalty = (self.ridge * theta.square() / 2 + self.l1 * theta.abs()).sum()
        gradient = self._smooth_gradient(theta) + self.l1 * self.signs
        return torch.nan_to_num(losses + penalty, nan=torch.inf), torch.where(self.moves(theta), gradient, 0.0)

    def moved(self, theta: Tensor, step: Tensor, size: float, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """The nearest point of the orthant: weights that would change their sign become zero."""
        candidate = theta + size * step
        crossed = self.free & (self.l1 > 0) & (candidate * self.signs < 0)
        candidate = torch.where(crossed, 0.0, candidate)
        return candidate, (gradient * (candidate - theta)).sum().clamp_max(0)

    def rounding(self, theta: Tensor) -> Tensor:
        """The rounding error of each coordinate of the gradient, (c, D), as `games.fitted.rounding` has it."""
        outputs = self.features @ theta.mT  # (n, c)
        sizes = self.sizes @ theta.abs().mT  # of each product W f
        sensitivity = curvature_times(self.template.loss, outputs, self.y, sizes).abs()
        uncertain = self._residual(theta).abs() + self.weight[:, None] * sensitivity
        finfo = torch.finfo(theta.dtype)
        return finfo.eps * (uncertain.mT @ self.features.abs() + self.ridge * theta.abs() + self.l1) + finfo.tiny

    def newton_step(self, theta: Tensor, gradient: Tensor, noise: Tensor) -> Tensor:
        """-H^-1 g on the free weights, zero on the others, (c, D); what was freed in vain is free no longer."""
        self.free = self.moves(theta)
        curvature = curvatures(self.template.loss, self.features @ theta.mT, self.y, self.weight)  # (n, c, c)
        step = self._free_step(curvature, gradient)
        while (wrong := self.free & (theta == 0) & (self.l1 > 0) & (step * self.signs <= 0)).any():
            self.free = self.free & ~wrong
            step = self._free_step(curvature, gradient)
        self.freed = torch.zeros_like(self.free)
        return step

    def _free_step(self, curvature: Tensor, gradient: Tensor) -> Tensor:
        free, ends = self.free, [0, *self.free.sum(1).cumsum(0).tolist()]
        blocks = [slice(start, stop) for start, stop in pairwise(ends)]  # the free weights of each output
        hessian = self.features.new_zeros(ends[-1], ends[-1])
        for i, k in product(range(len(blocks)), repeat=2):
            if curvature[:, i, k].any():
                weighted = curvature[:, i, k, None] * self.features[:, free[k]]
                hessian[blocks[i], blocks[k]] = self.features[:, free[i]].mT @ weighted
        hessian.diagonal().add_(self.ridge[free])
        step = torch.zeros_like(gradient)
        step[free] = damped_solve(hessian[None], gradient[free][None])[0]
        return step

    def _smooth_gradient(self, theta: Tensor) -> Tensor:
        return self._residual(theta).mT @ self.features + self.ridge * theta

    def _residual(self, theta: Tensor) -> Tensor:
        return self.weight[:, None] * self.template.loss.residual(self.features @ theta.mT, self.y)
