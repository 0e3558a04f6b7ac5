"""Forests read without a row: what is read is right, what cannot be read is refused by name."""

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier, RandomForestRegressor
from sklearn.tree import DecisionTreeClassifier

from lostwax.adapters.sklearn.forests_alone import forest_alone
from lostwax.adapters.sklearn.trees import forest_of


@pytest.fixture
def table():
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
def test_the_same_as_read_with_the_table(model, table):
    x, y = table
    alone, beside = forest_alone(model.fit(x, y)), forest_of(model, x, y, np.ones(len(x)))
    for ours, theirs in zip(alone.trees, beside.trees, strict=True):
        np.testing.assert_array_equal(ours.size, theirs.size)
        np.testing.assert_array_equal(ours.share, theirs.share)
        np.testing.assert_array_equal(ours.labels.totals, theirs.labels.totals)
        np.testing.assert_array_equal(ours.labels.weight, theirs.labels.weight)


def test_what_is_not_read_is_named(table):
    x, y = table
    weights = np.linspace(1, 2, len(x))
    for model, word in [
        (RandomForestRegressor(3).fit(x, y), "RandomForestRegressor"),
        (GradientBoostingClassifier(n_estimators=3).fit(x, y), "GradientBoostingClassifier"),
        (RandomForestClassifier(3, bootstrap=False).fit(x, y, sample_weight=weights), "sample weights"),
        (RandomForestClassifier(3, class_weight="balanced").fit(x, y), "class weights"),
        (RandomForestClassifier(3).fit(x, np.c_[y, y]), "several labels"),
    ]:
        with pytest.raises(TypeError, match=word):
            forest_alone(model)


def test_bootstraps_without_seeds_are_refused(table):
    model = RandomForestClassifier(5, random_state=0).fit(*table)
    del model._n_samples_bootstrap
    with pytest.raises(TypeError, match="seeds"):
        forest_alone(model)
