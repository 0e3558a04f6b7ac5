"""One solution of the equations, and which of its numbers are the same in every solution.

HiGHS finds a solution, which is checked in whole numbers. CP-SAT (extra `solver`) then looks for solutions that differ
from it, until it proves that there is none; it computes in whole numbers, so this is a proof.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize

from lostwax.attacks.whole_table.equations import Equations, NoTableError
from lostwax.fields import above, at_least, check_fields
from lostwax.games.trees import Bools, Floats, Ints

FIRST_TRY = 2.0  # seconds of a search for another solution; doubled when it was not enough
UPDATES = 100  # of the numbers that come close
INFEASIBLE = 2  # a status of scipy.optimize.milp


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
        rest, free = equations.open_part()
        if not len(free):
            return Solution(numbers, certain, solves=True, proven=True)
        found = a_solution(rest, None if likelihood is None else likelihood[free], self.seconds)
        if found is None:
            numbers[free] = near_solution(rest)
            return Solution(numbers, certain, solves=False, proven=False)
        numbers[free], proven = found, False
        if find_spec("ortools") is not None:
            certain[free], proven = Others(rest, found, self.workers, seed).same_in_all(self.seconds)
        return Solution(numbers, certain, solves=True, proven=proven)


def a_solution(equations: Equations, likelihood: Floats | None, seconds: float) -> Ints | None:
    """The likeliest solution, or any that was found in time; None if there was none."""
    found = optimize.milp(
        np.zeros(len(equations.low)) if likelihood is None else -likelihood,
        integrality=np.ones(len(equations.low)),
        bounds=optimize.Bounds(equations.low, equations.high),
        constraints=optimize.LinearConstraint(equations.matrix.astype(float), equations.totals, equations.totals),
        options={"time_limit": seconds},
    )
    if found.status == INFEASIBLE:
        raise NoTableError("No table has the counts of these trees.")
    if found.x is None:
        return None
    numbers = np.rint(found.x).astype(np.int64)
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
    return _rounded(np.clip(shares, equations.low, equations.high), equations.group, equations.members)


def _rounded(shares: Floats, group: Ints, members: Ints) -> Ints:
    """Whole numbers near shares that sum to the members of each group: the largest remainders are rounded up."""
    sums = np.bincount(group, shares, minlength=len(members))
    shares = shares * (members / np.maximum(sums, 1e-300))[group]
    numbers = np.floor(shares).astype(np.int64)
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
