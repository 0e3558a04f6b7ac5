"""Both ends of gamma(kappa) for T steps: the duality on the spread law, a feasible test on the merged one."""

from __future__ import annotations

import math

from lostwax.bounds.cells import Cells
from lostwax.bounds.composed import Composed, Enclosed, compose
from lostwax.bounds.logs import exp, log, log_add, log_one_minus
from lostwax.bounds.step_law import StepLaw
from lostwax.bounds.tilt import Aim


def log_upper_end(step: StepLaw, cells: Cells, aim: Aim, steps: int, log_kappa: float) -> tuple[float, float]:
    """min over c of delta(c) + exp(c) kappa, at one good c, in the spread law; and the loss at that c.

    gamma(kappa) <= delta_{mu||nu}(c) + exp(c) kappa for every real c (any event of null probability kappa gains at
    most that), and delta only grows when the law is spread. With L = T log b_0 + h S and mu = exp(L) nu,
        delta(c) + exp(c) kappa = escaped + mu(S > c) + exp(L_c) (kappa - nu(S > c))
                                = 1 - mu(S <= c) + exp(L_c) (kappa - nu(S > c)):
    the first form is sharp for a tilt above 1, the second below.
    """
    law = compose(cells.spread, steps, aim.tilt, aim.spacing, aim)
    c = law.crossing(log_kappa)
    log_null = law.log_size(c)
    loss = steps * step.log_least + aim.spacing * c
    log_scale = log_null + loss  # of mu at the threshold
    slack = _slack(steps * step.log_least)
    blind = exp(log_kappa - log_null)
    null = law.above(c, aim.tilt)
    if aim.tilt >= 1:
        hit = law.above(c, aim.tilt - 1)
        caught = max(hit.high - null.low + blind * (1 + 1e-12), 0.0)
        log_caught = log_scale + math.log(caught) if caught > 0 else -math.inf
        return log_add(log_caught, log(min(1.0, steps * cells.escaped))) + slack, loss
    missed = law.below(c, 1 - aim.tilt).low + null.low - blind * (1 + 1e-12)
    return (log_one_minus(log_scale + math.log(missed) - slack) if missed > 0 else 0.0), loss


def log_lower_end(cells: Cells, aim: Aim, steps: int, log_kappa: float) -> float:
    """The power of a test {S > c}, randomised between two thresholds so that its null probability is kappa."""
    null = compose(cells.merged_null, steps, aim.tilt, aim.spacing, aim)
    hit = compose(cells.merged, steps, aim.tilt - 1, aim.spacing, aim)
    c = null.crossing(log_kappa)
    for attempt in range(12):
        if _log_null_probability(null, c) <= log_kappa:
            break
        c += 1 << attempt  # not proved to be feasible: be stricter
    else:
        return -math.inf
    log_strict, log_lax = _log_null_probability(null, c), _log_null_probability(null, c - 1)
    power = _log_power(cells, hit, steps, c)
    laxer = max(power, _log_power(cells, hit, steps, c - 1))  # a larger event is at least as powerful
    if log_lax <= log_kappa:
        return laxer
    # share of the laxer test: (kappa - strict) / (lax - strict)
    share = math.expm1(log_strict - log_kappa) / math.expm1(log_strict - log_lax) * exp(log_kappa - log_lax)
    share = min(1.0, max(0.0, share * (1 - 1e-12)))
    return _mix(power, laxer, share)


def _log_null_probability(null: Composed, c: int) -> float:
    """An upper bound of log nu(S > c); what escaped the grid is never in the test."""
    log_size = null.log_size(c)
    return log_size + log(null.above(c, null.tilt).high) + _slack(log_size)


def _log_power(cells: Cells, hit: Composed, steps: int, c: int) -> float:
    """A lower bound of log mu(S > c)."""
    log_size = hit.log_size(c)
    if hit.tilt >= 0:
        return log_size + log(hit.above(c, hit.tilt).low) - _slack(log_size)
    missed: Enclosed = hit.below(c, -hit.tilt)
    log_missed = log_size + log(missed.high) + _slack(log_size)
    return log_one_minus(log_add(log_missed, log(min(1.0, steps * cells.escaped))))


def _mix(log_strict: float, log_lax: float, share: float) -> float:
    """log of (1 - share) exp(log_strict) + share exp(log_lax), rounded down, through the complements near 1."""
    if log_strict > -0.7:
        missed = -(1 - share) * math.expm1(log_strict) - share * math.expm1(log_lax)
        return math.log1p(-missed * (1 + 1e-15))
    return log_add(log_strict + log(1 - share), log_lax + log(share)) - 1e-15 * (1 + abs(log_strict))


def _slack(exponent: float) -> float:
    """Rounding of an exponent of this size, beyond what `Composed.relative` covers, added on the safe side."""
    return 1e-15 * (16 + abs(exponent))
