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

MOST_VALUES = 5_000  # known values in a box that are tried as the neighbour

Candidates = dict[tuple[int, int], Floats]  # by game and column, the values that the missing row may have


def narrowed_without_sample(forest: Forest, x: Floats, games: Ints, bounds: Bounds) -> Bounds:
    """Bounds (g, d) of the missing row of each game, narrowed by trees whose rows are not known."""
    game, found, candidates = game_of(len(x), games), Narrowing(forest, bounds), Candidates()
    tiny = near_zero(x, games)
    for tree in counted(forest.trees, "samples: trees", len(forest.trees)):
        if tree.share is not None:
            continue
        levels = descend(forest, tree, x)
        depth_shown = _shown_by_counts(tree, levels, len(x))
        if tree.between_neighbours:
            for depth, level in enumerate(levels):
                for split in _splits(tree, level):
                    _use(split, depth, depth_shown, game, tiny, found, candidates)
        for depth, level in enumerate(levels):
            found.by_sides(tree, level._replace(shown=depth_shown[level.rows] > depth), game)
    for (number, column), values in candidates.items():
        values = values[(values >= found.low[number, column]) & (values <= found.high[number, column])]
        if len(values):
            at = np.array([number]), np.array([column])
            found.to(*at, values.min(keepdims=True), values.max(keepdims=True))
            found.maybe_missing[at] = False
    return found.bounds()


def _shown_by_counts(tree: Tree, levels: list[Level], rows: int) -> Ints:
    """(n,) down to which depth counts show the path of each row if it is missing: all rows in a box were used."""
    depth_shown = np.zeros(rows, dtype=np.intp)
    for depth, level in enumerate(levels, 1):
        in_box = np.bincount(level.child, minlength=len(tree.size))
        full = (in_box == tree.size) & np.isfinite(tree.rounding)
        depth_shown[level.rows[full[level.child]]] = depth
    return depth_shown


class _Split(NamedTuple):
    """All rows in the box of a node, by their values in the column that it splits."""

    column: int
    threshold: float
    left: Ints  # rows, in the order of their values
    right: Ints
    left_values: Floats
    right_values: Floats


def _splits(tree: Tree, level: Level) -> Iterator[_Split]:
    """The nodes of one depth."""
    used = np.flatnonzero(np.isfinite(tree.threshold[level.node]) & ~np.isnan(level.value))
    order = used[np.lexsort((level.value[used], level.node[used]))]
    node = level.node[order]
    ends = np.flatnonzero(np.r_[node[1:] != node[:-1], True]) + 1
    for first, last in zip(np.r_[0, ends[:-1]], ends, strict=True) if len(order) else ():
        here = order[first:last]
        middle = int(level.left[here].sum())
        at, rows, values = node[first], level.rows[here], level.value[here]
        yield _Split(
            int(tree.feature[at]),
            float(tree.threshold[at]),
            rows[:middle],
            rows[middle:],
            values[:middle],
            values[middle:],
        )


def _use(
    split: _Split,
    depth: int,
    depth_shown: Ints,
    game: Ints,
    tiny: Floats,
    found: Narrowing,
    candidates: Candidates,
) -> None:
    """Each row without which no two values explain the threshold is a neighbour if it is missing."""
    for row in _needed(split, found):
        depth_shown[row] = max(depth_shown[row], depth)
        at = int(game[row]), split.column
        before = candidates.get(at)
        if game[row] < 0 or (before is not None and len(before) == 1):
            continue
        if (values := _values(split, row, tiny[at], found)) is not None:
            candidates[at] = values if before is None else before[np.isin(before, values)]


def _needed(split: _Split, found: Narrowing) -> list[int]:
    """Rows that are in every pair of values, one on each side, that the threshold is half-way between."""
    if not 0 < len(split.left) + len(split.right) <= MOST_VALUES:
        return []
    opposite = found.neighbours(np.full(len(split.left), split.threshold), split.left_values)
    first = np.searchsorted(split.right_values, opposite[0], side="left")
    last = np.searchsorted(split.right_values, opposite[1], side="right")
    in_pair = last > first  # on the left
    needed = split.left[in_pair].tolist() if in_pair.sum() == 1 else []
    if in_pair.any() and last[in_pair].max() - first[in_pair].min() == 1:
        needed.append(int(split.right[first[in_pair][0]]))
    return needed


def _values(split: _Split, row: int, tiny: Floats, found: Narrowing) -> Floats | None:
    """What a missing row may have as a neighbour; None if more values round to the threshold than can be listed."""
    known = np.r_[split.left_values[split.left != row], split.right_values[split.right != row]]
    low, high = found.neighbours(np.full(len(known), split.threshold), known)
    low, high = low[low <= high], high[low <= high]
    zero = zeros(low, high, tiny)
    low, high = np.where(zero, 0.0, low), np.where(zero, 0.0, high)
    return None if bool((found.after(low) < high).any()) else np.unique(np.r_[low, high])
