"""Solutions of equations in whole numbers, against all of them."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from lostwax.attacks.whole_table import solutions
from lostwax.attacks.whole_table.solutions import Equations, NoTableError, Search


def random_equations(seed, places=7, equations=4):
    """Two groups of rows, and sums that some numbers have."""
    rng = np.random.default_rng(seed)
    group = np.sort(rng.integers(2, size=places))
    group[0], group[-1] = 0, 1
    matrix = rng.integers(3, size=(equations, places))
    members = rng.integers(1, 3, size=2)
    numbers = np.zeros(places, dtype=int)
    for one in range(2):
        np.add.at(numbers, rng.choice(np.flatnonzero(group == one), size=members[one]), 1)
    whole = np.concatenate([group == np.arange(2)[:, None], matrix]).astype(np.int64)
    return Equations(
        sparse.csr_array(whole), whole @ numbers, np.zeros(places, dtype=np.int64), members[group], group, members
    )


def every_solution(equations):
    tables = np.array(list(product(*[range(high + 1) for high in equations.high])))
    return tables[(tables @ equations.matrix.toarray().T == equations.totals).all(1)]


@pytest.mark.parametrize("seed", range(30))
def test_certain_numbers_are_those_of_every_solution(seed):
    equations = random_equations(seed)
    tables, found = every_solution(equations), Search(seconds=5)(equations)
    assert found.solves
    assert found.proven
    assert (tables == found.numbers).all(1).any()
    np.testing.assert_array_equal(found.certain, (tables == tables[0]).all(0))


@pytest.mark.parametrize("seed", range(10))
def test_bounds_hold_every_solution(seed):
    equations = random_equations(seed)
    bounded, tables = equations.propagated(), every_solution(equations)
    assert (bounded.low <= tables).all()
    assert (tables <= bounded.high).all()


def test_a_search_that_was_stopped_proves_nothing_more():
    """Without time for CP-SAT, only what the bounds settle is certain."""
    for seed in range(10):
        equations = random_equations(seed, equations=2)
        found, bounded = Search(seconds=1e-9)(equations), equations.propagated()
        tables = every_solution(equations)
        assert not (found.certain & ~(tables == tables[0]).all(0)).any()
        assert found.certain[bounded.low == bounded.high].all()


class StoppedSolver:
    """CP-SAT without time: it knows nothing, and its bound is what it happens to be."""

    best_objective_bound = 0.0

    def __init__(self):
        self.parameters = SimpleNamespace()

    def solve(self, model):
        return UNKNOWN


UNKNOWN = 0


def open_equations(seed):
    """Equations that bounds alone do not settle, and a solution of them."""
    rest, free = random_equations(seed, equations=2).propagated().open_part()
    return (rest, solutions.a_solution(rest, None, 5.0)) if len(free) else None


OPEN = [one for seed in range(20) if (one := open_equations(seed)) is not None]


def test_without_an_answer_of_the_solver_nothing_is_certain():
    """Whatever its bound says: a solver that was stopped has proven nothing."""
    pytest.importorskip("ortools")
    assert OPEN
    for equations, first in OPEN[:3]:
        others = solutions.Others(equations, first, workers=1, seed=0)
        others.cp = SimpleNamespace(OPTIMAL=4, FEASIBLE=2, CpSolver=StoppedSolver)
        certain, proven = others.same_in_all(seconds=0.05)
        assert not certain.any()
        assert not proven


@pytest.mark.parametrize("seconds", [0.0, 1e-6, 0.01])
def test_a_solver_that_is_stopped_early_claims_nothing_that_is_not_so(monkeypatch, seconds):
    pytest.importorskip("ortools")
    monkeypatch.setattr(solutions, "FIRST_TRY", 1e-6)
    for equations, first in OPEN:
        certain, proven = solutions.Others(equations, first, workers=1, seed=0).same_in_all(seconds)
        tables = every_solution(equations)
        assert not (certain & ~(tables == tables[0]).all(0)).any()
        assert proven or not certain.any()


def test_what_comes_close_keeps_the_number_of_rows_and_what_is_settled(monkeypatch):
    monkeypatch.setattr(solutions, "a_solution", lambda *_: None)  # no time for one
    stopped = 0
    for seed in range(30):
        equations = random_equations(seed, equations=2)
        found, bounded, tables = Search()(equations), equations.propagated(), every_solution(equations)
        stopped += not found.solves
        np.testing.assert_array_equal(np.bincount(equations.group, found.numbers), equations.members)
        settled = bounded.low == bounded.high
        np.testing.assert_array_equal(found.numbers[settled], bounded.low[settled])
        assert (tables == found.numbers)[:, found.certain].all()
    assert stopped > 5


def test_counts_that_no_table_has_are_an_error():
    equations = random_equations(0)
    wrong = Equations(
        equations.matrix,
        equations.totals + np.array([0, 0, 1, 50, 0, 0]),
        equations.low,
        equations.high,
        equations.group,
        equations.members,
    )
    with pytest.raises(NoTableError, match="No table"):
        Search()(wrong)
