"""A Jacobian in factors against its singular values."""

import pytest
import torch

from lostwax.attacks.least_squares import Factored


def jacobian(weakest, rows=40, columns=12):
    """With singular values from 1 to the weakest."""
    generator = torch.Generator().manual_seed(0)
    left, right = (
        torch.linalg.qr(torch.randn(side, columns, generator=generator, dtype=torch.float64)).Q
        for side in (rows, columns)
    )
    return left * torch.logspace(0, torch.tensor(weakest).log10().item(), columns, dtype=torch.float64) @ right.mT


@pytest.mark.parametrize("weakest", [1e-2, 1e-5, 1e-8])
def test_it_agrees_with_singular_values(weakest):
    table = jacobian(weakest)
    factored = Factored.of(table)
    _, sizes, turned = torch.linalg.svd(table, full_matrices=False)
    assert factored.seen
    assert weakest / 12**0.5 <= factored.weakest <= weakest * (1 + 1e-6)
    noise = 1e-6 * weakest**2
    torch.testing.assert_close(
        factored.variance(noise), noise * (turned / sizes[:, None]).square().sum(0), rtol=1e-6, atol=0
    )


@pytest.mark.parametrize("weakest", [1e-2, 1e-7])
def test_singular_values_are_right_or_lower_bounds(weakest):
    table = jacobian(weakest)
    exact, ours = torch.linalg.svdvals(table), Factored.of(table).directions
    assert (ours <= exact * (1 + 1e-6) + 1e-7).all()
    torch.testing.assert_close(ours[exact > 1e-5], exact[exact > 1e-5], rtol=1e-4, atol=0)


def test_a_step_reaches_directions_that_normal_equations_lose():
    table = jacobian(1e-9)
    sought = torch.randn(12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    by_factors = Factored.of(table).step(-table @ sought)
    by_normal = torch.linalg.lstsq(table.mT @ table, (table.mT @ (table @ sought))[:, None]).solution[:, 0]
    assert (by_factors - sought).abs().max() < 1e-5
    assert (by_normal - sought).abs().max() > 1e-2


@pytest.mark.parametrize("weakest", [1e-15, 1e-17])
def test_what_is_lost_in_rounding_is_not_seen(weakest):
    assert not Factored.of(jacobian(weakest)).seen


def test_a_direction_that_moves_nothing_is_not_seen():
    table = jacobian(0.1)
    table[:, 3] = 0.0
    assert not Factored.of(table).seen


def test_no_variance_is_larger_than_the_prior():
    assert Factored.of(jacobian(0.1)).variance(1e9).max() == 1


def test_the_weakest_directions_are_those_of_the_smallest_singular_values():
    table = jacobian(1e-6)
    exact = torch.linalg.svd(table, full_matrices=False).Vh[-3:]
    ours = Factored.of(table).weakest_directions(3)
    assert (ours @ exact.mT @ exact - ours).abs().max() < 1e-3


def test_a_weight_whose_derivatives_are_not_all_numbers_says_nothing():
    """With 0 in their place alone, it would seem to tell two directions apart that move all others alike."""
    table = jacobian(0.1)
    table[:, 1] = table[:, 0]
    table[5, 1] = torch.nan
    assert Factored.of(table.nan_to_num(0.0)).seen
    assert not Factored.of(table).seen
