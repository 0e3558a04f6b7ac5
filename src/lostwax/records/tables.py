"""Tables: arrays, pandas frames, CSV and Parquet files. No message quotes a cell: it names the row and column.

A table as its owner has it, with strings, dates and missing values, becomes coded numbers, and back (`coded`).
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from datetime import UTC, date, datetime, timedelta
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.games import Columns, Records
from lostwax.records.datasets import check_choice, listing, optional


def plain_array(source: str, name: str, values: Any) -> NDArray[Any]:
    """A user's array, tensor or list as a dense numpy array; messages begin with `source` and use `name`."""
    if hasattr(values, "toarray"):
        raise TypeError(f"{source}: {name} is a sparse matrix, but a dense one is needed: pass {name}.toarray().")
    if isinstance(values, Tensor):
        return _from_tensor(source, name, values)
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        masked = int(np.ma.getmaskarray(values).sum())
        raise ValueError(f"{source}: {name} has {masked} masked values. Fill or drop them.")
    try:
        return np.asarray(values)
    except (ValueError, TypeError, OverflowError, RuntimeError):
        raise ValueError(
            f"{source}: {name} cannot be read as an array: are its rows of different lengths? Pass one number "
            "or label per cell."
        ) from None


def numbers(source: str, name: str, values: Any) -> NDArray[np.float64]:
    """As a writable, C-contiguous float64 array."""
    array = plain_array(source, name, values)
    if array.dtype.kind == "c":
        raise TypeError(f"{source}: {name} holds complex numbers; expected real ones.")
    if array.dtype.kind in "mMV":
        raise TypeError(f"{source}: expected numbers in {name}, got {array.dtype}. Encode it first.")
    try:
        return np.require(array, dtype=np.float64, requirements=["C", "W"])  # torch needs writable memory
    except (TypeError, ValueError, OverflowError):
        if array.ndim == 0:
            kind = type(values).__name__
            raise TypeError(f"{source}: expected {name} to be an array of numbers, got {kind}.") from None
        where, kind = _first_that_is_no_number(array)
        raise TypeError(
            f"{source}: expected numbers in {name}, got {array.dtype}: the value at {where} is {kind}. Encode it first."
        ) from None


def position(index: tuple[int, ...]) -> str:
    """The position of a cell: "row 3, column 1"; for images all further indices."""
    row, *further = index
    return f"row {row}, column {further[0] if len(further) == 1 else tuple(further)}" if further else f"row {row}"


def _from_tensor(source: str, name: str, values: Tensor) -> NDArray[Any]:
    if values.is_nested or values.layout is not torch.strided:
        raise TypeError(
            f"{source}: {name} is a sparse or nested tensor, but a dense one is needed: pass {name}.to_dense()."
        )
    if values.is_meta:
        raise ValueError(f"{source}: {name} is on the meta device and holds no numbers. Pass a tensor with data.")
    if values.is_quantized:
        raise TypeError(f"{source}: {name} is a quantised tensor; pass {name}.dequantize().")
    plain = values.detach().cpu().resolve_conj().resolve_neg()
    if plain.is_floating_point() and plain.dtype not in (torch.float16, torch.float32, torch.float64):
        plain = plain.float()  # numpy has no bfloat16 and no float8
    return np.asarray(plain.numpy())


def _first_that_is_no_number(array: NDArray[Any]) -> tuple[str, str]:
    """Its position and its type."""
    for index, cell in np.ndenumerate(array):
        try:
            float(cell)
        except OverflowError:
            return position(index), "an integer too large for a float"
        except (TypeError, ValueError):
            return position(index), f"of type {type(cell).__name__}"
    return "an unknown position", "not a number"


SOURCE = "records.table"


def table(data: Any, target: Any = None, *, classes: bool | None = None) -> Records:
    """Numeric features as float64 (n, d), and a label.

    `data` is a pair (X, y), a pandas frame, or the path of a CSV or Parquet file; for the last two, `target` is the
    label's column. Text and integer labels become class numbers 0..c-1 in sorted order (as scikit-learn's `classes_`),
    floats stay float64; `classes` overrides this (False for counts).
    """
    if isinstance(data, tuple) and len(data) == 2:
        if target is not None:
            raise ValueError(f"{SOURCE}: target names a column, but (X, y) has its own label: leave target out.")
        (features, labels), what = data, "y"
    else:
        frame = _read(Path(data)) if isinstance(data, str | PathLike) else data
        if not _is_frame(frame):
            raise TypeError(
                f"{SOURCE}: data must be a pair (X, y), a pandas frame or the path of a CSV or Parquet file, "
                f"got {type(data).__name__}."
            )
        columns = list(frame.columns)
        if not isinstance(target, Hashable):
            raise TypeError(f"{SOURCE}: target names a column, got {type(target).__name__}.")
        if target not in columns and columns and all(_reads_as_number(name) for name in columns):
            raise ValueError(
                f"{SOURCE}: the {len(columns)} column names are numbers, as if the first line of a file is a record. "
                "Add a header line, and pass the label's column as target."
            )
        check_choice(f"{SOURCE}: target", target, columns)
        if columns.count(target) > 1:
            raise ValueError(f"{SOURCE}: target must name one column, got {columns.count(target)} named {target!r}.")
        features, labels, what = frame.drop(columns=target), frame[target], f"target {target!r}"
    x, y = _features(features), _labels(labels, what, classes)
    if len(x) != len(y):
        raise ValueError(f"{SOURCE}: y must have one label per row of X: expected {len(x)}, got {len(y)}.")
    return Records(x=torch.from_numpy(x), y=torch.from_numpy(y))


