"""Boosted trees of scikit-learn: gradient boosting and AdaBoost.

All trees are grown on all rows, unless rows are held out or drawn for each stage; these draws are repeated from the
seed. What a model starts from is the mean of the labels, which is a tree of one node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import repeat
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble._gradient_boosting import _random_sample_mask
from sklearn.model_selection import train_test_split
from sklearn.tree import BaseDecisionTree

from lostwax.adapters.sklearn.estimators import Array, refusal
from lostwax.adapters.sklearn.grown import (
    Targets,
    TreeSample,
    forest_of_samples,
    other_data,
    sum_rounding,
    tree_class_weights,
)
from lostwax.games.trees import LEAF, Floats, Forest, Ints, LabelSums, Tree

SEEDS = 2**31 - 1  # each tree draws one number below this


def gradient_boosting(estimator: Any, x: Floats, labels: Array, weight: Floats) -> Forest:
    """Trees on residuals. Of labels they tell the mean that they start from, and sums of the first residuals."""
    targets, trained = Targets.of(estimator, labels), _trained_on(estimator, labels, weight)
    samples = _stages(estimator, targets, weight, trained)
    ordered = estimator.subsample < 1 or estimator.n_iter_no_change is not None
    forest = forest_of_samples(estimator, x, samples, ordered=ordered)
    start = None if targets is None or trained is None else _start(estimator, targets, _only(weight, trained))
    return forest if start is None else replace(forest, trees=(start, *forest.trees))


def ada_boost(estimator: Any, x: Floats, labels: Array, weight: Floats) -> Forest:
    """Trees on all rows. Weights are known for the first; later ones depend on the label of each row."""
    first, *others = estimator.estimators_
    if not isinstance(first, BaseDecisionTree):
        raise refusal(estimator)
    shares = weight / weight.sum()
    factor = tree_class_weights(first, labels, shares)
    start = TreeSample(first, shares, factor, Targets.of(estimator, labels))
    later = (TreeSample(tree, weight * (factor > 0), None) for tree in others)
    return forest_of_samples(estimator, x, [start, *later])


def ada_boost_regressor(estimator: Any, x: Floats, labels: Array, weight: Floats) -> Forest:
    """Trees on rows that were drawn by the errors of all rows, that of the missing one included."""
    if not isinstance(estimator.estimators_[0], BaseDecisionTree):
        raise refusal(estimator)
    return forest_of_samples(
        estimator, x, (TreeSample(tree, None, None, repeats=True) for tree in estimator.estimators_)
    )


def _trained_on(estimator: Any, labels: Array, weight: Floats) -> Ints | None:
    """The numbers of the rows that trees were grown on, in their order: not those held out to stop early.

    None if this cannot be drawn again. Rows without a weight may not have been there at all (`CalibratedClassifierCV`).
    """
    everything = np.arange(len(labels))
    if estimator.n_iter_no_change is None:
        return everything
    if not _repeatable(estimator, weight):
        return None
    kept, _ = train_test_split(
        everything,
        random_state=estimator.random_state,
        test_size=estimator.validation_fraction,
        stratify=labels if is_classifier(estimator) else None,
    )
    return np.asarray(kept)


def _stages(estimator: Any, targets: Targets | None, weight: Floats, trained: Ints | None) -> Iterator[TreeSample]:
    """All trees, one or one per class at each stage, and the rows that were drawn for it."""
    each, drawn = np.ones_like(weight), _drawn(estimator, weight, trained)
    for stage, (trees, rows) in enumerate(zip(estimator.estimators_, drawn, strict=True)):
        own = None if rows is None else _only(weight, rows)
        first = _residuals(estimator, targets) if stage == 0 and targets is not None else None
        yield from (TreeSample(tree, own, each, first) for tree in trees)


def _drawn(estimator: Any, weight: Floats, trained: Ints | None) -> Iterator[Ints | None]:
    """The rows of each stage; None if they cannot be drawn again."""
    stages, classes = estimator.estimators_.shape
    if estimator.subsample >= 1 or trained is None or not _repeatable(estimator, weight):
        yield from repeat(trained if estimator.subsample >= 1 else None, stages)
        return
    source = np.random.RandomState(estimator.random_state)
    for _ in range(stages):
        yield trained[_random_sample_mask(len(trained), max(1, int(estimator.subsample * len(trained))), source)]
        source.randint(0, SEEDS, size=classes)


def _repeatable(estimator: Any, weight: Floats) -> bool:
    """Whether rows can be drawn as they were: by a known seed, from all rows of the table."""
    return isinstance(estimator.random_state, Integral) and bool((weight > 0).all())


def _only(weight: Floats, rows: Ints) -> Floats:
    """The weights of some rows, zero elsewhere."""
    own = np.zeros_like(weight)
    own[rows] = weight[rows]
    return own


def _residuals(estimator: Any, targets: Targets) -> Targets | None:
    """The labels of the first tree of a regressor: what is left of the targets; None for other losses."""
    if is_classifier(estimator) or estimator.loss != "squared_error":
        return None
    start = np.zeros(1) if isinstance(estimator.init_, str) else _mean(estimator)  # "zero"
    return None if start is None else targets._replace(subtracted=float(start[0]))


def _mean(estimator: Any) -> Floats | None:
    """(k,) the mean of labels, or share of each class, that a model starts from; None if from something else."""
    start = estimator.init_
    if isinstance(start, DummyClassifier) and start.strategy == "prior":
        return np.asarray(start.class_prior_, dtype=np.float64)
    if isinstance(start, DummyRegressor) and start.strategy == "mean":
        return np.ravel(start.constant_)
    return None


def _start(estimator: Any, targets: Targets, weight: Floats) -> Tree | None:
    """The mean of labels as a tree of one node; None if the model starts from something else."""
    if (mean := _mean(estimator)) is None:
        return None
    total, inside = weight.sum(), weight > 0
    totals = np.zeros((1, targets.values.shape[1]))
    totals[0, targets.columns] = mean * total
    count = np.array([inside.sum()])
    sums = LabelSums(totals, weight, sum_rounding(count, total) * np.abs(targets.values).max())
    if (np.abs(weight @ targets.values - totals[0]) > 4 * sums.rounding).any():
        raise other_data(type(estimator).__name__, "its first prediction is not the mean of these labels")
    leaf, no = np.array([LEAF]), np.zeros(1)
    return Tree(leaf, no, leaf, leaf, no > 0, count.astype(np.float64), inside.astype(np.float64), no, labels=sums)
