"""The optimum under an L1 penalty is that of coordinate descent, from any start."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes, load_wine
from sklearn.linear_model import ElasticNet, LogisticRegression
from sklearn.preprocessing import StandardScaler

from lostwax.games import Records, Stationary
from lostwax.losses import CrossEntropy, SquaredError
from lostwax.trainers.minimum import sparse_optimum


def problem(weight, loss, ridge, l1, **more):
    weight = torch.as_tensor(weight, dtype=torch.float64)
    c, d = weight.shape
    zeros, ones = torch.zeros(c).double(), torch.ones(d).double()
    return Stationary(weight, zeros, loss, zeros + ridge, zeros, 0 * ones, ones, l1=zeros + l1, **more)


@pytest.mark.parametrize("start", ["zero", "random", "optimum"])
@pytest.mark.parametrize(("alpha", "share"), [(1.0, 1.0), (20.0, 1.0), (1.0, 0.5)])
def test_least_squares_on_columns_of_many_scales(alpha, share, start):
    X, y = load_diabetes(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    X[:, 1], X[:, 4] = 10 * X[:, 1] + 100, X[:, 4] + 1_000  # a mean that is large compared to the spread
    reference = ElasticNet(alpha=alpha, l1_ratio=share, tol=1e-14, max_iter=1_000_000).fit(X, y)
    drawn = np.random.default_rng(0).normal(0, 10, (1, 10))
    begin = {"zero": np.zeros((1, 10)), "random": drawn, "optimum": reference.coef_[None]}[start]
    n = len(y)
    model = problem(begin, SquaredError(), alpha * (1 - share) * n, alpha * share * n)
    found = sparse_optimum(model, Records(torch.tensor(X), torch.tensor(y)), torch.ones(n).double())
    assert found.converged
    np.testing.assert_allclose(found.model.weight[0], reference.coef_, rtol=1e-9, atol=1e-9)
    assert ((found.model.weight[0] != 0).numpy() == (reference.coef_ != 0)).all()


def test_classes_that_share_a_softmax():
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    reference = LogisticRegression(C=0.1, l1_ratio=1, solver="saga", tol=1e-10, max_iter=100_000).fit(X, y)
    table, weight = Records(torch.tensor(X), torch.tensor(y)), torch.ones(len(y)).double()
    found = sparse_optimum(problem(np.zeros((3, 13)), CrossEntropy(), 0.0, 10.0), table, weight)
    assert found.converged
    np.testing.assert_allclose(found.model.weight, reference.coef_, atol=1e-7)


def test_weights_that_were_dropped_stay_zero():
    X, y = load_diabetes(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    dropped = torch.arange(10) == 2
    model = problem(np.zeros((1, 10)), SquaredError(), 1.0, 442.0, dropped=dropped)
    table, weight = Records(torch.tensor(X), torch.tensor(y)), torch.ones(len(y)).double()
    found = sparse_optimum(model, table, weight)
    kept = np.flatnonzero(~dropped.numpy())
    less = sparse_optimum(
        problem(np.zeros((1, 9)), SquaredError(), 1.0, 442.0), Records(table.x[:, kept], table.y), weight
    )
    assert found.converged
    assert found.model.weight[0, 2] == 0
    torch.testing.assert_close(found.model.weight[:, kept], less.model.weight)


def test_no_optimum_is_said():
    x = torch.linspace(-1, 1, 20).double()[:, None]
    y = (x[:, 0] > 0).long()
    model = problem(np.zeros((2, 1)), CrossEntropy(), 0.0, 0.0)  # separable classes, no penalty
    assert not sparse_optimum(model, Records(x, y), torch.ones(20).double()).converged
