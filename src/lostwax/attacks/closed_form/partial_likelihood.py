"""The missing row of a Cox model: closed form up to one number, its linear predictor.

Let a = exp(w x) be the missing row's share in the risk sets. Each term of the score is linear in x once a is known:

    sum over known events x_i + e x - sum_q (n_q + c_q a x) / (s_q + c_q a) = 0,

with s_q and n_q the sums of exp(w x_j) and x_j exp(w x_j) over the known rows at risk, and c_q whether the missing row
is at risk. So x = x(a), and a is a root of  w x(a) = log a:  one equation in one unknown, without a start or a step.
Sample weights multiply events and shares. With strata each has risk sets of its own, and only its own holds the row.
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
    times: Array  # (q,) how often each counts: the mean weight of its events

    @classmethod
    def of(cls, x: Array, predictor: Array, hazards: ProportionalHazards, missing: int | None) -> RiskTerms:
        """Of the known rows x (n, d), beside the missing one, of whose numbers only time, event and weight are used."""
        strata = np.zeros(len(x)) if hazards.strata is None else hazards.strata.numpy()
        parts = []
        for stratum in np.unique(strata):
            inside = strata == stratum
            here = missing if missing is not None and inside[missing] else None
            if missing is not None:
                inside[missing] = False
            parts.append(cls._of_stratum(x[inside], predictor[inside], hazards, inside, here))
        event_sums, *others = zip(*parts, strict=True)
        return cls(np.sum(event_sums, 0), *map(np.concatenate, others))

    @classmethod
    def _of_stratum(
        cls, x: Array, predictor: Array, hazards: ProportionalHazards, inside: Array, missing: int | None
    ) -> RiskTerms:
        labels = np.stack([each.numpy() for each in (hazards.times, hazards.events, hazards.row_weights())])  # (3, n)
        time, event, its_weight = NOBODY if missing is None else labels[:, missing]
        order = np.argsort(labels[0, inside], kind="stable")
        x, (times, events, row_weight) = x[order], labels[:, inside][:, order]
        weight = row_weight * np.exp(predictor[order])
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
        fraction = (np.arange(len(q)) - np.repeat(np.cumsum(count) - count, count)) / count[q] * hazards.efron
        share = its_weight * (time >= when[q]) * (1 - fraction * is_mine[q])
        summed = np.bincount(numbered, row_weight[events > 0], len(when)) + its_weight * is_mine
        return cls(
            row_weight[events > 0] @ x[events > 0],
            risk[q] - fraction * tied[q],
            at_risk[q] - fraction[:, None] * tied_x[q],
            share,
            summed[q] / count[q],
        )


NOBODY = np.array([-np.inf, 0.0, 0.0])  # no row is missing: time, event and weight


def score_statistic(hazards: ProportionalHazards, x: Array) -> float:
    """The largest squared coordinate of the score over its variance: 0 at the optimum, about 1 for other rows."""
    x = x - x.mean(0)
    predictor = x @ hazards.weight.numpy()
    terms, squares = (RiskTerms.of(values, predictor - predictor.max(), hazards, None) for values in (x, np.square(x)))
    means, second = (each.weighted / each.total[:, None] for each in (terms, squares))
    variance = np.square(terms.times) @ (second - np.square(means))
    return float((np.square(terms.event_sum - terms.times @ means) / np.fmax(variance, 1e-300)).max())


def missing_rows(hazards: ProportionalHazards, table: Records, games: Tensor) -> tuple[list[Tensor], Tensor]:
    """Candidates (g, d) for the missing row of each game, the most usual first, and the size of its trace (g,)."""
    every, weight = table.x.numpy(), hazards.weight.numpy()
    candidates = np.full((MAX_ROOTS, len(games), every.shape[1]), np.nan)
    sizes = np.zeros(len(games))
    for place, row in enumerate(counted(games.tolist(), "partial likelihood: rows", len(games))):
        known = np.arange(len(every)) != row
        centre, deviation = every[known].mean(0), every[known].std(0)
        x = np.where(known[:, None], every - centre, 0.0)
        predictor = x @ weight
        terms = RiskTerms.of(x, predictor, hazards, row)
        event = float(hazards.events[row] * hazards.row_weights()[row])
        roots = _roots(terms, weight, event, predictor[known])
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
    """Every row that solves the score equation, with its residual; `event`: its weight, or 0 if it was censored."""

    def parts(place: float | Array) -> tuple[Array, Array]:
        """-(what the known rows leave), (..., d), and the residual (...) of a row with this linear predictor."""
        mine = terms.share * np.exp(place)[..., None]  # (..., q)
        all_at_risk = terms.total + mine
        left = terms.event_sum - (terms.times / all_at_risk) @ terms.weighted
        return -left, event - (terms.times * mine / all_at_risk).sum(-1)

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
