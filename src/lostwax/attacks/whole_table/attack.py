"""Rebuild a whole table from a forest that was grown on it, with no row known.

DRAFT (Ferry et al., ICML 2024, "Trained Random Forests Completely Reveal your Dataset") solves for rows by constraint
programming. Here the unknowns are how many rows are in each place that the counts of all trees leave possible: few
places are left, equations on them are linear, and rows that no tree tells apart are one number, not a symmetry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from lostwax.attacks.whole_table.places import Candidates, CodedTree, Grid, RowGroups
from lostwax.attacks.whole_table.solutions import Equations, Search, Solution
from lostwax.fields import at_least, check_fields
from lostwax.games.trees import Bools, Floats, Forest, Ints

OTHER_VALUE = 0.1  # weight that the kernel gives to another value
MAX_PAIRS = 10_000_000  # of an open place and a settled row


class Followed(NamedTuple):
    """How many boosted trees were solved."""

    proven: int = 0  # with proof
    fits: int = 0  # have the sums of the rebuilt rows
    consistent: bool = True  # a table has the sums of each tree, as far as it was followed; otherwise nothing is proven


class RebuiltTable(NamedTuple):
    """A table with the counts of all trees; rows that all trees count alike are in any order."""

    x: Floats  # (n, d) a value for each cell; within its bounds where these differ
    low: Floats  # (n, d)
    high: Floats  # (n, d)
    labels: Ints | Floats  # (n,) class numbers; or targets
    certain: Bools  # (n, d) proven: the cell lies within its bounds in every table with these counts
    label_certain: Bools  # (n,)
    ordered: bool  # row i is row i of the table: no two rows were drawn equally often in all trees
    solves: bool  # the table has all counts; otherwise the search was stopped, and it comes close
    proven: bool  # cells that are not certain differ in another table; otherwise the search was stopped
    valued: bool = False  # `x` is the attack's guess in every cell, NaN without one; otherwise only of public values
    trees: Followed = Followed()

    @property
    def exact(self) -> Bools:
        """(n, d) cells that are certain and have one value."""
        return np.asarray(self.certain & (self.low == self.high))


@dataclass(frozen=True)
class WholeTable:
    """Cells that survive the counts of all trees, then whole numbers of rows in them that add up in every leaf."""

    search: Search = field(default_factory=Search)
    places: int | None = None  # that the counts may leave to a row, at most; None: as many as can be listed

    def __post_init__(self) -> None:
        check_fields(self, places=at_least(1))

    def __call__(
        self,
        forest: Forest,
        columns: int,
        *,
        values: Mapping[int, Floats] | None = None,
        one_hot: Sequence[Sequence[int]] = (),
        seed: int = 0,
    ) -> RebuiltTable:
        """A table of as many rows as the forest was grown on; `values` and `one_hot` are public."""
        grid = Grid.of(forest, columns, values, one_hot)
        trees = tuple(CodedTree.of(tree, grid) for tree in forest.trees)
        groups = RowGroups.of(trees)
        candidates = Candidates.of(trees, grid, groups, self.places)
        equations = Equations.of(trees, groups, candidates).propagated()
        solution = self.search(equations, likelihood(candidates, equations), seed=seed)
        return _table(grid, groups, candidates, solution)


def likelihood(candidates: Candidates, equations: Equations) -> Floats | None:
    """(v,) the log density of each open place among the rows that are settled, by the kernel of Aitchison and Aitken.

    None if it is of no use: nothing is open, or too much.
    """
    settled, open_places = np.flatnonzero(equations.low), np.flatnonzero(equations.low < equations.high)
    if not len(settled) or not 0 < len(open_places) * len(settled) <= MAX_PAIRS:
        return None
    cells = np.concatenate([candidates.boxes.low, candidates.boxes.high, candidates.label[:, None]], axis=1)
    differ = np.zeros((len(open_places), len(settled)))
    for column in cells.T:
        differ += column[open_places, None] != column[settled]
    density = (OTHER_VALUE / (1 - OTHER_VALUE)) ** differ @ equations.low[settled]
    scores = np.zeros(len(cells))
    scores[open_places] = np.log(density)
    return scores


def _table(grid: Grid, groups: RowGroups, candidates: Candidates, solution: Solution) -> RebuiltTable:
    """Rows from their numbers in each place."""
    place = np.empty(len(groups.number), dtype=np.intp)
    rows = np.argsort(groups.number, kind="stable")  # by group, as candidates are
    place[rows] = np.repeat(np.arange(len(candidates.group)), solution.numbers)
    boxes, group = candidates.boxes.at(place), candidates.group[place]
    low, high = grid.bounds(boxes)
    # a row is certain as a whole, or in what all open places have in common that rows of its group may be in
    parts = (candidates.boxes.low, candidates.boxes.high, candidates.label[:, None])
    same_low, same_high, same_label = (_same_in_group(part, candidates, solution, len(groups.share)) for part in parts)
    certain = solution.certain[place]
    return RebuiltTable(
        grid.guess(boxes),
        low,
        high,
        candidates.label[place],
        certain[:, None] | (same_low & same_high)[group],
        certain | same_label[group, 0],
        ordered=bool((groups.members == 1).all()),
        solves=solution.solves,
        proven=solution.proven,
    )


def _same_in_group(values: Ints, candidates: Candidates, solution: Solution, groups: int) -> Bools:
    """(groups, k) values (v, k) that are the same in all open places of a group."""
    open_places = np.flatnonzero(~solution.certain)
    group, values = candidates.group[open_places], values[open_places].astype(np.int64)
    least = np.full((groups, values.shape[1]), np.iinfo(np.int64).max)
    most = np.full((groups, values.shape[1]), np.iinfo(np.int64).min)
    np.minimum.at(least, group, values)
    np.maximum.at(most, group, values)
    return np.asarray(least == most)
