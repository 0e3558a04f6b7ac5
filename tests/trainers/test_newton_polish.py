"""Newton down to the last bits, against scikit-learn's tightest and against itself without a Hessian."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor, Ridge
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from equations import read
from lostwax.games import Records
from lostwax.trainers import optimum as newton_polish
from lostwax.trainers.optimum import polish

TIGHT = {"tol": 1e-12, "max_iter": 100_000}
MODELS = [
    (LogisticRegression(C=0.5, solver="newton-cg", **TIGHT), load_wine),
    (LogisticRegression(C=0.5, solver="newton-cholesky", **TIGHT), load_breast_cancer),
    (LinearSVC(C=0.5, dual=False, **TIGHT), load_wine),
    (Ridge(alpha=2.0), load_diabetes),
    (PoissonRegressor(alpha=0.3, solver="newton-cholesky", **TIGHT), load_diabetes),
]


def at_zero(model, load):
    X, y = load(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    fitted = read(model.fit(X, y), (X, y))
    start = replace(
        fitted.model, weight=torch.zeros_like(fitted.model.weight), bias=torch.zeros_like(fitted.model.bias)
    )
    return fitted, start


@pytest.mark.parametrize(("model", "load"), MODELS, ids=lambda value: type(value).__name__)
def test_from_zero_to_where_the_best_stock_solver_ends(model, load):
    fitted, start = at_zero(model, load)
    polished = polish(start, fitted.table, fitted.weight)
    assert polished.converged
    np.testing.assert_allclose(polished.model.weight, fitted.model.weight, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(("model", "load"), MODELS, ids=lambda value: type(value).__name__)
def test_without_forming_the_hessian(model, load, monkeypatch):
    fitted, start = at_zero(model, load)
    dense = polish(start, fitted.table, fitted.weight)
    monkeypatch.setattr(newton_polish, "DENSE_LIMIT", 1)
    free = polish(start, fitted.table, fitted.weight)
    assert free.converged
    torch.testing.assert_close(free.model.weight, dense.model.weight, rtol=0, atol=1e-9)


def test_collinear_columns_do_not_stop_it():
    X, y = load_diabetes(return_X_y=True)
    X = np.hstack([X, X[:, :3]])
    fitted = read(Ridge(alpha=1e-9).fit(X, y), (X, y))
    assert polish(fitted.model, fitted.table, fitted.weight).converged


@pytest.mark.parametrize("limit", [3_000, 1], ids=["dense", "matrix-free"])
@pytest.mark.parametrize("loss", [LogisticRegression(C=np.inf), LinearRegression()], ids=["logistic", "squares"])
def test_units_and_origins_of_columns_change_nothing(loss, limit, monkeypatch):
    """Without a penalty the optimum in other units is the same one; each column to its own relative precision."""
    monkeypatch.setattr(newton_polish, "DENSE_LIMIT", limit)
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(200, 7))
    signal = Z @ rng.normal(size=7) / 2 + rng.normal(size=200)
    y = signal if isinstance(loss, LinearRegression) else (signal > 0).astype(int)
    scale, offset = 10.0 ** np.arange(-9, 10, 3), np.array([0, 1e3, 30, 1, 0, 1e4, 5])
    fitted = read(loss.fit(Z, y), (Z, y))
    plain = polish(fitted.model, fitted.table, fitted.weight)
    table = Records(torch.from_numpy((Z + offset) * scale), fitted.table.y)
    start = replace(fitted.model, weight=torch.zeros(1, 7).double(), bias=torch.zeros(1).double())
    other = polish(start, table, fitted.weight)
    assert plain.converged
    assert other.converged
    torch.testing.assert_close(other.model.weight * scale, plain.model.weight, rtol=1e-9, atol=0)


def test_separable_classes_have_no_optimum():
    X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    y = np.array([0, 0, 1, 1])
    fitted = read(LogisticRegression(C=np.inf).fit(X, y), (X, y))
    assert not polish(fitted.model, fitted.table, fitted.weight).converged


@pytest.mark.parametrize("scale", [float("inf"), float("nan"), 1e308])
def test_a_curvature_beyond_all_numbers_ends_the_search(scale):
    hessians = scale * torch.tensor([[[1.0, 2.0], [2.0, 1.0]]], dtype=torch.float64)
    step = newton_polish.damped_solve(hessians, torch.ones(1, 2).double())
    assert step.shape == (1, 2)
    assert step.eq(0).all()


def objective(problem, theta):
    """As a function of the weights of centred features, by its definition."""
    model = problem.model(problem.uncentred(theta))
    losses = model.loss(model.outputs(problem.table.x), problem.table.y)
    penalty = (problem.template.ridges() * problem.uncentred(theta).square()).sum() / 2
    return problem.weight @ losses + penalty


WIDE = [
    LogisticRegression(C=0.5),
    LogisticRegression(C=0.5, fit_intercept=False),
    LogisticRegression(C=0.5, solver="liblinear"),
    LinearSVC(C=0.1),
    Ridge(alpha=2.0),
]


def wide(model, classes=2, offset=3.0):
    """Fewer rows than columns."""
    rng = np.random.default_rng(0)
    X, noise = rng.normal(size=(30, 50)) + offset, rng.normal(size=30)
    signal = X[:, 0] + noise
    y = (
        signal
        if isinstance(model, Ridge)
        else np.digitize(signal, np.quantile(signal, np.arange(1, classes) / classes))
    )
    fitted = read(model.fit(X, y), (X, y))
    return newton_polish._Problem.of(fitted.model, fitted.table, fitted.weight)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("limit", "block"), [(3_000, 500_000), (3_000, 150), (1, 500_000)])
@pytest.mark.parametrize(
    ("model", "classes"), [*((model, 2) for model in WIDE), (LogisticRegression(), 3), (LinearSVC(), 3)], ids=str
)
def test_a_step_is_that_of_the_hessian_by_definition(model, classes, limit, block, monkeypatch):
    """With the Hessian, in blocks of three rows, and without it: conjugate gradients stop at a hundredth."""
    monkeypatch.setattr(newton_polish, "DENSE_LIMIT", limit)
    monkeypatch.setattr("lostwax.games.fitted.BLOCK_NUMBERS", block)
    problem = wide(model, classes)
    theta = problem.start
    own = torch.cat([theta[:, :-1], theta[:, -1:] + theta @ problem.centre[:, None]], 1)
    centred = theta if problem.template.bias is None else own
    value, gradient = problem.slope(theta)
    by_torch = torch.autograd.functional.jacobian(lambda at: objective(problem, at), centred)
    hessian = torch.autograd.functional.hessian(lambda at: objective(problem, at), centred)
    torch.testing.assert_close(value, objective(problem, centred))
    torch.testing.assert_close(gradient, by_torch, rtol=1e-9, atol=1e-9)
    size, right = gradient.numel(), problem.slope(theta / 2)[1]
    step = problem.newton_step(theta, right, torch.full_like(right, 1e-16))
    left = (hessian.reshape(size, size) @ step.reshape(-1) + right.reshape(-1)).abs().max() / right.abs().max()
    assert left < (0.02 if limit == 1 else 1e-9)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", [*WIDE, LogisticRegression(C=1e9)], ids=str)
@pytest.mark.parametrize("offset", [0.0, 10.0])
def test_without_the_hessian_the_optimum_is_the_same(model, offset, monkeypatch):
    problem = wide(model, offset=offset)
    dense = polish(problem.template, problem.table, problem.weight)
    monkeypatch.setattr(newton_polish, "DENSE_LIMIT", 1)
    without = polish(problem.template, problem.table, problem.weight)
    assert without.converged == dense.converged
    torch.testing.assert_close(without.model.weight, dense.model.weight, rtol=1e-6, atol=1e-9)
