"""What trees publish about the rows they were grown on.

A tree is an index of its rows. Counts tell in which nodes a row is; a threshold lies half-way between two neighbouring
values, or is a value itself; the values of leaves are means of labels. Adapters read models of all libraries into these
forms, and the attack intersects what they say (`attacks.trees`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lostwax.games.cells import Bools as Bools
from lostwax.games.cells import Bounds as Bounds
from lostwax.games.cells import Floats as Floats

Ints = NDArray[np.integer[Any]]
Method = Literal["averaged_inverted_cdf", "midpoint"]  # of np.percentile

LEAF = -1


@dataclass(frozen=True)
class LabelSums:
    """Sums of labels in the nodes of a tree: means times counts, or counts of classes."""

    totals: Floats  # (m, k) of each node: of k classes the total weight of each, or of k targets their weighted sum
    weight: Floats  # (n,) the weight of each row in them
    rounding: Floats  # (m,) largest error of a total; inf: nothing is said about this node

    @classmethod
    def of_root(cls, totals: Floats, weight: Floats, error: float, nodes: int) -> LabelSums:
        """The sums (k,) of all rows, those of the root, and nothing about its other nodes."""
        at_root = np.arange(nodes) == 0
        return cls(np.where(at_root[:, None], totals, 0.0), weight, np.where(at_root, error, np.inf))


class Level(NamedTuple):
    """Rows of a tree at one depth, and the side that each takes there."""

    rows: Ints  # (k,) those that are not in a leaf yet
    node: Ints  # (k,) where each is
    value: Floats  # (k,) of the column that the node splits
    left: Bools  # (k,) the side each takes
    child: Ints  # (k,) where that leads
    shown: Bools  # (k,) sizes show that the row, if it is missing, took this side; all are, of known rows


@dataclass(frozen=True)
class Tree:
    """One tree, its nodes as arrays of length m. Node 0 is the root; a leaf has feature, left and right -1.

    A row of n goes left where its value is at most the threshold (below it, if the forest is `strict`), or where it is
    one of the `categories` of the node. `size` tells which nodes the missing row is in: those whose known rows do not
    add up to it.
    """

    feature: Ints
    threshold: Floats
    left: Ints
    right: Ints
    missing_left: Bools  # (m,) rows without a value go left
    size: Floats  # (m,) sum of the shares of the rows in it
    # (n,) what each row adds to sizes: one, its weight, its curvature; 0: the tree was not grown on it.
    # None: it is not known on which rows it was grown; sizes then count rows, each once
    share: Floats | None
    rounding: Floats  # (m,) largest error of a size; inf: nothing is said about this node
    between_neighbours: bool = False  # thresholds lie half-way between two neighbouring values in the node
    labels: LabelSums | None = None
    categories: Mapping[int, Bools] = field(default_factory=dict)  # nodes that split codes: (codes,) which go left

    @property
    def tells_path(self) -> bool:
        """Whether its sizes say anything."""
        return bool(np.isfinite(self.rounding).any())

    @property
    def tells_label(self) -> bool:
        """Whether it says anything about the labels in some node."""
        return self.labels is not None and bool(np.isfinite(self.labels.rounding).any())

    def levels(self, x: Floats, rows: Ints, *, strict: bool) -> Iterator[Level]:
        """Some of the rows x (n, d), as the trees compare them, on their way to the leaves, one depth at a time."""
        node = np.zeros(len(rows), dtype=np.intp)
        while len(rows := rows[inner := self.feature[node] != LEAF]):
            node = node[inner]
            value = x[rows, self.feature[node]]
            left = self._goes_left(node, value, strict)
            child = np.where(left, self.left[node], self.right[node])
            yield Level(rows, node, value, left, child, np.ones(len(rows), dtype=np.bool_))
            node = child

    def _goes_left(self, node: Ints, value: Floats, strict: bool) -> Bools:
        threshold = self.threshold[node]
        left = value < threshold if strict else value <= threshold
        for split, to_left in self.categories.items():
            here = node == split
            codes = np.nan_to_num(value[here], nan=-1).astype(np.intp)
            known = (codes >= 0) & (codes < len(to_left))
            left[here] = np.where(known, to_left[codes.clip(0, len(to_left) - 1)], False)
        return np.where(np.isnan(value), self.missing_left[node], left)


def half_way(lower: Floats, upper: Floats) -> Floats:
    """The threshold between two neighbouring values."""
    middle: Floats = (lower + upper) / 2
    return middle


@dataclass(frozen=True)
class ColumnThresholds:
    """Thresholds that a model has for one column, made of the values of its rows."""

    column: int
    thresholds: Floats  # (k,) sorted, distinct
    rows: Bools | None = field(default=None, kw_only=True)  # (n,) the rows whose values they are made of; None: all

    @property
    def of_all_rows(self) -> bool:
        """Whether they are made of the values of all rows: not of some, drawn by their number."""
        return self.rows is None or bool(self.rows.all())


@dataclass(frozen=True)
class Cuts(ColumnThresholds):
    """Values of the column (`values`), or half-way between two that are neighbours among its distinct values."""

    values: bool  # each is a value of the column; otherwise each is half-way between two neighbours
    complete: bool = False  # there is one between any two neighbours (or one at any value), used in a tree or not
    between: Callable[[Floats, Floats], Floats] = half_way  # as the library rounds it; monotone in both values


@dataclass(frozen=True)
class Quantiles(ColumnThresholds):
    """Quantiles of its values, by a method of np.percentile: order statistics, or half-way between two neighbours."""

    percentages: Floats  # (q,) sorted; quantiles that are equal were merged
    method: Method = "averaged_inverted_cdf"


@dataclass(frozen=True)
class Forest:
    """All trees of a model, and what it tells about columns as a whole."""

    trees: tuple[Tree, ...]
    cuts: tuple[Cuts, ...] = ()
    quantiles: tuple[Quantiles, ...] = ()
    rounded: bool = False  # thresholds are rounded to float32
    single: bool = True  # values are rounded to float32 before they are compared
    strict: bool = False  # a row goes left where its value is below the threshold; otherwise also where it is equal
    ordered: bool = False  # what each tree was grown on depends on the order of rows: bootstraps drawn by their number
    accepts_missing: bool | Bools = True  # a row without a value is possible; (d,) by column

    def without_order(self) -> Forest:
        """The same for an adversary who knows the other rows, but not their order."""
        if not self.ordered:
            return self
        return replace(
            self,
            trees=tuple(replace(tree, share=None, labels=None) for tree in self.trees),
            cuts=tuple(cuts for cuts in self.cuts if cuts.of_all_rows),
            quantiles=tuple(quantiles for quantiles in self.quantiles if quantiles.of_all_rows),
            ordered=False,
        )

    def columns(self) -> Ints:
        """The columns that trees split, or that have other thresholds."""
        split = [np.unique(tree.feature[tree.feature != LEAF]) for tree in self.trees]
        cut = [thresholds.column for thresholds in (*self.cuts, *self.quantiles)]
        return np.unique(np.concatenate([np.array(cut, dtype=np.intp), *split]))

    def cast(self, x: Floats) -> Floats:
        """Values as the trees compare them."""
        return in_float32(x) if self.single else x.astype(np.float64)


def in_float32(values: Floats) -> NDArray[np.float64]:
    """Numbers rounded to float32; too large ones are infinite."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32).astype(np.float64)
