"""The vectorised closed form against the plain loop, and against attempts to make it cheat."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.linear_model import GammaRegressor, LinearRegression, LogisticRegression, PoissonRegressor, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import LinearSVC
from torch import nn

from attacks.closed_form.reference import canonical, multinomial, sigmoid, theorem_8
from equations import read
from lostwax.access import Weights
from lostwax.attacks import ClosedForm
from lostwax.attacks.closed_form import attack
from lostwax.attacks.closed_form import attack as missing_row
from lostwax.attacks.closed_form.evidence import without_intercept
from lostwax.games import Hints, Informed, Knowledge, Records, Stationary
from lostwax.losses import BinaryCrossEntropy, CrossEntropy, SquaredError
from lostwax.trainers import GD
from lostwax.trainers.optimum import Optimum, polish
from trainers.placed import Placed


def standardised(load):
    X, y = load(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def at_optimum(model, X, y):
    fitted = read(model.fit(X, y), (X, y))
    polished = polish(fitted.model, fitted.table, fitted.weight)
    assert polished.converged
    return replace(fitted, model=polished.model)


def everyone(fitted):
    return torch.arange(len(fitted.table))


def test_multinomial_equals_the_plain_loop():
    X, y = standardised(load_wine)
    fitted = at_optimum(LogisticRegression(C=0.7), X, y)
    guess = ClosedForm().leave_one_out(fitted, everyone(fitted))
    W, b = fitted.model.weight.numpy(), fitted.model.bias.numpy()
    for i in range(len(X)):
        x, label = multinomial(W, b, 1 / 0.7, X, y, i)
        np.testing.assert_allclose(guess.records.x[i, 0], x, atol=1e-8)
        assert guess.records.y[i, 0] == label == y[i]
        np.testing.assert_allclose(x, X[i], atol=1e-6)


@pytest.mark.parametrize(
    ("model", "load", "mean"),
    [
        (LogisticRegression(), load_breast_cancer, sigmoid),
        (Ridge(alpha=2.0), load_diabetes, lambda z: z),
        (LinearRegression(), load_diabetes, lambda z: z),
        (PoissonRegressor(alpha=0.5), load_diabetes, np.exp),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "fit") else "",
)
def test_canonical_models_equal_the_plain_loop(model, load, mean):
    X, y = standardised(load)
    fitted = at_optimum(model, X, y)
    guess = ClosedForm().leave_one_out(fitted, everyone(fitted))
    theta, intercept, ridge = (
        fitted.model.weight[0].numpy(),
        float(fitted.model.bias),
        float(fitted.model.ridge),
    )
    for i in range(0, len(X), 7):
        x, label = canonical(theta, intercept, mean, ridge, X, y, i)
        size = float(guess.confidence[i])  # the smaller the residual, the more rounding shows
        np.testing.assert_allclose(guess.records.x[i, 0], x, atol=1e-10 / size * np.abs(y).max())
        if guess.records.y.is_floating_point():
            np.testing.assert_allclose(guess.records.y[i, 0], label, rtol=1e-6)


def test_theorem_8_gives_both_candidates():
    X, y = standardised(load_diabetes)
    fitted = at_optimum(LinearRegression(fit_intercept=False), X, y - y.mean())
    hints = Hints(labels=fitted.table.y[:, None])
    guess = ClosedForm().leave_one_out(fitted, everyone(fitted), hints)
    theta = fitted.model.weight[0].numpy()
    for i in range(0, len(X), 11):
        expected, got = theorem_8(theta, X, y - y.mean(), i), guess.alternatives.x[i].numpy()
        same = np.allclose(got, expected, atol=1e-6) or np.allclose(got, expected[::-1], atol=1e-6)
        assert same, (got, expected)
        assert np.abs(guess.alternatives.x[i].numpy() - X[i]).max(1).min() < 1e-6


def test_both_candidates_of_theorem_8_refit_to_the_same_weights():
    X, y = standardised(load_diabetes)
    y = y - y.mean()
    fitted = at_optimum(LinearRegression(fit_intercept=False), X, y)
    guess = ClosedForm().leave_one_out(fitted, torch.tensor([3]), Hints(labels=fitted.table.y[3:4, None]))
    for candidate in guess.alternatives.x[0].numpy():
        other = X.copy()
        other[3] = candidate
        np.testing.assert_allclose(LinearRegression(fit_intercept=False).fit(other, y).coef_, fitted.model.weight[0])


def test_the_likelier_candidate_is_chosen_by_volume_too():
    """The prior alone would always take the smaller record; records with a small residual are more."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2_000, 4, generator=generator, dtype=torch.float64)
    weight = torch.tensor([[1.0, -0.5, 0.3, 0.0]], dtype=torch.float64)
    y = x @ weight[0] + 0.7 * torch.randn(2_000, generator=generator, dtype=torch.float64)
    zero, one = torch.zeros(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    model = Stationary(weight, None, SquaredError(), torch.zeros(1), torch.zeros(1), zero, one)
    missing = model.loss.residual(model.outputs(x), y)[:, :, None] * x[:, None, :]
    prior = zero.expand(2_000, 4), one.expand(2_000, 4)
    noise = torch.zeros(2_000, dtype=torch.float64)
    guess = without_intercept(model, missing, y[:, None], noise + 1, *prior, noise).guess()
    right = (guess.records.x[:, 0] - x).abs().amax(1) < 1e-6
    smaller = guess.alternatives.x.norm(dim=-1).argmin(1)
    blind = (guess.alternatives.x[torch.arange(2_000), smaller] - x).abs().amax(1) < 1e-6
    assert right.double().mean() > blind.double().mean() + 0.2


def test_logistic_regression_without_an_intercept():
    X, y = standardised(load_iris)
    for labels in (y, (y > 0).astype(int)):
        fitted = at_optimum(LogisticRegression(fit_intercept=False), X, labels)
        guess = ClosedForm().leave_one_out(fitted, everyone(fitted), Hints(labels=fitted.table.y[:, None]))
        nearest = (guess.alternatives.x - fitted.table.x[:, None]).abs().amax(-1).nan_to_num(torch.inf).amin(1)
        assert (nearest < 1e-6).double().mean() > 0.99


def test_two_roots_that_lie_close_together_are_found():
    """a sigmoid(a) is least at a = -1.278: near it the two outputs that explain a gradient are almost one."""
    outputs = -1.2784645 + torch.linspace(-0.05, 0.05, 101, dtype=torch.float64)
    x = torch.stack([outputs, torch.full_like(outputs, 3.0)], 1)
    weight, zero, one = torch.tensor([[1.0, 0.0]]).double(), torch.zeros(2).double(), torch.ones(2).double()
    model = Stationary(weight, None, BinaryCrossEntropy(), torch.zeros(1), torch.zeros(1), zero, one)
    y = torch.zeros(101, dtype=torch.long)
    missing = model.loss.residual(model.outputs(x), y)[:, :, None] * x[:, None, :]
    noise = torch.zeros(101, dtype=torch.float64)
    found = without_intercept(model, missing, y[:, None], noise + 1, zero.expand(101, 2), one.expand(101, 2), noise)
    nearest = (found.rows.x - x[:, None]).abs().amax(-1).nan_to_num(nan=torch.inf).amin(1)
    assert nearest.max() < 1e-6


def test_without_an_intercept_the_label_is_needed():
    X, y = standardised(load_diabetes)
    fitted = at_optimum(Ridge(fit_intercept=False), X, y)
    with pytest.raises(ValueError, match="knows the label"):
        ClosedForm().leave_one_out(fitted, everyone(fitted))


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(),
        LogisticRegression(C=100),
        LinearSVC(),
        GaussianNB(),
        GammaRegressor(),
        Ridge(fit_intercept=False),
        make_pipeline(MinMaxScaler(), Ridge()),
        make_pipeline(StandardScaler(), LogisticRegression()),
    ],
    ids=str,
)
def test_the_missing_row_cannot_reach_its_own_guess(model):
    """A cheat would be seen: game i is played again with row i overwritten, and must come out bit for bit."""
    X, y = standardised(load_iris)
    y = y + 1
    fitted = read(model.fit(X, y), (X, y))
    labels = fitted.table.y[:, None]
    needs_label = fitted.model is not None and fitted.model.bias is None
    honest = ClosedForm().leave_one_out(fitted, everyone(fitted), Hints(labels) if needs_label else None)
    for i in (0, 17, 149):
        x, y = fitted.table.x.clone(), fitted.table.y.clone()
        x[i], y[i] = torch.nan, y[(i + 60) % 150]
        blinded = replace(fitted, table=Records(x, y))
        hints = Hints(labels[i : i + 1]) if needs_label else None
        alone = ClosedForm().leave_one_out(blinded, torch.tensor([i]), hints)
        assert torch.equal(alone.records.x[0], honest.records.x[i])
        assert torch.equal(alone.records.y[0], honest.records.y[i])


