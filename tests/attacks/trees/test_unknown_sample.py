"""What is left if it is not known on which rows a tree was grown: equal to a plain reference, and always true."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from grown import forest_of_sklearn, random_table
from lostwax.attacks.trees.unknown_sample import narrowed_without_sample
from lostwax.games.trees import LEAF, Bounds, Forest


def unordered(model, x) -> Forest:
    return replace(forest_of_sklearn(model, x), ordered=True).without_order()


def found(forest: Forest, x: np.ndarray) -> Bounds:
    wide = np.full(x.shape, np.inf)
    return narrowed_without_sample(forest, forest.cast(x), np.arange(len(x)), Bounds(-wide, wide, wide > 0))


def reference(forest: Forest, x: np.ndarray, missing_row: int) -> tuple[np.ndarray, np.ndarray]:
    """One game, by hand, from the known rows alone."""
    x = forest.cast(x)
    low, high = np.full(x.shape[1], -np.inf), np.full(x.shape[1], np.inf)
    candidates: dict[int, set[float]] = {}

    def visit(tree, node, rows, box):
        """All nodes; `box` are the sides taken so far, used once the missing row is known to be in it."""
        inside = tree.size[node] > len(rows)
        if tree.feature[node] != LEAF:
            column, threshold = int(tree.feature[node]), tree.threshold[node]
            left = [row for row in rows if x[row, column] <= threshold]
            right = [row for row in rows if x[row, column] > threshold]
            pairs = [(a, b) for a in left for b in right if (x[a, column] + x[b, column]) / 2 == threshold]
            if not pairs:
                inside = True
                pairs_with = {float(np.float32(2 * threshold - v)): v for v in x[rows, column]}
                values = {c for c, v in pairs_with.items() if (c + v) / 2 == threshold}
                candidates[column] = candidates.get(column, values) & values
            visit(tree, tree.left[node], left, [*box, (column, -np.inf, threshold)])
            visit(tree, tree.right[node], right, [*box, (column, np.nextafter(threshold, np.inf), np.inf)])
        if inside:
            for column, lower, upper in box:
                low[column], high[column] = max(low[column], lower), min(high[column], upper)

    for tree in forest.trees:
        visit(tree, 0, [row for row in range(len(x)) if row != missing_row], [])
    for column, values in candidates.items():
        within = [value for value in values if low[column] <= value <= high[column]]
        low[column], high[column] = max(low[column], min(within)), min(high[column], max(within))
    return low, high


@pytest.mark.parametrize("levels", [3, 10**9], ids=["ties", "numbers"])
@pytest.mark.parametrize("model", [RandomForestRegressor, RandomForestClassifier])
def test_equals_the_reference(model, levels):
    x, y = random_table(40, 3, seed=5, levels=levels)
    forest = unordered(model(6, random_state=0).fit(x, y), x)
    bounds = found(forest, x)
    for row in range(0, len(x), 4):
        low, high = reference(forest, x, row)
        np.testing.assert_allclose(bounds.low[row], low, rtol=2e-7)
        np.testing.assert_allclose(bounds.high[row], high, rtol=2e-7)


@given(seed=st.integers(0, 10**6), levels=st.sampled_from([2, 1000]), gaps=st.sampled_from([0.0, 0.2]))
@settings(max_examples=15, deadline=None)
def test_bounds_hold_the_truth(seed, levels, gaps):
    x, y = random_table(30, 4, gaps=gaps, seed=seed, levels=levels)
    forest = unordered(RandomForestRegressor(8, random_state=seed).fit(x, y), x)
    bounds, truth = found(forest, x), forest.cast(x)
    absent = np.isnan(truth)
    assert bounds.maybe_missing[absent].all()
    assert ((bounds.low <= truth) & (truth <= bounds.high))[~absent].all()


def test_most_cells_are_exact_even_so():
    x, y = load_diabetes(return_X_y=True)
    forest = unordered(RandomForestRegressor(50, random_state=0).fit(x, y), x)
    assert found(forest, x).exact.mean() > 0.8
