"""From a fitted estimator and its training data to `Fitted`, with checks that the two belong together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix, hstack
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from lostwax.adapters.sklearn import inputs, texts
from lostwax.adapters.sklearn.estimators import (
    NotReadError,
    Reading,
    cannot_look_behind,
    is_classifier,
    is_model,
    is_regressor,
    read_estimator,
    refusal,
    tags_of,
)
from lostwax.adapters.sklearn.held_statistics import held_statistics, is_no_setting, statistics_parts
from lostwax.adapters.sklearn.held_tables import (
    Attached,
    attached,
    held_columns,
    held_labels,
    held_tables,
    not_understood,
)
from lostwax.adapters.sklearn.models import read_models
from lostwax.adapters.sklearn.pipelines import PipelineReader, used_columns
from lostwax.adapters.sklearn.same_data import check_empty_columns, of_this_table
from lostwax.adapters.sklearn.scalers import CENTRED, read_scalers
from lostwax.adapters.sklearn.scan import scan
from lostwax.adapters.slips import check_rows
from lostwax.fields import shown
from lostwax.games import Columns, Fitted, Records, ReleasedTable, RowSample
from lostwax.records.frames import coded

LARGE = 20_000_000  # cells of a table of which some rows are attacked, unless all are asked for
GAMES = 1_000  # rows of a large table that are attacked
SAMPLE_NUMBERS = 5_000_000  # cells of these rows at most: 40 MB in float64
FEWEST_ROWS = 100


def read(estimator: Any, data: Any, sample_weight: Any = None) -> Fitted:
    """Read an estimator and the data it was fitted on; every mismatch between the two is an error."""
    X, y = inputs.unpack(data)
    if not is_model(estimator):
        raise refusal(estimator)
    x = torch.from_numpy(inputs.features(X)).flatten(1)  # (n, d)
    labels = inputs.targets(y, len(x))
    weight = inputs.weights(sample_weight, len(x))
    _check_fitted(estimator, x.shape[1])
    steps = _steps(estimator)
    columns = inputs.column_names(X, [estimator, *steps])
    fewer = check_rows(steps, len(x)) if sample_weight is None else None
    scaling, rest = read_scalers(steps, x, weight)
    unread: tuple[str, ...] = ()
    try:
        if len(rest) > 1:
            raise cannot_look_behind(rest[0])
        reading = read_estimator(rest[0], labels, weight) if rest else _labels_alone(labels, weight)
    except NotReadError as error:
        if not (scaling.sums or scaling.extremes):
            raise
        reading, unread = _labels_alone(labels, weight), (_not_audited(rest, error.reason),)
    fitted = Fitted(
        name=" + ".join(type(step).__name__ for step in steps),
        table=Records(x, reading.y),
        weight=reading.weight,
        model=None if reading.model is None else scaling.behind(reading.model),
        sums=(*scaling.sums, *(scaling.unscaled(part) for part in reading.sums)),
        extremes=scaling.extremes,
        classes=reading.classes,
        columns=columns,
        notes=reading.notes + scaling.notes,
        unread=unread,
    )
    check_empty_columns(fitted)
    return of_this_table(fitted, precision=inputs.precision(X), fewer_rows=fewer)


def released(
    estimator: Any, data: Any, sample_weight: Any = None, *, games: int | None = None, seed: int = 0
) -> ReleasedTable:
    """Read a release of any parts: by its equations alone where scalers and a linear model are all there is.

    A large table is cut down to some rows, drawn by `seed`, of which `games` are attacked.
    """
    X, y = inputs.unpack(data)
    if not is_model(estimator):
        raise refusal(estimator)
    if hasattr(estimator, "get_params") and not isinstance(settings := estimator.get_params(deep=False), dict):
        raise TypeError(
            f"audit: expected get_params of {type(estimator).__name__} to give its settings by name, a dict, got "
            f"{shown(settings)}."
        )
    X = _as_table(estimator, X)
    stated = sample_weight is None and bool(getattr(X, "shape", ()))
    fewer = check_rows(_steps(estimator), X.shape[0]) if stated else None
    if y is None and not _has_labels(estimator):
        y = np.zeros(X.shape[0] if hasattr(X, "shape") else len(X), dtype=np.int64)
    if (plain := _by_equations(estimator, X, y, sample_weight)) is not None:
        return replace(ReleasedTable.of(plain), held_labels=_held_labels(estimator, plain.table.y))
    vectoriser, model = texts.first_step(estimator) if texts.are_texts(X) else (None, estimator)
    X, x, columns = _cells(estimator, vectoriser, X)
    _check_fitted(model, x.shape[1])
    used = used_columns(model, x.shape[1])
    in_columns, words = texts.text_columns(model, X)
    kept = set(used)
    dropped = [name for number, name in enumerate(columns.names) if number not in kept]
    if in_columns:  # a text is its words
        used = [number for number in used if number not in in_columns]
        used += range(x.shape[1], x.shape[1] + len(words))
        x, columns = _with_words(x[:], columns, [one.counts for one in in_columns.values()], words)
    labels, last = inputs.targets(y, len(x)), _steps(estimator)[-1]
    if is_regressor(last) and labels.dtype.kind in "iub":
        labels = labels.astype(np.float64)
    weight = inputs.weights(sample_weight, len(x))
    numbers, classes = inputs.numbered(labels, classes=is_classifier(last))
    reader = PipelineReader(columns.at(used), used, numbers, weight, text_columns=in_columns)
    if dropped and vectoriser is None:
        reader.notes.append(f"the pipeline drops these columns, and they do not count: {', '.join(dropped)}.")
    if fewer is not None:
        reader.notes.append(f"{fewer}. If these are test rows, leave them out.")
    place = reader.start(X)
    if vectoriser is not None:
        place = texts.read_vocabulary(vectoriser, reader, place)
    read_models(model, place, labels, weight, reader)
    if reader.public and not (reader.unread or reader.parts or reader.sparse):
        raise ValueError(
            f"audit: nothing in this {type(estimator).__name__} was fitted on this table. Pass the rows that it was "
            "fitted on."
        )
    if reader.public and reader.unread:
        reader.unread.append(
            f"The model was not refitted either: {reader.public[0]} was fitted on other rows, and would be fitted on "
            "these. Pass the model after it, with X as it sees it."
        )
    sample, opaque = None, list[str]()
    if reader.sparse or len(x) * len(used) > LARGE:
        width = max([len(used), *(fitted.table.rows.shape[1] for fitted, _, _ in reader.sparse)])
        sample = _sample(weight, width, games, seed)
    rows = slice(None) if sample is None else sample.rows
    if isinstance(x, Tensor) and vectoriser is None and sample is None:
        name, table = type(estimator).__name__, Records(x[:, used], numbers)
        tables = [*held_tables(estimator, table.x, reader.columns, used, x.shape[1])]
        for held in tables:
            reader.publish_held(name, held, table)
        for one in attached(estimator):
            most = max((len(held.rows) for held in tables if f"{held.path}.".startswith(f"{one.path}.")), default=0)
            if most < len(table):
                opaque += _read_attached(name, one, table, classes, reader, has_rows=most > 0)
    else:
        unread = np.empty((len(x), 0))
        opaque += [
            not_understood(type(estimator).__name__, one)
            for one in attached(estimator)
            if is_no_setting(one, unread, understood=False)
        ]
    return ReleasedTable(
        name=" + ".join(type(step).__name__ for step in _steps(estimator)),
        table=Records(x[rows][:, used], numbers[rows]),
        weight=weight[rows],
        columns=reader.columns,
        parts=tuple(reader.parts if sample is None else reader.cut(sample.rows)),
        classes=classes,
        notes=tuple(reader.notes),
        unread=tuple(dict.fromkeys(reader.unread)),
        public=tuple(reader.public),
        sample=sample,
        held_labels=_held_labels(estimator, numbers),
        supervised=_has_labels(estimator),
        attached=tuple(opaque),
    )


def _read_attached(
    name: str, held: Attached, table: Records, classes: tuple[object, ...], reader: PipelineReader, *, has_rows: bool
) -> Iterator[str]:
    """Note columns and statistics of the table in an attribute; sentences on what is not understood or not counted."""
    holder, columns = f"{name}'s {held.path}", [*held_columns(held, table.x, reader.columns)]
    for column in columns:
        reader.publish_held(name, column, table)
    statistics = held_statistics(held, table.x, reader.columns)
    if statistics is not None:
        reader.parts += statistics_parts(statistics, name, table, reader.weight)
        if told := sorted({*statistics.means, *statistics.low, *statistics.high}):
            which = reader.columns.listed(told)
            reader.notes.append(f"{holder} holds sums or extremes that include the secret row: {which}.")
        if statistics.rounded:
            which = reader.columns.listed(statistics.rounded)
            yield f"{holder} holds rounded means of {which}, which tell something of single rows."
    y, targets = _as_columns(table.y, classes)
    in_target = held.afterwards and (
        any(held_columns(held, y, targets)) or held_statistics(held, y, targets) is not None
    )
    if in_target:
        yield f"{holder} holds values or statistics of the target, which the grade does not count."
    numbers = [
        cells[:, [not known for known in each.categories]] for cells, each in ((table.x, reader.columns), (y, targets))
    ]
    understood = has_rows or in_target or bool(columns) or statistics is not None
    if is_no_setting(held, torch.cat(numbers, 1).numpy(), understood=understood):
        yield not_understood(name, held)


def _as_columns(y: Tensor, classes: tuple[object, ...]) -> tuple[Tensor, Columns]:
    """Targets as a table (n, outputs); classes by name, and once more as numbers where they are numbers."""
    cells = y.double().reshape(len(y), -1)
    if not classes:
        return cells, Columns(("",) * cells.shape[1], ((),) * cells.shape[1])
    if not all(isinstance(label, int | float) for label in classes):
        return cells, Columns(("",), (classes,))
    numbers = torch.tensor(classes, dtype=torch.float64)[y.long()]
    return torch.stack([cells[:, 0], numbers], 1), Columns(("", ""), (classes, ()))


def _by_equations(estimator: Any, X: Any, y: Any, sample_weight: Any) -> Fitted | None:
    """The whole release, if it is scalers and a linear model on numbers, and holds no rows beside them; else None."""
    if hasattr(X, "toarray") or not (_takes_only_numbers(estimator) or _all_numbers(X)):
        return None
    try:
        fitted = read(estimator, (X, y), sample_weight)
    except NotReadError:
        return None
    in_part = (fitted.model is None or fitted.model.sparse) and not fitted.sums  # cells tell more than rows
    if fitted.unread or in_part:
        return None
    if any(held.afterwards for held in attached(estimator)):
        return None
    return None if scan(estimator, fitted.table.x, fitted.table.y, fitted.weight).stored else fitted


def _cells(estimator: Any, vectoriser: Any, X: Any) -> tuple[Any, Tensor | _SparseCells, Columns]:
    """X as the model takes it, texts as counts of words; its cells; and their columns."""
    if vectoriser is not None:
        X, names = texts.counts_of(vectoriser, X), texts.words_of(vectoriser)
    elif hasattr(X, "toarray"):
        X, names = X.tocsr(), inputs.column_names(X, [estimator, *_steps(estimator)])
    else:
        x, columns = coded(X)
        return X, x, replace(columns, names=inputs.column_names(X, [estimator, *_steps(estimator)]))
    return X, _SparseCells(X), Columns(names, ((),) * X.shape[1], are_words=vectoriser is not None)


def _held_labels(estimator: Any, y: Tensor) -> str | None:
    """That the release holds the labels of all rows, as a sentence."""
    path = held_labels(estimator, y)
    name = type(estimator).__name__
    return None if path is None else f"{name}'s {path} holds the labels of all rows in their order."


def _has_labels(estimator: Any) -> bool:
    """Whether a model was fitted on labels, not on X alone as clusters and transformers are."""
    last = _steps(estimator)[-1]
    return bool(is_classifier(last) or is_regressor(last))


def _as_table(estimator: Any, X: Any) -> Any:
    """Lists of rows as an array; and one column for the models that take a plain list of numbers."""
    if isinstance(X, list | tuple) and not texts.are_texts(X):
        try:
            plain = np.asarray(X)
        except ValueError:
            raise ValueError("audit: the rows of X have different lengths. Pass one cell per column in each.") from None
        X = plain if plain.dtype.kind in "iufb" else np.asarray(X, dtype=object)
    if getattr(X, "ndim", 2) == 1 and _takes_one_column(_steps(estimator)[0]):
        return np.asarray(X)[:, None]
    return X


def _takes_one_column(step: Any) -> bool:
    return bool(tags_of(step).input_tags.one_d_array)


def _with_words(
    x: Tensor, columns: Columns, counts: list[Any], words: tuple[str, ...]
) -> tuple[Tensor | _SparseCells, Columns]:
    """A table with the counts of words after its columns."""
    every = Columns((*columns.names, *words), (*columns.categories, *((),) * len(words)), are_words=True)
    whole = hstack([csr_matrix(x.numpy()), *counts]).tocsr()
    cells = _SparseCells(whole)
    return (cells if whole.shape[0] * whole.shape[1] > LARGE else cells[:]), every


@dataclass(frozen=True)
class _SparseCells:
    """A sparse matrix that gives some of its rows as a dense tensor."""

    rows: Any

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.rows.shape[0]), int(self.rows.shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, at: Any) -> Tensor:
        """Rows by their numbers, or a slice of them."""
        some = self.rows[at.numpy() if isinstance(at, Tensor) else at]
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


def _takes_only_numbers(estimator: Any) -> bool:
    """Does its first step refuse strings and missing values? Then a table with them is not what it was fitted on."""
    first = _steps(estimator)[0]
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


def _labels_alone(labels: Any, weight: Tensor) -> Reading:
    """The labels of a table whose model was not read."""
    y, classes = inputs.any_labels(labels)
    return Reading(y, weight, classes=classes)


def _not_audited(steps: list[Any], reason: str) -> str:
    """Which parts of the release were not audited. Of PCA, the mean was read, but not the components."""
    names = [f"{type(step).__name__}{' (except its mean)' if isinstance(step, CENTRED) else ''}" for step in steps]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{listed} {'was' if len(names) == 1 else 'were'} not audited: {reason}."


def _steps(estimator: Any) -> list[Any]:
    """All steps of a pipeline, with nested pipelines and searches flattened."""
    if hasattr(estimator, "best_estimator_"):  # GridSearchCV and the like
        return _steps(estimator.best_estimator_)
    if not isinstance(estimator, Pipeline):
        return [estimator]
    steps = [step for _, step in estimator.steps if step not in (None, "passthrough")]
    if not steps:
        raise TypeError("audit: the Pipeline has only 'passthrough' steps: there is no model to audit.")
    return [part for step in steps for part in _steps(step)]


def _check_fitted(estimator: Any, columns: int) -> None:
    name = type(estimator).__name__
    for part in (estimator, *_steps(estimator)):
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
