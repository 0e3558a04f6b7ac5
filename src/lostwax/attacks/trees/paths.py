"""The path of the missing row down each tree, and what the nodes on it say.

All games are computed at once: in game i the nodes whose known rows do not add up to their size are those that hold row
i, so that its path is that of row i itself, as far as sizes are precise enough to show it.

Of some trees it is not known on which rows they were grown: bootstraps that cannot be drawn again. Any known row may
have been left out. Two facts remain. A node that holds more rows than there are known ones in its box holds the missing
one. And a threshold that is not half-way between any two known values in the box has the missing row as a neighbour:
its value is 2 threshold - v for a known value v on the other side. A few thresholds leave a single value that satisfies
all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lostwax.games.trees import Bools, Bounds, Floats, Forest, Ints, Level, Tree
from lostwax.progress import counted

NEAR_ZERO = 1e-6
MAX_VALUES = 5_000  # known values in a box that are tried as the neighbour


def descend(forest: Forest, tree: Tree, x: Floats) -> list[Level]:
    """Send the rows that a tree was grown on down to its leaves, one depth at a time.

    The size of a node shows that the missing row is in it if its share is above the error. Then it is in all nodes
    above this one too: its path is known down to the deepest node that shows it.
    """
    share = np.ones(len(x)) if tree.share is None else tree.share
    levels = list(tree.levels(x, np.flatnonzero(share > 0), strict=forest.strict))
    deepest = np.zeros(len(x), dtype=np.intp)  # depth down to which the path of each row is shown
    for depth, level in enumerate(levels, 1):
        deepest[level.rows[share[level.rows] > 2 * tree.rounding[level.child]]] = depth
    return [level._replace(shown=deepest[level.rows] > depth) for depth, level in enumerate(levels)]


def near_zero(x: Floats, games: Ints) -> Floats:
    """(g, d) how near to zero a number counts as zero, by the other rows of its column; 0 if none of them is zero.

    Half-way between 0 and 1 is 0.5, and so it is between 1e-18 and 1, to rounding. No other number has this problem.
    """
    sizes = np.where((x == 0) | np.isnan(x), np.inf, np.abs(x))
    smallest, second = np.partition(np.r_[sizes, np.full((1, x.shape[1]), np.inf)], 1, axis=0)[:2]
    others = np.where(sizes[games] == smallest, second, smallest)
    with_zero = (x == 0).sum(0) > (x[games] == 0)
    return np.where(with_zero & np.isfinite(others), NEAR_ZERO * others, 0.0)


def zeros(low: Floats, high: Floats, tiny: Floats) -> Bools:
    """Which intervals hold zero and nothing else that is not far smaller than all other numbers of the column."""
    return np.asarray((low <= 0) & (high >= 0) & (low >= -tiny) & (high <= tiny))


def game_of(rows: int, games: Ints) -> Ints:
    """(rows,) the game that is about each row, -1: there is none."""
    game = np.full(rows, -1)
    game[games] = np.arange(len(games))
    return game


def narrowed_by_nodes(forest: Forest, x: Floats, games: Ints, bounds: Bounds, left: Forest | None = None) -> Bounds:
    """Bounds (g, d) of the missing row of each game, narrowed by every node on its path.

    Of trees of which it is known on which rows they were grown; of the others see `narrowed_without_sample`. Where all
    games are one, `left` tells what known rows leave of sizes: neighbours are known where a row is alone.
    """
    game, narrowing = game_of(len(x), games), Narrowing(forest, bounds)
    for number, tree in enumerate(counted(forest.trees, "paths: trees", len(forest.trees))):
        for level in [] if tree.share is None else descend(forest, tree, x):
            narrowing.by_sides(tree, level, game)
            if tree.between_neighbours:
                alone = level.shown
                if left is not None and tree.share is not None:
                    alone = alone & np.isclose(left.trees[number].size[level.node], tree.share[level.rows])
                narrowing.by_neighbours(tree, level._replace(shown=alone), game)
    return narrowing.bounds()


class Narrowing:
    """Bounds that get narrower, node by node."""

    def __init__(self, forest: Forest, bounds: Bounds) -> None:
        self.forest = forest
        self.low, self.high = bounds.low.copy(), bounds.high.copy()
        self.maybe_missing = bounds.maybe_missing.copy()
        self.codes = {column: possible.copy() for column, possible in bounds.codes.items()}

    def bounds(self) -> Bounds:
        nothing = np.isposinf(self.low) | np.isneginf(self.high)  # beyond an infinite threshold are only missing values
        low, high = np.where(nothing, np.inf, self.low), np.where(nothing, -np.inf, self.high)
        return Bounds(low, high, self.maybe_missing, self.codes)

    def by_sides(self, tree: Tree, level: Level, game: Ints) -> None:
        """The side that the row took at each node of one depth."""
        played = level.shown & (game[level.rows] >= 0)
        which, node, left = game[level.rows[played]], level.node[played], level.left[played]
        column = tree.feature[node]
        # a row without a value goes the way of missing ones
        other_way = left != tree.missing_left[node]
        self.maybe_missing[which[other_way], column[other_way]] = False
        numbers = np.ones(len(node), dtype=np.bool_)
        for split, to_left in tree.categories.items():
            here = node == split
            numbers &= ~here
            self._keep_codes(int(tree.feature[split]), which[here], np.where(left[here, None], to_left, ~to_left))
        which, node, left, column = which[numbers], node[numbers], left[numbers], column[numbers]
        below = self._nearest(tree.threshold[node], -np.inf, beyond=self.forest.strict)
        above = self._nearest(tree.threshold[node], np.inf, beyond=not self.forest.strict)
        self.to(which, column, np.where(left, -np.inf, above), np.where(left, below, np.inf))

    def by_neighbours(self, tree: Tree, level: Level, game: Ints) -> None:
        """The threshold lies half-way between the largest value on the left and the smallest on the right.

        If the known rows explain it, the missing one is beyond its known neighbour; otherwise it is the neighbour.
        """
        finite = np.flatnonzero(np.isfinite(tree.threshold[level.node]))
        order = finite[np.lexsort((level.value[finite], level.node[finite]))]  # by node and value, missing ones last
        if not len(order):
            return
        node, value, left, rows = level.node[order], level.value[order], level.left[order], level.rows[order]
        valued = ~np.isnan(value)
        starts = np.flatnonzero(np.r_[True, node[1:] != node[:-1]])
        group = np.repeat(np.arange(len(starts)), np.diff(np.r_[starts, len(node)]))
        first = starts[group]
        last = first + np.add.reduceat(valued.astype(np.intp), starts)[group] - 1
        middle = first + np.add.reduceat((left & valued).astype(np.intp), starts)[group]  # the first on the right
        place = np.arange(len(node))
        # the neighbours that are known if the row at this place is missing
        below = np.where(place == middle - 1, middle - 2, middle - 1)
        above = np.where((place == middle) & valued, middle + 1, middle)
        lower = np.where(below >= first, value[below.clip(0)], -np.inf)
        upper = np.where(above <= last, value[above.clip(None, len(node) - 1)], np.inf)
        same_side, other = np.where(left, lower, upper), np.where(left, upper, lower)
        use = np.flatnonzero(level.shown[order] & (game[rows] >= 0) & np.isfinite(other))
        node, left, same_side, which = node[use], left[use], same_side[use], game[rows[use]]
        column = tree.feature[node]
        lowest, highest = self.neighbours(tree.threshold[node], other[use])
        explained = (same_side >= lowest) & (same_side <= highest)
        low, high = np.where(explained & left, -np.inf, lowest), np.where(explained & ~left, np.inf, highest)
        self.to(which, column, low, high)
        self.maybe_missing[which[~explained], column[~explained]] = False

    def neighbours(self, threshold: Floats, other: Floats) -> tuple[Floats, Floats]:
        """The lowest and highest v for which (v + other) / 2 rounds to the threshold."""
        size = np.maximum(np.abs(threshold), np.abs(other))
        slack = 4 * np.spacing(size.astype(np.float32) if self.forest.rounded else size)
        value = 2 * threshold - other
        return self._nearest(value - slack, np.inf), self._nearest(value + slack, -np.inf)

    def to(self, game: Ints, column: Ints, low: Floats, high: Floats) -> None:
        """Between these two; no pair of game and column occurs twice."""
        self.low[game, column] = np.maximum(self.low[game, column], low)
        self.high[game, column] = np.minimum(self.high[game, column], high)

    def _keep_codes(self, column: int, game: Ints, possible: Bools) -> None:
        """Keep the codes that are possible (k, codes) in some games (k,), as a node that splits codes shows."""
        width, codes = possible.shape[1], self.codes.get(column)
        if codes is None or codes.shape[1] < width:
            wider = np.ones((len(self.low), width), dtype=np.bool_)
            if codes is not None:
                wider[:, : codes.shape[1]] = codes
            self.codes[column] = codes = wider
        codes[game, :width] &= possible

    def _nearest(self, bound: Floats, side: float, *, beyond: bool = False) -> Floats:
        """The nearest values that can occur at a bound or on its side, -inf or inf; or only on its side."""
        rounded = self.forest.cast(bound)
        value = np.where(rounded >= bound if side > 0 else rounded <= bound, rounded, self.after(rounded, side))
        return np.where(value == bound, self.after(value, side), value) if beyond else value

    def after(self, value: Floats, side: float = np.inf) -> Floats:
        """The next values that can occur, larger or smaller ones."""
        kind = np.float32 if self.forest.single else np.float64
        return np.asarray(np.nextafter(value.astype(kind), kind(side)), dtype=np.float64)


# trees whose rows are not known


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


class NodeSplit(NamedTuple):
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


def _splits(tree: Tree, level: Level) -> Iterator[NodeSplit]:
    """The nodes of one depth."""
    used = np.flatnonzero(np.isfinite(tree.threshold[level.node]) & ~np.isnan(level.value))
    order = used[np.lexsort((level.value[used], level.node[used]))]
    for here in np.split(order, np.flatnonzero(np.diff(level.node[order])) + 1) if len(order) else ():
        middle, node = int(level.left[here].sum()), level.node[here[0]]
        rows, values = level.rows[here], level.value[here]
        sides = rows[:middle], rows[middle:], values[:middle], values[middle:]
        yield NodeSplit(int(tree.feature[node]), float(tree.threshold[node]), *sides)
