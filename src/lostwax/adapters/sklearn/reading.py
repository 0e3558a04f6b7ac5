"""From a fitted estimator and its training data to `ReleasedTable`, with checks that the two belong together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_matrix, hstack
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import FeatureUnion
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from lostwax.adapters.sklearn import inputs, texts
from lostwax.adapters.sklearn.estimators import is_classifier, is_model, is_regressor, refusal, tags_of
from lostwax.adapters.sklearn.held_tables import (
    HeldTable,
    as_part,
    attached,
    held_columns,
    held_labels,
    held_tables,
    is_setting,
)
from lostwax.adapters.sklearn.models import read_models
from lostwax.adapters.sklearn.pipelines import PipelineReader, to_cells
from lostwax.fields import shown
from lostwax.games import Columns, Part, Records, ReleasedTable, RowSample
from lostwax.games.folding import folded
from lostwax.games.notes import stored_rows
from lostwax.records.tables import coded, plain_array
from lostwax.trainers.optimum import polish, polish_sparse

LARGE = 20_000_000  # cells of a table of which some rows are attacked, unless all are asked for
GAMES = 1_000  # rows of a large table that are attacked
SAMPLE_NUMBERS = 5_000_000  # cells of these rows at most: 40 MB in float64
FEWEST_ROWS = 100


def released(
    estimator: Any, data: Any, sample_weight: Any = None, *, games: int | None = None, seed: int = 0
) -> ReleasedTable:
    """Read a fitted estimator and the data it was fitted on; every mismatch between the two is an error.

    A large table is cut down to some rows, drawn by `seed`, of which `games` are attacked.
    """
    (X, y), kind = inputs.unpack(data), type(estimator).__name__
    if not is_model(estimator):
        raise refusal(estimator)
    if hasattr(estimator, "get_params") and not isinstance(settings := estimator.get_params(deep=False), dict):
        raise TypeError(
            f"audit: expected get_params of {kind} to give its settings by name, a dict, got {shown(settings)}."
        )
    if not (steps := inputs.steps_of(estimator)):
        raise TypeError("audit: the Pipeline has only 'passthrough' steps: there is no model to audit.")
    supervised = is_classifier(steps[-1]) or is_regressor(steps[-1])  # not clusters and transformers
    X = _as_table(steps[0], X)
    stated = sample_weight is None and bool(getattr(X, "shape", ()))
    fewer = inputs.check_rows(steps, X.shape[0]) if stated else None
    if y is None and not supervised:
        y = np.zeros(X.shape[0] if hasattr(X, "shape") else len(X), dtype=np.int64)

    X, x, columns, only_numbers, vectoriser, model = _cells(estimator, steps, X)
    n, width = x.shape
    _check_fitted(model, width)
    used = used_columns(model, width)
    in_use = set(used)
    dropped = [name for number, name in enumerate(columns.names) if number not in in_use]
    in_columns, counts, words = texts.text_columns(model, X) if inputs.is_frame(X) else ({}, [], ())
    if in_columns:  # a text is its words, whose counts come after the columns of the table
        used = [*(number for number in used if number not in in_columns), *range(width, width + len(words))]
        columns = Columns((*columns.names, *words), (*columns.categories, *((),) * len(words)), are_words=True)
        x = hstack([csr_matrix(x.numpy()), *counts]).tocsr()
        x = x if x.shape[0] * x.shape[1] > LARGE else _dense(x)

    labels = inputs.targets(y, n)
    if is_regressor(steps[-1]) and labels.dtype.kind in "iub":
        labels = labels.astype(np.float64)
    weight = inputs.weights(sample_weight, n)
    numbers, classes = inputs.numbered(labels, classes=is_classifier(steps[-1]))
    reader = PipelineReader(columns.at(used), used, numbers, weight, text_columns=in_columns)
    if dropped and vectoriser is None:
        reader.notes.append(f"the pipeline drops these columns, and they do not count: {', '.join(dropped)}.")
    if fewer is not None:
        reader.notes.append(f"{fewer}. If these are test rows, leave them out.")
    place = reader.start(X, only_numbers if used == [*range(width)] else None)
    if vectoriser is not None:
        place = texts.read_vocabulary(vectoriser, reader, place)
    read_models(model, place, labels, weight, reader)

    sample = None
    as_equations = bool(reader.parts) and all(part.stated is not None for part in reader.parts)
    if reader.sparse or (n * len(used) > LARGE and not as_equations):
        widest = max([len(used), *(fitted.table.rows.shape[1] for fitted, _, _ in reader.sparse)])
        sample = _sample(weight, widest, games, seed)
    rows = slice(None) if sample is None else sample.rows
    opaque = _read_attached(
        estimator,
        Records(x[:, used], numbers) if isinstance(x, Tensor) and vectoriser is None and sample is None else None,
        classes,
        reader,
        x.shape,
    )
    path = held_labels(estimator, numbers)
    every_label = None if path is None else f"{kind}'s {path} holds the labels of all rows in their order."
    table = Records(_dense(x, rows)[:, used], numbers[rows])
    whole = reader.released(
        " + ".join(type(step).__name__ for step in steps), table, classes=classes, held_labels=every_label
    )
    parts = whole.parts if sample is None else tuple(_cut(reader, sample.rows))
    return replace(
        whole, weight=weight[rows], parts=parts, sample=sample, supervised=supervised, attached=tuple(opaque)
    )


def _read_attached(
    estimator: Any, table: Records | None, classes: tuple[object, ...], reader: PipelineReader, shape: tuple[int, int]
) -> list[str]:
    """Note rows and columns of the table that hang on a release; sentences on what else was attached to it.

    The table has the `used` columns of X (n, d); without one nothing is compared.
    """
    name, tables, plain = type(estimator).__name__, list[HeldTable](), np.empty((shape[0], 0))
    opaque, of_user = list[str](), list[str]()
    if table is not None:
        tables += held_tables(estimator, table.x, reader.columns, reader.used, shape[1])
        numbers = [place for place, known in enumerate(reader.columns.categories) if not known]
        y = [label if isinstance(label, int | float) else np.nan for label in classes]
        targets = torch.tensor(y, dtype=torch.float64)[table.y] if classes else table.y.double()
        plain = torch.cat([table.x[:, numbers], targets.reshape(len(table), -1)], 1).numpy()
        for held in tables:
            _publish_held(reader, name, held, table)
    for attachment in attached(estimator):
        rows = [len(held.rows) for held in tables if f"{held.path}.".startswith(f"{attachment.path}.")]
        attribute = attachment.path.rpartition(".")[2]
        stored = (stored for part in reader.parts for stored in part.fitted.stored)
        rows += [len(each.x) for each in stored if each.source.partition("'s ")[2] == attribute]
        if max(rows, default=0) == shape[0]:
            continue
        if table is not None:
            for column in held_columns(attachment.value, table.x, reader.columns, attachment.path):
                _publish_held(reader, name, column, table)
        if is_setting(attachment.value, plain):
            continue
        if attachment.afterwards:
            opaque.append(
                f"{name}'s {attachment.path} was attached after fit, and may hold more of the table than was read."
            )
        else:
            of_user.append(attachment.path)
    if of_user and not reader.unread:  # else it is refitted for another reason
        reader.unread.append(f"of {name}'s {', '.join(of_user)} only rows and columns of the table were read.")
    return opaque


def read_tables(model: Any, name: str, table: Records, reader: PipelineReader, width: int) -> None:
    """Note rows and columns of the table that an object of any class holds; X has `width` columns."""
    tables = [*held_tables(model, table.x, reader.columns, reader.used, width)]
    for part in (*tables, *held_columns(model, table.x, reader.columns)):
        _publish_held(reader, name, part, table)


def _publish_held(reader: PipelineReader, name: str, held: HeldTable, table: Records) -> None:
    """Note rows that the release holds as they were written, where no part is known to hold as many."""
    width = max(2, len(held.columns))
    for part in reader.parts:
        if sum(len(stored.x) for stored in part.fitted.stored if stored.x.shape[1] >= width) >= len(held.rows):
            return
    reader.parts.append(as_part(held, name, table, reader.weight))
    some = reader.columns.listed(held.columns) if len(held.columns) < table.x.shape[1] else ""
    reader.notes.append(stored_rows(f"{name}'s {held.path}", (len(held.rows), len(table)), some))


class _Cells(NamedTuple):
    """A table as a model takes it, and its cells."""

    X: Any  # counts of words, where it holds texts
    x: Any  # (n, d) a tensor, or a sparse matrix
    columns: Columns
    only_numbers: Tensor | None  # (n, d)
    vectoriser: Any  # of texts
    model: Any  # without it


def _cells(estimator: Any, steps: list[Any], X: Any) -> _Cells:
    """Check the table, and turn it into cells: numbers, codes of categories, counts of words."""
    may_be_texts = inputs.kind_of(X) not in "iufb"
    vectoriser, model = texts.first_step(estimator) if may_be_texts and texts.are_texts(X) else (None, estimator)
    only_numbers = None
    if not inputs.is_sparse(X) and (_takes_only_numbers(steps[0]) or _all_numbers(X)):
        only_numbers = torch.from_numpy(inputs.features(X)).flatten(1)  # (n, d)
        if isinstance(X, Tensor) or np.ndim(X) > 2:
            X = plain_array("audit", "X", X).reshape(only_numbers.shape)
    if vectoriser is not None:
        counts, words = texts.counts_of(vectoriser, X), texts.words_of(vectoriser)
        return _Cells(counts, counts, Columns(words, ((),) * len(words), are_words=True), None, vectoriser, model)
    names = inputs.column_names(X, [estimator, *steps])
    if inputs.is_sparse(X):
        X = x = X.tocsr()
        columns = Columns(names, ((),) * X.shape[1])
    elif only_numbers is not None and inputs.kind_of(X) in "iuf":
        x, columns = only_numbers, Columns(names, ((),) * only_numbers.shape[1])
    else:
        x, columns = coded(X)
    return _Cells(X, x, replace(columns, names=names), only_numbers, vectoriser, model)


def used_columns(estimator: Any, width: int) -> list[int]:
    """The columns of X that a model sees: all but those that a ColumnTransformer in front of it drops."""
    first = next(iter(inputs.steps_of(estimator)), None)
    if not isinstance(first, ColumnTransformer):
        return list(range(width))
    places = first._transformer_to_input_indices
    branches = (places.get(name, []) for name, step, _ in first.transformers_ if not inputs.is_dropped(step))
    return sorted({int(index) for indices in branches for index in indices})


def _as_table(first_step: Any, X: Any) -> Any:
    """Lists of rows as an array; and one column for the models that take a plain list of numbers."""
    if isinstance(X, list | tuple) and not texts.are_texts(X):
        try:
            plain = np.asarray(X)
        except ValueError:
            raise ValueError("audit: the rows of X have different lengths. Pass one cell per column in each.") from None
        X = plain if plain.dtype.kind in "iufb" else np.asarray(X, dtype=object)
    if getattr(X, "ndim", 2) == 1 and tags_of(first_step).input_tags.one_d_array:
        return np.asarray(X)[:, None]
    return X


def _dense(x: Any, rows: Any = slice(None)) -> Tensor:
    """Some rows of a tensor or of a sparse matrix."""
    if isinstance(x, Tensor):
        return x[rows]
    some = x[rows.numpy() if isinstance(rows, Tensor) else rows]
    return torch.from_numpy(np.asarray(some.toarray(), dtype=np.float64))


def _sample(weight: Tensor, width: int, games: int | None, seed: int) -> RowSample | None:
    """Rows to play for, and as many that are only known; None where all fit, or all are asked for."""
    n, most = len(weight), max(FEWEST_ROWS, SAMPLE_NUMBERS // width)
    wanted = GAMES if games is None else games
    if wanted > n // 2 and n <= most:
        return None
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed % (1 << 63)))
    order = order[weight[order] > 0]
    played = order[: min(wanted, most)]
    rows = order[: len(played) + min(GAMES, most)].sort().values
    return RowSample(rows, torch.isin(rows, played).nonzero().flatten(), len(order))


def _cut(reader: PipelineReader, kept: Tensor) -> list[Part]:
    """All parts as facts about some of the rows, with the optimum of each model on all of them."""
    parts = []
    for part in reader.parts:
        if part.fitted.forest is not None:  # no sum over rows: the whole table stays
            parts.append(replace(part, rows=kept))
            continue
        fitted, optimum = part.fitted, None
        if fitted.model is not None and (best := polish(fitted.model, fitted.table, fitted.weight)).converged:
            optimum = folded(replace(fitted, model=best.model), kept)
        parts.append(replace(part, fitted=folded(fitted, kept), optimum=optimum, cut=True))
    for sparse, back, labelled in reader.sparse:
        model, optimum = sparse.model, None  # of a model with L1 there is no optimum here
        if model is not None and not model.sparse:
            best = polish_sparse(model, sparse.table, sparse.weight)
            optimum = replace(sparse, model=best.model).folded(kept) if best.converged else None
        parts.append(Part(sparse.folded(kept), to_cells(back, reader.columns), labelled, optimum, cut=True))
    return parts


def _takes_only_numbers(first: Any) -> bool:
    """Does the first step refuse strings and missing values? Then a table with them is not what it was fitted on."""
    made_of_others = hasattr(first, "estimator") or hasattr(first, "estimators")
    is_own = not type(first).__module__.startswith("sklearn.")  # few state what they accept
    if isinstance(first, ColumnTransformer | FeatureUnion) or made_of_others or is_own:
        return False
    tags = tags_of(first)
    accepted = tags.input_tags
    return not (accepted.allow_nan or accepted.string or accepted.categorical or tags.no_validation)


def _all_numbers(X: Any) -> bool:
    """Whether no value is missing and none is a string."""
    try:
        values = np.asarray(X.detach().cpu() if isinstance(X, Tensor) else X)
        return values.dtype.kind in "iufb" and bool(np.isfinite(values).all())
    except (ValueError, TypeError, OverflowError, RuntimeError):
        return False


def _check_fitted(estimator: Any, columns: int) -> None:
    name = type(estimator).__name__
    for part in (estimator, *inputs.steps_of(estimator)):
        try:
            check_is_fitted(part)
        except NotFittedError as error:
            raise ValueError(f"audit: {name} is not fitted. Call its fit(X, y) first.") from error
        except (AttributeError, TypeError):
            continue  # no estimator of scikit-learn
    expected = getattr(estimator, "n_features_in_", columns)
    if expected != columns:
        cure = "Pass the data the model was fitted on."
        raise ValueError(f"audit: X has {columns} features, but {name} was fitted on {expected}. {cure}")
