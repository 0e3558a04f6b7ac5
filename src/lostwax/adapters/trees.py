"""Trees of all libraries in one form, and one check that they were grown on the rows of a table.

A family gives its nodes (`Nodes`, of a file) or trees, and what each row adds to their sizes. Rows are sent down each
tree, and what they add up to is compared with what its nodes say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lostwax.games import Extremes, Noted
from lostwax.games.trees import LEAF, Bools, Floats, Forest, Ints, LabelSums, Tree

Numbers = NDArray[np.float64]

UNIT = 2.0**-24  # rounding to float32 changes a number by at most this share of it
EPSILON = float(np.finfo(np.float64).eps)
MAX_CODES = 1 << 20  # of a column of categories
IN_ORDER = ", in the same order"


class Nodes(NamedTuple):
    """One tree of a file, (m,) each. Node 0 is the root; a leaf has feature, left and right -1."""

    feature: Ints  # the column of the table
    threshold: Numbers
    left: Ints
    right: Ints
    missing_left: Bools
    size: Numbers  # the number of its rows, their weight, or the sum of their second derivatives
    value: Numbers  # what a leaf adds to the score; of other nodes their weight, NaN if the file does not give it
    curvature: Numbers  # sum of second derivatives, NaN if the file does not give it
    codes: Mapping[int, Ints] = {}  # nodes that split codes: those that it names


@dataclass(frozen=True)
class Boosted:
    """What boosted trees publish about the rows that they were grown on."""

    forest: Forest
    extremes: tuple[Extremes, ...] = ()
    notes: tuple[Noted, ...] = ()
    unread: tuple[str, ...] = ()  # what says nothing about single rows and why, as sentences


@dataclass(frozen=True, kw_only=True)
class BoostedModel(ABC):
    """The numbers of a model of boosted trees, as its file holds them. It cannot be fitted again."""

    name: str
    trees: tuple[Nodes, ...]
    rate: float  # of learning
    base_score: Numbers = field(default_factory=lambda: np.empty(0))  # (k,) before the first tree; empty: not stored
    categories: tuple[tuple[object, ...], ...] = ()  # of each column of pandas' categories, by code

    gaps: ClassVar[bool] = False  # what is not stored in a sparse matrix counts as missing
    strict: ClassVar[bool] = False  # rows go left below a threshold; otherwise also at it
    codes_go_left: ClassVar[bool] = True  # the codes that a node names; otherwise these go right

    @property
    @abstractmethod
    def classifies(self) -> bool:
        """Whether labels are class numbers."""

    @abstractmethod
    def read(self, x: Numbers, y: Numbers, weight: Numbers) -> Boosted:
        """What the trees say about rows (n, d), with codes for categories; y are class numbers or targets."""

    def check_columns(self, x: Floats, fewest: int) -> None:
        """Raise if the table has fewer columns than the trees were grown on."""
        if x.shape[1] < fewest:
            raise ValueError(
                f"audit: {self.name} was fitted on at least {fewest:,} columns, the table has {x.shape[1]:,}. Pass the "
                "data it was fitted on, with its columns in the same order."
            )

    def descended(self, x: Floats, inside: Bools | None = None) -> tuple[list[Tree], list[Visits]]:
        """The trees, whose sizes say nothing yet, and the way of rows down each."""
        count: dict[int, int] = {}  # codes of each column: by number, more than any in the table or in the trees
        for nodes in self.trees:
            for node, codes in nodes.codes.items():
                column = int(nodes.feature[node])
                present = count.get(column, 1 + int(np.nanmax(x[:, column], initial=0.0)))
                count[column] = max(present, 1 + int(codes.max(initial=0)))
        trees = [self._tree(nodes, count, len(x)) for nodes in self.trees]
        return trees, [visits(tree, x, strict=self.strict, inside=inside) for tree in trees]

    def _tree(self, nodes: Nodes, count: Mapping[int, int], rows: int) -> Tree:
        """One tree; raises if its nodes form none, because in a damaged file a row could go around in circles."""
        categories, threshold = {}, nodes.threshold.copy()
        for node, codes in nodes.codes.items():
            named = np.isin(np.arange(count[int(nodes.feature[node])]), codes)
            categories[node], threshold[node] = named if self.codes_go_left else ~named, np.nan
        inner = nodes.feature != LEAF
        children, size = np.concatenate([nodes.left[inner], nodes.right[inner]]), len(nodes.size)
        if bool(((children < 1) | (children >= size)).any()) or len(np.unique(children)) < len(children):
            raise ValueError(
                f"audit: {self.name} is damaged: a node of a tree has two parents, or none. Save it again."
            )
        if bool((nodes.feature < LEAF).any()):
            raise ValueError(
                f"audit: {self.name} is damaged: a node splits a column that does not exist. Save it again."
            )
        return Tree(
            feature=nodes.feature,
            threshold=threshold,
            left=nodes.left,
            right=nodes.right,
            missing_left=nodes.missing_left,
            size=nodes.size,
            share=np.zeros(rows),
            rounding=np.full(size, np.inf),
            categories=categories,
        )


def is_read(model: Any) -> bool:
    """Whether this is a model that was read from a file, and not one of its library."""
    return isinstance(model, BoostedModel)


class Visits(NamedTuple):
    """Every node that each row passes, as pairs; and where the rows end."""

    rows: Ints
    nodes: Ints
    leaves: Ints  # (n,)

    def sums(self, values: Floats, count: int) -> Numbers:
        """(count,) the sum of the values of the rows in each node."""
        return np.bincount(self.nodes, values[self.rows], count).astype(np.float64)

    def below(self, tree: Tree) -> Ints:
        """The root, and the children of every node that a row passes."""
        inner = np.unique(self.nodes[tree.feature[self.nodes] != LEAF])
        return np.unique(np.concatenate([np.zeros(1, dtype=np.intp), tree.left[inner], tree.right[inner]]))


def visits(tree: Tree, x: Floats, *, strict: bool = False, inside: Bools | None = None) -> Visits:
    """The way of rows (n, d), as the trees compare them, down a tree; some stay outside."""
    rows = np.arange(len(x)) if inside is None else np.flatnonzero(inside)
    leaves = np.zeros(len(x), dtype=np.intp)
    passed: list[tuple[Ints, Ints]] = [(rows, leaves[rows])]
    for level in tree.levels(x, rows, strict=strict):
        leaves[level.rows] = level.child
        passed.append((level.rows, level.child))
    all_rows, nodes = (np.concatenate(part) for part in zip(*passed, strict=True))
    return Visits(all_rows, nodes, leaves)


def misfits(tree: Tree, seen: Visits) -> Ints:
    """The nodes whose size is not that of their rows; that have too few, if it is not known which rows were used."""
    below = seen.below(tree)
    if tree.share is None:
        fewest = np.where(np.isfinite(tree.rounding), tree.size, 1)
        return below[(np.bincount(seen.nodes, minlength=len(tree.size)) < fewest)[below]]
    return below[(np.abs(seen.sums(tree.share, len(tree.size)) - tree.size) > tree.rounding)[below]]


def with_shares(tree: Tree, seen: Visits, share: Floats, rounding: Floats | float) -> Tree:
    """The tree with what each row adds to its sizes, which say nothing if the rows do not add up to them."""
    sized = replace(tree, share=share, rounding=np.broadcast_to(rounding, tree.size.shape))
    return sized if not len(misfits(sized, seen)) else replace(sized, rounding=np.full(len(tree.size), np.inf))


def label_misfits(sums: LabelSums, targets: Floats, seen: Visits, times: float = 1.0) -> Bools:
    """(m,) nodes that rows reach whose sums are not those of the labels (n, k), by some times their error."""
    count = len(sums.totals)
    totals = np.stack([seen.sums(sums.weight * column, count) for column in targets.T], 1)
    off = (np.abs(totals - sums.totals) > times * sums.rounding[:, None]).any(1)
    return np.asarray(off & (np.bincount(seen.nodes, minlength=count) > 0))


def with_labels(tree: Tree, sums: LabelSums, targets: Floats, seen: Visits) -> Tree:
    """The tree with sums of labels, if they are those of the rows; otherwise it was penalised in some other way."""
    return tree if label_misfits(sums, targets, seen).any() else replace(tree, labels=sums)


def class_targets(y: Floats, classes: int) -> Numbers:
    """(n, classes) 1 in the column of each row's class."""
    return np.asarray(y[:, None] == np.arange(classes), dtype=np.float64)


