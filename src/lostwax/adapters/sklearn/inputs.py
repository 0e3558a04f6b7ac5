"""Validate the user's arrays. Every error names the argument, what was expected and what was found."""

from __future__ import annotations

from collections.abc import Hashable
from numbers import Real
from typing import Any

import numpy as np
import torch
from sklearn.utils import _safe_indexing
from torch import Tensor

from lostwax.games import Records
from lostwax.records.tables import numbers, plain_array, position

LIGHTEST = 1e-100  # smallest largest value of a column, and sample weight: squares of smaller ones underflow


def unpack(data: Any) -> tuple[Any, Any]:
    """(X, y) from the `data` argument."""
    if isinstance(data, Records):
        return data.x, data.y
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        cure = "Stack a dataset into two arrays first."
        raise TypeError(f"audit: expected data=(X, y) or lw.Records, got {type(data).__name__}. {cure}")
    if getattr(data[0], "is_nested", False):
        raise TypeError("audit: X is a nested tensor, but a dense one is needed: pass one cell per column in each row.")
    return data[0], data[1]


def some_rows(data: Any, rows: Tensor) -> Any:
    """Some rows of X, of y or of the weights, in the form in which they were given; None stays None."""
    return data if data is None else data[rows] if isinstance(data, Tensor) else _safe_indexing(data, rows.numpy())


