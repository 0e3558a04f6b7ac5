"""Trees of scikit-learn are read with the rows they were grown on, and refused with any others."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_matrix, random_array
from sklearn.base import is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_diabetes, load_wine
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
)
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier, ExtraTreeRegressor

from lostwax.adapters.sklearn import reading
from lostwax.adapters.sklearn.estimators import NotReadError
from lostwax.adapters.sklearn.reading import released
from lostwax.adapters.sklearn.trees import forest_alone, forest_of
from lostwax.attacks.trees import TreeConstraints
from lostwax.games import Fitted, Records
from lostwax.games.trees import LEAF

WINE, KINDS = load_wine(return_X_y=True)
DIABETES, PROGRESSION = load_diabetes(return_X_y=True)
NAMES = np.array(["barolo", "grignolino", "barbera"])[KINDS]
RNG = np.random.default_rng(0)
GAPS = np.where(RNG.random(WINE.shape) < 0.1, np.nan, WINE)
WEIGHTS = RNG.integers(0, 4, len(WINE)).astype(float)
BY_CLASS = {"barolo": 1.0, "grignolino": 3.0, "barbera": 0.5}


def read(model, x, y, weight=None):
    model.fit(x, y) if weight is None else model.fit(x, y, sample_weight=weight)
    return forest_of(model, np.asarray(x, dtype=float), y, np.ones(len(x)) if weight is None else weight)


def sums_over_rows(forest, tree, x, each):
    """(m, k) the sum over the rows in each node, by the definition: one row and one node at a time."""
    found = np.zeros((len(tree.size), each.shape[1]))
    for row, values in zip(forest.cast(x), each, strict=True):
        node = 0
        while True:
            found[node] += values
            if tree.feature[node] == LEAF:
                break
            value = row[tree.feature[node]]
            left = tree.missing_left[node] if np.isnan(value) else value <= tree.threshold[node]
            node = tree.left[node] if left else tree.right[node]
    return found


def check_facts(forest, x, y, *, classes):
    """Sizes and sums of labels add up in every node that says something."""
    names, numbers = np.unique(y, return_inverse=True)
    values = np.eye(len(names))[numbers] if classes else y[:, None].astype(float)
    for tree in forest.trees[:2]:
        np.testing.assert_array_equal(sums_over_rows(forest, tree, x, tree.share[:, None])[:, 0], tree.size)
        if tree.labels is not None:
            held = sums_over_rows(forest, tree, x, tree.labels.weight[:, None] * values)
            assert (np.abs(held - tree.labels.totals) <= 2 * tree.labels.rounding[:, None]).all()


CLASSIFIERS = [
    DecisionTreeClassifier(),
    DecisionTreeClassifier(class_weight="balanced", criterion="entropy", max_leaf_nodes=6),
    DecisionTreeClassifier(class_weight={**BY_CLASS, "barbera": 0.0}),
    DecisionTreeClassifier(ccp_alpha=0.02, min_samples_leaf=3, max_features=2),
    ExtraTreeClassifier(),
    RandomForestClassifier(6),
    RandomForestClassifier(6, class_weight="balanced", max_depth=3, oob_score=True),
    RandomForestClassifier(6, class_weight="balanced_subsample", max_samples=0.5),
    RandomForestClassifier(6, class_weight=BY_CLASS, min_samples_leaf=4),
    RandomForestClassifier(6, class_weight="balanced", bootstrap=False),
    ExtraTreesClassifier(6),
    ExtraTreesClassifier(6, bootstrap=True, max_samples=40),
    BaggingClassifier(n_estimators=4),
    BaggingClassifier(DecisionTreeClassifier(class_weight="balanced"), 4, max_features=0.5, bootstrap_features=True),
    BaggingClassifier(ExtraTreeClassifier(), 4, max_samples=0.3, bootstrap=False),
    GradientBoostingClassifier(n_estimators=3),
    GradientBoostingClassifier(n_estimators=3, subsample=0.5, random_state=0, max_features=4),
    AdaBoostClassifier(n_estimators=5),
    AdaBoostClassifier(DecisionTreeClassifier(class_weight="balanced", max_depth=2), n_estimators=4),
]
REGRESSORS = [
    DecisionTreeRegressor(),
    DecisionTreeRegressor(criterion="poisson", max_depth=4),
    DecisionTreeRegressor(criterion="absolute_error"),
    ExtraTreeRegressor(),
    RandomForestRegressor(4, max_samples=0.7),
    ExtraTreesRegressor(4),
    BaggingRegressor(n_estimators=4, max_features=3),
    GradientBoostingRegressor(n_estimators=4),
    GradientBoostingRegressor(n_estimators=4, init="zero", max_leaf_nodes=5),
    GradientBoostingRegressor(n_estimators=4, subsample=0.6, random_state=1),
    GradientBoostingRegressor(n_estimators=9, n_iter_no_change=2, random_state=1, subsample=0.6),
]
RANDOM = (ExtraTreeClassifier, ExtraTreeRegressor, ExtraTreesClassifier, ExtraTreesRegressor)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("weight", [None, WEIGHTS], ids=["", "weighted"])
@pytest.mark.parametrize("model", CLASSIFIERS, ids=str)
def test_classifiers(model, weight):
    if weight is not None and getattr(model, "subsample", 1.0) < 1:
        weight = weight + 1  # rows without a weight may not have been there: see below
    if weight is not None and not getattr(model, "bootstrap", True) and isinstance(model, BaggingClassifier):
        weight = weight + 1
    forest = read(model, WINE, NAMES, weight)
    check_facts(forest, WINE, NAMES, classes=True)
    assert forest.trees[0].labels is not None
    best = not isinstance(getattr(model, "estimator", None) or model, RANDOM)
    assert all(tree.between_neighbours == best for tree in forest.trees if len(tree.size) > 1)
    assert forest.ordered == (
        getattr(model, "bootstrap", None) is True or "BaggingC" in str(model) or "subs" in str(model)
    )


@pytest.mark.parametrize("model", REGRESSORS, ids=str)
def test_regressors(model):
    forest = read(model, DIABETES[:150], PROGRESSION[:150])
    check_facts(forest, DIABETES[:150], PROGRESSION[:150], classes=False)
    assert forest.trees[0].labels is not None
    assert np.isfinite(forest.trees[0].labels.rounding).any()


@pytest.mark.parametrize(
    "model", [RandomForestClassifier(5), ExtraTreesClassifier(5), BaggingClassifier(n_estimators=5)], ids=str
)
def test_missing_values(model):
    forest = read(model, GAPS, NAMES)
    assert forest.accepts_missing
    check_facts(forest, GAPS, NAMES, classes=True)


def test_trees_without_labels():
    forest = read(IsolationForest(n_estimators=4), WINE, KINDS)
    check_facts(forest, WINE, KINDS, classes=True)
    assert all(tree.labels is None for tree in forest.trees)


def test_isolation_forests_on_missing_values_are_left_to_refits():
    """Rows without a value went another way before scikit-learn 1.9."""
    release = released(IsolationForest(n_estimators=2, random_state=0).fit(GAPS), (GAPS, None))
    assert any("IsolationForest on missing values is not read" in reason for reason in release.unread)


def test_bounds_on_means_and_several_weighted_targets_leave_no_sums_of_labels():
    forest = read(DecisionTreeRegressor(monotonic_cst=[1] + [0] * 9, max_depth=4), DIABETES, PROGRESSION)
    assert forest.trees[0].labels is None
    both = np.stack([KINDS, KINDS % 2], 1)
    weighted = RandomForestClassifier(2, class_weight="balanced")
    assert read(weighted, WINE, both).trees[0].labels is None
    release = released(weighted.fit(WINE, both), (WINE, both))
    assert any("there are several per row" in note for note in map(str, release.notes))


@pytest.mark.parametrize(
    "model",
    [
        GradientBoostingRegressor(n_estimators=4, subsample=0.5),
        GradientBoostingRegressor(n_estimators=4, n_iter_no_change=3),
        AdaBoostRegressor(n_estimators=4),
        BaggingRegressor(n_estimators=2, warm_start=True),
    ],
    ids=str,
)
def test_draws_that_cannot_be_repeated_leave_the_rows_open(model):
    """Thresholds still lie half-way between two values in the box of a node."""
    model.fit(DIABETES, PROGRESSION)
    if getattr(model, "warm_start", False):
        model.set_params(n_estimators=4).fit(DIABETES, PROGRESSION)
    release = released(model, (DIABETES, PROGRESSION))
    (part,) = release.parts
    grown = [tree for tree in part.fitted.forest.trees if len(tree.size) > 1]
    assert all(tree.share is None and tree.between_neighbours for tree in grown)
    assert not part.fitted.forest.ordered
    assert all(np.isinf(tree.rounding).all() == isinstance(model, AdaBoostRegressor) for tree in grown)
    assert "cannot be drawn again" in release.unread[0]
    other = DIABETES[:, ::-1].copy()
    with pytest.raises(ValueError, match="was not fitted on this data"):
        forest_of(model, other, PROGRESSION, np.ones(len(other)))


def test_a_model_of_another_version_leaves_the_rows_open():
    model = RandomForestRegressor(3).fit(DIABETES, PROGRESSION)
    del model._n_samples_bootstrap
    forest = forest_of(model, DIABETES, PROGRESSION, np.ones(len(DIABETES)))
    assert all(tree.share is None for tree in forest.trees)


READERS = [
    DecisionTreeClassifier(random_state=0),
    RandomForestClassifier(5, random_state=0),
    ExtraTreesClassifier(5, random_state=0),
    BaggingClassifier(n_estimators=5, random_state=0),
    GradientBoostingClassifier(n_estimators=5, random_state=0),
    AdaBoostClassifier(n_estimators=5, random_state=0),
    IsolationForest(n_estimators=5, random_state=0),
]


@pytest.mark.parametrize("model", READERS, ids=str)
def test_other_rows_are_refused(model):
    model.fit(WINE, NAMES)
    ones = np.ones(len(WINE))
    moved = WINE.copy()
    moved[0] = moved[-1]
    with pytest.raises(ValueError, match=r"in tree 0 node .* holds .* rows, the model says .*Pass exactly the rows"):
        forest_of(model, WINE[:, ::-1].copy(), NAMES, ones)
    with pytest.raises(ValueError, match="fitted on"):
        forest_of(model, moved, NAMES, ones)
    with pytest.raises(ValueError, match="was not fitted on this data"):
        forest_of(model, WINE[:-1], NAMES[:-1], ones[:-1])


@pytest.mark.parametrize("model", [model for model in READERS if is_classifier(model)], ids=str)
def test_other_labels_are_refused(model):
    model.fit(WINE, NAMES)
    swapped = NAMES.copy()
    swapped[[0, -1]] = swapped[[-1, 0]]
    ones = np.ones(len(WINE))
    if not isinstance(model, GradientBoostingClassifier):  # it keeps only how many rows each class has
        with pytest.raises(ValueError, match=r"the labels of node|total weight"):
            forest_of(model, WINE, swapped, ones)
    with pytest.raises(ValueError, match="a class that is not in y"):
        forest_of(model, WINE, np.where(NAMES == "barolo", "barbera", NAMES), ones)


def test_boosting_that_starts_from_other_labels_is_refused():
    y = (NAMES == "barolo").astype(int)
    model = GradientBoostingClassifier(n_estimators=2).fit(WINE, y)
    with pytest.raises(ValueError, match="not the mean of these labels"):
        forest_of(model, WINE, 1 - y, np.ones(len(WINE)))


def test_other_weights_are_refused():
    model = RandomForestClassifier(3, bootstrap=False).fit(WINE, NAMES, sample_weight=WEIGHTS + 1)
    with pytest.raises(ValueError, match="total weight of 178, the model says"):
        forest_of(model, WINE, NAMES, np.ones(len(WINE)))


def test_a_threshold_between_other_values_is_refused():
    """Every node has as many rows as before, but a neighbour of its threshold moved."""
    model = DecisionTreeClassifier(max_depth=1).fit(WINE, NAMES)
    column = model.tree_.feature[0]
    moved = WINE.copy()
    nearest = np.abs(moved[:, column] - model.tree_.threshold[0]).argmin()
    moved[nearest, column] += np.sign(moved[nearest, column] - model.tree_.threshold[0]) * WINE[:, column].std()
    with pytest.raises(ValueError, match="the threshold of node 0 is not half-way between two rows"):
        forest_of(model, moved, NAMES, np.ones(len(WINE)))


@pytest.mark.parametrize("model", [RandomForestClassifier(5), BaggingClassifier(n_estimators=5)], ids=str)
def test_another_order_is_refused_where_rows_were_drawn_by_number(model):
    order = RNG.permutation(len(WINE))
    ones = np.ones(len(WINE))
    with pytest.raises(ValueError, match=r"fit the trees of .*in the same order"):
        forest_of(model.fit(WINE, NAMES), WINE[order], NAMES[order], ones)
    whole = GradientBoostingClassifier(n_estimators=3).fit(WINE, NAMES)
    assert not forest_of(whole, WINE[order], NAMES[order], ones).ordered


def test_trees_without_counts_are_refused():
    model = DecisionTreeClassifier().fit(WINE, NAMES)
    state = model.tree_.__getstate__()
    state["nodes"]["n_node_samples"] = 0
    model.tree_.__setstate__(state)
    with pytest.raises(ValueError, match="nodes without rows"):
        forest_of(model, WINE, NAMES, np.ones(len(WINE)))


def test_other_models_are_not_read():
    for model in (BaggingRegressor(KNeighborsRegressor(), 2, max_features=2), AdaBoostRegressor(KNeighborsRegressor())):
        with pytest.raises(NotReadError):
            forest_of(model.fit(DIABETES, PROGRESSION), DIABETES, PROGRESSION, np.ones(len(DIABETES)))


class Halved(RandomForestClassifier):
    """A user's own forest."""

    def fit(self, x, y):
        return super().fit(x[::2], y[::2])


