"""From a fitted estimator and its training data to `Fitted`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from lostwax.adapters.sklearn import inputs
from lostwax.adapters.sklearn.consistency import check_empty_columns, check_same_data
from lostwax.adapters.sklearn.estimators import Reading, read_estimator
from lostwax.adapters.sklearn.refusals import NotReadError, cannot_look_behind, refusal
from lostwax.adapters.sklearn.scalers import CENTRED, read_scalers
from lostwax.types import Fitted, Records


def read(estimator: Any, data: Any, sample_weight: Any = None) -> Fitted:
    """Read an estimator and the data it was fitted on; every mismatch between the two is an error."""
    X, y = inputs.unpack(data)
    if not hasattr(estimator, "get_params") or isinstance(estimator, type):
        raise refusal(estimator)
    values = inputs.features(X)
    x = torch.from_numpy(values.reshape(len(values), -1))  # (n, d)
    labels = inputs.targets(y, len(x))
    weight = inputs.weights(sample_weight, len(x))
    _check_fitted(estimator, x.shape[1])
    steps = _steps(estimator)
    columns = inputs.column_names(X, [estimator, *steps])
    scaling, rest = read_scalers(steps, x, weight)
    unread: tuple[str, ...] = ()
    try:
        reading = _read_model(rest, labels, weight)
    except NotReadError as error:
        if not (scaling.sums or scaling.extremes):
            raise
        reading, unread = _labels_alone(labels, weight), (_not_audited(rest, error.reason),)
    fitted = Fitted(
        name=" + ".join(type(step).__name__ for step in steps),
        table=Records(x, reading.y),
        weight=reading.weight,
        model=None if reading.model is None else replace(reading.model, shift=scaling.shift, scale=scaling.scale),
        sums=(*scaling.sums, *(scaling.unscaled(part) for part in reading.sums)),
        extremes=scaling.extremes,
        classes=reading.classes,
        columns=columns,
        notes=reading.notes + scaling.notes,
        unread=unread,
    )
    check_empty_columns(fitted)
    doubt = check_same_data(fitted, precision=inputs.precision(X))
    return fitted if doubt is None else replace(fitted, notes=(*fitted.notes, doubt))


def _read_model(steps: list[Any], labels: Any, weight: Tensor) -> Reading:
    """What is left of a pipeline behind its scalers: one estimator that is read, or nothing."""
    if not steps:
        return _labels_alone(labels, weight)
    if len(steps) > 1:
        raise cannot_look_behind(steps[0])
    return read_estimator(steps[0], labels, weight)


def _labels_alone(labels: Any, weight: Tensor) -> Reading:
    """The labels of a table whose model was not read."""
    y, classes = inputs.any_labels(labels)
    return Reading(y, weight, classes=classes)


def _not_audited(steps: list[Any], reason: str) -> str:
    """Which parts of the release have no answer. Of PCA the mean was read, but not its components."""
    names = [f"{type(step).__name__}{' (but for its mean)' if isinstance(step, CENTRED) else ''}" for step in steps]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{listed} {'was' if len(names) == 1 else 'were'} not audited: {reason}."


def _steps(estimator: Any) -> list[Any]:
    """The steps of a pipeline one after the other, pipelines and searches inside it opened."""
    if hasattr(estimator, "best_estimator_"):  # GridSearchCV and its like: the model they settled on
        return _steps(estimator.best_estimator_)
    if not isinstance(estimator, Pipeline):
        return [estimator]
    steps = [step for _, step in estimator.steps if step not in (None, "passthrough")]
    if not steps:
        raise TypeError("audit: the Pipeline holds nothing but 'passthrough': there is no model to audit.")
    return [part for step in steps for part in _steps(step)]


def _check_fitted(estimator: Any, columns: int) -> None:
    name = type(estimator).__name__
    try:
        check_is_fitted(estimator)
        for step in _steps(estimator):
            check_is_fitted(step)
    except NotFittedError as error:
        raise ValueError(f"audit: {name} is not fitted. Call its fit(X, y) first.") from error
    expected = getattr(estimator, "n_features_in_", columns)
    if expected != columns:
        raise ValueError(
            f"audit: X has {columns} features, but {name} was fitted on {expected}. "
            "Pass the data the model was fitted on."
        )
