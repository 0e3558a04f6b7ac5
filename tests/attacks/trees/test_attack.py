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
from lostwax.attacks.trees import TreeConstraints, exact_cells_note, revealed_by_trees
from lostwax.attacks.trees.attack import FEW_ROWS, missing_labels
from lostwax.games import Cells, Fitted, Part, Records
from lostwax.games.trees import Forest, LabelSums

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


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (RandomForestRegressor(20, random_state=0), "its smallest leaf is of size 1: larger leaves"),
        (RandomForestRegressor(20, min_samples_leaf=FEW_ROWS, random_state=0), None),
        (
            HistGradientBoostingRegressor(max_iter=10, random_state=0),
            "come from the bins of its histograms: fewer bins",
        ),
        (ExtraTreesRegressor(20, random_state=0), None),
    ],
    ids=["small leaves", "large leaves", "bins", "random thresholds"],
)
def test_the_note_names_the_setting_that_exact_cells_depend_on(model, words):
    note = exact_cells_note(fitted_forest(model), GAMES)
    assert note is None if words is None else words in str(note)


def test_a_forest_without_trees_has_no_such_note():
    fitted = fitted_forest(HistGradientBoostingRegressor(max_iter=2, random_state=0))
    empty = replace(fitted, forest=replace(fitted.forest, trees=()))
    assert exact_cells_note(replace(empty, forest=replace(empty.forest, cuts=(), quantiles=())), GAMES) is None
