"""The loss of T independent steps on a window of the lattice, with every error bounded, and the ceiling it gives."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import logsumexp

from lostwax.bounds.ceiling import SMALLEST, Array, Ceiling
from lostwax.bounds.closed_forms import Interval, exp, log, log_add, log_one_minus
from lostwax.bounds.step_law import UNIT, CellTest, LossCells, LossLaw, Window

LARGEST = 2**21  # points of a transform: about 0.2 s each
ATTEMPTS = 6
WIDEST = 1.0  # cell, as a loss


@dataclass(frozen=True)
class Composed:
    """P[S = s] of the T-step loss S (in cells) after tilting: mass(s) = exp(tilt h s - log_scale) P[S = s].

    mass[i] belongs to s = start + i. It is the exact tilted law folded onto the window, up to `rounding`, a bound
    on the 2-norm of the transform's rounding error, and `relative`, the error of the masses that went in. `outside`
    bounds the tilted mass beyond the window, which is both what is missing here and what was folded in.
    """

    mass: Array
    start: int
    tilt: float
    spacing: float
    log_scale: float
    outside: float
    rounding: float
    relative: float

    def log_size(self, threshold: int) -> float:
        """Log of exp(log_scale - tilt h c), the scale of `above` and `below` at this threshold."""
        return self.log_scale - self.tilt * self.spacing * threshold

    def above(self, threshold: int, decay: float) -> Interval:
        """Sum over s > c of mass(s) exp(-decay h (s - c)), decay >= 0."""
        first = min(max(threshold + 1 - self.start, 0), self.mass.size)
        away = np.arange(self.start + first - threshold, self.start + self.mass.size - threshold)
        return self._enclose(self.mass[first:], np.exp(-decay * self.spacing * away))

    def below(self, threshold: int, decay: float) -> Interval:
        """Sum over s <= c of mass(s) exp(-decay h (c - s)), decay >= 0."""
        last = min(max(threshold + 1 - self.start, 0), self.mass.size)
        away = threshold - np.arange(self.start, self.start + last)
        return self._enclose(self.mass[:last], np.exp(-decay * self.spacing * away))

    def _enclose(self, part: Array, weight: Array) -> Interval:
        value = float(part @ weight)
        # |<w, error>| <= |w| |error|; the weights do not exceed 1 on either side of the window's edge.
        slack = self.outside + self.rounding * float(np.linalg.norm(weight))
        slack += abs(value) * (self.relative + UNIT * part.size)
        return Interval(max(0.0, value - slack), max(0.0, value + slack))

    def crossing(self, log_kappa: float) -> int:
        """The largest s at which P[S >= s] reaches kappa: a first guess, not certified."""
        rate = self.tilt * self.spacing
        origin = (self.log_scale - log_kappa) / rate if rate > 0 else float(self.start)
        scale = log_kappa - self.log_scale + rate * origin  # log of kappa in units of exp(log_scale - rate origin)
        s = np.arange(self.start, self.start + self.mass.size)
        weight = np.exp(np.clip(-rate * (s - origin), -700.0, 600.0))
        tail = np.cumsum((self.mass * weight)[::-1])
        reached = np.flatnonzero(tail >= math.exp(min(scale, 600.0)))
        return int(s[-1 - int(reached[0])]) if reached.size else self.start


def compose(law: LossLaw, steps: int, tilt: float, spacing: float, window: Window) -> Composed:
    """The law of T steps by one real transform, raised to the power T and turned back."""

    def log_moment(at: float) -> float:
        return float(logsumexp(law.log_mass + at * spacing * law.index))

    moment = log_moment(tilt)
    atoms = np.exp(law.log_mass + tilt * spacing * law.index - moment)  # the tilted law of one step
    centre = steps * float(atoms @ law.index)
    size = _transform_size((window.above + window.below) / spacing + 2)
    start = math.floor(centre - window.below / spacing)
    end = start + size
    # Chernoff: P[S >= end] <= exp(T (K(tilt + x) - K(tilt)) - x h end), and the same to the left.
    log_above = steps * (log_moment(tilt + window.slope_above) - moment) - window.slope_above * spacing * end
    log_below = steps * (log_moment(tilt - window.slope_below) - moment) + window.slope_below * spacing * start
    outside = math.exp(min(0.0, log_above)) + math.exp(min(0.0, log_below))

    folded = np.bincount(law.index % size, weights=atoms, minlength=size)
    transform = np.fft.rfft(folded)
    with np.errstate(divide="ignore"):
        power = np.exp(steps * np.log(np.abs(transform))) * np.exp(1j * (steps * np.angle(transform)))
    mass = np.roll(np.fft.irfft(power, size), -(start % size))

    # Every exponent that is formed here or from this law is at most T times this, and is right to 8 u of that.
    exponent = 1 + (1 + abs(tilt)) * spacing * float(law.index[-1]) + abs(moment)
    relative = math.expm1(min(steps * (law.relative + 8 * UNIT * exponent), 600.0))
    outside, error = min(1.0, outside * (1 + relative)), _rounding(folded, mass, steps)
    return Composed(mass, start, tilt, spacing, steps * moment, outside, error, relative)


def _rounding(folded: Array, mass: Array, steps: int) -> float:
    """2-norm of the rounding error of transform, power and inverse.

    A transform of n points errs by at most 8 u log2(n) of its norm (Higham, Accuracy and Stability, Theorem 24.2,
    has 7 u). |a^T - b^T| <= T |a - b| inside the unit disc; the power itself adds 26 T u of its modulus.
    """
    transform = 8 * UNIT * math.log2(mass.size)
    before, after = float(np.linalg.norm(folded)), float(np.linalg.norm(mass))
    return steps * transform * before + (26 * steps * UNIT + transform) * after + 4 * UNIT


def _transform_size(points: float) -> int:
    """The least of 2^m and 3 2^m that holds the window, within [1024, LARGEST]."""
    size = 1 << max(10, math.ceil(math.log2(min(points, float(LARGEST)))))
    return 3 * size // 4 if points <= 3 * size // 4 and size > 1024 else size


# Both ends of gamma(kappa) for T steps: the duality on the spread law, a feasible test on the cells.


def log_upper_end(cells: LossCells, window: Window, steps: int, log_kappa: float) -> tuple[float, float]:
    """min over c of delta(c) + exp(c) kappa, at one good c, in the spread law; and the loss at that c.

    gamma(kappa) <= delta_{mu||nu}(c) + exp(c) kappa for every real c (any event of null probability kappa gains at
    most that), and delta only grows when the law is spread. With L = T log b_0 + h S and mu = exp(L) nu,
        delta(c) + exp(c) kappa = escaped + mu(S > c) + exp(L_c) (kappa - nu(S > c))
                                = 1 - mu(S <= c) + exp(L_c) (kappa - nu(S > c)):
    the first form is sharp for a tilt above 1, the second below, where `surplus` is added to the 1.
    """
    law = compose(cells.spread, steps, window.tilt, window.spacing, window)
    c = law.crossing(log_kappa)
    log_null = law.log_size(c)
    loss = steps * cells.log_least + window.spacing * c
    log_scale = log_null + loss  # of mu at the threshold
    slack = _slack(steps * cells.log_least)
    blind = exp(log_kappa - log_null)
    null = law.above(c, window.tilt)
    if window.tilt >= 1:
        hit = law.above(c, window.tilt - 1)
        caught = max(hit.high - null.low + blind * (1 + 1e-12), 0.0)
        log_caught = log_scale + math.log(caught) if caught > 0 else -math.inf
        return log_add(log_caught, log(min(1.0, steps * cells.escaped))) + slack, loss
    missed = law.below(c, 1 - window.tilt).low + null.low - blind * (1 + 1e-12) - cells.surplus * exp(-log_scale)
    return (log_one_minus(log_scale + math.log(missed) - slack) if missed > 0 else 0.0), loss


def log_lower_end(seen: CellTest, window: Window, steps: int, log_kappa: float) -> float:
    """The power of a test {S > c}, randomised between two thresholds so that its null probability is kappa."""
    null = compose(seen.null, steps, window.tilt, window.spacing, window)
    hit = compose(seen.hit, steps, window.tilt - 1, window.spacing, window)
    c = null.crossing(log_kappa)
    for attempt in range(12):
        if _log_null_probability(null, c) <= log_kappa:
            break
        c += 1 << attempt  # not proved to be feasible: stricter
    else:
        return -math.inf
    log_strict, log_lax = _log_null_probability(null, c), _log_null_probability(null, c - 1)
    power = _log_power(seen, hit, steps, c)
    laxer = max(power, _log_power(seen, hit, steps, c - 1))  # a larger event is at least as powerful
    if log_lax <= log_kappa:
        return laxer
    # share of the laxer test: (kappa - strict) / (lax - strict)
    share = math.expm1(log_strict - log_kappa) / math.expm1(log_strict - log_lax) * exp(log_kappa - log_lax)
    return _mix(power, laxer, min(1.0, max(0.0, share * (1 - 1e-12))))


def _log_null_probability(null: Composed, c: int) -> float:
    """An upper bound of log nu(S > c); what escaped the grid is not in the test."""
    log_size = null.log_size(c)
    return log_size + log(null.above(c, null.tilt).high) + _slack(log_size)


def _log_power(seen: CellTest, hit: Composed, steps: int, c: int) -> float:
    """A lower bound of log mu(S > c)."""
    log_size = hit.log_size(c)
    if hit.tilt >= 0:
        return log_size + log(hit.above(c, hit.tilt).low) - _slack(log_size)
    log_missed = log_size + log(hit.below(c, -hit.tilt).high) + _slack(log_size)
    return log_one_minus(log_add(log_missed, log(min(1.0, steps * seen.missing))))


def _mix(log_strict: float, log_lax: float, share: float) -> float:
    """log of (1 - share) exp(log_strict) + share exp(log_lax), rounded down, through the complements near 1."""
    if log_strict > -0.7:
        missed = -(1 - share) * math.expm1(log_strict) - share * math.expm1(log_lax)
        return math.log1p(-missed * (1 + 1e-15))
    return log_add(log_strict + log(1 - share), log_lax + log(share)) - 1e-15 * (1 + abs(log_strict))


def _slack(exponent: float) -> float:
    """Rounding of an exponent of this size, beyond what `Composed.relative` covers, added on the safe side."""
    return 1e-15 * (16 + abs(exponent))


# Finer cells, until both ends meet.


def narrowed(
    ceiling: Ceiling,
    steps: int,
    tolerance: float,
    place: Callable[[float | None], Window],
    cut: Callable[[Window], LossCells],
) -> Ceiling:
    """A valid interval narrowed by both ends above, to a relative width of `tolerance` if that can be reached.

    `place` gives the window, for a threshold once that is known, and `cut` the cells of one step.
    """
    window = place(None)
    for _ in range(ATTEMPTS):
        window = fitted(window)
        cells = cut(window)
        low = log_lower_end(cells.seen, window, steps, ceiling.log_baseline)
        high, threshold = log_upper_end(cells, window, steps, ceiling.log_baseline)
        ceiling = _intersect(ceiling, low, high, threshold)
        width = ceiling.relative_width
        if width <= tolerance or max(window.below + window.above, window.span) / window.spacing > 0.7 * LARGEST:
            break
        again = place(threshold)
        if abs(again.mean - window.mean) * abs(again.tilt - window.tilt) <= 1:  # else the first guess was far off
            finer = min(0.7, max(1 / 16, 0.8 * math.sqrt(tolerance / width)))
            again = replace(again, spacing=window.spacing * finer)
        window = again
    return ceiling


def fitted(window: Window) -> Window:
    """Widen the cells until window and grid fit the largest transform, at most to `WIDEST`."""
    wide = max(window.spacing, max(window.below + window.above, window.span) / (LARGEST - 4))
    return replace(window, spacing=min(wide, WIDEST))


def _intersect(ceiling: Ceiling, log_low: float, log_high: float, log_slope: float) -> Ceiling:
    """The tighter end on each side; NaN is ignored. `log_slope` belongs to the new upper end."""
    low = ceiling.log_lower if math.isnan(log_low) else max(ceiling.log_lower, min(log_low, -SMALLEST))
    lower = log_high < ceiling.log_upper
    high = log_high if lower else ceiling.log_upper
    if low > high:
        crossed = f"The ends of a ceiling crossed (log lower {low}, log upper {high})."
        raise ArithmeticError(f"{crossed} This is a bug in lostwax: please report the arguments.")
    return replace(ceiling, log_lower=low, log_upper=high, log_slope=log_slope if lower else ceiling.log_slope)
