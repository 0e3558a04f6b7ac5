"""The rows that a part was fitted on, and how improbable it is that unrelated numbers agree with them.

An array that agrees with a continuous table does so because it was made from it. On a table of zeros and ones many
arrays agree by accident. So an agreement is worth a number of bits: -log2 of the probability that unrelated numbers on
the table's own grid agree.
"""

from __future__ import annotations

import base64
import bz2
import lzma
import re
import zlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch

from lostwax.adapters.sklearn.walk import Array
from lostwax.attacks.closed_form.stored import row_keys

AGREES = 1e-9  # relative to a column's spread, times the square root of the number of rows
DIGITS = {2: 8, 4: 20, 8: 40}  # bits that a value of a continuous column is worth, by the bytes of a number
GRID = 10.0 ** -np.arange(5)  # columns whose values are multiples of one of these are not continuous
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|\bnan\b|\bNaN\b")
BASE64 = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")
DEPTH = 4  # of packed bytes inside of others
SHORTEST, GZIP_OR_ZLIB = 64, 47  # characters of base64; the header decides
MOST = 100_000_000  # bytes or characters that are searched
KINDS = (np.dtype(np.float64), np.dtype(np.float32))
FEW = 8  # rows that are looked for one by one
SAMPLE = 10_000  # rows by which that is judged


