"""What a fitted part publishes about its rows, found by value and not by class.

Every array that can be reached from the part (`Walk`) is compared with the rows the part was fitted on: is it made of
training rows, or of their means, sums or extremes? An array counts only if it agrees in every cell, and if that can
hardly be an accident (`training_rows` counts the bits that an agreement is worth). On small or binary tables, where
many arrays agree, names decide: `X_fit_` and `mean_` mean what they say.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lostwax.adapters.objects import FRAMES, TEXT, Array, Walk, as_array, attributes, is_numbers, is_too_large
from lostwax.adapters.sklearn.inputs import other_data
from lostwax.adapters.sklearn.training_rows import (
    SURE,
    TrainingRows,
    equal,
    on_other_scales,
    plain,
    precision,
)
from lostwax.attacks.closed_form.stored import row_keys
from lostwax.games import Extremes, Noted, Stored, Sums
from lostwax.games.notes import extreme_values, stored_rows, total_of_all_rows

SURE_BESIDE_NUMBERS = 10.0  # bits, for rows beside an array of their numbers
SURE_LABELS = 10.0  # bits, for labels beside rows that are stored
FEWEST_ON_A_LINE = 5  # rows: fewer are on a line by accident
MAX_COMBINED, MAX_FITTED = 1_000, 100  # rows of an array that are combined; by weights that are not held
MAX_STATISTICS = 32  # rows of an array, each of which may be a mean, a minimum or a maximum
SPARE_COLUMNS = 2  # that must agree beyond those that the weights of a combination are fitted to
MAX_NAMED_PLACES = 3  # that hold rows
NEARLY = 0.05  # relative to the difference of another sample of the same size: fitted on almost this table

# Names count only where the numbers of a small or discrete table agree with many arrays.
ROWS = re.compile(r"X|vector|train|data|row|record")
NUMBERS = re.compile(r"indices|support")
MEANS = re.compile(r"mean|bar|offset|location|cent|theta|statistic", re.IGNORECASE)
CLASS_SUMS = re.compile(r"mean|count|cent|theta|sum", re.IGNORECASE)
RANGES = re.compile(r"min|max|low|high|edge|quantile|knot", re.IGNORECASE)
PLACES = re.compile(r"\.(\d+)(?=\.|$)")  # in a path: items of a list
LEVEL = re.compile(r"(?=[.\[]|'s )")  # in the name of a source: "KMeans", "'s rows_", ".Anna", "[0]"
LABELS = re.compile(r"(^|_)y(_|$)|label|target|class|transduction", re.IGNORECASE)


class Scanned(NamedTuple):
    """What one part publishes about the rows it was fitted on, in the units of its inputs."""

    sums: tuple[Sums, ...] = ()
    extremes: tuple[Extremes, ...] = ()
    stored: tuple[Stored, ...] = ()
    # Sums by a grouping that is published too and is not the label (clusters): the sums, and each row's group, (n,);
    # -1 for rows that are in none. They are `by_label` with the group in place of the label.
    grouped: tuple[tuple[Sums, Tensor], ...] = ()
    notes: tuple[Noted, ...] = ()
    fitted_elsewhere: bool = False  # its mean or range is that of other rows
    complete: bool = True  # every object that it holds was searched


def scan(part: Any, x: Tensor, y: Tensor | None, weight: Tensor) -> Scanned:
    """Compare every array that is held by `part` with the rows it was fitted on.

    `part` is a fitted object of any class, or a mapping of named arrays; `x` (n, d) its own inputs, `y` class numbers
    or targets. Raises a ValueError if the part was fitted on almost these rows.
    """
    table = TrainingRows(x.double().numpy(), None if y is None else y.numpy(), weight.double().numpy())
    name = "the release" if isinstance(part, Mapping) else type(part).__name__
    search = _Search(name, table, is_model=hasattr(type(part), "predict"))

    def is_entered(value: Any) -> bool:
        return bool(attributes(value).get("n_features_in_", table.d) == table.d)  # not fitted on other columns

    walk, complete = Walk(part, is_entered=is_entered, leaf=_leaf, pickled=False), True
    for holder, members in walk.holders():
        complete &= not any(map(is_too_large, members.values()))
        arrays = {
            name: value
            for name, value in members.items()
            if isinstance(value, np.ndarray) and value.dtype.kind in "fiub"
        }
        if arrays:
            unnamed, path = all(name.isdigit() for name in members), PLACES.sub(r"[\1]", holder)
            path += "" if unnamed or not path else "."
            shown = "[{}]" if unnamed else "{}"
            search.read(path, {shown.format(name): array for name, array in arrays.items()}, unnamed=unnamed)
    search.check_own_statistics(attributes(part))
    return search.scanned()._replace(complete=walk.complete and complete)


def _leaf(value: Any) -> Any | None:
    """Numbers as arrays; nothing of texts, of other arrays and of single numbers. Everything else is entered."""
    if (array := as_array(value)) is not None:
        return array
    is_array = isinstance(value, np.ndarray) and not value.dtype.names and (value.dtype.kind != "O" or value.ndim > 1)
    is_cell = is_numbers(value) or isinstance(value, (*TEXT, np.generic, complex))
    return () if is_array or is_cell or type(value).__module__.startswith(FRAMES) else None


class _Search:
    """Collects what the arrays of a part agree with."""

    def __init__(self, name: str, table: TrainingRows, *, is_model: bool) -> None:
        self.name, self.table, self.is_model = name, table, is_model
        self.sums: dict[tuple[bool, bool], Sums] = {}  # by (by_label, weighted): more of one kind say nothing new
        self.stored: list[Stored] = []
        self.grouped: dict[bytes, tuple[Sums, Tensor]] = {}
        self.low = np.full(table.d, np.inf)
        self.high = np.full(table.d, -np.inf)
        self.ranges: list[str] = []  # what publishes them
        self.notes: list[Noted] = []
        self.fitted_elsewhere = False

    def scanned(self) -> Scanned:
        """Everything that was found."""
        stored, extremes = tuple(_without_copies(self.stored)), tuple[Extremes, ...]()
        notes = [*self.notes, *(stored_rows(place, (rows, self.table.n)) for place, rows in _places(stored))]
        every_sum = (*self.sums.values(), *(sums for sums, _ in self.grouped.values()))
        notes += [total_of_all_rows(sums.source, of_model=self.is_model) for sums in every_sum]
        if self.ranges:
            source = self._source(" and ".join(self.ranges))
            extremes = (Extremes(source, torch.from_numpy(self.low), torch.from_numpy(self.high)),)
            plural = len(self.ranges) > 1
            reveals = f"reveal{'' if plural else 's'} every value of a row that no other row reaches"
            notes.append(extreme_values(source, reveals, plural=plural))
        return Scanned(
            tuple(self.sums.values()),
            extremes,
            stored,
            tuple(self.grouped.values()),
            tuple(notes),
            self.fitted_elsewhere,
        )

    def read(self, path: str, arrays: Mapping[str, Array], *, unnamed: bool) -> None:
        """Compare all arrays that are held side by side; those of a list are `unnamed`."""
        d = self.table.d
        if unnamed and len(arrays) == d:
            self._read_columns(path, list(arrays.values()))
        if unnamed and len(arrays) > 1 and all(array.shape == (d,) for array in arrays.values()):  # a list of rows
            arrays = {"": np.stack(list(arrays.values()))}
        for name, array in arrays.items():
            place = f"{path}{name}"
            if array.ndim == 1 and d > 1 and len(array) > d and len(array) % d == 0:  # rows one after the other
                self.read_stored(place, _floating(array).reshape(-1, d), {}, named=False)
            of_all_columns = array.shape[1] == d if array.ndim == 2 else d in (1, len(array))
            if array.dtype.kind == "b" or not of_all_columns:
                continue
            rows = _floating(array).reshape(-1, d)
            named = ROWS.search(name) is not None and LABELS.search(name) is None
            stored = self.read_stored(place, rows, arrays, named=named) or self._read_rescaled(place, rows)
            if not self._read_means(place, rows, arrays, stored=stored) and not stored:
                self._read_combined(place, rows, arrays)
            self._read_range(place, rows)

    def _source(self, path: str) -> str:
        return f"{self.name}'s {path}"

    def read_stored(self, path: str, rows: Array, arrays: Mapping[str, Array], *, named: bool) -> bool:
        """Keep the rows of an array that are rows of the table, if that is no accident; True if all are."""
        table, at = self.table, self.table.find(rows)
        hit = at >= 0
        if not hit.any():
            return False
        beside = {name: array for name, array in arrays.items() if hit.all() and self._numbers_rows(array, rows)}
        numbers = next(iter(beside.values()), None)
        named |= NUMBERS.search(next(iter(beside), "")) is not None
        is_table = len(rows) == table.n and equal(rows, table.x.astype(rows.dtype))  # in its order
        if hit.all():
            sure = self._surely_rows(rows, numbers, is_table=is_table, named=named)
        else:  # beside rows of another origin each must be sure by itself
            hit &= ~plain(rows)
            sure = table.d > 1 and table.row_bits(rows) >= SURE and bool(hit.any())
        if not sure:
            return False
        at = np.arange(table.n) if is_table else at if numbers is None else numbers
        x, y = rows[hit], self._labels(rows, at, is_table or numbers is not None, arrays) if hit.all() else None
        _, first, count = np.unique(row_keys(torch.from_numpy(x)), return_index=True, return_counts=True)
        if (count > table.occurs(x[first])).any():  # a bootstrap sample: how often a row is held says nothing
            x, y = x[first], None if y is None else y[torch.from_numpy(first)]
        self.stored.append(Stored(self._source(path), torch.from_numpy(np.ascontiguousarray(x)), y))
        return bool(hit.all())

    def _numbers_rows(self, array: Array, rows: Array) -> bool:
        """Whether an array beside rows of the table holds their numbers."""
        if array.dtype.kind not in "iu" or array.shape != rows.shape[:1]:
            return False
        inside = array.min() >= 0 and array.max() < self.table.n
        return bool(inside and equal(self.table.x[array].astype(rows.dtype), rows))

    def _read_rescaled(self, path: str, rows: Array) -> bool:
        """Keep the table if an array holds it with each column on another scale: known rows tell slope and offset.

        A column without ties tells the order of shuffled rows; the values of a single column are read as such.
        """
        table = self.table
        if table.holes or len(rows) != table.n or table.n < FEWEST_ON_A_LINE or not table.varies.all():
            return False
        untied = (column for column in range(table.d) if len(np.unique(table.x[:, column])) == table.n)
        is_table = on_other_scales(table.x, rows)
        if not is_table and table.d > 1 and (place := next(untied, None)) is not None:
            ours, theirs = table.x[table.x[:, place].argsort()], rows[rows[:, place].argsort()]
            is_table = on_other_scales(ours, theirs) or on_other_scales(ours, theirs[::-1])
        if is_table and self._surely_rows(table.x, None, is_table=True, named=False):
            self.stored.append(Stored(self._source(path), torch.from_numpy(table.x.copy())))
            return True
        return False

    def _surely_rows(self, rows: Array, numbers: Array | None, *, is_table: bool, named: bool) -> bool:
        """Whether an array of which every row is in the table was made from it."""
        first = np.unique(row_keys(torch.from_numpy(rows)), return_index=True)[1]
        bits = self.table.row_bits(rows) * int((~plain(rows[first])).sum())
        if bits >= SURE or (named and len(first) > 1):
            return True
        if len(first) == len(rows) and plain(rows).all() and (numbers is None or (np.diff(numbers) == 1).all()):
            return False  # an identity matrix is no evidence
        in_order = len(rows) * float(np.log2(self.table.distinct))
        return in_order >= SURE_BESIDE_NUMBERS if numbers is not None else is_table and in_order >= SURE

    def _labels(self, rows: Array, at: Array, certain: bool, arrays: Mapping[str, Array]) -> Tensor | None:
        """Labels of stored rows, from an array beside them that agrees with the table's."""
        y = self.table.y
        if y is None:
            return None
        # Where the row numbers `at` are not certain, equal rows with several labels are no evidence.
        one_label = np.ones(len(rows), dtype=np.bool_) if certain else self.table.one_label(rows)
        for name, array in arrays.items():
            for labels, by_class in self.table.labels_in(name, array, len(rows)):
                theirs = y[at].astype(labels.dtype)[one_label]
                if len(theirs) == 0 or not equal(labels[one_label], theirs):
                    continue
                _, shares = np.unique(theirs, return_counts=True)
                bits = float(-(shares * np.log2(shares / len(theirs))).sum())
                sure = by_class or LABELS.search(name) or bits >= SURE_LABELS
                if sure and (certain or self.table.holds_pairs(rows, labels)):
                    return torch.from_numpy(labels)
        return None

    def _read_means(self, path: str, rows: Array, arrays: Mapping[str, Array], *, stored: bool) -> bool:
        """Means or sums over all rows, by label, or by a grouping that is held beside them; whether there are any."""
        table, k = self.table, len(rows)
        if table.holes:
            return False
        several = rows if k <= MAX_STATISTICS else rows[:0]  # such as the lines of `describe`
        if any(self._read_sums(path, row[None], None) for row in several):
            return True
        labels = table.y if k == table.classes > 1 else None
        if labels is not None and self._read_sums(path, rows, labels):
            return True
        if not stored and any(self._read_groups(path, rows, group) for group in table.groups_in(arrays.values(), k)):
            return True
        if labels is not None:
            self._check_classes(path, rows, labels, arrays)
        if k != table.n or k == 1 or stored:
            return False
        # each column's values in another order (quantiles)
        ends = np.stack([rows.min(0), rows.max(0)])
        if not table.agree(ends, np.stack([table.low, table.high])).all():
            return False
        sure = table.mean_bits(rows.mean(0, keepdims=True), np.array([table.n])) >= SURE or RANGES.search(_last(path))
        if not sure or not table.agree(np.sort(rows, 0), np.sort(table.x, 0)).all():
            return False
        self._add(path, rows.sum(0, keepdims=True), np.array([float(table.n)]), by_label=False, weighted=False)
        return True

    def _read_sums(self, path: str, rows: Array, labels: Array | None) -> bool:
        """Means or sums of the rows of each label, or of all rows."""
        table, names = self.table, MEANS if labels is None else CLASS_SUMS
        group = np.zeros(table.n, dtype=np.int64) if labels is None else labels
        for weight, weighted in table.weights:
            total, count = table.group_sums(group, len(rows), weight)
            used = count > 0
            means = total[used] / count[used, None]
            for values in (rows[used], (rows[used] / count[used, None]).astype(rows.dtype)):
                if table.agree(values, means).all():
                    sure = table.mean_bits(values, count[used]) >= SURE or bool(names.search(_last(path)))
                    if sure:
                        total[used] = values.astype(np.float64) * count[used, None]
                        self._add(path, total, count, by_label=labels is not None, weighted=weighted)
                    return sure
        return False

    def _read_combined(self, path: str, rows: Array, arrays: Mapping[str, Array]) -> None:
        """Sums over all rows that a combination of rows of an array gives, such as weights_ @ means_ of a mixture.

        Weights are all one, or stand in an array beside it; there may be a scale (the momentum of batch norm) and an
        offset (the prior of a topic model). Or weights are whatever gives the sum.
        """
        table, k = self.table, len(rows)
        if k > min(MAX_COMBINED, table.n - 1) or table.holes or not np.isfinite(rows).all():
            return
        name, kind = f"{path} (combined)", precision(rows)
        offset, rows = np.ones((1, table.d), kind), rows.astype(np.float64)
        beside = (array for array in arrays.values() if array.shape == (k,) and array.dtype.kind in "fiu")
        combined = [
            (weights @ rows).astype(kind)[None] for weights in (np.ones(k), *beside) if np.isfinite(weights).all()
        ]
        if any(self._read_sums(name, total, None) for total in combined):
            return
        for basis in (*combined, rows.astype(kind)):
            if self._read_spanned(name, np.concatenate([basis, offset])):
                return

    def _read_spanned(self, path: str, basis: Array) -> bool:
        """The sum over all rows, if it is a combination of a basis (b, d): more columns must agree than are fitted.

        If the sum of half of the rows is one too, all rows are such combinations (all components of a PCA), and nothing
        is told.
        """
        table, moving = self.table, self.table.varies
        kind, basis = basis.dtype, basis[:, moving].T.astype(np.float64)  # (moving, b)
        fitted = basis.shape[1]
        if not fitted <= min(MAX_FITTED, len(basis) - SPARE_COLUMNS) or np.linalg.matrix_rank(basis) < fitted:
            return False
        for weight, weighted in table.weights:
            weights = np.stack([weight, weight * (np.arange(table.n) % 2)])
            count = weights.sum(1, keepdims=True)
            means = weights @ table.x / count  # (2, d)
            fit = means.copy()
            fit[:, moving] = (basis @ np.linalg.lstsq(basis, means[:, moving].T, rcond=None)[0]).T
            fit = fit.astype(kind)
            agree = table.agree(fit, means)
            bits = table.mean_bits(fit[:1], count[0], table.n**-0.5)  # of any sample's means
            if agree[0] and not agree[1] and bits * (1 - fitted / len(basis)) >= SURE:
                total = fit[:1].astype(np.float64) * count[0]
                self._add(path, total, count[0], by_label=False, weighted=weighted)
                return True
        return False

    def _read_groups(self, path: str, rows: Array, group: Array) -> bool:
        """Means of clusters: those that agree count, since not every algorithm stops at the means."""
        for weight, weighted in self.table.weights:
            total, count = self.table.group_sums(group, len(rows), weight)
            used = count > 0
            means = np.where(used[:, None], total, 1.0) / np.where(used, count, 1.0)[:, None]
            used &= self.table.agree(rows, means)
            sure = self.table.mean_bits(rows[used], count[used]) >= SURE or MEANS.search(_last(path))
            if not used.any() or not sure:
                continue
            total = np.where(used[:, None], rows * count[:, None], 0.0)
            group = np.where((group >= 0) & used[group.clip(0)], group, -1)
            sums = self._sums(path, total, np.where(used, count, 0.0), by_label=True, weighted=weighted)
            self.grouped.setdefault(group.tobytes(), (sums, torch.from_numpy(group)))
            return True
        return False

    def _check_classes(self, path: str, rows: Array, labels: Array, arrays: Mapping[str, Array]) -> None:
        """Raise if some classes have these means and others do not, although the numbers of rows agree."""
        for weight, _ in self.table.weights:
            total, count = self.table.group_sums(labels, len(rows), weight)
            means = total / np.where(count > 0, count, 1.0)[:, None]
            agree = self.table.agree(rows, means)
            counted = any(
                array.shape == count.shape and (np.allclose(array, count) or np.allclose(array, count / count.sum()))
                for array in arrays.values()
            )
            if counted and agree.any() and self.table.mean_bits(rows[agree], count[agree]) >= SURE:
                wrong = f"{int((~agree).sum())} of {len(rows)} classes"
                raise other_data(self.name, f"{path} does not agree with the table in {wrong}")

    def _add(self, path: str, totals: Array, counts: Array, *, by_label: bool, weighted: bool) -> None:
        sums = self._sums(path, totals.astype(np.float64), counts, by_label=by_label, weighted=weighted)
        self.sums.setdefault((by_label, weighted), sums)

    def _sums(self, path: str, totals: Array, counts: Array, *, by_label: bool, weighted: bool) -> Sums:
        source = self._source(path)
        return Sums(source, torch.from_numpy(totals), torch.from_numpy(counts), by_label=by_label, weighted=weighted)

    def _read_range(self, path: str, rows: Array) -> None:
        """Minimum and maximum of every column: one row each, or the first and last of sorted rows.

        Largest absolute values are extremes in columns of one sign.
        """
        table, name = self.table, _last(path)
        low, high = (ends.astype(rows.dtype) for ends in (table.low, table.high))
        is_low, is_high = bool((rows[0] == low).all()), bool((rows[-1] == high).all())
        if len(rows) > 1:
            is_low = is_high = is_low and is_high and bool((np.diff(rows, axis=0) >= 0).all())
        ends = rows[0] if is_low else rows[-1]
        bits = np.where(np.isin(ends, (-1.0, 0.0, 1.0)), 0.0, table.bits(rows.dtype.itemsize)).sum()
        if "abs" in name and len(rows) == 1 and equal(rows[0], np.fmax(np.abs(low), np.abs(high))):
            positive, negative = table.low >= 0, table.high <= 0
            self.low, self.high = np.where(negative, -rows[0], self.low), np.where(positive, rows[0], self.high)
            self.ranges += [path] if (positive | negative).any() else []
            if not (positive | negative).all():
                self.notes.append(
                    f"{self._source(path)} reveals the absolute value of a cell that no other row reaches; in columns "
                    "of both signs this was not attacked."
                )
        elif (is_low or is_high) and (bits >= SURE or RANGES.search(name)):
            self.ranges.append(path)
            self.low = rows[0].astype(np.float64) if is_low else self.low
            self.high = rows[-1].astype(np.float64) if is_high else self.high

    def _read_columns(self, path: str, parts: list[Array]) -> None:
        """A list with one array per column: counts of categories by class, or the edges of bins."""
        table = self.table
        if all(part.ndim == 2 and len(part) == table.classes > 1 for part in parts) and table.y is not None:
            totals = np.stack([part @ np.arange(part.shape[1]) for part in parts], 1)  # sum of v * count of v
            self._read_sums(path, totals.astype(np.float64), table.y)
        if all(part.ndim == 1 for part in parts):
            self._read_range(path, np.array([[part[0], part[-1]] for part in parts], dtype=np.float64).T)

    def check_own_statistics(self, own: Mapping[str, Any]) -> None:
        """Note a part whose own mean or range is not this table's; raise if it almost is."""
        table = self.table
        if table.holes or self.sums or self.ranges:
            return
        mean, least = own.get("mean_", ()), own.get("data_min_", ())
        if np.shape(mean) != (table.d,) and np.shape(least) != (table.d,):
            return
        if np.shape(mean) == (table.d,):
            seen = float(np.max(own.get("n_samples_seen_", own.get("n_samples_", table.n))))
            means = (weight @ table.x / weight.sum() for weight, _ in table.weights)
            gap = min(float((np.abs(ours - mean) / table.spread).max()) for ours in means)
            if seen == table.n and gap < NEARLY * (2 / table.n) ** 0.5:
                raise ValueError(
                    f"audit: {self.name} was fitted on almost this data (X), but some rows differ. "
                    "Pass exactly the rows and the sample_weight it was fitted on."
                )
        self.fitted_elsewhere = True
        self.notes.append(f"{self.name} was not fitted on this table and is assumed public.")


