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

from lostwax.adapters.sklearn.pipelines import PipelineReader, as_numbers
from lostwax.adapters.sklearn.reading import used_columns
from lostwax.games import Fitted, Kept, Records
from lostwax.games.trees import Bounds, Forest
from lostwax.records.tables import coded

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
    values, kept, gap = torch.from_numpy(found.values), torch.from_numpy(found.kept), truth.isnan()
    low, high, maybe_missing = (torch.from_numpy(part) for part in found.every_bound()[:3])
    exact = kept == Kept.EXACT
    assert (values.isnan() == gap)[exact].all()
    off = (values - truth).abs() - 1e-6 * (truth - truth.nanmean(0)).square().nanmean(0).sqrt() - 1e-6 * truth.abs()
    assert (off[exact & ~gap] <= 0).all()
    assert ((low <= truth) & (truth <= high))[~exact & ~gap].all()
    assert maybe_missing[~exact & gap].all()
    for column, codes in found.every_bound().codes.items():
        held = ~gap[:, column]
        assert torch.from_numpy(codes)[held, truth[held, column].long()].all()


def assert_same_for_the_trees(found, step, X, inputs):
    """Exact numbers in place of the table's are the same numbers to the trees."""
    exact, forest = found.kept == Kept.EXACT, Forest(())
    rebuilt = np.where(exact, found.values, np.asarray(X, dtype=float)).astype(X.dtype)
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
    (FunctionTransformer(lambda x: np.log(np.where(x > 0, x, np.nan))), NUMBERS),
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


@pytest.mark.parametrize("scaler", [None, StandardScaler()])
def test_products_with_a_rare_value_are_not_taken_for_inputs_of_one_column(scaler):
    """A flag of 2 in 80 rows: nearly everywhere, its products with other columns are those of the flag alone."""
    for seed in range(8):
        draws = np.random.default_rng(seed)
        flag = np.zeros(n)
        flag[draws.permutation(n)[:2]] = draws.choice([1.0, 4.5])
        X = np.c_[NUMBERS[:, :2], flag]
        part, truth, inputs = part_of(make_pipeline(scaler, PolynomialFeatures(2)), X)
        assert_held(part.within(bounds_around(np.tile(inputs, (4, 1)))), truth.repeat(4, 1))


@pytest.mark.parametrize(("step", "X"), STEPS[:13])
def test_numbers_that_trees_know_exactly_are_exact(step, X):
    part, truth, inputs = part_of(step, X)
    gap = np.isnan(inputs)
    found = part.within(Bounds(np.where(gap, np.inf, inputs), np.where(gap, -np.inf, inputs), gap))
    exact = (found.kept == Kept.EXACT).mean()
    assert exact > (0.6 if isinstance(step, QuantileTransformer) else 0.97)
    assert_held(found, truth)
    assert_same_for_the_trees(found, step, X, inputs)


def everything(inputs, g=1):
    """Bounds that say nothing, of g rows."""
    anything = np.full((g, inputs.shape[1]), np.inf)
    return Bounds(-anything, anything, np.zeros(anything.shape, dtype=bool))


def test_a_category_is_exact_if_its_column_is_one_or_all_others_are_zero():
    part, _, inputs = part_of(OneHotEncoder(), TOWNS[["town"]])
    bounds = everything(inputs, 3)
    bounds.low[0, 2] = 0.5  # c
    bounds.high[1, [0, 1, 3]] = 0.5  # not a, b or d
    bounds.high[2, [0, 1]] = 0.5  # not a, not b
    found = part.within(bounds)
    names = coded(TOWNS[["town"]])[1].categories[0]
    c, d = names.index("c"), names.index("d")
    assert found.kept[:, 0].tolist() == [Kept.EXACT, Kept.EXACT, Kept.SET]
    assert found.values[:2, 0].tolist() == [c, c]
    assert np.flatnonzero(found.bounds.codes[0][2]).tolist() == sorted([c, d])


def test_codes_of_an_ordinal_encoder_that_an_interval_holds():
    part, _, inputs = part_of(OrdinalEncoder(), TOWNS[["town"]])
    bounds = everything(inputs, 2)
    bounds.low[0], bounds.high[0] = 0.5, 1.5
    bounds.low[1], bounds.high[1] = 1.5, np.inf
    found = part.within(bounds)
    names = coded(TOWNS[["town"]])[1].categories[0]
    assert found.kept[:, 0].tolist() == [Kept.EXACT, Kept.SET]
    assert names[int(found.values[0, 0])] == "b"
    assert {names[code] for code in np.flatnonzero(found.bounds.codes[0][1])} == {"c", "d"}