def test_blocks_change_nothing_but_rounding(monkeypatch):
    X, y = standardised(load_iris)
    fitted = at_optimum(LogisticRegression(), X, y)
    games = torch.tensor([2, 3, 70, 149])
    whole = ClosedForm().leave_one_out(fitted, games)
    monkeypatch.setattr(missing_row, "BLOCK_NUMBERS", 15 * 20)
    monkeypatch.setattr(missing_row, "SMALL_NUMBERS", 0)
    monkeypatch.setattr(attack, "GAMES_NUMBERS", 15 * 3)
    torch.testing.assert_close(ClosedForm().leave_one_out(fitted, games).records.x, whole.records.x)


@pytest.fixture
def classes():
    X, y = standardised(load_iris)
    records = Records(torch.from_numpy(X), torch.from_numpy(y))
    return records.split(100, 30, 20, seed=0)


@pytest.mark.parametrize("net", [nn.Linear(4, 3), nn.Sequential(nn.Flatten(), nn.Linear(4, 3))])
def test_torch_heads_at_the_optimum(classes, net):
    known, prior, secrets = classes
    trainer = Optimum(ridge=1e-3, mean=True)
    knowledge = Knowledge(net, trainer, Informed(known), Weights(), prior)
    assert ClosedForm().objection(knowledge) is None
    cohort = Informed(known).deal(secrets, 20, seed=0)
    guess = ClosedForm().prepare(knowledge, seed=0)(trainer(net, cohort, seed=0))
    torch.testing.assert_close(guess.records.x, cohort.own.x, atol=1e-7, rtol=0)
    assert torch.equal(guess.records.y, cohort.own.y)


