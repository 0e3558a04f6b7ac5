"""Each linear model as the equation that its fitted attributes satisfy, and why there is none for others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import singledispatch
from inspect import signature
from typing import Any

import numpy as np
import torch
from sklearn import linear_model
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC, LinearSVR
from sklearn.utils import Tags, TargetTags, get_tags
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor

from lostwax import losses
from lostwax.adapters.sklearn.inputs import class_numbers, published, regression_targets
from lostwax.fields import shown
from lostwax.games import Loss, Noted, Stationary, Sums
from lostwax.games.facts import loss_facts

STORED = "it stores its training records, so no attack is needed: anyone with the model has them"
VECTORS = "it stores its support vectors (support_vectors_), so no attack is needed: anyone with the model has them"
OPTIMUM = "its objective has no unique optimum"
CORNERS = "its loss has corners, so its optimum leaves no equation for the rows on them"
MISTAKES = "it minimises no objective: its weights depend on the order of the rows"

# module, an attribute of the fitted model, why the closed form does not apply
REASONS = (
    ("sklearn.neighbors", "_fit_X", STORED),
    ("sklearn.gaussian_process", "base_estimator_", STORED),
    ("sklearn.gaussian_process", "X_train_", STORED),
    ("sklearn.svm", "support_vectors_", VECTORS),
    ("sklearn.neural_network", "coefs_", OPTIMUM),
    ("sklearn.linear_model._quantile", "coef_", CORNERS),
    ("sklearn.linear_model._perceptron", "coef_", MISTAKES),
    ("sklearn.linear_model._passive_aggressive", "coef_", MISTAKES),
)


class NotReadError(Exception):
    """A fitted estimator that cannot be read; `reason` says why, as a clause."""

    def __init__(self, reason: str, more: str) -> None:
        super().__init__(f"audit: {reason}{more}")
        self.reason = reason


class KindNotReadError(NotReadError, TypeError):
    """An estimator that is not supported at all."""


class SettingNotReadError(NotReadError, ValueError):
    """An estimator that is not supported with these settings."""


def is_model(model: Any) -> bool:
    """An estimator of scikit-learn, or any object that can be fitted and asked."""
    asked = any(hasattr(model, name) for name in ("predict", "predict_proba", "decision_function", "transform"))
    return not isinstance(model, type) and (hasattr(model, "get_params") or (hasattr(model, "fit") and asked))


def tags_of(model: Any) -> Tags:
    """The tags of scikit-learn; those that say nothing for an object that states none."""
    try:
        return get_tags(model)
    except (AttributeError, TypeError):
        return Tags(estimator_type=None, target_tags=TargetTags(required=False))


def is_classifier(model: Any) -> bool:
    """Does a model state that its labels are classes?"""
    return bool(tags_of(model).estimator_type == "classifier")


def is_regressor(model: Any) -> bool:
    """Does a model state that its labels are numbers?"""
    return bool(tags_of(model).estimator_type == "regressor")


def refusal(estimator: Any) -> TypeError:
    """The error for an estimator that cannot be read."""
    kind = type(estimator)
    if not is_model(estimator):
        return TypeError(
            "audit: expected a fitted scikit-learn estimator, another object with fit and predict, or a torch module "
            f"with trainer=..., got {shown(estimator)}."
        )
    for home, attribute, reason in REASONS:
        if kind.__module__.startswith(home) and hasattr(estimator, attribute):
            return KindNotReadError(f"the closed form does not apply to {kind.__name__}: {reason}", ".")
    return KindNotReadError(f"the closed form does not support {kind.__name__}", ".")


def not_supported(estimator: Any, setting: str) -> SettingNotReadError:
    """The error for a setting under which the gradients of the rows do not sum to zero at the optimum."""
    return SettingNotReadError(f"the closed form does not support {type(estimator).__name__} with {setting}", ".")


Array = np.ndarray[Any, np.dtype[Any]]
LOOSE = 1e-2  # a solver with this tolerance stops early
BALANCING = signature(compute_class_weight).parameters  # newer versions balance by sample weight
ONE_BY_ONE = (LinearSVC, linear_model.SGDClassifier)  # each class is fitted by itself
BALANCED_BY_ROWS = (linear_model.RidgeClassifier, linear_model.RidgeClassifierCV, linear_model.SGDClassifier)


@dataclass(frozen=True)
class Reading:
    """What an estimator publishes, with the labels and weights of its objective."""

    y: Tensor
    weight: Tensor  # sample weight times class weight
    model: Stationary | None = None
    sums: tuple[Sums, ...] = ()
    classes: tuple[object, ...] = ()
    notes: tuple[Noted, ...] = ()


@singledispatch
def read_estimator(estimator: Any, y: Array, weight: Tensor) -> Reading:
    """Read the last step of a pipeline; dispatched on the estimator's type."""
    raise refusal(estimator)


