"""The posterior of the row beside one by weighted draws."""

import pytest
import torch

from lostwax.attacks.two_releases.one_output import NormalRow, OutputLine, ScaledEquation, posterior

DRAWS = 400_000


@pytest.fixture
def problem():
    """An equation in three numbers with its law of the row, and a line."""
    random = torch.Generator().manual_seed(0)
    spread, noise = (torch.randn(size, size, generator=random).double() for size in (2, 3))
    covariance = 0.05 * (noise @ noise.mT + 0.5 * torch.eye(3))
    sure, moved = torch.tensor([[0.1, -0.2, 0.1], [0.1, -0.3, 0.3]]).double()
    equation = ScaledEquation(sure, moved, covariance, torch.tensor([0.7, 1.0, 1.4]).double())
    prior = NormalRow(torch.tensor([0.5, -1.0]).double(), spread @ spread.mT + 0.3 * torch.eye(2))
    return equation, prior, torch.tensor([1.0, -0.7]).double(), torch.tensor(0.3).double()


def drawn(equation, prior, residual_of):
    """Mean and variance of the row, the mean residual and the evidence, from draws of the row, its residual and s."""
    random = torch.Generator().manual_seed(1)
    x = prior.mean + torch.randn(DRAWS, 2, generator=random).double() @ torch.linalg.cholesky(prior.covariance).mT
    r = residual_of(x, random)
    s = equation.factors[torch.randint(len(equation.factors), (DRAWS,), generator=random)]
    off = equation.sure + s[:, None] * equation.moved - r[:, None] * torch.cat([x, torch.ones(DRAWS, 1).double()], 1)
    weight = -(off @ torch.linalg.inv(equation.noise) * off).sum(1) / (2 * s)
    share = weight.softmax(0)
    mean = share @ x
    return mean, share @ (x - mean).square(), share @ r, float(weight.logsumexp(0)) - torch.tensor(DRAWS).log().item()


@pytest.mark.parametrize("label", [0, 1, None])
def test_it_is_that_of_weighted_draws(problem, label):
    equation, prior, weight, bias = problem
    if label is None:
        around = OutputLine(torch.zeros(2).double(), torch.zeros(()).double(), lambda grid: grid, deviation=0.8)
        expected = drawn(equation, prior, lambda x, g: 0.8 * torch.randn(len(x), generator=g).double())
    else:
        around = OutputLine(weight, bias, lambda outputs: outputs.sigmoid() - label)
        expected = drawn(equation, prior, lambda x, _: (x @ weight + bias).sigmoid() - label)
    law = posterior(equation, prior, around)
    for value, other in zip(law[:3], expected[:3], strict=True):
        torch.testing.assert_close(value, other, rtol=0.05, atol=0.05)
    if label is not None:
        assert abs(law.evidence - expected[3]) < 0.05


def test_what_varies_along_the_step_is_in_the_factor(problem):
    plain, step = problem[0], torch.tensor([0.5, -0.4, 0.8]).double()
    equation = ScaledEquation.of(plain.sure, plain.moved, plain.noise, step)
    assert float(equation.factors.mean()) == pytest.approx(1.0, abs=0.05)
    assert float(step @ equation.noise @ step) < 1e-4 * float(equation.noise.trace())


def test_a_sharp_equation_is_found_on_the_refined_grid(problem):
    _, prior, weight, bias = problem
    x = torch.tensor([1.3, 0.4]).double()
    r = (x @ weight + bias).sigmoid() - 1
    value = r * torch.cat([x, torch.ones(1).double()])
    equation = ScaledEquation.of(torch.zeros(3).double(), value, 1e-12 * torch.eye(3).double(), torch.zeros(3).double())
    law = posterior(equation, prior, OutputLine(weight, bias, lambda outputs: outputs.sigmoid() - 1))
    torch.testing.assert_close(law.mean, x, rtol=1e-3, atol=1e-3)
