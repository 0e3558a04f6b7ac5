"""Models of XGBoost, LightGBM and CatBoost at the end of a pipeline, or by themselves: a Booster, or a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from torch import Tensor

from lostwax.adapters import catboost, lightgbm, xgboost
from lostwax.adapters.boosted import Boosted, Numbers
from lostwax.adapters.sklearn import inputs
from lostwax.adapters.sklearn.estimators import SettingNotReadError
from lostwax.adapters.sklearn.pipelines import PipelineReader, Place, as_numbers
from lostwax.adapters.sklearn.steps import Back
from lostwax.games import Cells, Columns, Fitted, Records, ReleasedTable
from lostwax.records.frames import coded


@dataclass(frozen=True)
class SavedBooster:
    """Trees without the scikit-learn interface: a Booster, or a file. They cannot be fitted again."""

    name: str
    classifies: bool
    read: Callable[[Numbers, Numbers, Numbers], Boosted]  # rows (n, d), labels, weights
    gaps: bool = False  # what is not stored in a sparse matrix counts as missing
    categories: tuple[tuple[object, ...], ...] = ()  # that the file lists, of each column of categories

    @classmethod
    def of_xgboost(cls, model: xgboost.XGBoostModel, training: xgboost.Training = xgboost.DEFAULTS) -> SavedBooster:
        """A model of XGBoost."""

        def read(x: Numbers, y: Numbers, weight: Numbers) -> Boosted:
            return xgboost.read(model, x, y, weight, training)

        return cls(model.name, model.classifies, read, gaps=True, categories=model.categories)

    @classmethod
    def of_lightgbm(cls, model: lightgbm.LightGBMModel) -> SavedBooster:
        """A model of LightGBM."""

        def read(x: Numbers, y: Numbers, weight: Numbers) -> Boosted:
            return lightgbm.read(model, x, y, weight)

        return cls(model.name, model.classifies, read, categories=model.categories)

    @classmethod
    def of_catboost(cls, model: catboost.Model) -> SavedBooster:
        """A model of CatBoost."""

        def read(x: Numbers, y: Numbers, weight: Numbers) -> Boosted:
            return catboost.read(model, x, y, weight)

        return cls(model.name, model.classifies, read)


def is_boosted(model: Any) -> bool:
    """A model of XGBoost, LightGBM or CatBoost."""
    libraries = (xgboost.is_xgboost, lightgbm.is_lightgbm, catboost.is_catboost)
    return isinstance(model, SavedBooster) or any(made(model) for made in libraries)


def is_booster(model: Any) -> bool:
    """A model of theirs without the scikit-learn interface."""
    return is_boosted(model) and not hasattr(model, "get_params")


def _opened(model: Any) -> SavedBooster:
    """The trees of a fitted model."""
    if isinstance(model, SavedBooster):
        return model
    if xgboost.is_xgboost(model):
        return SavedBooster.of_xgboost(xgboost.model_of(model), xgboost.training_of(model))
    if lightgbm.is_lightgbm(model):
        return SavedBooster.of_lightgbm(lightgbm.model_of(model))
    return SavedBooster.of_catboost(catboost.model_of(model))


def read_boosted(model: Any, place: Place, labels: NDArray[Any], weight: Tensor, reader: PipelineReader) -> None:
    """Note what the trees of a model publish about the rows of a place."""
    booster = _opened(model)
    if booster.gaps and hasattr(place.rows, "toarray"):
        raise SettingNotReadError(
            "trees on a sparse X were not read: what is not stored in it counts as missing, not as zero", "."
        )
    _read_categories(booster, place, reader)
    place = with_codes(place)
    if (x := as_numbers(place.rows)) is None:
        raise SettingNotReadError(f"trees on {place.rows.shape[1]:,} columns that are no numbers are not read", ".")
    y, _ = _labels(booster, model, labels)
    found = booster.read(x.numpy(), y.double().numpy(), weight.numpy())
    table = Records(x, y)
    reader.publish(Fitted(booster.name, table, weight, None, forest=found.forest), place)
    if found.extremes:
        reader.publish(Fitted(booster.name, table, weight, None, extremes=found.extremes), place, labelled=False)
    reader.notes += [note for note in found.notes if note not in reader.notes]
    reader.unread += found.unread


def _read_categories(booster: SavedBooster, place: Place, reader: PipelineReader) -> None:
    """The categories that the file lists, every one of the data frame, whether trees split them or not."""
    if not booster.categories:
        return
    kinds = enumerate(getattr(place.rows, "dtypes", ()))
    columns = [column for column, kind in kinds if getattr(kind, "name", "") == "category"]
    if len(columns) != len(booster.categories):
        reader.unread.append(
            f"the categories that {booster.name} lists of {len(booster.categories)} columns were not audited: X has "
            f"{len(columns)} columns of pandas' type category. Pass the data frame that the model was fitted on."
        )
        return
    reader.publish_categories(booster.name, place, dict(zip(columns, booster.categories, strict=True)))
    names = Columns(tuple(map(str, place.rows.columns)), ()).listed(columns)
    reader.notes.append(f"{booster.name} lists every category of the data frame by name, in: {names}.")


def _labels(booster: SavedBooster, model: Any, labels: NDArray[Any]) -> tuple[Tensor, tuple[object, ...]]:
    """Class numbers with their names, or targets."""
    classes = is_classifier(model) if hasattr(model, "get_params") else booster.classifies
    targets = labels.astype(np.float64) if labels.dtype.kind in "iub" and not classes else labels
    return inputs.numbered(targets, classes=classes)


def released_booster(model: Any, data: Any, sample_weight: Any = None) -> ReleasedTable:
    """A Booster, or a file that holds one, and the data it was trained on."""
    booster = _opened(model)
    X, y = inputs.unpack(data)
    X = X if hasattr(X, "toarray") or hasattr(X, "iloc") else np.asarray(X)
    x, columns = coded(X.toarray() if hasattr(X, "toarray") else X)
    given, weight = inputs.targets(y, len(x)), inputs.weights(sample_weight, len(x))
    labels, classes = _labels(booster, booster, given)
    reader = PipelineReader(columns, list(range(x.shape[1])), labels, weight)
    read_boosted(booster, reader.start(X), given, weight, reader)
    return ReleasedTable(
        name=booster.name,
        table=Records(x, labels),
        weight=weight,
        columns=columns,
        parts=tuple(reader.parts),
        classes=classes,
        notes=tuple(reader.notes),
        unread=tuple(reader.unread),
        supervised=True,
    )


def with_codes(place: Place) -> Place:
    """The place after pandas' categories became codes, as the libraries make them."""
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

    def back(values: Cells) -> Cells:
        cells = values.values.astype(object)
        for column, known in names.items():
            listed = np.empty(len(known) + 1, dtype=object)
            listed[:] = [*known, np.nan]
            numbers = values.values[:, column].astype(np.float64)
            place = np.where(np.isnan(numbers), len(known), np.nan_to_num(numbers))
            cells[:, column] = listed[place.clip(0, len(known)).astype(np.intp)]
        return Cells(cells, values.kept)

    return back
