"""Cells of a table in the units of its owner: numbers, categories by their code, and missing values (NaN).

Models see encodings of a table. What is rebuilt of an encoding goes back to cells, some exactly, some as a set or an
interval of possible values, and some not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
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


class TableCells(NamedTuple):
    """Cells of some rows; where several values are possible, the likeliest."""

    values: Tensor  # (g, d) numbers or codes; NaN: missing
    kept: Tensor  # (g, d) uint8, a `Kept` each

    def or_else(self, other: TableCells) -> TableCells:
        """Each cell from whichever knows more of it; from the first where both know as much."""
        more = other.kept > self.kept
        return TableCells(torch.where(more, other.values, self.values), torch.maximum(self.kept, other.kept))

    def at(self, games: Tensor) -> TableCells:
        """The cells of some rows."""
        return TableCells(*(part[games] for part in self))

    def filled(self, blind: Tensor) -> Tensor:
        """(g, d) the values, with a blind guess where a cell is lost."""
        return torch.where(self.kept == Kept.LOST, blind, self.values)


class Revealed(NamedTuple):
    """What one fact tells of the missing row of each game."""

    candidates: tuple[TableCells, ...]  # (g, d) each, the likeliest first; several explain a model without intercept
    labels: Tensor | None  # (g, ...); None: it does not depend on them
    size: Tensor  # (g,) |r|: what the row was divided by
    labels_known: Tensor | None = None  # (g,) which of the labels; None: all

    def at(self, games: Tensor) -> Revealed:
        """The same of some games."""
        labels, known = (None if part is None else part[games] for part in (self.labels, self.labels_known))
        return Revealed(tuple(one.at(games) for one in self.candidates), labels, self.size[games], known)


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
