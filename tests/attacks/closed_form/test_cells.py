"""What each fact of a part tells of the missing row, against its definition."""

import numpy as np
import torch

from lostwax.attacks.closed_form import revealed
from lostwax.games import Cells, Extremes, Fitted, Kept, Part, Present, Records, Stationary, Stored, Sums
from lostwax.losses import SquaredError

N, D = 12, 3
rng = np.random.default_rng(0)
X = torch.from_numpy(rng.normal(size=(N, D)))
Y = torch.from_numpy(rng.integers(0, 2, N))
GAMES = torch.arange(N)


def as_they_are(x):
    """The way back of a part that sees the table itself; infinity is a missing value."""
    kept = np.where(x.isnan(), Kept.LOST, Kept.EXACT).astype(np.uint8)
    return Cells(torch.where(x.isinf(), torch.nan, x).numpy(), kept)


def part(x=X, y=Y, weight=None, model=None, labelled=True, **facts):
    ones = torch.ones(len(x), dtype=torch.float64)
    fitted = Fitted("a part", Records(x, y), ones if weight is None else weight, model, **facts)
    return Part(fitted, as_they_are, labelled)


def only(answers):
    (answer,) = answers
    (cells,) = answer.candidates
    return Cells(torch.from_numpy(cells.values), torch.from_numpy(cells.kept)), answer


def test_stored_rows_with_their_labels():
    cells, answer = only(revealed(part(stored=(Stored("rows", X[:5], Y[:5]),)), GAMES, label_given=False))
    torch.testing.assert_close(cells.values[:5], X[:5])
    torch.testing.assert_close(answer.labels[:5], Y[:5])
    assert (cells.kept[5:] == Kept.LOST).all()


def test_a_missing_value_in_a_stored_row_is_told():
    x = X.clone()
    x[2, 1] = torch.nan
    cells, _ = only(revealed(part(x, stored=(Stored("rows", x[:5]),)), GAMES, label_given=False))
    assert cells.values[2, 1].isnan()
    assert cells.kept[2].tolist() == [Kept.EXACT] * 3


def test_sums():
    sums = Sums("mean", X.sum(0, keepdim=True), torch.tensor([float(N)]).double(), by_label=False, weighted=False)
    cells, answer = only(revealed(part(sums=(sums,)), GAMES, label_given=False))
    torch.testing.assert_close(cells.values, X)
    assert answer.labels is None


def test_sums_by_class_give_the_label():
    member = torch.nn.functional.one_hot(Y).double()
    sums = Sums("class means", member.T @ X, member.sum(0), by_label=True, weighted=False)
    cells, answer = only(revealed(part(sums=(sums,)), GAMES, label_given=False))
    torch.testing.assert_close(cells.values, X)
    torch.testing.assert_close(answer.labels, Y)
    cells, answer = only(revealed(part(sums=(sums,), labelled=False), GAMES, label_given=False))
    torch.testing.assert_close(cells.values, X)
    assert answer.labels is None


def test_means_over_the_values_there_are():
    x = X.clone()
    x[rng.random((N, D)) < 0.3] = torch.nan
    cells, _ = only(revealed(part(x, present=(Present("means", x.nanmean(0)),)), GAMES, label_given=False))
    torch.testing.assert_close(cells.values, x, equal_nan=True)  # (m + 1) mean - sum, and missing where nothing changes
    assert (cells.kept == Kept.EXACT).all()


def test_the_mean_of_one_value_is_that_value():
    x = torch.full((N, 2), torch.nan).double()
    x[3, 0] = 7.0
    cells, _ = only(
        revealed(
            part(x, present=(Present("means", torch.tensor([7.0, torch.nan]).double()),)), GAMES, label_given=False
        )
    )
    assert cells.values[3, 0] == 7.0
    assert cells.values[4, 1].isnan()
    assert (cells.kept[:, 1] == Kept.EXACT).all()
    others = torch.arange(N) != 3
    assert (cells.kept[others, 0] == Kept.LOST).all()  # another 7 would not change the mean either


