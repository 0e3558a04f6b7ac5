"""Whole tables beside the true one: the matching, and what blind tables reach."""

from itertools import permutations

import numpy as np
import pytest
import torch

from lostwax.audits import matched
from lostwax.audits.matched import Claims, MatchedRows, WholeTableGames
from lostwax.audits.scoring import Scoring
from lostwax.games import Columns, Records


def games_of(x, y=None, *, numbers=False, ordered=False, blocks=None, seed=0):
    x, d = torch.from_numpy(np.asarray(x, dtype=float)), np.shape(x)[1]
    labels = torch.zeros(len(x), dtype=torch.long) if y is None else torch.from_numpy(y)
    return WholeTableGames(
        Records(x, labels),
        Scoring.of_cells(x, Columns((), ((),) * d), 0.05).by_cell(),
        blind=x.mean(0),
        blocks=[(column,) for column in range(d)] if blocks is None else blocks,
        numbers=np.full(d, numbers),
        ordered=ordered,
        seed=seed,
    )


def rows_of(games, x):
    x = np.asarray(x, dtype=float)
    order = games.order(x)
    return MatchedRows(x[order], games.table.y.numpy(), np.ones(x.shape, dtype=bool))


def binary(seed, n=40, d=6):
    rng = np.random.default_rng(seed)
    return (rng.random((n, d)) < rng.uniform(0.2, 0.6, d)).astype(float)


def test_the_matching_has_the_least_sum_of_errors():
    rng = np.random.default_rng(0)
    x, guess = rng.normal(size=(6, 3)), rng.normal(size=(6, 3))
    games = games_of(x)
    scores = np.stack(
        [games.scoring.scores(torch.from_numpy(guess), row.expand(6, 3)).headline for row in games.table.x]
    )
    least = min(sum(scores[row, place] for row, place in enumerate(order)) for order in permutations(range(6)))
    assert scores[np.arange(6), games.order(guess)].sum() == pytest.approx(least)


def test_equal_rows_are_paired_whatever_the_rest():
    x = binary(0)
    guess = np.concatenate([x[::-1][:30], 1 - x[:10]])  # thirty true rows, in another order
    games = games_of(x)
    paired = guess[games.order(guess)]
    assert (paired == x).all(1).sum() >= 30


def test_an_order_that_is_known_is_kept():
    x = binary(1)
    games = games_of(x, ordered=True)
    np.testing.assert_array_equal(games.order(x[::-1].copy()), np.arange(len(x)))


@pytest.mark.parametrize("ordered", [False, True])
def test_a_blind_table_seldom_looks_like_a_leak(ordered):
    """A guess whose columns were shuffled is one of the blind tables: as likely to be the best of them as any."""
    chances = []
    for seed in range(10):
        games = games_of(binary(seed), ordered=ordered, seed=seed)
        rng = np.random.default_rng(100 + seed)
        guess = np.stack([rng.permutation(column) for column in games.table.x.numpy().T], 1)
        chances.append(games.luck(rows_of(games, guess)).blind_tables)
    chances = np.array(chances)  # (tables, 3)
    assert (chances > 0.01 / 3).all()
    assert 0.3 < chances[:, 2].mean() < 0.8


def test_the_true_table_is_better_than_all_blind_ones():
    games = games_of(binary(0))
    found = games.luck(rows_of(games, games.table.x.numpy()[::-1].copy()))
    assert found.blind_tables == (1 / 400, 1 / 400, 1 / 400)
    assert (found.games, found.rebuilt, found.farther) == (40, 40, 1)
    assert found.rebuilt_by_luck < 0.9


def test_one_column_of_zeros_and_ones_is_its_frequency():
    """No row is in it: every blind table has the same."""
    games = games_of(binary(0, d=1))
    assert games.luck(rows_of(games, games.table.x.numpy())).blind_tables == (1, 1, 1)


def test_the_values_of_one_column_of_numbers_are_a_leak():
    x = np.random.default_rng(0).lognormal(size=(40, 1))
    games = games_of(x, numbers=True)
    assert games.luck(rows_of(games, x[::-1].copy())).blind_tables[0] == 1 / 400


def test_what_is_not_known_stays_as_it_is_in_blind_tables():
    """A column of blind guesses, better than random values: no table gains by it."""
    x = binary(3)
    games = games_of(x)
    guess = np.tile((x.mean(0) > 0.5).astype(float), (len(x), 1))
    found = games.luck(MatchedRows(guess, games.table.y.numpy(), np.zeros(x.shape, dtype=bool)))
    assert found.blind_tables == (1, 1, 1)


def test_one_hot_columns_are_shuffled_together():
    x = np.eye(3)[np.random.default_rng(0).integers(3, size=30)]
    games = games_of(x, blocks=[(0, 1, 2)])
    assert games.luck(rows_of(games, x)).blind_tables == (1, 1, 1)  # each table has the same rows


def test_chance_knows_the_classes():
    """Columns that depend on the class alone tell no row beyond it."""
    y = np.repeat([0, 1], 20)
    x = np.stack([y, 1 - y, y], 1)
    games = games_of(x, y)
    assert games.luck(rows_of(games, x)).blind_tables == (1, 1, 1)


def test_many_rows_are_compared_in_part(monkeypatch):
    monkeypatch.setattr(matched, "MOST_COMPARED", 20)
    games = games_of(binary(0))
    found = games.luck(rows_of(games, games.table.x.numpy()))
    assert found.games == found.rebuilt == 20
    assert found.blind_tables[2] == 1 / 400


def test_claims_are_usual_if_blind_tables_have_such_a_row():
    x = np.zeros((40, 4))
    x[0], x[1:11, 0], x[11:21, 1] = 1, 1, 1  # one row of four ones
    certain = np.zeros(x.shape, dtype=bool)
    certain[0], certain[1, 0], certain[2, :2] = True, True, True
    claims = Claims(x, x, certain, np.zeros(40, dtype=np.int64), np.zeros(40, dtype=bool))
    usual = games_of(x).usual(claims)
    assert usual[0] < 0.05
    assert (usual[1:] > 0.9).all()
    other = claims._replace(labels=np.ones(40, dtype=np.int64), label_certain=np.ones(40, dtype=bool))
    assert (games_of(x).usual(other) == 0).all()  # a class that no row has
