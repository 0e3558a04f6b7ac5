"""How well a table explains what a model publishes about it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import vjp

from lostwax.types import Records, Stationary, Sums


def unexplained(equation: Stationary | Sums, table: Records, weight: Tensor) -> tuple[Tensor, Tensor]:
    """What *all* rows leave unexplained of the total, and the rounding error of summing them: two (c, d + 1) matrices.

    For a linear model the first is minus the gradient at the released weights: how far the solver stopped short.
    """
    r, f = equation.factors(table, weight)
    total = equation.total()
    return total - r.mT @ f, rounding(equation, table, weight)


def rounding(equation: Stationary | Sums, table: Records, weight: Tensor, centre: Tensor | None = None) -> Tensor:
    """The size of what rounding alone can leave unexplained, (c, d + 1), with features counted from `centre`."""
    _, f = equation.factors(table, weight)
    away, total = f, equation.total().abs()
    if centre is not None:
        away, total = f - centre, total + total[:, -1:] * centre.abs()
    return torch.finfo(f.dtype).eps * (uncertain(equation, table, weight).mT @ away.abs() + total)


def uncertain(equation: Stationary | Sums, table: Records, weight: Tensor) -> Tensor:
    """How much a relative error of one in all that it is computed from would move each row's r, (n, c).

    A residual is a difference of numbers that may be far larger: where a model fits its rows, it is rounding error.
    """
    r, _ = equation.factors(table, weight)
    if isinstance(equation, Stationary):
        return r.abs() + weight[:, None] * _sensitivity(equation, table)
    return r.abs()


def _sensitivity(model: Stationary, table: Records) -> Tensor:
    """How much a relative change of one in every product W f(x) would move each residual, (n, c)."""
    size = model.features(table.x).abs() @ model.weight.abs().mT  # (n, c)
    if model.bias is not None:
        size = size + model.bias.abs()
    pull = vjp(lambda outputs: model.loss.residual(outputs, table.y), model.outputs(table.x))[1]
    return torch.as_tensor(pull(size)[0]).abs()  # the curvature of a loss is symmetric: rows are columns