def has_reader(estimator: Any) -> bool:
    """Is there an equation for its type, whatever its settings?"""
    return read_estimator.dispatch(type(estimator)) is not read_estimator.dispatch(object)


@read_estimator.register(linear_model.LinearRegression)
@read_estimator.register(linear_model.Ridge)
@read_estimator.register(linear_model.RidgeCV)
@read_estimator.register(linear_model.RidgeClassifier)
@read_estimator.register(linear_model.RidgeClassifierCV)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    loss = losses.SquaredSignError() if is_classifier(estimator) else losses.SquaredError()
    return _at_optimum(estimator, y, weight, _linear(estimator, loss, _chosen(estimator, "alpha")))


@read_estimator.register(linear_model.HuberRegressor)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    scale = float(estimator.scale_)  # sum_i 2 Huber_i / scale_ + alpha |w|^2
    model = _linear(estimator, losses.Huber(estimator.epsilon * scale), estimator.alpha * scale)
    note = "scale_ is kept as released; of an outlier's target only a bound is revealed."
    return _at_optimum(estimator, y, weight, model, note)


LOSSES: Mapping[bool, Mapping[str, Callable[[float], Loss]]] = {  # of epsilon, for classifiers and for regressors
    True: {
        "log_loss": lambda epsilon: losses.BinaryCrossEntropy(),
        "squared_error": lambda epsilon: losses.SquaredSignError(),
        "modified_huber": lambda epsilon: losses.ModifiedHuber(),
        "squared_hinge": lambda epsilon: losses.SquaredHinge(),
    },
    False: {
        "squared_error": lambda epsilon: losses.SquaredError(),
        "huber": losses.Huber,
        "squared_epsilon_insensitive": losses.SquaredEpsilonInsensitive,
    },
}


@read_estimator.register(linear_model.SGDClassifier)
@read_estimator.register(linear_model.SGDRegressor)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    """Stochastic gradient descent approaches the optimum of the mean loss + alpha |w|^2 / 2."""
    known = LOSSES[is_classifier(estimator)]
    if estimator.loss not in known:
        raise not_supported(estimator, f"loss={estimator.loss!r}")
    if estimator.penalty not in ("l2", None):
        raise not_supported(estimator, f"penalty={estimator.penalty!r}")
    if estimator.early_stopping:
        raise not_supported(estimator, "early_stopping=True, which leaves rows out")
    ridge = 0.0 if estimator.penalty is None else estimator.alpha * len(y)
    model = _linear(estimator, known[estimator.loss](float(estimator.epsilon)), ridge)
    note = (
        f"{type(estimator).__name__} stops near the optimum of its objective, not at it: 'as converged' is what the "
        "same objective gives at its optimum."
    )
    return _at_optimum(estimator, y, weight, replace(model, stopped_early=True, stochastic=True), note)


@read_estimator.register(linear_model.ElasticNet)
@read_estimator.register(linear_model.ElasticNetCV)
@read_estimator.register(linear_model.LassoCV)
@read_estimator.register(linear_model.LassoLars)
@read_estimator.register(linear_model.LassoLarsCV)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    alpha, share = _chosen(estimator, "alpha"), _chosen(estimator, "l1_ratio", 1.0)
    strength = alpha * float(weight.sum())  # the loss is a mean over all rows, including the secret one
    model = _linear(estimator, losses.SquaredError(), (1 - share) * strength, l1=share * strength)
    return _at_optimum(estimator, y, weight, model)


@read_estimator.register(linear_model.MultiTaskElasticNet)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    raise refusal(estimator)  # a penalty on groups of weights, unlike that of its parent ElasticNet


@read_estimator.register(linear_model.PoissonRegressor)
@read_estimator.register(linear_model.GammaRegressor)
@read_estimator.register(linear_model.TweedieRegressor)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    stated, gamma = vars(estimator), isinstance(estimator, linear_model.GammaRegressor)
    power, link = stated.get("power", 2.0 if gamma else 1.0), stated.get("link", "auto")
    log = link == "log" or (link == "auto" and power > 0)
    ridge = estimator.alpha * float(weight.sum())  # the loss is a mean over all rows, including the secret one
    model = _linear(estimator, losses.Tweedie(float(power), "log" if log else "identity"), ridge)
    return _at_optimum(estimator, y, weight, model)