def test_whole_numbers_that_an_interval_holds():
    part, _, inputs = part_of(StandardScaler(), MIXED[["age"]])
    mean, deviation = MIXED["age"].mean(), MIXED["age"].std(ddof=0)
    bounds = everything(inputs, 2)
    bounds.low[:, 0] = (33.2 - mean) / deviation
    bounds.high[:, 0] = (np.array([34.9, 36.5]) - mean) / deviation
    found = part.within(bounds)
    assert found.kept[:, 0].tolist() == [Kept.EXACT, Kept.INTERVAL]
    assert found.values[0, 0] == 34
    assert (found.bounds.low[1, 0], found.bounds.high[1, 0]) == (34, 36)


def test_a_bin_is_an_interval_and_bins_side_by_side_are_one():
    step = KBinsDiscretizer(5, encode="ordinal")
    part, _, inputs = part_of(step, NUMBERS[:, :1])
    edges = step.bin_edges_[0]
    bounds = everything(inputs, 2)
    bounds.low[:, 0], bounds.high[:, 0] = [2, 0.5], [2, 2.5]
    found = part.within(bounds)
    assert (found.kept == Kept.INTERVAL).all()
    np.testing.assert_allclose(found.bounds.low[:, 0], [edges[2], edges[1]])
    np.testing.assert_allclose(found.bounds.high[:, 0], [edges[3], edges[3]])


def test_an_interval_with_the_fill_value_may_be_a_missing_cell():
    step = SimpleImputer()
    part, _, inputs = part_of(step, GAPS)
    fill = step.statistics_[0]
    bounds = everything(inputs, 3)
    bounds.low[:, 0], bounds.high[:, 0] = [fill - 1, fill + 1, fill], [fill + 1, fill + 2, fill]
    bounds = bounds._replace(low=Forest(()).cast(bounds.low), high=Forest(()).cast(bounds.high))
    found = part.within(bounds)
    assert found.kept[:, 0].tolist() == [Kept.INTERVAL, Kept.INTERVAL, Kept.SET]
    assert found.bounds.maybe_missing[:, 0].tolist() == [True, False, True]


def test_columns_that_are_mixed_are_lost_unless_all_inputs_are_known():
    part, _, inputs = part_of(PCA(), NUMBERS)
    known = np.arange(n) < 40
    low, high = (np.where(known[:, None] | (np.arange(4) > 0), inputs, inputs + side) for side in (-1, 1))
    found = part.within(Bounds(low, high, np.zeros(low.shape, dtype=bool)))
    assert (found.kept[:40] == Kept.EXACT).all()
    assert (found.kept[40:] == Kept.LOST).all()


def test_codes_that_trees_split():
    table = pd.DataFrame({"town": TOWNS["town"].astype("category"), "size": NUMBERS[:, 0]})
    part, _, inputs = part_of(None, table)
    codes = np.zeros((2, 4), dtype=bool)
    codes[0, 1], codes[1, [0, 3]] = True, True
    found = part.within(everything(inputs, 2)._replace(codes={0: codes}))
    assert found.kept[:, 0].tolist() == [Kept.EXACT, Kept.SET]
    assert found.values[0, 0] == 1
    assert found.bounds.codes[0][1].tolist() == codes[1].tolist()


def test_numbers_are_compared_in_double_precision_where_the_trees_do():
    part, truth, inputs = part_of(None, NUMBERS, single=False)
    found = part.within(Bounds(inputs, inputs, np.zeros(inputs.shape, dtype=bool)))
    assert (found.kept == Kept.EXACT).all()
    np.testing.assert_array_equal(found.values, truth)


def test_a_number_that_a_step_passes_on_has_no_rounding():
    """Else a tiny one in a column of large ones would be rounded, and still said to be exact."""
    X = np.c_[np.where(np.arange(n) % 2, 4.1946533362028e-12, 1e9) + np.arange(n), NUMBERS[:, 0]]
    X[1, 0] = 4.1946533362028e-12
    step = ColumnTransformer([("same", "passthrough", [0]), ("scaled", StandardScaler(), [1])])
    part, truth, inputs = part_of(step, X, single=False)
    found = part.within(Bounds(inputs, inputs, np.zeros(inputs.shape, dtype=bool)))
    assert (found.values[:, 0] == truth[:, 0].numpy()).all()
    assert (found.kept == Kept.EXACT).all()


def test_decimals_come_back_from_single_precision():
    tenths = np.round(NUMBERS, 2)
    part, truth, inputs = part_of(make_pipeline(StandardScaler()), tenths)
    found = part.within(Bounds(inputs, inputs, np.zeros(inputs.shape, dtype=bool)))
    assert (found.values == truth.numpy()).mean() > 0.99
