"""k missing rows: against brute force, where the answer is known, and where nothing may be certified."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import least_squares, linear_sum_assignment
from scipy.spatial import HalfspaceIntersection
from sklearn.datasets import load_digits, load_wine, make_blobs
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from equations import read
from lostwax.attacks import ClosedForm
from lostwax.attacks.closed_form.missing_rows import _Game, missing_rows, most_missing
from lostwax.attacks.closed_form.sections import Kinds, Limits, Section, corners, largest_groups, misfits
from lostwax.games import Records
from lostwax.trainers.optimum import polish


def at_optimum(model, X, y):
    fitted = read(model.fit(X, y), (X, y))
    if fitted.model is None:
        return fitted
    polished = polish(fitted.model, fitted.table, fitted.weight)
    assert polished.converged
    return replace(fitted, model=polished.model)


def digits(rows=600, model=None, unit=16):
    X, y = load_digits(return_X_y=True)
    some = np.random.default_rng(0).permutation(len(X))[:rows]
    return at_optimum(model or LogisticRegression(max_iter=5_000), X[some] / unit, y[some])


def drawn(n, k, count, seed=0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(np.stack([rng.choice(n, k, replace=False) for _ in range(count)]))


def paired(fitted, games, answer):
    """Errors in deviations of the columns and whether the label is right, (g, k), of each answered row."""
    spread = fitted.table.x.std(0, correction=0)
    spread = torch.where(spread > 0, spread, 1.0)
    errors, labels = torch.zeros(games.shape).double(), torch.zeros(games.shape, dtype=torch.bool)
    for game, rows in enumerate(games):
        truth, guess = fitted.table[rows], answer.records[game]
        apart = ((guess.x[:, None] - truth.x) / spread).square().mean(2).sqrt()
        at, to = linear_sum_assignment(apart)
        errors[game, at] = apart[at, to]
        labels[game, at] = guess.y[at] == truth.y[to]
    return errors, labels


@pytest.mark.parametrize("k", [1, 2, 5, 8, 9])
def test_rows_of_digits_come_back_with_their_labels(k):
    fitted = digits()
    games = drawn(600, k, 3)
    answer = missing_rows(fitted, games, seed=0)
    errors, labels = paired(fitted, games, answer)
    assert errors.max() < 1e-6
    assert labels.all()
    assert answer.certified.all()
    assert answer.predicted.max() < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("k", "count"), [(2, 500), (5, 500), (8, 500), (9, 500)])
def test_no_certified_row_is_wrong(k, count):
    fitted = digits()
    games = drawn(600, k, count, seed=k)
    answer = missing_rows(fitted, games, seed=1)
    errors, labels = paired(fitted, games, answer)
    right = (errors < 1e-3) & labels
    assert not (answer.certified & ~right).any()
    assert (answer.certified & right).double().mean() > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("k", [4, 8])
def test_rows_that_are_fitted_well_are_certified_only_if_they_are_right(k):
    """Of pixels up to 16 most residuals are below 1e-3, and some below 1e-7."""
    fitted = digits(unit=1)
    games = drawn(600, k, 60, seed=k)
    answer = missing_rows(fitted, games, seed=1)
    errors, labels = paired(fitted, games, answer)
    assert not (answer.certified & ~((errors < 1e-3) & labels)).any()
    assert answer.certified.double().mean() > 0.8


def test_one_missing_row_is_that_of_the_closed_form():
    fitted = digits(200)
    games = torch.arange(20)
    answer = missing_rows(fitted, games[:, None], seed=0)
    guess = ClosedForm().leave_one_out(fitted, games)
    torch.testing.assert_close(answer.records.x, guess.records.x, atol=1e-8, rtol=0)
    assert torch.equal(answer.records.y, guess.records.y)


def brute_force(fitted, rows):
    """All pairs of numbers that explain the gap, for all labels: from every cell of a grid, each solved by scipy."""
    model, table = fitted.model, fitted.table
    known = torch.ones(len(table), dtype=torch.bool)
    known[rows] = False
    r, f = model.factors(table[known], fitted.weight[known])
    gap = model.total() - r.mT @ f
    side = torch.linspace(2 * float(table.x.min()), 2 * float(table.x.max()), 120).double()
    pairs, solutions = torch.cartesian_prod(side, side), []
    for labels in itertools.combinations_with_replacement(range(len(model.weight)), 2):

        def misfit(pairs, labels=labels):  # (n, 2) -> (n, 6)
            terms = torch.zeros(len(pairs), *gap.shape).double()
            for x, label in zip(pairs.mT, labels, strict=True):
                r, f = model.factors(Records(x[:, None], torch.full((len(x),), label)), torch.ones(len(x)).double())
                terms = terms + r[:, :, None] * f[:, None]
            return (terms - gap).flatten(1)

        sizes = misfit(pairs).norm(dim=1)
        for start in pairs[sizes.argsort()[:60]]:
            end = least_squares(lambda x: misfit(torch.from_numpy(x)[None])[0].numpy(), start.numpy(), xtol=1e-15)
            if np.abs(end.fun).max() < 1e-9:
                solutions.append(sorted(zip(end.x.round(4).tolist(), labels, strict=True)))
    return [next(group) for _, group in itertools.groupby(sorted(solutions))]


@pytest.mark.slow
def test_brute_force_finds_the_same_rows():
    X, y = make_blobs(40, 1, centers=[[-3.0], [0.0], [3.0]], cluster_std=1.5, random_state=1)
    fitted = at_optimum(LogisticRegression(max_iter=5_000), X, y)
    games = drawn(40, 2, 4)
    answer = missing_rows(fitted, games, seed=0)
    assert answer.certified.all(1).double().mean() >= 0.5
    for game, rows in enumerate(games):
        solutions = brute_force(fitted, rows)
        rebuilt = answer.records[game]
        mine = sorted(zip(rebuilt.x[:, 0].numpy().round(4).tolist(), rebuilt.y.tolist(), strict=True))
        truth = fitted.table[rows]
        assert sorted(zip(truth.x[:, 0].numpy().round(4).tolist(), truth.y.tolist(), strict=True)) in solutions
        assert not answer.certified[game].any() or solutions == [mine]


@pytest.mark.parametrize("model", [LogisticRegression(max_iter=5_000), GaussianNB(), RidgeClassifier()])
def test_nothing_is_known_of_missing_rows(model):
    fitted = digits(200, model)
    games = drawn(200, 3, 2)
    answer = missing_rows(fitted, games, seed=0)
    for game, rows in enumerate(games):
        x, y = fitted.table.x.clone(), fitted.table.y.clone()
        x[rows], y[rows] = torch.nan, 0
        blind = replace(fitted, table=Records(x, y))
        again = missing_rows(blind, torch.stack([rows, rows])[: game + 1], seed=0)
        assert torch.equal(again.records.x[game], answer.records.x[game])
        assert torch.equal(again.predicted[game], answer.predicted[game])


@pytest.mark.parametrize("k", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_noise_is_never_certified(k):
    fitted = digits(300)
    noise = torch.randn(fitted.model.weight.shape, generator=torch.Generator().manual_seed(0)).double()
    noise = noise - noise.mean(0)
    moved = replace(
        fitted, model=replace(fitted.model, ridge=fitted.model.ridge, weight=fitted.model.weight + noise / 10)
    )
    answer = missing_rows(moved, drawn(300, k, 1), seed=0)
    assert not answer.certified.any()


def test_rows_of_one_class_can_be_mixed_where_residuals_are_linear():
    """An orthogonal mixture of three rows of one class leaves all sums as they are, so that none is certified."""
    X, y = make_blobs(200, 20, centers=8, cluster_std=3.0, random_state=0)
    fitted = at_optimum(RidgeClassifier(), X, y)
    rows = (fitted.table.y == 3).nonzero()[:3, 0]
    assert not missing_rows(fitted, rows[None], seed=0).certified.any()


def test_as_many_as_there_are_equations():
    X, y = load_wine(return_X_y=True)
    softmax = LogisticRegression(max_iter=50_000)
    assert most_missing(at_optimum(softmax, StandardScaler().fit_transform(X), y)) == 2
    assert most_missing(at_optimum(make_pipeline(StandardScaler(), softmax), X, y)) == 3
    assert most_missing(at_optimum(GaussianNB(), X, y)) == 3
    assert most_missing(at_optimum(Ridge(), X, y.astype(float))) == 1
    assert most_missing(at_optimum(LogisticRegression(max_iter=50_000), X[:, :2], (y > 0) * 1)) == 1


def test_a_scaler_adds_a_row():
    X, y = load_wine(return_X_y=True)
    fitted = at_optimum(make_pipeline(StandardScaler(), LogisticRegression(max_iter=50_000)), X, y)
    games = drawn(len(X), 3, 3)
    answer = missing_rows(fitted, games, seed=0)
    errors, labels = paired(fitted, games, answer)
    assert errors.max() < 1e-6
    assert labels.all()
    assert answer.certified.all()


def test_class_sums_give_rows_that_are_alone_in_their_class():
    fitted = digits(200, GaussianNB())
    y = fitted.table.y
    alone, pair = (y == 4).nonzero()[0], (y == 7).nonzero()[:2, 0]
    games = torch.cat([alone, pair])[None]
    answer = missing_rows(fitted, games, seed=0)
    errors, labels = paired(fitted, games, answer)
    assert answer.certified[0].tolist() == [True, False, False]
    assert errors[0, 0] < 1e-9
    assert labels[0, 0]
    assert (errors[0, 1:] > 0.1).all()


def test_a_target_and_its_row():
    X, y = load_wine(return_X_y=True)
    fitted = at_optimum(make_pipeline(StandardScaler(), Ridge()), X, y + X[:, 0])
    answer = missing_rows(fitted, torch.arange(5)[:, None], seed=0)
    torch.testing.assert_close(answer.records.x[:, 0], fitted.table.x[:5])
    torch.testing.assert_close(answer.records.y[:, 0], fitted.table.y[:5])
    assert answer.certified.all()
    assert not missing_rows(fitted, drawn(len(X), 2, 2), seed=0).certified.any()


def section_of_digits(k=4):
    fitted = digits(200)
    rows = torch.arange(k)
    game = _Game.of(fitted, rows, np.random.default_rng(0))
    return game, Section.of(game.gap, k, affine=True), fitted.table[rows]


def test_true_rows_have_no_misfit():
    game, section, rows = section_of_digits()
    c = section.coordinates((rows.x - game.terms.centre) / game.terms.unit)
    kinds = Kinds(rows.y, torch.ones(4).double())
    assert misfits(section, game.terms, c[None], kinds.as_one).values.abs().max() < 1e-8


def test_slopes_of_misfits_are_those_of_autograd():
    game, section, rows = section_of_digits()
    c = torch.from_numpy(np.random.default_rng(0).standard_normal((1, 4, section.free)))
    kinds = Kinds(rows.y, torch.ones(4).double()).as_one

    def values(flat):
        return misfits(section, game.terms, flat.view(1, 4, -1), kinds, slopes=False).values[0]

    reference = torch.autograd.functional.jacobian(values, c.flatten())
    torch.testing.assert_close(misfits(section, game.terms, c, kinds).jacobian[0], reference)


def test_walks_end_at_corners():
    rng = np.random.default_rng(0)
    normals = rng.standard_normal((12, 3))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    normals = np.concatenate([normals, np.eye(3), -np.eye(3)])
    bounds = np.ones(18)
    ends = corners(torch.from_numpy(normals), torch.from_numpy(bounds), 300, rng).numpy()
    reference = HalfspaceIntersection(np.c_[normals, -bounds], np.zeros(3)).intersections
    assert np.abs(ends[:, None] - reference).max(2).min(1).max() < 1e-9
    reached = np.abs(ends[:, None] - reference).max(2).min(0) < 1e-9
    assert reached.mean() > 0.5  # a walk does not leave a limit again


def test_natural_limits_are_common_ends():
    u = torch.tensor([[0.0, 1.0, 5.0]] * 5 + [[float(i), 2.0 + i, 5.0] for i in range(1, 95)]).double()
    limits = Limits.of(u)
    assert limits.column.tolist() == [0, 1]
    assert limits.sign.tolist() == [-1, -1]


def test_largest_groups():
    rng = np.random.default_rng(0)
    for _ in range(20):
        agree = torch.from_numpy(rng.random((7, 7)) < 0.5)
        agree = agree & agree.mT
        for size in range(7, 0, -1):
            sets = itertools.combinations(range(7), size)
            reference = [list(s) for s in sets if all(agree[i, j] for i, j in itertools.combinations(s, 2))]
            if reference:
                break
        assert sorted(largest_groups(agree)) == reference


def test_of_a_sum_each_of_k_rows_has_a_share():
    """The mean of the missing rows of a class is exact; they are as far from it as is predicted."""
    fitted = digits(600, GaussianNB())
    games = (fitted.table.y == 3).nonzero()[:, 0][:48].view(8, 6)
    answer = missing_rows(fitted, games, seed=0)
    torch.testing.assert_close(answer.records.x[:, 0], fitted.table.x[games].mean(1))
    errors, labels = paired(fitted, games, answer)
    assert labels.all()
    assert not answer.certified.any()
    ratio = errors.square().mean().sqrt() / answer.predicted.square().mean().sqrt()
    assert 0.8 < ratio < 1.25


@pytest.mark.slow
def test_beyond_the_count_errors_are_about_as_predicted():
    X, y = load_wine(return_X_y=True)
    fitted = at_optimum(LogisticRegression(max_iter=50_000), StandardScaler().fit_transform(X), y)
    games = drawn(len(X), 4, 20)
    answer = missing_rows(fitted, games, seed=0)
    errors, _ = paired(fitted, games, answer)
    sure = answer.predicted < answer.predicted.median()
    assert not answer.certified.any()
    for some in (sure, ~sure):
        assert 0.5 < errors[some].square().mean().sqrt() / answer.predicted[some].square().mean().sqrt() < 2
    assert errors[sure].mean() < errors[~sure].mean()