def _places(stored: Sequence[Stored]) -> Iterator[tuple[str, int]]:
    """Where rows are held, and how many; many places are one, without their names, which may be those of people."""
    if len(stored) > MAX_NAMED_PLACES:
        levels = zip(*(LEVEL.split(rows.source) for rows in stored), strict=False)
        shared = takewhile(lambda level: len(set(level)) == 1, levels)
        yield "".join(level[0] for level in shared), sum(len(rows.x) for rows in stored)
    else:
        yield from ((rows.source, len(rows.x)) for rows in stored)


def _without_copies(stored: list[Stored]) -> Iterator[Stored]:
    """The largest first, without those whose rows, and labels where they have some, are in earlier ones."""
    seen: dict[bool, Counter[int]] = {False: Counter(), True: Counter()}  # keys of rows, and of those with labels
    for rows in sorted(stored, key=lambda rows: (len(rows.x), rows.y is not None), reverse=True):
        labelled, keys = rows.y is not None, Counter(row_keys(rows.x).tolist() if len(stored) > 1 else ())
        if len(stored) == 1 or not keys <= seen[labelled]:
            for level in {False, labelled}:
                seen[level] |= keys
            yield rows


def _floating(array: Array) -> Array:
    """Numbers in single or double precision, in an order in memory that torch takes."""
    kind = array.dtype if array.dtype.kind == "f" and array.dtype.itemsize <= 8 else np.dtype(np.float64)
    return np.require(array, kind, ["C", "W"])


def _last(path: str) -> str:
    return path.rpartition(".")[2]
