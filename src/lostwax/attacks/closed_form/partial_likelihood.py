"""The missing row of a Cox model: closed form up to one number, its linear predictor.

Let a = exp(w x) be the missing row's share in the risk sets. Each term of the score is linear in x once a is known:

    sum over known events x_i + e x - sum_q (n_q + c_q a x) / (s_q + c_q a) = 0,

with s_q and n_q the sums of exp(w x_j) and x_j exp(w x_j) over the known rows at risk, and c_q whether the missing row
is at risk. So x = x(a), and a is a root of  w x(a) = log a:  one equation in one unknown, without a start or a step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar
from torch import Tensor

from lostwax.games import Records
from lostwax.games.fitted import ProportionalHazards
from lostwax.progress import counted

Array = NDArray[np.float64]
GRID = 401  # places where the equation's sign is looked at
BEYOND = 5.0  # standard deviations outside the known linear predictors
TRACE = 1e-12  # a smaller residual is rounding error
MAX_ROOTS = 3


class RiskTerms(NamedTuple):
    """The terms of the score: one for each event (q,), and the sum over events (d,)."""

    event_sum: Array
    total: Array  # (q,) s
    weighted: Array  # (q, d) n
    share: Array  # (q,) c

    @classmethod
    def of(cls, x: Array, predictor: Array, times: Array, events: Array, efron: bool, its_label: Array) -> RiskTerms:
        """Of known rows x (n, d), beside a row whose time and event are `its_label`."""
        time, event = its_label
        order = np.argsort(times, kind="stable")
        x, times, events = x[order], times[order], events[order]
        weight = np.exp(predictor[order])
        risk = np.cumsum(weight[::-1])[::-1]
        at_risk = np.cumsum((weight[:, None] * x)[::-1], 0)[::-1]
        when = np.unique(np.append(times[events > 0], [time] * int(event)))
        first = np.searchsorted(times, when)
        risk, at_risk = np.append(risk, 0.0)[first], np.vstack([at_risk, np.zeros_like(x[:1])])[first]
        numbered = np.searchsorted(when, times[events > 0])
        tied, each = np.zeros(len(when)), (weight[:, None] * x)[events > 0]
        tied_x = np.zeros((len(when), x.shape[1]))
        np.add.at(tied, numbered, weight[events > 0])
        np.add.at(tied_x, numbered, each)
        is_mine = (when == time) * event
        count = (np.bincount(numbered, minlength=len(when)) + is_mine).astype(int)
        q = np.repeat(np.arange(len(when)), count)
        fraction = (np.arange(len(q)) - np.repeat(np.cumsum(count) - count, count)) / count[q] * efron
        share = (time >= when[q]) * (1 - fraction * is_mine[q])
        return cls(
            x[events > 0].sum(0),
            risk[q] - fraction * tied[q],
            at_risk[q] - fraction[:, None] * tied_x[q],
            share,
        )


NOBODY = np.array([-np.inf, 0.0])  # no row is missing


def score_statistic(hazards: ProportionalHazards, x: Array) -> float:
    """The largest squared coordinate of the score over its variance: 0 at the optimum, about 1 for other rows."""
    times, events, x = hazards.times.numpy(), hazards.events.numpy(), x - x.mean(0)
    predictor = x @ hazards.weight.numpy()
    terms, squares = (
        RiskTerms.of(values, predictor - predictor.max(), times, events, hazards.efron, NOBODY)
        for values in (x, np.square(x))
    )
    means, second = (each.weighted / each.total[:, None] for each in (terms, squares))
    variance = (second - np.square(means)).sum(0)
    return float((np.square(terms.event_sum - means.sum(0)) / np.fmax(variance, 1e-300)).max())


def missing_rows(hazards: ProportionalHazards, table: Records, games: Tensor) -> tuple[list[Tensor], Tensor]:
    """Candidates (g, d) for the missing row of each game, the most usual first, and the size of its trace (g,)."""
    every, weight = table.x.numpy(), hazards.weight.numpy()
    times, events = hazards.times.numpy(), hazards.events.numpy()
    candidates = np.full((MAX_ROOTS, len(games), every.shape[1]), np.nan)
    sizes = np.zeros(len(games))
    for place, row in enumerate(counted(games.tolist(), "partial likelihood: rows", len(games))):
        known = np.arange(len(every)) != row
        centre, deviation = every[known].mean(0), every[known].std(0)
        x = every[known] - centre
        predictor = x @ weight
        its_label = np.array([times[row], events[row]])
        terms = RiskTerms.of(x, predictor, times[known], events[known], hazards.efron, its_label)
        roots = _roots(terms, weight, its_label[1], predictor)
        usual = np.where(deviation > 0, deviation, 1.0)
        roots.sort(key=lambda root: float(np.square(root[0] / usual).sum()))
        for number in range(MAX_ROOTS if roots else 0):
            root, size = roots[min(number, len(roots) - 1)]
            candidates[number, place] = root + centre
            sizes[place] = abs(size) if number == 0 else sizes[place]
    several = [torch.from_numpy(each) for each in candidates]
    return [each for each in several if each is several[0] or not torch.equal(each, several[0])], torch.from_numpy(
        sizes
    )


def _roots(terms: RiskTerms, weight: Array, event: float, predictor: Array) -> list[tuple[Array, float]]:
    """Every row that solves the score equation, with its residual."""

    def parts(place: float | Array) -> tuple[Array, Array]:
        """-(what the known rows leave), (..., d), and the residual (...) of a row with this linear predictor."""
        mine = terms.share * np.exp(place)[..., None]  # (..., q)
        all_at_risk = terms.total + mine
        left = terms.event_sum - (1 / all_at_risk) @ terms.weighted
        return -left, event - (mine / all_at_risk).sum(-1)

    def equation(place: float | Array) -> Array:
        left, residual = parts(np.asarray(place))
        return np.asarray(left @ weight - place * residual)

    spread = BEYOND * float(predictor.std()) + 1.0
    grid = np.linspace(predictor.min() - spread, predictor.max() + spread, GRID)
    values = equation(grid)
    size = np.abs(values)
    between = []
    for place in np.flatnonzero((size[1:-1] < size[:-2]) & (size[1:-1] < size[2:])) + 1:  # two roots side by side
        bounds, sign = grid[[place - 1, place + 1]], np.sign(values[place])
        between.append(minimize_scalar(lambda at, sign=sign: sign * float(equation(at)), bounds=bounds).x)
    grid = np.unique([*grid, *between])
    values, roots = equation(grid), []
    for here in np.flatnonzero(np.sign(values[:-1]) * np.sign(values[1:]) < 0):
        root = brentq(lambda place: float(equation(place)), grid[here], grid[here + 1], xtol=1e-15, rtol=1e-15)
        left, residual = parts(np.asarray(root))
        if abs(float(residual)) > TRACE:
            roots.append((left / residual, float(residual)))
    return roots
