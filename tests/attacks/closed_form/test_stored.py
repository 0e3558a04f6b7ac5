"""Rows that a release stores: which one is left when the known rows are taken away?"""

from collections import Counter

import numpy as np
import pytest
import torch
from sklearn.datasets import load_wine
from sklearn.svm import SVC

from lostwax.attacks.closed_form import ClosedForm
from lostwax.attacks.closed_form.stored import held, row_keys
from lostwax.games import Fitted, Records, Stored


def by_definition(stored, table, games):
    """The multiset difference of stored and known rows, game by game."""

    def rows(x, y):
        cells = x if y is None else torch.cat([x, y[:, None].double()], 1)
        return [tuple("missing" if cell != cell else cell + 0.0 for cell in row) for row in cells.tolist()]

    own, everything = rows(stored.x, stored.y), rows(table.x, None if stored.y is None else table.y)
    answers = []
    for game in games.tolist():
        left = Counter(own) - Counter(everything[:game] + everything[game + 1 :])
        answers.append(next(iter(left)) if len(left) == 1 else None)
    return answers


def table(n=40, d=3, values=None, seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, d)) if values is None else random.choice(values, (n, d))
    return Records(torch.from_numpy(x), torch.from_numpy(random.integers(0, 2, n)))


def test_equal_rows_have_equal_keys():
    x = torch.tensor([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0], [torch.nan, 1.0], [torch.nan, 1.0], [-torch.nan, 1.0]])
    keys = row_keys(x.double())
    assert keys[0] == keys[1]
    assert keys[3] == keys[4] == keys[5]
    assert len(set(keys.tolist())) == 3
    assert (row_keys(x) == keys).all()  # whatever the dtype


def test_different_rows_have_different_keys():
    bits = torch.arange(2**16)[:, None] >> torch.arange(16) & 1
    for rows in (bits.double(), torch.eye(500).double(), torch.arange(50_000.0)[:, None], torch.rand(50_000, 2)):
        assert len(np.unique(row_keys(rows))) == len(rows)


@pytest.mark.parametrize(
    "values", [None, (0.0, 1.0), (0.0, -0.0, np.nan, 2.0)], ids=["continuous", "binary", "missing"]
)
@pytest.mark.parametrize("labels", [False, True])
@pytest.mark.parametrize("more", [0, 1, 2])
def test_held_is_the_multiset_difference(values, labels, more):
    rows = table(values=values)
    random = np.random.default_rng(1)
    for share in (0.2, 0.9, 1.0):
        chosen = torch.from_numpy(random.permutation(len(rows))[: int(share * len(rows))])
        own = rows[chosen]
        x = torch.cat([own.x, 100 + torch.rand(more, 3, dtype=torch.float64)])  # rows that are in no table
        y = torch.cat([own.y, torch.zeros(more, dtype=torch.long)])
        stored, games = Stored("", x, y if labels else None), torch.arange(len(rows))
        found, label = held(stored, rows, games)
        for game, answer in enumerate(by_definition(stored, rows, games)):
            expected = (
                [np.nan] * 3 if answer is None else [np.nan if cell == "missing" else cell for cell in answer[:3]]
            )
            np.testing.assert_array_equal(found[game].numpy(), expected)
            if labels and answer is not None:
                assert label[game] == answer[3]
        assert labels or label is None


def test_all_rows_of_a_table_without_equal_rows_are_held():
    rows = table(n=200)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(0))
    found, label = held(Stored("", rows.x[order], rows.y[order]), rows, torch.arange(200))
    assert torch.equal(found, rows.x)
    assert torch.equal(label, rows.y)


def test_a_copy_that_is_not_stored_hides_the_row():
    rows = Records(torch.tensor([[1.0], [1.0], [2.0]]).double(), torch.tensor([0, 0, 1]))
    once = held(Stored("", torch.tensor([[1.0], [2.0]]).double()), rows, torch.arange(3))[0]
    assert once.isnan().flatten().tolist() == [True, True, False]
    twice = held(Stored("", torch.tensor([[1.0], [1.0], [2.0]]).double()), rows, torch.arange(3))[0]
    assert torch.equal(twice, rows.x)


def test_rows_are_compared_in_the_dtype_they_are_stored_in():
    rows = table()
    found, _ = held(Stored("", rows.x.float()), rows, torch.arange(len(rows)))
    assert torch.equal(found, rows.x.float().double())


def test_the_secret_row_is_never_read():
    """Games differ only by what is stored: another secret that is not stored changes nothing."""
    rows = table()
    stored = Stored("", rows.x[:10])
    x = rows.x.clone()
    x[20] = 7.0
    before, after = (held(stored, Records(cells, rows.y), torch.tensor([20]))[0] for cells in (rows.x, x))
    assert before.isnan().all()
    assert after.isnan().all()


def test_many_rows_are_quick():
    rows = table(n=200_000, d=20)
    found, label = held(Stored("", rows.x[:100_000], rows.y[:100_000]), rows, torch.arange(len(rows)))
    assert torch.equal(found[:100_000], rows.x[:100_000])
    assert torch.equal(label[:100_000], rows.y[:100_000])
    assert found[100_000:].isnan().all()


def test_support_vectors_are_the_answer_and_other_rows_a_blind_guess():
    X, y = load_wine(return_X_y=True)
    model = SVC().fit(X, y)
    rows = Records(torch.from_numpy(X), torch.from_numpy(y))
    stored = Stored("SVC's support_vectors_", torch.from_numpy(model.support_vectors_))
    fitted = Fitted("SVC", rows, torch.ones(len(y), dtype=torch.float64), None, stored=(stored,))
    guess = ClosedForm().leave_one_out(fitted, torch.arange(len(y)))
    right = (guess.records.x[:, 0] == rows.x).all(1)
    assert sorted(right.nonzero().flatten().tolist()) == sorted(model.support_.tolist())
    assert guess.confidence[right].isinf().all()
    assert (guess.confidence[~right] == 0).all()
    others = (rows.x.sum(0) - rows.x) / (len(y) - 1)
    torch.testing.assert_close(guess.records.x[~right, 0], others[~right])

    labelled = Fitted("SVC", rows, fitted.weight, None, stored=(Stored("", stored.x, rows.y[model.support_]),))
    guess = ClosedForm().leave_one_out(labelled, torch.arange(len(y)))
    assert torch.equal(guess.records.y[right, 0], rows.y[right])
