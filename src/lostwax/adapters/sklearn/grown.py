"""One tree of scikit-learn and the rows it was grown on: what its nodes say, and whether these are the rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.base import is_classifier
from sklearn.utils import get_tags

from lostwax.adapters.sklearn.estimators import Array
from lostwax.games.trees import LEAF, Bools, Floats, Forest, Ints, LabelSums, Tree

EPSILON = float(np.finfo(np.float64).eps)
MEANS = ("squared_error", "friedman_mse", "poisson")  # criteria for which a node's value is the mean of its labels
NEAR = 1e-5  # relative to the largest number of a column: steps before a model may round differently at each call
CURE = "Pass exactly the rows, labels and sample_weight it was fitted on"


class Targets(NamedTuple):
    """The labels that trees were grown on."""

    values: Floats  # (n, k) 1 in the column of each row's class; or (n, 1) targets
    columns: Ints  # which of the k columns are those of the tree
    subtracted: float = 0.0  # what the trees' own labels are less

    @classmethod
    def of(cls, estimator: Any, labels: Array) -> Targets | None:
        """The labels of a classifier or regressor; None if there are several per row."""
        if labels.ndim > 1:
            return None
        if not is_classifier(estimator):
            return cls(labels.astype(np.float64)[:, None], np.zeros(1, dtype=np.intp))
        names, numbers = np.unique(labels, return_inverse=True)
        if not np.isin(estimator.classes_, names).all():
            raise ValueError(
                f"audit: {type(estimator).__name__} was not fitted on this data (X, y): it has a class that is not in "
                f"y. {CURE}."
            )
        return cls(np.eye(len(names))[numbers], np.searchsorted(names, estimator.classes_))


class TreeSample(NamedTuple):
    """What one tree was grown on."""

    tree: Any  # a fitted tree of scikit-learn
    weight: Floats  # (n,) sample weight of each row times how often it was drawn; 0: the tree was not grown on it
    class_weight: Floats | None  # (n,) what it was multiplied by; None: not known
    targets: Targets | None = None  # None: not the labels of the table
    columns: Ints | None = None  # the columns that it saw; None: all

    @property
    def inside(self) -> Bools:
        """(n,) the rows that the tree was grown on: those with a weight."""
        return (self.weight if self.class_weight is None else self.weight * self.class_weight) > 0

    def paths(self, x: Floats, rows: Ints) -> csr_matrix:
        """(k, m) the nodes that some rows are in."""
        own = x[rows] if self.columns is None else x[np.ix_(rows, self.columns)]
        return self.tree.tree_.decision_path(np.ascontiguousarray(own, dtype=np.float32))


def forest_of_samples(estimator: Any, x: Floats, samples: Iterable[TreeSample], *, ordered: bool = False) -> Forest:
    """The forest of trees that were grown on samples of x (n, d), each checked against it."""
    seen, name = x.astype(np.float32), type(estimator).__name__
    trees = tuple(_checked(name, number, sample, seen, ordered=ordered) for number, sample in enumerate(samples))
    return Forest(trees, ordered=ordered, accepts_missing=bool(get_tags(estimator).input_tags.allow_nan))


def _checked(name: str, number: int, sample: TreeSample, x: Floats, *, ordered: bool) -> Tree:
    """One tree; raises if its nodes do not fit the rows."""
    tree, rows = tree_of(sample), np.flatnonzero(sample.inside)
    paths = sample.paths(x, rows)
    where = f"audit: {name} was not fitted on this data (X, y): in tree {number}"
    counts = np.bincount(paths.indices, minlength=len(tree.size))
    wrong = np.flatnonzero(counts != tree.size)
    if len(wrong):
        if ordered and _fits_in_some_order(sample, tree, x):
            raise ValueError(
                f"audit: the rows of X fit the trees of {name}, but not its bootstraps, which are drawn by row number. "
                "Pass the data the model was fitted on, with the rows in the same order."
            )
        node = int(wrong[0])
        says = f"node {node} holds {counts[node]:,} rows, the model says {int(tree.size[node]):,}"
        raise ValueError(f"{where} {says}. {CURE}, in the same order.")
    _check_sums(where, sample, tree, rows, paths)
    if not tree.between_neighbours:
        return tree
    off = _off_midpoints(tree, x[rows], paths)  # (m,)
    scale = np.nanmax(np.abs(x), axis=0, initial=0.0)[tree.feature]
    if (off > NEAR * scale).any():
        node = int(np.argmax(off > NEAR * scale))
        raise ValueError(f"{where} the threshold of node {node} is not half-way between two rows. {CURE}.")
    return replace(tree, between_neighbours=not off.any())


def tree_of(sample: TreeSample) -> Tree:
    """What the nodes of one tree say."""
    held = sample.tree.tree_
    if not (held.n_node_samples > 0).all():
        raise ValueError(
            f"audit: {type(sample.tree).__name__} has nodes without rows (n_node_samples): they were removed from the "
            "model, or it was not fitted. Pass the model as it was fitted."
        )
    inner = held.children_left != LEAF
    feature = held.feature if sample.columns is None else np.asarray(sample.columns)[held.feature.clip(0)]
    return Tree(
        feature=np.where(inner, feature, LEAF),
        threshold=held.threshold.copy(),
        left=held.children_left.copy(),
        right=held.children_right.copy(),
        missing_left=held.missing_go_to_left.astype(np.bool_),
        size=held.n_node_samples.astype(np.float64),
        share=sample.inside.astype(np.float64),
        rounding=np.zeros(held.node_count),
        between_neighbours=sample.tree.splitter == "best",
        labels=_label_sums(sample),
    )


def _label_sums(sample: TreeSample) -> LabelSums | None:
    """Means of labels times the weights of nodes, without class weights; None where nodes do not have them."""
    tree, targets, factor = sample.tree, sample.targets, sample.class_weight
    if targets is None or factor is None or tree.monotonic_cst is not None:  # with bounds on the means
        return None
    held = tree.tree_
    weight = held.weighted_n_node_samples
    # n additions, a division and a product, each with a relative error of EPSILON
    rounding = 4 * EPSILON * (held.n_node_samples + 2) * weight
    means = held.value[:, 0, :] + targets.subtracted
    if is_classifier(tree):
        scale = np.ones(targets.values.shape[1])  # of each class
        scale[targets.values[sample.inside].argmax(1)] = factor[sample.inside]
        totals = np.zeros((held.node_count, len(scale)))
        totals[:, targets.columns] = means * weight[:, None]
        return LabelSums(totals / scale, sample.weight, rounding / scale.min())
    rounding = rounding * (np.abs(targets.values).max() + abs(targets.subtracted))
    if tree.criterion not in MEANS:  # a median
        rounding = np.where(held.n_node_samples == 1, rounding, np.inf)
    return LabelSums(means * weight[:, None], sample.weight, rounding)


def _check_sums(where: str, sample: TreeSample, tree: Tree, rows: Ints, paths: csr_matrix) -> None:
    """Raise if the weights or labels of rows do not add up to those of nodes."""
    if sample.class_weight is None:
        return
    weight = (sample.weight * sample.class_weight)[rows]
    says = sample.tree.tree_.weighted_n_node_samples[0]
    if not abs(weight.sum() - says) <= 1e-9 * says:
        raise ValueError(
            f"{where} the rows have a total weight of {weight.sum():.6g}, the model says {says:.6g}. {CURE}."
        )
    if (sums := tree.labels) is None or sample.targets is None:
        return
    held = paths.T @ (sums.weight[rows, None] * sample.targets.values[rows])  # (m, k)
    off = np.abs(held - sums.totals).max(1) > 4 * sums.rounding
    if off.any():
        raise ValueError(f"{where} the labels of node {int(off.argmax())} are not those of its rows. {CURE}.")


def _off_midpoints(tree: Tree, x: Floats, paths: csr_matrix) -> Floats:
    """(m,) how far each threshold is from the middle between its neighbours; 0 for leaves."""
    row = np.repeat(np.arange(paths.shape[0]), np.diff(paths.indptr))
    inner = tree.feature[paths.indices] != LEAF
    row, node = row[inner], paths.indices[inner]
    value = x[row, tree.feature[node]].astype(np.float64)
    left, right = value <= tree.threshold[node], value > tree.threshold[node]
    below, above = np.full(len(tree.size), -np.inf), np.full(len(tree.size), np.inf)
    np.maximum.at(below, node[left], value[left])
    np.minimum.at(above, node[right], value[right])
    splits = (tree.feature != LEAF) & np.isfinite(tree.threshold)  # an infinite one separates only missing values
    off = np.zeros(len(tree.size))
    off[splits] = np.abs(below[splits] / 2 + above[splits] / 2 - tree.threshold[splits])
    return off


def _fits_in_some_order(sample: TreeSample, tree: Tree, x: Floats) -> bool:
    """Whether every node has as many rows of the table as it was grown on."""
    every = sample.paths(x, np.arange(len(x)))
    return bool((np.bincount(every.indices, minlength=len(tree.size)) >= tree.size).all())
