"""Estimators that the closed form cannot audit: one sentence why, and what can."""

from __future__ import annotations

from typing import Any

COVERED = (
    "LinearRegression, Ridge, RidgeCV, LogisticRegression, LogisticRegressionCV, PoissonRegressor, GammaRegressor, "
    "TweedieRegressor, LinearSVC, OneVsRestClassifier of LogisticRegression or LinearSVC, and GaussianNB, alone or "
    "behind StandardScaler and MinMaxScaler in a Pipeline"
)
SHADOWS = "Attacks that learn from shadow models could; here they attack torch nets (trainer, threat, prior, secrets)."
TREES = f"it keeps thresholds and leaf averages, not a sum over rows that could be solved for one. {SHADOWS}"
STORED = "it needs no attack: it stores its training records, and whoever has the model has them."

# where the class lives, an attribute it must have, and why the closed form does not apply
REASONS = (
    ("sklearn.tree", "tree_", TREES),
    ("sklearn.ensemble._forest", "estimators_", TREES),
    ("sklearn.ensemble._gb", "estimators_", TREES),
    ("sklearn.ensemble._hist_gradient_boosting", "_predictors", TREES),
    ("sklearn.neighbors", "_fit_X", STORED),
    ("sklearn.gaussian_process", "base_estimator_", STORED),
    ("sklearn.gaussian_process", "X_train_", STORED),
    (
        "sklearn.svm",
        "support_vectors_",
        "the kernel makes the model a sum over support vectors, which it stores as they are (support_vectors_): "
        "whoever has the model has them. Other records leave no trace.",
    ),
    (
        "sklearn.neural_network",
        "coefs_",
        "its objective has no single optimum to solve at. Train it with lw.GD, lw.SGD or lw.Adam as a torch module. "
        + SHADOWS,
    ),
)


def refusal(estimator: Any) -> TypeError:
    """The error for an estimator that cannot be read."""
    kind = type(estimator)
    for home, attribute, reason in REASONS:
        if kind.__module__.startswith(home) and hasattr(estimator, attribute):
            return TypeError(f"audit: the closed form does not apply to {kind.__name__}: {reason}")
    if isinstance(estimator, type) or not hasattr(estimator, "get_params"):
        return TypeError(
            "audit: expected a fitted scikit-learn estimator (or a torch module with trainer=...), "
            f"got {estimator!r:.60}."
        )
    return TypeError(f"audit: the closed form does not cover {kind.__name__}. It covers {COVERED}. {SHADOWS}")


def not_covered(estimator: Any, setting: str, cure: str) -> ValueError:
    """The error for a setting under which the optimum is not a sum over rows that vanishes."""
    return ValueError(
        f"audit: the closed form does not cover {type(estimator).__name__} with {setting}: at its optimum the rows' "
        f"gradients do not sum to what the weights say. It covers {cure}."
    )
