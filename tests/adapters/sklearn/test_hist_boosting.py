"""Histogram boosting of scikit-learn: bin edges, counts and the baseline tell the missing row, and nothing false."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

import lostwax as lw
from lostwax.adapters.sklearn.hist_boosting import own_encoder
from lostwax.adapters.sklearn.trees import forest_of
from lostwax.attacks.trees import TreeConstraints
from lostwax.games import Fitted, Records

Regressor, Classifier = HistGradientBoostingRegressor, HistGradientBoostingClassifier


def constrained(model, x, y, weight=None, codes=()):
    weight = np.ones(len(x)) if weight is None else weight
    x = np.asarray(x, dtype=np.float64)
    forest = forest_of(model, x, y, weight)
    numbers = y if isinstance(model, Regressor) else np.unique(y, return_inverse=True)[1]
    fitted = Fitted(
        "HGB", Records(torch.from_numpy(x), torch.from_numpy(numbers)), torch.from_numpy(weight), None, forest=forest
    )
    bounds, labels = TreeConstraints().leave_one_out(fitted, torch.arange(len(x)))
    missing = np.isnan(x)
    assert bounds.maybe_missing[missing].all()
    assert np.delete((bounds.low <= x) & (x <= bounds.high) | missing, codes, axis=1).all()
    assert (bounds.low == x)[bounds.exact].all()
    return forest, bounds, labels, numbers


def near(bounds, x, rtol=1e-12):
    """Which cells are known to rounding."""
    return (bounds.high - bounds.low <= rtol * np.nanstd(x, 0)) & ~bounds.maybe_missing


def test_diabetes():
    x, y = load_diabetes(return_X_y=True)
    forest, bounds, labels, _ = constrained(Regressor(max_iter=50).fit(x, y), x, y)
    assert (len(forest.cuts), len(forest.quantiles)) == (9, 1)
    assert near(bounds, x).mean() > 0.15
    np.testing.assert_allclose(labels.values, y, atol=1e-6)


@pytest.mark.parametrize("load", [load_breast_cancer, load_wine])
def test_classes(load):
    x, y = load(return_X_y=True)
    forest, bounds, labels, _ = constrained(Classifier(max_iter=5).fit(x, y), x, y)
    assert labels.known.all()
    np.testing.assert_array_equal(labels.values, y)
    if load is load_breast_cancer:
        assert len(forest.quantiles) == 30
        assert near(bounds, x).mean() > 0.3
    else:
        assert len(forest.cuts) == x.shape[1]
        alone = np.stack([np.isin(column, *_single(column)) for column in x.T], 1)
        assert near(bounds, x)[alone].all()  # every value that no other row has


def _single(column):
    values, counts = np.unique(column, return_counts=True)
    return (values[counts == 1],)


def test_missing_values_ties_and_weights():
    rng = np.random.default_rng(0)
    x = np.c_[rng.integers(0, 5, 300), rng.normal(size=300), rng.normal(size=300).round(1), np.full(300, 2.0)]
    x[rng.random(x.shape) < 0.2] = np.nan
    y = np.nan_to_num(x).sum(1) + rng.normal(size=300)
    weight = rng.integers(0, 4, 300).astype(float)
    for sample_weight in (None, weight):
        model = Regressor(max_iter=10, max_bins=100).fit(x, y, sample_weight=sample_weight)
        forest, _, labels, _ = constrained(model, x, y, sample_weight)
        assert len(forest.quantiles) == (sample_weight is None)
        taking_part = np.ones(300, dtype=bool) if sample_weight is None else weight > 0
        np.testing.assert_allclose(labels.values[taking_part], y[taking_part], atol=1e-6)


@pytest.mark.parametrize("loss", ["squared_error", "poisson", "gamma", "absolute_error", "quantile"])
def test_the_mean_of_the_labels_or_nothing(loss):
    x, y = load_diabetes(return_X_y=True)
    model = Regressor(loss=loss, quantile=0.3 if loss == "quantile" else None, max_iter=2).fit(x, y)
    _, _, labels, _ = constrained(model, x, y)
    assert (labels is None) == (loss in ("absolute_error", "quantile"))
    if labels is not None:
        np.testing.assert_allclose(labels.values, y, atol=1e-6)


def test_rows_held_out_for_early_stopping_are_drawn_again():
    x, y = load_breast_cancer(return_X_y=True)
    for names in (y, np.array(["no", "yes"])[y]):
        model = Classifier(max_iter=5, early_stopping=True, random_state=3).fit(x, names)
        forest, bounds, labels, _ = constrained(model, x, names)
        held_out = forest.trees[0].share == 0
        assert forest.ordered
        assert held_out.sum() == 57
        assert np.isinf(bounds.low[held_out]).all()
        np.testing.assert_array_equal(labels.known, ~held_out)


def test_class_weights_leave_counts():
    x, y = load_wine(return_X_y=True)
    forest, _, labels, _ = constrained(Classifier(max_iter=2, class_weight="balanced").fit(x, y), x, y)
    assert labels is None
    assert len(forest.cuts) == x.shape[1]


def test_other_data_is_refused():
    x, y = load_diabetes(return_X_y=True)
    model = Regressor(max_iter=2).fit(x, y)
    weight = np.ones(len(x))
    with pytest.raises(ValueError, match=r"node .* holds .* rows, the model says"):
        forest_of(model, x[np.random.default_rng(0).permutation(len(x))] * 1.1, y, weight)
    with pytest.raises(ValueError, match="it was fitted on 442 rows, these are 400"):
        forest_of(model, x[:400], y[:400], weight[:400])
    with pytest.raises(ValueError, match="not the mean of these labels"):
        forest_of(model, x, y + 1, weight)


def test_numbers_of_bins_around_the_number_of_values():
    rng = np.random.default_rng(0)
    for values, cuts, quantiles in ((19, 1, 0), (20, 0, 0), (21, 0, 0), (22, 0, 1)):
        x = rng.permutation(np.r_[np.arange(values), rng.integers(0, values, 80 - values)])[:, None] * 0.7
        y = rng.normal(size=80)
        forest, *_ = constrained(Regressor(max_iter=3, max_bins=20, min_samples_leaf=3).fit(x, y), x, y)
        assert (len(forest.cuts), len(forest.quantiles)) == (cuts, quantiles)


def towns():
    rng = np.random.default_rng(0)
    town = pd.Categorical(rng.choice(["Bath", "Ely", "York"], 200))
    frame = pd.DataFrame({"age": rng.integers(20, 90, 200), "town": town})
    frame.loc[:9, "town"] = None
    y = 0.1 * frame["age"].to_numpy() + 30.0 * (frame["town"] == "Ely").to_numpy() + rng.normal(size=200)
    return Regressor(max_iter=30, min_samples_leaf=5, categorical_features="from_dtype").fit(frame, y), frame, y


def test_audit_of_a_table_with_categories():
    model, frame, y = towns()
    audit = lw.audit(model, (frame, y))
    assert audit.grade == "exact"


def test_codes_of_categories():
    model, frame, y = towns()
    x = own_encoder(model).transform(frame)  # town, age
    _, bounds, *_ = constrained(model, x, y, codes=(0,))
    held = bounds.codes[0][~np.isnan(x[:, 0])]
    truth = x[~np.isnan(x[:, 0]), 0].astype(int)
    assert held[np.arange(len(truth)), truth].all()
    assert (held.sum(1) == 1).mean() > 0.9
