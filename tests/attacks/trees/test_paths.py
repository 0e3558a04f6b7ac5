"""Bounds from paths and neighbours: equal to a plain reference that sees the known rows only, and always true."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes, load_wine
from sklearn.ensemble import ExtraTreesRegressor, RandomForestClassifier, RandomForestRegressor
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from grown import forest_of_sklearn, random_table
from lostwax.attacks.trees.paths import descend, narrowed_by_nodes, narrowed_without_sample, near_zero, zeros
from lostwax.games.trees import LEAF, Bounds, Forest, Tree


def anything(games: int, width: int, missing: bool) -> Bounds:
    wide = np.full((games, width), np.inf)
    return Bounds(-wide, wide, np.full(wide.shape, missing))


def found(forest: Forest, x: np.ndarray) -> Bounds:
    start = anything(len(x), x.shape[1], forest.accepts_missing)
    return narrowed_by_nodes(forest, forest.cast(x), np.arange(len(x)), start)


def reference(forest: Forest, x: np.ndarray, missing_row: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One game, by hand, from the known rows alone."""
    x = forest.cast(x)
    low, high = np.full(x.shape[1], -np.inf), np.full(x.shape[1], np.inf)
    maybe_missing = np.full(x.shape[1], forest.accepts_missing)
    known = [row for row in range(len(x)) if row != missing_row]
    for tree in forest.trees:
        if tree.share[missing_row] == 0:
            continue
        node, rows = 0, [row for row in known if tree.share[row] > 0]
        while tree.feature[node] != LEAF:
            column, threshold = tree.feature[node], tree.threshold[node]
            to_left = [row for row in rows if _left(tree, node, x[row, column])]
            to_right = [row for row in rows if row not in to_left]
            is_left = tree.size[tree.left[node]] - sum(tree.share[row] for row in to_left) > 0
            if is_left != tree.missing_left[node]:
                maybe_missing[column] = False
            if is_left:
                high[column] = min(high[column], threshold)
            elif np.isinf(threshold):  # only missing values are on the right
                low[column], high[column] = np.inf, -np.inf
            else:
                low[column] = max(low[column], np.nextafter(threshold, np.inf))
            values = x[rows, column]
            lower = [v for row, v in zip(rows, values, strict=True) if row in to_left and not np.isnan(v)]
            upper = [v for row, v in zip(rows, values, strict=True) if row in to_right and not np.isnan(v)]
            if tree.between_neighbours and np.isfinite(threshold):
                own, other = (lower, upper) if is_left else (upper, lower)
                pick, opposite = (max, min) if is_left else (min, max)
                if other and own and pick(own) / 2 + opposite(other) / 2 == threshold:
                    if is_left:
                        high[column] = min(high[column], pick(own))
                    else:
                        low[column] = max(low[column], pick(own))
                elif other:
                    value = np.float32(2 * threshold - opposite(other))
                    low[column], high[column] = max(low[column], value), min(high[column], value)
                    maybe_missing[column] = False
            rows = to_left if is_left else to_right
            node = tree.left[node] if is_left else tree.right[node]
    return low, high, maybe_missing


def _left(tree: Tree, node: int, value: float) -> bool:
    return bool(tree.missing_left[node]) if np.isnan(value) else bool(value <= tree.threshold[node])


