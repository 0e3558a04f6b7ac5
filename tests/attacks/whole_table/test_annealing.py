"""Annealed tables: leaves as bits beside leaves as boxes, sums that come close, bounds that hold."""

import time

import numpy as np
import pytest
import xgboost as xgb
from sklearn.ensemble import GradientBoostingClassifier

from lostwax.adapters.sklearn.boosting import released_sums
from lostwax.attacks.whole_table.annealing import annealed
from lostwax.attacks.whole_table.places import Boxes, CodedLeaves, Grid
from lostwax.games.trees import Forest


def table(n, seed, classes=2):
    """Whole numbers, and a one-hot group in columns 4 to 6."""
    rng = np.random.default_rng(seed)
    numbers = np.round(np.exp(0.5 * rng.normal(size=(n, 4))) * 30)
    x = np.concatenate([numbers, np.eye(3)[rng.integers(0, 3, n)]], 1)
    signal = numbers[:, 0] * numbers[:, 1] / 900 + x[:, 4] + 0.4 * rng.normal(size=n)
    return x, np.digitize(signal, np.quantile(signal, np.arange(1, classes) / classes))


def opened(model, x):
    sums = released_sums(model)
    forest = Forest(tuple(each.tree for each in sums.trees), strict=sums.strict)
    return sums, Grid.of(forest, x.shape[1], {}, [(4, 5, 6)])


def codes_of(grid, sums, x):
    codes = x.astype(int)
    for column in range(4):
        codes[:, column] = np.searchsorted(grid.cuts[column], x[:, column], "right" if sums.strict else "left")
    return codes


def anneal(sums, grid, boxes, labels, seconds=60.0):
    return annealed(
        sums, grid, boxes, labels, np.random.default_rng(0), time.process_time() + seconds, time.process_time
    )


MODELS = {
    "xgboost": (2, lambda: xgb.XGBClassifier(n_estimators=10, max_depth=3)),
    "leaves of two words": (
        2,
        lambda: xgb.XGBClassifier(n_estimators=3, max_depth=9, min_child_weight=0, reg_lambda=0),
    ),
    "three classes": (3, lambda: xgb.XGBClassifier(n_estimators=4, max_depth=3)),
    "counts alone": (2, lambda: GradientBoostingClassifier(n_estimators=5)),
}


@pytest.mark.parametrize("name", MODELS)
def test_settled_rows_have_the_leaves_and_margins_of_the_model(name):
    classes, make = MODELS[name]
    x, y = table(600 if "words" in name else 80, 0, classes)
    if "words" in name:
        y = np.random.default_rng(1).integers(0, 2, len(y))
    model = make().fit(x, y)
    sums, grid = opened(model, x)
    if "words" in name:
        assert max((each.tree.feature == -1).sum() for each in sums.trees) > 64
    codes = codes_of(grid, sums, x)
    likely = anneal(sums, grid, Boxes(codes, codes), y)
    if isinstance(model, xgb.XGBClassifier):
        margins = model.predict(x, output_margin=True)
    else:
        margins = model.decision_function(x)
    np.testing.assert_allclose(likely.margins, margins.reshape(likely.margins.shape), atol=1e-4)
    assert (likely.boxes.low == codes).all()
    assert (likely.boxes.high == codes).all()


def test_annealed_rows_have_nearly_as_many_in_each_leaf():
    """Fewer than half as many are elsewhere as of a table with the same columns, shuffled."""
    x, y = table(150, 2)
    model = xgb.XGBClassifier(n_estimators=20, max_depth=4).fit(x, y)
    sums, grid = opened(model, x)
    codes, cells = codes_of(grid, sums, x), grid.all_cells()
    anywhere = Boxes(*(np.repeat(part, len(x), axis=0) for part in cells))
    likely = anneal(sums, grid, anywhere, np.sort(y))
    rng = np.random.default_rng(0)
    shuffled = np.stack([rng.permutation(column) for column in codes.T], 1)
    assert (likely.boxes.low[:, 4:] == likely.boxes.high[:, 4:]).all()
    assert (likely.boxes.low[:, 4:].sum(1) == 1).all()  # one-hot

    def counts(rows, leaves):
        inside = (leaves.boxes.low <= rows[:, None]) & (rows[:, None] <= leaves.boxes.high)
        return inside.all(2).sum(0)

    off = {"annealed": 0, "shuffled": 0}
    for boosted in sums.trees:
        leaves = CodedLeaves.of(boosted, grid)
        right = counts(codes, leaves)
        off["annealed"] += np.abs(counts(likely.boxes.low, leaves) - right).sum()
        off["shuffled"] += np.abs(counts(shuffled, leaves) - right).sum()
    assert off["annealed"] < off["shuffled"] / 2


def test_rows_stay_in_their_boxes_when_time_is_up():
    x, y = table(80, 3)
    sums, grid = opened(xgb.XGBClassifier(n_estimators=10).fit(x, y), x)
    codes = codes_of(grid, sums, x)
    boxes = Boxes(np.maximum(codes - 2, 0), np.minimum(codes + 2, grid.codes - 1))
    for seconds in (0.0, 0.2):
        low, high = anneal(sums, grid, boxes, y, seconds).boxes
        assert (boxes.low <= low).all()
        assert (low <= high).all()
        assert (high <= boxes.high).all()