@read_estimator.register(linear_model.LogisticRegression)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    stated = vars(estimator)
    if not stated.get("refit", True):
        raise not_supported(estimator, "refit=False")
    chosen = "_" if "C_" in stated else ""  # LogisticRegressionCV: the chosen C
    l1_ratios = np.ravel(np.asarray(stated.get(f"l1_ratio{chosen}"), dtype=object))
    penalty = stated.get("penalty", "l2")  # newer versions have only C and l1_ratio
    fixed = {"l1": 1.0, "l2": 0.0}
    shares = np.array([fixed.get(penalty, ratio or 0.0) for ratio in l1_ratios], dtype=np.float64)
    several = len(estimator.classes_) > 2
    liblinear = estimator.solver == "liblinear"
    one_vs_rest = liblinear or stated.get("multi_class", "auto") == "ovr"
    loss = losses.CrossEntropy() if several and not one_vs_rest else losses.BinaryCrossEntropy()
    C = np.ravel(np.asarray(stated[f"C{chosen}"], dtype=np.float64))
    if not one_vs_rest and len(set(C.tolist())) > 1:
        raise not_supported(estimator, f"a C_ for each class ({C.tolist()})")
    # C_c sum of losses + |W_c|^2 / 2; one-vs-rest has a C per class, which older versions store as a list
    each = slice(None) if one_vs_rest and several else 0
    strength, share = 0.0 if penalty is None else 1 / C[each], shares[each]
    model = _linear(estimator, loss, (1 - share) * strength, l1=share * strength, penalised_bias=liblinear)
    return _at_optimum(estimator, y, weight, model)


@read_estimator.register(LinearSVC)
@read_estimator.register(LinearSVR)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    loss: Loss = (
        losses.SquaredHinge()
        if is_classifier(estimator)
        else losses.SquaredEpsilonInsensitive(float(estimator.epsilon))
    )
    if estimator.loss not in ("squared_hinge", "squared_epsilon_insensitive"):
        raise not_supported(estimator, f"loss={estimator.loss!r}")
    if getattr(estimator, "multi_class", "ovr") != "ovr":
        raise not_supported(estimator, f"multi_class={estimator.multi_class!r}")
    ridge, l1 = (0.0, 1 / estimator.C) if getattr(estimator, "penalty", "l2") == "l1" else (1 / estimator.C, 0.0)
    model = _linear(estimator, loss, ridge, l1=l1, penalised_bias=True)
    return _at_optimum(estimator, y, weight, model)


@read_estimator.register(OneVsRestClassifier)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    """Binary models, one for each class or one in all, side by side."""
    numbers = class_numbers(y, estimator.classes_)
    models: list[Stationary] = []
    for number, part in enumerate(estimator.estimators_):
        if vars(part).get("class_weight") is not None:
            raise not_supported(estimator, "class_weight=... in its estimator")
        is_class = numbers == (1 if len(estimator.estimators_) == 1 else number)
        model = read_estimator(part, is_class.long().numpy(), weight).model
        facts = None if model is None else loss_facts(model.loss, 1)
        if model is None or facts is None or facts.classes is None:
            raise refusal(part)
        models.append(model)
    joined: dict[str, Any] = {}
    for name in ("weight", "bias", "ridge", "bias_ridge", "l1", "bias_l1"):
        values = [getattr(model, name) for model in models]
        if any(value is not None for value in values):
            joined[name] = torch.cat([torch.zeros(1).double() if value is None else value for value in values])
    stopped_early = any(model.stopped_early for model in models)
    return _at_optimum(estimator, y, weight, replace(models[0], **joined, stopped_early=stopped_early))


@read_estimator.register(DummyRegressor)
@read_estimator.register(DummyClassifier)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    """An intercept alone, at the optimum of its loss: no feature has a weight, or an equation."""
    if is_classifier(estimator):
        if isinstance(estimator.classes_, list):
            raise not_supported(estimator, "several targets")
        bias = torch.from_numpy(published(estimator, "class_prior_")).log()  # whatever the strategy
    elif estimator.strategy != "mean":
        raise not_supported(estimator, f"strategy={estimator.strategy!r}")
    else:
        bias = torch.from_numpy(published(estimator, "constant_")).flatten()
    loss = losses.CrossEntropy() if is_classifier(estimator) else losses.SquaredError()
    c, d = len(bias), int(estimator.n_features_in_)
    none, free, unit = torch.zeros_like(bias), bias.new_zeros(d), bias.new_ones(d)
    model = Stationary(bias.new_zeros(c, d), bias, loss, none, none, free, unit, dropped=unit.bool())
    return _at_optimum(estimator, y, weight, model)


@read_estimator.register(GaussianNB)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    counts = torch.from_numpy(published(estimator, "class_count_"))
    means = torch.from_numpy(published(estimator, "theta_"))
    sums = Sums("GaussianNB's theta_", means * counts[:, None], counts, by_label=True, weighted=True)
    numbers, classes = class_numbers(y, estimator.classes_), tuple(estimator.classes_.tolist())
    return Reading(numbers, weight, sums=(sums,), classes=classes)


