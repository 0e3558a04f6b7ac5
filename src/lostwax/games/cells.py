"""Cells of a table in the units of its owner: numbers, categories by their code, and missing values (NaN).

Models see encodings of a table. What is rebuilt of an encoding goes back to cells, some exactly, some as a set or an
interval of possible values, and some not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

MOST_LISTED = 12  # names of columns in a note


class Kept(IntEnum):
    """What is known of a cell, the least first."""

    LOST = 0
    ESTIMATED = 1  # a guess from what else is known
    INTERVAL = 2  # the number lies between two others
    SET = 3  # one of a few values
    EXACT = 4


class Limits(NamedTuple):
    """Between which numbers each cell lies, if it has a value at all."""

    low: Tensor  # (g, d), -inf: no bound
    high: Tensor  # (g, d)
    maybe_missing: Tensor  # (g, d) bool: it is possible that there is no value

    def and_also(self, other: Limits) -> Limits:
        """What both leave; the first alone where nothing is left."""
        low, high = torch.maximum(self.low, other.low), torch.minimum(self.high, other.high)
        agree = low <= high
        return Limits(
            torch.where(agree, low, self.low),
            torch.where(agree, high, self.high),
            self.maybe_missing & (other.maybe_missing | ~agree),
        )

    def where(self, mask: Tensor, other: Limits) -> Limits:
        """Those of the other where `mask` holds."""
        return Limits(*(torch.where(mask, theirs, ours) for ours, theirs in zip(self, other, strict=True)))


class TableCells(NamedTuple):
    """Cells of some rows; where several values are possible, the likeliest."""

    values: Tensor  # (g, d) numbers or codes; NaN: missing
    kept: Tensor  # (g, d) uint8, a `Kept` each
    limits: Limits | None = None  # of cells in an interval or a set; None: no part tells any
    possible: Mapping[int, Tensor] = {}  # columns of categories: (g, codes) bool, those that are not excluded

    @classmethod
    def lost(cls, games: int, width: int) -> TableCells:
        """Nothing is known."""
        nothing = torch.full((games, width), torch.nan, dtype=torch.float64)
        return cls(nothing, torch.full((games, width), int(Kept.LOST), dtype=torch.uint8))

    @classmethod
    def joined(cls, parts: Sequence[TableCells]) -> TableCells:
        """The cells of several groups of rows."""
        values, kept = torch.cat([one.values for one in parts]), torch.cat([one.kept for one in parts])
        every = [one.every_limit() for one in parts]
        limits = Limits(*(torch.cat(some) for some in zip(*every, strict=True)))
        columns = {column: codes.shape[1] for one in parts for column, codes in one.possible.items()}
        possible = {column: torch.cat([one.codes(column, width) for one in parts]) for column, width in columns.items()}
        return cls(values, kept, None if all(one.limits is None for one in parts) else limits, possible)

    def or_else(self, other: TableCells) -> TableCells:
        """Each cell from whichever knows more of it; from the first where both know as much.

        Of cells that neither knows exactly the limits of both hold. One with a single value left is exact.
        """
        more = other.kept > self.kept
        both = TableCells(torch.where(more, other.values, self.values), torch.maximum(self.kept, other.kept))
        if (self.limits is None and other.limits is None) and not (self.possible or other.possible):
            return both
        first, second = self.every_limit(), other.every_limit()
        limits = first.where(more, second)
        limits = first.and_also(second).where(both.kept == Kept.EXACT, limits)
        widths = {column: codes.shape[1] for one in (self, other) for column, codes in one.possible.items()}
        possible = {}
        for column, width in widths.items():
            ours, theirs = self.codes(column, width), other.codes(column, width)
            left = ours & theirs
            possible[column] = torch.where(left.any(1, keepdim=True), left, ours)
        return both._replace(limits=limits, possible=possible).decided()

    def decided(self) -> TableCells:
        """The same, with the cells as exact in which a single number (in float32) or category is left."""
        if self.limits is None:
            return self
        low, high, maybe_missing = self.limits
        single = (low.float() == high.float()) & (low <= high) & ~maybe_missing & (self.kept < Kept.EXACT)
        values = torch.where(single, low / 2 + high / 2, self.values)
        kept = torch.where(single, int(Kept.EXACT), self.kept)
        for column, codes in self.possible.items():
            one = (codes.sum(1) == 1) & ~maybe_missing[:, column] & (kept[:, column] < Kept.EXACT)
            values[:, column] = torch.where(one, codes.double().argmax(1).double(), values[:, column])
            kept[:, column] = torch.where(one, int(Kept.EXACT), kept[:, column])
        return self._replace(values=values, kept=kept.to(torch.uint8))

    def every_limit(self) -> Limits:
        """The limits, with none where no part tells any."""
        if self.limits is not None:
            return self.limits
        anything = torch.full(self.values.shape, torch.inf, dtype=torch.float64)
        return Limits(-anything, anything, torch.ones(self.values.shape, dtype=torch.bool))

    def codes(self, column: int, width: int) -> Tensor:
        """(g, codes) which categories of a column are not excluded."""
        found = self.possible.get(column)
        return torch.ones(len(self.values), width, dtype=torch.bool) if found is None else found

    def at(self, games: Tensor) -> TableCells:
        """The cells of some rows."""
        limits = None if self.limits is None else Limits(*(limit[games] for limit in self.limits))
        possible = {column: codes[games] for column, codes in self.possible.items()}
        return TableCells(self.values[games], self.kept[games], limits, possible)

    def filled(self, blind: Tensor) -> Tensor:
        """(g, d) the values, with a blind guess where a cell is lost."""
        return torch.where(self.kept == Kept.LOST, blind, self.values)


class Revealed(NamedTuple):
    """What one fact tells of the missing row of each game."""

    candidates: tuple[TableCells, ...]  # (g, d) each, the likeliest first; several explain a model without intercept
    labels: Tensor | None  # (g, ...); None: it does not depend on them
    size: Tensor  # (g,) |r|: what the row was divided by
    labels_known: Tensor | None = None  # (g,) which of the labels; None: all
    labels_certain: Tensor | None = None  # (g,) ... and of these no other value agrees with it; None: none

    def at(self, games: Tensor) -> Revealed:
        """The same of some games."""
        labels, known, certain = (
            None if part is None else part[games] for part in (self.labels, self.labels_known, self.labels_certain)
        )
        return Revealed(tuple(one.at(games) for one in self.candidates), labels, self.size[games], known, certain)


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
        """Some of the columns."""
        names = tuple(self.names[number] for number in numbers) if self.names else ()
        return replace(self, names=names, categories=tuple(self.categories[number] for number in numbers))

    def listed(self, numbers: Sequence[int]) -> str:
        """Some of the columns by name, for a note; words are only counted."""
        if self.are_words:
            return f"{len(numbers)} words"
        names = [self.names[number] if self.names else f"column {number}" for number in numbers]
        return ", ".join(names[:MOST_LISTED]) + (f" and {len(names) - MOST_LISTED} more" if names[MOST_LISTED:] else "")

    def text(self, column: int, value: float) -> str:
        """One cell as its owner writes it."""
        if value != value:
            return "missing"
        known = self.categories[column]
        return f"{value:.6g}" if not known else str(known[int(value)])

    def blind(self, x: Tensor, games: Tensor) -> Tensor:
        """(g, d) a guess without the release: the mean of each column's known numbers, its most frequent category.

        In each game all rows are known but one; that a category or a missing value is the most frequent is judged
        without that row too.
        """
        blind = torch.empty(len(games), x.shape[1], dtype=x.dtype)
        for column, values in enumerate(self.categories):
            cells = x[:, column]
            missing, own = cells.isnan(), cells[games]
            if values:
                codes = torch.where(missing, len(values), cells.nan_to_num()).long()
                counts = torch.bincount(codes, minlength=len(values) + 1).expand(len(games), -1).clone()
                counts[torch.arange(len(games)), codes[games]] -= 1
                best = counts.argmax(1)
                blind[:, column] = torch.where(best == len(values), torch.nan, best.double())
                continue
            held = (~missing).sum() - (~own.isnan()).long()
            mean = (cells.nan_to_num().sum() - own.nan_to_num()) / held.clamp_min(1)
            blind[:, column] = torch.where(missing.sum() - own.isnan().long() > held, torch.nan, mean)
        return blind

    def likeliest(self, cells: TableCells, x: Tensor, games: Tensor) -> TableCells:
        """The cells with a guess where several values are left, from the rows that are known in each game.

        Of an interval this is the mean of the known numbers in it, or else its middle; of a set of categories the most
        frequent; a missing value where it is possible and more frequent than these.
        """
        if cells.limits is None:
            return cells
        values, open_ones = cells.values.clone(), (cells.kept == Kept.INTERVAL) | (cells.kept == Kept.SET)
        for column, names in enumerate(self.categories):
            known, asked = x[:, column], open_ones[:, column]
            low, high, maybe_missing = (limit[:, column].contiguous() for limit in cells.limits)
            if names and column in cells.possible:
                best, number = _most_frequent(known, games, cells.possible[column])
            else:
                asked = asked & (low.isfinite() | high.isfinite())
                mean, number = _mean_within(known, games, low, high)
                best = torch.where(cells.kept[:, column] == Kept.SET, values[:, column], mean)  # one of its values
            missing = known.isnan().sum() - known[games].isnan().long()
            best = torch.where(maybe_missing & (missing > number), torch.nan, best)
            values[:, column] = torch.where(asked, best, values[:, column])
        return cells._replace(values=values)


def _most_frequent(known: Tensor, games: Tensor, possible: Tensor) -> tuple[Tensor, Tensor]:
    """(g,) of the possible codes (g, codes) the most frequent among all rows except the game's own, and how often."""
    codes, own = known[~known.isnan()].long(), known[games]
    counts = torch.bincount(codes, minlength=possible.shape[1]).expand(len(games), -1).clone()
    held = (~own.isnan()).nonzero().flatten()
    counts[held, own[held].long()] -= 1
    number, best = torch.where(possible, counts, -1).max(1)
    return best.double(), number


def _mean_within(known: Tensor, games: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """(g,) the mean of the numbers between two limits among all rows except the game's own, and how many these are.

    Where there are none it is the middle.
    A limit that is missing is the known extreme, or the other limit if that is beyond it.
    """
    held, own = known[~known.isnan()].sort().values, known[games]
    if not len(held):
        return torch.where(low.isfinite(), low, high), torch.zeros_like(games)
    sums = torch.cat([held.new_zeros(1), held.cumsum(0)])
    first, last = torch.searchsorted(held, low), torch.searchsorted(held, high, right=True)
    inside = (own >= low) & (own <= high)
    number = last - first - inside.long()
    mean = (sums[last] - sums[first] - torch.where(inside, own, 0.0)) / number.clamp_min(1)
    last_one = len(held) - 1
    least = torch.where((own == held[0]) & (len(held) > 1), held[min(1, last_one)], held[0])
    most = torch.where((own == held[-1]) & (len(held) > 1), held[max(0, last_one - 1)], held[-1])
    start = torch.where(low.isfinite(), low, torch.minimum(least, high))
    end = torch.where(high.isfinite(), high, torch.maximum(most, low))
    return torch.where(number > 0, mean.clamp(start, end), (start + end) / 2), number
