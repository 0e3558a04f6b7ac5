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

from lostwax.adapters.sklearn.inputs import class_numbers, published, regression_targets
from lostwax.fields import shown
from lostwax.games import Loss, Noted, Stationary, Sums
from lostwax.games.facts import loss_facts
from lostwax.losses import (
    BinaryCrossEntropy,
    CrossEntropy,
    Huber,
    ModifiedHuber,
    SquaredEpsilonInsensitive,
    SquaredError,
    SquaredHinge,
    SquaredSignError,
    Tweedie,
)

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
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    if getattr(estimator, "positive", False):
        raise not_supported(estimator, "positive=True")
    return _regressed(y, weight, _linear(estimator, SquaredError(), _chosen(estimator, "alpha")))


@read_estimator.register(linear_model.RidgeClassifier)
@read_estimator.register(linear_model.RidgeClassifierCV)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    if getattr(estimator, "positive", False):
        raise not_supported(estimator, "positive=True")
    return _classified(estimator, y, weight, _linear(estimator, SquaredSignError(), _chosen(estimator, "alpha")))


@read_estimator.register(linear_model.BayesianRidge)
@read_estimator.register(linear_model.ARDRegression)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    model = _linear(estimator, SquaredError(), 1 / estimator.alpha_)  # |out - y|^2 / 2 + sum_j lambda_j w_j^2 / 2 alpha
    precision = torch.from_numpy(published(estimator, "lambda_")).expand(model.weight.shape[1])
    dropped = precision >= getattr(estimator, "threshold_lambda", torch.inf)
    unit = precision.sqrt()  # w_j sqrt(lambda_j) is the weight of f_j / sqrt(lambda_j)
    model = replace(model, weight=model.weight * unit, scale=unit, dropped=dropped if dropped.any() else None)
    reading = _regressed(y, weight, model)
    if not estimator.fit_intercept:
        return reading
    count, name = weight.sum()[None], type(estimator).__name__
    mean = torch.from_numpy(published(estimator, "X_offset_"))
    sums = Sums(f"{name}'s X_offset_", mean[None] * count, count, by_label=False, weighted=True)
    return replace(reading, sums=(sums,))


@read_estimator.register(linear_model.HuberRegressor)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    scale = float(estimator.scale_)  # sum_i 2 Huber_i / scale_ + alpha |w|^2
    reading = _regressed(y, weight, _linear(estimator, Huber(estimator.epsilon * scale), estimator.alpha * scale))
    note = "scale_ is kept as released; of an outlier's target only a bound is revealed."
    return replace(reading, notes=(*reading.notes, note))


@read_estimator.register(LinearSVR)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    if estimator.loss != "squared_epsilon_insensitive":
        raise not_supported(estimator, f"loss={estimator.loss!r}")
    loss = SquaredEpsilonInsensitive(float(estimator.epsilon))
    return _regressed(y, weight, _linear(estimator, loss, 1 / estimator.C, penalised_bias=True))


CLASSIFICATION: dict[str, Loss] = {
    "log_loss": BinaryCrossEntropy(),
    "squared_error": SquaredSignError(),
    "modified_huber": ModifiedHuber(),
    "squared_hinge": SquaredHinge(),
}
REGRESSION: dict[str, Callable[[float], Loss]] = {  # of epsilon
    "squared_error": lambda epsilon: SquaredError(),
    "huber": Huber,
    "squared_epsilon_insensitive": SquaredEpsilonInsensitive,
}


@read_estimator.register(linear_model.SGDClassifier)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    model = _stochastic_model(estimator, len(y), CLASSIFICATION)
    return _stochastic(estimator, _classified(estimator, y, weight, model))


@read_estimator.register(linear_model.SGDRegressor)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    losses = {name: loss(float(estimator.epsilon)) for name, loss in REGRESSION.items()}
    return _stochastic(estimator, _regressed(y, weight, _stochastic_model(estimator, len(y), losses)))


