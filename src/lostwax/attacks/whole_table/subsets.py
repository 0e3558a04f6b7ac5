"""How the rows of some places are shared among the leaves of a tree, by the sums that its leaves publish.

The rows of a place are alike: each adds the same numbers to a leaf. So a leaf is a knapsack: whole numbers of rows of
each place whose sums are known to rounding. Few rows and 20 bits per sum leave one solution. It is found by listing the
sums of two halves of the places and meeting in the middle; the list is complete, so what all solutions share is proven.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lostwax.games.trees import Bools, Floats, Ints

MAX_HALF = 1 << 21  # sums of one half of the places
MAX_FEW = 16  # rows of a leaf, to list its solutions by how many rows they have
MAX_PAIRS = 1 << 23  # of sums that agree in the first number
MAX_LISTED = 1 << 16  # solutions of one leaf that are kept
MAX_BRANCHED = 10  # bits by which a leaf may be too large to be listed at once
MAX_STEPS = 20_000  # of the search through the lists of all leaves


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
    """Up to `most` solutions, by the clock at most `until`."""
    search = _Search(knapsacks, most, until, clock)
    high = np.where(knapsacks.possible, knapsacks.count[:, None], 0).astype(np.int64)
    bounds = _Bounds(np.zeros_like(high), high)
    with suppress(_NoSolutionError):
        bounds, lists = search.settled(bounds, {})
        search.descend(bounds, lists)
    return Shares(search.solutions, search.complete, *bounds)


class _Search:
    def __init__(self, knapsacks: Knapsacks, most: int, until: float, clock: Callable[[], float]) -> None:
        self.problem, self.most, self.until, self.clock = knapsacks, most, until, clock
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
        branches = self.listed_branches(bounds, lists, listed) if listed else self.halves(bounds)
        for branch in branches:
            with suppress(_NoSolutionError):
                self.descend(*self.settled(branch, lists))

    def listed_branches(self, bounds: _Bounds, lists: dict[int, Ints], listed: list[int]) -> Iterator[_Bounds]:
        """One for each solution of the leaf that has fewest."""
        leaf = min(listed, key=lambda leaf: len(lists[leaf]))
        for solution in lists[leaf]:
            low, high = bounds.low.copy(), bounds.high.copy()
            low[:, leaf] = high[:, leaf] = solution
            yield _Bounds(low, high)

    def halves(self, bounds: _Bounds) -> Iterator[_Bounds]:
        """Both halves of what is possible for one number, in a leaf that is nearly small enough to be listed."""
        bits = np.log2(bounds.high - bounds.low + 1.0).sum(0)
        leaf = int(np.argmin(np.where(bits > 0, bits, np.inf)))
        if bits[leaf] > 2 * np.log2(MAX_HALF) + MAX_BRANCHED:
            self.complete = False
            return
        place = int(np.argmax(bounds.high[:, leaf] - bounds.low[:, leaf]))
        middle = (bounds.low[place, leaf] + bounds.high[place, leaf]) // 2
        for start, end in ((bounds.low[place, leaf], middle), (middle + 1, bounds.high[place, leaf])):
            low, high = bounds.low.copy(), bounds.high.copy()
            low[place, leaf], high[place, leaf] = start, end
            yield _Bounds(low, high)

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
                elif (solutions := self.listed(leaf, low, high)) is not None:
                    lists[leaf] = solutions
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
        """(s, p) every solution of one leaf; None if there may be too many."""
        problem, places = self.problem, np.flatnonzero(low < high)
        known = np.isfinite(problem.rounding[leaf])
        if not known.any():
            return None
        values = problem.values[leaf][:, known]
        target = problem.totals[leaf, known] - low @ values
        slack = problem.rounding[leaf, known] + high @ problem.error[leaf][:, known]
        upright = np.flatnonzero((values[places] > 0).all(0))
        positive = int(upright[0]) if len(upright) else None
        found = subset_sums(values[places], (high - low)[places], target, slack, positive)
        if found is None:
            return None
        solutions = np.tile(low, (len(found), 1))
        solutions[:, places] += found
        return solutions


def subset_sums(values: Floats, most: Ints, target: Floats, slack: Floats, positive: int | None) -> Ints | None:
    """(s, m) all whole numbers v with 0 <= v <= most and |v @ values - target| <= slack; None: too many to list.

    `positive` is a column whose values are all positive.
    """
    halves, sizes = (list[int](), list[int]()), [1, 1]
    for item in np.argsort(-most, kind="stable").tolist():
        smaller = int(sizes[1] < sizes[0])
        halves[smaller].append(item)
        sizes[smaller] *= int(most[item]) + 1
    if max(sizes) > MAX_HALF:
        return None if positive is None else few_of_many(values, most, target, slack, positive)
    first, second = (_all_sums(values[half], most[half]) for half in halves)
    if (pairs := _pairs(first, target - second, slack)) is None:
        return None
    solutions = np.zeros((len(pairs[0]), len(most)), dtype=np.int64)
    for half, number in zip(halves, pairs, strict=True):
        for item in half:  # the first item of a half counts fastest
            number, solutions[:, item] = np.divmod(number, int(most[item]) + 1)
    return solutions


def few_of_many(values: Floats, most: Ints, target: Floats, slack: Floats, positive: int) -> Ints | None:
    """The same where few of the items are used: the first half of a solution's items, in order, and the others."""
    room = target[positive] + slack[positive]
    heights = np.sort(np.repeat(values[:, positive], most))
    longest = int(np.searchsorted(np.cumsum(heights), room, side="right"))  # items that fit at once
    half = (longest + 1) // 2
    if longest == 0:
        return np.zeros((int((np.abs(target) <= slack).all()), len(most)), dtype=np.int64)
    if longest > MAX_FEW:
        return None
    # chosen items never go back; each table has (c, items) with -1 for none
    chosen, sums, lists = np.empty((1, 0), dtype=np.int16), np.zeros((1, values.shape[1])), []
    for _ in range(half):
        lists.append((chosen, sums))
        last = chosen[:, -1].astype(np.int64) if chosen.shape[1] else np.zeros(1, dtype=np.int64)
        extend = len(values) - last
        if int(extend.sum()) > 4 * MAX_HALF:
            return None
        origin = np.repeat(np.arange(len(last)), extend)
        item = last[origin] + np.arange(len(origin)) - np.repeat(np.cumsum(extend) - extend, extend)
        fits = sums[origin, positive] + values[item, positive] <= room
        origin, item = origin[fits], item[fits]
        used = (chosen[origin] == item[:, None]).sum(1) < most[item]
        origin, item = origin[used], item[used]
        if len(origin) > MAX_HALF:
            return None
        chosen = np.concatenate([chosen[origin], item[:, None].astype(np.int16)], axis=1)
        sums = sums[origin] + values[item]
    lists.append((chosen, sums))
    found = []
    for size, (items, part) in enumerate(lists):  # fewer than half of the items: alone
        if size < half:
            alone = (np.abs(part - target) <= slack).all(1)
            found.append(_numbers(items[alone], len(most)))
    for items, part in lists[: longest - half + 1]:
        if (pairs := _pairs(sums, target - part, slack)) is None:
            return None
        a, b = pairs
        if items.shape[1]:
            follow = chosen[a, -1] <= items[b, 0]
            a, b = a[follow], b[follow]
        both = _numbers(np.concatenate([chosen[a], items[b]], axis=1), len(most))
        found.append(both[(both <= most).all(1)])
    return np.concatenate(found)


