"""Trees and forests of scikit-learn as facts about the rows they were grown on.

Every node of a tree has the number of its rows, a threshold half-way between two of them, and the mean of their labels.
Which rows a tree was grown on is drawn again from its seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import singledispatch
from typing import Any

import numpy as np
from sklearn.base import is_classifier
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
    RandomTreesEmbedding,
)
from sklearn.tree import BaseDecisionTree
from sklearn.utils.class_weight import compute_sample_weight

from lostwax.adapters.sklearn.boosted_trees import ada_boost, ada_boost_regressor, gradient_boosting
from lostwax.adapters.sklearn.estimators import Array, refusal
from lostwax.adapters.sklearn.grown import (
    Targets,
    TreeSample,
    class_weights,
    fit_the_trees,
    forest_of_samples,
    other_data,
    times_drawn,
    tree_class_weights,
)
from lostwax.games.trees import Bools, Floats, Forest, Ints, LabelSums, Tree

ORDER = "bootstraps are drawn by row number: the adversary is assumed to know the order of the rows."
TARGETS = "labels were not read from the trees: there are several per row."


@singledispatch
def forest_of(estimator: Any, x: Floats, labels: Array, weight: Floats) -> Forest:
    """The trees of a model that was fitted on rows x (n, d) with labels (n, ...) and sample weights (n,).

    Dispatched on the model's type. Raises NotReadError if the model cannot be read, ValueError if it was fitted on
    other rows.
    """
    raise refusal(estimator)


forest_of.register(GradientBoostingClassifier, gradient_boosting)
forest_of.register(GradientBoostingRegressor, gradient_boosting)
forest_of.register(AdaBoostClassifier, ada_boost)
forest_of.register(AdaBoostRegressor, ada_boost_regressor)


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
    if (part := _fitted_on_part(estimator, x, labels, weight)) is not None:
        return part
    samples = _bootstrapped(estimator, labels, weight) if estimator.bootstrap else _whole(estimator, labels, weight)
    return forest_of_samples(estimator, x, samples, ordered=estimator.bootstrap)


@forest_of.register(RandomTreesEmbedding)
def _(estimator: Any, x: Floats, labels: Array, weight: Floats) -> Forest:
    """Grown on random numbers, not on labels; a pipeline gives it no weights."""
    used = getattr(estimator, "_sample_weight", None)
    weight = np.ones_like(weight) if used is None else used
    samples = (TreeSample(tree, weight, np.ones_like(weight)) for tree in estimator.estimators_)
    return forest_of_samples(estimator, x, samples)


@forest_of.register(BaggingClassifier)
@forest_of.register(BaggingRegressor)
@forest_of.register(IsolationForest)
def _(estimator: Any, x: Floats, labels: Array, weight: Floats) -> Forest:
    first = estimator.estimators_[0]
    if not isinstance(first, BaseDecisionTree):
        raise refusal(estimator)
    if (part := _fitted_on_part(estimator, x, labels, weight)) is not None:
        return part
    named = np.unique(labels, return_inverse=True)[1] if is_classifier(estimator) and labels.ndim == 1 else labels
    factor = class_weights(first, named)
    targets = None if isinstance(estimator, IsolationForest) else Targets.of(estimator, labels)
    by_weight, drawn = _drawn_by_weight(estimator), _drawn(estimator, len(x))
    samples = [
        TreeSample(tree, counts if by_weight or counts is None else counts * weight, factor, targets, columns)
        for tree, columns, counts in zip(estimator.estimators_, estimator.estimators_features_, drawn, strict=True)
    ]
    if isinstance(estimator, IsolationForest) and np.isnan(x).any() and any(counts is None for counts in drawn):
        raise ValueError(
            "IsolationForest with warm_start cannot be audited on missing values: the rows of each tree cannot be "
            "drawn again, and so not which way rows without a value went. Fit it in one call, without warm_start."
        )
    if isinstance(estimator, IsolationForest) and np.isnan(x).any() and not fit_the_trees(samples, x):
        right = [sample._replace(missing_right=True) for sample in samples]  # as scikit-learn before 1.9 grew them
        samples = right if fit_the_trees(right, x) else samples
    return forest_of_samples(estimator, x, samples, ordered=True)


def _whole(estimator: Any, labels: Array, weight: Floats) -> Iterator[TreeSample]:
    """Trees that were grown on all rows."""
    used, targets = getattr(estimator, "_sample_weight", None), Targets.of(estimator, labels)
    factor = class_weights(estimator, labels)
    if getattr(estimator, "class_weight", None) is not None and used is not None:  # balanced by weight
        factor = np.divide(used, weight, out=np.ones_like(weight), where=weight > 0)
    return (TreeSample(tree, weight, factor, targets) for tree in estimator.estimators_)


def _bootstrapped(estimator: Any, labels: Array, weight: Floats) -> Iterator[TreeSample]:
    """Trees that were grown on rows drawn with replacement; newer versions draw them by weight."""
    by_weight, targets = _drawn_by_weight(estimator), Targets.of(estimator, labels)
    balanced = getattr(estimator, "class_weight", None) == "balanced_subsample"
    common = np.ones_like(weight) if by_weight else class_weights(estimator, labels)
    for tree, counts in zip(estimator.estimators_, _drawn(estimator, len(weight)), strict=True):
        if counts is None:
            yield TreeSample(tree, None, None)
            continue
        rows = np.repeat(np.arange(len(counts)), counts.astype(np.intp))
        factor = compute_sample_weight("balanced", labels, indices=rows) if balanced else common
        yield TreeSample(tree, counts if by_weight else counts * weight, factor, targets)


def _drawn(estimator: Any, rows: int) -> Sequence[Floats | None]:
    """How often each row was drawn for each tree, (n,); None where this cannot be drawn again."""
    return times_drawn(estimator, rows) or [None] * len(estimator.estimators_)


def _drawn_by_weight(estimator: Any) -> bool:
    """Whether sample weights entered the draw of rows, and not the weights of those that were drawn."""
    return hasattr(estimator, "_sample_weight")


def _fitted_on_part(estimator: Any, x: Floats, labels: Array, weight: Floats) -> Forest | None:
    """The forest of a model that was fitted on the rows with a weight only: one of several folds."""
    inside = weight > 0
    if estimator._n_samples == len(x):
        return None
    if estimator._n_samples != inside.sum():
        too = " (were test rows passed too?)" if len(x) > estimator._n_samples else ""
        raise other_data(type(estimator).__name__, f"X has {len(x):,} rows, the model {estimator._n_samples:,}{too}")
    part = forest_of(estimator, x[inside], labels[inside], weight[inside])
    names, own = (np.unique(one) for one in (labels, labels[inside]))
    classes = np.searchsorted(names, own) if is_classifier(estimator) and labels.ndim == 1 else None
    return replace(part, trees=tuple(_spread(tree, inside, classes, len(names)) for tree in part.trees))


def _spread(tree: Tree, inside: Bools, classes: Ints | None, k: int) -> Tree:
    """A tree grown on some rows, as one of the whole table."""
    if tree.share is None:
        return tree
    share = np.zeros(len(inside))
    share[inside] = tree.share
    if (sums := tree.labels) is None:
        return replace(tree, share=share)
    weight, totals = np.zeros(len(inside)), sums.totals
    weight[inside] = sums.weight
    if classes is not None:
        totals = np.zeros((len(tree.size), k))
        totals[:, classes] = sums.totals
    return replace(tree, share=share, labels=LabelSums(totals, weight, sums.rounding))