@read_estimator.register(linear_model.ElasticNet)
@read_estimator.register(linear_model.ElasticNetCV)
@read_estimator.register(linear_model.LassoCV)
@read_estimator.register(linear_model.LassoLars)
@read_estimator.register(linear_model.LassoLarsCV)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    if estimator.positive:
        raise not_supported(estimator, "positive=True")
    alpha, share = _chosen(estimator, "alpha"), _chosen(estimator, "l1_ratio", 1.0)
    strength = alpha * float(weight.sum())  # the loss is a mean over all rows, including the secret one
    return _regressed(y, weight, _linear(estimator, SquaredError(), (1 - share) * strength, l1=share * strength))


@read_estimator.register(linear_model.MultiTaskElasticNet)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    raise refusal(estimator)  # a penalty on groups of weights, unlike that of its parent ElasticNet


@read_estimator.register(linear_model.PoissonRegressor)
@read_estimator.register(linear_model.GammaRegressor)
@read_estimator.register(linear_model.TweedieRegressor)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    fixed = {linear_model.PoissonRegressor: 1.0, linear_model.GammaRegressor: 2.0}
    power = next((fixed[kind] for kind in fixed if isinstance(estimator, kind)), None)
    power = float(estimator.power) if power is None else power
    link = getattr(estimator, "link", "auto")
    log = link == "log" or (link == "auto" and power > 0)
    ridge = estimator.alpha * float(weight.sum())  # the loss is a mean over all rows, including the secret one
    return _regressed(y, weight, _linear(estimator, Tweedie(power, "log" if log else "identity"), ridge))


@read_estimator.register(linear_model.LogisticRegression)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    if not getattr(estimator, "refit", True):
        raise not_supported(estimator, "refit=False")
    chosen = "_" if hasattr(estimator, "C_") else ""  # LogisticRegressionCV: the chosen C
    l1_ratios = np.ravel(np.asarray(getattr(estimator, f"l1_ratio{chosen}", None), dtype=object))
    penalty = getattr(estimator, "penalty", "l2")  # newer versions have only C and l1_ratio
    fixed = {"l1": 1.0, "l2": 0.0}
    shares = np.array([fixed.get(penalty, ratio or 0.0) for ratio in l1_ratios], dtype=np.float64)
    several = len(estimator.classes_) > 2
    one_vs_rest = _is_liblinear(estimator) or getattr(estimator, "multi_class", "auto") == "ovr"
    loss = CrossEntropy() if several and not one_vs_rest else BinaryCrossEntropy()
    C = np.ravel(np.asarray(getattr(estimator, f"C{chosen}"), dtype=np.float64))
    if not one_vs_rest and len(set(C.tolist())) > 1:
        raise not_supported(estimator, f"a C_ for each class ({C.tolist()})")
    # C_c sum of losses + |W_c|^2 / 2; one-vs-rest has a C per class, which older versions store as a list
    each = slice(None) if one_vs_rest and several else 0
    strength, share = 0.0 if penalty is None else 1 / C[each], shares[each]
    model = _linear(
        estimator, loss, (1 - share) * strength, l1=share * strength, penalised_bias=_is_liblinear(estimator)
    )
    return _classified(estimator, y, weight, model)


@read_estimator.register(LinearSVC)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    if estimator.loss != "squared_hinge":
        raise not_supported(estimator, f"loss={estimator.loss!r}")
    if estimator.multi_class != "ovr":
        raise not_supported(estimator, f"multi_class={estimator.multi_class!r}")
    ridge, l1 = (1.0, 0.0) if estimator.penalty == "l2" else (0.0, 1.0)
    model = _linear(estimator, SquaredHinge(), ridge / estimator.C, l1=l1 / estimator.C, penalised_bias=True)
    return _classified(estimator, y, weight, model)


