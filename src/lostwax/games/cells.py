"""Cells of a table in the units of its owner: numbers, categories by their code, and missing values (NaN).

Models see encodings of a table. What is rebuilt of an encoding goes back to cells, some exactly, some as a set or an
interval of possible values, and some not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.floating[Any]]
Bools = NDArray[np.bool_]

MAX_LISTED_NAMES = 12  # of columns, in a note


class Kept(IntEnum):
    """What is known of a cell, the least first."""

    LOST = 0
    ESTIMATED = 1  # a guess from what else is known
    INTERVAL = 2  # the number lies between two others
    SET = 3  # one of a few values
    EXACT = 4


class Bounds(NamedTuple):
    """Which values of some cells are possible: numbers between two others, which may be equal, codes, or no value."""

    low: Floats  # (g, d), -inf: no bound
    high: Floats  # (g, d)
    maybe_missing: Bools  # (g, d) it is possible that there is no value
    codes: Mapping[int, Bools] = {}  # some columns of categories: (g, codes) those that are not excluded

    @classmethod
    def none(cls, rows: int, width: int) -> Bounds:
        """Everything is possible."""
        anything = np.full((rows, width), np.inf)
        return cls(-anything, anything, np.ones((rows, width), dtype=bool))

    @property
    def exact(self) -> Bools:
        """(g, d) which are known exactly."""
        return np.asarray((self.low == self.high) & ~self.maybe_missing)

    @property
    def missing(self) -> Bools:
        """(g, d) which are known to have no value: no number satisfies all bounds."""
        return np.asarray((self.low > self.high) & self.maybe_missing)

    def at(self, rows: Any) -> Bounds:
        codes = {column: possible[rows] for column, possible in self.codes.items()}
        return Bounds(self.low[rows], self.high[rows], self.maybe_missing[rows], codes)

    def codes_of(self, column: int, count: int) -> Bools:
        """(g, count) which categories of a column are not excluded."""
        return self.codes.get(column, np.ones((len(self.low), count), dtype=bool))

    def and_also(self, other: Bounds) -> Bounds:
        """What both leave; the first alone where nothing is left."""
        low, high = np.maximum(self.low, other.low), np.minimum(self.high, other.high)
        agree, codes = low <= high, {}
        for column, possible in {**self.codes, **other.codes}.items():
            ours, theirs = (each.codes_of(column, possible.shape[1]) for each in (self, other))
            codes[column] = np.where((ours & theirs).any(1, keepdims=True), ours & theirs, ours)
        maybe_missing = self.maybe_missing & (other.maybe_missing | ~agree)
        return Bounds(np.where(agree, low, self.low), np.where(agree, high, self.high), maybe_missing, codes)


class Cells(NamedTuple):
    """What is known of the cells of some rows; where several values are possible, the likeliest.

    In a table values are numbers, codes of categories, or NaN (missing). Inside of a pipeline they are what its steps
    take, and have no bounds.
    """

    values: NDArray[Any]  # (g, d)
    kept: NDArray[np.uint8]  # (g, d) a `Kept` each
    bounds: Bounds | None = None  # of cells in an interval or a set; None: nothing tells any

    @classmethod
    def lost(cls, rows: int, width: int, kind: Any = np.float64) -> Cells:
        """Nothing is known."""
        return cls(np.full((rows, width), np.nan, dtype=kind), np.zeros((rows, width), dtype=np.uint8))

    @classmethod
    def joined(cls, parts: Sequence[Cells]) -> Cells:
        """The cells of several groups of rows."""
        values, kept = np.concatenate([part.values for part in parts]), np.concatenate([part.kept for part in parts])
        if all(part.bounds is None for part in parts):
            return cls(values, kept)
        each = [part.every_bound() for part in parts]
        low, high, maybe_missing = (np.concatenate(ends) for ends in zip(*(bounds[:3] for bounds in each), strict=True))
        counts = {column: codes.shape[1] for bounds in each for column, codes in bounds.codes.items()}
        codes = {
            column: np.concatenate([bounds.codes_of(column, count) for bounds in each])
            for column, count in counts.items()
        }
        return cls(values, kept, Bounds(low, high, maybe_missing, codes))

    def at(self, rows: Any) -> Cells:
        return Cells(self.values[rows], self.kept[rows], None if self.bounds is None else self.bounds.at(rows))

    def columns(self, places: Any) -> Cells:
        """Those of some columns, without bounds."""
        return Cells(self.values[:, places], self.kept[:, places])

    def placed(self, places: Any, width: int) -> Cells:
        """As some of the `width` columns of a table, the others of which are lost; without bounds."""
        table = Cells.lost(len(self.values), width, object)
        table.values[:, places], table.kept[:, places] = self.values, self.kept
        return table

    def at_most(self, kept: Any) -> Cells:
        """The same, with no more than this known of each cell."""
        return self._replace(kept=np.minimum(self.kept, np.asarray(kept, dtype=np.uint8)))

    def or_else(self, other: Cells) -> Cells:
        """Each cell from whichever knows more of it; from the first where both know as much.

        Of cells that neither knows exactly the bounds of both hold. One with a single value left is exact.
        """
        more = other.kept > self.kept
        values, kept = np.where(more, other.values, self.values), np.maximum(self.kept, other.kept)
        if self.bounds is None and other.bounds is None:
            return Cells(values, kept)
        first, second = self.every_bound(), other.every_bound()
        both, exact = first.and_also(second), kept == Kept.EXACT
        low, high, maybe_missing = (
            np.where(exact, np.where(more, theirs, ours), common)
            for ours, theirs, common in zip(first[:3], second[:3], both[:3], strict=True)
        )
        return Cells(values, kept, Bounds(low, high, maybe_missing, both.codes)).decided()

    def decided(self) -> Cells:
        """The same, with the cells as exact in which a single number (in float32) or category is left."""
        if self.bounds is None:
            return self
        low, high, maybe_missing, possible = self.bounds
        with np.errstate(invalid="ignore", over="ignore"):
            single = (low.astype(np.float32) == high.astype(np.float32)) & (low <= high)
            single &= ~maybe_missing & (self.kept < Kept.EXACT)
            values = np.where(single, low / 2 + high / 2, self.values)
        kept = np.where(single, np.uint8(Kept.EXACT), self.kept)
        for column, codes in possible.items():
            alone = (codes.sum(1) == 1) & ~maybe_missing[:, column] & (kept[:, column] < Kept.EXACT)
            values[alone, column], kept[alone, column] = codes[alone].argmax(1), Kept.EXACT
        return self._replace(values=values, kept=kept)

    def every_bound(self) -> Bounds:
        """The bounds, with none where nothing tells any."""
        return Bounds.none(*self.values.shape) if self.bounds is None else self.bounds

    def filled(self, blind: Tensor) -> Tensor:
        """(g, d) the values, with a blind guess where a cell is lost."""
        return torch.where(torch.from_numpy(self.kept) == Kept.LOST, blind, torch.from_numpy(self.values))


class Revealed(NamedTuple):
    """What one fact tells of the missing row of each game."""

    candidates: tuple[Cells, ...]  # (g, d) each, the likeliest first; several explain a model without intercept
    labels: Tensor | None  # (g, ...); None: it does not depend on them
    size: Tensor  # (g,) |r|: what the row was divided by
    labels_known: Tensor | None = None  # (g,) which of the labels; None: all
    labels_certain: Tensor | None = None  # (g,) ... and of these no other value agrees with it; None: none

    def at(self, games: Tensor) -> Revealed:
        labels, known, certain = (
            None if part is None else part[games] for part in (self.labels, self.labels_known, self.labels_certain)
        )
        candidates = tuple(cells.at(games.numpy()) for cells in self.candidates)
        return Revealed(candidates, labels, self.size[games], known, certain)


@dataclass(frozen=True)
class Columns:
    """The columns of a table: their names, and for those of categories the values by code."""

    names: tuple[str, ...]
    categories: tuple[tuple[object, ...], ...]  # () for a column of numbers
    are_words: bool = False  # the names are words of the texts themselves: no file of numbers and no note holds them

    @property
    def categorical(self) -> Tensor:
        """(d,) which columns hold codes."""
        return torch.tensor([bool(values) for values in self.categories], dtype=torch.bool)

    def at(self, numbers: Sequence[int]) -> Columns:
        names = tuple(self.names[number] for number in numbers) if self.names else ()
        return replace(self, names=names, categories=tuple(self.categories[number] for number in numbers))

    def listed(self, numbers: Sequence[int]) -> str:
        """Some of the columns by name, for a note; words are only counted."""
        if self.are_words:
            return f"{len(numbers)} words"
        names = [self.names[number] if self.names else f"column {number}" for number in numbers]
        more = len(names) - MAX_LISTED_NAMES
        return ", ".join(names[:MAX_LISTED_NAMES]) + (f" and {more} more" if more > 0 else "")

    def text(self, column: int, value: float) -> str:
        """One cell as its owner writes it."""
        if value != value:
            return "missing"
        names = self.categories[column]
        return str(names[int(value)]) if names else f"{value:.6g}"

    def blind(self, x: Tensor, games: Tensor) -> Tensor:
        """(g, d) a guess without the release: the mean of each column's known numbers, its most frequent category.

        In each game all rows are known but one; that a category or a missing value is the most frequent is judged
        without that row too.
        """
        blind = torch.empty(len(games), x.shape[1], dtype=x.dtype)
        for column, values in enumerate(self.categories):
            cells = x[:, column]
            missing, secret = cells.isnan(), cells[games]
            if values:
                codes = torch.where(missing, len(values), cells.nan_to_num()).long()
                counts = torch.bincount(codes, minlength=len(values) + 1).expand(len(games), -1).clone()
                counts[torch.arange(len(games)), codes[games]] -= 1
                best = counts.argmax(1)
                blind[:, column] = torch.where(best == len(values), torch.nan, best.double())
                continue
            present = (~missing).sum() - (~secret.isnan()).long()
            mean = (cells.nan_to_num().sum() - secret.nan_to_num()) / present.clamp_min(1)
            blind[:, column] = torch.where(missing.sum() - secret.isnan().long() > present, torch.nan, mean)
        return blind

    def likeliest(self, cells: Cells, x: Tensor, games: Tensor) -> Cells:
        """The cells with a guess where several values are left, from the rows that are known in each game.

        Of an interval this is the mean of the known numbers in it, or else its middle; of a set of categories the most
        frequent; a missing value where it is possible and more frequent than these.
        """
        if cells.bounds is None:
            return cells
        values, is_open = cells.values.copy(), (cells.kept == Kept.INTERVAL) | (cells.kept == Kept.SET)
        for column, names in enumerate(self.categories):
            known, asked = x[:, column], is_open[:, column]
            low, high, maybe_missing = (torch.from_numpy(ends[:, column].copy()) for ends in cells.bounds[:3])
            if names and column in cells.bounds.codes:
                best, number = _most_frequent(known, games, torch.from_numpy(cells.bounds.codes[column]))
            else:
                asked = asked & (low.isfinite() | high.isfinite()).numpy()
                mean, number = _mean_within(known, games, low, high)
                is_set = torch.from_numpy(cells.kept[:, column] == Kept.SET)
                best = torch.where(is_set, torch.from_numpy(values[:, column]), mean)  # a set keeps one of its values
            missing = known.isnan().sum() - known[games].isnan().long()
            best = torch.where(maybe_missing & (missing > number), torch.nan, best)
            values[asked, column] = best.numpy()[asked]
        return cells._replace(values=values)


def _most_frequent(known: Tensor, games: Tensor, possible: Tensor) -> tuple[Tensor, Tensor]:
    """(g,) of the possible codes (g, codes) the most frequent among all rows except the game's own, and how often."""
    secret = known[games]
    counts = torch.bincount(known[~known.isnan()].long(), minlength=possible.shape[1]).expand(len(games), -1).clone()
    present = (~secret.isnan()).nonzero().flatten()
    counts[present, secret[present].long()] -= 1
    number, best = torch.where(possible, counts, -1).max(1)
    return best.double(), number


