"""Boosted trees with no row known: subset sums beside brute force, and no false proof in any library."""

import itertools
import json
import time

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from catboost import CatBoostClassifier, CatBoostRegressor
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)

from lostwax.adapters.sklearn.boosting import released_sums
from lostwax.adapters.xgboost import XGBoostModel
from lostwax.attacks.whole_table import BoostedTable, NotTheseRowsError, listing
from lostwax.attacks.whole_table.guesses import values_of
from lostwax.attacks.whole_table.listing import solutions
from lostwax.attacks.whole_table.places import Boxes, Grid
from lostwax.attacks.whole_table.subsets import Knapsacks, shares
from lostwax.games.trees import Forest

ROWS = 60


def some_rows(load, seed=0, n=ROWS, columns=8):
    x, y = load(return_X_y=True)
    chosen = np.random.default_rng(seed).permutation(len(x))[:n]
    return x[chosen, :columns], y[chosen]


def rebuilt(model, x, seconds=5.0, **public):
    return BoostedTable(seconds)(released_sums(model), x.shape, ends=(x.min(0), x.max(0)), **public)


def unplaced(table, x, y):
    """Rows of the true table that no proven row can be, in the best matching: none if every proof is right."""
    low, high = (np.where(table.certain, end, far) for end, far in ((table.low, -np.inf), (table.high, np.inf)))
    single = x.astype(np.float32)
    most, least = np.maximum(x, single), np.minimum(x, single)  # thresholds are those of either precision
    fits = ((low[None] <= most[:, None]) & (least[:, None] <= high[None])).all(2)
    fits &= ~table.label_certain[None] | (y[:, None] == table.labels[None])
    rows, others = linear_sum_assignment(~fits)
    return int((~fits[rows, others]).sum())


def knapsack(random, items, most=2, digits=2):
    """Items, two sums of some of them, and how many there are at most."""
    values = np.c_[random.normal(size=items), random.uniform(0.1, 0.5, items)].round(digits)
    most = random.integers(1, most + 1, items)
    return values, most, np.array([random.integers(0, count + 1) for count in most]) @ values


def brute_force(values, most, target, slack):
    every = np.array(list(itertools.product(*[range(count + 1) for count in most])))
    return sorted(map(tuple, every[(np.abs(every @ values - target) <= slack).all(1)].tolist()))


SLACK = np.array([0.011, 0.011])


def test_listed_numbers_are_those_of_brute_force():
    random = np.random.default_rng(0)
    for _ in range(100):
        values, most, target = knapsack(random, items=int(random.integers(3, 7)), most=3)
        listed = solutions(values, most, target, SLACK)
        assert listed.complete
        assert sorted(map(tuple, listed.numbers.tolist())) == brute_force(values, most, target, SLACK)


def test_no_numbers_have_sums_that_none_can_have():
    values, most, _ = knapsack(np.random.default_rng(0), items=5)
    listed = solutions(values, most, most @ values + 1, SLACK)
    assert listed.complete
    assert not len(listed.numbers)


def test_too_many_numbers_are_listed_only_where_likely_ones_will_do(monkeypatch):
    random = np.random.default_rng(1)
    monkeypatch.setattr(listing, "MAX_HALF", 64)
    monkeypatch.setattr(listing, "LIKELY", 0.0)
    partial = 0
    for _ in range(20):
        values, most, target = knapsack(random, items=11)
        right = brute_force(values, most, target, SLACK)
        complete, likely = solutions(values, most, target, SLACK), solutions(values, most, target, SLACK, likely=True)
        assert complete is None or sorted(map(tuple, complete.numbers.tolist())) == right
        assert set(map(tuple, likely.numbers.tolist())) <= set(right)
        partial += not likely.complete
    assert partial > 5


def test_few_rows_of_many_places_are_listed_completely():
    """2^60 sets of rows; those that cost as much as six rows are few."""
    random = np.random.default_rng(2)
    values = np.c_[random.normal(size=60), random.uniform(0.1, 0.2, 60)]
    true = np.isin(np.arange(60), random.permutation(60)[:6]).astype(int)
    listed = solutions(values, np.ones(60, int), true @ values, np.array([1e-7, 1e-8]))
    assert listed.complete
    np.testing.assert_array_equal(listed.numbers, true[None])