def _read(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"{SOURCE}: {path} is not a file.")
    pandas = optional("pandas", SOURCE, "tables")
    try:
        if path.suffix == ".parquet":
            optional("pyarrow", SOURCE, "tables")
            return pandas.read_parquet(path)
        if ".csv" in path.suffixes:
            return pandas.read_csv(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"{SOURCE}: {path} cannot be read as a table ({error}).") from error
    raise ValueError(f"{SOURCE}: expected a .csv or .parquet file, got {path}: read it with pandas and pass the frame.")


def _reads_as_number(name: Any) -> bool:
    try:
        float(str(name))
    except ValueError:
        return False
    return True


def _is_frame(data: Any) -> bool:
    pandas = sys.modules.get("pandas")  # imported if there is a frame
    return pandas is not None and isinstance(data, pandas.DataFrame)


def _features(features: Any) -> NDArray[np.float64]:
    if _is_frame(features):
        names = [repr(name) for name in features.columns]
        types = sys.modules["pandas"].api.types
        numeric = [types.is_numeric_dtype(part) and not types.is_complex_dtype(part) for _, part in features.items()]
        texts = [name for name, is_number in zip(names, numeric, strict=True) if not is_number]
        if texts:
            raise ValueError(
                f"{SOURCE}: features must be numbers, but these columns are not: {listing(texts)}. "
                "Encode them first (pandas.get_dummies for categories), or drop them."
            )
        x = features.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        raw = plain_array(SOURCE, "X", features)
        if raw.dtype.kind not in "biuf" or raw.ndim != 2:
            raise ValueError(
                f"{SOURCE}: X must be an array of numbers of shape (n, d), got {raw.dtype} of shape "
                f"{raw.shape}: encode text as numbers and reshape first."
            )
        names = [str(i) for i in range(raw.shape[1])]
        x = raw.astype(np.float64)
    if x.size == 0:
        raise ValueError(f"{SOURCE}: expected at least one row and one feature, got shape {x.shape}.")
    bad = (~np.isfinite(x)).sum(axis=0)  # (d,)
    if bad.any():
        counts = zip(names, bad, strict=True)
        where = listing(f"column {name} ({many} of {len(x)} rows)" for name, many in counts if many)
        raise ValueError(f"{SOURCE}: NaN or infinite values in {where}: drop these rows or fill them first.")
    return np.array(x, order="C")  # a copy


def _labels(labels: Any, what: str, classes: bool | None) -> NDArray[Any]:
    y = plain_array(SOURCE, what, labels)
    if y.ndim != 1 or y.dtype.kind not in "biufUSO":
        raise ValueError(f"{SOURCE}: {what} must be numbers or text of shape (n,), got {y.dtype} of shape {y.shape}.")
    wrong = np.zeros(len(y), dtype=bool)
    if y.dtype.kind == "f":
        wrong = ~np.isfinite(y)
    elif y.dtype.kind == "O":  # pandas keeps text, and integers with missing values, as objects
        kind: Any = str if any(isinstance(value, str) for value in y) else (int, np.integer, np.bool_)
        wrong = np.array([not isinstance(value, kind) for value in y], dtype=bool)
    if wrong.any():
        raise ValueError(
            f"{SOURCE}: {what} has {wrong.sum()} of {len(y)} labels missing, infinite or of another type "
            f"than the rest, the first in row {wrong.argmax()}: drop these rows or fill them first."
        )
    if classes or (classes is None and y.dtype.kind != "f"):
        return np.unique(y, return_inverse=True)[1].astype(np.int64)
    if len(y) and isinstance(y[0], str | bytes):
        raise ValueError(f"{SOURCE}: {what} is text, got classes=False: leave classes out, or pass numbers.")
    return y.astype(np.float64)