def check_no_empty_node(name: str, trees: Sequence[Tree], seen: Sequence[Visits]) -> None:
    """Raise if a tree has a node that no row of the table is in."""
    for number, (tree, way) in enumerate(zip(trees, seen, strict=True)):
        if (np.bincount(way.nodes, minlength=len(tree.size))[way.below(tree)] == 0).any():
            raise ValueError(
                f"audit: {name} was not fitted on this table: tree {number} has a node that no row is in. Pass the "
                "data the model was fitted on, with its columns in the same order."
            )


def other_data(name: str, why: str, more: str = "") -> ValueError:
    """The error for a model that was fitted on other rows, labels or weights."""
    return ValueError(
        f"audit: {name} was not fitted on this data (X, y): {why}. Pass exactly the rows, labels and sample_weight it "
        f"was fitted on{more}."
    )


def check_counts(name: str, number: int, tree: Tree, seen: Visits) -> None:
    """Raise if nodes do not hold as many rows as they say."""
    if len(wrong := misfits(tree, seen)):
        node = int(wrong[0])
        share = np.ones(len(seen.leaves)) if tree.share is None else tree.share
        count = seen.sums(share, len(tree.size))[node]
        says = f"node {node} holds {count:,.0f} rows, the model says {tree.size[node]:,.0f}"
        raise other_data(name, f"in tree {number} {says}", IN_ORDER)