def test_shares_of_a_tree_are_those_of_brute_force():
    """Two places, two leaves: all tables with their sums, and none else."""
    random = np.random.default_rng(1)
    for _ in range(50):
        count = random.integers(1, 5, 3)
        true = np.stack([random.binomial(count, 0.5), count], 1)
        true[:, 1] -= true[:, 0]
        values = np.tile(random.choice([0.1, 0.2, 0.3, 0.4], (3, 1)), (2, 1, 1))
        totals = np.einsum("pl,lpq->lq", true, values)
        problem = Knapsacks(count, np.ones((3, 2), bool), values, 0 * values, totals, np.full((2, 1), 1e-6))
        found = shares(problem, 1_000, np.inf)
        right = {
            first
            for first in itertools.product(*[range(number + 1) for number in count])
            if abs(np.array(first) @ values[0, :, 0] - totals[0, 0]) < 1e-6
        }
        assert found.complete
        assert {tuple(numbers[:, 0].tolist()) for numbers in found.solutions} == right


CLASSIFIERS = {
    "xgboost": lambda: xgb.XGBClassifier(n_estimators=15, max_depth=4),
    "xgboost, exact": lambda: xgb.XGBClassifier(n_estimators=15, tree_method="exact", base_score=0.3),
    "xgboost, approx": lambda: xgb.XGBClassifier(n_estimators=15, tree_method="approx", reg_lambda=2, eta=0.1),
    "xgboost, class weight": lambda: xgb.XGBClassifier(n_estimators=15, scale_pos_weight=3, colsample_bytree=0.5),
    "lightgbm": lambda: lgb.LGBMClassifier(n_estimators=15, verbose=-1, reg_lambda=1),
    "hist": lambda: HistGradientBoostingClassifier(max_iter=15, l2_regularization=1),
    "gradient boosting": lambda: GradientBoostingClassifier(n_estimators=15),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier_is_solved_with_proof(name):
    x, y = some_rows(load_breast_cancer)
    table = rebuilt(CLASSIFIERS[name]().fit(x, y), x)
    assert table.trees.consistent
    assert table.trees.proven >= 3
    assert table.certain.mean() > 0.2
    assert table.label_certain.all()
    assert unplaced(table, x, y) == 0
    np.testing.assert_array_equal(np.sort(table.labels), np.sort(y))


OTHERS = {
    "xgboost": lambda: xgb.XGBClassifier(n_estimators=4, max_depth=4),
    "lightgbm": lambda: lgb.LGBMClassifier(n_estimators=4, verbose=-1),
    "hist": lambda: HistGradientBoostingClassifier(max_iter=4),
    "gradient boosting": lambda: GradientBoostingClassifier(n_estimators=4),
}


@pytest.mark.parametrize("name", OTHERS)
def test_several_classes(name):
    x, y = some_rows(load_wine)
    table = rebuilt(OTHERS[name]().fit(x, y), x)
    assert table.trees.consistent
    assert table.trees.proven
    assert unplaced(table, x, y) == 0


REGRESSORS = {
    "xgboost": lambda: xgb.XGBRegressor(n_estimators=4, max_depth=3),
    "lightgbm": lambda: lgb.LGBMRegressor(n_estimators=4, verbose=-1),
    "hist": lambda: HistGradientBoostingRegressor(max_iter=4),
    "gradient boosting": lambda: GradientBoostingRegressor(n_estimators=4),
    "catboost": lambda: CatBoostRegressor(iterations=4, depth=3, verbose=0, allow_writing_files=False),
}


@pytest.mark.parametrize("name", REGRESSORS)
def test_counts_of_a_regressor(name):
    x, y = some_rows(load_diabetes)
    table = rebuilt(REGRESSORS[name]().fit(x, y), x, seconds=2)
    assert table.trees.proven
    assert not table.label_certain.any()
    assert unplaced(table, x, y) == 0


def test_labels_of_catboost_are_guesses():
    x, y = some_rows(load_breast_cancer)
    model = CatBoostClassifier(iterations=20, depth=3, verbose=0, allow_writing_files=False).fit(x, y)
    table = rebuilt(model, x, seconds=2)
    assert set(np.unique(table.labels)) <= {0, 1}
    assert not table.label_certain.any()
    assert unplaced(table, x, y) == 0


def test_a_file_without_second_derivatives_tells_the_same():
    """w (H + lambda) of a node is the sum of its children's: H follows from the root's."""
    x, y = some_rows(load_breast_cancer)
    model = xgb.XGBClassifier(n_estimators=15, max_depth=3).fit(x, y)
    document = json.loads(model.get_booster().save_raw("json"))
    for tree in document["learner"]["gradient_booster"]["model"]["trees"]:
        del tree["sum_hessian"]
    bare = XGBoostModel.of(json.dumps(document).encode(), "a file")
    assert np.isnan(bare.trees[0].size).all()
    table = rebuilt(bare, x)
    assert table.trees.consistent
    assert table.trees.proven >= 3
    assert unplaced(table, x, y) == 0


def test_the_learning_rate_and_lambda_are_found_in_the_file():
    x, y = some_rows(load_breast_cancer)
    model = xgb.XGBClassifier(n_estimators=15, max_depth=5, eta=0.17, reg_lambda=0.6, min_child_weight=0.3).fit(x, y)
    text = bytes(model.get_booster().save_raw("json"))
    assert XGBoostModel.of(text, "a file").sums().notes == (
        "a file: learning rate 0.17 and lambda 0.6 (found in the file).",
    )


REFUSED = {
    "subsample": lambda: xgb.XGBClassifier(n_estimators=3, subsample=0.5),
    "monotone_constraints": lambda: xgb.XGBClassifier(n_estimators=3, monotone_constraints="(1,0,0,0,0,0,0,0)"),
    "max_delta_step": lambda: xgb.XGBClassifier(n_estimators=3, max_delta_step=1),
    "objective": lambda: xgb.XGBClassifier(n_estimators=3, objective="binary:hinge"),
    "num_parallel_tree": lambda: xgb.XGBClassifier(n_estimators=3, num_parallel_tree=2),
    "bagging": lambda: lgb.LGBMClassifier(n_estimators=3, subsample=0.5, subsample_freq=1, verbose=-1),
    "is_unbalance": lambda: lgb.LGBMClassifier(n_estimators=3, is_unbalance=True, verbose=-1),
    "boosting": lambda: lgb.LGBMClassifier(n_estimators=3, boosting_type="dart", verbose=-1),
    "class_weight": lambda: HistGradientBoostingClassifier(max_iter=3, class_weight="balanced"),
    "held out": lambda: HistGradientBoostingClassifier(max_iter=3, early_stopping=True),
    "loss": lambda: GradientBoostingClassifier(n_estimators=3, loss="exponential"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_read_is_named(name):
    x, y = some_rows(load_breast_cancer)
    with pytest.raises(TypeError, match=name):
        released_sums(REFUSED[name]().fit(x, y))


def test_rows_that_were_drawn_or_weighted_are_no_proof():
    """A file does not tell that rows were drawn: its first tree is not that of all rows."""
    x, y = some_rows(load_breast_cancer)
    drawn = xgb.XGBClassifier(n_estimators=5, subsample=0.5).fit(x, y)
    weighted = xgb.XGBClassifier(n_estimators=5).fit(x, y, sample_weight=np.linspace(0.5, 2, ROWS))
    for model in (drawn, weighted):
        bare = XGBoostModel.of(bytes(model.get_booster().save_raw("json")), "a file")
        with pytest.raises(NotTheseRowsError):
            rebuilt(bare, x)


def test_rounded_weights_prove_nothing_false():
    """A tree whose sums are off has no table: what was proven before it is withdrawn."""
    x, y = some_rows(load_breast_cancer)
    model = xgb.XGBClassifier(n_estimators=5).fit(x, y)
    document = json.loads(model.get_booster().save_raw("json"))
    trees = document["learner"]["gradient_booster"]["model"]["trees"]
    trees[1]["sum_hessian"] = np.round(trees[1]["sum_hessian"], 2).tolist()
    table = rebuilt(XGBoostModel.of(json.dumps(document).encode(), "a file"), x)
    assert not table.trees.consistent
    assert not table.certain.any()
    assert not table.label_certain.any()


def test_a_setting_whose_last_digit_is_cut_off():
    """0.101719685 is written as 0.10172."""
    x, y = some_rows(load_wine)
    model = lgb.LGBMClassifier(n_estimators=2, learning_rate=0.101719685, min_child_samples=5, verbose=-1).fit(x, y)
    assert "learning_rate: 0.10172]" in model.booster_.model_to_string()
    table = rebuilt(model, x)
    assert table.trees.consistent
    assert unplaced(table, x, y) == 0


@pytest.mark.slow
def test_no_proven_cell_is_false():
    """Random models of all libraries and options."""
    random, cells = np.random.default_rng(0), 0
    for case in range(60):
        load = (load_breast_cancer, load_wine, load_diabetes)[case % 3]
        x, y = some_rows(load, seed=case, n=int(random.integers(20, 120)), columns=int(random.integers(2, 9)))
        if case % 2:  # few values
            x = np.round((x - x.mean(0)) / x.std(0))
        depth, trees, rate = int(random.integers(1, 7)), int(random.integers(1, 30)), float(random.uniform(0.05, 0.5))
        ridge, leaf = float(random.uniform(0, 3)), int(random.integers(1, 20))
        classes = load is not load_diabetes
        boost = {"n_estimators": trees, "max_depth": depth, "learning_rate": rate}
        hist = {"max_iter": trees, "max_depth": depth, "learning_rate": rate, "min_samples_leaf": leaf}
        models = [
            (xgb.XGBClassifier if classes else xgb.XGBRegressor)(
                **boost, reg_lambda=ridge, tree_method=("hist", "exact", "approx")[case % 3], colsample_bytree=0.7
            ),
            (lgb.LGBMClassifier if classes else lgb.LGBMRegressor)(
                **boost, reg_lambda=ridge, min_child_samples=leaf, verbose=-1
            ),
            (HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor)(
                **hist, l2_regularization=ridge
            ),
            (GradientBoostingClassifier if classes else GradientBoostingRegressor)(**boost, min_samples_leaf=leaf),
        ]
        for model in models:
            try:
                table = rebuilt(model.fit(x, y), x, seconds=1.0)
            except TypeError:  # no tree has a split
                continue
            assert table.trees.consistent, model
            assert unplaced(table, x, y) == 0, model
            cells += int(table.certain.sum())
    assert cells > 10_000


def within(x, guess, tolerance=0.319):
    """The share of cells within standard deviations of the row that they are best matched with."""
    near = np.abs(x[:, None] - guess) <= tolerance * x.std(0)
    rows, others = linear_sum_assignment(~near.all(2) + (~near).sum(2))
    return near[rows, others].mean()


def test_a_guess_knows_more_than_its_columns():
    """On tables that nothing was chosen on, in the mean: better than the rebuilt tables, shuffled."""
    gains = []
    for seed, make in itertools.product(range(2), (xgb.XGBClassifier, lgb.LGBMClassifier)):
        random = np.random.default_rng(seed)
        x = random.normal(size=(100, 8)) @ (np.eye(8) + 0.3 * random.normal(size=(8, 8)))
        y = (x[:, 0] + x[:, 1] * x[:, 2] + random.normal(0, 0.5, 100) > 0).astype(int)
        sums = released_sums(make(n_estimators=60, max_depth=8).fit(x, y))
        ends = x.mean(0) - 2 * x.std(0), x.mean(0) + 2 * x.std(0)
        table = BoostedTable(2.0, clock=time.process_time)(sums, x.shape, ends=ends)
        shuffled = np.stack([random.permutation(column) for column in table.x.T], 1)
        gains.append(within(x, table.x) - within(x, shuffled))
        assert unplaced(table, x, y) == 0
    assert np.mean(gains) > 0.01


def test_columns_that_no_tree_splits_have_their_public_moments():
    """Rows alone in nothing: a binary column, and whole numbers with one threshold."""
    random = np.random.default_rng(0)
    n = 400
    x = np.c_[random.normal(size=n), random.random(n) < 0.1, random.integers(0, 5, n)].astype(float)
    model = xgb.XGBClassifier(n_estimators=3, max_depth=1).fit(x, (x[:, 2] > 2).astype(int))
    sums = released_sums(model)
    grid = Grid.of(Forest(tuple(each.tree for each in sums.trees), strict=True), 3, {1: np.array([0.0, 1.0])})
    assert grid.codes.tolist() == [1, 2, 2]
    boxes = Boxes(*(np.repeat(part, n, axis=0) for part in grid.all_cells()))
    ends = x.mean(0) - 2 * x.std(0), x.mean(0) + 2 * x.std(0)
    guess = values_of(sums, grid, boxes, ends, random)
    assert np.isnan(guess[:, 0]).all()
    np.testing.assert_allclose(guess[:, 1].mean(), x[:, 1].mean(), atol=0.01)
    assert (guess[:, 2] == np.round(guess[:, 2])).all()
    np.testing.assert_allclose([guess[:, 2].mean(), guess[:, 2].std()], [x[:, 2].mean(), x[:, 2].std()], atol=0.1)
