"""The objective of a linear model on a sparse table, for Newton's method: nothing is made dense or centred."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lostwax.games import Stationary
from lostwax.games.fitted import curvature_times
from lostwax.games.folding import SparseRecords, sparse_factors, sparse_rounding, sparse_sum

MOST = 2_000  # steps of conjugate gradients


def excess(gradient: Tensor, rounding: Tensor) -> float:
    """The largest coordinate of the gradient in units of its rounding error; infinite for NaN."""
    return float((gradient.abs() / rounding).nan_to_num(nan=torch.inf).max())


def conjugate_gradients(
    multiply: Callable[[Tensor], Tensor], diagonal: Tensor, gradient: Tensor, noise: Tensor, start: Tensor | None = None
) -> Tensor:
    """The step s with H s = -g to a hundredth of the gradient's excess, preconditioned by the Hessian's diagonal."""
    enough = 1e-2 * excess(gradient, noise)
    step, rest = torch.zeros_like(gradient), -gradient
    if start is not None and start.any():
        after = rest - multiply(start)
        if excess(after, noise) < excess(rest, noise):  # NaN and a step that rounding spoilt are not used
            step, rest = start, after
    if excess(rest, noise) <= enough:
        return step
    scaled = rest / diagonal
    direction, power = scaled, (rest * scaled).sum()
    for _ in range(MOST):
        image = multiply(direction)
        length = power / (direction * image).sum()
        step, rest = step + length * direction, rest - length * image
        if excess(rest, noise) <= enough:
            break
        scaled = rest / diagonal
        power, previous = (rest * scaled).sum(), power
        direction = scaled + power / previous * direction
    return step


class SparseProblem(NamedTuple):
    """As a function of theta = (W, b), (c, d + 1) or (c, d)."""

    template: Stationary
    table: SparseRecords
    weight: Tensor

    @property
    def start(self) -> Tensor:
        """The model's weights."""
        return self.template.parameters().clone()

    def model(self, theta: Tensor) -> Stationary:
        """The model with these weights."""
        return self.template.at(theta)

    def uncentred(self, step: Tensor) -> Tensor:
        """The step itself."""
        return step

    def slope(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """The objective, and its gradient (c, D)."""
        model = self.model(theta)
        outputs, r = sparse_factors(model, self.table, self.weight)
        value = self.weight @ model.loss(outputs, self.table.y) + model.penalty()
        return torch.nan_to_num(value, nan=torch.inf), self._summed(r) - model.total()

    def rounding(self, theta: Tensor) -> Tensor:
        """The rounding error of each coordinate of the gradient, (c, D)."""
        finfo = torch.finfo(theta.dtype)
        own = sparse_rounding(self.model(theta), self.table, self.weight)[0]
        return own + finfo.eps * self.template.ridges() * self.start.abs() + finfo.tiny

    def newton_step(self, theta: Tensor, gradient: Tensor, noise: Tensor) -> Tensor:
        """-H^-1 g by conjugate gradients."""
        model = self.model(theta)
        outputs, _ = sparse_factors(model, self.table, self.weight)
        units = torch.eye(len(theta), dtype=theta.dtype)
        columns = [curvature_times(model.loss, outputs, self.table.y, unit.expand_as(outputs)) for unit in units]
        curvature = torch.stack(columns, 2) * self.weight[:, None, None]  # (n, c, c)
        ridges = model.ridges()
        squares = sparse_sum(
            self.table.each(np.square), curvature.diagonal(dim1=1, dim2=2), bias=model.bias is not None
        )
        diagonal = (squares + ridges).clamp_min(torch.finfo(theta.dtype).tiny)

        def multiply(v: Tensor) -> Tensor:
            moved = self.table.times(v if model.bias is None else v[:, :-1].contiguous())
            moved = moved if model.bias is None else moved + v[:, -1]
            return self._summed(torch.einsum("nij,nj->ni", curvature, moved)) + ridges * v + 1e-13 * diagonal * v

        return conjugate_gradients(multiply, diagonal, gradient, noise)

    def _summed(self, r: Tensor) -> Tensor:
        return sparse_sum(self.table, r, bias=self.template.bias is not None)