def thresholds_of(trees: Sequence[Tree], column: int) -> Numbers:
    """The distinct thresholds of one column in all trees."""
    used = [tree.threshold[(tree.feature == column) & np.isfinite(tree.threshold)] for tree in trees]
    return np.unique(np.concatenate([np.empty(0), *used]))


def present_values(x: Floats, column: int, rows: Bools | None = None) -> Numbers:
    """The distinct values of one column in some rows, or in all."""
    values = x[:, column] if rows is None else x[rows, column]
    return np.unique(values[~np.isnan(values)])


@contextmanager
def parsing(damage: str, *refusals: type[Exception]) -> Iterator[None]:
    """Raise a ValueError that states the damage where a part of a file is missing, too large, or of another kind.

    Errors that are refusals say more, and pass.
    """
    try:
        yield
    except refusals:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, MemoryError):
        raise ValueError(damage) from None  # a cause can quote values of the table


def damaged(name: str) -> str:
    """That a part of a file is missing or wrong."""
    return f"audit: {name} is damaged: a part of the model is missing, or is not what it should be. Save it again."


def whole_numbers(values: Any, count: int | None = None) -> Ints:
    """A list of a file as (count,) integers; raises if it is none."""
    _check_list(values, "iub", count)
    return np.asarray(values, dtype=np.int64)


def real_numbers(values: Any, count: int | None = None) -> Numbers:
    """A list of a file as (count,) numbers; raises if it is none."""
    _check_list(values, "fiub", count)
    return np.asarray(values, dtype=np.float64)


def _check_list(values: Any, kinds: str, count: int | None) -> None:
    numbers = np.asarray(values)
    if numbers.dtype.kind not in kinds and numbers.size:
        raise TypeError("expected other numbers")
    if numbers.ndim != 1 or (count is not None and len(numbers) != count):
        raise ValueError(f"expected {count} numbers, got shape {numbers.shape}")