def coded(X: Any) -> tuple[Tensor, Columns]:
    """(n, d) float64: numbers, codes of categories, NaN where a value is missing; and the columns.

    Dates are numbers, in microseconds. Strings, booleans, pandas' categories and all else that is no number are
    categories, in the order of their first row. A message names the column, never a value.
    """
    frame = hasattr(X, "iloc") and hasattr(X, "columns")
    array = None if frame else np.asarray(X)
    if array is not None and array.ndim != 2:
        raise ValueError(f"audit: expected X of shape (n_records, n_features), got shape {array.shape}.")
    names = [str(name) for name in X.columns] if frame else []
    width = len(names) if array is None else array.shape[1]
    coded_columns = [_coded_column(X.iloc[:, j] if array is None else array[:, j]) for j in range(width)]
    if not coded_columns or not len(coded_columns[0][0]):
        raise ValueError(f"audit: X is empty, shape {tuple(X.shape)}.")
    x = np.stack([codes for codes, _ in coded_columns], 1)
    return torch.from_numpy(x), Columns(tuple(names), tuple(values for _, values in coded_columns))


def codes_of(columns: Columns, values: NDArray[Any]) -> Tensor:
    """(g, d) values as their owner writes them -> numbers and codes; NaN for missing ones and unknown categories."""
    if values.dtype != object and not any(columns.categories):
        return torch.from_numpy(np.asarray(values, dtype=np.float64))
    x = np.empty(values.shape)
    for column, known in enumerate(columns.categories):
        cells = values[:, column]
        if not known:
            x[:, column] = _numbers(cells)
            continue
        code_of = {value: code for code, value in enumerate(known)}
        unique, place = _factorized(cells)
        if all(isinstance(value, bool) for value in known):
            # a number as True or False: what was computed is 1 or 0 only to rounding
            unique = [value >= 0.5 if isinstance(value, float) else value for value in unique]
        codes = np.array([code_of.get(_plain(value), np.nan) for value in unique] + [np.nan])
        x[:, column] = codes[place]
    return torch.from_numpy(x)


def _coded_column(cells: Any) -> tuple[NDArray[np.float64], tuple[object, ...]]:
    """One column: its numbers or codes, and its categories by code (none for numbers)."""
    array = np.asarray(cells)
    if array.dtype.kind in "mM":
        microseconds = array.astype(f"{array.dtype.kind}8[us]").astype(np.int64)
        return np.where(np.isnat(array), np.nan, microseconds.astype(np.float64)), ()
    if array.dtype.kind in "iuf":
        return array.astype(np.float64), ()
    if array.dtype.kind == "O" and not hasattr(cells, "cat"):
        try:
            return _numbers(array), ()
        except (TypeError, ValueError):
            pass
    unique, place = _factorized(array.astype(object))
    return np.where(place < 0, np.nan, place.astype(np.float64)), tuple(_plain(value) for value in unique)


def _numbers(cells: NDArray[Any]) -> NDArray[np.float64]:
    """Numbers, None as NaN; an error for all else: text that reads as a number is text."""
    if cells.dtype != object:
        return cells.astype(np.float64)
    if any(isinstance(cell, str | bytes | bool | np.bool_) for cell in cells):
        raise TypeError("not numbers")
    return np.array([np.nan if is_missing(cell) else _number(cell) for cell in cells])


def _number(cell: Any) -> float:
    """A number; a date or a span of time in microseconds."""
    if isinstance(cell, datetime) and cell.tzinfo is not None:
        cell = cell.astimezone(UTC).replace(tzinfo=None)
    if isinstance(cell, date | np.datetime64 | timedelta | np.timedelta64):
        kind = "M8[us]" if isinstance(cell, date | np.datetime64) else "m8[us]"
        return float(np.array([cell], dtype=kind).astype(np.int64)[0])
    return float(cell)


def _factorized(cells: NDArray[Any]) -> tuple[list[Any], NDArray[np.int64]]:
    """The different values in the order of their first row, and which of them each cell is; -1: missing."""
    if (pandas := sys.modules.get("pandas")) is not None:
        place, unique = pandas.factorize(cells)
        return [_plain(value) for value in unique], place
    numbers: dict[Any, int] = {}
    places = [-1 if is_missing(cell) else numbers.setdefault(_plain(cell), len(numbers)) for cell in cells]
    return list(numbers), np.array(places, dtype=np.int64)


def _plain(value: Any) -> Any:
    """numpy's scalars as Python's: one value has one key."""
    return value.item() if isinstance(value, np.generic) else value


def is_missing(cell: Any) -> bool:
    """None, NaN, NaT or pandas' NA."""
    return cell is None or type(cell).__name__ in ("NAType", "NaTType") or bool(cell != cell)
