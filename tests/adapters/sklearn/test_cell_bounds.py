import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
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

from lostwax.adapters.sklearn.pipelines import PipelineReader, as_numbers, used_columns
from lostwax.games import Fitted, Kept, Records
from lostwax.games.trees import Bounds, Forest
from lostwax.records.frames import coded

rng = np.random.default_rng(0)
n = 80
NUMBERS = rng.normal(size=(n, 4)) * [1, 10, 0.1, 3] + [5, 0, 1, -2]
SKEWED = np.exp(NUMBERS)
GAPS = np.where(rng.random(NUMBERS.shape) < 0.1, np.nan, NUMBERS)
TOWNS = pd.DataFrame({"town": rng.choice(["a", "b", "c", "d"], n), "sex": rng.choice(["f", "m"], n)})
MIXED = pd.DataFrame(
    {
        "age": rng.integers(18, 90, n),
        "income": np.round(np.exp(rng.normal(10, 1, n)), 2),
        "town": rng.choice(["a", "b", "c", "d"], n),
        "rooms": rng.integers(1, 6, n),
        "member": rng.random(n) < 0.5,
        "score": np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n)),
    }
)
Y = rng.normal(size=n)
MANY = ColumnTransformer(
    [
        ("numbers", StandardScaler(), ["age", "income"]),
        ("codes", OneHotEncoder(handle_unknown="ignore"), ["town", "rooms"]),
        ("order", OrdinalEncoder(), ["member"]),
        ("score", make_pipeline(SimpleImputer(strategy="median"), MinMaxScaler()), ["score"]),
    ]
)


def part_of(step, X, *, single=True):
    """The part of a forest behind a step, and what it was fitted on."""
    columns = coded(X)[1]
    if step is not None:
        step.fit(X, Y > 0)
    used = used_columns(step, X.shape[1])
    reader = PipelineReader(columns.at(used), used, torch.from_numpy(Y), torch.ones(n, dtype=torch.float64))
    place = reader.through(step, reader.start(X))
    inputs = as_numbers(place.rows)
    inputs = coded(X)[0] if inputs is None else inputs
    forest = Forest((), single=single)
    reader.publish(Fitted("forest", Records(inputs, reader.y), reader.weight, None, forest=forest), place)
    return reader.parts[-1], coded(X)[0][:, used], forest.cast(inputs.numpy())


def bounds_around(inputs, exact=0.3, unbounded=0.2, missing=0.3):
    """Random bounds that hold the inputs."""
    draws = np.random.default_rng(1)
    spread = np.nanstd(inputs, 0) + 1e-3
    low, high = (inputs + sign * spread * draws.exponential(0.5, inputs.shape) for sign in (-1, 1))
    low, high = (
        np.where(draws.random(low.shape) < unbounded, -np.inf, low),
        np.where(draws.random(low.shape) < unbounded, np.inf, high),
    )
    known = draws.random(low.shape) < exact
    gap = np.isnan(inputs)
    anything = np.where(known, inputs, low), np.where(known, inputs, high)
    low, high = (
        np.where(gap, draws.normal(size=gap.shape) + side, one) for one, side in zip(anything, (-9, 9), strict=True)
    )
    return Bounds(low, high, gap | (draws.random(gap.shape) < missing))


def assert_held(found, truth):
    """Every limit holds the truth, and exact cells are the truth, to the rounding of float32."""
    values, kept, gap = found.values, found.kept, truth.isnan()
    low, high, maybe_missing = found.every_limit()
    exact = kept == Kept.EXACT
    assert (values.isnan() == gap)[exact].all()
    off = (values - truth).abs() - 1e-6 * (truth - truth.nanmean(0)).square().nanmean(0).sqrt() - 1e-6 * truth.abs()
    assert (off[exact & ~gap] <= 0).all()
    assert ((low <= truth) & (truth <= high))[~exact & ~gap].all()
    assert maybe_missing[~exact & gap].all()
    for column, codes in found.possible.items():
        held = ~gap[:, column]
        assert codes[held, truth[held, column].long()].all()


def assert_same_for_the_trees(found, step, X, inputs):
    """Exact numbers in place of the table's are the same numbers to the trees."""
    exact, forest = (found.kept == Kept.EXACT).numpy(), Forest(())
    rebuilt = np.where(exact, found.values.numpy(), np.asarray(X, dtype=float)).astype(X.dtype)
    again = rebuilt if step is None else step.transform(rebuilt)
    off = np.abs(forest.cast(np.asarray(again)) - inputs)
    assert (np.isnan(off) | (off <= 1e-12 * np.nanstd(inputs, 0))).all()


STEPS = [
    (None, NUMBERS),
    (None, GAPS),
    (None, NUMBERS.astype(np.float32)),
    (StandardScaler(), NUMBERS),
    (StandardScaler(), NUMBERS.astype(np.float32)),
    (StandardScaler(), GAPS),
    (MinMaxScaler(), NUMBERS),
    (RobustScaler(), SKEWED),
    (PowerTransformer(), NUMBERS),
    (PowerTransformer("box-cox"), SKEWED),
    (QuantileTransformer(n_quantiles=40), NUMBERS),
    (QuantileTransformer(n_quantiles=40, output_distribution="normal"), SKEWED),
    (FunctionTransformer(np.log), SKEWED),
    (FunctionTransformer(np.negative), NUMBERS),
    (FunctionTransformer(np.square), NUMBERS),
    (PolynomialFeatures(2), NUMBERS),
    (SimpleImputer(), GAPS),
    (SimpleImputer(add_indicator=True), GAPS),
    (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), GAPS),
    (KBinsDiscretizer(5, encode="ordinal"), NUMBERS),
    (KBinsDiscretizer(5, encode="onehot-dense"), SKEWED),
    (KBinsDiscretizer(5, encode="onehot", strategy="uniform"), NUMBERS),
    (OneHotEncoder(), TOWNS),
    (OneHotEncoder(drop="first"), TOWNS),
    (OneHotEncoder(), np.round(NUMBERS)),
    (OneHotEncoder(min_frequency=10, handle_unknown="infrequent_if_exist"), np.round(NUMBERS)),
    (OrdinalEncoder(), TOWNS),
    (OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), np.round(NUMBERS)),
    (TargetEncoder(random_state=0), TOWNS),
    (PCA(), NUMBERS),
    (Normalizer(), NUMBERS),
    (FeatureUnion([("scaled", StandardScaler()), ("pca", PCA(2))]), NUMBERS),
    (MANY, MIXED),
    (make_pipeline(MANY, MinMaxScaler()), MIXED),
]


@pytest.mark.parametrize(("step", "X"), STEPS, ids=[f"{k}-{type(step).__name__}" for k, (step, _) in enumerate(STEPS)])
def test_limits_hold_the_truth_and_exact_cells_are_the_truth(step, X):
    part, truth, inputs = part_of(step, X)
    assert_held(part.within(bounds_around(np.tile(inputs, (4, 1)))), truth.repeat(4, 1))


@pytest.mark.parametrize(("step", "X"), STEPS[:13])
def test_numbers_that_trees_know_exactly_are_exact(step, X):
    part, truth, inputs = part_of(step, X)
    gap = np.isnan(inputs)
    found = part.within(Bounds(np.where(gap, np.inf, inputs), np.where(gap, -np.inf, inputs), gap))
    exact = (found.kept == Kept.EXACT).double().mean()
    assert exact > (0.6 if isinstance(step, QuantileTransformer) else 0.97)
    assert_held(found, truth)
    assert_same_for_the_trees(found, step, X, inputs)