def test_other_draws_of_a_subclass_leave_it_unread():
    release = released(Halved(3).fit(WINE, NAMES), (WINE, NAMES))
    assert not release.parts
    assert "Halved was not audited: its trees do not fit the rows" in release.unread[0]


def check_games(forest, x, y):
    """In every game the bounds hold the missing row, and its label is right."""
    table = Records(torch.from_numpy(x), torch.from_numpy(y))
    fitted = Fitted("trees", table, torch.ones(len(x), dtype=torch.float64), None, forest=forest)
    bounds, labels = TreeConstraints().leave_one_out(fitted, torch.arange(len(x)))
    seen = forest.cast(x)
    holds = np.where(np.isnan(seen), bounds.maybe_missing, (bounds.low <= seen) & (seen <= bounds.high))
    assert holds.all()
    assert (bounds.low == seen)[bounds.exact].all()
    known = labels.known
    assert known.mean() > 0.6
    assert (np.abs(labels.values - y)[known] <= labels.error[known]).all()
    return bounds


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", CLASSIFIERS, ids=str)
def test_nothing_false_is_said_of_a_row(model):
    x = WINE if isinstance(model, GradientBoostingClassifier | AdaBoostClassifier) else GAPS
    check_games(read(model, x, NAMES), x, np.unique(NAMES, return_inverse=True)[1])