def _numbers(items: Ints, count: int) -> Ints:
    """(s, items) how often each item is among some (s, k)."""
    numbers = np.zeros((len(items), count), dtype=np.int64)
    for column in items.T:
        numbers[np.arange(len(items)), column] += 1
    return numbers


def _pairs(first: Floats, wanted: Floats, slack: Floats) -> tuple[Ints, Ints] | None:
    """Which of the first sums (a, q) agree with which of the wanted ones (b, q); None: too many."""
    sharpest = int(np.argmin(slack / (np.abs(first).max(0) + 1e-300)))
    order = np.argsort(first[:, sharpest], kind="stable")
    keys = first[order, sharpest]
    start = np.searchsorted(keys, wanted[:, sharpest] - slack[sharpest], side="left")
    count = np.searchsorted(keys, wanted[:, sharpest] + slack[sharpest], side="right") - start
    if (pairs := int(count.sum())) > MAX_PAIRS:
        return None
    b = np.repeat(np.arange(len(wanted)), count)
    a = order[np.repeat(start - (np.cumsum(count) - count), count) + np.arange(pairs)]
    agree = (np.abs(first[a] - wanted[b]) <= slack).all(1)
    return (a[agree], b[agree]) if np.count_nonzero(agree) <= MAX_LISTED else None


def _all_sums(values: Floats, most: Ints) -> Floats:
    """(sums, q) of all whole numbers of each item, the first counting fastest."""
    sums = np.zeros((1, values.shape[1]))
    for value, times in zip(values, most.tolist(), strict=True):
        sums = (np.arange(times + 1)[:, None, None] * value + sums).reshape(-1, values.shape[1])
    return sums
