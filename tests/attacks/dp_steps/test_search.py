"""By what a record is judged."""

import numpy as np
import torch

from lostwax.attacks.dp_steps.gradient_inversion import Likeliest, NormalLaw

LAW = NormalLaw(torch.tensor([0]), torch.zeros(1, 3, dtype=torch.float64), torch.eye(3, dtype=torch.float64))
NOISE = 0.7


def misfits():
    """Of three steps of five numbers, for two starts."""
    draws = torch.Generator().manual_seed(0)
    clipped, rest = (torch.randn(1, 3, starts, 5, generator=draws, dtype=torch.float64) for starts in (2, 1))
    search = Likeliest(LAW, torch.zeros(3), 0.0, 1.0, NOISE)
    return clipped, rest, search.misfit(clipped, rest).sum(3), search.misfit(0 * rest, rest).sum(3)


def test_a_step_that_may_not_hold_the_secret_is_a_mixture_of_two_normal_laws():
    clipped, rest, misfit, absent_misfit = misfits()
    found = Likeliest(LAW, torch.zeros(3), 0.0, 1.0, NOISE, rate=0.3).of_steps(misfit, absent_misfit)
    with_it, without = (torch.distributions.Normal(mean, NOISE).log_prob(rest).sum(3).exp() for mean in (clipped, 0.0))
    density = 0.3 * with_it + 0.7 * without
    constant = torch.distributions.Normal(0.0, NOISE).log_prob(torch.tensor(0.0, dtype=torch.float64)) * 5
    torch.testing.assert_close(found, -(NOISE**2) * (density.log() - constant))


def test_a_step_that_holds_it_surely_is_as_it_was():
    _, _, misfit, absent_misfit = misfits()
    assert Likeliest(LAW, torch.zeros(3), 0.0, 1.0, NOISE).of_steps(misfit, absent_misfit) is misfit
    nearly = Likeliest(LAW, torch.zeros(3), 0.0, 1.0, NOISE, rate=1 - 1e-12).of_steps(misfit, absent_misfit)
    torch.testing.assert_close(nearly, misfit)


def test_steps_that_tell_all_leave_nothing_open_and_steps_that_tell_nothing_all():
    search = Likeliest(LAW, torch.zeros(3), 0.0, 1.0, NOISE, rate=0.5)
    spread = search.posterior_deviations(torch.tensor([[0.0, 2.0, 1e12]], dtype=torch.float64))
    wanted = (NOISE**2 / (NOISE**2 + 1.0)) ** 0.5  # of v with information q reach |d|^2 / sigma^2 = 1 / sigma^2
    torch.testing.assert_close(
        spread[0, :, 0], torch.tensor([1.0, wanted, 0.0], dtype=torch.float64), atol=1e-5, rtol=0
    )


def test_records_around_an_estimate_are_so_far_from_it_as_is_left_open():
    search = Likeliest(LAW, torch.zeros(3, dtype=torch.float64), 0.0, 1.0, NOISE)
    v, spread = torch.full((1, 1, 3), 2.0, dtype=torch.float64), torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    found = torch.stack(search.around(np.random.default_rng(0), v, spread, torch.zeros(1, 1).long(), 5_000))
    torch.testing.assert_close(found.mean((0, 1, 2)), v[0, 0])  # pairs on both sides
    torch.testing.assert_close(found.std(0, unbiased=False)[0, 0], spread, atol=0.02, rtol=0)
