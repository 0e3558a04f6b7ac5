"""The user's model and arrays, checked: every error names the argument, what was expected and what was found.

Slips come first, arguments that are nearly right: swapped, without labels, with the labels among the columns, with test
rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags
from torch import Tensor, nn

from lostwax.adapters.objects import attributes
from lostwax.games import Records
from lostwax.records.tables import numbers, plain_array, position

Numbers = NDArray[np.float64]
LIGHTEST = 1e-100  # smallest largest value of a column, and sample weight: squares of smaller ones underflow


def check_data(model: Any, data: Any) -> Any:
    """The data, or raise an error that names the slip; what is wrong in other ways is left to the readers.

    A table alone is (X, None) for a model that takes no labels: clusters, transformers, outlier detection.
    """
    if isinstance(data, nn.Module) or any(callable(getattr(type(data), name, None)) for name in ("fit", "predict")):
        raise TypeError(
            f"audit: the arguments are swapped: data is the model, {type(data).__name__}. The model comes first: "
            "lw.audit(model, (X, y))."
        )
    if isinstance(data, tuple | list) and len(data) == 2:
        _check_pair(model, *data)
        return data
    table = data[0] if isinstance(data, tuple | list) and len(data) == 1 else data
    are_texts = isinstance(table, list) and len(table) > 0 and all(isinstance(text, str) for text in table)
    if not _shape(table) and not are_texts:
        return data
    extra = _extra_columns(model, table, None)
    is_stated = hasattr(model, "__sklearn_tags__")
    if is_stated and not _predicts(model) and not get_tags(model).target_tags.required and not extra:
        return table, None
    missing = "audit: y is missing. Pass the table and its labels, lw.audit(model, (X, y))"
    if len(extra) == 1:
        name = repr(extra[0])
        raise TypeError(
            f"{missing}. The table has one column that the model was not fitted on, {name}. If it holds the labels: "
            f"lw.audit(model, (table.drop(columns={name}), table[{name}]))."
        )
    raise TypeError(f"{missing}; if the model was fitted without labels, (X, None).")


def _check_pair(model: Any, X: Any, y: Any) -> None:
    name = type(model).__name__
    parts = list(X.values()) if isinstance(X, dict) else list(X) if isinstance(X, tuple | list) else []
    if isinstance(model, nn.Module) and parts and all(len(_shape(part)) > 1 for part in parts):
        raise TypeError(
            f"audit: X is a {type(X).__name__} of several inputs. Pack them into one tensor: x, parts = "
            "lw.records.pack(X), lw.audit(net, lw.Records(x, y), ...); parts(x) gives them back in the training "
            "function."
        )
    if y is None and (isinstance(model, nn.Module) or _predicts(model)):
        raise TypeError(f"audit: y is missing: it is None, but {name} was fitted on labels. Pass data=(X, y).")
    of_x, of_y = _shape(X), _shape(y)
    is_vector = len(of_x) == 1 and getattr(getattr(X, "dtype", None), "kind", "f") in "iufb"
    if is_vector and len(of_y) > 1 and of_y[1] > 1:
        raise ValueError(f"audit: X and y are swapped: X has shape {of_x}, and y {of_y}. Pass data=(X, y).")
    extra = _extra_columns(model, X, y)
    if len(extra) != 1:
        return
    named = hasattr(X, "columns")
    which = f"the column {extra[0]!r}" if named else f"column {extra[0]}, which equals y"
    cure = f"X.drop(columns={extra[0]!r})" if named else f"np.delete(X, {extra[0]}, axis=1)"
    raise ValueError(
        f"audit: X has {of_x[1]} features, but {name} was fitted on {model.n_features_in_}: not on {which}. If it "
        f"holds the labels, leave it out: lw.audit(model, ({cure}, y))."
    )


def _predicts(model: Any) -> bool:
    """Whether a model states that it predicts labels; of one that does not say what it is, this is not known."""
    return hasattr(model, "__sklearn_tags__") and get_tags(model).estimator_type in ("classifier", "regressor")


def _extra_columns(model: Any, X: Any, y: Any) -> list[Any]:
    """Columns of X that the model was not fitted on: by their names, or where one of an array equals y."""
    try:
        wanted = getattr(model, "n_features_in_", None)
    except Exception:  # of a third-party model that is not fitted: the readers say so
        return []
    if len(_shape(X)) != 2 or not isinstance(wanted, int | np.integer) or X.shape[1] <= wanted:
        return []
    if hasattr(X, "columns"):
        known = set(map(str, getattr(model, "feature_names_in_", ())))
        return [name for name in X.columns if str(name) not in known] if known else []
    if _shape(y) != (X.shape[0],) or is_sparse(X):
        return []
    try:
        values, labels = np.asarray(X), np.asarray(y)
        return [column for column in range(values.shape[1]) if bool((values[:, column] == labels).all())]
    except (TypeError, ValueError, RuntimeError):  # tensors that are elsewhere, cells that cannot be compared
        return []


def _shape(value: Any) -> tuple[int, ...]:
    """The shape of an array; () of everything else."""
    try:
        shape = getattr(value, "shape", None)
    except RuntimeError:  # of a nested tensor
        return ()
    return tuple(shape) if isinstance(shape, tuple) else ()


def check_rows(steps: Sequence[Any], rows: int) -> str | None:
    """Raise if the last step states that it was fitted on fewer rows; a sentence if only an earlier step does.

    An earlier step may have been fitted on other data, which is public; a model that is audited was not.
    """
    if any(hasattr(step, "fit_resample") for step in steps):  # of imbalanced-learn: it changes the number of rows
        return None
    if (sentence := fewer_rows(steps[-1], rows)) is not None:
        raise ValueError(
            f"audit: {sentence}. Were test rows passed too? Pass only the rows that the model was fitted on."
        )
    return next(filter(None, (fewer_rows(step, rows) for step in reversed(steps))), None)


def fewer_rows(step: Any, rows: int) -> str | None:
    """A sentence if the step states that it was fitted on fewer rows than this."""
    seen = rows_seen(step) or rows
    return f"{type(step).__name__} was fitted on {seen:,} rows, and X has {rows:,}" if seen < rows else None


def rows_seen(step: Any) -> int | None:
    """How many rows a fitted scikit-learn model states that it has seen; None if it does not say, or by weights."""
    if not type(step).__module__.startswith("sklearn."):
        return None
    fitted = attributes(step)
    stated = fitted.get("n_samples_fit_", fitted.get("shape_fit_", (None,))[0])  # nearest neighbours, support vectors
    if stated is None and "t_" in fitted and not fitted.get("early_stopping", False):
        epochs = fitted.get("n_iter_", 0)  # nets count rows, linear models by SGD one more
        first = 0 if "coefs_" in fitted else 1
        stated = (fitted["t_"] - first) / epochs if np.ndim(epochs) == 0 and epochs > 0 else None
    if stated is None:
        stated = fitted.get("n_samples_seen_", fitted.get("n_samples_"))  # scalers, PCA
    if stated is None or np.ndim(stated) or not float(stated).is_integer() or stated < 1:
        return None
    return int(stated)


def is_frame(X: Any) -> bool:
    """A data frame or a series of pandas."""
    return hasattr(X, "iloc")


def is_sparse(X: Any) -> bool:
    """A sparse matrix or array of scipy."""
    return hasattr(X, "toarray")


def dense(X: Any) -> Any:
    """A sparse matrix as an array; everything else unchanged."""
    return X.toarray() if is_sparse(X) else X


def kind_of(X: Any) -> str:
    """The kind of the numbers in an array; O for frames, lists and everything else."""
    return str(getattr(getattr(X, "dtype", None), "kind", "O"))


def chosen(estimator: Any) -> Any:
    """The best model of a search (GridSearchCV and the like); every other model as it is."""
    while hasattr(estimator, "best_estimator_"):
        estimator = estimator.best_estimator_
    return estimator


def steps_of(estimator: Any) -> list[Any]:
    """All steps of a pipeline, with nested pipelines and searches flattened."""
    estimator = chosen(estimator)
    if not isinstance(estimator, Pipeline):
        return [estimator]
    steps = [step for _, step in estimator.steps if step not in (None, "passthrough")]
    return [part for step in steps for part in steps_of(step)]


def is_dropped(step: Any) -> bool:
    """Is it no transformer, but 'drop'?"""
    return isinstance(step, str) and step == "drop"


def columns_at(X: Any, places: Any) -> Any:
    """Some columns of a frame, an array or a sparse matrix; a single one as a series or a vector."""
    return X.iloc[:, places] if is_frame(X) else X[:, places]


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


def features(X: Any) -> Numbers:
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


def published(estimator: Any, name: str) -> Numbers:
    """A fitted attribute in float64; raises if it holds NaN or infinity."""
    values = np.asarray(getattr(estimator, name), dtype=np.float64)
    check_finite(f"{name} of {type(estimator).__name__}", values)
    return values


def column_names(X: Any, steps: list[Any]) -> tuple[str, ...]:
    """The column names of a data frame, or those that the model was fitted with; they must agree, as in scikit-learn.

    `steps` are the model and the steps of a pipeline; the first with names counts.
    """
    remembered = next((list(step.feature_names_in_) for step in steps if hasattr(step, "feature_names_in_")), [])
    names, kind = list(X.columns) if hasattr(X, "columns") else remembered, type(steps[0]).__name__ if steps else ""
    if remembered and len(names) != len(remembered):
        some = sorted({str(name) for name in names} ^ set(map(str, remembered)))
        raise ValueError(
            f"audit: X has {len(names)} columns, but {kind} was fitted on {len(remembered)}: "
            f"{'it does not know' if len(names) > len(remembered) else 'X does not have'} "
            f"{some[0] if some else 'all of them'!r}. Pass X[model.feature_names_in_]."
        )
    are_texts = all(isinstance(name, str) for name in names)
    for place, (name, theirs) in enumerate(zip(names, remembered, strict=True) if remembered and are_texts else ()):
        if theirs not in (name, name.replace(" ", "_")):  # as LightGBM writes it
            difference = f"column {place} is {name!r} where {kind} was fitted on {str(theirs)!r}"
            if sorted(names) == sorted(remembered):
                order = f"in a different order than the model's: {difference}"
                raise ValueError(f"audit: the columns of X are {order}. Pass X[model.feature_names_in_].")
            raise ValueError(
                f"audit: the columns of X are not those of the model: {difference}. Pass the data the model was fitted "
                "on, with the columns model.feature_names_in_."
            )
    return tuple(map(str, names))


def targets(y: Any, rows: int) -> NDArray[Any]:
    """y as an array with one row per record: numbers or class names."""
    values = plain_array("audit", "y", y)
    names = values.dtype.names or ()
    if names and all(values.dtype[name].kind in "biuf" for name in names):  # events and times, as of scikit-survival
        values = np.stack([values[name].astype(np.float64) for name in names], 1)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim == 0 or len(values) != rows:
        raise ValueError(f"audit: expected y with one row per record, {rows} rows as in X, got shape {values.shape}.")
    if values.ndim > 2 or 0 in values.shape or values.dtype.kind in "cV":
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


def class_numbers(y: NDArray[Any], classes: NDArray[Any]) -> Tensor:
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


def numbered(y: NDArray[Any], *, classes: bool = False) -> tuple[Tensor, tuple[object, ...]]:
    """Labels of a classifier as class numbers with their names, as scikit-learn numbers them.

    Several columns of classes are numbered each by itself, and have no names. Where it is not known that labels are
    `classes`, real numbers stay what they are.
    """
    if classes and y.ndim > 1:
        each = [np.unique(column, return_inverse=True)[1] for column in y.T]
        return torch.from_numpy(np.stack(each, 1).astype(np.float64)), ()
    if not classes and (y.dtype.kind == "f" or (y.ndim > 1 and y.dtype.kind in "iub")):
        return torch.from_numpy(numbers("audit", "y", y)), ()
    if y.ndim > 1:
        raise ValueError(f"audit: expected y with one class label per record, got shape {y.shape}.")
    if classes or y.dtype.kind != "O":
        try:
            names, index = np.unique(y, return_inverse=True)
        except TypeError as error:
            kinds = " and ".join(sorted({type(label).__name__ for label in y.tolist()}))
            raise ValueError(f"audit: y holds labels of types {kinds}. Pass those of the fit, of one type.") from error
        return torch.from_numpy(index), tuple(names.tolist())
    number = {name: place for place, name in enumerate(sorted(set(y.tolist()), key=str))}
    return torch.tensor([number[name] for name in y.tolist()]), tuple(number)


def regression_targets(y: NDArray[Any], outputs: int) -> Tensor:
    """Targets as float64, one column per output if there are several."""
    values = torch.from_numpy(numbers("audit", "y", y))
    if values.numel() != len(values) * outputs:
        raise ValueError(f"audit: expected y with {outputs} targets per record, got shape {tuple(values.shape)}.")
    return values


def _finite(values: NDArray[Any], name: str) -> None:
    bad = ~np.isfinite(values)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise ValueError(
            f"audit: {name} holds {int(bad.sum())} values that are NaN or infinite, the first at row {row}, "
            f"column {column}. Pass the data the model was fitted on, without missing values."
        )


def other_data(name: str, why: str, more: str = "") -> ValueError:
    """The error for a model that was fitted on other rows, labels or weights."""
    return ValueError(
        f"audit: {name} was not fitted on this data (X, y): {why}. Pass exactly the rows, labels and sample_weight it "
        f"was fitted on{more}."
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
