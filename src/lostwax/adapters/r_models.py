"""Models of R: the equation of `lm` and `glm`, and the rows that their files hold.

`lm` and `glm` keep the model frame, `glm` the whole data frame too, and the QR decomposition gives every row without
either. A formula keeps the environment in which it was written, and a function all variables around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import OneHotEncoder
from torch import Tensor

from lostwax.adapters.fitted_objects import coded_data
from lostwax.adapters.objects import Array, Walk, attributes
from lostwax.adapters.r_files import RModel
from lostwax.adapters.sklearn import inputs
from lostwax.adapters.sklearn.estimators import KindNotReadError, NotReadError, Reading, SettingNotReadError, targets_of
from lostwax.adapters.sklearn.held_tables import held_labels
from lostwax.adapters.sklearn.models import publish_equation
from lostwax.adapters.sklearn.pipelines import PipelineReader, Place, as_numbers
from lostwax.adapters.sklearn.reading import read_tables
from lostwax.adapters.sklearn.survival import Cox, publish_cox
from lostwax.games import Fitted, Loss, Records, ReleasedTable, Stationary, Stored
from lostwax.games.fitted import gap
from lostwax.games.notes import stored_rows
from lostwax.losses import BinaryCrossEntropy, ProbitLoss, SquaredError, Tweedie

LOSSES: Mapping[tuple[str, str], Loss] = {  # of a family and its link
    ("gaussian", "identity"): SquaredError(),
    ("binomial", "logit"): BinaryCrossEntropy(),
    ("binomial", "probit"): ProbitLoss(),
    ("quasibinomial", "logit"): BinaryCrossEntropy(),
    ("poisson", "log"): Tweedie(1.0),
    ("quasipoisson", "log"): Tweedie(1.0),
    ("Gamma", "log"): Tweedie(2.0),
    ("Gamma", "inverse"): Tweedie(2.0, "inverse"),
    ("inverse.gaussian", "log"): Tweedie(3.0),
}
COX = "coxph"
SUPPORTED = f"lm; coxph; glm with {', '.join(f'{family} ({link})' for family, link in LOSSES)}"
INTERCEPT = "(Intercept)"
STRATA = re.compile(r"strata\(([\w.]+)\)")
NEAR = 1e-6  # of a column's deviation: rows of a QR decomposition are those of the table
DIGITS = 9  # of targets that are a sum of two numbers


def released(model: RModel, data: Any, sample_weight: Any = None) -> ReleasedTable:
    """What a model of R, and the file around it, tell of the table that the model was fitted on."""
    X, y, x, columns = coded_data(data)
    targets = inputs.targets(y, len(x))
    (labels, classes), weight = inputs.numbered(targets), inputs.weights(_weights(model, sample_weight), len(x))
    name, unread, terms = f"R {model.kind}", list[str](), None
    try:
        terms = _Terms.of(model, X)
    except NotReadError as error:
        unread.append(f"{name} was audited only for the rows and values that its file holds: {error.reason}.")
    used = [*range(x.shape[1])] if terms is None else sorted(terms.columns)
    reader = PipelineReader(columns.at(used), used, labels, weight, unread=unread)
    place = start = reader.start(X)
    if terms is not None:
        place = reader.through(terms.encoder(X), start)
        if model.kind == COX:
            publish_cox(_cox(model, name, terms.weight[0].numpy()), place, targets, weight, reader)
        else:
            reading = _reading(model, terms, place, targets, weight)
            reader.y, labels, classes = reading.y, reading.y, reading.classes
            publish_equation(name, reading, place, reader, sums_found=False)
        listed = {column: terms.levels[column] for column in terms.levels if columns.categories[column]}
        reader.publish_categories(name, start, listed)
    _read_file(model, name, Records(x[:, used], labels), place, reader, x.shape[1])
    path = held_labels(model.contents, labels) or held_labels(dict(_sums_of_residuals(model.contents)), labels)
    members = model.value.items() if terms is None and isinstance(model.value, dict) else ()
    of_each_row = [each for each, member in members if isinstance(member, np.ndarray) and len(member) == len(x)]
    if of_each_row:
        reader.unread.append(f"{name}'s {', '.join(of_each_row)} hold a number for each row, and were not attacked.")
    every_label = None if path is None else f"{name}'s {path} holds the labels of all rows in their order."
    return reader.released(name, Records(x[:, used], labels), classes=classes, held_labels=every_label)


class _Terms(NamedTuple):
    """The coefficients, and the columns of X that they belong to."""

    columns: list[int]
    levels: dict[int, Array]  # of those that are factors: the first has no coefficient
    weight: Tensor  # (1, d)
    bias: Tensor | None

    @classmethod
    def of(cls, model: RModel, X: Any) -> _Terms:
        """Columns that the formula takes as they are, or those of its design matrix."""
        value = model.value
        if model.kind not in ("lm", "glm", COX) or ("method" in value and value["method"][0] == "exact"):
            raise KindNotReadError(f"a {model.kind} of R is not read", f". Supported: {SUPPORTED}.")
        stated = attributes(value["terms"])
        if value.get("offset") is not None or "offset" in stated:
            raise SettingNotReadError(f"{model.kind} with an offset is not read", ".")
        theta = np.nan_to_num(np.asarray(value["coefficients"]))  # NA: a copy of other columns, whose equation holds
        names = [str(name) for name in attributes(value["coefficients"]).get("names", ())]
        at = [place for place, name in enumerate(names) if name != INTERCEPT]
        if theta.ndim > 1 or not at:
            raise SettingNotReadError(f"{model.kind} without a feature, or with several targets, is not read", ".")
        bias = torch.from_numpy(theta[:1]) if INTERCEPT in names else None
        weight, known = torch.from_numpy(theta[at])[None], [str(name) for name in getattr(X, "columns", ())]
        if not known or {names[place] for place in at} <= set(known):
            columns = [known.index(names[place]) for place in at] if known else [*range(X.shape[1])]
            if len(columns) != len(at):
                raise ValueError(f"audit: X has {len(columns)} columns, but {_of_coefficients(names, at)}.")
            return cls(columns, {}, weight, bias)
        labels, levels = [str(label).strip("`") for label in stated["term.labels"]], dict[int, Array]()
        labels = [label for label in labels if not (model.kind == COX and label.startswith("strata("))]
        factors, contrasts = value.get("xlevels") or {}, value.get("contrasts") or {}
        width = 0
        for label in labels:
            if label not in known:
                raise ValueError(
                    f"audit: X has no column {label!r}, which is a term of {model.name}. Pass the columns of "
                    "model.matrix(model), with their names."
                )
            if label in factors:
                if str(contrasts[label]) != "['contr.treatment']":
                    raise SettingNotReadError(
                        f"{model.kind} with other contrasts than contr.treatment is not read", "."
                    )
                levels[known.index(label)] = _as_cells(factors[label], X.iloc[:, known.index(label)])
            width += len(factors[label]) - 1 if label in factors else 1
        if width != len(at):
            raise ValueError(f"audit: X gives {width} columns, but {_of_coefficients(names, at)}.")
        return cls([known.index(label) for label in labels], levels, weight, bias)

    def encoder(self, X: Any) -> ColumnTransformer:
        """From X to the design matrix, without its column of ones."""
        steps = []
        for column in self.columns:
            step: Any = "passthrough"
            if (levels := self.levels.get(column)) is not None:
                step, unknown = OneHotEncoder(categories=[levels], drop="first"), ~X.iloc[:, column].isin(levels)
                if unknown.any():
                    raise ValueError(
                        f"audit: column {X.columns[column]!r} of X has a value that the model was not fitted on in "
                        f"{int(unknown.sum())} rows. Pass the rows that it was fitted on, without missing values."
                    )
            steps.append((str(column), step, [column]))
        return ColumnTransformer(steps, sparse_threshold=0).fit(X)


def _cox(model: RModel, name: str, weight: Array) -> Cox:
    """A Cox model of R; raises for intervals of time, and for strata that are made of several columns."""
    value, strata = model.value, list[str]()
    if (kind := attributes(value.get("y")).get("type")) is not None and str(kind[0]) != "right":
        raise SettingNotReadError(f"coxph with times of the kind {kind[0]!r} is not read", ".")
    for label in attributes(value["terms"])["term.labels"]:
        if str(label).startswith("strata("):
            if not (column := STRATA.fullmatch(str(label))):
                raise SettingNotReadError(f"coxph with {label} is not read: it is made of several columns", ".")
            strata.append(column[1])
    return Cox(name, weight, str(value["method"][0]) == "efron", strata=tuple(strata))


def _of_coefficients(names: list[str], at: list[int]) -> str:
    shown = ", ".join(names[place] for place in at)
    return f"the model has {len(at)} coefficients: {shown}. Pass the columns of model.matrix(model), with their names"


def _as_cells(levels: Array, column: Any) -> Array:
    """Levels as the table writes them."""
    return np.asarray(levels).astype(np.float64 if column.dtype.kind in "iuf" else object)


def _weights(model: RModel, sample_weight: Any) -> Any:
    """The weights of the rows, from the file unless they are given."""
    value = model.value if isinstance(model.value, dict) else {}
    stored = value.get("prior.weights" if model.kind == "glm" else "weights")
    if sample_weight is None and stored is None and "weights" in (value.get("call") or ()):
        raise ValueError(
            f"audit: {model.name} was fitted with weights that its file does not hold. Pass them as sample_weight=."
        )
    return sample_weight if sample_weight is not None or stored is None else np.asarray(stored)


def _reading(model: RModel, terms: _Terms, place: Place, targets: Array, weight: Tensor) -> Reading:
    """The equation at the optimum; whichever of two classes R counted as the first."""
    family = model.value.get("family") or {"family": ["gaussian"], "link": ["identity"]}
    key = (str(family["family"][0]), str(family["link"][0]))
    if (loss := LOSSES.get(key)) is None:
        raise SettingNotReadError(f"glm with {key[0]} ({key[1]}) is not read", f". Supported: {SUPPORTED}.")
    x, rows = as_numbers(place.rows), float(np.ravel(model.value["df.residual"])[0] + np.ravel(model.value["rank"])[0])
    if x is None or x.isnan().any() or (bool((weight > 0).all()) and rows != len(x)):
        raise ValueError(
            f"audit: {model.name} was fitted on {rows:,.0f} rows without missing values, and X has {len(targets):,}. "
            "Pass the rows that it was fitted on: R leaves out those with NA."
        )
    none, unit = torch.zeros(1).double(), torch.ones_like(terms.weight[0])
    stopped = not np.ravel(model.value.get("converged", [True]))[0]
    equation = Stationary(terms.weight, terms.bias, loss, none, none, torch.zeros_like(unit), unit, stopped)
    labels, classes = targets_of(loss, targets)
    if not classes:
        return Reading(labels, weight, equation)
    orders = ((labels, classes), (1 - labels, classes[::-1]))
    labels, classes = min(orders, key=lambda order: float(gap(equation, Records(x, order[0]), weight).norm()))
    return Reading(labels, weight, equation, classes=classes)


def _read_file(model: RModel, name: str, table: Records, place: Place, reader: PipelineReader, width: int) -> None:
    """Note rows, columns and sums that the file holds, wherever they are."""
    read_tables(model.contents, name, table, reader, width)
    x = as_numbers(place.rows)
    reader.scanned(model.contents, place, table.y, reader.weight)
    for path, rows in _decomposed(model.contents, (0, 0) if x is None else x.shape):
        if x is not None and bool(((rows - x).abs() <= NEAR * x.std(0)).all()):
            source = f"{name}'s {path}"
            fitted = Fitted(name, Records(x, table.y), reader.weight, None, stored=(Stored(source, x.clone()),))
            reader.publish(fitted, place)
            reader.notes.append(stored_rows(source, (len(x), len(x))))


def _decomposed(contents: Any, shape: tuple[int, ...]) -> Iterator[tuple[str, Tensor]]:
    """The rows (n, d) of each QR decomposition, by LINPACK's reflections; those of a glm are weighted."""
    for path, value in Walk(contents):
        if not (isinstance(value, dict) and {"qr", "qraux", "pivot"} <= value.keys()):
            continue
        packed, first = np.array(value["qr"], dtype=np.float64), np.asarray(value["qraux"])
        if packed.ndim != 2 or len(packed) != shape[0]:
            continue
        rows = np.triu(packed)
        for place in reversed(range(min(packed.shape))):
            reflected = packed[place:, place].copy()
            reflected[0] = first[place]
            if reflected[0]:  # (I - v v^T / v_0)
                rows[place:] -= np.outer(reflected, reflected @ rows[place:] / reflected[0])
        names = attributes(value["qr"]).get("dimnames", {}).get("1")
        order = np.argsort(np.asarray(value["pivot"]))
        rows = rows[:, order]
        is_intercept = np.zeros(rows.shape[1], dtype=bool) if names is None else np.asarray(names)[order] == INTERCEPT
        if is_intercept.any():  # a column of ones, weighted as the others are
            with np.errstate(invalid="ignore", divide="ignore"):
                rows = rows / rows[:, is_intercept]
        if (rows := rows[:, ~is_intercept]).shape == shape:
            yield path, torch.from_numpy(rows)


def _sums_of_residuals(contents: Any) -> Iterator[tuple[str, Array]]:
    """Targets as what a model fitted and what that left."""
    for path, value in Walk(contents):
        if isinstance(value, dict) and {"fitted.values", "residuals"} <= value.keys():
            fitted, left = (np.asarray(value[name]) for name in ("fitted.values", "residuals"))
            if fitted.shape == left.shape and fitted.dtype.kind == left.dtype.kind == "f":
                yield f"{path}.fitted.values + residuals".removeprefix("."), np.round(fitted + left, DIGITS)
