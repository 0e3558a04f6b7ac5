"""How many of n independent records any attack can rebuild from one release."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr, ndtri

from lostwax.bounds.closed_forms import log_one_minus
from lostwax.bounds.curve import LOWEST, CeilingCurve
from lostwax.bounds.step_law import Array

ROUNDING = 1e-14  # of the sums below, relative to the sum of their terms' sizes
FLATTEST = 1e-9  # slopes beyond would only upset the solver
AROUND = np.linspace(-4.5, 4.5, 11)  # deviations


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

    curve = curve.with_points(*_places(baseline))
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
    found = linprog(-gain, upper, limits, equal, np.zeros(n), np.column_stack([np.zeros(size), largest]), "highs")
    if found.status != 0:
        return 1.0
    y, w = np.maximum(0.0, -found.ineqlin.marginals), -found.eqlin.marginals
    left = gain - upper.T @ y - equal.T @ w
    bound = float(y @ limits) + float(np.maximum(left, 0.0) @ largest)
    sizes = float(y @ np.abs(limits)) + float((abs(upper).T @ y + abs(equal).T @ np.abs(w)).sum())
    return min(1.0, bound + ROUNDING * (1 + sizes))


def log_most_informed(log_blind: float, nats: float) -> float:
    """Upper bound of log P[A], for an event A of secrets and guesses that a blind guess reaches with this probability.

    The release says `nats` about all n secrets at most: for independent ones I(all; release) is the sum of
    I(i; release | those before), and each term is at most I(i; release | all others). What is known of A is no more:
        p log(p / b) + (1 - p) log((1 - p) / (1 - b)) <= nats,  b the blind guess.
    """
    if -log_blind <= nats:
        return 0.0
    budget, log_rest = nats * (1 + ROUNDING) + ROUNDING * (1 + abs(log_blind)), log_one_minus(log_blind)
    low, high = log_blind, 0.0
    for _ in range(200):
        middle = (low + high) / 2
        p = math.exp(middle)
        known = p * (middle - log_blind) + (1 - p) * (log_one_minus(middle) - log_rest) if middle < 0 else -log_blind
        low, high = (middle, high) if known <= budget * (1 + 1e-12) else (low, middle)
    return high


def _places(baseline: float) -> list[float]:
    """Baselines at which lines are drawn: near the blind guess and over the whole range."""
    near = ndtri(baseline) + AROUND / 3
    return sorted({float(ndtr(max(z, LOWEST))) for z in np.concatenate([near, AROUND])})
