"""The removed row from two optima: its equation is exact where the other rows are public, and error bars hold."""

from dataclasses import replace

import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

from lostwax.attacks.two_releases import PublicSample, solve_changed_row
from lostwax.attacks.two_releases.equation import _pulled_back, _subtracted_equations, first_order
from lostwax.games import Records, Stationary
from lostwax.losses import BinaryCrossEntropy, CrossEntropy, SquaredError
from lostwax.trainers.optimum import polish

ROW = 5
PLAIN = {"digits": (load_digits, CrossEntropy(), 10), "cancer": (load_breast_cancer, BinaryCrossEntropy(), 1)}
PLAIN["diabetes"] = load_diabetes, SquaredError(), 1


def problem(name, n=250, ridge=5.0):
    """A table, its models with and without a row, and more rows of the same kind."""
    load, loss, c = PLAIN[name]
    x, y = (torch.from_numpy(part) for part in load(return_X_y=True))
    x = (x - x.mean(0)) / x.std(0).clamp_min(1e-9) if name != "digits" else x / 16
    y = (y - y.mean()) / y.std() if name == "diabetes" else y
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    table, more = Records(x[order[:n]], y[order[:n]]), Records(x[order[n:]], y[order[n:]])
    d = x.shape[1]
    start = Stationary(
        torch.zeros(c, d).double(),
        torch.zeros(c).double(),
        loss,
        torch.full((c,), ridge).double(),
        torch.zeros(c).double(),
        torch.zeros(d).double(),
        torch.ones(d).double(),
    )
    first = polish(start, table, torch.ones(n).double()).model
    rest = table[(torch.arange(n) != ROW).nonzero().flatten()]
    return table, rest, more, first, polish(replace(first), rest, torch.ones(n - 1).double()).model


def same_units(d):
    return torch.ones(d).double(), torch.zeros(d).double()


@pytest.mark.parametrize("name", PLAIN)
def test_with_all_other_rows_public_the_equation_is_exact_at_any_size_of_step(name):
    table, rest, _, first, second = problem(name, n=80, ridge=0.1)  # few rows: the second order is not small
    public, units = PublicSample(rest.x, rest.x, rest.y), same_units(table.x.shape[1])
    noisy = _subtracted_equations(first, second, public, len(table), units)
    residual, inputs = first.factors(table[ROW : ROW + 1], torch.ones(1).double())
    torch.testing.assert_close(noisy.value, residual.mT @ inputs, rtol=1e-6, atol=1e-7)


def test_one_newton_step_is_exact_for_a_quadratic_loss_alone():
    for name, exact in (("diabetes", True), ("cancer", False)):
        table, rest, _, first, second = problem(name, n=80, ridge=0.1)
        x, _ = first_order(first, second, rest, len(table))
        assert (float((x - table.x[ROW]).abs().max()) < 1e-6) is exact


def test_rows_that_a_model_is_fitted_on_move_less_by_their_leverage():
    """For a quadratic loss and the rows themselves: 1 - h, with h of the hat matrix."""
    table, _, _, first, _ = problem("diabetes", n=80, ridge=0.1)
    inputs = torch.cat([table.x, torch.ones(80, 1).double()], 1)
    hessian = inputs.mT @ inputs + torch.diag(first.ridges()[0])
    hat = (inputs @ torch.linalg.inv(hessian) * inputs).sum(1)
    pulled = _pulled_back(first, PublicSample(table.x, table.x, table.y), 81)[:, 0, 0]  # one row was removed
    torch.testing.assert_close(pulled, 1 - hat, rtol=1e-6, atol=1e-6)


def test_the_encoding_of_the_second_release_makes_no_difference():
    table, _, more, first, second = problem("cancer")
    d = table.x.shape[1]
    slope, shift = torch.linspace(0.5, 2.0, d).double(), torch.linspace(-1.0, 1.0, d).double()
    scaled = replace(second, shift=shift, scale=slope)  # the same function of slope x + shift
    plain = solve_changed_row(first, second, PublicSample(more.x, more.x, more.y), len(table), same_units(d))
    there = more.x * slope + shift
    other = solve_changed_row(first, scaled, PublicSample(more.x, there, more.y), len(table), (slope, shift))
    torch.testing.assert_close(plain.x, other.x, rtol=1e-6, atol=1e-6)
    assert int(plain.label) == int(other.label)


def test_units_of_columns_make_no_difference():
    table, _, more, first, second = problem("cancer")
    unit = torch.logspace(-4, 4, 30).double()
    plain = solve_changed_row(first, second, PublicSample(more.x, more.x, more.y), len(table), same_units(30))
    here, there = (replace(model, scale=unit, shift=torch.zeros(30).double()) for model in (first, second))
    sample = PublicSample(more.x * unit, more.x * unit, more.y)
    other = solve_changed_row(here, there, sample, len(table), same_units(30))
    assert float(((other.x / unit - plain.x) / plain.deviation).abs().max()) < 0.2
    torch.testing.assert_close(other.deviation / unit, plain.deviation, rtol=0.1, atol=0.0)


def test_a_row_that_is_known_is_labelled():
    table, _, more, first, second = problem("digits")
    public = PublicSample(more.x[:100], more.x[:100], more.y[:100])
    solved = solve_changed_row(first, second, public, len(table), same_units(64), known=table.x[ROW])
    assert int(solved.label) == int(table.y[ROW])
    assert torch.equal(solved.deviation, torch.zeros(64).double())


def test_noise_of_the_solver_widens_the_error_bars():
    table, _, more, first, second = problem("digits")
    public, units = PublicSample(more.x[:200], more.x[:200], more.y[:200]), same_units(64)
    sure = solve_changed_row(first, second, public, len(table), units)
    noisy = solve_changed_row(first, second, public, len(table), units, noise=torch.ones(10, 65).double())
    assert float(noisy.deviation.mean()) > 2 * float(sure.deviation.mean())


def test_two_equal_models_tell_nothing():
    table, _, more, first, _ = problem("digits")
    solved = solve_changed_row(first, first, PublicSample(more.x, more.x, more.y), len(table) + 1, same_units(64))
    mean = more.x.mean(0)
    assert float((solved.x - mean).abs().max()) < 1.0
    varies = more.x.std(0) > 0.1
    assert float((solved.deviation / more.x.std(0))[varies].median()) > 0.5


@pytest.mark.slow
def test_error_bars_hold():
    """The benchmark has 1,000 games with 600 public rows; here 20 with 300."""
    table, _, more, first, _ = problem("digits", n=600)
    inside = []
    for row in range(20):
        rest = table[(torch.arange(600) != row).nonzero().flatten()]
        second = polish(first, rest, torch.ones(599).double()).model
        public = more[:300]
        solved = solve_changed_row(first, second, PublicSample(public.x, public.x, public.y), 600, same_units(64))
        varies = public.x.std(0) > 0
        inside.append(((solved.x - table.x[row]).abs() <= 1.645 * solved.deviation)[varies].double().mean())
    assert 0.87 < float(torch.stack(inside).mean()) < 0.99
