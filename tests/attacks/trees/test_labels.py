"""Labels of the missing row from sums in nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from grown import forest_of_sklearn, random_table
from lostwax.attacks.trees.labels import missing_labels
from lostwax.games.trees import Forest, LabelSums


def grown(x, y, *, classes: bool, rounding: float = 0.0, weight=None, depth: int | None = None) -> Forest:
    model = (DecisionTreeClassifier if classes else DecisionTreeRegressor)(random_state=0, max_depth=depth)
    model.fit(x, y, sample_weight=weight)
    forest, tree = forest_of_sklearn(model, x), model.tree_
    totals = tree.value[:, 0] * tree.weighted_n_node_samples[:, None]
    sums = LabelSums(totals, np.ones(len(x)) if weight is None else weight, np.full(tree.node_count, rounding))
    return Forest(tuple(replace(one, labels=sums) for one in forest.trees))


@pytest.mark.parametrize("depth", [0, 2, None])
def test_classes_are_certain(depth):
    x, y = random_table(50, 3, seed=1)
    forest = grown(x, y, classes=True, depth=depth) if depth != 0 else grown(np.ones_like(x), y, classes=True)
    found = missing_labels(forest, forest.cast(x if depth != 0 else np.ones_like(x)), y, np.arange(50), classes=True)
    assert found.known.all()
    assert (found.values == y).all()


def test_targets_are_exact_where_a_row_is_alone():
    x, y = random_table(50, 3, seed=2)
    y = np.random.default_rng(0).normal(size=50) * 1e6
    weight = np.random.default_rng(1).uniform(0.5, 2, 50)
    forest = grown(x, y, classes=False, weight=weight)
    found = missing_labels(forest, forest.cast(x), y, np.arange(50), classes=False)
    np.testing.assert_allclose(found.values, y, rtol=1e-12)
    assert (found.error <= 1e-6).all()


def test_targets_from_the_sum_of_all_rows():
    x, y = random_table(50, 3, seed=3)
    y = np.random.default_rng(0).normal(size=50)
    forest = grown(np.ones_like(x), y, classes=False)
    found = missing_labels(forest, np.ones_like(x), y, np.arange(0, 50, 7), classes=False)
    np.testing.assert_allclose(found.values, y[::7], atol=1e-12)


def test_rounding_that_may_hide_a_label_says_so():
    x, y = random_table(30, 3, seed=4)
    forest = grown(x, y, classes=True, rounding=0.6)
    found = missing_labels(forest, forest.cast(x), y, np.arange(30), classes=True)
    assert not found.known.any()