@read_estimator.register(OneVsRestClassifier)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    numbers = class_numbers(y, estimator.classes_)
    parts: list[Stationary] = []
    for number, part in enumerate(estimator.estimators_):
        if getattr(part, "class_weight", None) is not None:
            raise not_supported(estimator, "class_weight=... in its estimator")
        own = (numbers == (1 if len(estimator.estimators_) == 1 else number)).long().numpy()
        reading = read_estimator(part, own, weight)
        facts = None if reading.model is None else loss_facts(reading.model.loss, 1)
        if reading.model is None or facts is None or facts.classes is None:
            raise refusal(part)
        parts.append(reading.model)
    model = _stack(parts)
    return Reading(numbers, weight, model, classes=tuple(estimator.classes_.tolist()), notes=_zero_weights(model))


@read_estimator.register(DummyRegressor)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    if estimator.strategy != "mean":
        raise not_supported(estimator, f"strategy={estimator.strategy!r}")
    mean = torch.from_numpy(published(estimator, "constant_")).flatten()
    model = _without_weights(estimator, mean, SquaredError())
    return Reading(regression_targets(y, len(mean)), weight, model, notes=_zero_weights(model))


@read_estimator.register(DummyClassifier)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    if isinstance(estimator.classes_, list):
        raise not_supported(estimator, "several targets")
    shares = torch.from_numpy(published(estimator, "class_prior_"))  # of each class, whatever the strategy
    model = _without_weights(estimator, shares.log(), CrossEntropy())
    numbers, classes = class_numbers(y, estimator.classes_), tuple(estimator.classes_.tolist())
    return Reading(numbers, weight, model, classes=classes, notes=_zero_weights(model))


def _without_weights(estimator: Any, bias: Tensor, loss: Loss) -> Stationary:
    """An intercept alone, at the optimum of its loss: no feature has a weight, or an equation."""
    c, d = len(bias), int(estimator.n_features_in_)
    none, free, unit = torch.zeros_like(bias), bias.new_zeros(d), bias.new_ones(d)
    return Stationary(bias.new_zeros(c, d), bias, loss, none, none, free, unit, dropped=unit.bool())


@read_estimator.register(GaussianNB)
def _(estimator: Any, y: Array, weight: Tensor) -> Reading:
    counts = torch.from_numpy(published(estimator, "class_count_"))
    means = torch.from_numpy(published(estimator, "theta_"))
    sums = Sums("GaussianNB's theta_", means * counts[:, None], counts, by_label=True, weighted=True)
    return Reading(
        class_numbers(y, estimator.classes_), weight, sums=(sums,), classes=tuple(estimator.classes_.tolist())
    )


def _stochastic_model(estimator: Any, rows: int, losses: Mapping[str, Loss]) -> Stationary:
    """The objective that stochastic gradient descent approaches: the mean loss + alpha |w|^2 / 2."""
    if estimator.loss not in losses:
        raise not_supported(estimator, f"loss={estimator.loss!r}")
    if estimator.penalty not in ("l2", None):
        raise not_supported(estimator, f"penalty={estimator.penalty!r}")
    if estimator.early_stopping:
        raise not_supported(estimator, "early_stopping=True, which leaves rows out")
    ridge = 0.0 if estimator.penalty is None else estimator.alpha * rows
    return replace(_linear(estimator, losses[estimator.loss], ridge), stopped_early=True, stochastic=True)


def _stochastic(estimator: Any, reading: Reading) -> Reading:
    note = (
        f"{type(estimator).__name__} stops near the optimum of its objective, not at it: 'as converged' is what the "
        "same objective gives at its optimum."
    )
    return replace(reading, notes=(*reading.notes, note))


def _chosen(estimator: Any, name: str, default: float = 0.0) -> Any:
    """A setting, as chosen by cross-validation where that was done."""
    return getattr(estimator, f"{name}_", getattr(estimator, name, default))


def _regressed(y: Array, weight: Tensor, model: Stationary) -> Reading:
    return Reading(regression_targets(y, len(model.weight)), weight, model, notes=_zero_weights(model))


def _is_liblinear(estimator: Any) -> bool:
    return isinstance(estimator, LinearSVC) or getattr(estimator, "solver", None) == "liblinear"