@pytest.mark.parametrize(
    "model",
    [
        DecisionTreeRegressor(random_state=0),
        DecisionTreeClassifier(max_depth=4, random_state=1),
        RandomForestRegressor(12, random_state=2),
        RandomForestClassifier(12, random_state=3),
        ExtraTreesRegressor(12, random_state=4),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.parametrize("gaps", [0.0, 0.1], ids=["complete", "with missing values"])
def test_equals_the_reference(model, gaps):
    x, y = random_table(60, 5, gaps=gaps, seed=7)
    forest = forest_of_sklearn(model.fit(x, y), x)
    bounds = found(forest, x)
    for row in range(0, len(x), 3):
        low, high, maybe_missing = reference(forest, x, row)
        at_least = np.where(low <= high, np.float32(low), np.inf)  # the next float32 is not below
        assert (bounds.maybe_missing[row] == maybe_missing).all()
        same = (bounds.low[row] <= bounds.high[row]) == (low <= high)
        assert same.all()
        both = np.isfinite(at_least) & (low <= high)
        np.testing.assert_allclose(bounds.low[row][both], low[both], rtol=2e-7, atol=1e-30)
        np.testing.assert_allclose(bounds.high[row][low <= high], high[low <= high], rtol=2e-7, atol=1e-30)


@given(seed=st.integers(0, 10**6), levels=st.sampled_from([2, 5, 1000]), gaps=st.sampled_from([0.0, 0.2]))
@settings(max_examples=25, deadline=None)
def test_bounds_hold_the_truth(seed, levels, gaps):
    x, y = random_table(40, 4, gaps=gaps, seed=seed, levels=levels)
    for model in (RandomForestRegressor(8, random_state=seed), ExtraTreesRegressor(8, random_state=seed)):
        forest = forest_of_sklearn(model.fit(x, y), x)
        bounds, truth = found(forest, x), forest.cast(x)
        absent = np.isnan(truth)
        assert bounds.maybe_missing[absent].all()
        assert ((bounds.low <= truth) & (truth <= bounds.high))[~absent].all()
        assert not (bounds.missing & ~absent).any()
        assert not (bounds.exact & absent).any()


def test_a_forest_of_regression_trees_gives_most_cells():
    x, y = load_diabetes(return_X_y=True)
    forest = forest_of_sklearn(RandomForestRegressor(random_state=0).fit(x, y), x)
    bounds = found(forest, x)
    assert bounds.exact.mean() > 0.97
    assert (bounds.low == forest.cast(x))[bounds.exact].all()


def test_rows_out_of_all_bags_are_not_known():
    x, y = load_wine(return_X_y=True)
    forest = forest_of_sklearn(RandomForestClassifier(1, random_state=0).fit(x, y), x)
    outside = forest.trees[0].share == 0
    bounds = found(forest, x)
    assert np.isinf(bounds.low[outside]).all()
    assert np.isinf(bounds.high[outside]).all()
    assert bounds.maybe_missing[outside].all()


def test_sizes_that_are_not_precise_hide_the_path():
    x, y = random_table(30, 3, seed=0)
    forest = forest_of_sklearn(DecisionTreeRegressor().fit(x, y), x)
    (tree,) = forest.trees
    vague = Tree(**{**vars(tree), "rounding": np.where(np.arange(len(tree.size)) > 0, 0.5, 0.0)})
    bounds = found(Forest((vague,)), x)
    assert np.isinf(bounds.low).all()
    assert np.isinf(bounds.high).all()


def test_codes_that_are_possible():
    x = np.array([[0.0], [1.0], [2.0], [2.0], [3.0]])
    tree = Tree(
        feature=np.array([0, LEAF, LEAF]),
        threshold=np.zeros(3),
        left=np.array([1, LEAF, LEAF]),
        right=np.array([2, LEAF, LEAF]),
        missing_left=np.zeros(3, dtype=bool),
        size=np.array([5.0, 2.0, 3.0]),
        share=np.ones(5),
        rounding=np.zeros(3),
        categories={0: np.array([True, False, False, True])},
    )
    bounds = found(Forest((tree,)), x)
    expected = [[1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1]]
    assert bounds.codes[0].astype(int).tolist() == expected
    assert bounds.maybe_missing[:, 0].tolist() == [False, True, True, True, False]


def test_a_small_number_is_not_zero():
    x, y = np.array([[1e-9], [1.0], [2.0], [3.0]]), np.arange(4.0)
    forest = forest_of_sklearn(DecisionTreeRegressor().fit(x, y), x)
    bounds = found(forest, x)
    assert bounds.low[0, 0] <= np.float32(1e-9) <= bounds.high[0, 0]
    assert not zeros(bounds.low, bounds.high, near_zero(x, np.arange(4))).any()


def test_zero_is_zero_where_another_row_is():
    x = np.array([[0.0], [1.0], [2.0], [0.0], [1e-17]])
    assert near_zero(x, np.arange(5))[:, 0].tolist() == [1e-23, 1e-23, 1e-23, 1e-23, 1e-6]
    x = np.array([[0.0], [1.0], [2.0], [3.0]])
    assert near_zero(x, np.arange(4))[:, 0].tolist() == [0, 2e-6, 1e-6, 1e-6]
    low, high = np.array([-1e-16, 1e-16, -np.inf]), np.array([1e-16, 2e-16, 1e-16])
    assert zeros(low, high, np.full(3, 1e-6)).tolist() == [True, False, False]


def test_counts_tell_the_position_of_the_missing_row():
    """Known are the other rows in their order, but not between which two the missing one was."""
    x, y = random_table(40, 4, seed=9)
    forest, missing = forest_of_sklearn(RandomForestRegressor(30, random_state=0).fit(x, y), x), 17
    known = np.delete(forest.cast(x), missing, axis=0)

    def fits(position: int) -> bool:
        placed = np.insert(known, position, 0.0, axis=0)
        for tree in forest.trees:
            share = np.where(np.arange(len(x)) == position, 0.0, tree.share)
            levels = descend(forest, replace(tree, share=share), placed)
            counts = sum((np.bincount(one.child, minlength=len(tree.size)) for one in levels), np.zeros(len(tree.size)))
            lacking = (tree.size - counts)[1:]
            if (lacking < 0).any() or (lacking > tree.share[position]).any():
                return False
        return True

    assert [position for position in range(len(x)) if fits(position)] == [missing]


# trees of which it is not known on which rows they were grown


def unordered(model, x) -> Forest:
    return replace(forest_of_sklearn(model, x), ordered=True).without_order()


def found_unordered(forest: Forest, x: np.ndarray) -> Bounds:
    wide = np.full(x.shape, np.inf)
    return narrowed_without_sample(forest, forest.cast(x), np.arange(len(x)), Bounds(-wide, wide, wide > 0))


def reference_unordered(forest: Forest, x: np.ndarray, missing_row: int) -> tuple[np.ndarray, np.ndarray]:
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
def test_without_the_sample_equals_the_reference(model, levels):
    x, y = random_table(40, 3, seed=5, levels=levels)
    forest = unordered(model(6, random_state=0).fit(x, y), x)
    bounds = found_unordered(forest, x)
    for row in range(0, len(x), 4):
        low, high = reference_unordered(forest, x, row)
        np.testing.assert_allclose(bounds.low[row], low, rtol=2e-7)
        np.testing.assert_allclose(bounds.high[row], high, rtol=2e-7)


@given(seed=st.integers(0, 10**6), levels=st.sampled_from([2, 1000]), gaps=st.sampled_from([0.0, 0.2]))
@settings(max_examples=15, deadline=None)
def test_without_the_sample_bounds_hold_the_truth(seed, levels, gaps):
    x, y = random_table(30, 4, gaps=gaps, seed=seed, levels=levels)
    forest = unordered(RandomForestRegressor(8, random_state=seed).fit(x, y), x)
    bounds, truth = found_unordered(forest, x), forest.cast(x)
    absent = np.isnan(truth)
    assert bounds.maybe_missing[absent].all()
    assert ((bounds.low <= truth) & (truth <= bounds.high))[~absent].all()


def test_most_cells_are_exact_even_so():
    x, y = load_diabetes(return_X_y=True)
    forest = unordered(RandomForestRegressor(50, random_state=0).fit(x, y), x)
    assert found_unordered(forest, x).exact.mean() > 0.8
