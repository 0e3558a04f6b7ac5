"""Models of XGBoost, LightGBM and CatBoost at the end of a pipeline, or by themselves: a Booster, or a file."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from torch import Tensor

from lostwax.adapters import catboost, lightgbm, xgboost
from lostwax.adapters.sklearn import inputs
from lostwax.adapters.sklearn.estimators import SettingNotReadError
from lostwax.adapters.sklearn.pipelines import PipelineReader, Place, as_numbers, named
from lostwax.adapters.sklearn.trees import boosted_sums
from lostwax.adapters.trees import BoostedModel
from lostwax.games import Cells, Columns, Fitted, Kept, Records, ReleasedTable
from lostwax.games.boosting import BoostedSums
from lostwax.records.tables import coded

LIBRARIES = {  # by package, what fitted models of it have
    "xgboost": ("get_booster", "save_raw"),
    "lightgbm": ("booster_", "model_to_string"),
    "catboost": ("save_model",),
}


def is_boosted(model: Any) -> bool:
    """A model of XGBoost, LightGBM or CatBoost: an estimator, a Booster, or what was read from a file."""
    parts = LIBRARIES.get(type(model).__module__.partition(".")[0], ())
    return isinstance(model, BoostedModel) or any(hasattr(model, part) for part in parts)


def is_booster(model: Any) -> bool:
    """A model of theirs without the scikit-learn interface."""
    return is_boosted(model) and not hasattr(model, "get_params")


def _opened(model: Any) -> BoostedModel:
    """The trees of a fitted model."""
    libraries = {"xgboost": xgboost.model_of, "lightgbm": lightgbm.model_of, "catboost": catboost.model_of}
    library = libraries.get(type(model).__module__.partition(".")[0])
    booster: BoostedModel = model if library is None else library(model)
    return booster


def sums_over_rows(model: Any) -> bool:
    """Whether this is boosting of scikit-learn."""
    return boosted_sums.dispatch(type(model)) is not boosted_sums.dispatch(object)


def released_sums(model: Any) -> BoostedSums:
    """What boosted trees tell of rows that nobody knows; raises a TypeError that names what is not read."""
    sums = _opened(model).sums() if is_boosted(model) else boosted_sums(model)
    inner = [boosted.tree.threshold[boosted.tree.feature >= 0] for boosted in sums.trees]
    if not all(np.isfinite(thresholds).all() for thresholds in inner):
        raise TypeError(f"{sums.name}: a split of rows with missing values is not read without a row of the table.")
    return sums


def read_boosted(model: Any, place: Place, labels: NDArray[Any], weight: Tensor, reader: PipelineReader) -> None:
    """Note what the trees of a model publish about the rows of a place."""
    booster = _opened(model)
    if booster.gaps and inputs.is_sparse(place.rows):
        raise SettingNotReadError(
            "trees on a sparse X were not read: what is not stored in it counts as missing, not as zero", "."
        )
    _read_categories(booster, place, reader)
    y, _ = _labels(booster, model, labels)
    place = _with_codes(place, booster.no_numbers)
    if (x := as_numbers(place.rows)) is None:
        raise SettingNotReadError(f"trees on {place.rows.shape[1]:,} columns that are no numbers are not read", ".")
    boosted = booster.read(x.numpy(), y.double().numpy(), weight.numpy())
    table = Records(x, y)
    reader.publish(Fitted(booster.name, table, weight, None, forest=boosted.forest), place)
    if boosted.extremes:
        reader.publish(Fitted(booster.name, table, weight, None, extremes=boosted.extremes), place, labelled=False)
    reader.notes += [note for note in boosted.notes if note not in reader.notes]
    reader.unread += boosted.unread


def _read_categories(booster: BoostedModel, place: Place, reader: PipelineReader) -> None:
    """The categories that the file lists, every one of the data frame, whether trees split them or not."""
    if not booster.categories:
        return
    kinds = place.rows.dtypes if inputs.is_frame(place.rows) else ()
    columns = [column for column, kind in enumerate(kinds) if kind.name == "category"]
    if len(columns) != len(booster.categories):
        reader.unread.append(
            f"the categories that {booster.name} lists of {len(booster.categories)} columns were not audited: X has "
            f"{len(columns)} columns of pandas' type category. Pass the data frame that the model was fitted on."
        )
        return
    reader.publish_categories(booster.name, place, dict(zip(columns, booster.categories, strict=True)))
    names = Columns(tuple(map(str, place.rows.columns)), ()).listed(columns)
    reader.notes.append(f"{booster.name} lists every category of the data frame by name, in: {names}.")


def _labels(booster: BoostedModel, model: Any, labels: NDArray[Any]) -> tuple[Tensor, tuple[object, ...]]:
    """Class numbers with their names, or targets."""
    classes = is_classifier(model) if hasattr(model, "get_params") else booster.classifies
    targets = labels.astype(np.float64) if labels.dtype.kind in "iub" and not classes else labels
    return inputs.numbered(targets, classes=classes)


def released_booster(model: Any, data: Any, sample_weight: Any = None) -> ReleasedTable:
    """A Booster, or a file that holds one, and the data it was trained on."""
    booster = _opened(model)
    X, y = inputs.unpack(data)
    X = X if inputs.is_sparse(X) or inputs.is_frame(X) else np.asarray(X)
    x, columns = coded(inputs.dense(X))
    targets, weight = inputs.targets(y, len(x)), inputs.weights(sample_weight, len(x))
    labels, classes = _labels(booster, booster, targets)
    reader = PipelineReader(columns, list(range(x.shape[1])), labels, weight)
    read_boosted(booster, reader.start(X), targets, weight, reader)
    return reader.released(booster.name, Records(x, labels), classes=classes)


def _with_codes(place: Place, no_numbers: tuple[int, ...] = ()) -> Place:
    """The place after pandas' categories became codes, as the libraries make them; columns without a code are zero."""
    rows = place.rows
    if not inputs.is_frame(rows):
        return place
    names = {
        column: tuple(rows.iloc[:, column].cat.categories)
        for column, kind in enumerate(rows.dtypes)
        if kind.name == "category" and column not in no_numbers
    }

    def codes(frame: Any) -> NDArray[np.float64]:
        numbers = np.zeros(frame.shape)
        for column in sorted({*range(frame.shape[1])} - {*no_numbers}):
            cells = frame.iloc[:, column]
            if column in names:
                code = cells.astype("category").cat.set_categories(names[column]).cat.codes.to_numpy()
                numbers[:, column] = np.where(code < 0, np.nan, code)
            else:
                numbers[:, column] = cells.to_numpy(dtype=np.float64, na_value=np.nan)
        return numbers

    def back(values: Cells) -> Cells:
        cells = values.values.astype(object)
        for column, known in names.items():
            cells[:, [column]] = named(values.columns([column]), names=known).values
        certainty = values.kept.copy()
        certainty[:, list(no_numbers)] = Kept.LOST
        return Cells(cells, certainty)

    return place.through(back, codes(rows), forward=codes) if names or no_numbers else place
