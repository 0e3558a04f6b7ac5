"""How far off a guess must be: told by an auditor from what the solver, and what rounding, left unexplained."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lostwax.equations import rounding, unexplained
from lostwax.types import Fitted, Guess, Stationary, Sums


@dataclass(frozen=True)
class ErrorBars:
    """A predicted size of the error in each feature of each guess, (games, d), in the table's own units."""

    predicted: Tensor  # with the release as it is
    floor: Tensor  # if the release solved its equation to the last bit: what rounding alone would leave


def leading_equation(fitted: Fitted) -> Stationary | Sums:
    """The equation the attack solves: published sums hold exactly, a fitted model only as far as its solver went."""
    if fitted.sums:
        return fitted.sums[0]
    if fitted.model is None:
        raise ValueError(f"{fitted.name} publishes neither a linear model nor sums over its rows.")
    return fitted.model


def error_bars(fitted: Fitted, guess: Guess) -> ErrorBars:
    """Predict the size of the error of each leave-one-out guess, as an auditor who has the whole table can.

    With e what all rows leave unexplained, the adversary sees r' = r - e_0 and G' = r f^T - e, hence
    f' - f = r'^T (e_0 f^T - e) / |r'|^2  exactly. With f counted from the columns' means m, its size in feature j is
    sqrt(|e_0|^2 s_j^2 + |e_j - e_0 m_j|^2) / |r'|  for a row one deviation s_j away from the mean.
    """
    equation = leading_equation(fitted)
    e, _ = unexplained(equation, fitted.table, fitted.weight)  # (c, d + 1)
    _, f = equation.factors(fitted.table, fitted.weight)  # (n, d + 1)
    centre = f.mean(0)
    noise = rounding(
        equation, fitted.table, fitted.weight, centre * (torch.arange(len(centre)) < fitted.table.x.shape[1])
    )
    if isinstance(equation, Stationary):
        scale = equation.scale
        if equation.bias is None:  # no e_0: r' comes from a scalar equation in G'
            e, noise = (torch.cat([part, part.new_zeros(len(part), 1)], 1) for part in (e, noise))
    else:
        scale = torch.ones_like(fitted.table.x[0])
    d = len(scale)
    e = torch.cat([e[:, :d] - e[:, d:] * centre[:d], e[:, d:]], 1)
    deviation, size = f[:, :d].std(0, correction=0), guess.confidence  # (d,), (g, 1): |r'|
    solver, floor = (_spread(part, deviation) * scale for part in (e, noise))
    floor = floor / size + torch.finfo(f.dtype).eps * centre[:d].abs() * scale
    return ErrorBars(solver / size + floor, floor)


def _spread(unexplained: Tensor, deviation: Tensor) -> Tensor:
    """sqrt(|e_0|^2 s_j^2 + |e_j|^2) for each feature j, (d,)."""
    square = unexplained.square().sum(0)  # (d + 1,)
    return (square[-1] * deviation.square() + square[:-1]).sqrt()