class TrainingRows:
    """The rows that a part was fitted on, with the facts about them that arrays are compared with."""

    def __init__(self, x: Array, y: Array | None, weight: Array) -> None:
        self.x, self.y, self.weight = x, y, weight
        self.n, self.d = x.shape
        self._keys: dict[Any, tuple[Array, Array]] = {}

    @cached_property
    def holes(self) -> bool:
        """Whether a cell is missing."""
        return bool(np.isnan(self.x).any())

    @cached_property
    def low(self) -> Array:
        """(d,) the minimum of each column, without missing cells."""
        return np.asarray(np.fmin.reduce(self.x))

    @cached_property
    def high(self) -> Array:
        """(d,) the maximum of each column, without missing cells."""
        return np.asarray(np.fmax.reduce(self.x))

    @cached_property
    def spread(self) -> Array:
        """(d,) the scale on which means are compared; positive."""
        largest = np.fmax(np.abs(self.low), np.abs(self.high))
        return np.asarray(self.x.std(0) + 1e-6 * largest + 1e-300)

    @cached_property
    def step(self) -> Array:
        """(d,) the grid on which a column's values lie; 0 for continuous columns."""
        scaled = self.x[:SAMPLE, :, None] / GRID  # (rows, d, grids)
        near = np.abs(scaled - np.rint(scaled)) <= 1e-9 * np.fmax(1, np.abs(scaled))
        fits = (near | np.isnan(scaled)).all(0)  # (d, grids)
        return np.where(fits.any(1), GRID[fits.argmax(1)], 0.0)

    @cached_property
    def single(self) -> bool:
        """Whether the rows are continuous numbers of single precision: then sums over them may be so too."""
        return bool((self.step == 0).any()) and equal(self.x, self.x.astype(np.float32).astype(np.float64))

    @cached_property
    def classes(self) -> int:
        """How many there are; 0 if the labels are not class numbers."""
        return 0 if self.y is None or self.y.ndim > 1 or self.y.dtype.kind == "f" else int(self.y.max()) + 1

    @cached_property
    def weights(self) -> list[tuple[Array, bool]]:
        """Ones and, if they differ, the sample weights (True)."""
        ones = np.ones(self.n)
        return [(ones, False)] + ([] if (self.weight == 1).all() else [(self.weight, True)])

    def bits(self, itemsize: int) -> Array:
        """(d,) how improbable it is that an unrelated number is a value of the column, as bits."""
        width, digits = self.high - self.low, DIGITS[min(itemsize, 4 if self.single else 8)]
        with np.errstate(divide="ignore", invalid="ignore"):
            cells = np.where(self.step > 0, np.log2(1 + width / self.step), digits)
        return np.where(width > 0, np.minimum(cells, digits), 0.0)

    def row_bits(self, rows: Array) -> float:
        """How improbable it is that an unrelated row, in the dtype of `rows`, is one of the table, as bits."""
        return max(0.0, float(self.bits(rows.dtype.itemsize).sum()) - float(np.log2(self.n)))

    @cached_property
    def distinct(self) -> int:
        """How many different rows there are."""
        return len(np.unique(self.keys(self.x.dtype)[0]))

    def keys(self, kind: Any) -> tuple[Array, Array]:
        """Hashes of the rows in a dtype, sorted, and which row each belongs to."""
        if kind not in self._keys:
            keys = row_keys(torch.from_numpy(self.x.astype(kind)))
            order = keys.argsort()
            self._keys[kind] = keys[order], order
        return self._keys[kind]

    def find(self, rows: Array) -> Array:
        """(k,) for each row one of the table that equals it bit for bit, in the dtype of `rows`; -1 if none does."""
        if len(rows) <= FEW:
            return np.array([self._find_one(row) for row in rows])
        keys, order = self.keys(rows.dtype)
        place = np.searchsorted(keys, row_keys(torch.from_numpy(rows))).clip(max=self.n - 1)
        at = order[place]
        theirs = self.x[at].astype(rows.dtype)
        equal = ((theirs == rows) | (np.isnan(theirs) & np.isnan(rows))).all(1)
        return np.where(equal, at, -1)

    def _find_one(self, row: Array) -> int:
        """The same for one row, without hashes of the table."""
        near = np.arange(self.n)
        for column, value in enumerate(row):
            cells = self.x[near, column].astype(row.dtype)
            near = near[np.isnan(cells) if np.isnan(value) else cells == value]
            if len(near) == 0:
                return -1
        return int(near[0])

    def occurs(self, rows: Array) -> Array:
        """(k,) how often each row occurs in the table."""
        keys, ours = self.keys(rows.dtype)[0], row_keys(torch.from_numpy(rows))
        return np.searchsorted(keys, ours, "right") - np.searchsorted(keys, ours, "left")

    def one_label(self, rows: Array) -> Array:
        """(k,) whether all rows of the table that equal this one have the same label."""
        if self.y is None:
            return np.ones(len(rows), dtype=np.bool_)
        keys, order = self.keys(rows.dtype)
        labels = row_keys(torch.from_numpy(self.y.reshape(self.n, -1)[order]))
        starts = np.unique(keys, return_index=True)[1]
        same = np.minimum.reduceat(labels, starts) == np.maximum.reduceat(labels, starts)
        return np.asarray(same[np.searchsorted(keys[starts], row_keys(torch.from_numpy(rows)))])

    def holds_pairs(self, rows: Array, labels: Array) -> bool:
        """Whether each row with its label is one of the table."""
        if self.y is None:
            return False

        def pairs(x: Array, y: Array) -> Array:
            cells = np.concatenate([x, y.reshape(len(y), -1)], 1, dtype=np.float64)
            return row_keys(torch.from_numpy(cells))

        theirs = pairs(self.x.astype(rows.dtype), self.y.astype(labels.dtype))
        return bool(np.isin(pairs(rows, labels), theirs).all())

    def group_sums(self, group: Array, groups: int, weight: Array) -> tuple[Array, Array]:
        """(groups, d) sums of the weighted rows, and (groups,) of the weights; -1 is no group."""
        member = group >= 0
        if groups == 1 and member.all():
            return (weight @ self.x)[None], weight.sum(keepdims=True)
        count = np.bincount(group[member], weight[member], groups)
        rows = torch.zeros(groups, self.d, dtype=torch.float64)
        rows.index_add_(0, torch.from_numpy(group[member]), torch.from_numpy(weight[member, None] * self.x[member]))
        return rows.numpy(), count

    def limit(self, values: Array) -> Array:
        """(d,) how much rounding may have changed means of the rows that are held as `values`."""
        kind = precision(values)
        if kind.itemsize == 8 and not self.single:
            return np.asarray(AGREES * self.spread * self.n**0.5)
        epsilon = np.finfo(np.float32 if kind.itemsize == 8 else kind).eps
        largest = np.fmax(np.abs(self.low), np.abs(self.high))
        return np.asarray(10 * float(epsilon) * (self.spread + largest) * self.n**0.5)

    def agree(self, values: Array, means: Array) -> Array:
        """(groups,) whether rows of `values` equal those of `means` to rounding."""
        with np.errstate(invalid="ignore"):
            return np.asarray((np.abs(values - means) <= self.limit(values)).all(1))

    def mean_bits(self, means: Array, count: Array, width: float = 1.0) -> float:
        """How improbable it is that unrelated numbers agree with these means (groups, d), as bits.

        Numbers that are spread over `width` deviations of a column.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            cells = np.log2(1 + np.sqrt(count)[:, None] * self.spread / self.step)
        limit = self.limit(means)
        cells = np.minimum(cells, np.log2(np.fmax(1.0, width * self.spread / limit))) * (self.high > self.low)
        trivial = (np.abs(means) <= limit) | np.isin(means, (-1.0, 1.0))  # many small numbers agree with zero
        return float(np.where(trivial, 0.0, cells).sum())


def precision(values: Array) -> np.dtype[Any]:
    """The floating-point type that numbers were computed in: single, if that is all that they have."""
    if values.dtype.kind != "f" or values.dtype.itemsize < 8:
        return values.dtype if values.dtype.kind == "f" else np.dtype(np.float64)
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    return np.dtype(np.float32) if (single == values).all() and (values != np.rint(values)).any() else values.dtype


def plain(rows: Array) -> Array:
    """(k,) rows that are made without data: all cells are equal, or all but one are zero."""
    if rows.shape[1] == 1:
        return np.zeros(len(rows), dtype=np.bool_)
    return np.asarray((rows == rows[:, :1]).all(1) | ((rows != 0).sum(1) <= 1))


def equal(left: Array, right: Array) -> bool:
    """Whether two arrays are the same; a NaN equals a NaN."""
    return left.shape == right.shape and bool(((left == right) | (np.isnan(left) & np.isnan(right))).all())


def on_other_scales(ours: Array, theirs: Array) -> bool:
    """Whether each column of one table (n, d) is that of the other one, times a slope plus an offset, to rounding."""
    centred, other = (part - part.mean(0) for part in (ours.astype(np.float64), theirs.astype(np.float64)))
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = (centred * other).sum(0) / (centred**2).sum(0)
    single = theirs.dtype.kind == "f" and theirs.dtype.itemsize < 8
    rounding = np.finfo(theirs.dtype if single else np.float64).eps * 64 * np.abs(theirs).max(0)
    return bool((slope != 0).all() and (np.abs(other - slope * centred) <= rounding).all())


def hidden_rows(value: str | bytes, table: TrainingRows, depth: int = DEPTH) -> Iterator[Array]:
    """Rows of a table (k, d) inside bytes and texts: pickled arrays, raw buffers, lines of CSV or JSON.

    Bytes are read as floating-point numbers at every offset, texts as the numbers that are written in them. In this
    list, rows of the table are looked for one after the other, and columns, which is how pandas pickles a table.
    """
    if len(value) > MOST:
        return
    if depth and (packed := decompressed(value)) is not None:
        yield from hidden_rows(packed, table, depth - 1)
    if len(value) <= 8 * table.d:
        return
    for numbers in numbers_in(value):
        with np.errstate(invalid="ignore", over="ignore"):
            found = _rows(numbers, table)
            found = found if len(found) else _columns(numbers, table)
        if len(found):
            yield found


def decompressed(value: str | bytes | bytearray) -> bytes | None:
    """What is packed in bytes (gzip, zlib, bzip2, xz), or in a text as base64; None if nothing is."""
    if isinstance(value, str):
        if len(value) < SHORTEST or len(value) % 4 or not BASE64.fullmatch(value):
            return None
        return base64.b64decode(value, altchars=b"-_")
    xz = lzma.LZMADecompressor(lzma.FORMAT_XZ)  # the older format has no mark: small numbers look like an empty one
    for unpacking in (zlib.decompressobj(GZIP_OR_ZLIB), bz2.BZ2Decompressor(), xz):
        try:
            if packed := unpacking.decompress(bytes(value), MOST):
                return packed
        except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError):
            continue
    return None


def numbers_in(value: str | bytes) -> Iterator[Array]:
    """All numbers in a text, or bytes as numbers of two sizes at each offset."""
    if isinstance(value, str):
        yield np.array(NUMBER.findall(value), dtype=np.float64)
        return
    for kind in KINDS:
        for offset in range(min(kind.itemsize, len(value))):
            yield np.frombuffer(value, kind, (len(value) - offset) // kind.itemsize, offset)


def _rows(numbers: Array, table: TrainingRows) -> Array:
    """Rows of the table whose cells are next to each other: those that start with a value of the first column."""
    starts = np.flatnonzero(np.isin(numbers[: max(0, len(numbers) - table.d + 1)], table.x[:, 0].astype(numbers.dtype)))
    rows = numbers[starts[:, None] + np.arange(table.d)]  # (k, d)
    return rows[table.find(rows) >= 0] if len(rows) else rows


def _columns(numbers: Array, table: TrainingRows) -> Array:
    """The whole table, if the values of every column are next to each other."""
    own = table.x.astype(numbers.dtype)
    last = len(numbers) - table.n
    for column in own.T:
        starts = np.flatnonzero(numbers[: max(0, last + 1)] == column[0])
        if not any(np.array_equal(numbers[start : start + table.n], column, equal_nan=True) for start in starts):
            return own[:0]
    return own


def as_labels(name: str, array: Array, rows: int, table: TrainingRows) -> Iterator[tuple[Array, bool]]:
    """How an array may hold the labels of `rows` rows, and whether its name leaves no doubt."""
    if table.y is None:
        return
    if not table.classes:
        if array.shape == (rows, *table.y.shape[1:]):
            yield array.astype(np.float64) if array.dtype.itemsize > 8 or array.dtype.kind != "f" else array, False
        return
    if array.shape == (rows,):
        values, numbers = np.unique(array, return_inverse=True)
        if len(values) == table.classes:
            yield numbers.astype(np.int64), False
        elif (array == np.rint(array)).all():
            yield array.astype(np.int64), False
    if array.shape == (table.classes,) and array.dtype.kind in "iu" and array.min() >= 0 and array.sum() == rows:
        yield np.repeat(np.arange(table.classes), array), "support" in name  # rows of each class in turn


def groupings(arrays: Mapping[str, Array], groups: int, rows: int) -> Iterator[Array]:
    """Arrays that put each row of the table into one of the groups, or leave it out (-1)."""
    for array in arrays.values():
        if array.shape == (rows,) and array.dtype.kind in "iu" and array.min() >= -1 and 0 <= array.max() < groups:
            yield array.astype(np.int64)
        if array.shape == (rows,) and array.dtype.kind == "b" and groups == 1 and not array.all():
            yield np.where(array, 0, -1)
