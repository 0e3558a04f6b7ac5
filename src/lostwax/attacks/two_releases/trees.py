"""What the trees of two releases tell of the one row that only the first was grown on.

A tree that is grown again without a row, from the same seed, often splits the first nodes alike. Where feature and
threshold are the same, all other rows go the same way, so the child that counts one row less is the one that the
removed row went to: an interval for its value, until the two trees part. Sums of labels in the deepest such node,
first minus second, are the label.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lostwax.games import Cells, Kept, Part
from lostwax.games.cells import Bounds, Revealed
from lostwax.games.trees import LEAF, Floats, Tree

WHOLE = 1e-6  # a difference of counts, or of classes, this near to a whole number


class TreesTold(NamedTuple):
    """An interval for some cells, and perhaps the label; and how many trees were not compared."""

    answer: Revealed | None
    compared: int
    trees: int


def subtract_trees(here: Part, there: Part, blind: Tensor) -> TreesTold:
    """The path of the one removed row down the trees that both releases share; `blind` (1, d) is a guess to start."""
    forest, other = here.fitted.forest, there.fitted.forest
    if forest is None or other is None or here.within is None:
        return TreesTold(None, 0, 0)
    width = here.fitted.table.x.shape[1]
    low, high = np.full((1, width), -np.inf), np.full((1, width), np.inf)
    label, compared = None, 0
    for tree, later in zip(forest.trees, other.trees, strict=False):
        if not (_counts_all(tree) and _counts_all(later)):
            continue
        compared += 1
        label_here = _descend(tree, later, low, high)
        label = label_here if label is None else label
    if not compared:
        return TreesTold(None, 0, len(forest.trees))
    # a missing value goes to either side: it stays possible where the table may have one
    may_be_missing = np.broadcast_to(here.fitted.table.x.isnan().any(0).numpy(), low.shape)
    cells = here.within(Bounds(low, high, may_be_missing))
    guess = _within_bounds(cells, blind.numpy())
    known = torch.ones(1, dtype=torch.bool)
    labels = None if label is None else here.labels(_as_label(label, here.fitted.table.y))
    answer = Revealed((guess,), labels, torch.ones(1, dtype=torch.float64), known, known)
    return TreesTold(answer, compared, len(forest.trees))


def _counts_all(tree: Tree) -> bool:
    """Whether its sizes count every row of the table once."""
    return tree.tells_path and tree.share is not None and bool((tree.share == 1).all()) and not tree.categories


def _descend(tree: Tree, later: Tree, low: Floats, high: Floats) -> Floats | None:
    """Narrow the bounds (1, D) along the path; the sums of labels that are missing in its last node."""
    node = other = 0
    label = None
    while abs(tree.size[node] - later.size[other] - 1) < WHOLE:
        label = _missing_label(tree, later, node, other, label)
        feature, threshold = tree.feature[node], tree.threshold[node]
        if feature == LEAF or feature != later.feature[other] or threshold != later.threshold[other]:
            break
        sides = [(tree.left[node], later.left[other]), (tree.right[node], later.right[other])]
        gone = [tree.size[child] - later.size[beside] for child, beside in sides]
        if sorted(round(float(count)) for count in gone) != [0, 1]:
            break
        left = round(float(gone[0])) == 1
        if left:
            high[0, feature] = min(high[0, feature], threshold)
        else:
            low[0, feature] = max(low[0, feature], threshold)
        node, other = sides[0] if left else sides[1]
    return label


def _missing_label(tree: Tree, later: Tree, node: int, other: int, label: Floats | None) -> Floats | None:
    """(k,) sums of labels in one node, first minus second; as before where they are not precise."""
    if tree.labels is None or later.labels is None:
        return label
    error = tree.labels.rounding[node] + later.labels.rounding[other]
    if not np.isfinite(error) or label is not None:
        return label
    return np.asarray(tree.labels.totals[node] - later.labels.totals[other])


def _as_label(sums: Floats, y: Tensor) -> Tensor:
    """(1,) the class with one row less, or (1, ...) the target."""
    if not y.is_floating_point():
        return torch.tensor([int(sums.argmax())])
    return torch.from_numpy(sums.copy()).reshape(1, *y.shape[1:]).to(y)


def _within_bounds(cells: Cells, blind: Floats) -> Cells:
    """The blind guess, moved into the bounds, for cells of which only these are known."""
    if cells.bounds is None:
        return cells
    is_open = (cells.kept == Kept.INTERVAL) & ~np.isnan(blind)
    values = np.where(is_open, np.clip(blind, cells.bounds.low, cells.bounds.high), cells.values.astype(np.float64))
    return cells._replace(values=values)
