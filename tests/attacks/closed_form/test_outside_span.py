"""The direction of the weights outside the span of the known rows, against a plain loop with least squares."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.svm import LinearSVC
from torch import nn

from equations import read
from lostwax.access import Weights
from lostwax.attacks import ClosedForm
from lostwax.attacks.closed_form.ambiguous import outside_candidates
from lostwax.attacks.closed_form.attack import known_moments
from lostwax.games import Hints, Informed, Knowledge, Records
from lostwax.losses import SquaredError
from lostwax.trainers.optimum import Optimum

N, D = 12, 3_000
MODELS = [
    (LinearRegression(), True),
    (Ridge(1e-12), True),
    (LinearRegression(fit_intercept=False), False),
    (Ridge(1e-12, fit_intercept=False), False),
    (LogisticRegression(C=1e6), False),
    (LinearSVC(C=1e3), False),
]


def table(seed=0, offset=2.0):
    rng = np.random.default_rng(seed)
    scale = np.exp(rng.normal(size=D))
    return (rng.normal(size=(N, D)) + offset) * scale, rng.normal(size=N)


def both(model, X, y):
    labels = (y > np.median(y)).astype(int) if hasattr(model, "decision_function") else y
    fitted = read(clone(model).fit(X, labels), (X, labels))
    games = torch.arange(len(X))
    return fitted, outside_candidates(fitted.model, fitted.table, games, known_moments(fitted.table, games)[0]).x


def outside(vector, span):
    """What least squares leaves of a vector."""
    return vector - np.linalg.lstsq(span.T, vector, rcond=None)[0] @ span


@pytest.mark.parametrize(("model", "centred"), MODELS, ids=str)
@pytest.mark.filterwarnings("ignore")
def test_the_part_outside_the_known_rows_points_the_right_way(model, centred):
    X, y = table()
    _, found = both(model, X, y)
    for i in range(N):
        known = np.delete(X, i, 0)
        origin = known[0] if centred else np.zeros(D)
        span = known[1:] - origin if centred else known
        truth = outside(X[i] - origin, span)
        for sign, candidate in zip((1, -1), found[i].numpy(), strict=True):
            ours = outside(candidate - origin, span)
            cosine = truth @ ours / np.linalg.norm(truth) / np.linalg.norm(ours)
            assert abs(cosine) > 1 - 1e-6, (i, sign)
        pair = [outside(candidate - origin, span) @ truth for candidate in found[i].numpy()]
        assert min(pair) < 0 < max(pair)  # one of the two signs is right


@pytest.mark.parametrize("offset", [0.0, 1.0, 100.0])
@pytest.mark.parametrize(("model", "centred"), MODELS[:4], ids=str)
def test_the_length_is_that_of_known_rows(model, centred, offset):
    X, y = table(offset=offset)
    _, found = both(model, X, y)
    deviation = X.std(0)
    for i in range(N):
        errors = np.sqrt((((found[i].numpy() - X[i]) / deviation) ** 2).mean(1))
        assert errors.min() < 0.2  # the span is sqrt(12 / 3,000) = 0.06 of a row; units are estimated from six rows


@pytest.mark.parametrize("model", [LinearRegression(), LogisticRegression(C=1e6)], ids=str)
def test_the_missing_row_cannot_reach_its_own_guess(model):
    X, y = table()
    fitted, _ = both(model, X, y)
    honest = ClosedForm().leave_one_out(fitted, torch.arange(N))
    for i in (0, 1, 7, N - 1):
        x = fitted.table.x.clone()
        x[i] = torch.nan
        alone = ClosedForm().leave_one_out(replace(fitted, table=Records(x, fitted.table.y)), torch.tensor([i]))
        assert torch.equal(alone.records.x[0], honest.records.x[i])
        torch.testing.assert_close(alone.alternatives.x[0], honest.alternatives.x[i], rtol=0, atol=0, equal_nan=True)


def test_equal_rows_among_the_known():
    X, y = table()
    X, y = np.vstack([X, X[3:5]]), np.append(y, y[3:5])
    _, found = both(LinearRegression(), X, y)
    errors = (((found.numpy() - X[:, None]) / X.std(0)) ** 2).mean(-1).min(1) ** 0.5
    assert (np.delete(errors, [3, 4, 12, 13]) < 0.2).all()


def test_the_label_tells_the_sign():
    X, y = table(offset=0.0)
    fitted, _ = both(LinearRegression(fit_intercept=False), X, y)
    guess = ClosedForm().leave_one_out(fitted, torch.arange(N), Hints(labels=fitted.table.y[:, None]))
    x = guess.alternatives.x
    at = x.isfinite().all(-1).double().argmax(1)
    wrong = (x - fitted.table.x[:, None]).square().sum(-1).nan_to_num(nan=torch.inf)
    assert (wrong.gather(1, at[:, None])[:, 0] <= wrong[:, -1]).double().mean() > 0.8


def test_fewer_features_than_rows_give_no_candidates():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(10, 9)), rng.normal(size=10)
    fitted = read(Ridge().fit(X, y), (X, y))
    games = torch.arange(10)
    assert outside_candidates(fitted.model, fitted.table, games, known_moments(fitted.table, games)[0]) is None


@pytest.mark.parametrize("rows", [2, 3, 4])
@pytest.mark.parametrize("bias", [True, False])
def test_few_rows(rows, bias):
    X, y = table()
    fitted = read(LinearRegression(fit_intercept=bias).fit(X[:rows], y[:rows]), (X[:rows], y[:rows]))
    hints = None if bias else Hints(labels=fitted.table.y[:, None])
    guess = ClosedForm().leave_one_out(fitted, torch.arange(rows), hints)
    assert guess.records.x.isfinite().all()


def test_a_torch_layer_in_a_game():
    """A ridge too small to leave a residual: the direction of the weights still gives the secret away."""
    rng = torch.Generator().manual_seed(0)
    x, y = (torch.randn(*shape, generator=rng, dtype=torch.float64) for shape in ((12, D), (12,)))
    known, secrets = Records(x[:9], y[:9]), Records(x[9:], y[9:])
    net, trainer, threat = nn.Linear(D, 1), Optimum(loss=SquaredError(), ridge=1e-9), Informed(known)
    cohort = threat.deal(secrets, 3, seed=0)
    knowledge = Knowledge(net, trainer, threat, Weights(), secrets)
    guess = ClosedForm().prepare(knowledge, seed=0)(trainer(net, cohort, seed=0))
    candidates = torch.cat([guess.records.x, guess.alternatives.x], 1) if guess.alternatives else guess.records.x
    errors = (candidates - cohort.own.x).square().mean(-1).sqrt().nan_to_num(nan=torch.inf).amin(1)
    assert (errors < 0.1).all()


@pytest.mark.parametrize("bias", [True, False])
def test_many_rows_by_bisection(bias):
    """Directions against least squares, for every row of 41; some games alone, blind to the row, give the same bits."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(41, 60)) + 1, rng.normal(size=41)
    fitted = read(LinearRegression(fit_intercept=bias).fit(X, y), (X, y))
    games = torch.arange(41)
    mean = known_moments(fitted.table, games)[0]
    found = outside_candidates(fitted.model, fitted.table, games, mean)
    for i in range(41):
        known = np.delete(X, i, 0)
        origin = known[0] if bias else np.zeros(60)
        span = known[1:] - origin if bias else known
        truth, ours = (outside(row - origin, span) for row in (X[i], found.x[i, 0].numpy()))
        assert abs(truth @ ours) / np.linalg.norm(truth) / np.linalg.norm(ours) > 1 - 1e-6
    for i in (0, 5, 22, 40):
        x = fitted.table.x.clone()
        x[i] = torch.nan
        alone = outside_candidates(fitted.model, Records(x, fitted.table.y), games[i : i + 1], mean[i : i + 1])
        assert torch.equal(alone.x[0], found.x[i])
        assert torch.equal(alone.residual[0], found.residual[i])
