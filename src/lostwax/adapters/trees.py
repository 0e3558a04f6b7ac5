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

from lostwax.adapters.sklearn.inputs import other_data
from lostwax.games import Extremes, Noted
from lostwax.games.boosting import BoostedSums
from lostwax.games.trees import LEAF, Bools, Floats, Forest, Ints, LabelSums, Tree

Numbers = NDArray[np.float64]

UNIT = 2.0**-24  # rounding to float32 changes a number by at most this share of it
EPSILON = float(np.finfo(np.float64).eps)
MAX_CODES = 1 << 20  # of a column of categories


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
    no_numbers: tuple[int, ...] = ()  # columns of the table that no node which was read splits

    gaps: ClassVar[bool] = False  # what is not stored in a sparse matrix counts as missing
    strict: ClassVar[bool] = False  # rows go left below a threshold; otherwise also at it
    codes_go_left: ClassVar[bool] = True  # the codes that a node names; otherwise these go right

    @property
    @abstractmethod
    def classifies(self) -> bool:
        """Whether labels are class numbers."""

    @abstractmethod
    def sums(self) -> BoostedSums:
        """What the trees tell of rows that nobody knows; raises a TypeError that names what is not read."""

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

    def grown(self, x: Floats, inside: Bools | None = None) -> list[Grown]:
        """The trees, whose sizes say nothing yet, and the way of rows (n, d) down each."""
        count: dict[int, int] = {}  # codes of each column: by number, more than any in the table or in the trees
        for nodes in self.trees:
            for node, codes in nodes.codes.items():
                column = int(nodes.feature[node])
                present = count.get(column, 1 + int(np.nanmax(x[:, column], initial=0.0)))
                count[column] = max(present, 1 + int(codes.max(initial=0)))
        trees = (self._tree(nodes, count, len(x)) for nodes in self.trees)
        return [Grown.of(tree, x, strict=self.strict, inside=inside) for tree in trees]

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


def refuse(name: str, settings: Mapping[str, bool]) -> None:
    """Raise a TypeError that names the first setting with which sums over unknown rows are not read."""
    for setting, used in settings.items():
        if used:
            raise TypeError(f"{name}: {setting} is not read without a row of the table.")


