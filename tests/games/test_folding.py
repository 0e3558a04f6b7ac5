"""A table cut down to some of its rows gives the answers that the whole table gives."""

import numpy as np
import pytest
import scipy.sparse
import torch

from lostwax.attacks.closed_form import revealed
from lostwax.games import Cells, Extremes, Fitted, Part, Present, Records, Stationary, Stored, Sums
from lostwax.games.folding import SparseFitted, SparseRecords, folded
from lostwax.losses import SquaredError

N, D = 50, 4
rng = np.random.default_rng(0)
X = torch.from_numpy(rng.normal(size=(N, D)) * (rng.uniform(size=(N, D)) < 0.6))
Y = torch.from_numpy(rng.integers(0, 2, N))
TARGET = torch.from_numpy(rng.normal(size=N))
WEIGHT = torch.from_numpy(rng.uniform(0.5, 2.0, N))
HOLES = torch.where(torch.from_numpy(rng.uniform(size=(N, D)) < 0.2), torch.nan, X)
KEPT = torch.tensor([3, 8, 20, 33, 49])

NONE = torch.zeros(1, dtype=torch.float64)
WITH_ONES = torch.cat([X, torch.ones(N, 1, dtype=torch.float64)], 1)
THETA = torch.linalg.solve(WITH_ONES.mT @ (WEIGHT[:, None] * WITH_ONES), WITH_ONES.mT @ (WEIGHT * TARGET))
MODEL = Stationary(
    THETA[None, :-1], THETA[-1:], SquaredError(), NONE, NONE, torch.zeros_like(X[0]), torch.ones_like(X[0])
)
SUMS = Sums("means", (WEIGHT @ X)[None], WEIGHT.sum()[None], by_label=False, weighted=True)
BY_CLASS = Sums(
    "class means",
    torch.stack([X[label == Y].sum(0) for label in (0, 1)]),
    torch.bincount(Y).double(),
    by_label=True,
    weighted=False,
)
RANGE = Extremes("range", X.amin(0), X.amax(0))


def answers(fitted, games):
    """What each fact tells, cells and labels."""
    found = revealed(Part(fitted, lambda x: Cells(x.numpy(), x.isnan().numpy())), games, label_given=False)
    return [(torch.from_numpy(answer.candidates[0].values), answer.labels) for answer in found]


FACTS = {
    "model": Fitted("a model", Records(X, TARGET), WEIGHT, MODEL),
    "sums": Fitted("sums", Records(X, Y), WEIGHT, None, sums=(SUMS, BY_CLASS)),
    "extremes": Fitted("a range", Records(X, Y), WEIGHT, None, extremes=(RANGE,)),
    "extremes and holes": Fitted(
        "a range",
        Records(HOLES, Y),
        WEIGHT,
        None,
        extremes=(Extremes("range", *(torch.from_numpy(f(HOLES.numpy(), 0)) for f in (np.nanmin, np.nanmax))),),
    ),
    "stored": Fitted("rows", Records(X, Y), WEIGHT, None, stored=(Stored("rows", X[::3], Y[::3]),)),
    "present": Fitted("means", Records(HOLES, Y), WEIGHT, None, present=(Present("means", HOLES.nanmean(0)),)),
}


@pytest.mark.parametrize("fact", FACTS)
def test_other_rows_are_folded_into_the_facts(fact):
    whole, cut = FACTS[fact], folded(FACTS[fact], KEPT)
    assert len(cut.table) == len(KEPT)
    for (x, y), (ours, own) in zip(answers(whole, KEPT), answers(cut, torch.arange(len(KEPT))), strict=True):
        torch.testing.assert_close(ours, x, equal_nan=True, rtol=1e-7, atol=1e-7)
        assert (y is None) == (own is None)
        if y is not None:
            known = ~x.isnan().all(1)
            torch.testing.assert_close(own[known], y[known], rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("fact", ["model", "sums"])
def test_a_sparse_table_gives_what_a_dense_one_gives(fact):
    dense = FACTS[fact]
    table = SparseRecords(scipy.sparse.csr_matrix(X.numpy()), dense.table.y)
    cut = SparseFitted(dense.name, table, WEIGHT, dense.model, dense.sums).folded(KEPT)
    for (x, _), (ours, _) in zip(answers(dense, KEPT), answers(cut, torch.arange(len(KEPT))), strict=True):
        torch.testing.assert_close(ours, x, rtol=1e-7, atol=1e-7)
    if dense.model is not None:
        assert cut.model.known_rounding == pytest.approx(folded(dense, KEPT).model.known_rounding, rel=1e-9)


def test_a_row_that_is_kept_adds_nothing_to_what_is_folded():
    """Row i is never added and subtracted again: a NaN in it changes no equation."""
    spoilt = X.clone()
    spoilt[KEPT] = torch.nan
    for name in ("model", "sums"):
        whole = FACTS[name]
        cut = folded(Fitted("spoilt", Records(spoilt, whole.table.y), WEIGHT, whole.model, whole.sums), KEPT)
        for equation in (cut.model, *cut.sums):
            assert equation is None or equation.total().isfinite().all()
