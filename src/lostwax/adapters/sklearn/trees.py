"""Trees, forests and boosting of scikit-learn as facts about the rows they were grown on.

Every node of a tree has the number of its rows, a threshold half-way between two of them, and the mean of their labels.
Which rows a tree was grown on is drawn again from its seed. What boosting starts from is the mean of the labels, which
is a tree of one node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import singledispatch
from itertools import repeat
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.ensemble._gradient_boosting import _random_sample_mask
from sklearn.model_selection import train_test_split
from sklearn.tree import BaseDecisionTree, DecisionTreeClassifier
from sklearn.utils.class_weight import compute_sample_weight

from lostwax.adapters.objects import attributes
from lostwax.adapters.sklearn.estimators import Array, SettingNotReadError, refusal
from lostwax.adapters.sklearn.grown import (
    Targets,
    TreeSample,
    class_weights,
    forest_of_samples,
    root_sums,
    sum_rounding,
    times_drawn,
    tree_class_weights,
    tree_of,
)
from lostwax.adapters.sklearn.inputs import other_data
from lostwax.adapters.trees import refuse
from lostwax.games.boosting import BoostedLoss, BoostedSums, BoostedTree
from lostwax.games.trees import LEAF, Floats, Forest, Ints, Tree

MAX_SEED = 2**31 - 1  # each tree of gradient boosting draws one number below this

ORDER = "bootstraps are drawn by row number: the adversary is assumed to know the order of the rows."
TARGETS = "labels were not read from the trees: there are several per row."


@singledispatch
def forest_of(estimator: Any, x: Floats, labels: Array, weight: Floats) -> Forest:
    """The trees of a model that was fitted on rows x (n, d) with labels (n, ...) and sample weights (n,).

    Dispatched on the model's type. Raises NotReadError if the model cannot be read, ValueError if it was fitted on
    other rows.
    """
    raise refusal(estimator)


def has_trees(estimator: Any) -> bool:
    """Whether `forest_of` reads models of this type."""
    return forest_of.dispatch(type(estimator)) is not forest_of.dispatch(object)


def not_drawn_again(estimator: Any, forest: Forest) -> str | None:
    """That less was read than the model may tell: the rows of each tree are not known."""
    if all(tree.share is not None for tree in forest.trees):
        return None
    by_errors = isinstance(estimator, AdaBoostRegressor)
    why = "without its random_state, or seeds that warm_start does not keep"
    return (
        f"{type(estimator).__name__} was audited only in part: the rows that each tree was grown on cannot be drawn "
        f"again {'because they depend on the errors of all rows' if by_errors else why}. With them it may tell more."
    )


def forest_notes(forest: Forest, labels: Array) -> list[str]:
    """For the report: what was assumed to read the trees."""
    labelled = any(tree.labels is not None for tree in forest.trees)
    return [*([ORDER] if forest.ordered else []), *([TARGETS] if labels.ndim > 1 and not labelled else [])]


@forest_of.register(BaseDecisionTree)
def _(estimator: Any, x: Floats, labels: Array, weight: Floats) -> Forest:
    factor = tree_class_weights(estimator, labels, weight)
    sample = TreeSample(estimator, weight, factor, Targets.of(estimator, labels))
    return forest_of_samples(estimator, x, [sample])


@forest_of.register(RandomForestClassifier)
@forest_of.register(RandomForestRegressor)
@forest_of.register(ExtraTreesClassifier)
@forest_of.register(ExtraTreesRegressor)
def _(estimator: Any, x: Floats, labels: Array, weight: Floats) -> Forest:
    sampled = _bootstrapped if estimator.bootstrap else _on_all_rows
    samples = sampled(estimator, labels, weight, _rows_of_fit(estimator, weight))
    return forest_of_samples(estimator, x, samples, ordered=estimator.bootstrap)


@forest_of.register(BaggingClassifier)
@forest_of.register(BaggingRegressor)
@forest_of.register(IsolationForest)
def _(estimator: Any, x: Floats, labels: Array, weight: Floats) -> Forest:
    first, isolates = _first_tree(estimator), isinstance(estimator, IsolationForest)
    if isolates and np.isnan(x).any():  # rows without a value went another way before scikit-learn 1.9
        raise SettingNotReadError("IsolationForest on missing values is not read", ".")
    rows = _rows_of_fit(estimator, weight)
    numbered = np.unique(labels, return_inverse=True)[1] if is_classifier(estimator) and labels.ndim == 1 else labels
    factor, targets = class_weights(first, numbered, rows), None if isolates else Targets.of(estimator, labels)
    by_weight, drawn = _drawn_by_weight(estimator), times_drawn(estimator, rows, len(x))
    samples = [
        TreeSample(tree, counts if by_weight or counts is None else counts * weight, factor, targets, columns)
        for tree, columns, counts in zip(estimator.estimators_, estimator.estimators_features_, drawn, strict=True)
    ]
    return forest_of_samples(estimator, x, samples, ordered=True)


@forest_of.register(AdaBoostClassifier)
def _(estimator: Any, x: Floats, labels: Array, weight: Floats) -> Forest:
    """Trees on all rows. Weights are known for the first; later ones depend on the label of each row."""
    first, shares = _first_tree(estimator), weight / weight.sum()
    factor = tree_class_weights(first, labels, shares)
    start = TreeSample(first, shares, factor, Targets.of(estimator, labels))
    later = (TreeSample(tree, weight * (factor > 0), None) for tree in estimator.estimators_[1:])
    return forest_of_samples(estimator, x, [start, *later])


@forest_of.register(AdaBoostRegressor)
def _(estimator: Any, x: Floats, labels: Array, weight: Floats) -> Forest:
    """Trees on rows that were drawn by the errors of all rows, that of the missing one included."""
    _first_tree(estimator)
    samples = (TreeSample(tree, None, None, repeats=True) for tree in estimator.estimators_)
    return forest_of_samples(estimator, x, samples)


@forest_of.register(GradientBoostingClassifier)
@forest_of.register(GradientBoostingRegressor)
def _(estimator: Any, x: Floats, labels: Array, weight: Floats) -> Forest:
    """Trees on residuals. Of labels they tell the mean that they start from, and sums of the first residuals."""
    targets, trained = Targets.of(estimator, labels), _trained_on(estimator, labels, weight)
    mean, residuals = _starting_mean(estimator), None
    start = np.zeros(1) if isinstance(estimator.init_, str) else mean  # "zero"
    if targets is not None and start is not None and estimator.loss == "squared_error":  # the labels of the first tree
        residuals = targets._replace(subtracted=float(start[0]))
    stages = zip(estimator.estimators_, _drawn_for_stages(estimator, weight, trained), strict=True)
    samples = (
        TreeSample(
            tree, None if rows is None else _only(weight, rows), np.ones_like(weight), None if stage else residuals
        )
        for stage, (trees, rows) in enumerate(stages)
        for tree in trees  # one, or one per class
    )
    ordered = estimator.subsample < 1 or estimator.n_iter_no_change is not None
    forest = forest_of_samples(estimator, x, samples, ordered=ordered)
    if targets is None or trained is None or mean is None:
        return forest
    root = _single_node(type(estimator).__name__, mean, targets, _only(weight, trained))
    return replace(forest, trees=(root, *forest.trees))


def _first_tree(estimator: Any) -> Any:
    """The first model of an ensemble; raises if these are no trees."""
    first = estimator.estimators_[0]
    if not isinstance(first, BaseDecisionTree):
        raise refusal(estimator)
    return first


def _rows_of_fit(estimator: Any, weight: Floats) -> Ints:
    """The rows that a model was fitted on: all, or those with a weight, if it is that of one of several folds."""
    rows = np.arange(len(weight)) if estimator._n_samples == len(weight) else np.flatnonzero(weight > 0)
    if estimator._n_samples != len(rows):
        too = " (were test rows passed too?)" if len(weight) > estimator._n_samples else ""
        count = f"X has {len(weight):,} rows, the model {estimator._n_samples:,}{too}"
        raise other_data(type(estimator).__name__, count)
    return rows


def _on_all_rows(estimator: Any, labels: Array, weight: Floats, rows: Ints) -> Iterator[TreeSample]:
    used, targets = getattr(estimator, "_sample_weight", None), Targets.of(estimator, labels)
    factor = class_weights(estimator, labels, rows)
    if attributes(estimator).get("class_weight") is not None and used is not None:  # balanced by weight
        factor[rows] = np.divide(used, weight[rows], out=np.ones(len(rows)), where=weight[rows] > 0)
    return (TreeSample(tree, weight, factor, targets) for tree in estimator.estimators_)


def _bootstrapped(estimator: Any, labels: Array, weight: Floats, rows: Ints) -> Iterator[TreeSample]:
    """Trees that were grown on rows drawn with replacement; newer versions draw them by weight."""
    by_weight, targets = _drawn_by_weight(estimator), Targets.of(estimator, labels)
    balanced = attributes(estimator).get("class_weight") == "balanced_subsample"
    common = np.ones_like(weight) if by_weight else class_weights(estimator, labels, rows)
    for tree, counts in zip(estimator.estimators_, times_drawn(estimator, rows, len(weight)), strict=True):
        if counts is None:
            yield TreeSample(tree, None, None)
            continue
        drawn = np.repeat(np.arange(len(counts)), counts.astype(np.intp))
        factor = compute_sample_weight("balanced", labels, indices=drawn) if balanced else common
        yield TreeSample(tree, counts if by_weight else counts * weight, factor, targets)


def _drawn_by_weight(estimator: Any) -> bool:
    """Whether sample weights entered the draw of rows, and not the weights of those that were drawn."""
    return hasattr(estimator, "_sample_weight")


# gradient boosting


def _trained_on(estimator: Any, labels: Array, weight: Floats) -> Ints | None:
    """The numbers of the rows that trees were grown on, in their order: not those held out to stop early.

    None if this cannot be drawn again. Rows without a weight may not have been there at all (`CalibratedClassifierCV`).
    """
    everything = np.arange(len(labels))
    if estimator.n_iter_no_change is None:
        return everything
    if not _repeatable(estimator, weight):
        return None
    trained, _ = train_test_split(
        everything,
        random_state=estimator.random_state,
        test_size=estimator.validation_fraction,
        stratify=labels if is_classifier(estimator) else None,
    )
    return np.asarray(trained)


def _drawn_for_stages(estimator: Any, weight: Floats, trained: Ints | None) -> Iterator[Ints | None]:
    """The rows of each stage; None if they cannot be drawn again."""
    stages, classes = estimator.estimators_.shape
    if estimator.subsample >= 1 or trained is None or not _repeatable(estimator, weight):
        yield from repeat(trained if estimator.subsample >= 1 else None, stages)
        return
    source = np.random.RandomState(estimator.random_state)
    for _ in range(stages):
        yield trained[_random_sample_mask(len(trained), max(1, int(estimator.subsample * len(trained))), source)]
        source.randint(0, MAX_SEED, size=classes)


def _repeatable(estimator: Any, weight: Floats) -> bool:
    """Whether rows can be drawn as they were: by a known seed, from all rows of the table."""
    return isinstance(estimator.random_state, Integral) and bool((weight > 0).all())


def _only(weight: Floats, rows: Ints) -> Floats:
    """The weights of some rows, zero elsewhere."""
    some = np.zeros_like(weight)
    some[rows] = weight[rows]
    return some


def _starting_mean(estimator: Any) -> Floats | None:
    """(k,) the mean of labels, or share of each class, that a model starts from; None if from something else."""
    start = estimator.init_
    if isinstance(start, DummyClassifier) and start.strategy == "prior":
        return np.asarray(start.class_prior_, dtype=np.float64)
    if isinstance(start, DummyRegressor) and start.strategy == "mean":
        return np.ravel(start.constant_)
    return None


def _single_node(name: str, mean: Floats, targets: Targets, weight: Floats) -> Tree:
    """The mean of the labels as a tree of one node."""
    inside, leaf, no = weight > 0, np.array([LEAF]), np.zeros(1)
    count = np.array([inside.sum()])
    error = 4 * float(sum_rounding(count, weight.sum())[0] * np.abs(targets.values).max())
    sums = root_sums(name, mean, targets, weight, error, 1)
    return Tree(leaf, no, leaf, leaf, no > 0, count.astype(np.float64), inside.astype(np.float64), no, labels=sums)


# without a row of the table


def forest_alone(estimator: Any) -> Forest:
    """The trees of a classifier and how often each row was drawn for each; raises TypeError if this cannot be read.

    The number of rows is stored in the model, and with the seed of each tree it gives how often each was drawn for it.
    """
    name, bootstrap = type(estimator).__name__, getattr(estimator, "bootstrap", False)
    if not isinstance(estimator, DecisionTreeClassifier | RandomForestClassifier | ExtraTreesClassifier):
        raise TypeError(
            f"{name}: without any row of the table, only these are read: DecisionTreeClassifier, ExtraTreeClassifier, "
            "RandomForestClassifier, ExtraTreesClassifier."
        )
    trees = getattr(estimator, "estimators_", [estimator])
    rows, classes = int(trees[0].tree_.n_node_samples[0]), len(estimator.classes_)
    counts: list[Floats] = [np.ones(rows)] * len(trees)
    if bootstrap:
        rows = estimator._n_samples
        drawn = times_drawn(estimator, np.arange(rows), rows)
        counts = [count for count in drawn if count is not None]
    weighs = [tree.tree_.weighted_n_node_samples[0] for tree in trees]
    refuse(
        name,
        {
            "a forest without the seeds of its bootstraps": len(counts) < len(trees),
            "a model of several labels per row": estimator.n_outputs_ != 1,
            "class_weight": estimator.class_weight is not None,
            "sample_weight": any(
                abs(weigh - count.sum()) > 1e-6 * weigh for weigh, count in zip(weighs, counts, strict=False)
            ),
            "a model of missing values": not all(np.isfinite(tree.tree_.threshold).all() for tree in trees),
        },
    )
    for tree, count in zip(trees, counts, strict=True):
        if (grown_on := tree.tree_.n_node_samples[0]) != (count > 0).sum():
            raise ValueError(f"{name}: a tree was grown on {grown_on} rows, its seed draws others.")
    targets = Targets(np.zeros((rows, classes)), np.arange(classes))  # the columns only: labels are not known
    samples = (TreeSample(tree, count, np.ones(rows), targets) for tree, count in zip(trees, counts, strict=True))
    return Forest(tuple(tree_of(sample) for sample in samples), ordered=bootstrap)


@singledispatch
def boosted_sums(estimator: Any) -> BoostedSums:
    """What boosted trees tell of rows that nobody knows; raises a TypeError that names what is not read."""
    raise TypeError(f"{type(estimator).__name__}: without any row of the table, this model is not read.")


@boosted_sums.register(GradientBoostingClassifier)
@boosted_sums.register(GradientBoostingRegressor)
def _(estimator: Any) -> BoostedSums:
    """Nodes hold mean residuals; leaves sum (y - p) / sum p (1 - p), which is -G / H."""
    name, classes = type(estimator).__name__, len(estimator.classes_) if is_classifier(estimator) else 0
    first = estimator.estimators_[0, 0].tree_
    refuse(
        name,
        {
            f"loss={estimator.loss!r}": estimator.loss not in ("log_loss", "squared_error"),
            "subsample < 1": estimator.subsample < 1,
            "init": estimator.init is not None,
            "early stopping on rows that are held out": estimator.n_iter_no_change is not None,
            "sample_weight": not np.allclose(first.weighted_n_node_samples, first.n_node_samples),
        },
    )
    scale, trees = classes / (classes - 1) if classes > 2 else 1.0, []
    for stage in estimator.estimators_:
        for output, grown in enumerate(stage):
            nodes = grown.tree_
            tree = replace(tree_of(TreeSample(grown, None, None)), share=None, rounding=np.zeros(nodes.node_count))
            leaf, value = tree.feature == LEAF, nodes.value.ravel().astype(np.float64)
            step = np.where(leaf, estimator.learning_rate * value, 0.0)
            weight, h = np.where(leaf, scale * value, np.nan), np.full(len(leaf), np.nan)
            gradient = np.where(leaf, np.nan, -value * tree.size)
            for node in np.flatnonzero(~leaf):  # a leaf beside a node has the rest of their parent's sum
                for end, other in ((tree.left[node], tree.right[node]), (tree.right[node], tree.left[node])):
                    if leaf[end] and not leaf[other] and abs(weight[end]) > 1e-3:
                        h[end] = -(gradient[node] - gradient[other]) / weight[end]
            error = np.full(len(leaf), 1e-12 * tree.size[0])
            trees.append(BoostedTree(tree, step, output, weight, error * (1 + np.abs(weight)), h, error * 1e3))
    start = _starting_score(estimator, classes)
    return BoostedSums(name, BoostedLoss(classes, rounded=False), tuple(trees), start, starts_at_mean=True)


def _starting_score(estimator: Any, classes: int) -> Floats:
    """The margins before the first tree: log odds of the shares of classes, or the mean label."""
    if not classes:
        return np.asarray(estimator.init_.constant_, dtype=np.float64).ravel()
    shares = np.asarray(estimator.init_.class_prior_, dtype=np.float64)
    return np.log(shares[1:] / shares[:1]) if classes == 2 else np.log(shares)
