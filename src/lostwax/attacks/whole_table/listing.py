"""The whole numbers of some items whose sums are known: all of them, or the likely ones.

The most random numbers with these sums (maximum entropy) have chances P(v) ~ exp(-v @ values @ theta), item by item.
The cost of a number is how far the logarithm of its chance is below the greatest of its item; so all solutions cost the
same in total, the least that any combination of the sums can bound. Two halves of the items are listed within that
budget, and meet in the middle: the list is complete. Where it would be too long, budgets are cut, and what is left out
is unlikely; then rows that are alike are taken to go together more often than not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import special

from lostwax.games.trees import Bools, Floats, Ints

MAX_HALF = 1 << 22  # sums of one half of the items
MAX_PAIRS = 1 << 24  # of sums that agree in the first number
MAX_LISTED = 1 << 16  # solutions
BINS = 512  # of a budget, to count how many sums it allows
LIKELY = 0.5  # of all random numbers with these sums that a cut budget must keep
WORD = 64  # bits
NEWTON_STEPS, LONGEST, STEEPEST = 60, 3.0, 1e4  # ... of an item's exponent; of theta
RIDGE, CONVERGED, SUMMING = 1e-9, 1e-9, 1e-9


class Solutions(NamedTuple):
    """Whole numbers of items."""

    numbers: Ints  # (s, m)
    complete: bool  # there are no others


class _Half(NamedTuple):
    """Some of the items."""

    items: list[int]
    budget: float  # of what they may cost
    share: float  # of random numbers that are within it
    complete: bool  # all are


class _Listed(NamedTuple):
    sums: Floats  # (s, q)
    words: Ints  # (s, w) the number of each item, as bits
    bits: list[tuple[int, int]]  # of each item the word and the place where its bits begin


def solutions(values: Floats, most: Ints, target: Floats, slack: Floats, *, likely: bool = False) -> Solutions | None:
    """Whole numbers v with 0 <= v <= most (m,) and |v @ values - target| <= slack; values are (m, q).

    None if they are too many to list. `likely`: then a part that is likely to hold those that rows have.
    """
    number = np.arange(most.max() + 1)
    allowed = number <= most[:, None]
    theta, chances = _chances(values, np.where(allowed, 1.0, 0.0), target)
    power = np.where(allowed, -(values @ theta)[:, None] * number, -np.inf)
    budget = float(power.max(1).sum() + target @ theta + slack @ np.abs(theta))
    budget += SUMMING * (1 + float(np.abs(power[allowed]).max()) * len(most))
    if budget < 0:
        return Solutions(np.zeros((0, len(most)), dtype=np.int64), complete=True)
    cost = power.max(1, keepdims=True) - power  # (m, most + 1)
    halves = [_half(items, cost, chances, budget) for items in _in_two(chances)]
    if not (complete := all(half.complete for half in halves)):
        if not likely:
            return None
        left = np.where(allowed, most[:, None] - number, 0)
        together = np.where(allowed, np.exp(_log_odds(number) + _log_odds(left)), 0.0)
        _, chances = _chances(values, together, target)
        with np.errstate(divide="ignore"):
            cost = np.log(chances.max(1, keepdims=True)) - np.log(chances)
        halves = [_half(items, cost, chances, np.inf) for items in _in_two(chances)]
        if halves[0].share * halves[1].share < LIKELY:
            return None
    first, second = (_listed(half, values, cost, most) for half in halves)
    if (pairs := _pairs(first.sums, target - second.sums, slack)) is None:
        return None
    numbers = np.zeros((len(pairs[0]), len(most)), dtype=np.int64)
    for half, listed, chosen in zip(halves, (first, second), pairs, strict=True):
        for item, (word, bit) in zip(half.items, listed.bits, strict=True):
            numbers[:, item] = (listed.words[chosen, word] >> bit) & ((1 << int(most[item]).bit_length()) - 1)
    return Solutions(numbers, complete)


def _chances(values: Floats, weight: Floats, target: Floats) -> tuple[Floats, Floats]:
    """theta (q,) and the chances (m, k) of each number of each item, of weights (m, k) that are zero where none can."""
    item, number = np.nonzero(weight)
    first = np.searchsorted(item, np.arange(len(values)))
    chances = np.zeros(weight.shape)
    powers = values[item] * number[:, None]
    theta, chances[item, number] = most_random(powers, weight[item, number], first, np.ones(len(values)), target)
    return theta, chances


def _log_odds(number: Ints) -> Floats:
    """Of a place's rows, so many in a leaf: their share is drawn from Jeffreys' prior, Beta(1/2, 1/2)."""
    return np.asarray(special.gammaln(number + 0.5) - special.gammaln(number + 1.0))


def most_random(powers: Floats, weight: Floats, first: Ints, share: Floats, target: Floats) -> tuple[Floats, Floats]:
    """theta (q,), and the chances (k,) of points with the greatest entropy, by Newton's method.

    Groups of points begin at `first` (g,), and have a `share` (g,) of the chances. Beside their weights (k,), points
    have factors exp(-powers @ theta), with powers (k, q), so that chances @ powers is near the target (q,).
    """
    scale = np.maximum(np.abs(powers).max(0), np.finfo(float).tiny)
    x, total, size = powers / scale, target / scale, np.diff(np.append(first, len(powers)))

    def dual(theta: Floats) -> tuple[float, Floats]:
        power = np.log(weight) - x @ theta
        top = np.maximum.reduceat(power, first)
        odds = np.exp(power - np.repeat(top, size))
        whole = np.add.reduceat(odds, first)
        value = float(share @ (np.log(whole) + top) + theta @ total + RIDGE * theta @ theta)
        return value, odds * np.repeat(share / whole, size)

    theta = np.zeros(x.shape[1])
    value, chances = dual(theta)
    for _ in range(NEWTON_STEPS):
        mean = np.add.reduceat(x * chances[:, None], first) / share[:, None]
        apart = x - np.repeat(mean, size, axis=0)
        slope = total - chances @ x + 2 * RIDGE * theta
        step = -np.linalg.solve((apart * chances[:, None]).T @ apart + RIDGE * np.eye(len(theta)), slope)
        step *= min(1.0, LONGEST / max(float(np.abs(x @ step).max()), SUMMING))
        new, new_chances = dual(theta + step)
        while new > value and np.abs(step).max() > SUMMING:
            step /= 2
            new, new_chances = dual(theta + step)
        gain, theta, value, chances = value - new, theta + step, new, new_chances
        if gain < CONVERGED or np.abs(theta).max() > STEEPEST:  # steeper: no points have this target, or only one
            break
    return theta / scale, chances


def _in_two(chances: Floats) -> tuple[list[int], list[int]]:
    """Two halves of the items with about the same entropy."""
    entropy = -(chances * np.log2(np.maximum(chances, np.finfo(float).tiny))).sum(1)
    halves, sizes = (list[int](), list[int]()), [0.0, 0.0]
    for item in np.argsort(-entropy, kind="stable").tolist():
        smaller = int(sizes[1] < sizes[0])
        halves[smaller].append(item)
        sizes[smaller] += float(entropy[item])
    return halves


def _half(items: list[int], cost: Floats, chances: Floats, budget: float) -> _Half:
    """The largest part of the budget that allows no more than MAX_HALF sums."""
    finite = np.where(np.isfinite(cost[items]), cost[items], 0.0)
    step = max(min(budget, float(finite.max(1).sum())) / BINS, np.finfo(float).tiny)
    count, share = np.eye(1, BINS + 1)[0], np.eye(1, BINS + 1)[0]  # by cost, rounded down
    for item in items:
        new_count, new_share = np.zeros(BINS + 1), np.zeros(BINS + 1)
        for number in np.flatnonzero(cost[item] <= (BINS + 1) * step).tolist():
            moved = min(int(cost[item, number] / step), BINS)
            new_count[moved:] += count[: BINS + 1 - moved]
            new_share[moved:] += chances[item, number] * share[: BINS + 1 - moved]
        count, share = new_count, new_share
    last = int(np.searchsorted(np.cumsum(count), MAX_HALF, side="right")) - 1
    if last >= BINS:
        return _Half(items, budget, float(share.sum()), complete=True)
    return _Half(items, last * step, float(share[: last + 1].sum()), complete=False)


def _listed(half: _Half, values: Floats, cost: Floats, most: Ints) -> _Listed:
    """All numbers of the items of a half within its budget."""
    bits, word, bit = list[tuple[int, int]](), 0, 0
    for item in half.items:
        width = int(most[item]).bit_length()
        if bit + width >= WORD:
            word, bit = word + 1, 0
        bits.append((word, bit))
        bit += width
    sums, spent, words = np.zeros((1, values.shape[1])), np.zeros(1), np.zeros((1, word + 1), dtype=np.int64)
    dearest = np.where(np.isfinite(cost), cost, 0.0).max(1)[half.items]
    for index in np.argsort(-dearest, kind="stable"):
        item, (word, bit) = half.items[index], bits[index]
        parts = []
        for number in range(int(most[item]) + 1):
            within = np.flatnonzero(spent + cost[item, number] <= half.budget)
            more = words[within]
            more[:, word] |= number << bit
            parts.append((sums[within] + number * values[item], spent[within] + cost[item, number], more))
        sums, spent, words = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return _Listed(sums, words, bits)


def _pairs(first: Floats, wanted: Floats, slack: Floats) -> tuple[Ints, Ints] | None:
    """Which of the first sums (a, q) agree with which of the wanted ones (b, q); None: too many."""
    sharpest = int(np.argmin(slack / (np.ptp(first, axis=0) + np.finfo(float).tiny)))
    order, other = (np.argsort(sums[:, sharpest], kind="stable") for sums in (first, wanted))
    keys, sought = first[order, sharpest], wanted[other, sharpest]
    start = np.searchsorted(keys, sought - slack[sharpest], side="left")
    count = np.searchsorted(keys, sought + slack[sharpest], side="right") - start
    if (pairs := int(count.sum())) > MAX_PAIRS:
        return None
    b = np.repeat(other, count)
    a = order[np.repeat(start - (np.cumsum(count) - count), count) + np.arange(pairs)]
    agree: Bools = np.asarray((np.abs(first[a] - wanted[b]) <= slack).all(1))
    return (a[agree], b[agree]) if np.count_nonzero(agree) <= MAX_LISTED else None
