"""Counts of leaves as linear equations on how many rows are in each place, in whole numbers.

Every leaf tells the sum over the rows in it: of each class, and of all. What one equation bounds, it bounds in all
others; repeated, this alone often leaves one solution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from lostwax.attacks.whole_table.survivors import Candidates, CodedTree, RowGroup
from lostwax.games.trees import Bools, Floats, Ints


class NoTableError(ValueError):
    """No table has these counts."""


@dataclass(frozen=True)
class Equations:
    """matrix @ numbers = totals for whole numbers between `low` and `high`."""

    matrix: sparse.csr_array  # (equations, v), not negative
    totals: Ints  # (equations,)
    low: Ints  # (v,)
    high: Ints  # (v,)
    group: Ints  # (v,) the group of rows that each number counts
    members: Ints  # (groups,) how many rows there are of each

    def solved_by(self, numbers: Ints) -> bool:
        """Check a solution in whole numbers."""
        within = (self.low <= numbers).all() and (numbers <= self.high).all()
        return bool(within and (self.matrix @ numbers == self.totals).all())

    def propagated(self) -> Equations:
        """Bounds that follow from single equations, repeated until nothing changes."""
        by_equation, by_place = self.matrix, self.matrix.tocsc()
        equation_of = by_place.indices
        filled = np.flatnonzero(np.diff(by_place.indptr))
        starts = by_place.indptr[filled]
        low, high = self.low.copy(), self.high.copy()
        while True:
            above = self.totals - by_equation @ low  # what is left for all numbers beyond their lower bounds
            below = by_equation @ high - self.totals  # how far upper bounds go beyond the total
            if (above < 0).any() or (below < 0).any():
                raise NoTableError("No table has the counts of these trees.")
            new_low, new_high = low.copy(), high.copy()
            most = np.minimum.reduceat(above[equation_of] // by_place.data, starts)
            least = np.minimum.reduceat(below[equation_of] // by_place.data, starts)
            new_high[filled] = np.minimum(high[filled], low[filled] + most)
            new_low[filled] = np.maximum(low[filled], high[filled] - least)
            if (new_low > new_high).any():
                raise NoTableError("No table has the counts of these trees.")
            if (new_low == low).all() and (new_high == high).all():
                return replace(self, low=low, high=high)
            low, high = new_low, new_high

    def open_part(self) -> tuple[Equations, Ints]:
        """The equations on numbers that are not settled yet, and which these are."""
        free = np.flatnonzero(self.low < self.high)
        matrix = self.matrix[:, free]
        used = np.flatnonzero(np.diff(matrix.indptr))
        settled = np.where(self.low == self.high, self.low, 0)
        totals = self.totals - self.matrix @ settled
        counted = np.bincount(self.group, settled, minlength=len(self.members)).astype(np.int64)
        rest = replace(
            self,
            matrix=matrix[used],
            totals=totals[used],
            low=self.low[free],
            high=self.high[free],
            group=self.group[free],
            members=self.members - counted,
        )
        return rest, free


def equations_of(trees: Sequence[CodedTree], groups: Sequence[RowGroup], candidates: Candidates) -> Equations:
    """All equations that the leaves give."""
    places = np.arange(len(candidates.group))
    share = np.stack([group.share for group in groups])  # (groups, trees)
    weight = np.stack([group.weight for group in groups])
    members = np.array([len(group.rows) for group in groups])
    blocks = [_sums(candidates.group, np.ones(len(places)), members)]
    for index, coded in enumerate(trees):
        tree, leaf = coded.tree, candidates.leaves[:, index]
        sums, classes = coded.sums, coded.classes
        ends = np.flatnonzero(tree.feature < 0)
        place = np.full(len(tree.feature), -1)
        place[ends] = np.arange(len(ends))
        kind = np.where(leaf >= 0, place[leaf] * classes + candidates.label, -1)
        known = np.isfinite(sums.rounding[ends])
        totals = np.where(known[:, None], sums.totals[ends], np.nan).ravel()
        blocks.append(_sums(kind, weight[candidates.group, index], totals))
        if (share[:, index] != weight[:, index]).any():  # otherwise the totals of classes say the same
            sizes = np.where(np.isfinite(tree.rounding[ends]), tree.size[ends], np.nan)
            blocks.append(_sums(np.where(leaf >= 0, place[leaf], -1), share[candidates.group, index], sizes))
    matrix = sparse.vstack([block[0] for block in blocks], format="csr")
    totals = np.concatenate([block[1] for block in blocks])
    high = members[candidates.group]
    return Equations(matrix, totals, np.zeros_like(high), high, candidates.group, members)


def _sums(equation: Ints, coefficient: Floats, totals: Floats | Ints) -> tuple[sparse.csr_array, Ints]:
    """Sums of coefficients over the places of each equation; -1: none. Totals that are not known are left out."""
    used = np.flatnonzero((equation >= 0) & (coefficient > 0))
    known: Bools = ~np.isnan(totals)
    whole, parts = np.rint(totals[known]).astype(np.int64), np.rint(coefficient[used]).astype(np.int64)
    if not np.allclose(whole, totals[known], atol=1e-3) or not np.allclose(parts, coefficient[used], atol=1e-3):
        raise ValueError("The trees hold weights, not counts: rows with sample weights cannot be counted.")
    shape = (len(totals), len(equation))
    matrix = sparse.csr_array((parts, (equation[used], used)), shape=shape, dtype=np.int64)
    return matrix[np.flatnonzero(known)], whole
