"""Whole tables from forests, against every table that has the same counts."""

from collections import Counter
from dataclasses import replace
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from scipy import sparse
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from lostwax.adapters.sklearn.trees import forest_alone
from lostwax.attacks.whole_table import NoTableError, Search, TooManyCellsError, WholeTable, places
from lostwax.attacks.whole_table.attack import likelihood
from lostwax.attacks.whole_table.places import Boxes, Candidates
from lostwax.attacks.whole_table.solutions import Equations

BINARY = np.array([0.0, 1.0])


def binary_table(n, d, seed, classes=2):
    rng = np.random.default_rng(seed)
    x = (rng.random((n, d)) < rng.uniform(0.2, 0.8, size=d)).astype(float)
    signal = x @ rng.normal(size=d) + 0.5 * rng.normal(size=n)
    return x, np.digitize(signal, np.quantile(signal, np.arange(1, classes) / classes))


def rebuilt(model, d, **public):
    return WholeTable(Search(seconds=2))(forest_alone(model), d, **public)


def as_multiset(x, y):
    return Counter(map(tuple, np.c_[x, y].astype(int).tolist()))


def has_counts(model, x, y):
    """Whether the leaves of all trees have these rows: the definition, with scikit-learn's own paths."""
    drawn = model.estimators_samples_ if model.bootstrap else [np.arange(len(x))] * len(model.estimators_)
    for tree, rows in zip(model.estimators_, drawn, strict=True):
        held, counts = tree.tree_, np.zeros((tree.tree_.node_count, len(model.classes_)))
        np.add.at(counts, (tree.apply(x[rows]), y[rows]), 1)
        ends = held.children_left < 0
        if not np.allclose(counts[ends], (held.value[:, 0] * held.weighted_n_node_samples[:, None])[ends]):
            return False
    return True


def all_tables(model, n, d, classes):
    """(tables, n, d + 1) every table with the counts of the model, by trying all of them."""
    cells = np.array(list(product(*[range(2)] * d, range(classes))))
    numbers = range(len(cells))
    rows = np.array(list(product(numbers, repeat=n) if model.bootstrap else combinations_with_replacement(numbers, n)))
    drawn = model.estimators_samples_ if model.bootstrap else [np.arange(n)] * len(model.estimators_)
    fits = np.ones(len(rows), dtype=bool)
    for tree, sample in zip(model.estimators_, drawn, strict=True):
        held = tree.tree_
        kind = tree.apply(cells[:, :-1]) * classes + cells[:, -1]  # (cells,) leaf and class
        counts = (kind[rows[:, sample]][..., None] == np.arange(held.node_count * classes)).sum(1)  # (tables, kinds)
        wanted = np.where(held.children_left < 0, held.weighted_n_node_samples, 0)[:, None] * held.value[:, 0]
        fits &= np.isclose(counts, wanted.ravel()).all(1)
    return cells[rows[fits]]


@pytest.mark.parametrize("seed", range(4))
def test_claims_hold_in_every_table_with_these_counts(seed):
    n, d = 4, 3
    x, y = binary_table(n, d, seed)
    model = RandomForestClassifier(2, bootstrap=False, max_depth=2, random_state=seed).fit(x, y)
    found = rebuilt(model, d, values=dict.fromkeys(range(d), BINARY))
    tables = [as_multiset(table[:, :-1], table[:, -1]) for table in all_tables(model, n, d, 2)]
    ours = as_multiset(found.x, found.labels)
    assert found.solves
    assert found.proven
    assert ours in tables
    sure = as_multiset(
        found.x[found.exact.all(1) & found.label_certain], found.labels[found.exact.all(1) & found.label_certain]
    )
    assert all(sure <= table for table in tables)
    assert (len(tables) > 1) or found.exact.all()
    for column in range(d):  # what all rows have in common
        for value in found.x[found.exact[:, column] & ~found.exact.all(1), column]:
            assert all(any(row[column] == value for row in table) for table in tables)


@pytest.mark.parametrize("seed", range(2))
def test_claims_hold_with_bootstraps(seed):
    n, d = 3, 2
    x, y = binary_table(n, d, seed)
    model = RandomForestClassifier(4, max_depth=2, random_state=seed).fit(x, y)
    if len(model.classes_) < 2:
        pytest.skip("one class")
    found = rebuilt(model, d, values=dict.fromkeys(range(d), BINARY))
    tables = np.stack(all_tables(model, n, d, 2))  # (tables, n, d + 1)
    assert found.ordered
    ours = np.c_[found.x, found.labels]
    assert (tables == ours).all((1, 2)).any()
    same = (tables == tables[0]).all(0)  # (n, d + 1) cells that are the same in all
    certain = np.c_[found.exact, found.label_certain]
    assert not (certain & ~same).any()
    assert (certain == same).all()  # the search was not stopped, so nothing that is settled is missed


