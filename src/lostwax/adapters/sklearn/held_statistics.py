"""Statistics of the table in what hangs on a release, and whether something that was attached is just a setting.

Means, sums and extremes of columns give the missing row to an attacker who knows all others. What was attached after
`fit` and is no row, column or statistic is a setting only if it is small: round numbers and short texts.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lostwax.adapters.objects import (
    MAX_DEPTH,
    NUMBER,
    Array,
    Walk,
    as_text,
    bytes_of,
    decompressed,
    is_numbers,
    is_text,
    numbers_of,
    unpacked,
)
from lostwax.adapters.sklearn.held_tables import Attached, of_columns
from lostwax.adapters.sklearn.training_rows import SURE, TrainingRows
from lostwax.games import Columns, Extremes, Fitted, Part, Present, Records, Sums

MAX_NUMBERS = 100_000  # of an attribute that are compared with statistics
MAX_SUMMARY = 16  # numbers per column of a table of statistics
ROUNDING = 1e-12  # of statistics, relative
PRECISE = 1e-3  # of a column's deviation, up to which a row follows from a rounded mean
MAX_ROUNDED_DIGITS = 12  # of a number that its owner rounded
SHARES = 1e-6  # by which shares sum up to one
# A setting has no more than these: bytes of numbers and texts, bytes that are no text, different numbers, and digits
# of numbers and of whole numbers (0.05, 0.125 and 2024, not 22981.43).
SETTING_BYTES, SETTING_BINARY, SETTING_NUMBERS, SETTING_DIGITS, SETTING_WHOLE_DIGITS = 1_000, 16, 16, 3, 4
DECIMAL_OR_WORD = re.compile(r"[-+]?\d*\.\d+(?:[eE][-+]?\d+)?|(?<![\w.-])[-+]?\d+\.?(?:[eE][-+]?\d+)?(?!\w)")
DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?")


class HeldStatistics(NamedTuple):
    """Means and extremes of columns."""

    path: str
    means: list[int]  # columns whose mean or sum is held
    low: list[int]
    high: list[int]
    rounded: list[int]  # columns whose mean is held with too few digits to follow single rows


def held_statistics(held: Attached, x: Tensor, columns: Columns) -> HeldStatistics | None:
    """Which numbers are means, sums or extremes of columns of x (n, d); None if all may agree by accident.

    Each agreement counts as many bits as the digits that agree, minus those of the choice among all numbers; deviations
    and quartiles, which tell of no single row by themselves, count too.
    """
    numbers = WrittenNumbers.of(held.value)
    plain = [place for place, known in enumerate(columns.categories) if not known]
    if not 0 < len(numbers.values) <= MAX_NUMBERS or not plain:
        return None
    table = TrainingRows(x[:, plain].numpy())
    wanted = _statistics(table.x)  # (9, columns)
    spread = wanted[7]
    order = numbers.values.argsort()
    values, error, rounded = (each[order] for each in numbers)
    place = np.searchsorted(values, wanted).clip(1, max(1, len(values) - 1))
    near = np.where(np.abs(values[place - 1] - wanted) < np.abs(values[place % len(values)] - wanted), place - 1, place)
    near %= len(values)
    allowed = error[near] + ROUNDING * (np.abs(wanted) + spread)
    allowed = np.where(np.abs(values[near] - wanted) <= allowed, allowed, np.maximum(allowed, rounded[near]))
    trivial = np.isin(wanted, (0.0, 1.0, -1.0, len(x))) | (spread == 0) | np.isnan(wanted)
    agrees = (np.abs(values[near] - wanted) <= allowed) & ~trivial
    n, grid = len(x), table.step
    step = np.stack([grid / n, *[grid] * 6, *[grid**2 / (n * spread.clip(1e-300))] * 2])
    width = spread * np.array([[1.0], [n], *[[1.0]] * 7]) * n**-0.5  # by which another sample differs
    digits = np.vectorize(lambda number: _last_digit(repr(float(number))))(wanted)  # round numbers agree by accident
    with np.errstate(divide="ignore", invalid="ignore"):
        bits = np.log2(1 + width / np.maximum.reduce([allowed, step, digits])) - np.log2(len(values))
    if float(np.where(agrees, bits, 0.0).clip(0).sum()) < SURE:
        return None
    agrees &= (bits > 0) | (len(values) <= MAX_SUMMARY * len(plain))  # of a summary all columns count
    has_mean = agrees[:2].any(0)
    error_of_sum = np.where(agrees[1], allowed[1], len(x) * allowed[0])
    precise = (error_of_sum <= PRECISE * spread) | (error_of_sum < table.step / 2)
    masks = (has_mean & precise, agrees[2], agrees[3], has_mean & ~precise)
    places = [[plain[place] for place in np.flatnonzero(mask)] for mask in masks]
    return HeldStatistics(held.path, *places) if any(places) else None


def _statistics(cells: Array) -> Array:
    """(9, d) means, sums, minima, maxima, quartiles and both deviations of the columns of a table (n, d)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # columns without any value
        parts = (*np.nanquantile(cells, [0.25, 0.5, 0.75], 0), np.nanstd(cells, 0), np.nanstd(cells, 0, ddof=1))
        ends = np.fmin.reduce(cells), np.fmax.reduce(cells)
        return np.stack([np.nanmean(cells, 0), np.nansum(cells, 0), *ends, *parts])


