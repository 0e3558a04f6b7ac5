"""Arguments that are nearly right: swapped, without labels, with the labels among the columns, with test rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.utils import get_tags
from torch import nn

from lostwax.adapters.objects import attributes
from lostwax.games import Records


def check_data(model: Any, data: Any) -> Any:
    """The data, or raise an error that names the slip; what is wrong in other ways is left to the readers.

    A table alone is (X, None) for a model that takes no labels: clusters, transformers, outlier detection.
    """
    if _is_model(data):
        raise TypeError(
            f"audit: the arguments are swapped: data is the model, {type(data).__name__}. The model comes first: "
            "lw.audit(model, (X, y))."
        )
    if isinstance(data, Records):
        return data
    if isinstance(data, tuple | list) and len(data) == 2:
        _check_pair(model, *data)
        return data
    table = data[0] if isinstance(data, tuple | list) and len(data) == 1 else data
    are_texts = isinstance(table, list) and len(table) > 0 and all(isinstance(text, str) for text in table)
    if not _has_shape(table) and not are_texts:
        return data
    extra = _extra_columns(model, table, None)
    needs_labels = not _is_of_sklearn(model) or _predicts(model) or get_tags(model).target_tags.required
    if not needs_labels and not extra:
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
    if isinstance(model, nn.Module) and parts and all(_has_shape(part) and len(part.shape) > 1 for part in parts):
        raise TypeError(
            f"audit: X is a {type(X).__name__} of several inputs. Pack them into one tensor: x, parts = "
            "lw.records.pack(X), lw.audit(net, lw.Records(x, y), ...); parts(x) gives them back in the training "
            "function."
        )
    if y is None and (isinstance(model, nn.Module) or (_is_of_sklearn(model) and _predicts(model))):
        raise TypeError(f"audit: y is missing: it is None, but {name} was fitted on labels. Pass data=(X, y).")
    is_vector = _has_shape(X) and len(X.shape) == 1 and getattr(getattr(X, "dtype", None), "kind", "f") in "iufb"
    if is_vector and _has_shape(y) and len(y.shape) > 1 and y.shape[1] > 1:
        raise ValueError(
            f"audit: X and y are swapped: X has shape {tuple(X.shape)}, and y {tuple(y.shape)}. Pass data=(X, y)."
        )
    extra = _extra_columns(model, X, y)
    if len(extra) != 1:
        return
    named = hasattr(X, "columns")
    which = f"the column {extra[0]!r}" if named else f"column {extra[0]}, which equals y"
    cure = f"X.drop(columns={extra[0]!r})" if named else f"np.delete(X, {extra[0]}, axis=1)"
    raise ValueError(
        f"audit: X has {X.shape[1]} features, but {name} was fitted on {model.n_features_in_}: not on {which}. If it "
        f"holds the labels, leave it out: lw.audit(model, ({cure}, y))."
    )


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


def _extra_columns(model: Any, X: Any, y: Any) -> list[Any]:
    """Columns of X that the model was not fitted on: by their names, or where one of an array equals y."""
    try:
        wanted = getattr(model, "n_features_in_", None)
    except Exception:  # of a third-party model that is not fitted: the readers say so
        return []
    if not _has_shape(X) or len(X.shape) != 2 or not isinstance(wanted, int | np.integer) or X.shape[1] <= wanted:
        return []
    if hasattr(X, "columns"):
        known = set(map(str, getattr(model, "feature_names_in_", ())))
        return [name for name in X.columns if str(name) not in known] if known else []
    if not _has_shape(y) or tuple(y.shape) != (X.shape[0],) or hasattr(X, "toarray"):
        return []
    try:
        values, labels = np.asarray(X), np.asarray(y)
        return [column for column in range(values.shape[1]) if bool((values[:, column] == labels).all())]
    except (TypeError, ValueError, RuntimeError):  # tensors that are elsewhere, cells that cannot be compared
        return []


def _is_model(value: Any) -> bool:
    kind = type(value)
    return isinstance(value, nn.Module) or any(callable(getattr(kind, name, None)) for name in ("fit", "predict"))


def _is_of_sklearn(model: Any) -> bool:
    """Whether it states what it is; of other models it is not known whether they predict labels."""
    return hasattr(model, "__sklearn_tags__")


def _predicts(model: Any) -> bool:
    return bool(is_classifier(model) or is_regressor(model))


def _has_shape(value: Any) -> bool:
    try:
        return isinstance(getattr(value, "shape", None), tuple)
    except RuntimeError:  # of a nested tensor
        return False
