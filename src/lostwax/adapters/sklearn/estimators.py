"""Each covered estimator as the equation its fitted attributes satisfy (who penalises the intercept, and how)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch
from inspect import signature
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import (
    GammaRegressor,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    RidgeCV,
    TweedieRegressor,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor

from lostwax.adapters.sklearn.inputs import class_numbers, published, regression_targets
from lostwax.fields import shown
from lostwax.games import Loss, Stationary, Sums
from lostwax.games.facts import loss_facts
from lostwax.losses import BinaryCrossEntropy, CrossEntropy, SquaredError, SquaredHinge, Tweedie

# Estimators that the closed form cannot audit: why, in one sentence that claims nothing about how safe they are.


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


Array = np.ndarray[Any, np.dtype[Any]]
LOOSE = 1e-2  # a solver with this tolerance was told to stop early
BALANCING = signature(compute_class_weight).parameters  # newer versions balance by sample weight


@dataclass(frozen=True)
class Reading:
    """What an estimator publishes, and its labels and weights as its objective sees them."""

    y: Tensor
    weight: Tensor  # sample weight times class weight
    model: Stationary | None = None
    sums: tuple[Sums, ...] = ()
    classes: tuple[object, ...] = ()
    notes: tuple[str, ...] = ()


@singledispatch
def read_estimator(estimator: Any, y: Array, weight: Tensor) -> Reading:
    """Read the last step of a pipeline; dispatched on the estimator's type."""
    raise refusal(estimator)


@read_estimator.register(LinearRegression)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    if estimator.positive:
        raise not_covered(estimator, "positive=True", "positive=False")
    return _regressed(y, weight, _linear(estimator, SquaredError(), 0.0))


@read_estimator.register(Ridge)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    if estimator.positive:
        raise not_covered(estimator, "positive=True", "positive=False")
    return _regressed(y, weight, _linear(estimator, SquaredError(), estimator.alpha))


@read_estimator.register(RidgeCV)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    return _regressed(y, weight, _linear(estimator, SquaredError(), estimator.alpha_))


@read_estimator.register(PoissonRegressor)
@read_estimator.register(GammaRegressor)
@read_estimator.register(TweedieRegressor)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    fixed = {PoissonRegressor: 1.0, GammaRegressor: 2.0}
    power = next((fixed[kind] for kind in fixed if isinstance(estimator, kind)), None)
    power = float(estimator.power) if power is None else power
    log = getattr(estimator, "link", "auto") == "log" or (getattr(estimator, "link", "auto") == "auto" and power > 0)
    ridge = estimator.alpha * float(weight.sum())  # the loss is a mean over all rows, the secret one counted
    return _regressed(y, weight, _linear(estimator, Tweedie(power, "log" if log else "identity"), ridge))


@read_estimator.register(LogisticRegression)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    if not getattr(estimator, "refit", True):
        raise not_covered(estimator, "refit=False", "refit=True")
    chosen = "_" if hasattr(estimator, "C_") else ""  # LogisticRegressionCV: what it settled on
    l1_ratios = np.ravel(np.asarray(getattr(estimator, f"l1_ratio{chosen}", None), dtype=object))
    penalty = getattr(estimator, "penalty", "l2")  # older versions say it with words, newer with C and l1_ratio
    if penalty in ("l1", "elasticnet") or (penalty != "l2" and any(ratio for ratio in l1_ratios)):
        raise not_covered(estimator, "an L1 penalty", "an L2 penalty alone")
    several = len(estimator.classes_) > 2
    one_vs_rest = _is_liblinear(estimator) or getattr(estimator, "multi_class", "auto") == "ovr"
    loss = CrossEntropy() if several and not one_vs_rest else BinaryCrossEntropy()
    C = np.ravel(np.asarray(getattr(estimator, f"C{chosen}"), dtype=np.float64))
    if not one_vs_rest and len(set(C.tolist())) > 1:
        raise not_covered(estimator, f"a C_ for each class ({C.tolist()})", "one C for all, unless one-vs-rest")
    # C_c sum of losses + |W_c|^2 / 2: one-vs-rest chooses a C for each class, of which older versions keep a list
    ridge = 0.0 if penalty is None else 1 / (C if one_vs_rest and several else C[0])
    model = _linear(estimator, loss, ridge, penalised_bias=_is_liblinear(estimator))
    return _classified(estimator, y, weight, model)


