"""Which cells a row can be in: those whose leaf has room for it in every tree that was grown on it.

Boxes of cells are sent down tree by tree. A box that spans a split is divided; one that ends in a leaf with too few
rows of every class is dropped. Few are left after a hundred trees, so cells need not be listed one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lostwax.attacks.whole_table.grid import Boxes, Grid
from lostwax.games.trees import LEAF, Bools, Floats, Forest, Ints, Tree

MOST_BOXES = 4_000_000


class TooManyCellsError(ValueError):
    """The counts of the trees leave more cells than can be listed."""


@dataclass(frozen=True)
class CodedTree:
    """A tree whose thresholds are codes of a grid."""

    tree: Tree
    split: Ints  # (m,) highest code that goes left
    boxes: Boxes  # (m, d) the box of each node

    @classmethod
    def of(cls, tree: Tree, grid: Grid) -> CodedTree:
        """Code thresholds, and find the boxes of nodes from the root down."""
        if tree.categories:
            raise ValueError("Trees that split categories cannot be read without rows. Encode them as numbers.")
        split, whole = grid.split_codes(tree), grid.whole()
        low, high = (np.repeat(part, len(tree.feature), axis=0) for part in whole)
        for nodes in tree.levels():
            inner = nodes[tree.feature[nodes] != LEAF]
            columns, left, right = tree.feature[inner], tree.left[inner], tree.right[inner]
            low[left], low[right], high[left], high[right] = low[inner], low[inner], high[inner], high[inner]
            high[left, columns] = np.minimum(high[left, columns], split[inner])
            low[right, columns] = np.maximum(low[right, columns], split[inner] + 1)
        return cls(tree, split, Boxes(low, high))

    def room(self, share: float, weight: float) -> Bools:
        """(m, k) whether a node has room for a row of each class."""
        tree = self.tree
        assert tree.labels is not None
        enough = tree.size + tree.rounding >= share
        totals: Bools = tree.labels.totals + tree.labels.rounding[:, None] >= weight
        return totals & enough[:, None]

    def leaves(self, boxes: Boxes, open_nodes: Bools) -> tuple[Ints, Ints]:
        """The leaves that boxes reach through open nodes: numbers of the boxes, and of the leaves."""
        tree, found = self.tree, []
        origin, node = np.arange(len(boxes.low)), np.zeros(len(boxes.low), dtype=np.intp)
        while len(node):
            ended = tree.feature[node] == LEAF
            found.append((origin[ended], node[ended]))
            origin, node = origin[~ended], node[~ended]
            column, split = tree.feature[node], self.split[node]
            # a box that meets all intervals of a path meets their intersection: they are intervals of one column
            left = (boxes.low[origin, column] <= split) & open_nodes[tree.left[node]]
            right = (boxes.high[origin, column] > split) & open_nodes[tree.right[node]]
            origin, node = (
                np.concatenate([origin[left], origin[right]]),
                np.concatenate([tree.left[node[left]], tree.right[node[right]]]),
            )
        return np.concatenate([pair[0] for pair in found]), np.concatenate([pair[1] for pair in found])


@dataclass(frozen=True)
class RowGroup:
    """Rows that all trees count alike: without bootstraps all rows, with them one row each."""

    rows: Ints  # (r,) their numbers
    share: Floats  # (trees,) what each adds to sizes; 0: the tree was not grown on it
    weight: Floats  # (trees,) what each adds to the totals of its class


def row_groups(forest: Forest) -> tuple[RowGroup, ...]:
    """Rows grouped by what they add to each tree, which is public: bootstraps are replayed from stored seeds."""
    share = np.stack([tree.share for tree in forest.trees], axis=1)  # (n, trees)
    weight = np.stack([tree.labels.weight for tree in forest.trees if tree.labels is not None], axis=1)
    if weight.shape != share.shape:
        raise ValueError("The trees must have counts of classes.")
    kinds, number = np.unique(np.concatenate([share, weight], axis=1), axis=0, return_inverse=True)
    number, half = number.ravel(), share.shape[1]
    return tuple(
        RowGroup(np.flatnonzero(number == index), kind[:half], kind[half:]) for index, kind in enumerate(kinds)
    )


class Candidates(NamedTuple):
    """Where rows may be: a box that no tree divides, and a class, for rows of one group."""

    group: Ints  # (v,)
    boxes: Boxes  # (v, d)
    label: Ints  # (v,)
    leaves: Ints  # (v, trees) the leaf of each tree; -1: the tree was not grown on these rows


def survivors(trees: tuple[CodedTree, ...], grid: Grid, group: RowGroup, number: int) -> Candidates:
    """All places where a row of a group can be, by the counts of each tree alone."""
    boxes, possible = grid.tightened(grid.whole())
    classes = np.ones((len(boxes.low), _classes(trees)), dtype=bool) & possible[:, None]  # (b, k)
    used = np.flatnonzero((group.share > 0) | (group.weight > 0))
    for index in used[np.argsort(-group.weight[used], kind="stable")]:  # those that need most room drop most
        tree, room = trees[index], trees[index].room(group.share[index], group.weight[index])
        origin, leaf = tree.leaves(boxes, room.any(1))
        left = classes[origin] & room[leaf]
        keep = left.any(1)
        origin, leaf, left = origin[keep], leaf[keep], left[keep]
        if len(leaf) > MOST_BOXES:
            raise TooManyCellsError(f"Counts of trees leave more than {MOST_BOXES:,} cells for a row.")
        boxes, possible = grid.tightened(
            Boxes(
                np.maximum(boxes.low[origin], tree.boxes.low[leaf]),
                np.minimum(boxes.high[origin], tree.boxes.high[leaf]),
            )
        )
        boxes, classes = Boxes(boxes.low[possible], boxes.high[possible]), left[possible]
    leaves = np.full((len(classes), len(trees)), -1)
    for index in used:
        origin, leaf = trees[index].leaves(boxes, np.ones(len(trees[index].split), dtype=bool))
        leaves[origin, index] = leaf
    place, label = np.nonzero(classes)
    return Candidates(np.full(len(place), number), Boxes(boxes.low[place], boxes.high[place]), label, leaves[place])


def _classes(trees: tuple[CodedTree, ...]) -> int:
    labels = trees[0].tree.labels
    assert labels is not None
    return labels.totals.shape[1]