class WrittenNumbers(NamedTuple):
    """Numbers that are held, and by how much each may be rounded."""

    values: Array  # (k,)
    error: Array  # (k,) by its kind or its text
    rounded: Array  # (k,) at most, if its owner left out digits

    @classmethod
    def of(cls, value: Any, pattern: re.Pattern[str] = NUMBER) -> WrittenNumbers:
        """All of them, also in texts and in compressed bytes."""
        values, errors = [np.empty(0)], [np.empty(0)]
        todo: list[tuple[Any, int]] = [(value, MAX_DEPTH)]
        while todo:
            outer, depth = todo.pop()
            for _, member in Walk({"": outer}):
                packed = decompressed(member) if depth and isinstance(member, str | bytes | bytearray) else None
                if packed is not None:
                    todo.append((packed, depth - 1))
                elif (numbers := numbers_of(member)) is not None:
                    values.append(numbers)
                    short = str(getattr(member, "dtype", "")).endswith(("float32", "float16"))
                    errors.append(np.abs(values[-1]) * (np.finfo(np.float32).eps if short else 0.0))
                elif is_text(member):
                    texts = [text for text in pattern.findall(as_text(member)) if text.lower() != "nan"]
                    values.append(np.array(texts, dtype=np.float64))
                    errors.append(np.array([_last_digit(text) for text in texts]) / 2)
        joined, error = np.concatenate(values), np.concatenate(errors)
        finite = np.isfinite(joined)
        joined, error = joined[finite], error[finite]
        return cls(joined, error, np.maximum(error, _rounding(joined[:MAX_NUMBERS], len(joined))))


def _rounding(values: Array, length: int) -> Array:
    """(length,) half of the last digit of numbers with few digits, and the rounding of those of single precision."""
    texts = [repr(number) for number in values.tolist()]
    few = [len(text.partition("e")[0].strip("-0.").replace(".", "")) <= MAX_ROUNDED_DIGITS for text in texts]
    decimal = np.where(few, [_last_digit(text) / 2 for text in texts], 0.0)
    with np.errstate(over="ignore"):
        single = values.astype(np.float32) == values
    errors = np.where(single & ~np.array(few, dtype=bool), np.abs(values) * np.finfo(np.float32).eps, decimal)
    return np.pad(np.where(values == np.rint(values), 0.0, errors), (0, length - len(values)))


def _last_digit(number: str) -> float:
    """What one unit in the last digit of a written number is."""
    digits, _, power = number.lower().partition("e")
    return float(10.0 ** min(300, int(power or 0) - len(digits.partition(".")[2])))


def is_no_setting(held: Attached, table: Array, *, has_cells: bool = False, has_statistics: bool = False) -> bool:
    """Whether something was attached after `fit` that may tell of rows of the table (n, d), whatever it is.

    Settings are short texts and a few round numbers, none of them a mean, a sum, an extreme or a count. Where rows or
    columns were found in it (`has_cells`), or statistics, then only the numbers count that are neither statistics nor,
    with `has_cells`, in the table.
    """
    understood = has_cells or has_statistics
    if not held.afterwards:
        return False
    members = [member for _, member in Walk({"": held.value})]
    sizes = [8 * array.size for member in members if (array := numbers_of(member)) is not None]
    sizes += [len(text) for member in members if (text := bytes_of(member)) is not None]
    if not understood and (sum(sizes) > SETTING_BYTES or _is_binary(held.value)):
        return True
    numbers = WrittenNumbers.of(_with_one_date(held.value), DECIMAL_OR_WORD)
    values, place = np.unique(numbers.values, return_index=True)
    error = numbers.error[place] + ROUNDING * np.abs(values)
    other = ~np.isin(values, (0.0, 1.0, -1.0, len(table)))
    statistics = _statistics(table)
    if understood:
        rounded = np.maximum(error, numbers.rounded[place])
        known = np.append(table if has_cells else (), np.arange(len(table)) / len(table))  # cells, and shares of rows
        other &= ~_near(values, error, known) & ~_near(values, rounded, statistics.ravel())
    values, error = values[other], error[other]
    sums, ends = statistics[:2], statistics[2:4]
    telling = np.append(sums[~np.isin(sums, (0.0, 0.5, 1.0, -1.0))], ends[~_is_round(ends, 0.0, 1)])
    exact = _near(values, ROUNDING * np.abs(values), telling)
    if not understood and (exact.any() or _are_counts(held.value, len(table))):
        return True
    digits = np.where(values == np.rint(values), SETTING_WHOLE_DIGITS, SETTING_DIGITS)
    return len(values) > SETTING_NUMBERS or not bool(_is_round(values, error, digits).all())


