"""What tests of boosted trees share: tables, and the check that trees say nothing wrong about their rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

from lostwax.adapters.sklearn import released
from lostwax.adapters.trees import Grown
from lostwax.attacks.trees import TreeConstraints
from lostwax.games import Fitted, ReleasedTable

TABLES = {"diabetes": load_diabetes, "breast cancer": load_breast_cancer, "wine": load_wine}


def table(name: str, gaps: float = 0.0) -> tuple[Any, Any]:
    X, y = TABLES[name](return_X_y=True)
    X[np.random.default_rng(0).random(X.shape) < gaps] = np.nan
    return X, y


def mixed(n: int = 300) -> tuple[Any, Any]:
    """Numbers with gaps and zeros, whole numbers, truth values and categories with gaps."""
    pandas = __import__("pandas")
    rng = np.random.default_rng(1)
    X = pandas.DataFrame(
        {
            "size": rng.normal(size=n).round(2),
            "age": rng.integers(-20, 50, n),
            "town": pandas.Categorical(rng.choice(list("pqrstuvwxyz"), n)),
            "income": rng.lognormal(size=n),
            "owns": rng.random(n) < 0.3,
        }
    )
    y = X["age"] + 10 * X["town"].cat.codes + rng.normal(size=n)
    X.loc[rng.random(n) < 0.1, "size"] = np.nan
    X.loc[rng.random(n) < 0.1, "town"] = np.nan
    return X, y


def part_of(release: ReleasedTable) -> Fitted:
    """The part of a release that has trees."""
    (fitted,) = (part.fitted for part in release.parts if part.fitted.forest is not None)
    return fitted


def forest_part(model: Any, X: Any, y: Any, sample_weight: Any = None) -> Fitted:
    return part_of(released(model, (X, y), sample_weight))


def check(fitted: Fitted) -> float:
    """Sizes are those of the rows, and the attack tells nothing wrong; the share of cells that it tells exactly."""
    forest = fitted.forest
    x = forest.cast(fitted.table.x.numpy())
    for tree in forest.trees:
        grown = Grown.of(tree, x, strict=forest.strict)
        apart = np.abs(grown.sums(tree.share) - tree.size)
        assert (apart <= tree.rounding)[np.unique(grown.nodes)].all()
    bounds, labels = TreeConstraints().leave_one_out(fitted, torch.arange(len(x)))
    gap = np.isnan(x)
    assert (((bounds.low <= x) & (x <= bounds.high)) | gap).all()
    assert bounds.maybe_missing[gap].all()
    assert not (bounds.exact & gap).any()
    for column, possible in bounds.codes.items():
        rows = np.flatnonzero(~gap[:, column])
        assert possible[rows, x[rows, column].astype(int)].all()
    if labels is not None:
        y = fitted.table.y.double().numpy()
        close = np.abs(labels.values - y) <= labels.error + 1e-9 * np.abs(y)
        assert close[labels.known].all()
    return float(bounds.exact.mean())


def tells_sizes(fitted: Fitted) -> list[bool]:
    return [bool(np.isfinite(tree.rounding).any()) for tree in fitted.forest.trees]
