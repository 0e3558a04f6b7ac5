"""Several rows missing, against all tables that have the counts of the trees."""

from collections import Counter
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.tree import DecisionTreeClassifier

from lostwax.adapters.sklearn import released
from lostwax.attacks.trees import several_missing
from lostwax.attacks.whole_table import Search, WholeTable

FLAGS = np.array([0.0, 1.0])


def solved(model, x, y, rows):
    """Bounds of the missing rows, and which are proven."""
    (part,) = (part for part in released(model, (x, y)).parts if part.fitted.forest is not None)
    public = {column: FLAGS for column in range(x.shape[1]) if np.isin(x[:, column], FLAGS).all()}
    return several_missing(part.fitted, np.array(rows), public, (), solver=WholeTable(Search(5.0, 1)))


def counts(model, x, y):
    """How much of each class is in each leaf, by scikit-learn itself."""
    trees = getattr(model, "estimators_", [model])
    drawn = getattr(model, "estimators_samples_", None) if getattr(model, "bootstrap", False) else None
    times = [np.ones(len(x)) if drawn is None else np.bincount(drawn[i], minlength=len(x)) for i in range(len(trees))]
    totals = []
    for tree, weight in zip(trees, times, strict=True):
        table = np.zeros((tree.tree_.node_count, 2))
        np.add.at(table, (tree.apply(x), y), weight)
        totals.append(table)
    return np.concatenate(totals)


def completions(model, x, y, rows):
    """All ways to fill in the missing rows that give the same counts; in order, or as sets."""
    true, cells = counts(model, x, y), [(*row, label) for row in product((0, 1), repeat=x.shape[1]) for label in (0, 1)]
    ordered = getattr(model, "bootstrap", False)
    ways = product(cells, repeat=len(rows)) if ordered else combinations_with_replacement(cells, len(rows))
    fits = []
    for way in ways:
        filled, labels = x.copy(), y.copy()
        filled[rows], labels[rows] = [row[:-1] for row in way], [row[-1] for row in way]
        if np.array_equal(counts(model, filled, labels), true):
            fits.append([row[:-1] for row in way])
    return fits


@pytest.mark.parametrize("bootstrap", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_what_is_proven_is_so_in_every_table_with_these_counts(seed, bootstrap):
    rng = np.random.default_rng(seed)
    x, k = rng.integers(2, size=(12, 3)).astype(float), 2 + seed % 2
    y = rng.integers(2, size=12)
    y[:2] = 0, 1
    model = RandomForestClassifier(4, max_depth=1 + seed % 4, bootstrap=bootstrap, random_state=seed).fit(x, y)
    rows = rng.permutation(12)[:k]
    bounds, proven = solved(model, x, y, rows)
    tables = completions(model, x, y, rows)
    assert tables  # the true rows are one
    exact = proven & (bounds.low == bounds.high).all(1)
    claimed = [tuple(row.astype(int)) for row in bounds.low]
    for table in tables:
        if bootstrap and len({tuple(drawn) for drawn in drawn_times(model, rows)}) == k:
            assert all(table[i] == claimed[i] for i in np.flatnonzero(exact))
        else:
            left = Counter(table)
            left.subtract(claimed[i] for i in np.flatnonzero(exact))
            assert min(left.values()) >= 0
    if len({tuple(sorted(table)) for table in tables}) == 1:
        assert exact.all()


def drawn_times(model, rows):
    """(k, trees) how often each missing row was drawn."""
    return np.array([[np.sum(drawn == row) for drawn in model.estimators_samples_] for row in rows])


@pytest.mark.parametrize("k", [2, 8])
def test_numbers_of_a_regression_forest(k):
    x, y = load_diabetes(return_X_y=True)
    model = RandomForestRegressor(50, random_state=0).fit(x, y)
    rows = np.random.default_rng(k).permutation(len(x))[:k]
    bounds, proven = solved(model, x, y, rows)
    assert proven.all()
    true = x[rows].astype(np.float32)
    np.testing.assert_array_less(bounds.low - 1e-9, true)  # bootstraps tell the order of rows
    np.testing.assert_array_less(true, bounds.high + 1e-9)
    single = bounds.low.astype(np.float32) == bounds.high.astype(np.float32)
    assert single.mean() > 0.8


@pytest.mark.parametrize("seed", range(4))
def test_intervals_hold_where_rows_have_no_order(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(60, 4)), rng.integers(2, size=60)
    model = RandomForestClassifier(10, bootstrap=False, random_state=seed).fit(x, y)
    rows = rng.permutation(60)[:3]
    bounds, proven = solved(model, x, y, rows)
    true = x[rows].astype(np.float32)
    inside = ((bounds.low[:, None] <= true + 1e-9) & (true - 1e-9 <= bounds.high[:, None])).all(2)
    row, _ = linear_sum_assignment(~inside[proven])
    assert len(row) == proven.sum()
    assert inside[proven][linear_sum_assignment(~inside[proven])].all()


def test_rows_of_another_table_contradict_the_counts():
    rng = np.random.default_rng(0)
    x, y = rng.integers(2, size=(40, 5)).astype(float), rng.integers(2, size=40)
    model = DecisionTreeClassifier(random_state=0).fit(x, y)
    (part,) = released(model, (x, y)).parts
    other = part.fitted.table.x.flip(0)
    part.fitted.table.x[:] = other
    with pytest.raises(ValueError, match="No table has the counts"):
        several_missing(
            part.fitted, np.arange(2), dict.fromkeys(range(5), FLAGS), (), solver=WholeTable(Search(5.0, 1))
        )
