"""What an audit tells of the cells of a table: exact, within an interval, one of several, estimated, unknown."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.games import Cells, Columns, Kept
from lostwax.games.cells import Bounds
from lostwax.numerals import percent

AGREES = 1e-6  # of a column's standard deviation: two numbers are the same
SINGLE = 2 * torch.finfo(torch.float32).eps  # ... or of their size: trees compare in single precision
MOST_LISTED = 4  # values of a set that are named


class CellsKept(NamedTuple):
    """How many cells of all games are known, and how well, in columns that vary."""

    exact: int
    certified: int  # ... of which no other value agrees with the model
    several: int  # one of a few values
    within: int  # in an interval
    estimated: int
    unknown: int
    width: float  # of these intervals, their mean in standard deviations; 0 where there are none
    each: Cells | None = None  # (games, d) all of them; None in an audit that was read without its records

    @classmethod
    def of(cls, cells: Cells, certified: Cells | None, truth: Tensor, table: Tensor) -> CellsKept:
        """Of cells (games, d) that were rebuilt, and those that trees tell: what is exact must be the truth."""
        deviation = (table - table.nanmean(0)).square().nanmean(0).sqrt().nan_to_num()
        varies = ((table != table[0]) & ~(table.isnan() & table[0].isnan())).any(0).numpy()
        values = torch.from_numpy(cells.values)
        near = (values - truth).abs() <= AGREES * deviation + SINGLE * truth.abs()
        same = (near | (values.isnan() & truth.isnan())).numpy()
        kept = np.where((cells.kept == Kept.EXACT) & ~same, np.uint8(Kept.ESTIMATED), cells.kept)
        proven = np.zeros_like(same) if certified is None else (certified.kept == Kept.EXACT) & same
        counted = {kind: int((kept == kind)[:, varies].sum()) for kind in Kept}
        return cls(
            exact=counted[Kept.EXACT],
            certified=int(proven[:, varies].sum()),
            several=counted[Kept.SET],
            within=counted[Kept.INTERVAL],
            estimated=counted[Kept.ESTIMATED],
            unknown=counted[Kept.LOST],
            width=_mean_width(cells.bounds, kept, table, deviation),
            each=cells._replace(kept=kept),
        )

    def with_target(self, target: TargetRead | None) -> CellsKept:
        """The same with the targets, which are cells of the table too; unchanged where they were not attacked."""
        if target is None:
            return self
        exact, certified = int(target.read.sum()), int(target.certain.sum())
        return self._replace(
            exact=self.exact + exact,
            certified=self.certified + certified,
            estimated=self.estimated + target.read.size - exact,
        )

    @property
    def total(self) -> int:
        """All cells in columns that vary."""
        return self.exact + self.several + self.within + self.estimated + self.unknown

    @property
    def exact_share(self) -> float:
        """The share of cells that come back exactly."""
        return self.exact / max(1, self.total)

    def __str__(self) -> str:
        width = f" (mean width {self.width:.2g} deviations)" if self.width else ""
        total = max(1, self.total)
        certain = f" ({percent(self.certified / total)} certain: no other value agrees with the model)"
        said = {
            f"exact{certain if 0 < self.certified < self.exact else ''}": self.exact,
            "one of several values": self.several,
            f"within an interval{width}": self.within,
            "estimated": self.estimated,
            "unknown": self.unknown,
        }
        return ", ".join(f"{percent(number / total)} {what}" for what, number in said.items() if number)


class TargetRead(NamedTuple):
    """The targets that come back, beside those that a guess from the other columns gives without the model."""

    read: NDArray[np.bool_]  # (games, targets) the class is right, or the number within a thousandth of its deviation
    guessed: NDArray[np.bool_]  # (games, targets) the same of the guess
    certain: NDArray[np.bool_]  # (games, targets) read, and no other value agrees with the model
    different: NDArray[np.bool_]  # (games,) the first game of each record: equal ones are no further evidence

    @property
    def worst(self) -> int:
        """The target that is read most often beyond guessing."""
        return int((self.read.sum(0) - self.guessed.sum(0)).argmax())


def _mean_width(bounds: Bounds | None, kept: NDArray[np.uint8], table: Tensor, deviation: Tensor) -> float:
    """Of intervals in standard deviations; one without an end ends where the table does."""
    if bounds is None:
        return 0.0
    low, high = torch.from_numpy(bounds.low), torch.from_numpy(bounds.high)
    counts = torch.from_numpy(kept == Kept.INTERVAL) & (low.isfinite() | high.isfinite()) & (deviation > 0)
    low = torch.maximum(low, table.nan_to_num(nan=torch.inf).amin(0))
    high = torch.minimum(high, table.nan_to_num(nan=-torch.inf).amax(0))
    widths = ((high - low).clamp_min(0) / deviation)[counts]
    return float(widths.mean()) if len(widths) else 0.0


def known_in_words(cells: Cells, columns: Columns, row: int) -> list[str]:
    """What is known of each cell of a row: "exact", "2 to 5", "red or blue", "estimated", "unknown"."""
    return [_known(cells, columns, row, column) for column in range(len(columns.categories))]


def _known(cells: Cells, columns: Columns, row: int, column: int) -> str:
    kept = Kept(int(cells.kept[row, column]))
    if kept is Kept.EXACT:
        return "exact"
    if kept in (Kept.LOST, Kept.ESTIMATED):
        return "unknown" if kept is Kept.LOST else "estimated"
    bounds = cells.every_bound()
    low, high, missing = (part[row, column].item() for part in bounds[:3])
    or_missing = " or missing" if missing and cells.bounds is not None else ""
    if column in bounds.codes:
        named = [columns.text(column, code) for code in np.flatnonzero(bounds.codes[column][row]).tolist()]
        listed = " or ".join(named) if len(named) <= MOST_LISTED else f"one of {len(named)} values"
        return f"{listed}{or_missing}"
    if abs(low) == abs(high) == torch.inf or columns.categories[column]:
        return "one of several values" if kept is Kept.SET else "within an interval"
    first, last = columns.text(column, low), columns.text(column, high)
    if first == last:
        return f"{first}{or_missing}"
    span = f"{first} to {last}" if low > -torch.inf else f"at most {last}"
    return f"{span if high < torch.inf else f'at least {first}'}{or_missing}"
