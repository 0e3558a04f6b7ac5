"""Rows of the table that a release holds as its owner wrote them: frames, records and CSV, strings and dates included.

Each part of a pipeline is compared with the numbers that it was fitted on (`scan`). Here everything that hangs on the
release, on the pipeline itself or on a search too, is compared with the table before any encoding.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lostwax.adapters.sklearn.contents import walked
from lostwax.adapters.sklearn.training_rows import TrainingRows
from lostwax.adapters.sklearn.walk import Array
from lostwax.attacks.closed_form.stored import row_keys
from lostwax.games import Columns, Fitted, Kept, Part, Records, Stored, TableCells
from lostwax.records.frames import coded, codes_of

MOST = 20_000_000  # characters of a text that is read
LINES = 3  # of a text: fewer are no table
SURE = 25.0  # bits: rows or labels agree by accident with a probability of 2^-25
HALF = 0.5  # of the rows of a table, at least, are those of the other one


class HeldTable(NamedTuple):
    """Some rows of the table, in some of its columns."""

    path: str
    columns: list[int]
    rows: Tensor  # (k, columns) numbers and codes


def held_tables(model: Any, x: Tensor, columns: Columns, used: Sequence[int], width: int) -> Iterator[HeldTable]:
    """Tables with columns of these names, or `width` columns without names, that hold rows of x (n, d).

    The columns of x are those of the owner's table that are `used`. Rows count if they hardly agree by accident: a list
    of towns with their median ages is not a list of people.
    """
    last = None
    for path, value in walked(model):
        for names, cells in _as_table(value):
            places = _places(names, columns, used, width)
            held = _in_codes(cells, places, columns) if len(places) >= min(2, x.shape[1]) else None
            if held is None or (last is not None and path.startswith(f"{last}.")):
                continue
            order = sorted(places)
            if len(rows := _rows_of(held[:, order], x[:, order])):
                last = path
                yield HeldTable(path, order, rows)


def _rows_of(held: Tensor, x: Tensor) -> Tensor:
    """Those of the rows (k, d) that are rows of x (n, d); none if that may be an accident."""
    ours, theirs = row_keys(x), row_keys(held)
    keys, count = np.unique(ours, return_counts=True)
    known, single = np.isin(theirs, keys), np.isin(theirs, keys[count == 1])
    table = TrainingRows(x.numpy(), None, np.ones(len(x)))
    bits = table.row_bits(held.numpy()) * len(np.unique(theirs[single]))
    if np.array_equal(ours, theirs):  # all rows in their order
        bits = max(bits, len(x) * float(np.log2(len(keys))))
    sure = bits >= SURE and known.mean() >= HALF
    return held[torch.from_numpy(known)] if sure else held[:0]


def as_part(held: HeldTable, name: str, table: Records, weight: Tensor) -> Part:
    """What it tells of each row."""
    own = Records(table.x[:, held.columns], table.y)
    keys = row_keys(held.rows)
    first = torch.from_numpy(np.unique(keys, return_index=True)[1]) if len(keys) > len(table) else slice(None)
    stored = Stored(f"{name}'s {held.path}", held.rows[first])

    def back(rows: Tensor) -> TableCells:
        cells = TableCells.lost(len(rows), table.x.shape[1])
        cells.values[:, held.columns] = rows.double()
        told = ~rows.isnan().all(1, keepdim=True).expand_as(rows)
        cells.kept[:, held.columns] = torch.where(told, int(Kept.EXACT), int(Kept.LOST)).to(torch.uint8)
        return cells

    return Part(Fitted(name, own, weight, None, stored=(stored,)), back, labelled=False)


def held_labels(model: Any, y: Tensor) -> str | None:
    """The first place, by path, in which a release holds the labels of all rows in their order."""
    own = _ranks(y.numpy())
    _, count = np.unique(own, return_counts=True)
    if y.ndim > 1 or -(count * np.log2(count / len(y))).sum() < SURE:
        return None
    for path, value in walked(model):
        value = value.to_numpy() if hasattr(value, "to_numpy") else value
        value = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value
        if isinstance(value, list | tuple) and len(value) == len(own) and _plain(value):
            value = np.asarray(value)
        if isinstance(value, np.ndarray) and value.shape == own.shape:
            plain = value.dtype.kind in "fiubUS" or (value.dtype.kind == "O" and _plain(value))
            if plain and np.array_equal(_ranks(value), own):
                return path
    return None


def _ranks(values: Array) -> Array:
    """Each value as the number of the first row that has it: equal for labels that differ only in their names."""
    _, first, place = np.unique(values, return_index=True, return_inverse=True)
    return np.asarray(first[place])


def _plain(values: Iterable[Any]) -> bool:
    """All texts, or all numbers."""
    kinds = {str if isinstance(value, str) else Number for value in values if isinstance(value, str | Number)}
    return len(kinds) == 1 and all(isinstance(value, str | Number) for value in values)


Cells = Mapping[Any, Any]  # columns by name, or by number where they have none


def _as_table(value: Any) -> Iterator[tuple[list[Any], Cells]]:
    """A value as columns by name, where it is a table."""
    if isinstance(value, str):
        value = _read(value)
    if hasattr(value, "columns") and hasattr(value, "to_numpy") and getattr(value, "ndim", 2) == 2:
        yield list(value.columns), {name: value[name] for name in dict.fromkeys(value.columns)}
    elif isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype.kind in "fiubUSO" and value.size:
        yield list(range(value.shape[1])), dict(enumerate(value.T))
    elif isinstance(value, list | tuple) and value and all(isinstance(row, Mapping) for row in value):
        names = list(value[0])
        yield names, {name: [row.get(name) for row in value] for name in names}
    elif isinstance(value, Mapping) and value:
        each = {name: cells for name, cells in value.items() if isinstance(cells, list | tuple | np.ndarray)}
        if each and len({len(cells) for cells in each.values()}) == 1:
            yield list(each), each


def _read(text: str) -> Any:
    """Rows of a CSV or JSON text; nothing if it is neither."""
    if len(text) > MOST or text.count("\n") + text.count("{") < LINES:
        return None
    try:
        if text.lstrip()[:1] in ("[", "{"):
            return json.loads(text)
        return list(csv.DictReader(text.splitlines()))
    except (ValueError, csv.Error, RecursionError):
        return None


def _places(names: list[Any], columns: Columns, used: Sequence[int], width: int) -> dict[int, Any]:
    """By number of a column of the table, its name in the other one."""
    own = {str(name): name for name in names}
    if any(name in own for name in columns.names):
        return {place: own[name] for place, name in enumerate(columns.names) if name in own}
    unnamed = all(isinstance(name, int) for name in names) and len(names) == width
    return {place: names[number] for place, number in enumerate(used)} if unnamed else {}


def _in_codes(cells: Cells, places: Mapping[int, Any], columns: Columns) -> Tensor | None:
    """(k, d) as numbers and codes of the table's own categories; None where a column is of another kind."""
    length = len(next(iter(cells.values())))
    held = torch.full((length, len(columns.categories)), torch.nan, dtype=torch.float64)
    for place, name in places.items():
        known = columns.categories[place]
        column = np.asarray(cells[name])
        if column.ndim != 1 or not length:
            return None
        try:
            if known:
                held[:, place] = codes_of(Columns(("",), (known,)), column.astype(object)[:, None])[:, 0]
            else:
                number = column.astype(np.float64) if column.dtype.kind in "US" else column[:, None]
                own = torch.from_numpy(number)[:, None] if column.dtype.kind in "US" else coded(number)[0]
                held[:, place] = own[:, 0]
        except (ValueError, TypeError):
            return None
    return held
