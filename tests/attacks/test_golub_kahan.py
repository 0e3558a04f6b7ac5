"""A few products with a matrix, against scipy's LSQR and against the matrix itself."""

import pytest
import torch
from scipy.sparse.linalg import lsqr

from lostwax.attacks.least_squares import golub_kahan

RANDOM = torch.Generator().manual_seed(0)
M, P, R = 3, 40, 12
JACOBIAN = torch.randn(M, P, R, generator=RANDOM, dtype=torch.float64) * torch.logspace(0, -2, R, dtype=torch.float64)
RESIDUAL = torch.randn(M, P, generator=RANDOM, dtype=torch.float64)
NOTHING = torch.zeros(M, dtype=torch.float64)
MEAN = torch.zeros(M, R, dtype=torch.float64)


def shown(count):
    forward = lambda v: (JACOBIAN @ v.unsqueeze(2)).squeeze(2)  # noqa: E731
    backward = lambda w: (JACOBIAN.mT @ w.unsqueeze(2)).squeeze(2)  # noqa: E731
    return golub_kahan(forward, backward, RESIDUAL, backward(RESIDUAL), count)


def test_what_is_shown_is_the_matrix_on_a_small_space():
    few = shown(5)
    torch.testing.assert_close(few.basis @ few.basis.mT, torch.eye(5, dtype=torch.float64).expand(M, 5, 5))
    image = JACOBIAN @ few.basis.mT  # (m, p, k)
    torch.testing.assert_close(image.mT @ image, few.bidiagonal.mT @ few.bidiagonal)


@pytest.mark.parametrize("count", [1, 3, 6])
@pytest.mark.parametrize("damping", [0.0, 0.3])
def test_the_step_is_that_of_lsqr_after_as_many_iterations(count, damping):
    few = shown(count)
    largest = float(few.bidiagonal[0].square().sum(0).max())
    step = few.steps(torch.tensor([damping]).double(), NOTHING, MEAN)[0, 0]
    damp = (damping * largest) ** 0.5
    expected = lsqr(JACOBIAN[0].numpy(), -RESIDUAL[0].numpy(), damp=damp, atol=0, btol=0, conlim=0, iter_lim=count)[0]
    torch.testing.assert_close(step, torch.from_numpy(expected), rtol=1e-6, atol=1e-9)


def test_as_many_products_as_unknowns_find_the_solution():
    step = shown(R).steps(torch.zeros(1).double(), NOTHING, MEAN)[:, 0]
    torch.testing.assert_close(step, -torch.linalg.lstsq(JACOBIAN, RESIDUAL.unsqueeze(2)).solution.squeeze(2))


def test_noise_pulls_towards_the_priors_mean():
    noise, away = torch.tensor([0.1, 1e9, 1e-12]).double(), torch.ones(M, R, dtype=torch.float64)
    steps = shown(R).steps(torch.zeros(1).double(), noise, away)[:, 0]
    curvature = JACOBIAN[0].mT @ JACOBIAN[0] + 0.1 * torch.eye(R)
    torch.testing.assert_close(steps[0], -torch.linalg.solve(curvature, JACOBIAN[0].mT @ RESIDUAL[0] + 0.1 * away[0]))
    torch.testing.assert_close(steps[1], -away[1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("count", [1, 6, R])
def test_what_no_step_takes_away_is_unexplained(count):
    few = shown(count)
    step = few.steps(torch.zeros(1).double(), NOTHING, MEAN)[:, 0]
    left = RESIDUAL + (JACOBIAN @ step.unsqueeze(2)).squeeze(2)
    torch.testing.assert_close(few.unexplained, left.square().sum(1) / RESIDUAL.square().sum(1))


def test_a_matrix_of_zeros_explains_nothing():
    nothing = golub_kahan(lambda v: v.new_zeros(M, P), lambda w: w.new_zeros(M, R), RESIDUAL, MEAN, 3)
    assert torch.equal(nothing.unexplained, torch.ones(M, dtype=torch.float64))
