"""Rows of the table that a release holds as its owner wrote them: frames, records and CSV, strings and dates included.

Each part of a pipeline is compared with the numbers that it was fitted on (`scan`). Here everything that hangs on the
release, on the pipeline itself or on a search too, is compared with the table before any encoding.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import gammaln
from torch import Tensor

from lostwax.adapters.sklearn.contents import Walked
from lostwax.adapters.sklearn.training_rows import TrainingRows, on_other_scales
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
    found = set[str]()
    for path, value in Walked(model):
        for names, cells in _as_table(value):
            places = _places(names, columns, used, width)
            held = _in_codes(cells, places, columns) if len(places) >= min(2, x.shape[1]) else None
            if held is None or not found.isdisjoint(accumulate(path.split("."), "{}.{}".format)):
                continue
            order = sorted(places)
            if len(rows := _rows_of(held[:, order], x[:, order])):
                found.add(path)
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
    if y.ndim > 1:
        return None
    own = _Labelling.of(y.numpy())
    for path, value in Walked(model):
        value = value.to_numpy() if hasattr(type(value), "to_numpy") else value
        value = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value
        if isinstance(value, list | tuple) and len(value) == len(y) and _plain(value):
            value = np.asarray(value)
        if isinstance(value, np.ndarray) and value.shape == y.shape:
            plain = value.dtype.kind in "fiubUS" or (value.dtype.kind == "O" and _plain(value))
            if plain and own.held_in(value):
                return path
    return None


class _Labelling(NamedTuple):
    """Which rows have the same label, and which have larger ones."""

    values: Array  # (n,)
    groups: Array  # (n,) each label as the number of the first row that has it
    order: Array  # (n,) each label as its place among all labels
    counts: Array  # rows of each label

    @classmethod
    def of(cls, values: Array) -> _Labelling:
        _, first, place, counts = np.unique(values, return_index=True, return_inverse=True, return_counts=True)
        return cls(values, np.asarray(first[place]), place, counts)

    def held_in(self, values: Array) -> bool:
        """Whether other values are these labels under other names, on another scale, or as they are.

        Names agree by accident if all labels differ, and an order does if rows are sorted by their labels.
        """
        other, ordered = _Labelling.of(values), (gammaln(len(values) + 1) - gammaln(self.counts + 1).sum()) / np.log(2)
        if not np.array_equal(self.groups, other.groups) or ordered < SURE:
            return False
        # n! / (prod c! prod m!) ways to divide rows into groups of these sizes, m of which are as large
        alike = np.unique(self.counts, return_counts=True)[1]
        if ordered - gammaln(alike + 1).sum() / np.log(2) >= SURE:
            return True
        if (np.diff(self.order) >= 0).all() or (np.diff(self.order) <= 0).all():
            return values.dtype.kind in "fiub" and on_other_scales(self.values[:, None], values[:, None])
        return np.array_equal(self.order, other.order) or np.array_equal(self.order, self.order.max() - other.order)


def _plain(values: Iterable[Any]) -> bool:
    """All texts, or all numbers."""
    kinds = {str if isinstance(value, str) else Number for value in values if isinstance(value, str | Number)}
    return len(kinds) == 1 and all(isinstance(value, str | Number) for value in values)


Cells = Mapping[Any, Any]  # columns by name, or by number where they have none


def _as_table(value: Any) -> Iterator[tuple[list[Any], Cells]]:
    """A value as columns by name, where it is a table."""
    if isinstance(value, str):
        value = _read(value)
    kind = type(value)  # its instances may answer to any name
    if hasattr(kind, "columns") and hasattr(kind, "to_numpy") and getattr(value, "ndim", 2) == 2:
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