def targets_of(loss: Loss, y: Array, outputs: int = 1) -> tuple[Tensor, tuple[object, ...]]:
    """Labels as the loss of a model takes them, and the names of their classes."""
    facts = loss_facts(loss, outputs)
    if facts is None or facts.classes is None:
        return regression_targets(y, 1), ()
    names = np.unique(y)
    if len(names) != facts.classes:
        raise ValueError(
            f"audit: expected y with {facts.classes} classes, got {len(names)} values. Pass the labels of single "
            "records, not shares or counts."
        )
    return class_numbers(y, names), tuple(names.tolist())


def _chosen(estimator: Any, name: str, default: float = 0.0) -> Any:
    """A setting, as chosen by cross-validation where that was done."""
    return vars(estimator).get(f"{name}_", vars(estimator).get(name, default))


def _linear(estimator: Any, loss: Loss, ridge: Any, *, l1: Any = 0.0, penalised_bias: bool = False) -> Stationary:
    """The weights, as the optimum of sum_i loss_i + sum_c (ridge_c |W_c|^2 / 2 + l1_c |W_c|_1)."""
    stated = vars(estimator)
    if stated.get("positive", False):
        raise not_supported(estimator, "positive=True")
    weight = torch.from_numpy(np.atleast_2d(published(estimator, "coef_")))  # (c, d)
    c, d = weight.shape
    bias = None
    if estimator.fit_intercept:
        bias = torch.from_numpy(np.broadcast_to(published(estimator, "intercept_"), (c,)).copy())
    strength, sparsity = (
        torch.from_numpy(np.broadcast_to(np.asarray(part, dtype=np.float64), (c,)).copy()) for part in (ridge, l1)
    )
    # liblinear appends a column of `intercept_scaling`, whose weight b / intercept_scaling is penalised too
    scaling = stated.get("intercept_scaling", 1.0)
    bias_ridge = strength / scaling**2 if penalised_bias else torch.zeros_like(strength)
    iterations, limit = stated.get("n_iter_"), stated.get("max_iter")
    stopped = iterations is not None and limit is not None and bool(np.max(iterations) >= limit)
    stopped = stopped or stated.get("tol", 0.0) >= LOOSE
    model = Stationary(weight, bias, loss, strength, bias_ridge, weight.new_zeros(d), weight.new_ones(d), stopped)
    if not sparsity.any():
        return model
    if penalised_bias and bias is not None and not bias.any():
        bias = None  # a penalised intercept of zero has no equation
    if bias is None and c > 1:
        raise not_supported(estimator, "an L1 penalty on several outputs without an intercept")
    return replace(model, bias=bias, l1=sparsity, bias_l1=sparsity / scaling if penalised_bias else None)


def _at_optimum(estimator: Any, y: Array, weight: Tensor, model: Stationary, *notes: str) -> Reading:
    """The equation of a linear model, with the labels and the weights of its objective, and what else to note."""
    unused, features = int((model.weight == 0).all(0).sum()) if model.sparse else 0, model.weight.shape[1]
    of_zeros = (
        f"{unused} of {features} features have weight zero. Of these the model reveals an interval at most; the others "
        "are solved for."
    )
    if unused == features:
        of_zeros = "all weights are zero: the model depends on the labels alone, and reveals no feature of any row."
    remarks: tuple[str, ...] = (of_zeros,) if unused else ()
    if not is_classifier(estimator):
        return Reading(regression_targets(y, len(model.weight)), weight, model, notes=(*remarks, *notes))
    numbers = class_numbers(y, estimator.classes_)
    stated = vars(estimator)
    if stated.get("class_weight") is not None:
        by_class = isinstance(estimator, ONE_BY_ONE) or stated.get("solver") == "liblinear"
        if by_class and len(estimator.classes_) > 2:  # it weights only the class, not the rest
            raise not_supported(estimator, "class_weight=... with more than two classes")
        by_weight = "sample_weight" in BALANCING and not isinstance(estimator, BALANCED_BY_ROWS)
        counted = {"sample_weight": weight.numpy()} if by_weight else {}
        shares = compute_class_weight(estimator.class_weight, classes=estimator.classes_, y=y, **counted)
        weight = weight * torch.from_numpy(np.asarray(shares, dtype=np.float64))[numbers]
        remarks = (*remarks, "the adversary is assumed to know the class weights.")
    return Reading(numbers, weight, model, classes=tuple(estimator.classes_.tolist()), notes=(*remarks, *notes))