@read_estimator.register(LinearSVC)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    if estimator.loss != "squared_hinge":
        raise not_covered(estimator, f"loss={estimator.loss!r}", "loss='squared_hinge'")
    if estimator.penalty != "l2":
        raise not_covered(estimator, f"penalty={estimator.penalty!r}", "penalty='l2'")
    if estimator.multi_class != "ovr":
        raise not_covered(estimator, f"multi_class={estimator.multi_class!r}", "multi_class='ovr'")
    model = _linear(estimator, SquaredHinge(), 1 / estimator.C, penalised_bias=True)
    return _classified(estimator, y, weight, model)


@read_estimator.register(OneVsRestClassifier)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    numbers = class_numbers(y, estimator.classes_)
    parts: list[Stationary] = []
    for number, part in enumerate(estimator.estimators_):
        if getattr(part, "class_weight", None) is not None:
            raise not_covered(estimator, "class_weight=... in its estimator", "class_weight=None")
        own = (numbers == (1 if len(estimator.estimators_) == 1 else number)).long().numpy()
        reading = read_estimator(part, own, weight)
        facts = None if reading.model is None else loss_facts(reading.model.loss, 1)
        if reading.model is None or facts is None or facts.classes is None:
            raise refusal(part)
        parts.append(reading.model)
    return Reading(numbers, weight, _stack(parts), classes=tuple(estimator.classes_.tolist()))


@read_estimator.register(GaussianNB)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    counts = torch.from_numpy(published(estimator, "class_count_"))
    means = torch.from_numpy(published(estimator, "theta_"))
    sums = Sums("GaussianNB's class means", means * counts[:, None], counts, by_label=True, weighted=True)
    note = "class_count_ gives the label away, theta_ the row: n_c theta_c less the known rows of class c."
    numbers = class_numbers(y, estimator.classes_)
    return Reading(numbers, weight, sums=(sums,), classes=tuple(estimator.classes_.tolist()), notes=(note,))


def _regressed(y: Array, weight: Tensor, model: Stationary) -> Reading:
    return Reading(regression_targets(y, len(model.weight)), weight, model)


def _is_liblinear(estimator: Any) -> bool:
    return isinstance(estimator, LinearSVC) or estimator.solver == "liblinear"


def _classified(estimator: Any, y: Array, weight: Tensor, model: Stationary) -> Reading:
    numbers = class_numbers(y, estimator.classes_)
    notes: tuple[str, ...] = ()
    if estimator.class_weight is not None:
        if (
            _is_liblinear(estimator) and len(estimator.classes_) > 2
        ):  # liblinear weighs the class, not the rest against it
            raise not_covered(estimator, "class_weight=... with more than two classes", "class_weight=None")
        counted = {"sample_weight": weight.numpy()} if "sample_weight" in BALANCING else {}
        shares = compute_class_weight(estimator.class_weight, classes=estimator.classes_, y=y, **counted)
        weight = weight * torch.from_numpy(np.asarray(shares, dtype=np.float64))[numbers]
        notes = ("the class weights are taken as known to the adversary.",)
    return Reading(numbers, weight, model, classes=tuple(estimator.classes_.tolist()), notes=notes)


def _linear(estimator: Any, loss: Loss, ridge: Any, *, penalised_bias: bool = False) -> Stationary:
    weight = torch.from_numpy(np.atleast_2d(published(estimator, "coef_")))  # (c, d)
    c, d = weight.shape
    bias = None
    if estimator.fit_intercept:
        bias = torch.from_numpy(np.broadcast_to(published(estimator, "intercept_"), (c,)).copy())
    strength = torch.from_numpy(np.broadcast_to(np.asarray(ridge, dtype=np.float64), (c,)).copy())
    # liblinear appends a column of `intercept_scaling` and penalises its weight b / intercept_scaling like the others
    scaling = getattr(estimator, "intercept_scaling", 1.0)
    bias_ridge = strength / scaling**2 if penalised_bias else torch.zeros_like(strength)
    iterations, limit = getattr(estimator, "n_iter_", None), getattr(estimator, "max_iter", None)
    stopped = iterations is not None and limit is not None and bool(np.max(iterations) >= limit)
    stopped = stopped or getattr(estimator, "tol", 0.0) >= LOOSE
    return Stationary(weight, bias, loss, strength, bias_ridge, weight.new_zeros(d), weight.new_ones(d), stopped)


def _stack(parts: list[Stationary]) -> Stationary:
    """Binary models of one class each, side by side."""
    first = parts[0]
    biases = [part.bias for part in parts if part.bias is not None]
    return replace(
        first,
        weight=torch.cat([part.weight for part in parts]),
        bias=torch.cat(biases) if biases else None,
        ridge=torch.cat([part.ridge for part in parts]),
        bias_ridge=torch.cat([part.bias_ridge for part in parts]),
        stopped_early=any(part.stopped_early for part in parts),
    )