def features(X: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """X as float64, (n, ...)."""
    values = numbers("audit", "X", X)
    if values.ndim < 2:
        raise ValueError(f"audit: expected X of shape (n_records, n_features), got shape {values.shape}.")
    if values.size == 0:
        raise ValueError(f"audit: X is empty, shape {values.shape}.")
    if len(values) == 1:
        raise ValueError("audit: X has one row; expected at least two, one secret and one known.")
    _finite(values.reshape(len(values), -1), "X")
    largest = np.abs(values.reshape(len(values), -1)).max(0)  # (d,)
    if ((largest > 0) & ((largest < LIGHTEST) | (largest > 1 / LIGHTEST))).any():
        raise ValueError(
            f"audit: X has columns of values below {LIGHTEST:g} or above {1 / LIGHTEST:g}, whose squares under- or "
            "overflow. Scale X, and fit the model again."
        )
    return values


def published(estimator: Any, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A fitted attribute in float64; raises if it holds NaN or infinity."""
    values = np.asarray(getattr(estimator, name), dtype=np.float64)
    check_finite(f"{name} of {type(estimator).__name__}", values)
    return values


def column_names(X: Any, steps: list[Any]) -> tuple[str, ...]:
    """The column names of a data frame, or those that the model was fitted with; they must agree, as in scikit-learn.

    `steps` are the model and the steps of a pipeline; the first with names counts.
    """
    remembered = next((list(step.feature_names_in_) for step in steps if hasattr(step, "feature_names_in_")), [])
    names = list(X.columns) if hasattr(X, "columns") else remembered
    if remembered and len(names) != len(remembered):
        more = len(names) > len(remembered)
        some = sorted({str(name) for name in names} ^ set(map(str, remembered)))
        raise ValueError(
            f"audit: X has {len(names)} columns, but {type(steps[0]).__name__} was fitted on {len(remembered)}: "
            f"{'it does not know' if more else 'X does not have'} {some[0] if some else 'all of them'!r}. Pass "
            "X[model.feature_names_in_]."
        )
    if remembered and all(isinstance(name, str) for name in names):
        pairs = zip(names, remembered, strict=True)
        remembered = [ours if ours.replace(" ", "_") == theirs else theirs for ours, theirs in pairs]  # by LightGBM
        place = next((i for i, name in enumerate(names) if name != remembered[i]), None)
        if place is not None:
            fitted_on = f"where {type(steps[0]).__name__} was fitted on {str(remembered[place])!r}"
            difference = f"column {place} is {names[place]!r} {fitted_on}"
            if sorted(names) == sorted(remembered):
                order = f"in a different order than the model's: {difference}"
                raise ValueError(f"audit: the columns of X are {order}. Pass X[model.feature_names_in_].")
            raise ValueError(
                f"audit: the columns of X are not those of the model: {difference}. Pass the data the model was fitted "
                "on, with the columns model.feature_names_in_."
            )
    return tuple(str(name) for name in names)


def precision(X: Any) -> float:
    """The machine epsilon of X's dtype: larger for float32 than for float64."""
    if isinstance(X, Tensor):
        return torch.finfo(X.dtype if X.is_floating_point() else torch.float64).eps
    kind = np.asarray(X).dtype
    return float(np.finfo(kind if kind.kind == "f" else np.float64).eps)


def targets(y: Any, rows: int) -> np.ndarray[Any, np.dtype[Any]]:
    """y as an array with one row per record: numbers or class names."""
    values = plain_array("audit", "y", y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim == 0 or len(values) != rows:
        raise ValueError(f"audit: expected y with one row per record, {rows} rows as in X, got shape {values.shape}.")
    if values.ndim > 2 or values.dtype.kind in "cV":
        got = f"{values.dtype} of shape {values.shape}"
        raise ValueError(f"audit: expected y with one label or row of targets per record, got {got}.")
    if np.issubdtype(values.dtype, np.floating):
        _finite(values.reshape(rows, -1), "y")
    for index, label in np.ndenumerate(values) if values.dtype.kind == "O" else ():
        if label is None or label != label or not isinstance(label, Hashable):
            what = "missing" if label is None or isinstance(label, Real) else f"of type {type(label).__name__}"
            cure = "Drop that row, or pass a number or text."
            raise ValueError(f"audit: the label in y at {position(index)} is {what}. {cure}")
    return values


def weights(sample_weight: Any, rows: int) -> Tensor:
    """Sample weights; ones by default."""
    if sample_weight is None:
        return torch.ones(rows, dtype=torch.float64)
    values = numbers("audit", "sample_weight", sample_weight)
    if values.shape != (rows,):
        raise ValueError(f"audit: expected sample_weight of shape ({rows},), got {values.shape}.")
    _finite(values[:, None], "sample_weight")
    if (values < 0).any():
        row, many = int((values < 0).argmax()), int((values < 0).sum())
        raise ValueError(f"audit: expected sample_weight >= 0, got {many} negative values, the first at row {row}.")
    if not (values > 0).any():
        raise ValueError("audit: sample_weight is 0 for every row. Pass the weights the model was fitted with.")
    if not LIGHTEST <= values.max() <= 1 / LIGHTEST:
        raise ValueError(
            f"audit: the largest sample_weight is {values.max():.3g}, expected {LIGHTEST:g} to {1 / LIGHTEST:g}: "
            "products of others under- or overflow. Scale the weights, and fit the model again."
        )
    return torch.from_numpy(values)


def class_numbers(y: np.ndarray[Any, np.dtype[Any]], classes: np.ndarray[Any, np.dtype[Any]]) -> Tensor:
    """Each label's index in the model's `classes_`."""
    if y.ndim != 1 or classes.ndim != 1:
        raise ValueError(f"audit: expected y with one class label per record, got shape {y.shape}.")
    if len(classes) < 2:
        raise ValueError("audit: the model has one class; expected two or more.")
    check_labels(y, classes)
    return torch.from_numpy(np.searchsorted(classes, y)).long()


def check_labels(y: np.ndarray[Any, np.dtype[Any]], classes: np.ndarray[Any, np.dtype[Any]]) -> None:
    """Raise for labels that are none of the model's `classes_`."""
    known = set(classes.tolist())
    unknown = [row for row, label in enumerate(y.tolist()) if label not in known]
    if unknown:
        texts = sorted({"texts" if isinstance(label, str) else "numbers" for label in known})
        ours = "texts" if isinstance(y.tolist()[unknown[0]], str) else "numbers"
        other = f", which are {texts[0]}, and y holds {ours}" if texts not in ([ours], ["numbers", "texts"]) else ""
        raise ValueError(
            f"audit: y has labels that the model was not fitted on in {len(unknown)} of {len(y)} rows, the first in "
            f"row {unknown[0]}: not one of its {len(classes)} classes{other}. Pass the data the model was fitted on."
        )


def any_labels(y: np.ndarray[Any, np.dtype[Any]]) -> tuple[Tensor, tuple[object, ...]]:
    """Labels of a model that was not read: real numbers unchanged, everything else as classes with their names."""
    if y.dtype.kind == "f" or (y.ndim > 1 and y.dtype.kind in "iub"):
        return torch.from_numpy(numbers("audit", "y", y)), ()
    if y.ndim > 1:
        raise ValueError(f"audit: expected y with one class label per record, got shape {y.shape}.")
    names = sorted(set(y.tolist()), key=str) if y.dtype.kind == "O" else np.unique(y).tolist()
    index = {name: number for number, name in enumerate(names)}
    return torch.tensor([index[name] for name in y.tolist()]), tuple(names)


def numbered(y: np.ndarray[Any, np.dtype[Any]], *, classes: bool) -> tuple[Tensor, tuple[object, ...]]:
    """Labels of a classifier as class numbers with their names, as scikit-learn numbers them; others by `any_labels`.

    Several columns of classes are numbered each by itself, and have no names.
    """
    if not classes:
        return any_labels(y)
    if y.ndim > 1:
        each = [np.unique(column, return_inverse=True)[1] for column in y.T]
        return torch.from_numpy(np.stack(each, 1).astype(np.float64)), ()
    names, numbers = np.unique(y, return_inverse=True)
    return torch.from_numpy(numbers), tuple(names.tolist())


def regression_targets(y: np.ndarray[Any, np.dtype[Any]], outputs: int) -> Tensor:
    """Targets as float64, one column per output if there are several."""
    values = torch.from_numpy(numbers("audit", "y", y))
    if values.numel() != len(values) * outputs:
        raise ValueError(f"audit: expected y with {outputs} targets per record, got shape {tuple(values.shape)}.")
    return values


def _finite(values: np.ndarray[Any, np.dtype[Any]], name: str) -> None:
    bad = ~np.isfinite(values)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ValueError(
            f"audit: {name} holds {int(bad.sum())} values that are NaN or infinite, the first at row {row}, "
            f"column {column}. Pass the data the model was fitted on, without missing values."
        )


def check_finite(name: str, values: Any) -> None:
    """Raise if an array or tensor of a release holds NaN or infinity."""
    array = values.detach().double().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
    bad = int((~np.isfinite(array)).sum())
    if bad:
        values_are = "1 value that is" if bad == 1 else f"{bad} values that are"
        raise ValueError(
            f"audit: {name} holds {values_are} NaN or infinite: training diverged, or the file is damaged. Train or "
            "load the model again."
        )
