"""Kernel and ridge: those of the least error, whatever was given up on the way."""

from itertools import product

import pytest
import torch

import lostwax as lw
from attacks.reconn.game import Leaks, knowledge
from lostwax.learning import kernel_regression as regression
from lostwax.learning.kernel_regression import (
    RIDGES,
    WIDTHS,
    Kernel,
    Regression,
    median_distance,
    products,
    solve,
    squares,
)
from lostwax.learning.shadow_tables import shadow_tables


def classes_of(y):
    return [(y == label).nonzero()[:, 0] for label in torch.unique(y)]


@pytest.mark.parametrize("sizes", [(1, 2, 1, 1), (1, 1, 1, 1), (2, 2, 2, 2), (1, 9, 9, 9)])
def test_the_error_foretold_where_models_say_nothing(sizes):
    """It is about as large as the error, however few there are of a class, and not much smaller."""
    draw, foretold, wrong = torch.Generator().manual_seed(0), 0.0, 0.0
    rows = torch.split(torch.arange(sum(sizes)), sizes)
    for _ in range(20):
        seen, answers, other = (
            torch.randn(count, columns, generator=draw, dtype=torch.float64)
            for count, columns in ((sum(sizes), 30), (sum(sizes), 40), (10, 30))
        )
        found = Regression.fit(seen, answers, rows)
        guesses, variances = found(other)  # (classes, 10, d), (classes, 10)
        foretold += found.error * float(variances.mean())
        wrong += float((guesses - torch.randn(guesses.shape, generator=draw, dtype=torch.float64)).square().mean())
    assert 0.7 * wrong < foretold < 3 * wrong


@pytest.mark.parametrize("strength", [1.0, 0.01, 0.0])
def test_the_choice_is_that_of_trying_everything(strength, monkeypatch):
    _, table, _ = shadow_tables(lw.KernelRidge(), knowledge(Leaks(strength=strength)), 0)
    records, classes = table.records.x.flatten(1).double(), classes_of(table.records.y)
    tried = []
    monkeypatch.setattr(regression, "solve", lambda *case: tried.append(case) or solve(*case))
    found = Regression.fit(table.seen, records, classes)

    def error(kernel, ridge):
        total = 0.0
        for rows in classes:
            here = found.features(table.seen[rows], kernel)
            alike, own = products(here, here), squares(here)
            gram = kernel.similarity(alike, own, own, median_distance(alike))
            solved = solve(gram, records[rows] - records[rows].mean(0), ridge)
            total += torch.inf if solved is None else float(solved.left_out.sum())
        return total

    kernels = [Kernel(*kind) for kind in product((True, False), WIDTHS)]
    errors = {choice: error(*choice) for choice in product(kernels, RIDGES)}
    assert errors[found.kernel, found.groups[0].ridge] == pytest.approx(min(errors.values()), rel=1e-9)
    assert len(tried) <= len(errors) * len(classes)
    if strength == 1.0:  # where some choices are much better, most others are given up
        assert len(tried) < 0.8 * len(errors) * len(classes)