def _mean_within(known: Tensor, games: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """(g,) the mean of the numbers between two limits among all rows except the game's own, and how many these are.

    Where there are none it is the middle.
    A limit that is missing is the known extreme, or the other limit if that is beyond it.
    """
    numbers, secret = known[~known.isnan()].sort().values, known[games]
    if not len(numbers):
        return torch.where(low.isfinite(), low, high), torch.zeros_like(games)
    sums = torch.cat([numbers.new_zeros(1), numbers.cumsum(0)])
    first, last = torch.searchsorted(numbers, low), torch.searchsorted(numbers, high, right=True)
    inside = (secret >= low) & (secret <= high)
    count = last - first - inside.long()
    mean = (sums[last] - sums[first] - torch.where(inside, secret, 0.0)) / count.clamp_min(1)
    second, last_but_one = (numbers[0], numbers[0]) if len(numbers) == 1 else (numbers[1], numbers[-2])
    least = torch.where(secret == numbers[0], second, numbers[0])
    most = torch.where(secret == numbers[-1], last_but_one, numbers[-1])
    start = torch.where(low.isfinite(), low, torch.minimum(least, high))
    end = torch.where(high.isfinite(), high, torch.maximum(most, low))
    return torch.where(count > 0, mean.clamp(start, end), (start + end) / 2), count
