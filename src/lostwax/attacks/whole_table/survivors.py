"""Which cells a row can be in: those whose leaf has room for it in every tree that was grown on it.

Boxes of cells are sent down tree by tree. A box that spans a split is divided; one that ends in a leaf with too few
rows of every class is dropped. Few are left after a hundred trees, so cells need not be listed one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lostwax.attacks.whole_table.grid import Boxes, Grid
from lostwax.games.trees import LEAF, Bools, Floats, Forest, Ints, LabelSums, Tree

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
            raise ValueError("WholeTable: trees that split codes of categories are not supported.")
        split, whole = grid.split_codes(tree), grid.whole()
        low, high = (np.repeat(part, len(tree.feature), axis=0) for part in whole)
        inner = np.zeros(1, dtype=np.intp)
        while len(inner := inner[tree.feature[inner] != LEAF]):
            columns, left, right = tree.feature[inner], tree.left[inner], tree.right[inner]
            low[left], low[right], high[left], high[right] = low[inner], low[inner], high[inner], high[inner]
            high[left, columns] = np.minimum(high[left, columns], split[inner])
            low[right, columns] = np.maximum(low[right, columns], split[inner] + 1)
            inner = np.concatenate([left, right])
        return cls(tree, split, Boxes(low, high))

    @property
    def sums(self) -> LabelSums:
        """Its counts of classes."""
        if self.tree.labels is None:
            raise ValueError("WholeTable: every tree must have counts of classes.")
        return self.tree.labels

    @property
    def classes(self) -> int:
        """How many classes are counted."""
        return int(self.sums.totals.shape[1])

    def room(self, share: float, weight: float) -> Bools:
        """(m, k) whether a node has room for a row of each class."""
        enough = self.tree.size + self.tree.rounding >= share
        totals: Bools = self.sums.totals + self.sums.rounding[:, None] >= weight
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
    counted = [(tree.share, tree.labels.weight) for tree in forest.trees if tree.labels is not None]
    shares = [share for share, _ in counted if share is not None]
    if len(shares) < len(forest.trees):
        raise ValueError("WholeTable: every tree must have counts of classes, and the rows that it was grown on.")
    share = np.stack(shares, axis=1)  # (n, trees)
    weight = np.stack([weight for _, weight in counted], axis=1)
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


def candidates_of(trees: Sequence[CodedTree], grid: Grid, groups: Sequence[RowGroup]) -> Candidates:
    """All places where the rows of each group can be, by the counts of each tree alone."""
    found = [survivors(trees, grid, group) for group in groups]  # of each group boxes, and (b, k) possible classes
    places = [np.nonzero(classes) for _, classes in found]
    pairs = list(zip(found, places, strict=True))
    group = np.repeat(np.arange(len(groups)), [len(label) for _, label in places])
    boxes = Boxes(
        np.concatenate([boxes.low[place] for (boxes, _), (place, _) in pairs]),
        np.concatenate([boxes.high[place] for (boxes, _), (place, _) in pairs]),
    )
    leaves = np.full((len(group), len(trees)), -1)
    share = np.stack([group.share for group in groups])  # (groups, trees)
    for index, tree in enumerate(trees):
        counted = np.flatnonzero(share[group, index] > 0)
        own = Boxes(boxes.low[counted], boxes.high[counted])
        origin, leaf = tree.leaves(own, np.ones(len(tree.split), dtype=bool))
        leaves[counted[origin], index] = leaf
    return Candidates(group, boxes, np.concatenate([label for _, label in places]), leaves)


def survivors(trees: Sequence[CodedTree], grid: Grid, group: RowGroup) -> tuple[Boxes, Bools]:
    """Boxes where a row of a group can be that no tree divides, and (b, k) its possible classes in them."""
    boxes, possible = grid.tightened(grid.whole())
    classes = np.tile(possible[:, None], trees[0].classes)  # (b, k)
    used = np.flatnonzero(group.share > 0)
    for index in used[np.argsort(-group.weight[used], kind="stable")]:  # those that need most room drop most
        tree, room = trees[index], trees[index].room(group.share[index], group.weight[index])
        origin, leaf = tree.leaves(boxes, room.any(1))
        left = classes[origin] & room[leaf]
        keep = left.any(1)
        origin, leaf, left = origin[keep], leaf[keep], left[keep]
        if len(leaf) > MOST_BOXES:
            raise TooManyCellsError(
                f"WholeTable: the counts of these trees leave more than {MOST_BOXES:,} places for a row. Columns with "
                "few values (binary ones) and deep trees leave fewer."
            )
        boxes, possible = grid.tightened(
            Boxes(
                np.maximum(boxes.low[origin], tree.boxes.low[leaf]),
                np.minimum(boxes.high[origin], tree.boxes.high[leaf]),
            )
        )
        boxes, classes = Boxes(boxes.low[possible], boxes.high[possible]), left[possible]
    return boxes, classes
