"""A table as its owner has it, strings, dates and missing values included, in coded numbers and back."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.games import Columns


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
