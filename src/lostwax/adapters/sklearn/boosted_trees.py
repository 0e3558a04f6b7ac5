"""Boosted trees of scikit-learn: gradient boosting and AdaBoost.

All trees are grown on all rows, unless rows are held out or drawn for each stage; these draws are repeated from the
seed. What a model starts from is the mean of the labels, which is a tree of one node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
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
    class_weights,
    forest_of_samples,
    not_replayed,
    sum_rounding,
)
from lostwax.games.trees import LEAF, Floats, Forest, Ints, LabelSums, Tree

SEEDS = 2**31 - 1  # each tree draws one number below this


def gradient_boosting(estimator: Any, x: Floats, labels: Array, weight: Floats) -> Forest:
    """Trees on residuals. Of labels they tell the mean that they start from, and sums of the first residuals."""
    trained = _trained_on(estimator, labels)
    targets = Targets.of(estimator, labels)
    samples = _stages(estimator, targets, weight, trained)
    forest = forest_of_samples(estimator, x, samples, ordered=len(trained) < len(x) or estimator.subsample < 1)
    own = np.zeros_like(weight)
    own[trained] = weight[trained]
    start = None if targets is None else _start(estimator, targets, own)
    return forest if start is None else replace(forest, trees=(start, *forest.trees))


def ada_boost(estimator: Any, x: Floats, labels: Array, weight: Floats) -> Forest:
    """Trees on all rows. Weights are known for the first; later ones depend on the label of each row."""
    first, *others = estimator.estimators_
    if not isinstance(first, BaseDecisionTree):
        raise refusal(estimator)
    factor = class_weights(first, labels)
    start = TreeSample(first, weight / weight.sum(), factor, Targets.of(estimator, labels))
    later = (TreeSample(tree, weight * (factor > 0), None) for tree in others)
    return forest_of_samples(estimator, x, [start, *later])


def ada_boost_regressor(estimator: Any, x: Floats, labels: Array, weight: Floats) -> Forest:
    """Not read."""
    raise not_replayed("they depend on the labels of all rows, the missing one included")


def _trained_on(estimator: Any, labels: Array) -> Ints:
    """The numbers of the rows that trees were grown on, in their order: not those held out to stop early."""
    everything = np.arange(len(labels))
    if estimator.n_iter_no_change is None:
        return everything
    kept, _ = train_test_split(
        everything,
        random_state=_seed(estimator, f"n_iter_no_change={estimator.n_iter_no_change}"),
        test_size=estimator.validation_fraction,
        stratify=labels if is_classifier(estimator) else None,
    )
    return np.asarray(kept)


def _stages(estimator: Any, targets: Targets | None, weight: Floats, trained: Ints) -> Iterator[TreeSample]:
    """All trees, one or one per class at each stage, and the rows that were drawn for it."""
    each = np.ones_like(weight)
    for stage, (trees, drawn) in enumerate(zip(estimator.estimators_, _drawn(estimator, trained), strict=True)):
        own = np.zeros_like(weight)
        own[drawn] = weight[drawn]
        for tree in trees:
            yield TreeSample(tree, own, each, None if stage or targets is None else _residuals(estimator, targets))


def _drawn(estimator: Any, trained: Ints) -> Iterator[Ints]:
    """The rows of each stage."""
    stages, classes = estimator.estimators_.shape
    if estimator.subsample >= 1:
        yield from (trained for _ in range(stages))
        return
    source = np.random.RandomState(_seed(estimator, f"subsample={estimator.subsample}"))
    for _ in range(stages):
        yield trained[_random_sample_mask(len(trained), max(1, int(estimator.subsample * len(trained))), source)]
        source.randint(0, SEEDS, size=classes)


def _seed(estimator: Any, setting: str) -> int:
    seed = estimator.random_state
    if not isinstance(seed, Integral):
        raise not_replayed(f"with {setting} this takes an int as random_state, which is {type(seed).__name__}")
    return int(seed)


def _residuals(estimator: Any, targets: Targets) -> Targets | None:
    """The labels of the first tree of a regressor: what is left of the targets; None for other losses."""
    start = _mean(estimator)
    plain = not is_classifier(estimator) and estimator.loss == "squared_error" and start is not None
    return targets._replace(subtracted=float(start[0])) if plain and start is not None else None


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
    leaf, no = np.array([LEAF]), np.zeros(1)
    return Tree(leaf, no, leaf, leaf, no > 0, count.astype(np.float64), inside.astype(np.float64), no, labels=sums)
