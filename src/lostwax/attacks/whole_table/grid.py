"""Cells between the thresholds of a forest, and boxes of them.

Trees compare: of a value they can tell only between which two thresholds it lies. A column is coded by these intervals,
or by its values where these are public (a binary column), so a row is a cell of a grid and a leaf is a box.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lostwax.games.trees import LEAF, Bools, Floats, Forest, Ints, Tree

BINARY = np.array([0.0, 1.0])


class Boxes(NamedTuple):
    """Boxes of cells: of each column the lowest and the highest code."""

    low: Ints  # (b, d)
    high: Ints  # (b, d)


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
        inner = [tree.feature != LEAF for tree in forest.trees]
        features = np.concatenate([tree.feature[keep] for tree, keep in zip(forest.trees, inner, strict=True)])
        thresholds = np.concatenate([tree.threshold[keep] for tree, keep in zip(forest.trees, inner, strict=True)])
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

    def whole(self) -> Boxes:
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
