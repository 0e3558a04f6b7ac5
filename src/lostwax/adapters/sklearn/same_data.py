"""Was this model fitted on this table? Checks by the gradient of its objective, and by the sums it publishes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lostwax.adapters.objects import attributes
from lostwax.adapters.sklearn.estimators import SettingNotReadError
from lostwax.adapters.sklearn.inputs import other_data
from lostwax.games import Fitted, Records, Stationary
from lostwax.games.facts import loss_facts
from lostwax.games.fitted import gap
from lostwax.games.folding import SparseFitted, sparse_factors, sparse_sum

# Scores are fractions of the squared gradient that an unrelated sample of the same size gives. On its own table, a
# solver with default tolerance leaves up to 0.29 (digits, C = 100).
UNRELATED = 0.4  # not this table
DOUBTFUL = 0.01  # worth a note
DOUBTFUL_MEAN = 1e-4  # ... of a mean alone: one equation, which 1 % of unrelated samples satisfy this well
# A solver that stops early can leave any score, but it starts at zero weights or better and goes downhill. Of 1,258
# models that stopped early on their own table the worst (one epoch of sag on unscaled wine) has 1.12 times the
# objective of zero weights. With the columns reversed, 38 % exceed 1.5; with the labels shifted by a third, 65 %.
WORSE_THAN_NOTHING = 1.5
SUMS_AGREE = 1e-6  # relative: sums are those of the table
SINGLE = 1e-6  # rounding of a mean in single precision
EMPTY = 1e-6  # relative to the largest weight: a column of zeros has weight zero, except for rounding
SMALL = 1e-3  # relative to the gradient at zero weights: below it the model fits the table
# where scikit-learn's models keep rows that they were fitted on, as they were: every row, or some
KEPT_ROWS = {"_fit_X": True, "X_train_": True, "X_": True, "support_vectors_": False}
KEEPERS = ("sklearn.neighbors", "sklearn.gaussian_process", "sklearn.semi_supervised", "sklearn.svm")
OF_CLASSES = ("sklearn.gaussian_process", "sklearn.multiclass")  # models of one such model per class


def of_this_table(fitted: Fitted, elsewhere: Sequence[str] = (), fewer_rows: str | None = None) -> Fitted:
    """Raise if the model was not fitted on this table; with a note if that is in doubt.

    `elsewhere` are steps before it that were fitted on other rows, `fewer_rows` says that one was fitted on fewer: then
    a doubt is enough to raise.
    """
    name, model = fitted.name, fitted.model
    cure = "Pass exactly the rows, labels and sample_weight it was fitted on"
    for sums in fitted.sums:
        r, f = sums.factors(fitted.table, fitted.weight)
        size = r.abs().mT @ f.abs() + sums.total().abs()
        if not (gap(sums, fitted.table, fitted.weight).abs() <= SUMS_AGREE * size.clamp_min(1e-300)).all():
            raise other_data(name, f"{sums.source} does not agree with the table")
    if model is None:
        return fitted
    score = score_statistic(model, fitted.table, fitted.weight)
    distance = f"the gradient at its weights is {score**0.5:.2g} times that of an unrelated sample of this size"
    cure += (
        ", without test rows, with the columns in the same order, and X and y in the same order of rows. If X was "
        "scaled or encoded before fit, pass it as the model saw it, or the whole pipeline with the original X."
    )
    early = model.stopped_early and math.isfinite(score)  # then the score cannot tell tables apart
    limit = DOUBTFUL if elsewhere or fewer_rows else UNRELATED
    if not score <= limit and fewer_rows is not None:
        raise _other_data(name, f": {fewer_rows}, and {distance}. Were test rows passed too? {cure}")
    if not score <= limit and not early:
        steps = f", as {elsewhere[0]} before it was not" if elsewhere else ""
        stopped = f"{steps}, or stopped far from its optimum, or noise was added to its weights"
        raise _other_data(name, f"{stopped}: {distance} (expected < {limit**0.5:.2g}). {cure}")
    if early and not (worse := beside_zero_weights(fitted)) <= WORSE_THAN_NOTHING:
        times = f"its objective is {worse:.2g} times that of zero weights"
        if model.stochastic:
            raise SettingNotReadError(
                f"the closed form does not support {name} with weights that diverged",
                f": {times}. Scale X, or take smaller steps; or this is not the data it was fitted on. {cure}",
            )
        raise _other_data(name, f": {times}, where every solver starts (expected < {WORSE_THAN_NOTHING}). {cure}")
    mean_fits = _mean_fits(model, fitted.table, fitted.weight)
    if model.without_features and not mean_fits:
        noise = ", or noise was added to it: the mean or the shares that it holds are those of other labels"
        raise _other_data(name, f"{noise}. {cure}")
    if score <= DOUBTFUL and (early or mean_fits):
        return fitted
    doubt = "far from its optimum, with noise added, or not fitted on this table (were test rows passed too?)"
    only = "" if early else " Targets count as released, not at its optimum."
    return replace(fitted, notes=(*fitted.notes, f"{doubt}: {distance}.{only}"), doubtful=not early)


def _other_data(name: str, why: str) -> ValueError:
    return ValueError(f"audit: {name} was not fitted on this data (X, y){why}")


def _mean_fits(model: Stationary, table: Records, weight: torch.Tensor) -> bool:
    """Whether a model without weights has the mean or the shares of these labels; True where a solver found them."""
    if model.bias is None or model.weight.any() or not (model.quadratic or model.without_features):
        return True
    left = gap(model, table, weight)[:, -1]  # (c,)
    size = weight @ table.y.double().reshape(len(weight), -1).abs().sum(1) + weight.sum() * model.bias.abs().sum()
    near = bool(left.square().sum() <= DOUBTFUL_MEAN * _squares(model, table, weight)[-1])
    return near and bool(left.abs().max() <= SINGLE * size)


def check_sparse(fitted: SparseFitted) -> None:
    """Raise if a linear model was not fitted on this sparse table; its gradient over that of an unrelated sample."""
    if fitted.model is None:
        return
    _, r = sparse_factors(fitted.model, fitted.table, fitted.weight)
    left = (sparse_sum(fitted.table, r, bias=fitted.model.bias is not None) - fitted.model.total()).abs()
    each = sparse_sum(fitted.table.each(np.square), r.square(), bias=fitted.model.bias is not None)
    score = float((left - fitted.model.slack()).clamp_min(0).square().sum() / each.sum().clamp_min(1e-300))
    if not score <= UNRELATED and not fitted.model.stopped_early:
        stopped = "or stopped far from its optimum, or noise was added to its weights"
        times = f"the gradient there is {score**0.5:.2g} times that of an unrelated sample of this size"
        cure = "Pass exactly the rows, labels and sample_weight it was fitted on."
        raise _other_data(fitted.name, f", {stopped}: {times} (expected < {UNRELATED**0.5:.2g}). {cure}")


def check_kept(estimator: Any, x: torch.Tensor, labels: NDArray[Any], weight: torch.Tensor) -> None:
    """Raise if a model that keeps the rows it was fitted on keeps others than these (n, d), or other labels of them."""
    name, keeper = type(estimator).__name__, estimator
    if type(estimator).__module__.startswith(OF_CLASSES):
        keeper = attributes(keeper).get("base_estimator_", keeper)
        keeper = attributes(keeper).get("estimators_", [keeper])[0]
    state = attributes(keeper)
    place = next((place for place in KEPT_ROWS if isinstance(state.get(place), np.ndarray)), None)
    keeps = any(base.__module__.startswith(KEEPERS) for base in type(keeper).__mro__)
    if not keeps or place is None or state[place].shape[1:] != x.shape[1:]:
        return
    stored, used = torch.from_numpy(state[place]), (weight > 0).nonzero()[:, 0]
    x = x[used].to(stored.dtype) if stored.is_floating_point() else x[used]
    ours, theirs = (Records(rows, torch.zeros(len(rows))) for rows in (x, stored))
    cure = ", as the model saw them, or the whole pipeline with the original X"
    if other := int((theirs.matches(ours) < 0).sum()):
        others = f"{other} of the {len(stored)} rows in its {place} are not in the table"
        raise other_data(name, others, cure)
    if KEPT_ROWS[place] and keeper is estimator and (new := int((ours.matches(theirs) < 0).sum())):
        news = f"{new} of {len(x)} rows of the table are not in its {place}, which holds every row"
        raise other_data(name, news, cure)
    numbers, classes = state.get("_y"), state.get("classes_")
    if isinstance(numbers, np.ndarray) and numbers.shape == labels[used].shape == (len(x),) and torch.equal(x, stored):
        stored_labels = numbers if classes is None else classes[numbers]
        if len(wrong := np.flatnonzero(stored_labels != labels[used])):
            places = f"the labels of {len(wrong)} of {len(x)} rows, the first in row {wrong[0]}, are others in its _y"
            raise other_data(name, places, cure)


def check_empty_columns(fitted: Fitted) -> None:
    """Raise if the model has weights for columns that are zero in every row: solvers leave those at zero."""
    if (model := fitted.model) is None:
        return
    _, f = model.factors(fitted.table, fitted.weight)
    empty = (f[:, : model.weight.shape[1]] == 0).all(0)  # (d,)
    largest = model.weight.abs().amax(0)  # (d,)
    wrong = (empty & (largest > EMPTY * largest.max())).nonzero().flatten()
    if len(wrong):
        zero = f"column {int(wrong[0])} is zero in every row, but has a weight"
        raise other_data(fitted.name, zero)


def score_statistic(model: Stationary, table: Records, weight: torch.Tensor) -> float:
    """|sum of gradients|^2 / sum of |gradients|^2: 0 at the optimum, about 1 for a model of other data.

    The larger of the ratio over all coordinates and the median ratio over columns, so that no single large column
    decides. A model that separates its classes has near-zero gradients in every row, and the ratio means nothing; so
    the sum is also compared with the gradients at zero weights, without the intercept.
    """
    square = gap(model, table, weight).square().sum(0)  # (d + 1,)
    each, each_at_zero = (_squares(part, table, weight) for part in (model, _at_zero(model)))
    holds = (model.slack() == 0).any(0)  # a weight of zero has no equation that rows of another table would break
    if not holds[: model.weight.shape[1]].any() and not model.without_features:
        holds = torch.ones_like(holds)  # solvers of other models may stop before the intercept is right
    square, each = square[holds], each[holds]
    moved = each != 0  # keeps NaN
    if not moved.any():
        return 0.0
    score = max(float(square.sum() / each.sum()), float((square / each)[moved].median()))
    columns = holds.nonzero().flatten() < model.weight.shape[1]  # the intercept may dominate columns of another scale
    if not columns.any():
        return score
    beside_zero = float(square[columns].sum() / each_at_zero[holds][columns].sum().clamp_min(1e-300))
    return score if beside_zero > SMALL else min(score, beside_zero)


def beside_zero_weights(fitted: Fitted) -> float:
    """The model's objective over that of zero weights; 0 if the loss is only known up to a constant."""
    if fitted.model is None:
        return 0.0
    facts, table = loss_facts(fitted.model.loss, len(fitted.model.weight)), fitted.table
    if facts is None or facts.up_to_constant:
        return 0.0
    ours, zero = (
        float(
            fitted.weight @ model.loss(model.outputs(table.x), table.y) + model.penalty()
        )  # sum_i w_i loss_i + penalty
        for model in (fitted.model, _at_zero(fitted.model))
    )
    return ours / max(zero, 1e-300)


def _at_zero(model: Stationary) -> Stationary:
    bias = None if model.bias is None else torch.zeros_like(model.bias)
    return replace(model, weight=torch.zeros_like(model.weight), bias=bias)


def _squares(model: Stationary, table: Records, weight: torch.Tensor) -> torch.Tensor:
    """Sum over rows of the squared gradient, column by column, (d + 1,)."""
    r, f = model.factors(table, weight)
    return r.square().sum(1) @ f.square()