def _classified(estimator: Any, y: Array, weight: Tensor, model: Stationary) -> Reading:
    numbers = class_numbers(y, estimator.classes_)
    notes = _zero_weights(model)
    if estimator.class_weight is not None:
        one_by_one = _is_liblinear(estimator) or isinstance(estimator, linear_model.SGDClassifier)
        if one_by_one and len(estimator.classes_) > 2:  # it weights only the class, not the rest
            raise not_supported(estimator, "class_weight=... with more than two classes")
        by_weight = "sample_weight" in BALANCING and not isinstance(estimator, BALANCED_BY_ROWS)
        counted = {"sample_weight": weight.numpy()} if by_weight else {}
        shares = compute_class_weight(estimator.class_weight, classes=estimator.classes_, y=y, **counted)
        weight = weight * torch.from_numpy(np.asarray(shares, dtype=np.float64))[numbers]
        notes = (*notes, "the adversary is assumed to know the class weights.")
    return Reading(numbers, weight, model, classes=tuple(estimator.classes_.tolist()), notes=notes)


def _linear(estimator: Any, loss: Loss, ridge: Any, *, l1: Any = 0.0, penalised_bias: bool = False) -> Stationary:
    weight = torch.from_numpy(np.atleast_2d(published(estimator, "coef_")))  # (c, d)
    c, d = weight.shape
    bias = None
    if estimator.fit_intercept:
        bias = torch.from_numpy(np.broadcast_to(published(estimator, "intercept_"), (c,)).copy())
    strength, sparsity = (
        torch.from_numpy(np.broadcast_to(np.asarray(part, dtype=np.float64), (c,)).copy()) for part in (ridge, l1)
    )
    # liblinear appends a column of `intercept_scaling`, whose weight b / intercept_scaling is penalised too
    scaling = getattr(estimator, "intercept_scaling", 1.0)
    bias_ridge = strength / scaling**2 if penalised_bias else torch.zeros_like(strength)
    iterations, limit = getattr(estimator, "n_iter_", None), getattr(estimator, "max_iter", None)
    stopped = iterations is not None and limit is not None and bool(np.max(iterations) >= limit)
    stopped = stopped or getattr(estimator, "tol", 0.0) >= LOOSE
    model = Stationary(weight, bias, loss, strength, bias_ridge, weight.new_zeros(d), weight.new_ones(d), stopped)
    return _with_l1(estimator, model, sparsity, sparsity / scaling if penalised_bias else None)


def _with_l1(estimator: Any, model: Stationary, l1: Tensor, bias_l1: Tensor | None) -> Stationary:
    """The model with this L1 penalty."""
    if not l1.any():
        return model
    if bias_l1 is not None and model.bias is not None and not model.bias.any():
        model = replace(model, bias=None)  # a penalised intercept of zero has no equation
    if model.bias is None and len(l1) > 1:
        raise not_supported(estimator, "an L1 penalty on several outputs without an intercept")
    return replace(model, l1=l1, bias_l1=bias_l1)


def _zero_weights(model: Stationary) -> tuple[str, ...]:
    """A note on features that the model does not use."""
    unused = int((model.weight == 0).all(0).sum()) if model.sparse else 0
    if not unused:
        return ()
    if unused == model.weight.shape[1]:
        return ("all weights are zero: the model depends on the labels alone, and reveals no feature of any row.",)
    return (
        f"{unused} of {model.weight.shape[1]} features have weight zero. Of these the model reveals an interval at "
        "most; the others are solved for.",
    )


def _stack(parts: list[Stationary]) -> Stationary:
    """Combine binary models of one class each."""
    first = parts[0]

    def joined(name: str) -> Tensor | None:
        values = [getattr(part, name) for part in parts]
        if all(value is None for value in values):
            return None
        return torch.cat([torch.zeros_like(first.ridge) if value is None else value for value in values])

    return replace(
        first,
        weight=torch.cat([part.weight for part in parts]),
        bias=joined("bias"),
        ridge=torch.cat([part.ridge for part in parts]),
        bias_ridge=torch.cat([part.bias_ridge for part in parts]),
        stopped_early=any(part.stopped_early for part in parts),
        l1=joined("l1"),
        bias_l1=joined("bias_l1"),
    )