def test_sums_tell_nothing_of_rows_without_weight():
    weight = torch.ones(N, dtype=torch.float64)
    weight[2] = 0.0
    sums = Sums("mean", (weight @ X)[None], weight.sum()[None], by_label=False, weighted=True)
    cells, _ = only(revealed(part(weight=weight, sums=(sums,)), GAMES, label_given=False))
    assert (cells.kept[2] == Kept.LOST).all()
    torch.testing.assert_close(cells.values[weight > 0], X[weight > 0])


def test_extremes_belong_to_the_rows_that_reach_them():
    extremes = Extremes("range", X.amin(0), X.amax(0))
    cells, _ = only(revealed(part(extremes=(extremes,)), GAMES, label_given=False))
    reached = (X.amin(0) == X) | (X.amax(0) == X)
    assert ((cells.kept == Kept.EXACT) == reached).all()
    torch.testing.assert_close(cells.values[reached], X[reached])


def test_an_extreme_that_two_rows_reach_tells_nothing():
    x = torch.cat([X, X[X[:, 0].argmax()][None]])
    cells, _ = only(
        revealed(
            part(x, torch.cat([Y, Y[:1]]), extremes=(Extremes("range", x.amin(0), x.amax(0)),)),
            torch.arange(N + 1),
            label_given=False,
        )
    )
    assert (cells.kept[x[:, 0] == x[:, 0].max(), 0] == Kept.LOST).all()


def ridge(y, weight, intercept=True):
    """A ridge regression at its optimum."""
    f = torch.cat([X, torch.ones(N, 1).double()], 1) if intercept else X
    penalty = torch.diag(torch.tensor([1.0] * D + [0.0] * intercept).double())
    theta = torch.linalg.solve(f.T @ (weight[:, None] * f) + penalty, f.T @ (weight * y))
    zero, one = torch.zeros(D).double(), torch.ones(D).double()
    bias = theta[None, D] if intercept else None
    return Stationary(theta[None, :D], bias, SquaredError(), one[:1], zero[:1], zero, one)


def test_a_model_gives_row_and_label_and_nothing_of_rows_without_weight():
    y, weight = X @ torch.arange(3.0).double() + torch.from_numpy(rng.normal(size=N)), torch.ones(N).double()
    weight[4] = 0.0
    model = ridge(y, weight)
    cells, answer = only(revealed(part(X, y, weight, model), GAMES, label_given=False))
    trained = weight > 0
    torch.testing.assert_close(cells.values[trained], X[trained])
    torch.testing.assert_close(answer.labels[trained], y[trained])
    assert (cells.kept[4] == Kept.LOST).all()


def test_without_an_intercept_the_own_labels_of_the_part_are_given():
    y = X @ torch.arange(3.0).double() + torch.from_numpy(rng.normal(size=N))
    model = ridge(y, torch.ones(N).double(), intercept=False)
    (answer,) = revealed(part(X, y, model=model), GAMES, label_given=True)
    nearest = (
        torch.stack([(torch.from_numpy(cells.values) - X).abs().amax(1) for cells in answer.candidates])
        .nan_to_num(nan=9.0)
        .amin(0)
    )
    assert (nearest < 1e-6).all()


def test_facts_come_before_the_model():
    y = X @ torch.arange(3.0).double() + torch.from_numpy(rng.normal(size=N))
    sums = Sums("mean", X.sum(0, keepdim=True), torch.tensor([float(N)]).double(), by_label=False, weighted=False)
    answers = revealed(part(X, y, model=ridge(y, torch.ones(N).double()), sums=(sums,)), GAMES, label_given=False)
    assert [answer.labels is None for answer in answers] == [True, False]


def test_a_value_at_the_mean_is_not_said_to_be_missing():
    x = torch.zeros(N, 1).double()
    x[: N // 2], x[N // 2 : 2 * (N // 2)], x[0], x[N // 2] = -1.0, 1.0, 0.0, 0.0
    x[1] = x[N // 2 + 1] = torch.nan
    cells, _ = only(revealed(part(x, present=(Present("means", x.nanmean(0)),)), GAMES, label_given=False))
    assert (cells.kept[(x == 0) | x.isnan()] == Kept.LOST).all()
    assert (cells.kept[x.abs() == 1] == Kept.EXACT).all()
