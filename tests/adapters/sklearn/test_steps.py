import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_selection import SelectKBest
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
    TargetEncoder,
)

from lostwax.adapters.sklearn.steps import step_of
from lostwax.games import Cells, Kept

rng = np.random.default_rng(0)
NUMBERS = rng.normal(size=(80, 4)) * [1, 10, 0.1, 3] + [5, 0, 1, -2]
GAPS = np.where(rng.random(NUMBERS.shape) < 0.1, np.nan, NUMBERS)
TOWNS = pd.DataFrame({"town": rng.choice(["a", "b", "c", "d"], 80), "sex": rng.choice(["f", "m"], 80)})
RARE = pd.DataFrame({"town": ["a"] * 40 + ["b"] * 36 + ["c", "d", "e", "f"]})
Y = rng.integers(0, 2, 80)


def back(step, inputs, noise=0.0):
    step.fit(inputs, Y)
    outputs = step.transform(inputs)
    dense = outputs.toarray() if hasattr(outputs, "toarray") else np.asarray(outputs, dtype=float)
    seen = dense + noise * rng.uniform(-1, 1, dense.shape)
    exact = np.full(dense.shape, Kept.EXACT, dtype=np.uint8)
    return step_of(step, inputs, outputs)(Cells(seen, exact))


def same(found, inputs):
    """(n, d) are the cells those of the table?"""
    truth = np.asarray(inputs, dtype=object)
    right = np.zeros(truth.shape, dtype=bool)
    for at in np.ndindex(*truth.shape):
        ours, theirs = found.values[at], truth[at]
        if theirs is None or theirs != theirs:
            right[at] = ours is None or ours != ours
        elif isinstance(theirs, str):
            right[at] = ours == theirs
        else:
            right[at] = abs(float(ours) - float(theirs)) < 1e-6
    return right


@pytest.mark.parametrize(
    ("step", "inputs"),
    [
        (StandardScaler(), NUMBERS),
        (StandardScaler(), GAPS),
        (MinMaxScaler(), NUMBERS),
        (MaxAbsScaler(), NUMBERS),
        (RobustScaler(), NUMBERS),
        (PowerTransformer(), NUMBERS),
        (QuantileTransformer(n_quantiles=80), NUMBERS),
        (PCA(), NUMBERS),
        (PCA(whiten=True), NUMBERS),
        (TruncatedSVD(4), NUMBERS),
        (PolynomialFeatures(3), NUMBERS),
        (PolynomialFeatures(2, interaction_only=True, include_bias=False), NUMBERS),
        (FunctionTransformer(), NUMBERS),
        (FunctionTransformer(np.exp, np.log), NUMBERS),
        (SimpleImputer(add_indicator=True), GAPS),
        (SimpleImputer(), GAPS),
        (SimpleImputer(strategy="median"), NUMBERS),
        (OneHotEncoder(), TOWNS),
        (OneHotEncoder(drop="first"), TOWNS),
        (OneHotEncoder(drop="if_binary", sparse_output=False), TOWNS),
        (OrdinalEncoder(), TOWNS),
        (TargetEncoder(shuffle=False), TOWNS),
    ],
    ids=str,
)
def test_there_and_back(step, inputs):
    found = back(step, inputs)
    assert (found.kept == Kept.EXACT).all()
    assert same(found, inputs).all()


@pytest.mark.parametrize("step", [OneHotEncoder(), OneHotEncoder(drop="first"), OrdinalEncoder()], ids=str)
def test_a_category_survives_an_imprecise_number(step):
    found = back(step, TOWNS, noise=0.2)
    assert same(found, TOWNS).all()


def test_missing_categories():
    towns = TOWNS.astype(object).mask(rng.random(TOWNS.shape) < 0.1)
    for step in (OneHotEncoder(), OrdinalEncoder(), OrdinalEncoder(encoded_missing_value=-1)):
        found = back(step, towns)
        assert same(found, towns).all(), step


@pytest.mark.parametrize(
    ("step", "inputs", "kept"),
    [
        (PCA(2), NUMBERS, Kept.ESTIMATED),
        (TruncatedSVD(2), NUMBERS, Kept.ESTIMATED),
        (Normalizer(), NUMBERS, Kept.LOST),
        (KBinsDiscretizer(4, encode="ordinal"), NUMBERS, Kept.INTERVAL),
        (KBinsDiscretizer(4), NUMBERS, Kept.INTERVAL),
        (Binarizer(), NUMBERS, Kept.LOST),
        (FunctionTransformer(np.square), (NUMBERS - NUMBERS.mean(0)) * 10, Kept.LOST),
    ],
    ids=str,
)
def test_no_more_is_claimed_than_comes_back(step, inputs, kept):
    found = back(step, inputs)
    assert found.kept.max() == kept


@pytest.mark.filterwarnings("ignore:Bins whose width")
def test_bins_that_are_all_too_narrow_tell_nothing():
    found = back(KBinsDiscretizer(4, encode="ordinal"), NUMBERS * 1e-10)
    assert (found.kept == Kept.LOST).all()


def test_an_interval_holds_the_number():
    step = KBinsDiscretizer(4, encode="ordinal")
    found = back(step, NUMBERS)
    for column, edges in enumerate(step.bin_edges_):
        width = np.diff(edges).max()
        assert (np.abs(found.values[:, column].astype(float) - NUMBERS[:, column]) <= width / 2 + 1e-12).all()


def test_what_a_selection_drops_is_lost():
    step = SelectKBest(k=2)
    found = back(step, NUMBERS)
    support = step.get_support()
    assert same(found, NUMBERS)[:, support].all()
    assert (found.kept == np.where(support, Kept.EXACT, Kept.LOST)).all()


def test_rare_categories_are_a_set():
    for step in (OneHotEncoder(min_frequency=3), OneHotEncoder(max_categories=3), OrdinalEncoder(min_frequency=3)):
        found = back(step, RARE)
        frequent = RARE["town"].isin(["a", "b"]).to_numpy()
        assert same(found, RARE)[frequent].all()
        assert (found.kept[frequent] == Kept.EXACT).all()
        assert (found.kept[~frequent] == Kept.SET).all()


def test_an_imputed_mode_may_have_been_a_value():
    towns = TOWNS.astype(object).mask(rng.random(TOWNS.shape) < 0.1)
    step = SimpleImputer(strategy="most_frequent")
    step.fit(towns)
    outputs = step.transform(towns)
    exact = np.full(outputs.shape, Kept.EXACT, dtype=np.uint8)
    found = step_of(step, towns, outputs)(Cells(outputs, exact))
    mode = outputs == step.statistics_
    assert (found.kept[mode] == Kept.SET).all()
    assert (found.kept[~mode] == Kept.EXACT).all()
    assert same(found, towns)[~mode].all()


def test_neighbours_fill_gaps_that_cannot_be_told():
    found = back(KNNImputer(), GAPS)
    assert (found.kept == Kept.ESTIMATED).all()
    assert same(found, GAPS)[~np.isnan(GAPS)].all()


def test_a_lost_output_is_not_an_exact_input():
    step = StandardScaler().fit(NUMBERS)
    outputs = step.transform(NUMBERS)
    kept = np.full(outputs.shape, Kept.EXACT, dtype=np.uint8)
    kept[:, 1] = Kept.LOST
    found = step_of(step, NUMBERS, outputs)(Cells(np.where(kept, outputs, np.nan), kept))
    assert (found.kept == kept).all()
    turned = PCA().fit(NUMBERS)
    found = step_of(turned, NUMBERS, turned.transform(NUMBERS))(Cells(outputs, kept))
    assert (found.kept == Kept.LOST).all()
