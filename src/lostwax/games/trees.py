"""What trees publish about the rows they were grown on.

A tree is an index of its rows. Counts tell in which nodes a row is; a threshold lies half-way between two neighbouring
values, or is a value itself; the values of leaves are means of labels. Adapters read models of all libraries into these
forms, and the attack intersects what they say (`attacks.trees`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

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
    def tells_label(self) -> bool:
        """Whether it says anything about the labels in some node."""
        return self.labels is not None and bool(np.isfinite(self.labels.rounding).any())

    def levels(self) -> Iterator[Ints]:
        """The nodes of each depth, the root first."""
        nodes = np.zeros(1, dtype=np.intp)
        while len(nodes):
            yield nodes
            inner = nodes[self.feature[nodes] != LEAF]
            nodes = np.concatenate([self.left[inner], self.right[inner]])


def half_way(lower: Floats, upper: Floats) -> Floats:
    """The threshold between two neighbouring values."""
    middle: Floats = (lower + upper) / 2
    return middle


@dataclass(frozen=True)
class Cuts:
    """Thresholds that a model has for one column, wherever they are used, made of the values of all rows.

    They are values of the column (`values`), or half-way between two that are neighbours among its distinct values.
    """

    column: int
    thresholds: Floats  # (k,) sorted, distinct
    values: bool  # each is a value of the column; otherwise each is half-way between two neighbours
    complete: bool = False  # there is one between any two neighbours (or one at any value), used in a tree or not
    between: Callable[[Floats, Floats], Floats] = half_way  # as the library rounds it; monotone in both values
    rows: Bools | None = None  # (n,) the rows whose values they are made of; None: all

    @property
    def of_all_rows(self) -> bool:
        """Whether they are made of the values of all rows: not of some, drawn by their number."""
        return self.rows is None or bool(self.rows.all())


@dataclass(frozen=True)
class Quantiles:
    """Thresholds of one column that are quantiles of its values, by a method of np.percentile.

    The method is one whose quantiles are order statistics, or half-way between two neighbours.
    """

    column: int
    thresholds: Floats  # (k,) sorted, distinct
    percentages: Floats  # (q,) sorted; quantiles that are equal were merged
    rows: Bools | None = None  # (n,) the rows whose values they are made of; None: all
    method: Method = "averaged_inverted_cdf"

    @property
    def of_all_rows(self) -> bool:
        """Whether they are made of the values of all rows: not of some, drawn by their number."""
        return self.rows is None or bool(self.rows.all())


@dataclass(frozen=True)
class Forest:
    """All trees of a model, and what it tells about columns as a whole."""

    trees: tuple[Tree, ...]
    cuts: tuple[Cuts, ...] = ()
    quantiles: tuple[Quantiles, ...] = ()
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
            cuts=tuple(one for one in self.cuts if one.of_all_rows),
            quantiles=tuple(one for one in self.quantiles if one.of_all_rows),
            ordered=False,
        )

    def columns(self) -> Ints:
        """The columns that trees split, or that have other thresholds."""
        split = [np.unique(tree.feature[tree.feature != LEAF]) for tree in self.trees]
        cut = [cuts.column for cuts in self.cuts] + [quantiles.column for quantiles in self.quantiles]
        return np.unique(np.concatenate([np.array(cut, dtype=np.intp), *split]))

    def cast(self, x: Floats) -> Floats:
        """Values as the trees compare them."""
        return x.astype(np.float32).astype(np.float64) if self.single else x.astype(np.float64)
