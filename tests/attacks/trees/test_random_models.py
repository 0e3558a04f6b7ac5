"""Random tables and settings of every tree model: no exact cell, interval or label that is claimed may be false.

The fast suite draws a few models of each kind; `pytest -m slow` draws forty.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn import ensemble, tree

from lostwax.adapters.sklearn import released
from lostwax.attacks.trees import revealed_by_trees
from lostwax.games import Kept

pytestmark = pytest.mark.filterwarnings("ignore")
LABEL = 1e-2  # standard deviations
EPS = float(np.finfo(np.float32).eps)

GROWN = {
    "max_depth": (2, 5),
    "min_samples_leaf": (2, 0.1),
    "max_leaf_nodes": (3, 8),
    "max_features": (1, 0.5),
    "ccp_alpha": (0.001, 0.05),
    "min_weight_fraction_leaf": (0.05,),
    "min_impurity_decrease": (0.01,),
}
REGRESSION = {"criterion": ("friedman_mse", "absolute_error", "poisson")}
CLASSES = {"criterion": ("entropy",), "class_weight": ("balanced",)}
DRAWN = {"bootstrap": (True, False), "n_estimators": (3, 20)}
BAGGED = {"max_samples": (0.5, 5), "max_features": (0.5,), "bootstrap_features": (True,), "bootstrap": (False,)}
BOOSTED = {"subsample": (0.5,), "n_iter_no_change": (3,), "init": ("zero",), "n_estimators": (3, 20)}
HISTOGRAM = {
    "max_bins": (3, 10),
    "early_stopping": (True,),
    "min_samples_leaf": (1, 3),
    "l2_regularization": (1.0,),
    "max_features": (0.5,),
    "max_iter": (3, 10),
}
MODELS = {
    "DecisionTreeRegressor": (tree.DecisionTreeRegressor, GROWN | REGRESSION | {"splitter": ("random",)}),
    "DecisionTreeClassifier": (tree.DecisionTreeClassifier, GROWN | CLASSES | {"splitter": ("random",)}),
    "RandomForestRegressor": (ensemble.RandomForestRegressor, GROWN | REGRESSION | DRAWN | {"max_samples": (0.5,)}),
    "RandomForestClassifier": (
        ensemble.RandomForestClassifier,
        GROWN | DRAWN | {"class_weight": ("balanced", "balanced_subsample"), "bootstrap": (False,)},
    ),
    "ExtraTreesRegressor": (ensemble.ExtraTreesRegressor, GROWN | DRAWN),
    "BaggingRegressor": (ensemble.BaggingRegressor, BAGGED),
    "BaggingClassifier": (ensemble.BaggingClassifier, BAGGED),
    "IsolationForest": (ensemble.IsolationForest, {"max_samples": (5, 0.5), "n_estimators": (10,)}),
    "AdaBoostRegressor": (ensemble.AdaBoostRegressor, {"loss": ("square",), "n_estimators": (10,)}),
    "AdaBoostClassifier": (ensemble.AdaBoostClassifier, {"n_estimators": (10,)}),
    "GradientBoostingRegressor": (
        ensemble.GradientBoostingRegressor,
        GROWN | BOOSTED | {"loss": ("huber", "absolute_error")},
    ),
    "GradientBoostingClassifier": (ensemble.GradientBoostingClassifier, GROWN | BOOSTED),
    "HistGradientBoostingRegressor": (ensemble.HistGradientBoostingRegressor, HISTOGRAM | {"loss": ("poisson",)}),
    "HistGradientBoostingClassifier": (
        ensemble.HistGradientBoostingClassifier,
        HISTOGRAM | {"class_weight": ("balanced",)},
    ),
}
QUIET = {"n_jobs": 1, "n_estimators": 8}
BOOSTERS = {
    ("xgboost", "XGBRegressor"): {
        "tree_method": ("exact", "approx"),
        "subsample": (0.6,),
        "booster": ("dart",),
        "max_bin": (4, 16),
        "objective": ("reg:absoluteerror", "reg:gamma"),
        "min_child_weight": (0, 5),
        "reg_lambda": (0, 5.0),
    },
    ("xgboost", "XGBClassifier"): {"scale_pos_weight": (2.0,), "num_parallel_tree": (3,), "max_depth": (2,)},
    ("lightgbm", "LGBMRegressor"): {
        "max_bin": (4, 16),
        "min_data_in_bin": (1,),
        "boosting_type": ("dart", "goss"),
        "linear_tree": (True,),
        "extra_trees": (True,),
        "use_missing": (False,),
    },
    ("lightgbm", "LGBMClassifier"): {"min_data_in_bin": (1,), "class_weight": ("balanced",), "reg_lambda": (1.0,)},
    ("catboost", "CatBoostRegressor"): {
        "rsm": (0.5,),
        "border_count": (4, 32),
        "nan_mode": ("Max",),
        "feature_border_type": ("Median", "Uniform", "MinEntropy"),
    },
    ("catboost", "CatBoostClassifier"): {"leaf_estimation_iterations": (3,), "depth": (2,), "l2_leaf_reg": (10,)},
}
OWN = {
    "xgboost": QUIET,
    "lightgbm": QUIET | {"verbose": -1, "min_child_samples": 2},
    "catboost": {"thread_count": 1, "n_estimators": 8, "verbose": False, "allow_writing_files": False},
}


def column(random, n):
    """Numbers of one kind: ties, zeros, extreme sizes, neighbours that are nearly equal."""
    kinds = (
        random.normal(size=n),
        random.integers(-30, 30, n).astype(float),
        (random.random(n) < 0.3).astype(float),
        np.round(random.normal(size=n), 1),
        random.normal(size=n) * 10.0 ** random.choice([-30, 30]),
        1 + random.integers(0, 12, n) * EPS / random.choice([1, 2]),
        np.where(random.random(n) < 0.5, 0.0, random.lognormal(size=n) * 10.0 ** random.integers(-8, 8)),
        random.normal(size=n) * 10.0 ** random.integers(-20, 3, n),
    )
    return kinds[random.integers(len(kinds))]


def problem(seed, settings, *, classes):
    """A table with labels, weights and some settings."""
    random = np.random.default_rng(seed)
    n, d = random.integers(8, 60), random.integers(1, 5)
    X = np.stack([column(random, n) for _ in range(d)], 1)
    X[random.integers(0, n, n // 4)] = X[random.integers(0, n, n // 4)]
    X[random.random(X.shape) < random.choice([0, 0, 0.1])] = np.nan
    unit = np.nan_to_num((X - np.nanmean(X, 0)) / (np.nanstd(X, 0) + 1e-300))
    score = unit @ random.normal(size=d) + random.normal(size=n)
    y = np.digitize(score, np.quantile(score, [0.3, 0.6])) if classes else np.exp(score.clip(-5, 5))
    weight = [None, None, random.random(n) + 0.1, random.integers(0, 4, n).astype(float)][random.integers(4)]
    chosen = {name: values[random.integers(len(values))] for name, values in settings.items() if random.random() < 0.3}
    return X, y, weight, chosen


def false_claims(model, X, y, weight):
    """Exact cells, intervals, sets and labels that do not agree with the table; with and without the order of rows."""
    table = released(model, (X, y), weight)
    truth, gap = table.table.x.numpy(), np.isnan(table.table.x.numpy())
    single = np.nan_to_num(truth).astype(np.float32)
    for part in table.parts:
        if (forest := part.fitted.forest) is None:
            continue
        for read in (forest, forest.without_order()) if forest.ordered else (forest,):
            one = replace(part, fitted=replace(part.fitted, forest=read))
            found = revealed_by_trees(one, torch.arange(len(truth)))
            cells = found.candidates[0].decided()
            values, exact = cells.values, cells.kept == Kept.EXACT
            low, high, maybe_missing, _ = cells.every_bound()
            yield exact & ((np.isnan(values) != gap) | (~gap & (np.nan_to_num(values).astype(np.float32) != single)))
            held = (np.minimum(single, truth) <= high) & (np.maximum(single, truth) >= low)
            yield (cells.kept > Kept.LOST) & ~exact & ~np.where(gap, maybe_missing, held)
            if found.labels is not None:
                labels, own = found.labels.double().numpy(), table.table.y.double().numpy()
                far = LABEL * own.std() if table.table.y.is_floating_point() else 0
                yield found.labels_known.numpy() & (np.abs(labels - own) > far)


def check(kind, settings, own, seed, *, classes):
    X, y, weight, chosen = problem(seed, settings, classes=classes)
    try:
        model = kind(**{**own, **chosen, "random_state": seed})
        model.fit(X, y, sample_weight=weight)
    except Exception:  # settings or tables that the library refuses
        return
    assert not any(claims.any() for claims in false_claims(model, X, y, weight)), (seed, chosen)


SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 40))]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", MODELS)
def test_no_claim_is_false(name, seed):
    kind, settings = MODELS[name]
    check(kind, settings, {}, seed, classes=name.endswith("Classifier"))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("library", "name"), BOOSTERS)
def test_no_claim_of_boosted_trees_is_false(library, name, seed):
    kind = getattr(pytest.importorskip(library), name)
    check(kind, BOOSTERS[library, name], OWN[library], seed, classes=name.endswith("Classifier"))
