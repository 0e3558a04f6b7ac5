"""What is lowered, of errors to one's own set and to others'."""

import math

import pytest
import torch

import lostwax as lw

NEAR, FAR = torch.tensor([[0.01]]), torch.tensor([[0.5]])
BAR = lw.attacks.weak.BeatChance(within=0.05)


def slope(aim, error, chance):
    """By the error to its own set, and by that to another."""
    error, chance = error.clone().requires_grad_(), chance.clone().requires_grad_()
    return [float(value) for value in torch.autograd.grad(aim(error, chance), (error, chance), materialize_grads=True)]


def test_a_mean_and_a_mean_of_logarithms():
    error = torch.tensor([[0.1, 0.4], [0.2, 0.1]])
    assert float(lw.attacks.weak.MeanError()(error, error)) == pytest.approx(0.2)
    geometric = (0.1 * 0.4 * 0.2 * 0.1) ** 0.25
    assert float(lw.attacks.weak.LogError()(error, error)) == pytest.approx(math.log(geometric), abs=1e-3)


def test_a_guess_that_is_near_to_any_set_is_worth_less_than_none():
    alone, anybody, nobody = BAR(NEAR, FAR), BAR(NEAR, NEAR), BAR(FAR, FAR)
    assert alone < nobody < anybody


def test_it_pushes_what_lies_about_its_bar():
    bar = torch.tensor([[0.05]])
    own, chance = slope(BAR, bar, bar)
    assert own > 0 > chance  # lower the one, raise the other
    assert abs(slope(BAR, FAR, FAR)[1]) < 1e-3  # far from others is far enough
    assert slope(BAR, FAR, FAR)[0] == pytest.approx(
        0.3 * slope(lw.attacks.weak.LogError(), FAR, FAR)[0], rel=1e-3
    )  # it can start


@pytest.mark.parametrize("name", ["within", "price"])
def test_what_it_cannot_do(name):
    with pytest.raises(ValueError, match=f"BeatChance: expected {name} > 0, got 0"):
        lw.attacks.weak.BeatChance(**{"within": 0.1, name: 0.0})