class Grown(NamedTuple):
    """A tree and the way of rows down it: every node that each row passes, as pairs; and where the rows end."""

    tree: Tree
    rows: Ints
    nodes: Ints
    leaves: Ints  # (n,)

    @classmethod
    def of(cls, tree: Tree, x: Floats, *, strict: bool = False, inside: Bools | None = None) -> Grown:
        """Send rows (n, d), as the trees compare them, down a tree; some stay outside."""
        rows = np.arange(len(x)) if inside is None else np.flatnonzero(inside)
        leaves = np.zeros(len(x), dtype=np.intp)
        passed: list[tuple[Ints, Ints]] = [(rows, leaves[rows])]
        for level in tree.levels(x, rows, strict=strict):
            leaves[level.rows] = level.child
            passed.append((level.rows, level.child))
        all_rows, nodes = (np.concatenate(part) for part in zip(*passed, strict=True))
        return cls(tree, all_rows, nodes, leaves)

    def sums(self, values: Floats) -> Numbers:
        """(m,) the sum of the values (n,) of the rows in each node."""
        return np.bincount(self.nodes, values[self.rows], len(self.tree.size)).astype(np.float64)

    def counts(self) -> Ints:
        """(m,) how many rows are in each node."""
        return np.bincount(self.nodes, minlength=len(self.tree.size))

    def _below(self) -> Ints:
        """The root, and the children of every node that a row passes."""
        inner = np.unique(self.nodes[self.tree.feature[self.nodes] != LEAF])
        return np.unique(np.concatenate([np.zeros(1, dtype=np.intp), self.tree.left[inner], self.tree.right[inner]]))

    def has_empty_node(self) -> bool:
        """Whether a node holds no row."""
        return bool((self.counts()[self._below()] == 0).any())

    def misfits(self) -> Ints:
        """The nodes whose size is not that of their rows; that have too few, if it is not known which were used."""
        tree, below = self.tree, self._below()
        if tree.share is None:
            return below[(self.counts() < np.where(np.isfinite(tree.rounding), tree.size, 1))[below]]
        return below[(np.abs(self.sums(tree.share) - tree.size) > tree.rounding)[below]]

    def check_counts(self, name: str, number: int) -> None:
        """Raise if nodes do not hold as many rows as they say."""
        if len(wrong := self.misfits()):
            tree, node = self.tree, int(wrong[0])
            count = self.counts()[node] if tree.share is None else self.sums(tree.share)[node]
            says = f"node {node} holds {count:,.0f} rows, the model says {tree.size[node]:,.0f}"
            raise other_data(name, f"in tree {number} {says}", ", in the same order")

    def label_misfits(self, sums: LabelSums, targets: Floats, times: float = 1.0) -> Bools:
        """(m,) nodes that rows reach whose sums are not those of the labels (n, k), by some times their error."""
        totals = np.stack([self.sums(sums.weight * column) for column in targets.T], 1)
        off = (np.abs(totals - sums.totals) > times * sums.rounding[:, None]).any(1)
        return np.asarray(off & (self.counts() > 0))

    def with_shares(self, share: Floats, rounding: Floats | float) -> Grown:
        """The tree with what each row adds to its sizes, which say nothing if the rows do not add up to them."""
        tree = replace(self.tree, share=share, rounding=np.broadcast_to(rounding, self.tree.size.shape))
        sized = self._replace(tree=tree)
        if not len(sized.misfits()):
            return sized
        return self._replace(tree=replace(tree, rounding=np.full(len(tree.size), np.inf)))

    def with_labels(self, sums: LabelSums, targets: Floats) -> Tree:
        """The tree with sums of labels, if they are those of the rows; otherwise it was penalised in some other way."""
        return self.tree if self.label_misfits(sums, targets).any() else replace(self.tree, labels=sums)

    def with_class_counts(self, counts: Floats, weight: Floats, error: float, y: Floats) -> Tree:
        """The same from the weight of each class among all rows."""
        sums = LabelSums.of_root(counts, weight, error, len(self.tree.size))
        return self.with_labels(sums, np.asarray(y[:, None] == np.arange(len(counts)), dtype=np.float64))


def check_no_empty_node(name: str, grown: Sequence[Grown]) -> None:
    """Raise if a tree has a node that no row of the table is in."""
    for number, tree in enumerate(grown):
        if tree.has_empty_node():
            raise ValueError(
                f"audit: {name} was not fitted on this table: tree {number} has a node that no row is in. Pass the "
                "data the model was fitted on, with its columns in the same order."
            )


def thresholds_of(grown: Sequence[Grown], column: int) -> Numbers:
    """The distinct thresholds of one column in all trees."""
    trees = (each.tree for each in grown)
    used = [tree.threshold[(tree.feature == column) & np.isfinite(tree.threshold)] for tree in trees]
    return np.unique(np.concatenate([np.empty(0), *used]))


def present_values(x: Floats, column: int, rows: Bools | None = None) -> Numbers:
    """The distinct values of one column in some rows, or in all."""
    values = x[:, column] if rows is None else x[rows, column]
    return np.unique(values[~np.isnan(values)])


@contextmanager
def parsing(name: str, *refusals: type[Exception], damage: str | None = None) -> Iterator[None]:
    """Raise a ValueError that names the file where a part of it is missing, too large, or of another kind.

    Errors that are refusals say more, and pass.
    """
    try:
        yield
    except refusals:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, MemoryError):
        part = "is damaged: a part of the model is missing, or is not what it should be. Save it again."
        raise ValueError(f"audit: {name} {damage or part}") from None  # a cause can quote values of the table


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
