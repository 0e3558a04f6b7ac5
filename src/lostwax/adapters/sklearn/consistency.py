"""Was this model fitted on this very table? If not, an audit of it would mean nothing."""

from __future__ import annotations

from dataclasses import replace

import torch

from lostwax.equations import unexplained
from lostwax.types import Fitted, Records, Stationary, Sums

# Scores are shares of the squared gradient that an unrelated sample of the same size gives. On the very table, solvers
# with their default tolerance were seen to leave up to 0.29 (digits, C = 100).
UNRELATED = 0.4  # surely not this table
DOUBTFUL = 0.01  # worth a note
SMALL = 1e-3  # against the gradient at zero weights: below it the model fits the table, whatever the rest says


def check_same_data(fitted: Fitted, precision: float = 2.3e-16) -> str | None:
    """Raise if the table does not explain what the model publishes; a note where that is in doubt.

    `precision` is the rounding error of the numbers the model was fitted on: float32 data make coarser sums.
    """
    for sums in fitted.sums:
        _check_sums(fitted, sums, max(1e-6, 10 * precision * len(fitted.table) ** 0.5))
    if fitted.model is None:
        return None
    score = score_statistic(fitted.model, fitted.table, fitted.weight)
    distance = f"the gradient at its weights is {score**0.5:.2g} times what an unrelated sample of this size would give"
    if score > UNRELATED and not fitted.model.stopped_early:  # a few iterations leave as much as another table would
        raise ValueError(
            f"audit: {fitted.name} was not fitted on this data (X, y), or stopped far from its optimum: {distance} "
            f"(expected < {UNRELATED**0.5:.2g}). Pass the very rows, labels and sample_weight it was fitted on."
        )
    return f"far from its optimum, or not fitted on this very table: {distance}." if score > DOUBTFUL else None


def score_statistic(model: Stationary, table: Records, weight: torch.Tensor) -> float:
    """|sum of gradients|^2 / sum of |gradients|^2: 0 at the optimum, about 1 for a model of other data.

    Taken over all coordinates and, lest one large column speak for all, as the median over columns; the larger counts.
    A model that separates its classes has gradients near zero row by row, and their ratio means nothing: the sum must
    also be seen beside the gradients of the model with zero weights.
    """
    gradient, _ = unexplained(model, table, weight)
    square = gradient.square().sum(0)  # (d + 1,)
    at_zero = replace(
        model,
        weight=torch.zeros_like(model.weight),
        bias=None if model.bias is None else torch.zeros_like(model.bias),
    )
    each, each_at_zero = (_squares(part, table, weight) for part in (model, at_zero))
    moved = each > 0
    if not moved.any():
        return 0.0
    score = max(float(square.sum() / each.sum()), float((square / each)[moved].median()))
    beside_zero = float(square.sum() / each_at_zero.sum().clamp_min(1e-300))
    return score if beside_zero > SMALL else min(score, beside_zero)


def _squares(model: Stationary, table: Records, weight: torch.Tensor) -> torch.Tensor:
    """Sum over rows of the squared gradient, column by column, (d + 1,)."""
    r, f = model.factors(table, weight)
    return r.square().sum(1) @ f.square()


def _check_sums(fitted: Fitted, sums: Sums, tolerance: float) -> None:
    gap, _ = unexplained(sums, fitted.table, fitted.weight)
    r, f = sums.factors(fitted.table, fitted.weight)
    size = r.abs().mT @ f.abs() + sums.total().abs()
    if (gap.abs() > tolerance * size.clamp_min(1e-300)).any():
        raise ValueError(
            f"audit: {fitted.name} was not fitted on this data (X, y): {sums.source} does not agree with the table. "
            "Pass the very rows, labels and sample_weight it was fitted on."
        )
