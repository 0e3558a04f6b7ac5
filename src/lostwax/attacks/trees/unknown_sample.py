"""Trees of which it is not known on which rows they were grown: bootstraps that cannot be drawn again.

Any known row may have been left out. Two facts remain. A node that holds more rows than there are known ones in its box
holds the missing one. And a threshold that is not half-way between any two known values in the box has the missing row
as a neighbour: its value is 2 threshold - v for a known value v on the other side. A few thresholds leave a single
value that satisfies all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lostwax.attacks.trees.paths import Narrowing, descend, game_of, near_zero, zeros
from lostwax.games.trees import Bounds, Floats, Forest, Ints, Level, Tree
from lostwax.progress import counted

MAX_VALUES = 5_000  # known values in a box that are tried as the neighbour


def narrowed_without_sample(forest: Forest, x: Floats, games: Ints, bounds: Bounds) -> Bounds:
    """Bounds (g, d) of the missing row of each game, narrowed by trees whose rows are not known."""
    game, narrowing, tiny = game_of(len(x), games), Narrowing(forest, bounds), near_zero(x, games)
    candidates: dict[tuple[int, int], Floats] = {}  # by game and column, the values that the missing row may have
    for tree in counted(forest.trees, "samples: trees", len(forest.trees)):
        if tree.share is not None:
            continue
        levels = descend(forest, tree, x)
        depth_shown = _shown_by_counts(tree, levels, len(x))
        for depth, level in enumerate(levels) if tree.between_neighbours else ():
            for split in _splits(tree, level):
                for row in split.needed(narrowing):
                    depth_shown[row] = max(depth_shown[row], depth)
                    at = int(game[row]), split.column
                    before = candidates.get(at)
                    if at[0] < 0 or (before is not None and len(before) == 1):
                        continue
                    if (values := split.candidates(row, tiny[at], narrowing)) is not None:
                        candidates[at] = values if before is None else before[np.isin(before, values)]
        for depth, level in enumerate(levels):
            narrowing.by_sides(tree, level._replace(shown=depth_shown[level.rows] > depth), game)
    for (number, column), values in candidates.items():
        values = values[(values >= narrowing.low[number, column]) & (values <= narrowing.high[number, column])]
        if len(values):
            at_cell = np.array([number]), np.array([column])
            narrowing.to(*at_cell, values.min(keepdims=True), values.max(keepdims=True))
            narrowing.maybe_missing[at_cell] = False
    return narrowing.bounds()


def _shown_by_counts(tree: Tree, levels: list[Level], rows: int) -> Ints:
    """(n,) down to which depth counts show the path of each row if it is missing: all rows in a box were used."""
    depth_shown = np.zeros(rows, dtype=np.intp)
    for depth, level in enumerate(levels, 1):
        in_box = np.bincount(level.child, minlength=len(tree.size))
        full = (in_box == tree.size) & np.isfinite(tree.rounding)
        depth_shown[level.rows[full[level.child]]] = depth
    return depth_shown


class Split(NamedTuple):
    """All rows in the box of a node, by their values in the column that it splits."""

    column: int
    threshold: float
    left: Ints  # rows, in the order of their values
    right: Ints
    left_values: Floats
    right_values: Floats

    def needed(self, narrowing: Narrowing) -> list[int]:
        """Rows without which no two values, one on each side, explain the threshold: neighbours if they are missing."""
        if not 0 < len(self.left) + len(self.right) <= MAX_VALUES:
            return []
        low, high = narrowing.neighbours(np.full(len(self.left), self.threshold), self.left_values)
        first = np.searchsorted(self.right_values, low, side="left")
        last = np.searchsorted(self.right_values, high, side="right")
        in_pair = last > first  # on the left
        rows = self.left[in_pair].tolist() if in_pair.sum() == 1 else []
        if in_pair.any() and last[in_pair].max() - first[in_pair].min() == 1:
            rows.append(int(self.right[first[in_pair][0]]))
        return rows

    def candidates(self, row: int, tiny: Floats, narrowing: Narrowing) -> Floats | None:
        """What a missing row may have as a neighbour; None if more values round to the threshold than are listed."""
        known = np.r_[self.left_values[self.left != row], self.right_values[self.right != row]]
        low, high = narrowing.neighbours(np.full(len(known), self.threshold), known)
        low, high = low[low <= high], high[low <= high]
        zero = zeros(low, high, tiny)
        low, high = np.where(zero, 0.0, low), np.where(zero, 0.0, high)
        return None if bool((narrowing.after(low) < high).any()) else np.unique(np.r_[low, high])


def _splits(tree: Tree, level: Level) -> Iterator[Split]:
    """The nodes of one depth."""
    used = np.flatnonzero(np.isfinite(tree.threshold[level.node]) & ~np.isnan(level.value))
    order = used[np.lexsort((level.value[used], level.node[used]))]
    for here in np.split(order, np.flatnonzero(np.diff(level.node[order])) + 1) if len(order) else ():
        middle, node = int(level.left[here].sum()), level.node[here[0]]
        rows, values = level.rows[here], level.value[here]
        sides = rows[:middle], rows[middle:], values[:middle], values[middle:]
        yield Split(int(tree.feature[node]), float(tree.threshold[node]), *sides)
