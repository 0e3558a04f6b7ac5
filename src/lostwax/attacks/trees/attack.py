"""Rebuild the one missing row of a table from the trees that were grown on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lostwax.attacks.trees.cuts import narrowed_by_cuts
from lostwax.attacks.trees.labels import MissingLabels, missing_labels
from lostwax.attacks.trees.paths import narrowed_by_nodes, near_zero, zeros
from lostwax.attacks.trees.unknown_sample import narrowed_without_sample
from lostwax.games import Fitted, Part
from lostwax.games.cells import Revealed
from lostwax.games.trees import Bounds, Floats, Ints

CERTAIN = 1e-3  # of its deviation: a target with a smaller error is certain


class Constrained(NamedTuple):
    """What trees tell of the missing row of each game."""

    bounds: Bounds  # (g, d)
    labels: MissingLabels | None  # None: nothing in the trees depends on them


@dataclass(frozen=True)
class TreeConstraints:
    """Every node constrains the missing row: the side it took, and a threshold that no two known rows explain.

    Known rows are sent down each tree. Nodes whose rows do not add up to their size hold the missing row: this is its
    path. A threshold half-way between two neighbours tells the value of the one that is not known. What all nodes of
    all trees say is intersected; a cell is exact if a single value is left.
    """

    def leave_one_out(self, fitted: Fitted, games: Tensor) -> Constrained:
        """What is known of each row of `games` from one model and all other rows."""
        if fitted.forest is None:
            raise ValueError(f"TreeConstraints: {fitted.name} has no trees.")
        forest, x, rows = fitted.forest, fitted.forest.cast(fitted.table.x.numpy()), games.numpy()
        anything = np.full((len(rows), x.shape[1]), np.inf)
        start = Bounds(-anything, anything, np.full(anything.shape, forest.accepts_missing))
        bounds = start
        for narrowed in (narrowed_by_nodes, narrowed_by_cuts, narrowed_without_sample):
            bounds = narrowed(forest, x, rows, bounds)
        bounds = _with_zeros(bounds, x, rows)
        if bool(((bounds.low > bounds.high) & ~bounds.maybe_missing).any()):
            raise ValueError(
                f"audit: no row explains {fitted.name}: its nodes contradict each other. Pass the data that it was "
                "fitted on, in the same order."
            )
        y = fitted.table.y
        if all(tree.labels is None for tree in forest.trees):
            return Constrained(bounds, None)
        labels = missing_labels(forest, x, y.double().numpy(), rows, classes=not y.is_floating_point())
        return Constrained(bounds, labels)


def _with_zeros(bounds: Bounds, x: Floats, games: Ints) -> Bounds:
    """Read as zero what differs from zero only by the rounding of a threshold."""
    zero = zeros(bounds.low, bounds.high, near_zero(x, games))
    return bounds._replace(low=np.where(zero, 0.0, bounds.low), high=np.where(zero, 0.0, bounds.high))


def revealed_by_trees(part: Part, games: Tensor) -> Revealed:
    """What the trees of a part tell of the missing row of each game, as cells of the table."""
    if part.within is None:
        raise ValueError(f"TreeConstraints: the bounds of {part.fitted.name} have no way back to the table.")
    rows = games if part.rows is None else part.rows[games]
    bounds, labels = TreeConstraints().leave_one_out(part.fitted, rows)
    cells, ones = part.within(bounds), torch.ones(len(games), dtype=torch.float64)
    if labels is None or not part.labelled:
        return Revealed((cells,), None, ones)
    y = part.fitted.table.y
    values = torch.from_numpy(np.nan_to_num(labels.values)).to(y.dtype)
    close = CERTAIN * float(y.double().std(0, correction=0).min()) if y.is_floating_point() else 0.0
    certain = torch.from_numpy(labels.known & (labels.error <= close))
    return Revealed((cells,), part.labels(values), ones, torch.from_numpy(labels.known), certain)
