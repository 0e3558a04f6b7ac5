"""The ceiling as a function of the baseline, enclosed: what goals beyond one record are computed from."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from scipy.special import ndtr, ndtri

from lostwax.bounds.ceiling import Ceiling
from lostwax.bounds.step_law import Array

MARGIN = 1e-11  # relative, covers the rounding of slopes and sums
MOST = 40  # ceilings per answer
HIGHEST = 8.0  # deviations of a baseline
LOWEST = -37.0
CLOSE, CLOSEST = 1e-3, 5e-5  # deviations between two baselines


class Lines(NamedTuple):
    """gamma(k) <= height + slope k for every k, slopes ascending from 0."""

    slopes: Array
    heights: Array


class Interval(NamedTuple):
    """Both ends of a number."""

    low: float
    high: float


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
        known = [(ceiling.baseline, ceiling.lower, ceiling.upper) for ceiling in self.known]
        return np.array([(0.0, 0.0, 0.0), *known, (1.0, 1.0, 1.0)]).T

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
            found = z[0] - (wanted - logs[0])
        else:
            i = np.searchsorted(logs, wanted).clip(1, logs.size - 1)
            found = z[i - 1] + (z[i] - z[i - 1]) * (wanted - logs[i - 1]) / (logs[i] - logs[i - 1])
        return np.asarray(ndtr(found.clip(LOWEST, HIGHEST)))

    @cached_property
    def _slopes(self) -> list[tuple[float, float]]:
        """Log slopes, ascending, and where they are."""
        by_slope = {max(-700.0, one.log_slope or 0.0): float(ndtri(one.baseline)) for one in self.known}
        return sorted(by_slope.items())

    def refined(self, slope: float) -> Self:
        """With a point about where gamma has this slope, between the known points of steeper and of flatter slope.

        Close to one of them, twice as far from it: so that the slope lies between two points that are close. If it did
        not when that was last tried, because slopes are rounded, farther still.
        """
        wanted = math.log(slope)
        places = [(float(ndtri(one.baseline)), max(-700.0, one.log_slope or 0.0)) for one in self.known]
        steeper = [LOWEST, *(place for place, log in places if log > wanted)]  # ascending
        flatter = [*(place for place, log in places if log <= wanted), HIGHEST]
        left, right = max(steeper), min(flatter)
        middle = (left + right) / 2
        z = float(ndtri(self.touched(np.array([slope]))[0]))
        if not left < z < right:  # slopes are known up to rounding
            z = middle
        elif z - left < CLOSE:
            z = min(left + 2 * max(z - left, _last_step(steeper[::-1])), middle)
        elif right - z < CLOSE:
            z = max(right - 2 * max(right - z, _last_step(flatter)), middle)
        return self.with_points(float(ndtr(min(HIGHEST, max(LOWEST, z)))))


def _last_step(places: list[float]) -> float:
    """The distance of the first two, if they are close."""
    step = abs(places[0] - places[1]) if len(places) > 1 else 0.0
    return step if CLOSEST < step < CLOSE else CLOSEST


def widest_gap(curve: CeilingCurve, tolerance: float) -> Interval:
    """delta(1) = sup over k of gamma(k) - k; the upper end is sharp to about `tolerance`."""
    curve, one = curve.with_points(0.1, 0.4), np.ones(1)
    while True:
        high = min(1.0, float(curve.delta(one)[0]))
        low, reached = (float(ends[0]) for ends in curve.deltas_found(one))
        if high - reached <= tolerance or len(curve.known) >= MOST:
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
    while True:
        level = _shared(curve, p, number)
        q = curve.touched(level / p)
        high = min(_dual(curve, p, weight, level), _least_dual(curve, p, weight))
        shares = (q / max(1.0, float(number @ q) * (1 + MARGIN)), p * (1 - MARGIN))  # or in proportion to the prior
        low, reached = np.max([[float(weight @ ends) for ends in curve.chords(share)] for share in shares], axis=0)
        if high <= reached * (1 + tolerance) or len(curve.known) >= MOST:
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


def _shared(curve: CeilingCurve, p: Array, number: Array) -> float:
    """The level l = p_a gamma'(q_a), about the same for all a, at which the q_a add up to 1."""
    low, high = -100.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        many = float(number @ curve.touched(math.exp(middle) / p)) > 1
        low, high = (middle, high) if many else (low, middle)
    return math.exp(high)