@pytest.mark.parametrize("kind", [RandomForestClassifier, ExtraTreesClassifier])
@pytest.mark.parametrize("bootstrap", [False, True])
def test_a_default_forest_reveals_its_whole_table(kind, bootstrap):
    x, y = binary_table(30, 8, seed=1, classes=3)
    model = kind(60, bootstrap=bootstrap, random_state=0).fit(x, y)
    found = rebuilt(model, 8, values=dict.fromkeys(range(8), BINARY))
    assert found.solves
    assert as_multiset(found.x, found.labels) == as_multiset(x, y)
    assert found.exact.mean() > 0.9
    if bootstrap:
        np.testing.assert_array_equal(found.x, x)  # in order: every row is drawn in its own way
        np.testing.assert_array_equal(found.labels, y)


def test_one_hot_groups_are_kept():
    rng = np.random.default_rng(3)
    x = np.c_[np.eye(4)[rng.integers(4, size=40)], rng.integers(2, size=(40, 3))]
    y = (x[:, 0] + x[:, 5] + rng.random(40) > 1.2).astype(int)
    model = RandomForestClassifier(3, max_depth=2, random_state=0).fit(x, y)
    found = rebuilt(model, 7, values=dict.fromkeys(range(7), BINARY), one_hot=[[0, 1, 2, 3]])
    assert (found.x[:, :4].sum(1) == 1).all()
    assert has_counts(model, found.x, found.labels)


@pytest.mark.parametrize("bootstrap", [False, True])
def test_numbers_lie_between_the_thresholds(bootstrap):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(25, 2))
    y = (x.sum(1) + 0.3 * rng.normal(size=25) > 0).astype(int)
    model = RandomForestClassifier(40, bootstrap=bootstrap, random_state=0).fit(x, y)
    found = rebuilt(model, 2)
    assert has_counts(model, found.x, found.labels)
    assert not found.exact.any()  # intervals only
    if bootstrap:
        inside = (found.low < x) & (x <= found.high)
        assert inside[found.certain].all()
        assert found.certain.mean() > 0.3


def test_a_shallow_forest_claims_little():
    """Two splits cannot tell ten columns: what is not determined must not be claimed."""
    x, y = binary_table(30, 10, seed=5)
    model = RandomForestClassifier(1, bootstrap=False, max_depth=1, random_state=0).fit(x, y)
    found = rebuilt(model, 10, values=dict.fromkeys(range(10), BINARY))
    assert found.exact.mean() <= 0.1  # the column of the split
    assert has_counts(model, found.x, found.labels)


def test_of_several_tables_the_likeliest_is_chosen():
    """A row that may be in two places goes to the one like the rows that are settled."""
    boxes = Boxes(np.array([[0, 0], [0, 1], [1, 1]]), np.array([[0, 0], [0, 1], [1, 1]]))
    candidates = Candidates(np.array([0, 1, 1]), boxes, np.zeros(3, dtype=int), np.zeros((3, 0), dtype=int))
    matrix = sparse.csr_array(np.array([[1, 0, 0], [0, 1, 1]]))
    low, high = np.array([1, 0, 0]), np.array([1, 1, 1])
    equations = Equations(matrix, np.array([1, 1]), low, high, candidates.group, np.array([1, 1]))
    scores = likelihood(candidates, equations)
    assert scores[1] > scores[2]  # it differs from the settled row in one column, the other in both
    found = Search(seconds=2)(equations, scores)
    np.testing.assert_array_equal(found.numbers, [1, 1, 0])
    np.testing.assert_array_equal(found.certain, [True, False, False])


def test_counts_of_no_table_are_an_error():
    x, y = binary_table(20, 5, seed=0)
    forest = forest_alone(RandomForestClassifier(10, bootstrap=False, random_state=0).fit(x, y))
    other = forest_alone(RandomForestClassifier(10, bootstrap=False, random_state=0).fit(1 - x[:, ::-1], y[::-1]))
    mixed = replace(forest, trees=forest.trees + other.trees)
    with pytest.raises(NoTableError, match="No table"):
        WholeTable(Search(seconds=2))(mixed, 5, values=dict.fromkeys(range(5), BINARY))


def test_numbers_with_too_many_places_are_refused(monkeypatch):
    monkeypatch.setattr(places, "MAX_BOXES", 100)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 6))
    model = RandomForestClassifier(10, random_state=0).fit(x, x[:, 0] > 0)
    with pytest.raises(TooManyCellsError, match="more than 100 places"):
        rebuilt(model, 6)