def test_torch_head_without_a_bias(classes):
    known, prior, secrets = (Records(part.x, part.x[:, 0] * 2 - part.x[:, 3] + part.y) for part in classes)
    net, trainer = nn.Linear(4, 1, bias=False), Optimum(loss=SquaredError(), ridge=1.0)
    threat = Informed(known, label_known=True)
    knowledge = Knowledge(net, trainer, threat, Weights(), prior)
    cohort = threat.deal(secrets, 20, seed=0)
    guess = ClosedForm().prepare(knowledge, seed=0)(trainer(net, cohort, seed=0), threat.hints(cohort, secrets, seed=0))
    assert ((guess.alternatives.x - cohort.own.x).abs().amax(-1).amin(1) < 1e-6).all()
    right = (guess.records.x - cohort.own.x).abs().amax((1, 2)) < 1e-6
    assert right.double().mean() > 0.5  # the other candidate explains the weights as well, and is sometimes likelier


def test_with_one_known_row_the_longer_candidate_is_likelier():
    """It tells nothing of the spread; what is left is the volume of the records that each candidate stands for."""
    generator = torch.Generator().manual_seed(0)
    records = Records(torch.randn(11, 5, generator=generator), torch.arange(11) % 2)
    known, secrets = records[:1], records[1:]
    net, trainer, threat = nn.Linear(5, 2, bias=False), Optimum(), Informed(known, label_known=True)
    cohort = threat.deal(secrets, 10, seed=0)
    hints = threat.hints(cohort, secrets, seed=0)
    knowledge = Knowledge(net, trainer, threat, Weights(), secrets)
    guess = ClosedForm().prepare(knowledge, seed=0)(trainer(net, cohort, seed=0), hints)
    length = guess.alternatives.x.norm(dim=-1).nan_to_num(nan=0.0)  # (m, candidates)
    assert (length[:, 0] >= length[:, 1]).all()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("loss", [SquaredError(), CrossEntropy()])
def test_everything_is_made_where_the_records_lie(bias, loss):
    generator = torch.Generator().manual_seed(0)
    classes = isinstance(loss, CrossEntropy)
    x = torch.randn(12, 3, generator=generator)
    records = Records(x, torch.arange(12) % 2 if classes else x[:, 0] + torch.randn(12, generator=generator))
    net, trainer = nn.Linear(3, 2 if classes else 1, bias=bias), Optimum(loss=loss)
    threat = Informed(records[:8], label_known=True)
    cohort = threat.deal(records[8:], 2, seed=0)
    hints = threat.hints(cohort, records[8:], seed=0)
    knowledge = Knowledge(net, trainer, threat, Weights(), records[8:])
    with Placed():
        guess = ClosedForm().prepare(knowledge, seed=0)(trainer(net, cohort, seed=0), hints)
    assert guess.records.x.isfinite().all()


@pytest.mark.parametrize("part", ["known", "prior"])
def test_features_of_a_backbone_are_refused(classes, part):
    """It would rebuild the features, which are no record."""
    known, prior, _ = classes
    parts = {"known": known, "prior": prior}
    parts[part] = parts[part].through(nn.Linear(4, 4).double())
    knowledge = Knowledge(nn.Linear(4, 3), Optimum(), Informed(parts["known"]), Weights(), parts["prior"])
    assert "trains on features of the records, through a backbone it cannot see" in ClosedForm().objection(knowledge)
    with pytest.raises(ValueError, match="Use RecoNN"):
        ClosedForm().prepare(knowledge, seed=0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"threat": object()}, "must know all the others"),
        ({"access": object()}, "needs the weights"),
        ({"trainer": GD(lr=0.1, steps=3)}, "stops short"),
        ({"net": nn.Linear(4, 3, bias=False)}, "label_known=True"),
        ({"net": nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3))}, "one linear layer"),
    ],
)
def test_objections(classes, change, words):
    known, prior, _ = classes
    knowledge = replace(Knowledge(nn.Linear(4, 3), Optimum(), Informed(known), Weights(), prior), **change)
    assert words in ClosedForm().objection(knowledge)
    with pytest.raises(ValueError, match=words):
        ClosedForm().prepare(knowledge, seed=0)
