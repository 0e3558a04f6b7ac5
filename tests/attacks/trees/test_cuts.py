"""Thresholds made of all rows' values: what they tell equals a search over all values, and holds the truth."""

import numpy as np
import pytest

from lostwax.attacks.trees.cuts import narrowed_by_cuts
from lostwax.games.trees import Bounds, Cuts, Forest, Quantiles, half_way

NUMBERS = np.arange(-20, 21) / 2  # every value that a small table can have, and many that it does not


def midpoints(values: np.ndarray, between=half_way, merged: bool = False) -> np.ndarray:
    distinct = np.unique(values[~np.isnan(values)])
    if merged:  # as LightGBM does: neighbouring floats are one value, the larger
        distinct = distinct[np.append(np.nextafter(distinct[:-1], np.inf) < distinct[1:], True)]
    return np.unique(between(distinct[:-1], distinct[1:]))


def anything(games: int, columns: int = 1) -> Bounds:
    edge = np.full((games, columns), np.inf)
    return Bounds(-edge, edge.copy(), np.ones(edge.shape, dtype=bool))


def narrowed(x: np.ndarray, cuts: Cuts | Quantiles, bounds: Bounds | None = None, single: bool = False) -> Bounds:
    field = "quantiles" if isinstance(cuts, Quantiles) else "cuts"
    forest = Forest((), single=single, **{field: (cuts,)})
    return narrowed_by_cuts(forest, x, np.arange(len(x)), bounds or anything(*x.shape))


def explains(values: np.ndarray, cuts: Cuts) -> bool:
    """Whether a table with these values has these thresholds, by the definition."""
    made = np.unique(values[~np.isnan(values)]) if cuts.values else midpoints(values)
    return set(cuts.thresholds) == set(made) if cuts.complete else set(cuts.thresholds) <= set(made)


def searched(x: np.ndarray, cuts: Cuts, bounds: Bounds) -> Bounds:
    """The same by trying every number, one game at a time, from the known rows alone."""
    low, high, missing = bounds.low.copy(), bounds.high.copy(), bounds.maybe_missing.copy()
    for row in range(len(x)):
        known = np.delete(x[:, 0], row)
        missing[row] &= explains(known, cuts)
        here = NUMBERS[(low[row] <= NUMBERS) & (high[row] >= NUMBERS)]
        possible = [number for number in here if explains(np.append(known, number), cuts)]
        low[row] = np.nan if not possible else low[row] if possible[0] == NUMBERS[0] else possible[0]
        high[row] = np.nan if not possible else high[row] if possible[-1] == NUMBERS[-1] else possible[-1]
    return Bounds(low, high, missing)


def small_table(rng: np.random.Generator) -> np.ndarray:
    rows = rng.integers(2, 12)
    x = rng.integers(-6, 7, (rows, 1)) * rng.choice([0.5, 1.0])
    x = np.where(rng.random((rows, 1)) < rng.choice([0, 0.3]), np.nan, x)
    return x if rng.random() < 0.9 else np.full((rows, 1), 3.0)


def some_bounds(rng: np.random.Generator, x: np.ndarray) -> Bounds:
    """Bounds that hold the truth, some of them none."""
    bounds = anything(len(x))
    value = np.nan_to_num(x)
    low = np.where(rng.random(x.shape) < 0.5, bounds.low, value - rng.integers(0, 6, x.shape) / 2)
    high = np.where(rng.random(x.shape) < 0.5, bounds.high, value + rng.integers(0, 6, x.shape) / 2)
    return Bounds(low, high, np.isnan(x) | (rng.random(x.shape) < 0.5))


@pytest.mark.parametrize("values", [True, False])
@pytest.mark.parametrize("complete", [True, False])
def test_equal_to_a_search_over_all_values(values, complete):
    rng = np.random.default_rng(2 * values + complete)
    for _ in range(60):
        x = small_table(rng)
        made = np.unique(x[~np.isnan(x)]) if values else midpoints(x)
        cuts = Cuts(0, made if complete else made[rng.random(len(made)) < 0.6], values, complete)
        before = some_bounds(rng, x)
        told, expected = narrowed(x, cuts, before), searched(x, cuts, before)
        possible = ~np.isnan(expected.low)  # else the value is missing
        assert (possible | np.isnan(x)).all()
        rounding = 0 if values else 1e-14  # neighbouring floats can have the same midpoint with a third
        np.testing.assert_allclose(told.low[possible], expected.low[possible], rtol=0, atol=rounding)
        np.testing.assert_allclose(told.high[possible], expected.high[possible], rtol=0, atol=rounding)
        assert (told.low[possible] <= expected.low[possible]).all()
        assert (told.high[possible] >= expected.high[possible]).all()
        np.testing.assert_array_equal(told.maybe_missing, expected.maybe_missing)


def test_a_value_that_no_other_row_has_is_exact():
    x = np.array([[1.0], [2.0], [2.0], [5.0], [9.0]])
    told = narrowed(x, Cuts(0, midpoints(x), values=False, complete=True), single=True)
    np.testing.assert_array_equal(told.exact[:, 0], [True, False, False, True, True])
    np.testing.assert_array_equal(told.low[told.exact], [1, 5, 9])
    assert (told.low[1, 0], told.high[1, 0]) == (1, 9)  # one of the known values: the thresholds do not tell which


def test_a_threshold_half_way_between_known_values_empties_the_gap():
    x = np.array([[0.0], [1.0], [4.0], [4.0]])
    before = Bounds(np.full((4, 1), 2.0), np.full((4, 1), 8.0), np.zeros((4, 1), dtype=bool))
    told = narrowed(x, Cuts(0, np.array([2.5]), values=False), before, single=True)
    assert (told.low[3, 0], told.high[3, 0]) == (4, 8)


