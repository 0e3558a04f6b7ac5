"""Forests of scikit-learn read without the table they were grown on: trees, counts of classes, and bootstraps.

The number of rows is stored in the model, and with the seed of each tree it gives how often each row was drawn for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from lostwax.adapters.sklearn.grown import Targets, TreeSample, times_drawn, tree_of
from lostwax.games.trees import Floats, Forest


@singledispatch
def forest_alone(estimator: Any) -> Forest:
    """The trees of a classifier and how often each row was drawn for each; raises TypeError if this cannot be read."""
    raise TypeError(
        f"{type(estimator).__name__}: without any row of the table, only these are read: DecisionTreeClassifier, "
        "ExtraTreeClassifier, RandomForestClassifier, ExtraTreesClassifier."
    )


@forest_alone.register(DecisionTreeClassifier)
def _(estimator: Any) -> Forest:
    return _counted(estimator, [estimator], [np.ones(int(estimator.tree_.n_node_samples[0]))])


@forest_alone.register(RandomForestClassifier)
@forest_alone.register(ExtraTreesClassifier)
def _(estimator: Any) -> Forest:
    if not estimator.bootstrap:
        rows = int(estimator.estimators_[0].tree_.n_node_samples[0])
        return _counted(estimator, estimator.estimators_, [np.ones(rows)] * len(estimator.estimators_))
    if (counts := times_drawn(estimator, estimator._n_samples)) is None:
        raise TypeError(
            f"{type(estimator).__name__}: its bootstraps cannot be drawn again, because the seeds of its trees are not "
            "stored. Without them, a table with no known row is not rebuilt."
        )
    return _counted(estimator, estimator.estimators_, counts)


def _counted(estimator: Any, trees: Sequence[Any], counts: Sequence[Floats]) -> Forest:
    """A forest whose trees count each row as often as it was drawn; raises if they weight rows."""
    name = type(estimator).__name__
    if estimator.n_outputs_ != 1:
        raise TypeError(f"{name}: trees with several labels per row are not read without a row of the table.")
    rows, classes = len(counts[0]), len(estimator.classes_)
    targets = Targets(np.zeros((rows, classes)), np.arange(classes))  # the columns only: labels are not known
    for tree, count in zip(trees, counts, strict=True):
        held = tree.tree_
        if not np.isclose(held.weighted_n_node_samples[0], count.sum()) or estimator.class_weight is not None:
            raise TypeError(
                f"{name}: was fitted with sample weights or class weights. Its trees hold weights, not counts of rows; "
                "without a row of the table they are not read."
            )
        if held.n_node_samples[0] != (count > 0).sum():
            raise ValueError(f"{name}: a tree was grown on {held.n_node_samples[0]} rows, its seed draws others.")
        if not np.isfinite(held.threshold).all():
            raise TypeError(f"{name}: was grown on missing values. Without a row of the table these are not read.")
    samples = (TreeSample(tree, count, np.ones(rows), targets) for tree, count in zip(trees, counts, strict=True))
    return Forest(tuple(tree_of(sample) for sample in samples), ordered=getattr(estimator, "bootstrap", False))
