"""Where exact cells come from: small leaves or bins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.tree import DecisionTreeRegressor

from lostwax.adapters.sklearn import released
from lostwax.attacks.trees.sources import FEW_ROWS, ExactCells, exact_cells, with_large_leaves
from lostwax.games import Fitted
from lostwax.games.trees import LEAF

X, Y = (part[:200] for part in load_diabetes(return_X_y=True))
GAMES = torch.arange(len(X))


def fitted_forest(model: Any) -> Fitted:
    """The part of a fitted model that has its trees."""
    return next(part.fitted for part in released(model.fit(X, Y), (X, Y)).parts if part.fitted.forest is not None)


def test_a_forest_with_unlimited_depth_leaks_by_its_small_leaves():
    found = exact_cells(fitted_forest(RandomForestRegressor(20, random_state=0)), GAMES)
    assert found.everything > 0.5 > 0.1 > found.without_small_leaves > 0
    assert found.without_bins == found.everything
    note = found.note("RandomForestRegressor")
    assert "come from nodes that split off fewer than 20 rows: larger leaves (such as min_samples_leaf=20;" in note


def test_a_forest_with_large_leaves_has_no_small_ones():
    found = exact_cells(fitted_forest(RandomForestRegressor(20, min_samples_leaf=FEW_ROWS, random_state=0)), GAMES)
    assert found.everything == found.without_small_leaves > 0
    assert found.note("RandomForestRegressor") is None


def test_histogram_boosting_leaks_by_its_bins():
    found = exact_cells(fitted_forest(HistGradientBoostingRegressor(max_iter=10, random_state=0)), GAMES)
    assert found.everything > 0.05 > found.without_bins == 0
    assert "100\N{NO-BREAK SPACE}% of the cells that it gives exactly come from the bins" in found.note("it")


def test_random_thresholds_give_nothing_exactly():
    found = exact_cells(fitted_forest(ExtraTreesRegressor(20, random_state=0)), GAMES)
    assert found == ExactCells(0, 0, 0)
    assert found.note("ExtraTreesRegressor") is None


def test_no_note_if_most_exact_cells_do_not_depend_on_either():
    assert ExactCells(0.5, 0.3, 0.4).note("it") is None
    assert ExactCells(0.5, 0.1, 0.4).note("it").startswith("80\N{NO-BREAK SPACE}%")


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
