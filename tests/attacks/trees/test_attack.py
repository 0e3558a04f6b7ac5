"""What the trees exclude is excluded by the model: the same table with such a value in one cell does not fit it.

Labels of the missing row from sums in nodes; where exact cells come from: small leaves or bins.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from boosting import forest_part
from grown import forest_of_sklearn, random_table
from lostwax.adapters.sklearn import released
from lostwax.attacks.trees import TreeConstraints, exact_cells, revealed_by_trees
from lostwax.attacks.trees.attack import FEW_ROWS, ExactCells, missing_labels, with_large_leaves
from lostwax.games import Cells, Fitted, Part, Records
from lostwax.games.trees import LEAF, Forest, LabelSums

MODELS = {
    "forest": RandomForestRegressor(6, random_state=0),
    "random thresholds": ExtraTreesRegressor(6, random_state=0),
    "boosting": GradientBoostingRegressor(n_estimators=8, subsample=0.7, random_state=0),
    "bins": HistGradientBoostingRegressor(max_iter=4, min_samples_leaf=3, random_state=0),
    "quantile bins": HistGradientBoostingRegressor(max_iter=4, min_samples_leaf=3, max_bins=7, random_state=0),
}


def table(decimals: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(decimals)
    x = rng.normal(size=(40, 3)).round(decimals) + 10.0  # none is near zero
    return x, x[:, 0] + rng.normal(size=40) / 2


def facts(forest: Forest) -> tuple[object, ...]:
    """How the model was read: less is read of a model that does not fit in some part."""
    trees = [(tree.between_neighbours, bool(np.isfinite(tree.rounding).any())) for tree in forest.trees]
    return trees, [one.column for one in forest.cuts], [one.column for one in forest.quantiles]


def fits(model: Any, x: Any, y: Any, expected: tuple[object, ...]) -> bool:
    try:
        return facts(forest_part(model, x, y).forest) == expected
    except ValueError:  # it was fitted on other data
        return False


@pytest.mark.parametrize("decimals", [1, 12], ids=["ties", "numbers"])
@pytest.mark.parametrize("order_known", [True, False], ids=["order known", "order unknown"])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_no_excluded_value_fits_the_model(model, order_known, decimals):
    x, y = table(decimals)
    fitted = forest_part(model.fit(x, y), x, y)
    expected = facts(fitted.forest)
    if not order_known:
        fitted = replace(fitted, forest=fitted.forest.without_order())
    bounds, _ = TreeConstraints().leave_one_out(fitted, torch.arange(len(x)))
    rng, tried = np.random.default_rng(0), 0
    for row, column in zip(rng.integers(0, 40, 12), rng.integers(0, 3, 12), strict=True):
        low, high = bounds.low[row, column], bounds.high[row, column]
        outside = [low - 1e-5, high + 1e-5, low - 0.2, high + 0.2, *rng.choice(x[:, column], 2)]
        for value in outside:
            if np.isfinite(value) and not low <= fitted.forest.cast(np.array(value)) <= high:
                changed, tried = x.copy(), tried + 1
                changed[row, column] = value
                assert not fits(model, changed, y, expected)
    assert tried > 10


def test_rows_held_out_are_not_known_without_the_order_of_rows():
    """Early stopping holds out rows by their number: which values made the bins is not known either."""
    x, y = table(12)
    model = HistGradientBoostingRegressor(max_iter=3, min_samples_leaf=3, early_stopping=True, random_state=0)
    forest = forest_part(model.fit(x, y), x, y).forest
    assert forest.ordered
    assert len(forest.cuts) == 3
    assert forest.without_order().cuts == ()


def test_errors_name_the_model():
    x, y = table(1)
    records = Records(torch.from_numpy(x), torch.from_numpy(y))
    fitted = Fitted("Ridge", records, torch.ones(40).double(), None)
    with pytest.raises(ValueError, match="Ridge has no trees"):
        TreeConstraints().leave_one_out(fitted, torch.arange(2))
    part = Part(fitted, lambda rows: Cells.lost(len(rows), 3))
    with pytest.raises(ValueError, match="the bounds of Ridge have no way back"):
        revealed_by_trees(part, torch.arange(2))


def test_trees_that_contradict_each_other():
    x, y = table(12)
    fitted = forest_part(RandomForestRegressor(6, random_state=0).fit(x, y), x, y)
    shifted = [replace(tree, threshold=tree.threshold + 0.01) for tree in fitted.forest.trees[:1]]
    wrong = replace(fitted.forest, trees=(*shifted, *fitted.forest.trees[1:]))
    with pytest.raises(ValueError, match="no row explains RandomForestRegressor"):
        TreeConstraints().leave_one_out(replace(fitted, forest=wrong), torch.arange(40))


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


X, Y = (part[:200] for part in load_diabetes(return_X_y=True))
GAMES = torch.arange(len(X))


def fitted_forest(model: Any) -> Fitted:
    """The part of a fitted model that has its trees."""
    return next(part.fitted for part in released(model.fit(X, Y), (X, Y)).parts if part.fitted.forest is not None)


def test_a_forest_with_unlimited_depth_leaks_by_its_small_leaves():
    found = exact_cells(fitted_forest(RandomForestRegressor(20, random_state=0)), GAMES)
    assert found.everything > 0.5 > 0.1 > found.without_small_leaves > 0
    assert found.without_bins == found.everything
    note = str(found.note("RandomForestRegressor"))
    assert "come from nodes that split off fewer than 20 rows: larger leaves (such as min_samples_leaf=20;" in note


def test_a_forest_with_large_leaves_has_no_small_ones():
    found = exact_cells(fitted_forest(RandomForestRegressor(20, min_samples_leaf=FEW_ROWS, random_state=0)), GAMES)
    assert found.everything == found.without_small_leaves > 0
    assert found.note("RandomForestRegressor") is None


def test_histogram_boosting_leaks_by_its_bins():
    found = exact_cells(fitted_forest(HistGradientBoostingRegressor(max_iter=10, random_state=0)), GAMES)
    assert found.everything > 0.05 > found.without_bins == 0
    assert "100\N{NO-BREAK SPACE}% of the cells that it gives exactly come from the bins" in str(found.note("it"))


def test_random_thresholds_give_nothing_exactly():
    found = exact_cells(fitted_forest(ExtraTreesRegressor(20, random_state=0)), GAMES)
    assert found == ExactCells(0, 0, 0)
    assert found.note("ExtraTreesRegressor") is None


def test_no_note_if_most_exact_cells_do_not_depend_on_either():
    assert ExactCells(0.5, 0.3, 0.4).note("it") is None
    assert str(ExactCells(0.5, 0.1, 0.4).note("it")).startswith("80\N{NO-BREAK SPACE}%")


@pytest.mark.parametrize("rows", [1, 5, 30])
def test_cut_trees_have_leaves_of_this_size(rows):
    """Rows are counted by sending them down; a tree with leaves of this size already stays as it is."""
    forest = fitted_forest(DecisionTreeRegressor(min_samples_leaf=5, random_state=0)).forest
    x = forest.cast(X)
    (tree,) = forest.trees
    cut = with_large_leaves(forest, tree, x, rows)
    leaves = np.zeros(len(x), dtype=int)
    while (inner := cut.feature[leaves] != LEAF).any():
        left = x[np.arange(len(x)), cut.feature[leaves].clip(0)] <= cut.threshold[leaves]
        leaves = np.where(inner, np.where(left, cut.left[leaves], cut.right[leaves]), leaves)
    assert np.unique(leaves, return_counts=True)[1].min() >= rows
    assert np.array_equal(cut.feature, tree.feature) == (rows <= 5)
