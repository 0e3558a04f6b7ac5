"""Estimators that the closed form cannot audit: why, in one sentence that claims nothing about how safe they are."""

from __future__ import annotations

from typing import Any

from lostwax.types.fields import shown

COVERED = (
    "LinearRegression, Ridge, RidgeCV, LogisticRegression, LogisticRegressionCV, PoissonRegressor, GammaRegressor, "
    "TweedieRegressor, LinearSVC, OneVsRestClassifier of LogisticRegression or LinearSVC, and GaussianNB, alone or "
    "behind StandardScaler and MinMaxScaler in a Pipeline; and, whatever comes after them, the means of a leading "
    "StandardScaler or PCA and the range of a leading MinMaxScaler"
)
SHADOWS = "Attacks that learn from shadow models could; here they attack torch nets (trainer, threat, prior, secrets)."
TREES = (
    "it keeps thresholds and leaf averages, which depend on the records but are no sum over rows that could be solved "
    "for one"
)
STORED = "it needs no attack: it stores its training records, and whoever has the model has them"
VECTORS = "it stores its support vectors as they are (support_vectors_), and whoever has the model has them"
OPTIMUM = "its objective has no single optimum to solve at"

# where the class lives, an attribute it must have, why the closed form does not apply, and what else there is
REASONS = (
    ("sklearn.tree", "tree_", TREES, f" {SHADOWS}"),
    ("sklearn.ensemble._forest", "estimators_", TREES, f" {SHADOWS}"),
    ("sklearn.ensemble._gb", "estimators_", TREES, f" {SHADOWS}"),
    ("sklearn.ensemble._hist_gradient_boosting", "_predictors", TREES, f" {SHADOWS}"),
    ("sklearn.neighbors", "_fit_X", STORED, ""),
    ("sklearn.gaussian_process", "base_estimator_", STORED, ""),
    ("sklearn.gaussian_process", "X_train_", STORED, ""),
    ("sklearn.svm", "support_vectors_", VECTORS, ""),
    (
        "sklearn.neural_network",
        "coefs_",
        OPTIMUM,
        f" Train it with lw.GD, lw.SGD or lw.Adam as a torch module. {SHADOWS}",
    ),
)


class NotReadError(Exception):
    """A fitted estimator of which nothing is read; `reason` is half a sentence about it."""

    def __init__(self, reason: str, more: str) -> None:
        super().__init__(f"audit: {reason}{more}")
        self.reason = reason


class KindNotReadError(NotReadError, TypeError):
    """... whatever its settings."""


class SettingNotReadError(NotReadError, ValueError):
    """... with these settings."""


def refusal(estimator: Any) -> TypeError:
    """The error for an estimator that cannot be read."""
    kind = type(estimator)
    if isinstance(estimator, type) or not hasattr(estimator, "get_params"):
        return TypeError(
            "audit: expected a fitted scikit-learn estimator (or a torch module with trainer=...), "
            f"got {shown(estimator)}."
        )
    for home, attribute, reason, more in REASONS:
        if kind.__module__.startswith(home) and hasattr(estimator, attribute):
            return KindNotReadError(f"the closed form does not apply to {kind.__name__}: {reason}", f".{more}")
    return KindNotReadError(f"the closed form does not cover {kind.__name__}", f". It covers {COVERED}. {SHADOWS}")


def not_covered(estimator: Any, setting: str, cure: str) -> SettingNotReadError:
    """The error for a setting under which the optimum is not a sum over rows that vanishes."""
    return SettingNotReadError(
        f"the closed form does not cover {type(estimator).__name__} with {setting}",
        f": at its optimum the rows' gradients do not sum to what the weights say. It covers {cure}.",
    )


def cannot_look_behind(step: Any) -> SettingNotReadError:
    """The error for a pipeline whose model is fitted on what a step makes of the rows."""
    return SettingNotReadError(
        f"the closed form cannot look behind {type(step).__name__} in a Pipeline",
        "; it can behind StandardScaler and MinMaxScaler. So nothing in this Pipeline was audited, and this says "
        "nothing about how safe it is.",
    )
