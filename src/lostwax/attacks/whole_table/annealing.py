"""A likely table where boosted trees prove no other: cells are redrawn until the sums of all leaves come close.

A table in codes of a grid gives each row a leaf in every tree; margins, derivatives and the sums of all leaves follow.
One cell after the other is drawn anew among its codes, those that bring the sums nearer being likelier, and ever more
so (simulated annealing by Gibbs sampling). It ends near the sums, not at them: proof is left to `subsets.py`.

Leaves of a tree are bits. The leaves that a code of one column allows are a word, and the leaf of a row is the one bit
that the words of all its columns share: so all codes of a cell are tried at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lostwax.attacks.whole_table.places import Boxes, CodedLeaves, Grid
from lostwax.games.boosting import BoostedSums
from lostwax.games.trees import Bools, Floats, Ints

Words = NDArray[np.uint64]

WORD, EXPONENT, BIAS = 64, 52, 1023  # bits; of a double: where its exponent begins, and that of 1
SWEEPS = 40
HOT, COLD = 3.0, 0.2  # temperatures, in squares of what a row adds to a leaf
SMALLEST = 1e-12


class LikelyTable(NamedTuple):
    """A table whose sums come close to those of all leaves."""

    boxes: Boxes  # (n, d) what the leaves of each row leave
    margins: Floats  # (n, k) after all trees


def annealed(
    sums: BoostedSums,
    grid: Grid,
    boxes: Boxes,
    label: Ints,
    random: np.random.Generator,
    until: float,
    clock: Callable[[], float],
) -> LikelyTable:
    """A table whose rows are in `boxes` (n, d), by the clock at most `until`."""
    start, columns = clock(), [_Column.of(group, grid) for group in _groups(grid)]
    possible = [column.possible(boxes) for column in columns]
    draws = [(options * random.random(options.shape)).argmax(1) for options in possible]
    table = _Table(sums, _Trees.of(sums, grid, columns), np.stack(draws, 1), label)
    for sweep in range(SWEEPS):
        done = max(sweep / SWEEPS, (clock() - start) / max(until - start, SMALLEST))
        if done >= 1 or not table.sweep(possible, HOT * (COLD / HOT) ** done, random, lambda: clock() > until):
            break
    part = Boxes(boxes.low.copy(), boxes.high.copy())
    for column, choice in zip(columns, table.choices.T, strict=True):
        if len(column.columns) > 1:
            part.low[:, column.columns] = part.high[:, column.columns] = column.options[choice]
    for leaves, leaf in zip(table.trees.leaves, table.leaf().T, strict=True):
        part, _ = leaves.within(part, leaf, grid)
    return LikelyTable(part, table.margins())


def _groups(grid: Grid) -> list[list[int]]:
    """Columns that are drawn together: those of a one-hot group."""
    grouped = {column for group in grid.one_hot for column in group}
    return [*map(list, grid.one_hot), *([column] for column in range(len(grid.codes)) if column not in grouped)]


@dataclass(frozen=True)
class _Column:
    """One column, or a one-hot group of them."""

    columns: list[int]
    options: Ints  # (o, columns) codes

    @classmethod
    def of(cls, columns: list[int], grid: Grid) -> _Column:
        """All that it may hold."""
        return cls(
            columns,
            np.arange(grid.codes[columns[0]])[:, None] if len(columns) == 1 else np.eye(len(columns), dtype=int),
        )

    def possible(self, boxes: Boxes) -> Bools:
        """(n, o) which rows may hold which option."""
        low, high = (part[:, None, self.columns] for part in boxes)
        return np.asarray(((low <= self.options) & (self.options <= high)).all(2))


@dataclass(frozen=True)
class _Trees:
    """All trees, padded to as many leaves; t trees with l leaves each."""

    leaves: tuple[CodedLeaves, ...]
    masks: tuple[Words, ...]  # of each column (o, t, words): the leaves that an option allows, as bits
    first: Ints  # (t,) the number of each tree's first leaf
    step: Floats  # (t * l,) what a leaf adds to the margin
    tilt: Floats  # (t * l,) of second derivatives in the sum of first ones; 0 where H is known
    totals: Floats  # (3, t * l) rows; H; G + tilt H. 0 where a sum is not known
    known: Floats  # (3, t * l) 1 where it is, otherwise 0

    @classmethod
    def of(cls, sums: BoostedSums, grid: Grid, columns: list[_Column]) -> _Trees:
        """The trees of a model."""
        leaves = tuple(CodedLeaves.of(boosted, grid) for boosted in sums.trees)
        most = max(len(coded.nodes) for coded in leaves)
        words = -(-most // WORD)
        masks = tuple(np.zeros((len(column.options), len(leaves), words), np.uint64) for column in columns)
        step, tilt, totals = (np.zeros((*ahead, len(leaves), most)) for ahead in ((), (), (3,)))
        totals += np.nan
        for tree, (coded, boosted) in enumerate(zip(leaves, sums.trees, strict=True)):
            count, ends = len(coded.nodes), coded.nodes
            for column, mask in zip(columns, masks, strict=True):
                low, high, codes = *(part[:, column.columns] for part in coded.boxes), column.options[:, None]
                allowed = np.zeros((len(codes), words * WORD), np.uint64)
                allowed[:, :count] = ((low <= codes) & (codes <= high)).all(2)
                bits = allowed.reshape(len(codes), words, WORD) << np.arange(WORD, dtype=np.uint64)
                mask[:, tree] = bits.sum(2, dtype=np.uint64)
            w, h = boosted.weight[ends], boosted.curvature[ends]
            size = np.where(np.isfinite(boosted.tree.rounding), boosted.tree.size, np.nan)[ends]
            step[tree, :count] = coded.step
            tilt[tree, :count] = np.where(np.isfinite(h) | ~np.isfinite(w), 0.0, w)
            # G = -w (H + ridge); or  sum_i (g_i + w h_i) = -w ridge  where H is not known
            totals[:, tree, :count] = size, h, -w * (np.where(np.isfinite(h), h, 0.0) + sums.ridge)
        if not sums.loss.classes:  # labels are not known
            totals[2] = np.nan
        totals, first = totals.reshape(3, -1), most * np.arange(len(leaves))
        known = np.isfinite(totals)
        return cls(leaves, masks, first, step.ravel(), tilt.ravel(), np.where(known, totals, 0.0), known.astype(float))

    def places(self, words: Words) -> Ints:
        """(..., t) which leaf of all has the one bit in words (..., t, w)."""
        bit = (words.max(-1).astype(np.float64).view(np.int64) >> EXPONENT) - BIAS
        return np.asarray(bit + WORD * words.argmax(-1) + self.first)


class _Table:
    """Rows as options of each column."""

    def __init__(self, sums: BoostedSums, trees: _Trees, choices: Ints, label: Ints) -> None:
        self.sums, self.trees, self.choices, self.label = sums, trees, choices, label

    def places(self) -> Ints:
        """(n, t) the leaf of each row, among all."""
        parts = [mask[chosen] for mask, chosen in zip(self.trees.masks, self.choices.T, strict=True)]
        return self.trees.places(np.bitwise_and.reduce(parts, axis=0))

    def leaf(self) -> Ints:
        """(n, t) the leaf of each row, among those of the tree."""
        return self.places() - self.trees.first

    def margins(self) -> Floats:
        """(n, k) what the model predicts."""
        step = self.trees.step[self.places()].reshape(len(self.choices), -1, len(self.sums.start))
        return np.asarray(self.sums.start + step.sum(1))

    def added(self, place: Ints, label: Ints) -> Floats:
        """(3, c, t) what a row adds to its leaves (c, t); its label is (c,) or (1,)."""
        trees = self.trees
        step = trees.step[place].reshape(len(place), -1, len(self.sums.start))  # (c, iterations, k)
        margins = self.sums.start + np.cumsum(step, axis=1) - step
        first, second = (part.reshape(place.shape) for part in self.sums.loss.slopes(margins, label))
        return np.stack([np.ones(place.shape), second, first + trees.tilt[place] * second]) * trees.known[:, place]

    def sweep(
        self,
        possible: list[Bools],
        heat: float,
        random: np.random.Generator,
        time_is_up: Callable[[], bool],
    ) -> bool:
        """Draw each cell once; False if time is up."""
        trees, place = self.trees, self.places()
        added = self.added(place, self.label)  # (3, n, t)
        left = trees.totals - [np.bincount(place.ravel(), part.ravel(), len(trees.step)) for part in added]
        weight = 1 / np.maximum((added**2).mean(1), SMALLEST) / heat  # (3, t)
        for row in random.permutation(len(place)):
            if time_is_up():
                return False
            for column in random.permutation(len(trees.masks)):
                options = np.flatnonzero(possible[column][row])
                if len(options) < 2:
                    continue
                left[:, place[row]] += added[:, row]
                words = trees.masks[column][options]
                for other, mask in enumerate(trees.masks):
                    if other != column:
                        words = words & mask[self.choices[row, other]]
                there = trees.places(words)  # (options, t)
                add = self.added(there, self.label[row : row + 1])
                # how much it adds to the sum of squares: ((left - add)^2 - left^2) / 2
                cost = np.einsum("qct,qt->c", add * (add / 2 - left[:, there]), weight)
                odds = np.cumsum(np.exp(cost.min() - cost))
                chosen = min(int(np.searchsorted(odds, random.random() * odds[-1])), len(options) - 1)
                self.choices[row, column], place[row], added[:, row] = options[chosen], there[chosen], add[:, chosen]
                left[:, place[row]] -= added[:, row]
        return True
