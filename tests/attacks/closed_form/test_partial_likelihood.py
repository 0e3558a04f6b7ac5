"""The missing row of a Cox model, against the score equation by its slow definition."""

import numpy as np
import pytest
import torch
from scipy.optimize import root

from lostwax.attacks.closed_form.partial_likelihood import missing_rows, score_statistic
from lostwax.games import ProportionalHazards, Records


def slow_score(weight, x, times, events, row_weight=None, *, efron):
    """Event by event, row by row."""
    total = np.zeros(x.shape[1])
    row_weight = np.ones(len(x)) if row_weight is None else row_weight
    risk = row_weight * np.exp(x @ weight)
    for time in np.unique(times[events > 0]):
        tied = np.flatnonzero((times == time) & (events > 0))
        for place in range(len(tied)):
            share = np.where(times >= time, 1.0, 0.0)
            share[tied] -= efron * place / len(tied)
            total -= row_weight[tied].mean() * ((share * risk) @ x / (share @ risk))
        total += row_weight[tied] @ x[tied]
    return total


def fitted(n, d, *, efron, ties, seed=0, strata=1, weighted=False):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * rng.uniform(0.1, 20, d) + rng.normal(size=d) * 10
    slopes = rng.normal(size=d) / x.std(0)
    times = rng.exponential(np.exp(-(x - x.mean(0)) @ slopes))
    times = np.ceil(times * 3 / np.median(times)) if ties else times
    events = (rng.random(n) < 0.7).astype(float)
    scale, group = x.std(0), np.arange(n) % strata
    row_weight = rng.uniform(0.5, 2, n) if weighted else np.ones(n)

    def score(theta):
        every = (group == number for number in range(strata))
        rows = (x - x.mean(0), times, events, row_weight)
        return sum(slow_score(theta / scale, *(part[some] for part in rows), efron=efron) for some in every) / scale

    solved = root(score, np.zeros(d), tol=1e-13)
    assert solved.success
    numbers = map(torch.from_numpy, (solved.x / scale, times, events))
    groups = torch.from_numpy(group) if strata > 1 else None
    hazards = ProportionalHazards("cox", *numbers, efron, groups, torch.from_numpy(row_weight) if weighted else None)
    return hazards, Records(torch.from_numpy(x), torch.zeros(n))


@pytest.mark.parametrize("efron", [False, True])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("strata", "weighted"), [(1, False), (1, True), (3, False), (3, True)])
def test_every_row_comes_back(efron, ties, strata, weighted):
    hazards, table = fitted(60, 4, efron=efron, ties=ties, strata=strata, weighted=weighted)
    assert score_statistic(hazards, table.x.numpy()) < 1e-12
    candidates, size = missing_rows(hazards, table, torch.arange(60))
    has_trace = size > 1e-6  # one that is censored before the first event of its stratum is in no term
    group = torch.zeros(60) if hazards.strata is None else hazards.strata
    first = torch.stack([hazards.times[(hazards.events > 0) & (group == each)].min() for each in group])
    assert torch.equal(has_trace, (hazards.times >= first))
    errors = torch.stack([(rows - table.x).abs() / table.x.std(0) for rows in candidates]).amax(2)  # (roots, games)
    assert (errors.nan_to_num(torch.inf).amin(0)[has_trace] < 1e-6).all()
    assert candidates[0][~has_trace].isnan().all()
    assert (errors[0][has_trace] < 1e-6).double().mean() > 0.6  # the likeliest of several roots is mostly the row


def test_games_do_not_depend_on_their_own_row():
    hazards, table = fitted(40, 3, efron=True, ties=True, strata=2, weighted=True)
    changed = table.x.clone()
    changed[7] = torch.nan
    ours, _ = missing_rows(hazards, table, torch.tensor([7]))
    theirs, _ = missing_rows(hazards, Records(changed, table.y), torch.tensor([7]))
    assert torch.equal(ours[0], theirs[0])


def test_other_rows_are_told_apart():
    hazards, table = fitted(200, 3, efron=True, ties=False)
    rng = np.random.default_rng(1)
    others = [score_statistic(hazards, table.x.numpy()[rng.permutation(200)]) for _ in range(20)]
    assert min(others) > 0.01
