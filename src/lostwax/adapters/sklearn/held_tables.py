"""What a release holds of the table as its owner wrote it: rows and columns, in frames, CSV, JSON or gzip.

Each part of a pipeline is compared with the numbers that it was fitted on (`scan`). Here everything that hangs on the
release, on the pipeline itself or on a search too, is compared with the table before any encoding. What no code of the
estimator's class mentions was attached after `fit`: refits do not show it, so that it is named unless it is a setting.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from numbers import Number
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import torch
from scipy.special import gammaln
from torch import Tensor

from lostwax.adapters.objects import (
    Array,
    Walk,
    arguments_of,
    as_numpy,
    as_text,
    attributes,
    decoded,
    is_numbers,
    is_text,
    parsed,
    unmentioned,
    unpacked,
)
from lostwax.adapters.sklearn.training_rows import SURE, TrainingRows, on_other_scales
from lostwax.attacks.closed_form.stored import row_keys
from lostwax.games import Cells, Columns, Fitted, Kept, Part, Records, Stored
from lostwax.records.tables import coded, codes_of

SURE_BY_NAME = 10.0  # bits, for counts of categories whose names agree too
SCANNED = ("sklearn", "xgboost", "lightgbm", "catboost", "imblearn")  # libraries whose attributes are read elsewhere
ROUNDED = 1e-6  # of a column's deviation: digits that texts leave out
MAX_COLUMNS = 1_000  # of an attribute that are compared with those of the table
DECIMALS = (None, 10, 6)  # to which pandas writes numbers in JSON and on a screen; None: all
FEWEST_SHARED = 0.5  # of the rows of a table that are those of the other one
# A setting has no more than these: bytes in all, bytes that are no text, different numbers, and digits of each (0.05,
# 0.125; whole numbers one more: 2024).
SETTING_BYTES, SETTING_BINARY, SETTING_NUMBERS, SETTING_DIGITS = 1_000, 16, 16, 3
SHARES = 1e-6  # by which shares sum up to one
DECIMAL_OR_WORD = re.compile(r"[-+]?\d*\.\d+(?:[eE][-+]?\d+)?|(?<![\w.-])[-+]?\d+\.?(?:[eE][-+]?\d+)?(?!\w)")
DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?")


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
    paths = set[str]()
    for path, value in unpacked(model):
        for cells in _as_tables(value):
            places = _places(list(cells), columns, used, width)
            table = _in_codes(cells, places, columns) if len(places) >= min(2, x.shape[1]) else None
            if table is None or not paths.isdisjoint(accumulate(path.split("."), "{}.{}".format)):
                continue
            order = sorted(places)
            if len(rows := _rows_of(table[:, order], x[:, order])):
                paths.add(path)
                yield HeldTable(path, order, rows)


def _rows_of(held: Tensor, x: Tensor) -> Tensor:
    """The rows of x (n, d) that are among the rows (k, d), also if these are rounded; none if it may be an accident."""
    for decimals in DECIMALS:
        own, other = (x, held) if decimals is None else (x.round(decimals=decimals), held.round(decimals=decimals))
        ours, theirs = row_keys(own), row_keys(other)
        keys, count = np.unique(ours, return_counts=True)
        known, single = np.isin(theirs, keys), np.isin(theirs, keys[count == 1])
        bits = TrainingRows(own.numpy()).row_bits(other.numpy()) * len(np.unique(theirs[single]))
        if np.array_equal(ours, theirs):  # all rows in their order
            bits = max(bits, len(x) * float(np.log2(len(keys))))
        if bits >= SURE and known.mean() >= FEWEST_SHARED:
            exact = decimals is None
            return held[torch.from_numpy(known)] if exact else x[torch.from_numpy(np.isin(ours, theirs[known]))]
    return held[:0]


class Attached(NamedTuple):
    """What an estimator holds that no code of a library mentions."""

    path: str
    value: Any
    afterwards: bool  # no code of a user's class mentions it either: it was attached after `fit`


def attached(model: Any) -> list[Attached]:
    """By path, of the model and of every estimator inside."""
    attachments = list[Attached]()
    for path, value in Walk(model):
        if not _is_estimator(value) or any(path.startswith(f"{outer.path}.") for outer in attachments):
            continue
        of_libraries = [base for base in type(value).__mro__ if base.__module__.partition(".")[0] in SCANNED]
        late = unmentioned(value, type(value).__mro__).keys() - arguments_of(value)
        of_user = unmentioned(value, of_libraries) if type(value) not in of_libraries else late
        for name, member in attributes(value).items():
            if name in of_user and not _is_estimator(member):
                attachments.append(Attached(f"{path}.{name}".removeprefix("."), member, name in late))
    return attachments


def _is_estimator(value: Any) -> bool:
    return callable(getattr(type(value), "fit", None))


def is_setting(value: Any, table: Array) -> bool:
    """Whether something is too short and too round to tell of rows of a table (n, d): a version, a date, a threshold.

    It has no bytes that are no text, and few numbers of few digits, none of which is a sum, a mean or an extreme of a
    column; they do not add up to the number of rows, or to one, as counts and shares of them do.
    """
    members = [member for _, member in unpacked({"": value})]
    texts = [as_text(member) for member in members if is_text(member)]
    numbers = [np.ravel(as_numpy(member)) for member in members if is_numbers(member)]
    size = sum(map(len, texts)) + 8 * sum(map(len, numbers))
    are_plain = all(each.dtype.kind in "fiub" for each in numbers)  # no dates, and no whole numbers of many bits
    if size > SETTING_BYTES or not are_plain or any(_is_binary(member) for member in members):
        return False
    text = DATE.sub("", "\n".join(texts), count=1)  # others become whole numbers
    text = DATE.sub(lambda date: re.sub(r"\D", "", date[0]), text)
    stated = {float(number) for number in DECIMAL_OR_WORD.findall(text)}
    stated |= {
        float(str(number)) for each in numbers for number in each.astype(each.dtype if each.dtype.kind == "f" else int)
    }
    others = [number for number in stated - {0.0, 1.0, -1.0, float(len(table))} if np.isfinite(number)]
    few_digits = all(_digits(number) <= SETTING_DIGITS + number.is_integer() for number in others)
    if len(others) > SETTING_NUMBERS or not few_digits:
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # columns without any value
        sums = np.append(np.nansum(table, 0), np.nanmean(table, 0))
        ends = np.append(np.nanmin(table, 0), np.nanmax(table, 0))
    telling = np.append(sums[~np.isin(sums, (0.0, 0.5, 1.0, -1.0))], [end for end in ends if _digits(end) > 1])
    if np.isclose(np.array(others)[:, None], telling, rtol=1e-12, atol=0).any():
        return False
    return not any(_are_counts(each, len(table)) for each in (*numbers, np.concatenate([np.empty(0), *numbers])))


def _digits(number: float) -> int:
    """How many digits a number is written with, without zeros at its ends."""
    return len(f"{number:.12g}".partition("e")[0].strip("-0.").replace(".", ""))


def _is_binary(value: Any) -> bool:
    """Bytes that are no text."""
    is_long = isinstance(value, bytes | bytearray | memoryview) and len(value) > SETTING_BINARY
    return is_long and decoded(bytes(value)) is None


def _are_counts(numbers: Array, rows: int) -> bool:
    """Whether numbers sum up to the number of rows, as counts of values do, or to one, as their shares do."""
    total, several = numbers.sum(), (numbers > 0).sum() > 1 and bool((numbers >= 0).all())
    are_shares = abs(total - 1) <= SHARES and any(_digits(number) > 1 for number in numbers)
    return several and (total == rows or are_shares)


def held_columns(model: Any, x: Tensor, columns: Columns, path: str = "") -> Iterator[HeldTable]:
    """Single columns of x (n, d) in what is held at a path: all values, in any order."""
    places = set(range(x.shape[1]))
    for inner, value in unpacked({"": model}):
        for cells in _as_columns(value, len(x)):
            for place in sorted(places):
                column = _in_codes({0: cells}, {place: 0}, columns)
                sure = SURE_BY_NAME if columns.categories[place] else SURE  # names agree too
                if column is not None and _same_values(column[:, place], x[:, place], sure):
                    places.remove(place)
                    yield HeldTable(f"{path}{inner}".removesuffix("."), [place], x[:, [place]])


def _as_columns(value: Any, n: int) -> Iterator[Any]:
    """A value as n cells: numbers or texts, or one column of a table."""
    if isinstance(value, torch.Tensor) or (hasattr(type(value), "to_numpy") and getattr(value, "ndim", 0) == 1):
        value = as_numpy(value)
    elif isinstance(value, Mapping):
        value = list(value.values())
    if (isinstance(value, list | tuple) and len(value) == n and _plain(value)) or (
        isinstance(value, np.ndarray) and value.ndim == 1 and len(value) == n and value.dtype.kind in "fiubUSO"
    ):
        yield value
    elif isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype.kind in "fiub" and n in value.shape:
        yield from (value if value.shape[1] == n else value.T)[:MAX_COLUMNS]


def _same_values(ours: Tensor, theirs: Tensor, sure: float) -> bool:
    """Whether two columns (n,) have the same values, in any order and to the digits that pandas writes."""
    values, counts = np.unique(theirs.numpy(), return_counts=True)
    n, kinds = len(theirs), len(values)
    ways = gammaln(n + kinds) - gammaln(n + 1) - gammaln(kinds)  # to choose n of these values
    if np.array_equal(ours, theirs, equal_nan=True):
        ways = max(ways, gammaln(n + 1) - gammaln(counts + 1).sum())  # their orders
    near = ROUNDED * float(np.nanstd(theirs.numpy()))
    same = np.isclose(np.sort(ours.numpy()), np.sort(theirs.numpy()), 0, near, equal_nan=True)
    return bool(ways / np.log(2) >= sure and same.all())


def as_part(held: HeldTable, name: str, table: Records, weight: Tensor) -> Part:
    """What it tells of each row."""
    keys = row_keys(held.rows)
    first = torch.from_numpy(np.unique(keys, return_index=True)[1]) if len(keys) > len(table) else slice(None)
    stored = Stored(f"{name}'s {held.path}", held.rows[first])

    def back(rows: Tensor) -> Cells:
        known = ~rows.isnan().all(1, keepdim=True)  # a stored row has its gaps
        cells = Cells.lost(len(rows), table.x.shape[1])
        cells.values[:, held.columns] = torch.where(rows.isinf(), torch.nan, rows)
        cells.kept[:, held.columns] = np.where(known, Kept.EXACT, Kept.LOST)
        return cells

    own = Records(table.x[:, held.columns], table.y)
    return Part(Fitted(name, own, weight, None, stored=(stored,)), back, labelled=False)


def held_labels(model: Any, y: Tensor) -> str | None:
    """The first place, by path, in which a release holds the labels of all rows in their order."""
    if y.ndim > 1:
        return next(filter(None, (held_labels(model, column) for column in y.T)), None)
    labels = y.numpy()
    for path, value in Walk(model):
        value = as_numpy(value)
        if isinstance(value, list | tuple) and len(value) == len(y) and _plain(value):
            value = np.asarray(value)
        if isinstance(value, np.ndarray) and value.shape == y.shape:
            is_plain = value.dtype.kind in "fiubUS" or (value.dtype.kind == "O" and _plain(value))
            if is_plain and _are_labels(value, labels):
                return path
    return None


def _are_labels(values: Array, labels: Array) -> bool:
    """Whether values (n,) are the labels under other names, on another scale, or as they are.

    Names agree by accident if all labels differ, and an order does if rows are sorted by their labels.
    """
    (ours, order, counts), (theirs, other, _) = _groups(labels), _groups(values)
    ordered = (gammaln(len(values) + 1) - gammaln(counts + 1).sum()) / np.log(2)
    if not np.array_equal(ours, theirs) or ordered < SURE:
        return False
    # n! / (prod c! prod m!) ways to divide rows into groups of these sizes, m of which are as large
    alike = np.unique(counts, return_counts=True)[1]
    if ordered - gammaln(alike + 1).sum() / np.log(2) >= SURE:
        return True
    if (np.diff(order) >= 0).all() or (np.diff(order) <= 0).all():
        return values.dtype.kind in "fiub" and on_other_scales(labels[:, None], values[:, None])
    return np.array_equal(order, other) or np.array_equal(order, order.max() - other)


def _groups(values: Array) -> tuple[Array, Array, Array]:
    """(n,) the first row that has the same value, and the place of the value among all; how many rows have each."""
    _, first, place, counts = np.unique(values, return_index=True, return_inverse=True, return_counts=True)
    return first[place], place, counts


def _plain(values: Iterable[Any]) -> bool:
    """All texts, or all numbers."""
    kinds = {str if isinstance(value, str) else Number for value in values if isinstance(value, str | Number)}
    return len(kinds) == 1 and all(isinstance(value, str | Number) for value in values)


NamedColumns = Mapping[Any, Any]  # by name, or by number where they have none


def _as_tables(value: Any) -> Iterator[NamedColumns]:
    """A value as columns by name, where it is a table."""
    value = parsed(value) if isinstance(value, str) else value
    kind = type(value)  # its instances may answer to any name
    dimensions = value.ndim if hasattr(kind, "ndim") else 2
    if hasattr(kind, "to_dict") and hasattr(kind, "index") and dimensions == 1 and len(value) <= MAX_COLUMNS:
        value = value.to_dict()
    if hasattr(kind, "columns") and hasattr(kind, "to_numpy") and dimensions == 2:
        yield {name: value[name] for name in dict.fromkeys(value.columns)}
    elif isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype.kind in "fiubUSO" and value.size:
        yield dict(enumerate(value.T))
    elif _are_rows(value):
        yield dict(enumerate(zip(*value, strict=True)))
    elif isinstance(value, list | tuple) and value and all(isinstance(row, Mapping) for row in value):
        yield {name: [row.get(name) for row in value] for name in value[0]}
    elif isinstance(value, Mapping) and value:
        if all(isinstance(cell, str | Number | None) for cell in value.values()):  # one row
            yield {name: [cell] for name, cell in value.items()}
        labels, rows = value.get("columns"), value.get("data")  # as pandas splits a frame
        if isinstance(labels, list | tuple) and _are_rows(rows) and len(labels) == len(rows[0]):
            yield dict(zip(map(str, labels), zip(*rows, strict=True), strict=True))
        lists = {name: cells for name, cells in value.items() if isinstance(cells, list | tuple | np.ndarray)}
        if lists and len({len(cells) for cells in lists.values()}) == 1:
            yield lists
            yield dict(enumerate(map(list, zip(*lists.values(), strict=True))))
        inner = [member for member in value.values() if isinstance(member, Mapping)]
        if len(inner) == len(value) and len({tuple(member) for member in inner}) == 1:  # by column and row, or by both
            yield {name: list(cells.values()) for name, cells in value.items()}
            yield {name: [row[name] for row in inner] for name in inner[0]}


def _are_rows(value: Any) -> TypeGuard[Sequence[Sequence[Any]]]:
    """Lists of as many cells each."""
    lists = isinstance(value, list | tuple) and value and all(isinstance(row, list | tuple) for row in value)
    return bool(lists) and len({len(row) for row in value}) == 1 and len(value[0]) > 0


def _places(names: list[Any], columns: Columns, used: Sequence[int], width: int) -> dict[int, Any]:
    """By number of a column of the table, its name in the other one."""
    by_text = {str(name): name for name in names}
    if any(name in by_text for name in columns.names):
        return {place: by_text[name] for place, name in enumerate(columns.names) if name in by_text}
    unnamed = len(names) == width and (not columns.names or all(isinstance(name, int) for name in names))
    return {place: names[number] for place, number in enumerate(used)} if unnamed else {}


def _in_codes(cells: NamedColumns, places: Mapping[int, Any], columns: Columns) -> Tensor | None:
    """(k, d) as numbers and codes of the table's own categories; None where a column is of another kind."""
    length = len(next(iter(cells.values())))
    table = torch.full((length, len(columns.categories)), torch.nan, dtype=torch.float64)
    for place, name in places.items():
        try:
            column = np.asarray(as_numpy(cells[name]))
            if column.ndim != 1 or not length:
                return None
            if names := columns.categories[place]:
                numbers = codes_of(Columns(("",), (names,)), column.astype(object)[:, None])[:, 0]
            elif column.dtype.kind in "US":
                numbers = torch.from_numpy(np.where(column == "", "nan", column).astype(np.float64))
            else:
                numbers = coded(column[:, None])[0][:, 0]
            table[:, place] = numbers
        except (ValueError, TypeError, OverflowError, RuntimeError):  # also of tensors in a list
            return None
    return table
