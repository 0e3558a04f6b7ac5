"""One tree of scikit-learn and the rows it was grown on: what its nodes say, and whether these are the rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils import get_tags
from sklearn.utils.class_weight import compute_sample_weight

from lostwax.adapters.objects import attributes
from lostwax.adapters.sklearn.estimators import Array
from lostwax.adapters.sklearn.inputs import other_data
from lostwax.adapters.trees import EPSILON, Grown
from lostwax.games.trees import LEAF, Bools, Floats, Forest, Ints, LabelSums, Tree, in_float32

MEANS = ("squared_error", "friedman_mse", "poisson")  # criteria for which a node's value is the mean of its labels
NEAR = 1e-5  # relative to the largest number of a column: steps before a model may round differently at each call


class Targets(NamedTuple):
    """The labels that trees were grown on."""

    values: Floats  # (n, k) 1 in the column of each row's class; or k targets, several classes by their numbers
    columns: Ints  # which of the k columns are those of the tree
    subtracted: float = 0.0  # what the trees' own labels are less

    @classmethod
    def of(cls, estimator: Any, labels: Array) -> Targets | None:
        """The labels of a classifier or regressor; None if there are several per row with class weights."""
        if labels.ndim > 1 and is_classifier(estimator):
            if attributes(estimator).get("class_weight") is not None:
                return None
            numbers = np.stack([np.unique(column, return_inverse=True)[1] for column in labels.T], 1)
            return cls(numbers.astype(np.float64), np.arange(labels.shape[1]))
        if not is_classifier(estimator):
            values = labels.astype(np.float64).reshape(len(labels), -1)
            return cls(values, np.arange(values.shape[1]))
        names, numbers = np.unique(labels, return_inverse=True)
        if not np.isin(estimator.classes_, names).all():
            raise other_data(type(estimator).__name__, "it has a class that is not in y")
        return cls(np.eye(len(names))[numbers], np.searchsorted(names, estimator.classes_))


class TreeSample(NamedTuple):
    """What one tree was grown on."""

    tree: Any  # a fitted tree of scikit-learn
    # (n,) sample weight of each row times how often it was drawn; 0: the tree was not grown on it.
    # None: it is not known on which rows it was grown
    weight: Floats | None
    class_weight: Floats | None  # (n,) what it was multiplied by; None: not known
    targets: Targets | None = None  # None: not the labels of the table
    columns: Ints | None = None  # the columns that it saw; None: all
    repeats: bool = False  # nodes count a row as often as it was drawn

    @property
    def inside(self) -> Bools | None:
        """(n,) the rows that the tree was grown on: those with a weight; None: not known."""
        weight, factor = self.weight, self.class_weight
        return None if weight is None else np.asarray((weight if factor is None else weight * factor) > 0)


def forest_of_samples(estimator: Any, x: Floats, samples: Iterable[TreeSample], *, ordered: bool = False) -> Forest:
    """The forest of trees that were grown on samples of x (n, d), each checked against it."""
    cast, name = in_float32(x), type(estimator).__name__
    trees = tuple(_checked(name, number, sample, cast, ordered=ordered) for number, sample in enumerate(samples))
    ordered = ordered and any(tree.share is not None and bool((tree.share == 0).any()) for tree in trees)
    return Forest(trees, ordered=ordered, accepts_missing=bool(get_tags(estimator).input_tags.allow_nan))


def _checked(name: str, number: int, sample: TreeSample, x: Floats, *, ordered: bool) -> Tree:
    """One tree; raises if its nodes do not fit the rows."""
    tree = tree_of(sample)
    grown = Grown.of(tree, x, inside=sample.inside)
    if ordered and len(grown.misfits()) and not len(Grown.of(replace(tree, share=None), x).misfits()):
        raise ValueError(
            f"audit: the rows of X fit the trees of {name}, but not the rows drawn for each tree by row number. Pass "
            "the data the model was fitted on, with the rows in the same order."
        )
    grown.check_counts(name, number)
    _check_sums(name, number, sample, grown)
    if not tree.between_neighbours:
        return tree
    off = (_off_any_middle if tree.share is None else off_middle)(grown, x)  # (m,)
    far = off > NEAR * np.abs(np.nan_to_num(x)).max(0)[tree.feature]
    if far.any():
        node = int(np.argmax(far))
        raise other_data(name, f"in tree {number} the threshold of node {node} is not half-way between two rows")
    return replace(tree, between_neighbours=not off.any())


def tree_of(sample: TreeSample) -> Tree:
    """What the nodes of one tree say."""
    nodes = sample.tree.tree_
    if not (nodes.n_node_samples > 0).all():
        raise ValueError(
            f"audit: {type(sample.tree).__name__} has nodes without rows (n_node_samples): they were removed from the "
            "model, or it was not fitted. Pass the model as it was fitted."
        )
    inner = nodes.children_left != LEAF
    inside = sample.inside
    feature = nodes.feature if sample.columns is None else np.asarray(sample.columns)[nodes.feature.clip(0)]
    return Tree(
        feature=np.where(inner, feature, LEAF),
        threshold=nodes.threshold.copy(),
        left=nodes.children_left.copy(),
        right=nodes.children_right.copy(),
        missing_left=nodes.missing_go_to_left.astype(np.bool_),
        size=nodes.n_node_samples.astype(np.float64),
        share=None if inside is None else inside.astype(np.float64),
        rounding=np.full(nodes.node_count, np.inf if sample.repeats else 0.0),
        between_neighbours=sample.tree.splitter == "best",
        labels=_label_sums(sample),
    )


def _label_sums(sample: TreeSample) -> LabelSums | None:
    """Means of labels times the weights of nodes, without class weights; None where nodes do not have them."""
    tree, targets, factor, inside = sample.tree, sample.targets, sample.class_weight, sample.inside
    if sample.weight is None or inside is None or targets is None or factor is None:
        return None
    if tree.monotonic_cst is not None:  # with bounds on the means
        return None
    nodes, row_weight = tree.tree_, np.where(inside, sample.weight, 0.0)
    weight, shares = nodes.weighted_n_node_samples, nodes.value  # (m,); (m, targets, classes), of a number its mean
    rounding = sum_rounding(nodes.n_node_samples, weight)
    if is_classifier(tree) and shares.shape[1] == 1:
        scale = np.ones(targets.values.shape[1])  # of each class
        scale[targets.values[inside].argmax(1)] = factor[inside]
        totals = np.zeros((nodes.node_count, len(scale)))
        totals[:, targets.columns] = shares[:, 0, :] * weight[:, None]
        return LabelSums(totals / scale, row_weight, rounding / scale.min())
    numbers = shares @ np.arange(shares.shape[2])  # (m, targets) of several targets the mean of their class numbers
    means = numbers if is_classifier(tree) else shares[:, :, 0] + targets.subtracted
    rounding = rounding * (np.abs(targets.values).max() + abs(targets.subtracted))
    if not is_classifier(tree) and tree.criterion not in MEANS:  # a median
        rounding = np.where(nodes.n_node_samples == 1, rounding, np.inf)
    return LabelSums(means * weight[:, None], row_weight, rounding)


def root_sums(name: str, mean: Floats, targets: Targets, weight: Floats, error: float, nodes: int) -> LabelSums:
    """The sum of the labels of all rows, from the first prediction, their `mean`; raises if it is that of others."""
    total, totals = weight.sum(), np.zeros(targets.values.shape[1])
    totals[targets.columns] = mean * total
    if (np.abs(weight @ targets.values - totals) > error).any():
        raise other_data(name, "its first prediction is not the mean of these labels")
    return LabelSums.of_root(totals, weight, error, nodes)


def times_drawn(estimator: Any, rows: Ints, n: int) -> Sequence[Floats | None]:
    """(n,) how often each of the rows was drawn for each tree; None where this cannot be drawn again."""
    unknown = [None] * len(estimator.estimators_)
    try:
        drawn = list(estimator.estimators_samples_)
    except AttributeError:  # seeds were removed, or it was fitted by another version of scikit-learn
        return unknown
    if len(drawn) != len(unknown):  # with warm_start only some seeds are kept
        return unknown
    return [np.bincount(rows[numbers], minlength=n).astype(np.float64) for numbers in drawn]


def sum_rounding(count: Ints, weight: Floats) -> Floats:
    """Largest error of means of labels of at most one, times the weight of a node of `count` rows.

    These are n additions, a division and a product, each with a relative error of EPSILON.
    """
    return 4 * EPSILON * (count + 2) * weight


def class_weights(estimator: Any, labels: Array, rows: Ints) -> Floats:
    """(n,) the class weight of each row, of a model that was fitted on some rows."""
    setting, factor = attributes(estimator).get("class_weight"), np.ones(len(labels))
    if setting is not None:
        named = "balanced" if setting == "balanced_subsample" else setting
        factor[rows] = compute_sample_weight(named, labels[rows])
    return factor


def tree_class_weights(tree: Any, labels: Array, weight: Floats) -> Floats:
    """(n,) the class weight of each row of one tree, which may not have been given the rows without a weight."""
    choices = (np.arange(len(weight)), np.flatnonzero(weight > 0))
    every, some = (class_weights(tree, labels, rows) for rows in choices)
    total = tree.tree_.weighted_n_node_samples[0]
    return min((every, some), key=lambda factor: abs(float(weight @ factor) - total))


def _check_sums(name: str, number: int, sample: TreeSample, grown: Grown) -> None:
    """Raise if the weights or labels of rows do not add up to those of nodes."""
    inside = sample.inside
    if sample.class_weight is None or sample.weight is None or inside is None:
        return
    weight = (sample.weight * sample.class_weight)[inside]
    says = sample.tree.tree_.weighted_n_node_samples[0]
    if not abs(weight.sum() - says) <= 1e-9 * says:
        total = f"the rows have a total weight of {weight.sum():.6g}, the model says {says:.6g}"
        raise other_data(name, f"in tree {number} {total}")
    if grown.tree.labels is None or sample.targets is None:
        return
    off = grown.label_misfits(grown.tree.labels, sample.targets.values, times=4)
    if off.any():
        raise other_data(name, f"in tree {number} the labels of node {int(off.argmax())} are not those of its rows")


def off_middle(grown: Grown, x: Floats) -> Floats:
    """(m,) how far each threshold is from the middle between its neighbours; 0 for leaves."""
    tree, split = grown.tree, _splits_numbers(grown.tree)
    row, node = (part[split[grown.nodes]] for part in (grown.rows, grown.nodes))
    value = x[row, tree.feature[node]]
    left, right = value <= tree.threshold[node], value > tree.threshold[node]
    below, above = np.full(len(tree.size), -np.inf), np.full(len(tree.size), np.inf)
    np.maximum.at(below, node[left], value[left])
    np.minimum.at(above, node[right], value[right])
    off = np.zeros(len(tree.size))
    off[split] = np.abs(below[split] / 2 + above[split] / 2 - tree.threshold[split])
    return off


def _off_any_middle(grown: Grown, x: Floats) -> Floats:
    """(m,) how far each threshold is from the middle between any two values in its node; 0 for leaves."""
    tree, order = grown.tree, np.argsort(grown.nodes, kind="stable")
    off, members = np.zeros(len(tree.size)), np.split(grown.rows[order], np.cumsum(grown.counts())[:-1])
    for node in np.flatnonzero(_splits_numbers(tree)):
        threshold, values = tree.threshold[node], np.unique(x[members[node], tree.feature[node]])
        left, right = values[values <= threshold], values[values > threshold]
        nearest = np.searchsorted(right, 2 * threshold - left)[:, None] - np.arange(2)
        middle = left[:, None] / 2 + np.r_[right, np.inf][nearest.clip(0)] / 2
        off[node] = np.abs(middle - threshold).min(initial=np.inf)
    return off


def _splits_numbers(tree: Tree) -> Bools:
    """(m,) nodes with values on both sides; an infinite threshold separates those that are missing."""
    return np.asarray((tree.feature != LEAF) & np.isfinite(tree.threshold))
