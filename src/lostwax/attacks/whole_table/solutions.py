"""Counts of leaves as linear equations on how many rows are in each place, and their solutions in whole numbers.

Every leaf tells the sum over the rows in it: of each class, and of all. What one equation bounds, it bounds in all
others; repeated, this alone often leaves one solution. Otherwise HiGHS finds one, which is checked in whole numbers.
CP-SAT (extra `solver`) then looks for solutions that differ from it, until it proves that there is none; it computes in
whole numbers, so this is a proof.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, sparse

from lostwax.attacks.whole_table.places import Candidates, CodedTree, RowGroups
from lostwax.fields import above, at_least, check_fields
from lostwax.games.trees import Bools, Floats, Ints

FIRST_TRY = 2.0  # seconds of a search for another solution; doubled when it was not enough
UPDATES = 100  # of the numbers that come close
INFEASIBLE = 2  # a status of scipy.optimize.milp


class NoTableError(ValueError):
    """No table has these counts."""

    def __init__(self) -> None:
        super().__init__("No table has the counts of these trees.")


@dataclass(frozen=True)
class Equations:
    """matrix @ numbers = totals for whole numbers between `low` and `high`."""

    matrix: sparse.csr_array  # (equations, v), not negative
    totals: Ints  # (equations,)
    low: Ints  # (v,)
    high: Ints  # (v,)
    group: Ints  # (v,) the group of rows that each number counts
    members: Ints  # (groups,) how many rows there are of each

    @classmethod
    def of(cls, trees: Sequence[CodedTree], groups: RowGroups, candidates: Candidates) -> Equations:
        """All equations that the leaves give."""
        members, group = groups.members, candidates.group
        blocks = [_sums(group, np.ones(len(group)), members)]
        for index, coded in enumerate(trees):
            tree, sums, leaf = coded.tree, coded.sums, candidates.leaves[:, index]
            share, weight = groups.share[:, index], groups.weight[:, index]
            ends = np.flatnonzero(tree.feature < 0)
            place = np.full(len(tree.feature), -1)
            place[ends] = np.arange(len(ends))
            kind = np.where(leaf >= 0, place[leaf] * sums.totals.shape[1] + candidates.label, -1)
            known = np.isfinite(sums.rounding[ends])
            totals = np.where(known[:, None], sums.totals[ends], np.nan).ravel()
            blocks.append(_sums(kind, weight[group], totals))
            if (share != weight).any():  # otherwise the totals of classes say the same
                sizes = np.where(np.isfinite(tree.rounding[ends]), tree.size[ends], np.nan)
                blocks.append(_sums(np.where(leaf >= 0, place[leaf], -1), share[group], sizes))
        matrix = sparse.vstack([matrix for matrix, _ in blocks], format="csr")
        high = members[group]
        return cls(matrix, np.concatenate([totals for _, totals in blocks]), np.zeros_like(high), high, group, members)

    def solved_by(self, numbers: Ints) -> bool:
        """Check a solution in whole numbers."""
        within = (self.low <= numbers).all() and (numbers <= self.high).all()
        return bool(within and (self.matrix @ numbers == self.totals).all())

    def propagated(self) -> Equations:
        """Bounds that follow from single equations, repeated until nothing changes."""
        by_equation, by_place = self.matrix, self.matrix.tocsc()
        equation_of = by_place.indices
        used = np.flatnonzero(np.diff(by_place.indptr))
        starts = by_place.indptr[used]
        low, high = self.low.copy(), self.high.copy()
        while True:
            above = self.totals - by_equation @ low  # what is left for all numbers beyond their lower bounds
            below = by_equation @ high - self.totals  # how far upper bounds go beyond the total
            if (above < 0).any() or (below < 0).any():
                raise NoTableError
            new_low, new_high = low.copy(), high.copy()
            most = np.minimum.reduceat(above[equation_of] // by_place.data, starts)
            least = np.minimum.reduceat(below[equation_of] // by_place.data, starts)
            new_high[used] = np.minimum(high[used], low[used] + most)
            new_low[used] = np.maximum(low[used], high[used] - least)
            if (new_low > new_high).any():
                raise NoTableError
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
        part = replace(
            self,
            matrix=matrix[used],
            totals=totals[used],
            low=self.low[free],
            high=self.high[free],
            group=self.group[free],
            members=self.members - counted,
        )
        return part, free


def _sums(equation: Ints, coefficient: Floats, totals: Floats | Ints) -> tuple[sparse.csr_array, Ints]:
    """Sums of coefficients over the places of each equation; -1: none. Totals that are not known are left out."""
    used = np.flatnonzero((equation >= 0) & (coefficient > 0))
    known: Bools = ~np.isnan(totals)
    counts, parts = np.rint(totals[known]).astype(np.int64), np.rint(coefficient[used]).astype(np.int64)
    if not np.allclose(counts, totals[known], atol=1e-3) or not np.allclose(parts, coefficient[used], atol=1e-3):
        raise ValueError("The trees hold weights, not counts: rows with sample weights cannot be counted.")
    shape = (len(totals), len(equation))
    matrix = sparse.csr_array((parts, (equation[used], used)), shape=shape, dtype=np.int64)
    return matrix[np.flatnonzero(known)], counts


class Solution(NamedTuple):
    """Whole numbers, one for each place."""

    numbers: Ints  # (v,)
    certain: Bools  # (v,) proven: every solution has this number here
    solves: bool  # they solve all equations; otherwise the search was stopped, and these come close
    proven: bool  # numbers that are not certain differ in another solution; otherwise the search was stopped


@dataclass(frozen=True)
class Search:
    """How long to search for a solution, and as long again for others."""

    seconds: float = 60.0
    workers: int = 2

    def __post_init__(self) -> None:
        check_fields(self, seconds=above(0), workers=at_least(1))

    def __call__(self, equations: Equations, likelihood: Floats | None = None, *, seed: int = 0) -> Solution:
        """A solution, or numbers that come close to one if the time was not enough.

        Of several, the one with the largest sum of `likelihood` (v,) over rows, if this is given.
        """
        equations = equations.propagated()
        numbers, certain = equations.low.copy(), equations.low == equations.high
        part, free = equations.open_part()
        if not len(free):
            return Solution(numbers, certain, solves=True, proven=True)
        first = a_solution(part, None if likelihood is None else likelihood[free], self.seconds)
        if first is None:
            numbers[free] = near_solution(part)
            return Solution(numbers, certain, solves=False, proven=False)
        numbers[free], proven = first, False
        if find_spec("ortools") is not None:
            certain[free], proven = Others(part, first, self.workers, seed).same_in_all(self.seconds)
        return Solution(numbers, certain, solves=True, proven=proven)


def a_solution(equations: Equations, likelihood: Floats | None, seconds: float) -> Ints | None:
    """The likeliest solution, or any that was found in time; None if there was none."""
    result = optimize.milp(
        np.zeros(len(equations.low)) if likelihood is None else -likelihood,
        integrality=np.ones(len(equations.low)),
        bounds=optimize.Bounds(equations.low, equations.high),
        constraints=optimize.LinearConstraint(equations.matrix.astype(float), equations.totals, equations.totals),
        options={"time_limit": seconds},
    )
    if result.status == INFEASIBLE:
        raise NoTableError
    if result.x is None:
        return None
    numbers = np.rint(result.x).astype(np.int64)
    return numbers if equations.solved_by(numbers) else None


def near_solution(equations: Equations) -> Ints:
    """Numbers with small errors in the equations, and none in the numbers of rows of each group.

    Shares are updated by the ratio of each total to the sum that they give (EM for Poisson counts); the rows of a group
    then go to its largest shares.
    """
    matrix = equations.matrix.astype(float)
    across, totals = matrix.T.tocsr(), equations.totals.astype(float)
    weight = across @ np.ones(len(totals))
    shares = equations.high.astype(float)
    for _ in range(UPDATES):
        sums = matrix @ shares
        shares *= across @ np.divide(totals, sums, out=np.zeros_like(totals), where=sums > 0) / weight
    # whole numbers near shares that sum to the members of each group: the largest remainders are rounded up
    shares, group, members = np.clip(shares, equations.low, equations.high), equations.group, equations.members
    sums = np.bincount(group, shares, minlength=len(members))
    shares = shares * (members / np.maximum(sums, 1e-300))[group]
    numbers: Ints = np.floor(shares).astype(np.int64)
    missing = members - np.bincount(group, numbers, minlength=len(members)).astype(np.int64)
    order = np.lexsort((numbers - shares, group))
    first = np.searchsorted(group[order], group[order])  # where the group begins
    numbers[order] += np.arange(len(order)) - first < missing[group[order]]
    return numbers


class Others:
    """Solutions that differ from a first one, by CP-SAT."""

    def __init__(self, equations: Equations, first: Ints, workers: int, seed: int) -> None:
        from ortools.sat.python import cp_model

        self.cp: Any = cp_model
        self.first, self.workers, self.seed = first, workers, seed
        self.model = model = cp_model.CpModel()
        bounds = zip(equations.low.tolist(), equations.high.tolist(), strict=True)
        self.numbers = [model.new_int_var(low, high, "") for low, high in bounds]
        matrix = equations.matrix
        for row, total in enumerate(equations.totals.tolist()):
            part = slice(matrix.indptr[row], matrix.indptr[row + 1])
            terms = [self.numbers[place] for place in matrix.indices[part]]
            model.add(cp_model.LinearExpr.weighted_sum(terms, matrix.data[part].tolist()) == total)
        self.differs = [model.new_bool_var("") for _ in first]
        for number, value, differs in zip(self.numbers, first.tolist(), self.differs, strict=True):
            model.add(number != value).only_enforce_if(differs)

    def same_in_all(self, seconds: float) -> tuple[Bools, bool]:
        """(v,) which numbers are the same in all solutions; False: no time to prove it, so none counts as such."""
        undecided = np.ones(len(self.first), dtype=bool)
        until, time_of_one = time.monotonic() + seconds, FIRST_TRY
        for number, value, differs in zip(self.numbers, self.first.tolist(), self.differs, strict=True):
            self.model.add_hint(number, value)
            self.model.add_hint(differs, False)
        while undecided.any():
            left = until - time.monotonic()
            if left <= 0:
                return np.zeros_like(undecided), False
            self.model.maximize(sum(self.differs[place] for place in np.flatnonzero(undecided)))
            search = self.cp.CpSolver()
            search.parameters.num_workers, search.parameters.random_seed = self.workers, self.seed
            search.parameters.max_time_in_seconds = min(time_of_one, left)
            status, still = search.solve(self.model), undecided
            if status in (self.cp.OPTIMAL, self.cp.FEASIBLE):  # otherwise its bound means nothing
                if search.best_objective_bound < 1:
                    return undecided, True
                another = np.array([search.value(number) for number in self.numbers])
                still = undecided & (another == self.first)
            if (still == undecided).all():
                time_of_one *= 2
            undecided = still
        return undecided, True