@pytest.mark.parametrize("model", REGRESSORS, ids=str)
def test_nothing_false_is_said_of_a_row_with_a_target(model):
    check_games(read(model, DIABETES[:150], PROGRESSION[:150]), DIABETES[:150], PROGRESSION[:150])


def test_a_forest_tells_most_values_and_an_unrelated_one_none():
    """Thresholds that were drawn at random are no half-way values: no cell is exact."""
    x, y = DIABETES[:150], PROGRESSION[:150]
    assert check_games(read(RandomForestRegressor(30, random_state=0), x, y), x, y).exact.mean() > 0.8
    assert check_games(read(ExtraTreesRegressor(30, random_state=0), x, y), x, y).exact.mean() < 0.05


FRAME = pd.DataFrame(GAPS, columns=[f"c{i}" for i in range(WINE.shape[1])])


@pytest.mark.parametrize(
    ("model", "trees"),
    [
        (RandomForestClassifier(3), 3),
        (make_pipeline(StandardScaler(), RandomForestClassifier(3)), 3),
        (BaggingClassifier(n_estimators=3), 3),
        (BaggingClassifier(RandomForestClassifier(2), 2), 4),
        (CalibratedClassifierCV(RandomForestClassifier(2), cv=3), 6),
        (CalibratedClassifierCV(DecisionTreeClassifier(class_weight="balanced"), cv=3), 3),
        (VotingClassifier([("a", RandomForestClassifier(2)), ("b", DecisionTreeClassifier())]), 3),
    ],
    ids=str,
)
@pytest.mark.parametrize("x", [WINE, FRAME], ids=["array", "gaps"])
def test_what_a_release_publishes(model, trees, x):
    release = released(model.fit(x, NAMES), (x, NAMES))
    parts = [part.fitted for part in release.parts if part.fitted.forest is not None]
    assert sum(len(part.forest.trees) for part in parts) == trees
    for part in parts:
        y = np.asarray(part.table.y)
        check_facts(part.forest, part.table.x.numpy(), y, classes=True)


