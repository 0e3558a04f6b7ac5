"""Quadratic minima within bounds."""

import numpy as np
import pytest
import torch
from scipy.optimize import lsq_linear

from lostwax.attacks.least_squares import bounded_step

RANDOM = torch.Generator().manual_seed(0)


def problems(count, unknowns):
    """J (b, p, u) and residuals, with a wide spread of directions."""
    jacobian = torch.randn(count, 30, unknowns, generator=RANDOM, dtype=torch.float64)
    jacobian = jacobian * torch.logspace(0, -3, unknowns, dtype=torch.float64)
    return jacobian, torch.randn(count, 30, generator=RANDOM, dtype=torch.float64)


def solve(jacobian, residual, low, high):
    slope = (jacobian.mT @ residual.unsqueeze(-1)).squeeze(-1)
    return bounded_step(jacobian.mT @ jacobian, slope, low.expand_as(slope), high.expand_as(slope))


def test_without_bounds_it_is_the_least_squares_solution():
    jacobian, residual = problems(3, 8)
    anywhere = torch.full((8,), torch.inf, dtype=torch.float64)
    expected = -torch.linalg.lstsq(jacobian, residual.unsqueeze(-1)).solution.squeeze(-1)
    torch.testing.assert_close(solve(jacobian, residual, -anywhere, anywhere), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("number", [torch.nan, 0.0], ids=str)
def test_a_problem_without_curvature_goes_nowhere_and_holds_nobody_up(number):
    jacobian, residual = problems(2, 8)
    anywhere = torch.full((8,), torch.inf, dtype=torch.float64)
    alone = solve(jacobian[1:], residual[1:], -anywhere, anywhere)
    jacobian[0] = number  # the training of the first diverges
    found = solve(jacobian, residual, -anywhere, anywhere)
    assert (found[0] == 0).all()
    torch.testing.assert_close(found[1:], alone)


@pytest.mark.parametrize("width", [0.01, 0.3, 3.0])
def test_within_bounds_it_is_scipys(width):
    jacobian, residual = problems(4, 10)
    low = -width * torch.rand(10, generator=RANDOM, dtype=torch.float64)
    high = width * torch.rand(10, generator=RANDOM, dtype=torch.float64)
    low[2] = high[2] = 0.0  # nowhere to go
    low[5] = 0.0  # at a bound from the beginning
    found = solve(jacobian, residual, low, high)
    assert ((found >= low) & (found <= high)).all()
    for one, by, left in zip(found, jacobian, residual, strict=True):
        free = (high > low).numpy()
        bounds = (low.numpy()[free], high.numpy()[free])
        expected = lsq_linear(by.numpy()[:, free], -left.numpy(), bounds=bounds, tol=1e-14)
        reached = ((by @ one + left).square().sum() / 2).item()
        assert reached <= expected.cost * (1 + 1e-9)
        np.testing.assert_allclose(one.numpy()[free], expected.x, atol=1e-5 * max(width, 1))
