"""The ceiling as a function of the baseline, enclosed, and what follows for goals beyond one record."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from scipy.special import ndtr, ndtri

from lostwax.bounds.ceiling import Array, Ceiling
from lostwax.bounds.closed_forms import Interval, bisect, log_one_minus

MARGIN = 1e-11  # relative, covers the rounding of slopes and sums
MAX_CEILINGS = 40  # per answer
LOWEST_BASELINE, HIGHEST_BASELINE = -37.0, 8.0  # in deviations, as the next two
CLOSE, CLOSEST = 1e-3, 5e-5  # distance of two baselines
AROUND = np.linspace(-4.5, 4.5, 11)
SUM_ROUNDING = 1e-14  # of sums, relative to the sum of their terms' sizes
FLATTEST = 1e-9  # slopes beyond would only upset the solver


class Lines(NamedTuple):
    """gamma(k) <= height + slope k for every k, slopes ascending from 0."""

    slopes: Array
    heights: Array


@dataclass(frozen=True)
class CeilingCurve:
    """gamma(k) for k in [0, 1], concave, from its values at some baselines and a line above it through each.

    The height of the line of slope t is the hockey-stick divergence delta(t) = sup over k of gamma(k) - t k, or more.
    It is convex in t, so that between two known slopes a straight line lies above it.
    """

    at: Callable[[float], Ceiling]  # the ceiling of a log baseline
    known: tuple[Ceiling, ...] = ()

    def with_points(self, *baselines: float) -> Self:
        """With the ceilings of these baselines too."""
        new = tuple(self.at(math.log(baseline)) for baseline in baselines)
        ordered = sorted(self.known + new, key=lambda ceiling: ceiling.log_baseline)
        return type(self)(self.at, tuple(ordered))

    @cached_property
    def lines(self) -> Lines:
        """The lines of all known ceilings, and gamma <= 1."""
        slopes, heights = [0.0], [1.0]
        for ceiling in self.known:
            if ceiling.log_slope is None:  # a sampling of one's own may not state it
                continue
            slope = math.exp(min(700.0, ceiling.log_slope))
            slopes.append(slope * (1 + MARGIN))
            heights.append(max(0.0, ceiling.upper - slope * ceiling.baseline * (1 - MARGIN)))
        order = np.argsort(slopes, kind="stable")
        return Lines(np.array(slopes)[order], np.array(heights)[order])

    @cached_property
    def _points(self) -> Array:
        """(3, points): baselines, lower and upper ends; from (0, 0) to (1, 1)."""
        points = [(ceiling.baseline, ceiling.lower, ceiling.upper) for ceiling in self.known]
        return np.array([(0.0, 0.0, 0.0), *points, (1.0, 1.0, 1.0)]).T

    def delta(self, slopes: Array) -> Array:
        """Upper bounds of delta at these slopes."""
        return np.asarray(np.interp(slopes, *self.lines)) * (1 + MARGIN)

    def deltas_found(self, slopes: Array) -> tuple[Array, Array]:
        """gamma(k) - t k at the best of the known points, by lower ends and by upper ends."""
        at, low, high = self._points
        away = np.multiply.outer(slopes, at)
        return (low - away).max(-1), (high - away).max(-1)

    def chords(self, baselines: Array) -> tuple[Array, Array]:
        """Between the known points: through the lower ends, which gamma is never below, and through the upper ends."""
        at, low, high = self._points
        return np.interp(baselines, at, low) * (1 - MARGIN), np.interp(baselines, at, high)

    def touched(self, slopes: Array) -> Array:
        """About where gamma has these slopes: the log of the slope is taken to be linear in Phi^-1(k).

        It is for full batches. Only the number of points that are needed depends on it.
        """
        logs, z = (np.array(values) for values in zip(*self._slopes, strict=True))
        with np.errstate(divide="ignore"):
            wanted = np.log(slopes).clip(-700.0, 700.0)
        if logs.size == 1:
            at = z[0] - (wanted - logs[0])
        else:
            i = np.searchsorted(logs, wanted).clip(1, logs.size - 1)
            at = z[i - 1] + (z[i] - z[i - 1]) * (wanted - logs[i - 1]) / (logs[i] - logs[i - 1])
        return np.asarray(ndtr(at.clip(LOWEST_BASELINE, HIGHEST_BASELINE)))

    @cached_property
    def _places(self) -> list[tuple[float, float]]:
        """Baselines, ascending, in deviations, and log slopes."""
        return [(float(ndtri(ceiling.baseline)), max(-700.0, ceiling.log_slope or 0.0)) for ceiling in self.known]

    @cached_property
    def _slopes(self) -> list[tuple[float, float]]:
        """Log slopes, ascending, and where they are."""
        return sorted({log: place for place, log in self._places}.items())

    def refined(self, slope: float) -> Self:
        """With a point about where gamma has this slope, between the known points of steeper and of flatter slope.

        Close to one of them, twice as far from it: so that the slope lies between two points that are close. If it did
        not when that was last tried, because slopes are rounded, farther still.
        """
        wanted = math.log(slope)
        steeper = [LOWEST_BASELINE, *(place for place, log in self._places if log > wanted)]  # ascending
        flatter = [*(place for place, log in self._places if log <= wanted), HIGHEST_BASELINE]
        left, right = max(steeper), min(flatter)
        middle = (left + right) / 2
        z = float(ndtri(self.touched(np.array([slope]))[0]))
        if not left < z < right:  # slopes are known up to rounding
            z = middle
        elif z - left < CLOSE:
            z = min(left + 2 * max(z - left, _last_step(steeper[::-1])), middle)
        elif right - z < CLOSE:
            z = max(right - 2 * max(right - z, _last_step(flatter)), middle)
        return self.with_points(float(ndtr(min(HIGHEST_BASELINE, max(LOWEST_BASELINE, z)))))


def _last_step(places: list[float]) -> float:
    """The distance of the first two, if they are close."""
    step = abs(places[0] - places[1]) if len(places) > 1 else 0.0
    return step if CLOSEST < step < CLOSE else CLOSEST


def widest_gap(curve: CeilingCurve, tolerance: float) -> Interval:
    """delta(1) = sup over k of gamma(k) - k; the upper end is sharp to about `tolerance`."""
    curve, slope = curve.with_points(0.1, 0.4), np.ones(1)
    while True:
        high = min(1.0, float(curve.delta(slope)[0]))
        low, reached = (float(ends[0]) for ends in curve.deltas_found(slope))
        if high - reached <= tolerance or len(curve.known) >= MAX_CEILINGS:
            return Interval(min(low, high), high)
        curve = curve.refined(1.0)


def best_of_several(curve: CeilingCurve, prior: Array, tolerance: float) -> Interval:
    """max over q of sum_a p_a gamma(q_a), q being probabilities; the upper end is sharp to a share of `tolerance`.

    By duality it is the least, over l >= 0, of l + sum_a p_a delta(l / p_a); every l gives an upper end. The curve's
    first point is that of the likeliest answer.
    """
    p, number = np.unique(prior[prior > 0], return_counts=True)
    likeliest = float(p[-1])
    if p.size == 1:
        return Interval(curve.known[0].lower, curve.known[0].upper)
    curve = curve.with_points(float(p[0]) / 4, 1 - (1 - likeliest) / 4)
    weight = number * p

    def shared_level(curve: CeilingCurve) -> float:
        """The level l = p_a gamma'(q_a), about the same for all a, at which the q_a add up to 1."""
        return math.exp(bisect(-100.0, 100.0, lambda log: number @ curve.touched(math.exp(log) / p) > 1, 60).high)

    while True:
        level = shared_level(curve)
        q = curve.touched(level / p)
        high = min(_dual(curve, p, weight, level), _least_dual(curve, p, weight))
        shares = (q / max(1.0, float(number @ q) * (1 + MARGIN)), p * (1 - MARGIN))  # or in proportion to the prior
        low, reached = np.max([[float(weight @ ends) for ends in curve.chords(share)] for share in shares], axis=0)
        if high <= reached * (1 + tolerance) or len(curve.known) >= MAX_CEILINGS:
            return Interval(min(max(float(low), likeliest), high), high)
        gaps = weight * (curve.delta(level / p) - curve.deltas_found(level / p)[1])
        curve = curve.refined(level / float(p[int(gaps.argmax())]))