def test_classes_are_balanced_by_the_rows_of_a_fold():
    boosted = AdaBoostClassifier(DecisionTreeClassifier(class_weight="balanced", max_depth=1), n_estimators=1)
    release = released(CalibratedClassifierCV(boosted, cv=2).fit(WINE, NAMES), (WINE, NAMES))
    assert sum(len(part.fitted.forest.trees) for part in release.parts if part.fitted.forest is not None) == 2


@pytest.mark.parametrize(("step", "named"), [(PCA(2), True), (StandardScaler(), False), (KBinsDiscretizer(3), False)])
def test_inputs_whose_intervals_have_no_way_back_are_named(step, named):
    model = make_pipeline(step, DecisionTreeClassifier(max_depth=2)).fit(WINE, NAMES)
    told = [why for why in released(model, (WINE, NAMES)).unread if "DecisionTreeClassifier was audited only" in why]
    assert len(told) == named


def test_whole_numbers_as_targets_are_numbers():
    y = PROGRESSION.astype(int)
    release = released(RandomForestRegressor(2).fit(DIABETES, y), (DIABETES, y))
    assert release.parts[0].labelled
    assert release.parts[0].fitted.table.y.is_floating_point()
    assert any("the order of the rows" in note for note in map(str, release.notes))


def test_steps_that_round_differently_leave_no_neighbours():
    """Some steps give other last digits when they transform than when they were fitted: no value is called exact."""
    model = RandomForestRegressor(5).fit(DIABETES, PROGRESSION)
    rounded = np.nextafter(DIABETES.astype(np.float32), np.float32(np.inf)).astype(np.float64)
    forest = forest_of(model, rounded, PROGRESSION, np.ones(len(rounded)))
    assert not any(tree.between_neighbours for tree in forest.trees)
    after = make_pipeline(PCA(4), model).fit(DIABETES, PROGRESSION)
    assert released(after, (DIABETES, PROGRESSION)).parts[-1].fitted.forest is not None


