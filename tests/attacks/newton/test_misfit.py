"""What an answer leaves over: noise, or noise and the trace of another record."""

import torch

from lostwax.attacks.newton.misfit import LEVEL, MODELS, OtherRecords, is_noise, telling, usual
from lostwax.games import Records

P, R = 2_000, 20  # weights, unknowns


def drawn(seed):
    """Noise, a tangent space, gaps in few directions, and a generator."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    gaps = normal(MODELS, 5) @ normal(5, P) / P**0.5 * 3
    return normal(MODELS, P), normal(P, R), gaps, normal


def test_the_statistic_is_the_likelihood_ratio_of_a_gap_to_none():
    gaps, noise = drawn(0)[2][:, :40], 0.5
    plain = torch.distributions.MultivariateNormal(torch.zeros(40).double(), noise * torch.eye(40).double())
    spread = noise * torch.eye(40).double() + gaps.mT @ gaps / len(gaps)
    with_gap = torch.distributions.MultivariateNormal(torch.zeros(40).double(), spread)
    x = 2 * torch.randn(10, 40, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ratio = 2 * noise * (with_gap.log_prob(x) - plain.log_prob(x))
    ours = (x @ telling(gaps, noise).mT).square().sum(1)
    torch.testing.assert_close(ours - ours[0], ratio - ratio[0])


def test_noise_passes_as_often_as_stated():
    noise, jacobian, gaps, normal = drawn(0)
    passed = sum(is_noise(normal(P), jacobian, gaps, noise) for _ in range(100))
    assert 1 - passed / 100 <= LEVEL + 4 * (LEVEL / 100) ** 0.5


def test_a_gap_that_is_lost_in_the_norm_is_seen():
    """A gap of squared length 60 where noise has 2,000, with a standard deviation of 63."""
    noise, jacobian, gaps, normal = drawn(0)
    gap = gaps[0] * (60 / gaps[0].square().sum()).sqrt()
    residuals = normal(20, P) + gap
    assert not any(is_noise(one, jacobian, gaps, noise) for one in residuals)
    assert sum(usual(float(one.square().sum()), noise.square().sum(1), LEVEL) for one in residuals) >= 15


def test_what_the_answer_can_still_be_fitted_to_is_no_gap():
    noise, jacobian, gaps, normal = drawn(0)
    assert is_noise(normal(P) + jacobian @ normal(R), jacobian, gaps, noise)


def test_nothing_passes_where_models_nearby_diverge_or_all_is_fitted():
    noise, jacobian, gaps, normal = drawn(0)
    residual = normal(P)
    assert not is_noise(residual, jacobian, gaps.index_fill(0, torch.tensor([3]), torch.nan), noise)
    assert not is_noise(residual[:R], jacobian[:R], gaps[:, :R], noise[:, :R])


def test_other_records_are_of_the_answers_classes():
    x = torch.arange(6.0, dtype=torch.float64)[:, None].expand(6, 2)
    others = OtherRecords.of(Records(x, torch.tensor([0, 0, 0, 1, 1, 1])), seed=0)
    near = others.near(torch.full((4,), -10.0, dtype=torch.float64), torch.tensor([0, 0]))
    first, second = near.view(MODELS, 2, 2).unbind(1)
    assert (near > -10).all()
    assert (near < 2).all()  # part of the way to 0, 1 or 2
    assert not torch.isclose(first, second).any()
    as_numbers = OtherRecords.of(Records(x, x[:, :1]), seed=0)
    assert as_numbers.near(torch.zeros(3, dtype=torch.float64), torch.tensor([0])).shape == (MODELS, 3)