def _dual(curve: CeilingCurve, p: Array, weight: Array, level: float) -> float:
    """The upper end by this level."""
    return min(1.0, (level + float(weight @ curve.delta(level / p))) * (1 + MARGIN))


def _least_dual(curve: CeilingCurve, p: Array, weight: Array) -> float:
    """The least over the levels at which a known line is used: between them, the dual is linear."""
    levels = np.multiply.outer(p, curve.lines.slopes).ravel()
    if levels.size > 2000:
        levels = np.quantile(levels, np.linspace(0, 1, 2000))
    return min(_dual(curve, p, weight, float(level)) for level in levels)


def at_least(curve: CeilingCurve, baseline: float, k: int, n: int) -> float:
    """Upper bound of P[W >= k], W of the n secrets being rebuilt, each with a blind success of `baseline` at most.

    Let S_i be the event that secret i is rebuilt and that at least j - 1 of the others are. Without record i, its
    secret is independent of the release and of the others, so that S_i has at most kappa times the probability that at
    least j - 1 of the others are rebuilt. With it, an event of probability x has gamma(x) at most; without,
    g(x) = 1 - gamma^-1(1 - x) at most. All in all, with t_j = P[W >= j],
        E[W; W >= j] / n <= gamma(kappa g(t_j + (1 - (j - 1) / n) (t_(j-1) - t_j)))     for j = 1..n,
    the mean over i, as gamma and g are concave. (Mahloujifar et al. 2024, arXiv 2410.22235, have this for the
    replacement of a record, where gamma is larger and g is the identity.) The largest t_k under all of these, with
    straight lines above gamma and g, is a linear programme; the end that is returned holds by weak duality for
    whatever multipliers the solver finds.
    """
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    # Lines are drawn near the blind guess and over the whole range.
    places = np.concatenate([ndtri(baseline) + AROUND / 3, AROUND])
    curve = curve.with_points(*sorted({float(ndtr(max(z, LOWEST_BASELINE))) for z in places}))
    slopes, heights = curve.lines
    steep = (slopes > FLATTEST) & (slopes < 1 / FLATTEST)  # fewer lines are still above
    # Variables: t_0..t_n, u_1..u_n (u = kappa g), e_1..e_n (e = E[W; W >= j] / n).
    t, u, e = np.arange(n + 1), n + np.arange(1, n + 1), 2 * n + np.arange(1, n + 1)
    j = np.arange(1, n + 1)
    wrong = 1 - (j - 1) / n
    rows: list[tuple[list[tuple[Array, Array]], Array]] = []  # (columns, coefficients) <= limit
    rows.append(([(t[1:], np.ones(n)), (t[:-1], -np.ones(n))], np.zeros(n)))
    for slope, height in zip(slopes[steep], heights[steep], strict=True):
        # gamma(k) <= h + s k, so g(x) <= 1 - (1 - x - h) / s
        share = baseline / slope
        most = baseline * (1 - (1 - height) / slope)
        rows.append(([(u, np.ones(n)), (t[1:], share * (wrong - 1)), (t[:-1], -share * wrong)], np.full(n, most)))
        rows.append(([(e, np.ones(n)), (u, np.full(n, -slope))], np.full(n, height)))
    columns = np.concatenate([column for terms, _ in rows for column, _ in terms])
    values = np.concatenate([value for terms, _ in rows for _, value in terms])
    numbers = np.concatenate([np.arange(i * n, (i + 1) * n) for i, (terms, _) in enumerate(rows) for _ in terms])
    limits = np.concatenate([limit for _, limit in rows])
    size = 3 * n + 1
    upper = csr_array((values, (numbers, columns)), shape=(len(rows) * n, size))
    # e_j = e_(j+1) + (j / n) (t_j - t_(j+1)), and e_(n+1) = t_(n+1) = 0
    parts = [(j - 1, e, np.ones(n)), (j[:-1] - 1, e[1:], -np.ones(n - 1))]
    parts += [(j - 1, t[1:], -j / n), (j[:-1] - 1, t[2:], j[:-1] / n)]
    equal = csr_array(
        (
            np.concatenate([value for _, _, value in parts]),
            (np.concatenate([row for row, _, _ in parts]), np.concatenate([column for _, column, _ in parts])),
        ),
        shape=(n, size),
    )
    gain = np.zeros(size)
    gain[k] = 1.0
    largest = np.concatenate([np.ones(n + 1), np.full(n, baseline), np.ones(n)])
    optimum = linprog(-gain, upper, limits, equal, np.zeros(n), np.column_stack([np.zeros(size), largest]), "highs")
    if optimum.status != 0:
        return 1.0
    y, w = np.maximum(0.0, -optimum.ineqlin.marginals), -optimum.eqlin.marginals
    left = gain - upper.T @ y - equal.T @ w
    bound = float(y @ limits) + float(np.maximum(left, 0.0) @ largest)
    sizes = float(y @ np.abs(limits)) + float((abs(upper).T @ y + abs(equal).T @ np.abs(w)).sum())
    return min(1.0, bound + SUM_ROUNDING * (1 + sizes))


def log_most_informed(log_blind: float, nats: float) -> float:
    """Upper bound of log P[A], for an event A of secrets and guesses that a blind guess reaches with this probability.

    The release says `nats` about all n secrets at most: for independent ones I(all; release) is the sum of
    I(i; release | those before), and each term is at most I(i; release | all others). What is known of A is no more:
        p log(p / b) + (1 - p) log((1 - p) / (1 - b)) <= nats,  b the blind guess.
    """
    if -log_blind <= nats:
        return 0.0
    budget = nats * (1 + SUM_ROUNDING) + SUM_ROUNDING * (1 + abs(log_blind))
    log_blind_miss = log_one_minus(log_blind)

    def is_within(log_p: float) -> bool:
        p, log_miss = math.exp(log_p), log_one_minus(log_p)
        known = p * (log_p - log_blind) + (1 - p) * (log_miss - log_blind_miss) if log_p < 0 else -log_blind
        return known <= budget * (1 + 1e-12)

    return bisect(log_blind, 0.0, is_within, 200).high