def _is_round(values: Array, error: Array | float, digits: Array | int) -> Array:
    """Which values have no more than some digits, to their errors."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        unit = 10.0 ** (np.floor(np.log10(np.abs(values))) + 1 - digits)
        rounded = np.rint(values / unit) * unit
        return np.asarray((np.abs(values - rounded) <= error + ROUNDING * np.abs(values)) | (values == 0))


def _are_counts(value: Any, rows: int) -> bool:
    """Whether some numbers sum up to the number of rows, as counts of values do, or to one, as their shares do."""
    each = [numbers for _, member in Walk({"": value}) if (numbers := numbers_of(member)) is not None]
    for numbers in (*each, np.concatenate([np.empty(0), *each])):
        total, several = numbers.sum(), (numbers > 0).sum() > 1 and (numbers >= 0).all()
        if several and (total == rows or (abs(total - 1) <= SHARES and not _is_round(numbers, 0.0, 1).all())):
            return True
    return False


def _near(values: Array, error: Array, others: Array) -> Array:
    """(k,) which of the values is one of the others, to its error."""
    others = np.sort(others[np.isfinite(others)])
    if not len(others):
        return np.zeros(len(values), dtype=bool)
    right = np.searchsorted(others, values).clip(max=len(others) - 1)
    left = (right - 1).clip(min=0)
    return np.asarray(np.minimum(np.abs(others[right] - values), np.abs(others[left] - values)) <= error)


def _is_binary(value: Any) -> bool:
    """Whether it holds bytes that are no text."""
    for _, member in unpacked({"": value}):
        if isinstance(member, bytes | bytearray | memoryview) and len(member) > SETTING_BINARY:
            try:
                bytes(member).decode()
            except UnicodeDecodeError:
                return True
    return False


def _with_one_date(value: Any) -> Any:
    """The texts and the numbers that are held, without a first date; others become whole numbers."""
    members = [member for _, member in unpacked({"": value})]
    text = DATE.sub("", "\n".join(as_text(member) for member in members if is_text(member)), count=1)
    text = DATE.sub(lambda date: re.sub(r"\D", "", date[0]), text)
    numbers = [member for member in members if is_numbers(member)]
    return {"text": text, **{f"n{place}": member for place, member in enumerate(numbers)}}


def statistics_parts(held: HeldStatistics, name: str, table: Records, weight: Tensor) -> Iterator[Part]:
    """What means and extremes tell of each row."""
    source, n = f"{name}'s {held.path}", len(table)
    holes = table.x.isnan().any(0)
    for some in ([place for place in held.means if bool(holes[place]) == gaps] for gaps in (False, True)):
        x = table.x[:, some]
        sums = Sums(source, x.sum(0, keepdim=True), torch.tensor([float(n)]).double(), by_label=False, weighted=False)
        fitted = Fitted(name, table, weight, None, sums=(sums,))
        if some and bool(holes[some[0]]):
            fitted = replace(fitted, sums=(), present=(Present(source, x.nanmean(0)),))
        if some:
            yield of_columns(some, fitted)
    if ends := sorted({*held.low, *held.high}):
        low, high = (torch.from_numpy(reduce(table.x[:, ends].numpy())) for reduce in (np.fmin.reduce, np.fmax.reduce))
        low[[place not in held.low for place in ends]] = torch.nan
        high[[place not in held.high for place in ends]] = torch.nan
        yield of_columns(ends, Fitted(name, table, weight, None, extremes=(Extremes(source, low, high),)))
