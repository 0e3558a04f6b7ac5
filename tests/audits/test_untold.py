"""A transformer that keeps something of rows of which nothing was read gets no all-clear."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection
from sklearn.tree import DecisionTreeClassifier

import lostwax as lw
from lostwax.adapters.sklearn import released
from lostwax.audits.models import with_untold
from lostwax.grades import Grade

DRAW = np.random.default_rng(0)
# Incomes and ages with a floor and a cap that many rows have: no smallest or largest value belongs to one row.
X = np.column_stack([DRAW.lognormal(10, 1, 160).clip(8_000, 60_000), DRAW.normal(50, 20, 160).clip(18, 90)])
Y = (X[:, 1] + DRAW.normal(0, 10, 160) > 50).astype(int)
GROUPS = DRAW.integers(3, size=(160, 2))


@pytest.mark.parametrize(
    ("transformer", "kept"),
    [
        (KBinsDiscretizer(10), "bin_edges_"),
        (QuantileTransformer(n_quantiles=20), "quantiles_"),
        (RobustScaler(), "_"),
        (SimpleImputer(strategy="median"), "statistics_"),
        (PowerTransformer(), "lambdas_"),
        (SelectKBest(k=1), "scores_"),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "fit") else value,
)
def test_what_depends_on_rows_and_was_not_read_is_named(transformer, kept):
    unread = with_untold(released(transformer.fit(X, Y), (X, Y))).unread
    assert any(kept in sentence and "was not read completely" in sentence for sentence in unread)


@pytest.mark.parametrize(
    ("transformer", "table"),
    [
        (StandardScaler(), X),  # its means tell every row
        (MinMaxScaler(), X),  # its ends are those of several rows
        (MaxAbsScaler(), X),
        (OneHotEncoder(), GROUPS),  # every category has many rows
        (PolynomialFeatures(), X),  # holds nothing
        (FunctionTransformer(np.log1p, np.expm1), X),
        (GaussianRandomProjection(2), X),  # draws at random, whatever the rows
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "fit") else "",
)
def test_what_is_read_completely_is_not_named(transformer, table):
    unread = with_untold(released(make_pipeline(transformer).fit(table, Y), (table, Y))).unread
    assert not any("was not read completely" in sentence for sentence in unread)


@pytest.mark.parametrize(
    ("settings", "rows", "named"),
    [
        ({"min_frequency": 10}, (1000, 500, 10), True),
        ({"min_frequency": 10}, (1000, 500, 11), False),
        ({"min_frequency": 10}, (1000, 500, 9), False),
        ({"min_frequency": 0.01}, (1000, 485, 15), True),
        ({"max_categories": 3}, (1000, 11, 10, 9), True),
        ({"max_categories": 3}, (1000, 500, 10, 10), False),
        ({"max_categories": 4}, (1000, 11, 10), False),
    ],
    ids=str,
)
@pytest.mark.parametrize("encoder", [OneHotEncoder, OrdinalEncoder])
def test_a_category_with_just_enough_rows_is_named(encoder, settings, rows, named):
    """Fitted without any row of a category: does another set of categories count as infrequent?"""
    settings = (
        {"handle_unknown": "use_encoded_value", "unknown_value": -1} | settings
        if encoder is OrdinalEncoder
        else settings
    )
    towns = np.repeat(np.array(list("abcd"), dtype=object)[: len(rows)], rows)[:, None]
    whole = encoder(**settings).fit(towns)

    def infrequent(fitted):
        return [] if fitted.infrequent_categories_[0] is None else fitted.infrequent_categories_[0].tolist()

    others = [np.delete(towns, int(np.flatnonzero(towns[:, 0] == town)[0]), 0) for town in np.unique(towns)]
    assert any(infrequent(encoder(**settings).fit(rest)) != infrequent(whole) for rest in others) == named
    unread = with_untold(released(whole, (towns, None))).unread
    assert [sentence for sentence in unread if "just enough rows" in sentence] == list(unread)
    assert bool(unread) == named


def test_a_transformer_that_takes_no_labels_is_fitted_again():
    class Floor(TransformerMixin, BaseEstimator):
        def fit(self, X):
            self.floor_ = np.floor(X.min(0))
            return self

        def transform(self, X):
            return X - self.floor_

        def inverse_transform(self, X):
            return X + self.floor_

    assert not any(
        "not read completely" in sentence for sentence in with_untold(released(Floor().fit(X), (X, None))).unread
    )


def test_edges_of_bins_that_are_values_of_rows_are_found():
    audit = lw.audit(KBinsDiscretizer(40).fit(X), X, games=30, max_minutes=1)
    assert audit.grade.severe
    assert lw.Policy(max_grade=Grade.NOT_FOUND).breaches(audit)


def test_a_small_leak_does_not_hide_a_larger_one():
    """The tree alone tells the target; the scores of the selection before it depend on every row."""
    model = make_pipeline(SelectKBest(k="all"), DecisionTreeClassifier(max_leaf_nodes=2, min_samples_leaf=40)).fit(X, Y)
    assert lw.audit(model[-1], (X, Y)).conclusion.line.by_target
    audit = lw.audit(model, (X, Y), games=30, max_minutes=1)
    assert audit.grade.severe
    assert not audit.conclusion.line.by_target


@pytest.mark.parametrize("scaler", [MinMaxScaler(), StandardScaler()], ids=str)
def test_other_rows_than_a_scaler_was_fitted_on_are_refused(scaler):
    """Assumed public, it passed."""
    with pytest.raises(ValueError, match=r"nothing in this \w+ was fitted on this table"):
        lw.audit(scaler.fit(DRAW.normal(size=X.shape)), X)


def test_numbers_of_pandas_with_missing_values_are_read():
    frame = pd.DataFrame(X, columns=["income", "age"]).convert_dtypes()
    frame.loc[3, "age"] = pd.NA
    assert lw.audit(SimpleImputer().fit(frame), frame).grade == Grade.EXACT


def test_rare_values_that_are_published_are_noted():
    """Two people of one village: who knows one of them and all others learns nothing, and the village is published."""
    towns = np.array([["Bath"], ["York"]] * 40 + [["Little Snoring"]] * 2, dtype=object)
    audit = lw.audit(OneHotEncoder().fit(towns), towns)
    assert any("publish 1 value that fewer than 5 rows have" in note for note in map(str, audit.notes))
    common = towns[:-2]
    assert not any("fewer than" in note for note in map(str, lw.audit(OneHotEncoder().fit(common), common).notes))
    texts = ["a cough", "a fever"] * 30 + ["fever of Zbigniew"] * 2
    audit = lw.audit(CountVectorizer().fit(texts), texts)
    assert any("the words of CountVectorizer publish 2 values" in note for note in map(str, audit.notes))
