"""Rows of flags, against a search through all of them."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge

from equations import read
from lostwax.attacks.closed_form.missing_rows import missing_rows
from lostwax.trainers.optimum import polish


def fitted(model, columns=20, rows=300, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    x = (rng.random((rows, columns)) < rng.uniform(0.2, 0.6, columns)) * 2.0 - 5
    score = 0.3 * (x + 4) @ rng.standard_normal((columns, classes)) + rng.gumbel(size=(rows, classes))
    y = score.argmax(1) if isinstance(model, LogisticRegression) else np.exp(0.3 * score[:, 0])
    release = read(model.fit(x, y), (x, y))
    return replace(release, model=polish(release.model, release.table, release.weight).model)


def drawn(n, k, count, seed=0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(np.stack([rng.choice(n, k, replace=False) for _ in range(count)]))


def right(release, games, answer):
    """(g, k) which answered rows are among the missing ones, with their labels."""
    truth = release.table[games]
    near = (answer.records.x[:, :, None] - truth.x[:, None]).abs().amax(3) < 1e-6
    return (near & ((answer.records.y[:, :, None] - truth.y[:, None]).abs() < 1e-5)).any(2)


@pytest.mark.parametrize("model", [LogisticRegression(), Ridge(), PoissonRegressor(max_iter=1_000)])
@pytest.mark.parametrize("k", [2, 4])
def test_several_rows_of_one_output(model, k):
    release = fitted(model)
    games = drawn(300, k, 10)
    answer = missing_rows(release, games, seed=0)
    won = right(release, games, answer)
    assert won.double().mean() >= 0.8
    assert not (answer.certified & ~won).any()
    assert answer.certified.any() == isinstance(model, LogisticRegression)  # any target explains any residual


def test_more_rows_than_classes():
    release = fitted(LogisticRegression(), classes=3)
    games = drawn(300, 4, 10)
    assert right(release, games, missing_rows(release, games, seed=0)).double().mean() >= 0.8


@pytest.mark.parametrize("k", [2, 3, 4])
def test_a_search_through_all_sets_finds_no_more(k):
    """All sets of k rows of four flags with all labels: the missing rows come back wherever no other set fits."""
    release = fitted(LogisticRegression(), columns=4, rows=60)
    games = drawn(60, k, 12)
    answer = missing_rows(release, games, seed=0)
    model, table = release.model, release.table
    low, high = table.x.amin(0), table.x.amax(0)
    corners = torch.tensor(list(itertools.product([False, True], repeat=4)))
    x = torch.where(corners, high, low).repeat(2, 1)
    y = torch.tensor([0, 1]).repeat_interleave(16)
    r, f = model.factors(type(table)(x, y), torch.ones(32).double())
    terms = (r[:, :, None] * f[:, None]).flatten(1)  # (32, 5)
    sets = torch.tensor(list(itertools.combinations_with_replacement(range(32), k)))
    sums = terms[sets].sum(1)
    leaks = 0
    for game, rows in enumerate(games):
        known = torch.ones(60, dtype=torch.bool)
        known[rows] = False
        r, f = model.factors(table[known], release.weight[known])
        gap = (model.total() - r.mT @ f).flatten()
        solutions = int(((sums - gap).abs().amax(1) < 1e-7).sum())
        assert solutions >= 1
        assert bool(answer.certified[game].all()) == bool(answer.certified[game].any()) == (solutions == 1)
        leaks += solutions == 1
    assert leaks >= 6
    assert right(release, games, answer)[answer.certified].all()


@pytest.mark.slow
def test_no_certified_row_is_wrong():
    for seed in range(20):
        release = fitted(LogisticRegression(), columns=8, rows=80, seed=seed)
        for k in (2, 3, 4, 5):
            games = drawn(80, k, 25, seed)
            answer = missing_rows(release, games, seed=0)
            assert not (answer.certified & ~right(release, games, answer)).any()


@pytest.mark.parametrize("columns", [4, 20])
def test_noise_is_never_certified(columns):
    release = fitted(LogisticRegression(), columns)
    noise = 0.1 * torch.randn(release.model.weight.shape, generator=torch.Generator().manual_seed(0)).double()
    moved = replace(release, model=replace(release.model, weight=release.model.weight + noise))
    assert not missing_rows(moved, drawn(300, 3, 5), seed=0).certified.any()
