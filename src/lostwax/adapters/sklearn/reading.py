"""From a fitted estimator and its training data to `Fitted`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from lostwax.adapters.sklearn import inputs
from lostwax.adapters.sklearn.consistency import check_same_data
from lostwax.adapters.sklearn.estimators import read_estimator
from lostwax.adapters.sklearn.refusals import refusal
from lostwax.adapters.sklearn.scalers import read_scalers
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
    *scalers, last = _steps(estimator)
    columns = inputs.column_names(X, [estimator, *scalers, last])
    reading = read_estimator(last, labels, weight)
    scaling = read_scalers(scalers, x, weight)
    fitted = Fitted(
        name=" + ".join(type(step).__name__ for step in [*scalers, last]),
        table=Records(x, reading.y),
        weight=reading.weight,
        model=None if reading.model is None else replace(reading.model, shift=scaling.shift, scale=scaling.scale),
        sums=(*scaling.sums, *(scaling.unscaled(part) for part in reading.sums)),
        extremes=scaling.extremes,
        classes=reading.classes,
        columns=columns,
        notes=reading.notes + scaling.notes,
    )
    doubt = check_same_data(fitted, precision=inputs.precision(X))
    return fitted if doubt is None else replace(fitted, notes=(*fitted.notes, doubt))


def _steps(estimator: Any) -> list[Any]:
    """The steps of a pipeline one after the other, pipelines and searches inside it opened."""
    if hasattr(estimator, "best_estimator_"):  # GridSearchCV and its like: the model they settled on
        return _steps(estimator.best_estimator_)
    if not isinstance(estimator, Pipeline):
        return [estimator]
    steps = [step for _, step in estimator.steps]
    if steps[-1] in (None, "passthrough"):
        raise TypeError("audit: the Pipeline ends in 'passthrough' and holds no model. Pass one that ends in a model.")
    return [part for step in steps if step not in (None, "passthrough") for part in _steps(step)]


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
