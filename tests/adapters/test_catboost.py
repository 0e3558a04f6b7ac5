"""CatBoost: borders, weights of leaves and the first tree tell the missing row, and nothing false."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes

import lostwax as lw
from lostwax.adapters.catboost import CatBoostModel, half_way_in_float32, model_of
from lostwax.adapters.model_files import load_model
from lostwax.adapters.sklearn.boosting import is_boosted
from lostwax.attacks.trees import TreeConstraints
from lostwax.games import Fitted, Records

catboost = pytest.importorskip("catboost")
SETTINGS = {"iterations": 15, "verbose": 0, "allow_writing_files": False, "thread_count": 1}


def regressor(**settings):
    return catboost.CatBoostRegressor(**{**SETTINGS, **settings})


def classifier(**settings):
    return catboost.CatBoostClassifier(**{**SETTINGS, **settings})


def constrained(model, x, y, weight=None):
    weight = np.ones(len(x)) if weight is None else weight
    x = np.asarray(x, dtype=np.float64)
    read_model = model_of(model)
    found = read_model.read(x, y.astype(np.float64), weight)
    numbers = torch.from_numpy(y if not read_model.classifies else y.astype(np.int64))
    fitted = Fitted(
        "CatBoost", Records(torch.from_numpy(x), numbers), torch.from_numpy(weight), None, forest=found.forest
    )
    bounds, labels = TreeConstraints().leave_one_out(fitted, torch.arange(len(x)))
    seen, missing = found.forest.cast(x), np.isnan(x)
    assert bounds.maybe_missing[missing].all()
    assert ((bounds.low <= seen) & (seen <= bounds.high))[~missing].all()
    assert (bounds.low == seen)[bounds.exact].all()
    if labels is not None:
        assert (np.abs(labels.values - y) <= labels.error + 1e-12)[labels.known].all()
    return found.forest, bounds, labels


def near(bounds, x):
    """Which cells are known to the rounding of float32: neighbouring floats can have the same border."""
    return (bounds.high - bounds.low <= 1e-6 * (np.nanmax(np.abs(x), 0))) & ~bounds.maybe_missing


def table(rows=300, missing=0.0):
    rng = np.random.default_rng(0)
    x = np.c_[rng.normal(size=rows), rng.integers(0, 9, rows), rng.integers(-999, 999, rows) / 100, np.full(rows, 3.0)]
    x[:, :3][rng.random((rows, 3)) < missing] = np.nan
    return x, np.nan_to_num(x) @ [1, 2, 0.1, 0] + rng.normal(size=rows)


def test_diabetes():
    x, y = load_diabetes(return_X_y=True)
    model = regressor(iterations=100).fit(x, y)
    assert is_boosted(model)
    forest, bounds, labels = constrained(model, x, y)
    assert len(forest.cuts) == 10
    assert near(bounds, x).mean() > 0.15
    assert bounds.exact.mean() > 0.03
    np.testing.assert_allclose(labels.values, y, atol=1e-3)


def test_breast_cancer():
    x, y = load_breast_cancer(return_X_y=True)
    _, bounds, labels = constrained(classifier(iterations=50).fit(x, y), x, y)
    assert near(bounds, x).mean() > 0.02
    np.testing.assert_array_equal(labels.values, y)


@pytest.mark.parametrize(
    "settings",
    [
        {"bootstrap_type": "Bayesian"},
        {"bootstrap_type": "Bernoulli", "subsample": 0.5},
        {"boosting_type": "Ordered"},
        {"nan_mode": "Max"},
        {"feature_border_type": "Median"},
        {"feature_border_type": "MinEntropy", "border_count": 5},
        {"loss_function": "MAE"},
        {"leaf_estimation_iterations": 5},
        {"model_shrink_rate": 0.1},
        {"monotone_constraints": [1, 0, 0, 0]},
        {"boost_from_average": False},
    ],
    ids=str,
)
def test_settings(settings):
    x, y = table(missing=0.1)
    forest, bounds, _ = constrained(regressor(**settings).fit(x, y), x, y)
    assert forest.cuts
    assert near(bounds, x)[:, 0].mean() > 0.01


@pytest.mark.parametrize("policy", ["Depthwise", "Lossguide"])
def test_trees_that_are_not_symmetric_are_refused_by_name(policy):
    with pytest.raises(ValueError, match="only symmetric trees"):
        model_of(regressor(grow_policy=policy).fit(*table()))


def test_weights_are_rounded_to_float32():
    x, y = table()
    weight = np.random.default_rng(1).random(300) * 3
    forest, bounds, labels = constrained(regressor().fit(x, y, sample_weight=weight), x, y, weight)
    assert forest.trees[0].rounding.max() < 1e-9
    assert near(bounds, x)[:, 0].mean() > 0.03
    np.testing.assert_allclose(labels.values, y, atol=1e-3)


def test_a_tree_without_splits_says_nothing():
    """With few columns, rsm may leave a tree without any."""
    x, y = table()
    forest, *_ = constrained(regressor(rsm=0.5, iterations=20).fit(x[:, :1], y), x[:, :1], y)
    assert {len(tree.size) for tree in forest.trees} > {1}


def test_uniform_borders_are_not_half_way():
    x, y = table()
    forest, *_ = constrained(regressor(feature_border_type="Uniform").fit(x, y), x, y)
    assert not forest.cuts


def test_more_values_than_borders():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2_000, 2)) * 10.0 ** rng.integers(-20, 20, (2_000, 2))
    y = np.sign(x[:, 0]) + rng.normal(size=2_000)
    forest, *_ = constrained(regressor(iterations=40).fit(x, y), x, y)
    assert len(forest.cuts) == 2


def test_every_border_is_half_way_between_neighbours():
    rng = np.random.default_rng(0)
    x = np.unique((rng.normal(size=600) * 2.0 ** rng.integers(-10, 10, 600)).astype(np.float32)).astype(np.float64)
    model = regressor(border_count=60, depth=8, iterations=60).fit(x[:, None], rng.normal(size=len(x)))
    borders = np.array(model.get_borders()[0])
    assert np.isin(borders, half_way_in_float32(x[:-1], x[1:])).all()


def test_many_classes():
    x, y = table(missing=0.1)
    classes = np.digitize(y, np.quantile(y, [0.3, 0.6]))
    forest, _, labels = constrained(classifier().fit(x, classes), x, classes)
    assert labels is None
    assert forest.cuts


def test_files(tmp_path):
    x, y = table()
    model = regressor().fit(x, y)
    expected = model_of(model).read(x, y, np.ones(300)).forest
    for name, kind in (("model.json", "json"), ("model.cbm", "cbm")):
        model.save_model(str(tmp_path / name), format=kind)
        found = load_model(tmp_path / name).read(x, y, np.ones(300)).forest
        np.testing.assert_array_equal(found.trees[3].threshold, expected.trees[3].threshold)
        np.testing.assert_array_equal(found.trees[3].size, expected.trees[3].size)
    (tmp_path / "flipped.json").write_bytes((tmp_path / "model.json").read_bytes()[:-9] + b"\x89")
    with pytest.raises(ValueError, match=r"flipped\.json is damaged"):
        load_model(tmp_path / "flipped.json")
    (tmp_path / "other.json").write_text(json.dumps({"learner": {}}))
    with pytest.raises(ValueError, match=r"other\.json is not a model of CatBoost"):
        CatBoostModel.of((tmp_path / "other.json").read_bytes(), "other.json")


@pytest.mark.parametrize(
    "damage",
    [
        lambda tree: tree.pop("leaf_weights"),
        lambda tree: tree["leaf_weights"].pop(),
        lambda tree: tree["splits"].pop(),
        lambda tree: tree["splits"][0].update(float_feature_index=77),
    ],
)
def test_damaged_trees(tmp_path, damage):
    path = tmp_path / "model.json"
    regressor().fit(*table()).save_model(str(path), format="json")
    model = json.loads(path.read_text())
    damage(model["oblivious_trees"][3])
    path.write_text(json.dumps(model))
    with pytest.raises(ValueError, match=r"model\.json is not a model of CatBoost 1, or a part of it is missing"):
        load_model(path)


def test_refusals():
    x, y = table()
    ones = np.ones(300)
    model = model_of(regressor().fit(x, y))
    with pytest.raises(ValueError, match="was not fitted on this data"):
        model.read(x[::-1] * 1.1, y, ones)
    with pytest.raises(ValueError, match="at least 4 columns, the table has 2"):
        model.read(x[:, :2], y, ones)
    classes = (y > 9).astype(float)
    with pytest.raises(ValueError, match="class weights was not read"):
        model_of(classifier(class_weights=[1, 3]).fit(x, classes)).read(x, classes, ones)


def test_of_models_with_categories_numeric_borders_are_read():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(120, 2)), columns=["a", "b"])
    X["town"] = rng.choice(["Bath", "Ely", "Leeds", "York"], 120)
    y = (X["a"] + rng.normal(size=120) > 0).astype(int)
    model = classifier(cat_features=["town"], iterations=60).fit(X, y)
    read = model_of(model)
    assert 0 < len(read.trees) < read.in_file == 60
    audit = lw.audit(model, (X, y), max_minutes=1)
    assert audit.findings[0].cells.certified > 0
    assert any("trees split categories by statistics of labels" in str(each) for each in audit.unanswered)
    with pytest.raises(TypeError, match="categorical features"):
        read.sums()