def test_sparse_rows():
    x = csr_matrix(random_array((120, 9), density=0.3, rng=RNG))
    y = np.asarray((x[:, [0]] > x[:, [1]]).toarray())[:, 0].astype(int)
    release = released(RandomForestClassifier(4).fit(x, y), (x, y))
    (part,) = release.parts
    check_facts(part.fitted.forest, part.fitted.table.x.numpy(), y, classes=True)
    assert all(tree.between_neighbours for tree in part.fitted.forest.trees)


def test_a_large_table_stays_whole(monkeypatch):
    monkeypatch.setattr(reading, "LARGE", 100)
    monkeypatch.setattr(reading, "GAMES", 30)
    model = make_pipeline(StandardScaler(), RandomForestClassifier(3)).fit(WINE, NAMES)
    release = released(model, (WINE, NAMES), games=20)
    (part,) = [part for part in release.parts if part.fitted.forest is not None]
    assert len(part.fitted.table) == len(WINE)
    assert len(release.table) < len(WINE)
    np.testing.assert_array_equal(WINE[part.rows], release.table.x)


def test_large_sparse_rows_are_named_as_unread(monkeypatch):
    monkeypatch.setattr("lostwax.adapters.sklearn.pipelines.LARGE", 100)
    x = csr_matrix(random_array((120, 9), density=0.3, rng=RNG))
    y = np.arange(120) % 2
    release = released(RandomForestClassifier(2).fit(x, y), (x, y))
    assert not release.parts
    assert re.search("RandomForestClassifier was not audited: trees on 9 sparse columns", release.unread[0])


