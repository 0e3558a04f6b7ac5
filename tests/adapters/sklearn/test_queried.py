"""Weights from predictions are those of the file."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes, load_digits, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor, Ridge, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from equations import read
from lostwax.adapters.sklearn.queried import queried


class Caller:
    """A model behind a service: nothing but its predictions, which are counted."""

    def __init__(self, model, method):
        self.model, self.method, self.asked = model, method, 0
        setattr(self, method, self.ask)

    def ask(self, X):
        self.asked += len(X)
        return getattr(self.model, self.method)(X)


CASES = [
    (LogisticRegression(max_iter=10_000), load_wine, "predict_proba"),
    (LogisticRegression(max_iter=10_000), load_digits, "predict_proba"),
    (LogisticRegression(max_iter=10_000), load_digits, "decision_function"),
    (make_pipeline(StandardScaler(), LogisticRegression()), load_wine, "predict_proba"),
    (RidgeClassifier(), load_wine, "decision_function"),
    (LinearRegression(), load_diabetes, "predict"),
    (make_pipeline(StandardScaler(), Ridge()), load_diabetes, "predict"),
    (PoissonRegressor(max_iter=1_000), load_diabetes, "predict"),
]


@pytest.mark.parametrize(("model", "load", "method"), CASES, ids=lambda case: getattr(case, "__name__", str(case)[:20]))
def test_weights_are_those_of_the_file(model, load, method):
    X, y = load(return_X_y=True)
    stored = read(model.fit(X, y), (X, y)).model
    blank = stored.at(torch.full_like(stored.parameters(), torch.nan))
    caller = Caller(model, method)
    seen = queried(blank, caller, torch.from_numpy(X))
    scale = stored.weight.abs().max()
    assert (seen.weight - stored.weight).abs().max() < 1e-6 * scale
    assert (seen.bias - stored.bias).abs().max() < 1e-6 * (1 + stored.bias.abs().max())
    assert caller.asked <= 3 * (X.shape[1] + 3)


def test_two_classes():
    X, y = load_wine(return_X_y=True)
    model = LogisticRegression(max_iter=10_000).fit(X, y == 1)
    stored = read(model, (X, y == 1)).model
    for method in ("predict_proba", "decision_function"):
        seen = queried(stored, Caller(model, method), torch.from_numpy(X))
        np.testing.assert_allclose(seen.weight, model.coef_, atol=1e-7 * np.abs(model.coef_).max())


def test_what_is_not_linear_is_refused():
    X, y = load_wine(return_X_y=True)
    stored = read(LogisticRegression(max_iter=10_000).fit(X, y), (X, y)).model
    with pytest.raises(ValueError, match="not an affine function"):
        queried(stored, RandomForestClassifier(n_estimators=5).fit(X, y), torch.from_numpy(X))
