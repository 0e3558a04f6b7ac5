"""How the rows of some places are shared among the leaves of a tree, by the sums that its leaves publish.

The rows of a place are alike: each adds the same numbers to a leaf. So a leaf is a knapsack: whole numbers of rows of
each place whose sums are known to rounding. Few rows and 20 bits per sum leave one solution, or a list of them
(`listing.py`). Lists of one leaf after the other narrow what is left for others. While all lists are complete, what all
solutions share is proven; otherwise likely ones are sought.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lostwax.attacks.whole_table.listing import solutions
from lostwax.games.trees import Bools, Floats, Ints

MAX_STEPS = 20_000  # of the search through the lists of all leaves
PROOF_SHARE = 2 / 3  # of the time, for complete lists


@dataclass(frozen=True)
class Knapsacks:
    """Whole numbers v (p, l) of rows of each place in each leaf, l leaves of a tree.

    sum_b v[i, b] = count[i], and |sum_i v[i, b] values[b, i] - totals[b]| <= rounding[b] + sum_i v[i, b] error[b, i].
    A number that is not known of a leaf has an infinite rounding.
    """

    count: Ints  # (p,)
    possible: Bools  # (p, l) rows of the place can be in the leaf
    values: Floats  # (l, p, q) what a row adds to each of q sums
    error: Floats  # (l, p, q)
    totals: Floats  # (l, q)
    rounding: Floats  # (l, q)


class Shares(NamedTuple):
    """All solutions, or some."""

    solutions: list[Ints]  # (p, l) each
    complete: bool  # there are no others
    low: Ints  # (p, l) at least as many rows are there in every solution
    high: Ints  # (p, l)


class _Bounds(NamedTuple):
    low: Ints  # (p, l)
    high: Ints  # (p, l)


class _NoSolutionError(Exception):
    """The bounds exclude every solution."""


def shares(knapsacks: Knapsacks, most: int, until: float, clock: Callable[[], float] = time.monotonic) -> Shares:
    """Up to `most` solutions, by the clock at most `until`: all of them, or otherwise likely ones."""
    high = np.where(knapsacks.possible, knapsacks.count[:, None], 0).astype(np.int64)
    bounds, lists = _Bounds(np.zeros_like(high), high), dict[int, Ints]()
    proof_until = clock() + PROOF_SHARE * max(until - clock(), 0.0)
    search = _Search(knapsacks, most, proof_until, clock, likely=False)
    with suppress(_NoSolutionError):
        bounds, lists = search.settled(bounds, lists)
        search.descend(bounds, lists)
    if search.complete or search.solutions:
        return Shares(search.solutions, search.complete, *bounds)
    search = _Search(knapsacks, most, until, clock, likely=True)
    with suppress(_NoSolutionError):
        search.descend(*search.settled(bounds, lists))
    return Shares(search.solutions, False, *bounds)


class _Search:
    def __init__(
        self, knapsacks: Knapsacks, most: int, until: float, clock: Callable[[], float], *, likely: bool
    ) -> None:
        self.problem, self.most, self.until, self.clock, self.likely = knapsacks, most, until, clock, likely
        self.solutions: list[Ints] = []
        self.complete, self.steps = True, 0

    def descend(self, bounds: _Bounds, lists: dict[int, Ints]) -> None:
        """Add all solutions within the bounds; `lists` has the solutions of leaves that could be listed."""
        self.steps += 1
        if len(self.solutions) >= self.most or self.steps > MAX_STEPS or self.clock() > self.until:
            self.complete = False
            return
        open_leaves = np.flatnonzero((bounds.low < bounds.high).any(0)).tolist()
        if not open_leaves:
            self.solutions.append(bounds.low)
            return
        listed = [leaf for leaf in open_leaves if leaf in lists]
        if not listed:
            self.complete = False
            return
        leaf = min(listed, key=lambda leaf: len(lists[leaf]))
        for solution in lists[leaf]:
            low, high = bounds.low.copy(), bounds.high.copy()
            low[:, leaf] = high[:, leaf] = solution
            with suppress(_NoSolutionError):
                self.descend(*self.settled(_Bounds(low, high), lists))

    def settled(self, bounds: _Bounds, lists: dict[int, Ints]) -> tuple[_Bounds, dict[int, Ints]]:
        """The bounds that follow from these, leaf by leaf, until nothing changes."""
        lists, tried = dict(lists), dict[int, float]()
        bounds = self.propagated(bounds)
        changed = True
        while changed and self.clock() < self.until:
            changed = False
            bits = np.log2(bounds.high - bounds.low + 1.0).sum(0)
            for leaf in np.argsort(bits, kind="stable").tolist():
                if not bits[leaf] or tried.get(leaf) == bits[leaf] or self.clock() > self.until:
                    continue
                tried[leaf] = float(bits[leaf])
                low, high = bounds.low[:, leaf], bounds.high[:, leaf]
                if leaf in lists:
                    known = lists[leaf]
                    lists[leaf] = known[((low <= known) & (known <= high)).all(1)]
                elif (numbers := self.listed(leaf, low, high)) is not None:
                    lists[leaf] = numbers
                else:
                    continue
                if not len(lists[leaf]):
                    raise _NoSolutionError
                least, greatest = lists[leaf].min(0), lists[leaf].max(0)
                if (least > low).any() or (greatest < high).any():
                    new = _Bounds(bounds.low.copy(), bounds.high.copy())
                    new.low[:, leaf], new.high[:, leaf] = least, greatest
                    bounds, changed = self.propagated(new), True
                    break
        return bounds, lists

    def propagated(self, bounds: _Bounds) -> _Bounds:
        """Bounds that single equations give, repeated."""
        problem, (low, high) = self.problem, bounds
        values, count = problem.values.transpose(1, 0, 2), problem.count[:, None]  # (p, l, q), (p, 1)
        error = problem.error.transpose(1, 0, 2)
        known, steep = np.isfinite(problem.rounding), np.abs(values) > 0
        for _ in range(100):
            new_low = np.maximum(low, count - (high.sum(1, keepdims=True) - high))
            new_high = np.minimum(high, count - (low.sum(1, keepdims=True) - low))
            if (new_low > new_high).any():
                raise _NoSolutionError
            slack = problem.rounding + (error * new_high[:, :, None]).sum(0)  # (l, q)
            least = np.where(values > 0, new_low[:, :, None], new_high[:, :, None]) * values
            greatest = np.where(values > 0, new_high[:, :, None], new_low[:, :, None]) * values
            above = np.where(known, problem.totals + slack - least.sum(0), np.inf)  # room above the least sum
            below = np.where(known, greatest.sum(0) - problem.totals + slack, np.inf)
            if (above < 0).any() or (below < 0).any():
                raise _NoSolutionError
            # a positive value: v <= low + above / value and v >= high - below / value; a negative one the other way
            size = np.where(steep, np.abs(values), 1.0)
            room, need = (np.where(steep & known, part / size, np.inf) for part in (above, below))
            span = (new_high - new_low)[:, :, None]
            room, need = (np.floor(np.minimum(part, span) + 1e-9) for part in (room, need))
            positive = values > 0
            top = np.where(positive, new_low[:, :, None] + room, new_low[:, :, None] + need).min(2).astype(np.int64)
            bottom = np.where(positive, new_high[:, :, None] - need, new_high[:, :, None] - room).max(2)
            new_high, new_low = np.minimum(new_high, top), np.maximum(new_low, bottom.astype(np.int64))
            if (new_low > new_high).any():
                raise _NoSolutionError
            if (new_low == low).all() and (new_high == high).all():
                break
            low, high = new_low, new_high
        return _Bounds(low, high)

    def listed(self, leaf: int, low: Ints, high: Ints) -> Ints | None:
        """(s, p) the solutions of one leaf; None if there may be too many."""
        problem, places = self.problem, np.flatnonzero(low < high)
        known = np.isfinite(problem.rounding[leaf])
        if not known.any():
            return None
        values = problem.values[leaf][:, known]
        target = problem.totals[leaf, known] - low @ values
        slack = problem.rounding[leaf, known] + high @ problem.error[leaf][:, known]
        listed = solutions(values[places], (high - low)[places], target, slack, likely=self.likely)
        if listed is None or not (listed.complete or len(listed.numbers)):
            return None
        self.complete &= listed.complete
        numbers = np.tile(low, (len(listed.numbers), 1))
        numbers[:, places] += listed.numbers
        return numbers