def test_rows_that_take_no_part_are_told_nothing_about_and_explain_nothing():
    x = np.array([[1.0], [2.0], [4.0], [3.0]])
    rows = np.array([True, True, True, False])
    told = narrowed(x, Cuts(0, midpoints(x[:3]), values=False, complete=True, rows=rows), single=True)
    np.testing.assert_array_equal(told.exact[:, 0], [True, True, True, False])
    assert np.isinf(told.low[3]).all()
    assert told.maybe_missing[3]


def upper_bound(lower, upper):
    """LightGBM's rule."""
    return np.nextafter((lower + upper) / 2, np.inf)


def single_precision(lower, upper):
    """Half-way in float32."""
    half = np.float32(0.5)
    return (half * np.float32(lower) + half * np.float32(upper)).astype(np.float64)


TABLES = {
    "decimals": lambda rng: rng.integers(-999, 999, 60) / 100,
    "normal": lambda rng: rng.normal(size=60),
    "all magnitudes": lambda rng: rng.normal(size=60) * 10.0 ** rng.integers(-30, 30, 60),
    "neighbouring floats": lambda rng: 1 + rng.integers(-20, 20, 60) * np.finfo(float).eps,
    "zeros": lambda rng: np.where(rng.random(60) < 0.5, 0.0, rng.normal(size=60)),
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("between", [half_way, upper_bound, single_precision])
@pytest.mark.parametrize("complete", [True, False])
def test_rounding_makes_no_claim_false(table, between, complete):
    rng = np.random.default_rng(0)
    single = between is single_precision
    for _ in range(5):
        x = TABLES[table](rng)[:, None]
        x = x.astype(np.float32).astype(np.float64) if single else x
        made = midpoints(x, between, merged=between is upper_bound)
        thresholds = made if complete else made[rng.random(len(made)) < 0.5]
        told = narrowed(x, Cuts(0, thresholds, False, complete and between is not upper_bound, between), single=single)
        assert (told.low <= x).all()
        assert (x <= told.high).all()
        if complete and table in ("decimals", "normal"):
            alone = np.isin(x, [value for value in np.unique(x) if (x == value).sum() == 1])
            np.testing.assert_allclose(told.low[alone], x[alone], rtol=1e-12 if not single else 1e-5)
            np.testing.assert_allclose(told.high[alone], x[alone], rtol=1e-12 if not single else 1e-5)


METHODS = ("averaged_inverted_cdf", "midpoint")


def quantiles(x: np.ndarray, bins: int, method="averaged_inverted_cdf") -> Quantiles:
    percentages = np.linspace(0, 100, bins + 1)[1:-1]
    present = x[~np.isnan(x)]
    found = np.unique(np.percentile(present, percentages, method=method))
    return Quantiles(0, found, percentages, method=method)


def same(one: Quantiles, other: Quantiles) -> bool:
    return np.array_equal(one.thresholds, other.thresholds)


@pytest.mark.parametrize("method", METHODS)
def test_quantiles_equal_a_search_over_all_values(method):
    rng, exact, tight = np.random.default_rng(0), 0, 0
    for _ in range(30):
        bins, rows = rng.integers(2, 8), rng.integers(9, 30)
        x = rng.choice(NUMBERS[2:-2], (rows, 1), replace=bool(rng.random() < 0.5))
        x = np.where(rng.random((rows, 1)) < rng.choice([0, 0.2]), np.nan, x)
        cuts = quantiles(x, bins, method)
        told = narrowed(x, cuts)
        for row in range(rows):
            known = np.delete(x, row)
            assert told.maybe_missing[row] == same(quantiles(known, bins, method), cuts)
            possible = [n for n in NUMBERS if same(quantiles(np.append(known, n), bins, method), cuts)]
            if not possible:
                continue
            assert told.low[row] <= possible[0]
            assert possible[-1] <= told.high[row]
            if len(cuts.thresholds) == bins - 1:  # no merged quantiles: nothing else is possible
                low = -np.inf if possible[0] == NUMBERS[0] else possible[0]
                high = np.inf if possible[-1] == NUMBERS[-1] else possible[-1]
                np.testing.assert_allclose((told.low[row, 0], told.high[row, 0]), (low, high), rtol=0, atol=0.5)
                tight += 1
        exact += (told.exact & (told.low == x)).sum()
        assert (told.low[told.exact] == x[told.exact]).all()
    assert exact > (20 if method == "averaged_inverted_cdf" else 10)  # others are half-way between two values
    assert tight > 100


@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e200])
def test_quantiles_hold_the_truth_on_floats(scale):
    x = np.random.default_rng(0).normal(size=(400, 1)) * scale
    at_values, half_ways = narrowed(x, quantiles(x, 39)), narrowed(x, quantiles(x, 40))
    for told in (at_values, half_ways):
        assert (told.low <= x).all()
        assert (x <= told.high).all()
        assert (np.isfinite(told.low) | np.isfinite(told.high)).all()
        assert not told.maybe_missing.all()
    assert 36 <= at_values.exact.sum() <= 40
    places = np.percentile(np.arange(400), quantiles(x, 40).percentages, method="averaged_inverted_cdf")
    to_rounding = half_ways.high - half_ways.low <= 1e-12 * scale
    assert to_rounding.sum() == (1 + (places % 1 != 0)).sum()  # one value, or the two beside a half-way quantile
