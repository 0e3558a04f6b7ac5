import numpy as np
import torch

from lostwax.games import Cells, Columns, Kept
from lostwax.games.cells import Bounds


def number(low, high, kept=Kept.INTERVAL, *, value=torch.nan, missing=False):
    """A single cell between two numbers."""
    bounds = Bounds(np.array([[low]]), np.array([[high]]), np.array([[missing]]))
    return Cells(np.array([[value]]), np.array([[kept]], dtype=np.uint8), bounds)


def test_two_intervals_of_a_cell_are_intersected():
    both = number(0.0, 2.0).or_else(number(1.0, 3.0))
    assert (both.bounds.low.item(), both.bounds.high.item(), both.kept.item()) == (1, 2, Kept.INTERVAL)


def test_intervals_that_meet_are_exact_unless_the_cell_may_be_missing():
    assert number(0.0, 1.0).or_else(number(1.0, 3.0)).kept.item() == Kept.EXACT
    assert number(0.0, 1.0).or_else(number(1.0, 3.0)).values.item() == 1
    missing = number(0.0, 1.0, missing=True)
    assert missing.or_else(number(1.0, 3.0, missing=True)).kept.item() == Kept.INTERVAL
    assert missing.or_else(number(1.0, 3.0)).kept.item() == Kept.EXACT


def test_an_exact_cell_stays_what_it_is_beside_an_interval():
    exact = Cells(np.array([[5.0]]), np.array([[Kept.EXACT]], dtype=np.uint8))
    for both in (exact.or_else(number(0.0, 1.0)), number(0.0, 1.0).or_else(exact)):
        assert (both.values.item(), both.kept.item()) == (5, Kept.EXACT)


def test_of_intervals_that_exclude_each_other_the_first_holds():
    both = number(0.0, 1.0).or_else(number(2.0, 3.0))
    assert (both.bounds.low.item(), both.bounds.high.item(), both.kept.item()) == (0, 1, Kept.INTERVAL)


def categories(*codes):
    """A single cell with these codes of three left."""
    cell = number(-torch.inf, torch.inf, Kept.SET)
    return cell._replace(bounds=cell.bounds._replace(codes={0: np.isin(np.arange(3), codes)[None]}))


def test_sets_of_categories_are_intersected():
    both = categories(0, 1).or_else(categories(1, 2))
    assert (both.values.item(), both.kept.item()) == (1, Kept.EXACT)
    assert categories(0, 1).or_else(Cells.lost(1, 1)).bounds.codes[0].tolist() == [[True, True, False]]


def test_cells_of_several_groups_of_rows():
    plain = Cells.lost(2, 1)
    assert Cells.joined([plain, plain]).bounds is None
    both = Cells.joined([plain, categories(0, 2)])
    assert both.values.shape == (3, 1)
    assert both.bounds.codes[0].tolist() == [[True] * 3, [True] * 3, [True, False, True]]
    assert both.bounds.low.flatten().tolist() == [-torch.inf] * 3
    assert both.at([2]).bounds.codes[0].tolist() == [[True, False, True]]


def test_the_guess_within_an_interval_does_not_depend_on_the_rows_own_value():
    columns, x = Columns(("a",), ((),)), torch.tensor([[1.0], [2.0], [4.0], [9.0]]).double()
    games = torch.tensor([1, 1, 1, 3, 0])
    low, high = ([0.0, 2.5, 6.0, 5.0, -torch.inf], [5.0, 3.5, torch.inf, torch.inf, 1.5])
    several = Cells.joined([number(*ends) for ends in zip(low, high, strict=True)])
    found = columns.likeliest(several, x, games).values.flatten()
    assert found.tolist() == [2.5, 3.0, 9.0, 5.0, 1.5]
    x[1], x[3] = 3.1, 100.0
    again = columns.likeliest(several, x, games).values.flatten()
    assert again[[0, 1, 3]].tolist() == found[[0, 1, 3]].tolist()


def test_the_guess_within_a_set_is_the_most_frequent_of_the_known():
    columns, x = Columns(("a",), (("u", "v", "w"),)), torch.tensor([[0.0], [0.0], [1.0], [1.0], [2.0], [1.0]]).double()
    two = Cells.joined([categories(0, 1), categories(0, 2)])
    assert columns.likeliest(two, x, torch.tensor([2, 4])).values.flatten().tolist() == [0, 0]
    assert columns.likeliest(two, x, torch.tensor([0, 4])).values.flatten().tolist() == [1, 0]


def test_a_missing_value_is_the_guess_where_it_is_possible_and_more_frequent():
    columns, nan = Columns(("a",), ((),)), torch.nan
    x = torch.tensor([[nan], [nan], [1.0], [5.0], [nan]]).double()
    several = Cells.joined([number(0.0, 2.0, missing=True), number(0.0, 2.0), number(0.0, 2.0, missing=True)])
    found = columns.likeliest(several, x, torch.tensor([3, 3, 2])).values.flatten()
    assert np.isnan(found[0])
    assert found[1] == 1
    assert np.isnan(found[2])


def test_the_guess_within_a_set_of_numbers_is_one_of_them():
    columns, x = Columns(("a",), ((),)), torch.tensor([[1.0], [2.0], [5.0], [5.0]]).double()
    two = number(1.0, 5.0, Kept.SET, value=5.0)
    assert columns.likeliest(two, x, torch.tensor([0])).values.item() == 5
