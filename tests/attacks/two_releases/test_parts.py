"""Differences of two releases, against the rows themselves."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lostwax.attacks.two_releases.parts import Changes, PlaceMap, _by_decimals, _of_present, _solved, recoded
from lostwax.games import Cells, Columns, Kept, Present

TABLES = st.lists(st.integers(0, 5), max_size=12)


@given(TABLES, TABLES)
@settings(max_examples=200, deadline=None)
def test_changes_are_the_difference_of_multisets(first, second):
    changes = Changes.of(first, second)
    assert Counter(first[row] for row in changes.removed) == Counter(first) - Counter(second)
    assert Counter(second[row] for row in changes.added) == Counter(second) - Counter(first)
    assert [first[row] for row in changes.shared[0]] == [second[row] for row in changes.shared[1]]
    assert sorted([*changes.removed.tolist(), *changes.shared[0].tolist()]) == list(range(len(first)))
    assert torch.equal(changes.reversed().removed, changes.added)


def rows(n=30, d=4, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(3.0, 2.0, (n, d)))


def test_a_place_map_takes_sums_and_squares_from_one_encoding_to_the_other():
    x = rows()
    slope, offset = torch.tensor([1.0, 2.5, -0.5, 1.0]).double(), torch.tensor([0.0, 1.0, 7.0, -2.0]).double()
    there = slope * x + offset
    between = PlaceMap.of(x[:-1], there[:-1])  # the last row is in one table only
    torch.testing.assert_close(between.rows(there[-1:]), x[-1:], rtol=1e-12, atol=1e-12)
    counts = torch.tensor([30.0]).double()
    sums, squares = there.sum(0, keepdim=True), there.square().sum(0, keepdim=True)
    torch.testing.assert_close(between.totals(sums, counts), x.sum(0, keepdim=True), rtol=1e-12, atol=1e-10)
    torch.testing.assert_close(
        between.squares(squares, sums, counts), x.square().sum(0, keepdim=True), rtol=1e-11, atol=1e-9
    )
    assert between.exact.tolist() == [True, False, False, False]


def test_a_column_that_only_the_first_has_is_what_common_rows_have_in_it():
    x = torch.tensor([[1.0, 0.0, 5.0], [2.0, 0.0, 6.0], [3.0, 0.0, 8.0]]).double()
    between = PlaceMap.of(x, x[:, [0, 2]])
    assert between.column.tolist() == [0, -1, 1]
    assert between.usable.all()
    moved = between.totals(x[:, [0, 2]].sum(0, keepdim=True), torch.tensor([3.0]).double())
    assert torch.equal(moved, x.sum(0, keepdim=True))


def test_columns_that_hang_together_otherwise_are_not_compared():
    x = rows()
    assert PlaceMap.of(x, x[:, [1, 0, 2, 3]]).usable.tolist() == [False, False, True, True]
    assert not PlaceMap.of(x, x**3).usable.any()
    assert not PlaceMap.of(x, x[:, :2] @ torch.ones(2, 2).double()).usable.any()


@pytest.mark.parametrize("weight", [1.0, 0.25])
def test_two_rows_follow_from_their_sum_and_that_of_squares(weight):
    x = rows(2)
    count = torch.tensor(2 * weight).double()
    answers = list(_solved(weight * x.sum(0), count, weight * x.square().sum(0), torch.zeros(4), 2, 0))
    pair, known = answers[0]
    assert known is Kept.SET
    torch.testing.assert_close(pair.sort(0).values, x.sort(0).values, rtol=1e-8, atol=1e-8)
    assert answers[1][1] is Kept.ESTIMATED


def test_a_changed_row_follows_in_the_columns_that_changed():
    old, new = rows(2)
    new[2] = old[2]
    answers = _solved(old - new, torch.tensor(0.0), old.square() - new.square(), torch.full((4,), 1e-12), 1, 1)
    [(row, known)] = list(answers)
    assert known is Kept.EXACT
    assert row[0].isnan().tolist() == [False, False, True, False]
    torch.testing.assert_close(row[0, [0, 1, 3]], old[[0, 1, 3]], rtol=1e-9, atol=1e-9)


def test_an_imputed_mean_gives_the_value_where_decimals_leave_one_number_of_rows():
    values = np.random.default_rng(1).integers(1, 90_000, 91) / 100
    mean, after = values.mean(), values[1:].mean()
    assert _by_decimals(mean, after, 100) == pytest.approx(values[0], abs=1e-9)
    noisy = np.random.default_rng(1).normal(size=91)  # no decimals: any number of rows is possible
    assert np.isnan(_by_decimals(noisy.mean(), noisy[1:].mean(), 100))
    same = Present("it", torch.tensor([2.0, 3.0]).double())
    value, _ = _of_present(same, Present("it", torch.tensor([2.0, 4.0]).double()), 10, ())
    assert value[0] == torch.inf  # it was missing: the mean did not change


def test_a_category_that_the_other_table_lacks_is_lost():
    first, second = (Columns(("town", "age"), (names, ())) for names in (("Bath", "Ely"), ("Ely", "York")))
    cells = Cells(np.array([[0.0, 30.0], [1.0, 40.0]]), np.full((2, 2), Kept.EXACT))
    moved = recoded(cells, first, second)
    assert moved.kept.tolist() == [[Kept.LOST, Kept.EXACT], [Kept.EXACT, Kept.EXACT]]
    assert moved.values[1].tolist() == [0.0, 40.0]
