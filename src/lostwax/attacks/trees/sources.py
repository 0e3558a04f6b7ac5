"""Which parts of trees give cells exactly: nodes of few rows, or the bins of a histogram.

The attack is repeated without them; what is no longer exact came from them. A note then names the setting that matters.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from torch import Tensor

from lostwax.attacks.trees.attack import TreeConstraints
from lostwax.attacks.trees.paths import descend
from lostwax.games import Fitted, Note, Topic
from lostwax.games.trees import LEAF, Floats, Forest, Ints, Tree
from lostwax.numerals import percent

FEW_ROWS = 20  # in a leaf
WORTH_A_NOTE = 0.5  # of the exact cells


class ExactCells(NamedTuple):
    """Shares of all cells that are exact, by what is used."""

    everything: float
    without_small_leaves: float  # splits with FEW_ROWS rows at least on both sides
    without_bins: float  # nodes alone, without what is made of the values of all rows

    def note(self, name: str) -> Note | None:
        """For the report: the setting that most exact cells depend on; None if they do not depend on one."""
        if self.everything == 0:
            return None
        by_leaves, by_bins = (1 - rest / self.everything for rest in (self.without_small_leaves, self.without_bins))
        if max(by_leaves, by_bins) < WORTH_A_NOTE:
            return None
        if by_bins >= by_leaves:
            where, cure = "the bins of its histograms", "fewer bins (max_bins; max_bin or border_count)"
        else:
            where = f"nodes that split off fewer than {FEW_ROWS} rows"
            cure = f"larger leaves (such as min_samples_leaf={FEW_ROWS}; min_child_weight in XGBoost)"
        share = percent(max(by_leaves, by_bins))
        text = f"{share} of the cells that {name} gives exactly come from {where}: {cure} reveal fewer of them."
        return Note(text, Topic.EXACT_CELLS, name, cure=text)


def exact_cells(fitted: Fitted, games: Tensor) -> ExactCells:
    """The shares in the rows of `games`, each attacked with all other rows known."""
    if (forest := fitted.forest) is None:
        raise ValueError(f"exact_cells: {fitted.name} has no trees.")
    x = forest.cast(fitted.table.x.numpy())
    large = replace(forest, trees=tuple(with_large_leaves(forest, tree, x, FEW_ROWS) for tree in forest.trees))
    nodes_alone = replace(forest, cuts=(), quantiles=())

    def share(part: Forest) -> float:
        bounds, _ = TreeConstraints().leave_one_out(replace(fitted, forest=part), games)
        return float((bounds.exact | bounds.missing).mean())

    everything = share(forest)
    has_bins = bool(forest.cuts or forest.quantiles)
    return ExactCells(everything, share(large), share(nodes_alone) if has_bins else everything)


def with_large_leaves(forest: Forest, tree: Tree, x: Floats, rows: int) -> Tree:
    """The tree without splits that leave fewer than `rows` rows on one side, and without all below them."""
    counts = _rows_in_nodes(forest, tree, x)
    inner = np.flatnonzero(tree.feature != LEAF)
    few = inner[np.minimum(counts[tree.left[inner]], counts[tree.right[inner]]) < rows]
    feature, left, right = (part.copy() for part in (tree.feature, tree.left, tree.right))
    feature[few], left[few], right[few] = LEAF, LEAF, LEAF
    categories = {node: to_left for node, to_left in tree.categories.items() if feature[node] != LEAF}
    return replace(tree, feature=feature, left=left, right=right, categories=categories)


def _rows_in_nodes(forest: Forest, tree: Tree, x: Floats) -> Ints:
    """(m,) how many rows are in each node below the root; if the tree's sample is not known, those in its box."""
    counts = np.zeros(len(tree.feature), dtype=np.intp)
    for step in descend(forest, tree, x):
        counts += np.bincount(step.child, minlength=len(counts))
    return counts
