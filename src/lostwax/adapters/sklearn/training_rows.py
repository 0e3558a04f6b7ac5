"""The rows that a part was fitted on, and how improbable it is that unrelated numbers agree with them.

An array that agrees with a continuous table does so because it was made from it. On a table of zeros and ones many
arrays agree by accident. So an agreement is worth a number of bits: -log2 of the probability that unrelated numbers on
the table's own grid agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from lostwax.adapters.objects import Array
from lostwax.attacks.closed_form.stored import row_keys

SURE = 25.0  # bits: an agreement by accident has a probability of 2^-25
AGREES = 1e-9  # relative to a column's spread, times the square root of the number of rows
DIGITS = {2: 8, 4: 20, 8: 40}  # bits that a value of a continuous column is worth, by the bytes of a number
GRID = 10.0 ** -np.arange(5)  # columns whose values are multiples of one of these are not continuous
GRID_ROWS = 10_000  # by which that is judged

equal = partial(np.array_equal, equal_nan=True)


class TrainingRows:
    """The rows that a part was fitted on, with the facts about them that arrays are compared with."""

    def __init__(self, x: Array, y: Array | None = None, weight: Array | None = None) -> None:
        self.x, self.y = x, y
        self.n, self.d = x.shape
        self.weight = np.ones(self.n) if weight is None else weight
        self.holes = bool(np.isnan(x).any())
        self.low, self.high = (
            np.asarray(np.fmin.reduce(x)),
            np.asarray(np.fmax.reduce(x)),
        )  # (d,) of the cells with values
        self.varies = self.high > self.low
        has_classes = y is not None and y.ndim == 1 and y.dtype.kind != "f"
        self.classes = int(y.max()) + 1 if y is not None and has_classes else 0  # 0: labels are no class numbers
        # ones and, if they differ, the sample weights (True)
        self.weights = [(np.ones(self.n), False)] + ([] if (self.weight == 1).all() else [(self.weight, True)])
        self._keys: dict[Any, tuple[Array, Array]] = {}

    @cached_property
    def spread(self) -> Array:
        """(d,) the scale on which means are compared; positive."""
        largest = np.fmax(np.abs(self.low), np.abs(self.high))
        return np.asarray(self.x.std(0) + 1e-6 * largest + 1e-300)

    @cached_property
    def step(self) -> Array:
        """(d,) the grid on which a column's values lie; 0 for continuous columns."""
        scaled = self.x[:GRID_ROWS, :, None] / GRID  # (rows, d, grids)
        near = np.abs(scaled - np.rint(scaled)) <= 1e-9 * np.fmax(1, np.abs(scaled))
        fits = (near | np.isnan(scaled)).all(0)  # (d, grids)
        return np.where(fits.any(1), GRID[fits.argmax(1)], 0.0)

    @cached_property
    def single(self) -> bool:
        """Whether the rows are continuous numbers of single precision: then sums over them may be so too."""
        return bool((self.step == 0).any()) and equal(self.x, self.x.astype(np.float32).astype(np.float64))

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
        keys, order = self.keys(rows.dtype)
        at = order[np.searchsorted(keys, row_keys(torch.from_numpy(rows))).clip(max=self.n - 1)]
        theirs = self.x[at].astype(rows.dtype)
        same = ((theirs == rows) | (np.isnan(theirs) & np.isnan(rows))).all(1)
        return np.where(same, at, -1)

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

    def labels_in(self, name: str, array: Array, rows: int) -> Iterator[tuple[Array, bool]]:
        """How an array may hold the labels of `rows` rows, and whether its name leaves no doubt."""
        if self.y is None:
            return
        if not self.classes:
            if array.shape == (rows, *self.y.shape[1:]):
                single = array.dtype.kind == "f" and array.dtype.itemsize <= 8
                yield array if single else array.astype(np.float64), False
            return
        if array.shape == (rows,):
            values, numbers = np.unique(array, return_inverse=True)
            if len(values) == self.classes:
                yield numbers.astype(np.int64), False
            elif (array == np.rint(array)).all():
                yield array.astype(np.int64), False
        if array.shape == (self.classes,) and array.dtype.kind in "iu" and array.min() >= 0 and array.sum() == rows:
            yield np.repeat(np.arange(self.classes), array), "support" in name  # rows of each class in turn

    def groups_in(self, arrays: Iterable[Array], groups: int) -> Iterator[Array]:
        """Arrays that put each row of the table into one of the groups, or leave it out (-1)."""
        for array in (array for array in arrays if array.shape == (self.n,)):
            if array.dtype.kind in "iu" and array.min() >= -1 and 0 <= array.max() < groups:
                yield array.astype(np.int64)
            if array.dtype.kind == "b" and groups == 1 and not array.all():
                yield np.where(array, 0, -1)

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
        cells = np.minimum(cells, np.log2(np.fmax(1.0, width * self.spread / limit))) * self.varies
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


def on_other_scales(ours: Array, theirs: Array) -> bool:
    """Whether each column of one table (n, d) is that of the other one, times a slope plus an offset, to rounding."""
    centred, other = (part - part.mean(0) for part in (ours.astype(np.float64), theirs.astype(np.float64)))
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = (centred * other).sum(0) / (centred**2).sum(0)
    single = theirs.dtype.kind == "f" and theirs.dtype.itemsize < 8
    rounding = np.finfo(theirs.dtype if single else np.float64).eps * 64 * np.abs(theirs).max(0)
    return bool((slope != 0).all() and (np.abs(other - slope * centred) <= rounding).all())
