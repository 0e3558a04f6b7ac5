"""Newton's method on the objective of a linear model, down to the last bits: where stock solvers stop short."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.func import jacrev, vmap
from torch.linalg import vector_norm

from lostwax.equations import rounding
from lostwax.types import Records, Stationary

DENSE_LIMIT = 3_000  # parameters above which the Hessian is only multiplied with, never formed
BLOCK_NUMBERS = 4_000_000  # numbers held at a time while it is formed
ITERATIONS = 100
DAMPING = 1e-13  # of the mean diagonal: flat directions (softmax shifts, collinear columns) stay where they are


@dataclass(frozen=True)
class Polished:
    """The model at its optimum; `converged` says whether there was one to be reached."""

    model: Stationary
    converged: bool
    iterations: int


def polish(model: Stationary, table: Records, weight: Tensor) -> Polished:
    """Descend from the model's own weights until the gradient is rounding error.

    The objective is convex, so damped Newton steps reach its optimum from anywhere, if it has one: an unpenalised
    classifier of separable classes has none, and `converged` is then False.
    """
    problem = _Problem(model, table, weight)
    theta = problem.start()
    value, gradient = problem.value(theta), problem.gradient(theta)
    for iteration in range(ITERATIONS):
        if gradient.norm() <= problem.rounding(theta):
            return Polished(problem.model(theta), True, iteration)
        step = problem.newton_step(theta, gradient)
        slope, size = (gradient * step).sum(), 1.0
        while size > 1e-9:
            candidate = theta + size * step
            candidate_value, candidate_gradient = problem.value(candidate), problem.gradient(candidate)
            descends = candidate_value <= value + 1e-4 * size * slope
            if descends or candidate_gradient.norm() < gradient.norm() / 2:  # values no longer tell near the optimum
                break
            size /= 2
        else:  # no step helps any more: at the optimum up to rounding, or stuck on a flat direction
            return Polished(problem.model(theta), bool(gradient.norm() <= 100 * problem.rounding(theta)), iteration)
        theta, value, gradient = candidate, candidate_value, candidate_gradient
    return Polished(problem.model(theta), bool(gradient.norm() <= 100 * problem.rounding(theta)), ITERATIONS)


@dataclass(frozen=True)
class _Problem:
    """The objective of `template` as a function of theta = (W, b), (c, d + 1) or (c, d)."""

    template: Stationary
    table: Records
    weight: Tensor

    def start(self) -> Tensor:
        bias = self.template.bias
        weight = self.template.weight
        return weight.clone() if bias is None else torch.cat([weight, bias[:, None]], 1)

    def model(self, theta: Tensor) -> Stationary:
        if self.template.bias is None:
            return replace(self.template, weight=theta, stopped_early=False)
        return replace(self.template, weight=theta[:, :-1], bias=theta[:, -1], stopped_early=False)

    def penalties(self) -> Tensor:
        """Ridge of each parameter, shaped like theta."""
        ridge = self.template.ridge[:, None].expand_as(self.template.weight)
        return ridge if self.template.bias is None else torch.cat([ridge, self.template.bias_ridge[:, None]], 1)

    def value(self, theta: Tensor) -> Tensor:
        model = self.model(theta)
        losses = model.loss(model.outputs(self.table.x), self.table.y)
        value = (self.weight * losses).sum() + (self.penalties() * theta.square()).sum() / 2
        return torch.nan_to_num(value, nan=torch.inf)

    def gradient(self, theta: Tensor) -> Tensor:
        model = self.model(theta)
        r, f = model.factors(self.table, self.weight)
        return r.mT @ f - model.total()

    def rounding(self, theta: Tensor) -> Tensor:
        """The size of a gradient that is nothing but rounding error."""
        size: Tensor = vector_norm(rounding(self.model(theta), self.table, self.weight))
        return size

    def newton_step(self, theta: Tensor, gradient: Tensor) -> Tensor:
        model = self.model(theta)
        outputs = model.outputs(self.table.x)

        def residual(output: Tensor, y: Tensor) -> Tensor:
            return model.loss.residual(output[None], y[None])[0]

        curvature = vmap(jacrev(residual))(outputs, self.table.y) * self.weight[:, None, None]  # (n, c, c)
        _, f = model.factors(self.table, self.weight)  # (n, D)
        if theta.numel() <= DENSE_LIMIT:
            return self._dense_step(curvature, f, gradient)
        return self._matrix_free_step(curvature, f, gradient)

    def _dense_step(self, curvature: Tensor, f: Tensor, gradient: Tensor) -> Tensor:
        c, width = gradient.shape
        diagonal = curvature.diagonal(dim1=1, dim2=2)  # (n, c)
        if (curvature == diagonal.diag_embed()).all():  # one problem an output, each with its own (D, D) Hessian
            hessians = torch.stack([f.mT @ (diagonal[:, i, None] * f) for i in range(c)])
            return _damped_solve(hessians, self.penalties(), gradient)
        hessian = f.new_zeros(c * width, c * width)
        size = max(1, BLOCK_NUMBERS // (c * width))
        for rows in (slice(start, start + size) for start in range(0, len(f), size)):  # (b, c D) numbers at a time
            for i in range(c):
                weighted = (curvature[rows, i, :, None] * f[rows, None, :]).flatten(1)
                hessian[i * width : (i + 1) * width] += f[rows].mT @ weighted  # (D, c D)
        return _damped_solve(hessian[None], self.penalties().reshape(1, -1), gradient.reshape(1, -1)).reshape(c, width)

    def _matrix_free_step(self, curvature: Tensor, f: Tensor, gradient: Tensor) -> Tensor:
        """Conjugate gradients on the Newton equation, preconditioned by the Hessian's diagonal."""
        penalties = self.penalties()
        diagonal = curvature.diagonal(dim1=1, dim2=2).mT @ f.square() + penalties
        damping = DAMPING * diagonal.mean()

        def multiply(v: Tensor) -> Tensor:
            pushed = torch.einsum("nij,nj->ni", curvature, f @ v.mT)
            return pushed.mT @ f + (penalties + damping) * v

        step, rest = torch.zeros_like(gradient), -gradient
        scaled = rest / (diagonal + damping)
        direction, power = scaled, (rest * scaled).sum()
        for _ in range(2_000):
            image = multiply(direction)
            length = power / (direction * image).sum()
            step, rest = step + length * direction, rest - length * image
            if rest.norm() <= 1e-2 * gradient.norm():
                break
            scaled = rest / (diagonal + damping)
            power, previous = (rest * scaled).sum(), power
            direction = scaled + power / previous * direction
        return step


def _damped_solve(hessians: Tensor, penalties: Tensor, gradients: Tensor) -> Tensor:
    """-(H + penalty)^-1 g for each of a stack of problems, with as little damping as Cholesky needs."""
    hessians = hessians + penalties.diag_embed()
    damping = DAMPING * hessians.diagonal(dim1=1, dim2=2).mean() + torch.finfo(hessians.dtype).tiny
    eye = torch.eye(hessians.shape[-1], dtype=hessians.dtype, device=hessians.device)
    while damping.isfinite():
        factors, failed = torch.linalg.cholesky_ex(hessians + damping * eye)
        if not failed.any():
            return -torch.cholesky_solve(gradients[..., None], factors)[..., 0]
        damping = 10 * damping
    return torch.zeros_like(gradients)  # curvatures beyond all numbers: no step can be told
