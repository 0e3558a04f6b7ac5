"""Models of XGBoost and LightGBM at the end of a pipeline, or by themselves: a Booster, or a file that holds one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.adapters import lightgbm, xgboost
from lostwax.adapters.boosted import Boosted, Numbers
from lostwax.adapters.sklearn import inputs
from lostwax.adapters.sklearn.estimators import SettingNotReadError
from lostwax.adapters.sklearn.pipelines import PipelineReader, Place, as_numbers
from lostwax.adapters.sklearn.steps import Back, Values
from lostwax.games import Fitted, Records, ReleasedTable
from lostwax.records.frames import coded


@dataclass(frozen=True)
class SavedBooster:
    """Trees in a file or in a Booster, which cannot be fitted again."""

    name: str
    classifies: bool
    read: Callable[[Numbers, Numbers, Numbers], Boosted]  # rows (n, d), labels, weights
    gaps: bool = False  # what is not stored in a sparse matrix counts as missing


def is_boosted(model: Any) -> bool:
    """A model of XGBoost or LightGBM."""
    return isinstance(model, SavedBooster) or xgboost.is_xgboost(model) or lightgbm.is_lightgbm(model)


def is_booster(model: Any) -> bool:
    """A model of theirs that has no scikit-learn interface: it is read, and cannot be fitted again."""
    return is_boosted(model) and not hasattr(model, "get_params")


def opened(model: Any) -> SavedBooster:
    """The trees of a fitted model."""
    if isinstance(model, SavedBooster):
        return model
    return of_xgboost(model) if xgboost.is_xgboost(model) else of_lightgbm(lightgbm.model_of(model))


def of_xgboost(fitted: Any, name: str | None = None) -> SavedBooster:
    """A Booster or an estimator of XGBoost."""
    model, penalty = xgboost.model_of(fitted, name), xgboost.penalties(fitted)

    def read(x: Numbers, y: Numbers, weight: Numbers) -> Boosted:
        return xgboost.read(model, x, y, weight, penalty)

    return SavedBooster(model.name, model.classifies, read, gaps=True)


def of_lightgbm(model: lightgbm.Model) -> SavedBooster:
    """A model of LightGBM."""

    def read(x: Numbers, y: Numbers, weight: Numbers) -> Boosted:
        return lightgbm.read(model, x, y, weight)

    return SavedBooster(model.name, model.classifies, read)


def read_boosted(
    model: Any, place: Place, labels: NDArray[Any], weight: Tensor, reader: PipelineReader
) -> tuple[Tensor, tuple[object, ...]]:
    """Note what the trees of a model publish about the rows of a place; the labels they were grown on, and names."""
    booster = opened(model)
    if booster.gaps and hasattr(place.rows, "toarray"):
        raise SettingNotReadError("a sparse X was not read: what is not stored in it counts as missing, not as zero", "")
    place = with_codes(place)
    if (x := as_numbers(place.rows)) is None:
        raise SettingNotReadError(f"trees on {place.rows.shape[1]:,} columns that are no numbers are not read", "")
    y, classes = inputs.numbered(labels, classes=booster.classifies)
    found = booster.read(x.numpy(), y.double().numpy(), weight.numpy())
    y = y if booster.classifies else y.double()
    table = Records(x, y)
    reader.publish(Fitted(booster.name, table, weight, None, forest=found.forest), place)
    if found.extremes:
        reader.publish(Fitted(booster.name, table, weight, None, extremes=found.extremes), place, labelled=False)
    reader.notes += [note for note in found.notes if note not in reader.notes]
    reader.unread += found.unread
    return y, classes


def released_booster(model: Any, data: Any, sample_weight: Any = None) -> ReleasedTable:
    """A Booster, or a file that holds one, and the data it was trained on."""
    booster = opened(model)
    X, y = inputs.unpack(data)
    X = X if hasattr(X, "toarray") or hasattr(X, "iloc") else np.asarray(X)
    x, columns = coded(X.toarray() if hasattr(X, "toarray") else X)
    labels, weight = inputs.targets(y, len(x)), inputs.weights(sample_weight, len(x))
    numbers, classes = inputs.numbered(labels, classes=booster.classifies)
    reader = PipelineReader(columns, list(range(x.shape[1])), numbers, weight)
    numbers, classes = read_boosted(booster, reader.start(X), labels, weight, reader)
    return ReleasedTable(
        name=booster.name,
        table=Records(x, numbers),
        weight=weight,
        columns=columns,
        parts=tuple(reader.parts),
        classes=classes,
        notes=tuple(reader.notes),
        unread=tuple(reader.unread),
    )


def with_codes(place: Place) -> Place:
    """The place after pandas' categories became codes, as both libraries make them."""
    rows = place.rows
    if not hasattr(rows, "dtypes") or not hasattr(rows, "columns"):
        return place
    names = {
        column: tuple(rows.iloc[:, column].cat.categories)
        for column, kind in enumerate(rows.dtypes)
        if kind.name == "category"
    }
    if not names:
        return place

    def codes(frame: Any) -> NDArray[np.float64]:
        found = np.empty(frame.shape)
        for column in range(frame.shape[1]):
            cells = frame.iloc[:, column]
            if column in names:
                own = cells.astype("category").cat.set_categories(names[column]).cat.codes.to_numpy()
                found[:, column] = np.where(own < 0, np.nan, own)
            else:
                found[:, column] = cells.to_numpy(dtype=np.float64, na_value=np.nan)
        return found

    return place.through(_named(names), codes(rows), forward=codes)


def _named(names: dict[int, tuple[object, ...]]) -> Back:
    """Back from codes to categories."""

    def back(values: Values) -> Values:
        cells = values.cells.astype(object)
        for column, known in names.items():
            listed = np.empty(len(known) + 1, dtype=object)
            listed[:] = [*known, np.nan]
            numbers = values.cells[:, column].astype(np.float64)
            place = np.where(np.isnan(numbers), len(known), np.nan_to_num(numbers))
            cells[:, column] = listed[place.clip(0, len(known)).astype(np.intp)]
        return Values(cells, values.kept)

    return back
