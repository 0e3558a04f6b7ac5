"""Where rows of a table can be, by the counts of a forest that was grown on it.

Trees compare: of a value they can tell only between which two thresholds it lies. A column is coded by these intervals,
or by its values where these are public (a binary column), so a row is a cell of a grid and a leaf is a box.

A row can be in cells whose leaf has room for it in every tree that was grown on it. Boxes of cells are sent down tree
by tree. A box that spans a split is divided; one that ends in a leaf with too few rows of every class is dropped. Few
are left after a hundred trees, so cells need not be listed one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lostwax.games.boosting import BoostedTree
from lostwax.games.trees import LEAF, Bools, Floats, Forest, Ints, LabelSums, Tree

BINARY = np.array([0.0, 1.0])
MAX_BOXES = 4_000_000


class TooManyCellsError(ValueError):
    """The counts of the trees leave more cells than can be listed."""


class Boxes(NamedTuple):
    """Boxes of cells: of each column the lowest and the highest code."""

    low: Ints  # (b, d)
    high: Ints  # (b, d)

    def at(self, which: Ints | Bools) -> Boxes:
        """Some of them."""
        return Boxes(self.low[which], self.high[which])


@dataclass(frozen=True)
class Grid:
    """The codes of each column: places in its public values, or between the thresholds of all trees."""

    values: tuple[Floats | None, ...]  # (d) of (codes,) sorted public values; None: not public
    cuts: tuple[Floats, ...]  # (d) of (codes - 1,) sorted thresholds; used where values are not public
    one_hot: tuple[tuple[int, ...], ...] = ()  # binary columns of which exactly one is 1
    strict: bool = False

    @classmethod
    def of(
        cls,
        forest: Forest,
        columns: int,
        values: Mapping[int, Floats] | None = None,
        one_hot: Sequence[Sequence[int]] = (),
    ) -> Grid:
        """The grid of a forest; `values` are public values of some columns."""
        public = dict(values or {}) | {column: BINARY for group in one_hot for column in group}
        features = np.concatenate([tree.feature for tree in forest.trees])  # of leaves LEAF, which is no column
        thresholds = np.concatenate([tree.threshold for tree in forest.trees])
        return cls(
            values=tuple(np.unique(public[column]) if column in public else None for column in range(columns)),
            cuts=tuple(np.unique(thresholds[features == column]) for column in range(columns)),
            one_hot=tuple(tuple(group) for group in one_hot),
            strict=forest.strict,
        )

    @property
    def codes(self) -> Ints:
        """(d,) the number of codes of each column."""
        pairs = zip(self.values, self.cuts, strict=True)
        return np.array([len(cuts) + 1 if values is None else len(values) for values, cuts in pairs])

    def all_cells(self) -> Boxes:
        """One box of all cells."""
        high = (self.codes - 1)[None]
        high = high.astype(np.int8 if high.max() < 127 else np.int32)
        return Boxes(np.zeros_like(high), high)

    def split_codes(self, tree: Tree) -> Ints:
        """(m,) of each inner node the highest code that goes left."""
        codes = np.full(len(tree.feature), -1)
        for column in np.unique(tree.feature[tree.feature != LEAF]):
            nodes, values = np.flatnonzero(tree.feature == column), self.values[column]
            if values is None:
                codes[nodes] = np.searchsorted(self.cuts[column], tree.threshold[nodes])
            else:
                at_most = np.searchsorted(values, tree.threshold[nodes], side="left" if self.strict else "right")
                codes[nodes] = at_most - 1
        return codes

    def tightened(self, boxes: Boxes) -> tuple[Boxes, Bools]:
        """Boxes without the cells that break a one-hot group, and (b,) which still have any."""
        low, high = boxes.low.copy(), boxes.high.copy()
        possible = np.ones(len(low), dtype=bool)
        for group in map(list, self.one_hot):
            ones, left = low[:, group].sum(1), high[:, group].sum(1)
            possible &= (ones <= 1) & (left >= 1)
            high[:, group] = np.where((ones == 1)[:, None], low[:, group], high[:, group])
            low[:, group] = np.where((left == 1)[:, None], high[:, group], low[:, group])
        return Boxes(low, high), possible

    def bounds(self, boxes: Boxes) -> tuple[Floats, Floats]:
        """(b, d) the smallest and the largest value of each column of each box."""
        low, high = np.empty(boxes.low.shape), np.empty(boxes.high.shape)
        for column, (values, cuts) in enumerate(zip(self.values, self.cuts, strict=True)):
            edges = np.concatenate([[-np.inf], cuts, [np.inf]])
            lows, highs = (edges[:-1], edges[1:]) if values is None else (values, values)
            low[:, column], high[:, column] = lows[boxes.low[:, column]], highs[boxes.high[:, column]]
        return low, high

    def guess(self, boxes: Boxes) -> Floats:
        """(b, d) a value of each column within each box: the most common one where several are possible."""
        codes, settled = boxes.low.astype(np.intp), boxes.low == boxes.high
        for column, count in enumerate(self.codes):
            share = np.bincount(codes[settled[:, column], column], minlength=count)
            order = np.argsort(-share, kind="stable")  # codes by how common they are
            for code in order[::-1]:
                within = (boxes.low[:, column] <= code) & (code <= boxes.high[:, column])
                codes[within, column] = code
        for group in map(list, self.one_hot):
            share = np.where(settled[:, group], boxes.low[:, group], 0).sum(0)
            hot = np.argmax(np.where(boxes.high[:, group] > 0, share + 1, 0), axis=1)  # (b,)
            codes[:, group] = np.arange(len(group)) == hot[:, None]
        low, high = self.bounds(Boxes(codes, codes))
        step = np.array([np.ptp(cuts) / (len(cuts) - 1) if len(cuts) > 1 else 1.0 for cuts in self.cuts])
        low, high = np.where(np.isfinite(low), low, high - 2 * step), np.where(np.isfinite(high), high, low + 2 * step)
        split = np.isfinite(low)  # a column that no tree splits: anything
        return np.where(split, (np.where(split, low, 0.0) + np.where(split, high, 0.0)) / 2, 0.0)


def node_boxes(tree: Tree, grid: Grid, split: Ints) -> Boxes:
    """(m, d) the box of each node, from the root down; `split` (m,) is the highest code that goes left."""
    low, high = (np.repeat(part, len(tree.feature), axis=0) for part in grid.all_cells())
    inner = np.zeros(1, dtype=np.intp)
    while len(inner := inner[tree.feature[inner] != LEAF]):
        columns, left, right = tree.feature[inner], tree.left[inner], tree.right[inner]
        low[left], low[right], high[left], high[right] = low[inner], low[inner], high[inner], high[inner]
        high[left, columns] = np.minimum(high[left, columns], split[inner])
        low[right, columns] = np.maximum(low[right, columns], split[inner] + 1)
        inner = np.concatenate([left, right])
    return Boxes(low, high)


class CodedLeaves(NamedTuple):
    """The leaves of a tree as boxes of codes, and the sums of their rows as equations."""

    nodes: Ints  # (l,) their numbers in the tree
    boxes: Boxes  # (l, d)
    step: Floats  # (l,)
    output: int

    @classmethod
    def of(cls, boosted: BoostedTree, grid: Grid) -> CodedLeaves:
        """Of one tree."""
        leaves = np.flatnonzero(boosted.tree.feature == LEAF)
        boxes = node_boxes(boosted.tree, grid, grid.split_codes(boosted.tree))
        return cls(leaves, boxes.at(leaves), boosted.step[leaves], boosted.output)

    def within(self, boxes: Boxes, leaf: Ints, grid: Grid) -> tuple[Boxes, Bools]:
        """The part of each box that is in a leaf, and whether it has any cell."""
        low = np.maximum(boxes.low, self.boxes.low[leaf])
        high = np.minimum(boxes.high, self.boxes.high[leaf])
        part, possible = grid.tightened(Boxes(low, np.maximum(low, high)))
        return part, possible & (low <= high).all(1)

    def hulls(self, boxes: Boxes, allowed: Bools, grid: Grid) -> Boxes:
        """(p, d) the smallest box around what the `allowed` (p, l) leaves have of each box; the box if none is."""
        place, leaf = np.nonzero(allowed)
        parts, possible = self.within(boxes.at(place), leaf, grid)
        place, parts, some = place[possible], parts.at(possible), np.zeros(len(boxes.low), dtype=np.bool_)
        low, high, some[place] = boxes.high.copy(), boxes.low.copy(), True
        np.minimum.at(low, place, parts.low)
        np.maximum.at(high, place, parts.high)
        return Boxes(*(np.where(some[:, None], new, old) for new, old in zip((low, high), boxes, strict=True)))

    def possible(self, boxes: Boxes, grid: Grid) -> Bools:
        """(p, l) which boxes have a cell in which leaf."""
        p, leaves = len(boxes.low), len(self.nodes)
        place, leaf = np.divmod(np.arange(p * leaves), leaves)
        return np.asarray(self.within(boxes.at(place), leaf, grid)[1].reshape(p, leaves))


@dataclass(frozen=True)
class CodedTree:
    """A tree whose thresholds are codes of a grid, and its counts of classes."""

    tree: Tree
    share: Floats  # (n,) how often it counts each row
    sums: LabelSums
    split: Ints  # (m,) highest code that goes left
    boxes: Boxes  # (m, d) the box of each node

    @classmethod
    def of(cls, tree: Tree, grid: Grid) -> CodedTree:
        """Code thresholds, and find the boxes of nodes from the root down."""
        if tree.categories:
            raise ValueError("WholeTable: trees that split codes of categories are not supported.")
        if tree.labels is None or tree.share is None:
            raise ValueError("WholeTable: every tree must have counts of classes, and the rows that it was grown on.")
        split = grid.split_codes(tree)
        return cls(tree, tree.share, tree.labels, split, node_boxes(tree, grid, split))

    def room(self, share: float, weight: float) -> Bools:
        """(m, k) whether a node has room for a row of each class."""
        enough = self.tree.size + self.tree.rounding >= share
        totals: Bools = self.sums.totals + self.sums.rounding[:, None] >= weight
        return totals & enough[:, None]

    def leaves(self, boxes: Boxes, open_nodes: Bools) -> tuple[Ints, Ints]:
        """The leaves that boxes reach through open nodes: numbers of the boxes, and of the leaves."""
        tree = self.tree
        origin, node = np.arange(len(boxes.low)), np.zeros(len(boxes.low), dtype=np.intp)
        ends = [(origin[:0], node[:0])]
        while len(node):
            ended = tree.feature[node] == LEAF
            ends.append((origin[ended], node[ended]))
            origin, node = origin[~ended], node[~ended]
            column, split = tree.feature[node], self.split[node]
            # a box that meets all intervals of a path meets their intersection: they are intervals of one column
            left = (boxes.low[origin, column] <= split) & open_nodes[tree.left[node]]
            right = (boxes.high[origin, column] > split) & open_nodes[tree.right[node]]
            origin, node = (
                np.concatenate([origin[left], origin[right]]),
                np.concatenate([tree.left[node[left]], tree.right[node[right]]]),
            )
        return np.concatenate([pair[0] for pair in ends]), np.concatenate([pair[1] for pair in ends])


class RowGroups(NamedTuple):
    """Rows that all trees count alike: without bootstraps all rows, with them one row each."""

    number: Ints  # (n,) the group of each row
    share: Floats  # (groups, trees) what a row adds to sizes; 0: the tree was not grown on it
    weight: Floats  # (groups, trees) what it adds to the totals of its class

    @classmethod
    def of(cls, trees: Sequence[CodedTree]) -> RowGroups:
        """By what rows add to each tree, which is public: bootstraps are replayed from stored seeds."""
        added = np.stack([*(tree.share for tree in trees), *(tree.sums.weight for tree in trees)], axis=1)
        kinds, number = np.unique(added, axis=0, return_inverse=True)
        return cls(number.ravel(), kinds[:, : len(trees)], kinds[:, len(trees) :])

    @property
    def members(self) -> Ints:
        """(groups,) how many rows there are of each."""
        return np.bincount(self.number, minlength=len(self.share))


class Candidates(NamedTuple):
    """Where rows may be: a box that no tree divides, and a class, for rows of one group."""

    group: Ints  # (v,)
    boxes: Boxes  # (v, d)
    label: Ints  # (v,)
    leaves: Ints  # (v, trees) the leaf of each tree; -1: the tree was not grown on these rows

    @classmethod
    def of(cls, trees: Sequence[CodedTree], grid: Grid, groups: RowGroups, most: int | None = None) -> Candidates:
        """All places where the rows of each group can be, by the counts of each tree alone; at most `most` of each."""
        parts = []  # of each group boxes and classes
        for share, weight in zip(groups.share, groups.weight, strict=True):
            boxes, classes = _survivors(trees, grid, share, weight, MAX_BOXES if most is None else most)
            place, label = np.nonzero(classes)
            parts.append((boxes.at(place), label))
        group = np.repeat(np.arange(len(parts)), [len(label) for _, label in parts])
        boxes = Boxes(*(np.concatenate(ends) for ends in zip(*(boxes for boxes, _ in parts), strict=True)))
        leaves = np.full((len(group), len(trees)), -1)
        for index, tree in enumerate(trees):
            counted = np.flatnonzero(groups.share[group, index] > 0)
            origin, leaf = tree.leaves(boxes.at(counted), np.ones(len(tree.split), dtype=bool))
            leaves[counted[origin], index] = leaf
        return cls(group, boxes, np.concatenate([label for _, label in parts]), leaves)


def _survivors(trees: Sequence[CodedTree], grid: Grid, share: Floats, weight: Floats, most: int) -> tuple[Boxes, Bools]:
    """Boxes where a row that trees count so can be, which no tree divides, and (b, k) its possible classes in them."""
    boxes, possible = grid.tightened(grid.all_cells())
    classes = np.tile(possible[:, None], trees[0].sums.totals.shape[1])  # (b, k)
    used = np.flatnonzero(share > 0)
    for index in used[np.argsort(-weight[used], kind="stable")]:  # those that need most room drop most
        tree, room = trees[index], trees[index].room(share[index], weight[index])
        origin, leaf = tree.leaves(boxes, room.any(1))
        left = classes[origin] & room[leaf]
        open_places = left.any(1)
        origin, leaf, left = origin[open_places], leaf[open_places], left[open_places]
        if len(leaf) > most:
            raise TooManyCellsError(
                f"WholeTable: the counts of these trees leave more than {most:,} places for a row. Columns with "
                "few values (binary ones) and deep trees leave fewer."
            )
        low = np.maximum(boxes.low[origin], tree.boxes.low[leaf])
        boxes, possible = grid.tightened(Boxes(low, np.minimum(boxes.high[origin], tree.boxes.high[leaf])))
        boxes, classes = boxes.at(possible), left[possible]
    return boxes, classes