def test_a_saved_model_is_the_same():
    model = RandomForestClassifier(3).fit(WINE, NAMES)
    again = pickle.loads(pickle.dumps(model))
    ours, theirs = (forest_of(one, WINE, NAMES, np.ones(len(WINE))) for one in (model, again))
    for left, right in zip(ours.trees, theirs.trees, strict=True):
        np.testing.assert_array_equal(left.share, right.share)


# without a row of the table


@pytest.fixture
def small_table():
    rng = np.random.default_rng(0)
    x = rng.integers(2, size=(30, 5)).astype(float)
    return x, (x[:, 0] + x[:, 1] + rng.random(30) > 1.5).astype(int)


@pytest.mark.parametrize(
    "model",
    [
        RandomForestClassifier(5, random_state=0),
        RandomForestClassifier(5, bootstrap=False, random_state=0),
        RandomForestClassifier(5, max_samples=10, random_state=0),
        DecisionTreeClassifier(random_state=0),
    ],
    ids=str,
)
def test_the_same_as_read_with_the_table(model, small_table):
    x, y = small_table
    alone, beside = forest_alone(model.fit(x, y)), forest_of(model, x, y, np.ones(len(x)))
    for ours, theirs in zip(alone.trees, beside.trees, strict=True):
        np.testing.assert_array_equal(ours.size, theirs.size)
        np.testing.assert_array_equal(ours.share, theirs.share)
        np.testing.assert_array_equal(ours.labels.totals, theirs.labels.totals)
        np.testing.assert_array_equal(ours.labels.weight, theirs.labels.weight)


def test_what_is_not_read_is_named(small_table):
    x, y = small_table
    weights = np.linspace(1, 2, len(x))
    for model, word in [
        (RandomForestRegressor(3).fit(x, y), "RandomForestRegressor"),
        (GradientBoostingClassifier(n_estimators=3).fit(x, y), "GradientBoostingClassifier"),
        (RandomForestClassifier(3, bootstrap=False).fit(x, y, sample_weight=weights), "sample_weight"),
        (RandomForestClassifier(3, class_weight="balanced").fit(x, y), "class_weight"),
        (RandomForestClassifier(3).fit(x, np.c_[y, y]), "several labels"),
    ]:
        with pytest.raises(TypeError, match=word):
            forest_alone(model)


def test_bootstraps_without_seeds_are_refused(small_table):
    model = RandomForestClassifier(5, random_state=0).fit(*small_table)
    del model._n_samples_bootstrap
    with pytest.raises(TypeError, match="seeds"):
        forest_alone(model)
