"""Fitted objects of any class that cannot be fitted again by fit(X, y): what they hold of the table.

Results of lifelines, and of statsmodels where the model has no equation: their rows, columns, sums and targets are
found by value. Of a Cox model the score equation is read too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lostwax.adapters.sklearn import inputs
from lostwax.adapters.sklearn.estimators import NotReadError
from lostwax.adapters.sklearn.held_tables import held_columns, held_labels
from lostwax.adapters.sklearn.pipelines import PipelineReader
from lostwax.adapters.sklearn.reading import read_tables
from lostwax.adapters.sklearn.survival import Cox, cox_of, has_hazards, publish_cox
from lostwax.games import Columns, Records, ReleasedTable
from lostwax.records.tables import coded


def is_fitted_object(model: Any) -> bool:
    """A fitted model of lifelines."""
    return type(model).__module__.partition(".")[0] == "lifelines"


def coded_data(data: Any) -> tuple[Any, Any, Tensor, Columns]:
    """The owner's X and y, and X as numbers (n, d) with codes for categories."""
    X, y = inputs.unpack(data)
    X = X if inputs.is_frame(X) else np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"audit: expected X of shape (n_records, n_features), got shape {X.shape}.")
    x, columns = coded(X)
    columns = replace(columns, names=inputs.column_names(X, []))
    return X, y, x, columns


def released(model: Any, data: Any, sample_weight: Any = None, reason: str = "it has no equation") -> ReleasedTable:
    """What an object holds of the table; `reason`: why its parameters were not attacked, as a clause."""
    name, unread, cox = type(model).__name__, list[str](), None
    X, y, x, columns = coded_data(data)
    targets, weight = inputs.targets(y, len(x)), inputs.weights(sample_weight, len(x))
    used = [*range(x.shape[1])]
    labels = inputs.numbered(targets)[0]
    try:
        if has_hazards(model):
            cox = cox_of(model)
            used = _columns_of(cox, X)
        else:
            unread.append(f"the parameters of {name} were not attacked: {reason}.")
    except NotReadError as error:
        unread.append(f"{name} was audited only for the rows and values that it holds: {error.reason}.")
    if cox is None:  # a series has only targets: these are columns like all others
        y_columns = labels.double().reshape(len(x), -1)
        names = [*columns.names, *(f"target {place}" for place in range(y_columns.shape[1]))]
        columns = Columns(tuple(names) if columns.names else (), (*columns.categories, *((),) * y_columns.shape[1]))
        x, labels = torch.cat([x, y_columns], 1), torch.zeros(len(x), dtype=torch.long)
        X, used = x.numpy(), [*range(x.shape[1])]
    reader = PipelineReader(columns.at(used), used, labels, weight, unread=unread)
    place = reader.start(X).at(used)
    if cox is not None:
        publish_cox(cox, place, targets, weight, reader)
    reader.scanned(model, place, labels, weight)
    table = Records(x[:, used], labels)
    read_tables(model, name, table, reader, x.shape[1])
    path = None if cox is None else _held_targets(model, labels)
    every_target = None if path is None else f"{name}'s {path} holds a target of all rows."
    return replace(reader.released(name, table, held_labels=every_target), supervised=cox is not None)


def _held_targets(model: Any, labels: Tensor) -> str | None:
    """Where an object holds a target of all rows, in their order or sorted."""
    y = labels.double().reshape(len(labels), -1)
    columns = held_columns(model, y, Columns((), ((),) * y.shape[1]))
    return held_labels(model, labels) or next((column.path for column in columns), None)


def _columns_of(cox: Cox, X: Any) -> list[int]:
    """The columns of X that have coefficients, by name where both have names."""
    names = [*map(str, X.columns)] if inputs.is_frame(X) else []
    if cox.columns and set(cox.columns) <= set(names):
        return [names.index(name) for name in cox.columns]
    if X.shape[1] != len(cox.weight):
        raise ValueError(
            f"audit: X has {X.shape[1]} columns, but {cox.source} was fitted on {len(cox.weight)}: "
            f"{', '.join(cox.columns)}. Pass these columns, without times and events."
        )
    return [*range(X.shape[1])]
