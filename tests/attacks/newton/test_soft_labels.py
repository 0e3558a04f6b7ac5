"""Shares of classes: a loss that is linear in them, and labels read off."""

import pytest
import torch

from lostwax.attacks.newton.whole_sets import Mixed, Soft
from lostwax.losses import BinaryCrossEntropy, CrossEntropy


@pytest.mark.parametrize("loss", [CrossEntropy(), BinaryCrossEntropy()])
def test_a_whole_share_is_the_class(loss):
    outputs, y = torch.randn(7, 4).double(), torch.tensor([0, 1, 2, 3, 0, 3, 2])
    mixed, shares = Mixed(loss, (0, 1, 2, 3)), torch.nn.functional.one_hot(y, 4).double()
    assert torch.allclose(mixed(outputs, shares), loss(outputs, y))
    assert torch.allclose(mixed.residual(outputs, shares), loss.residual(outputs, y))


def test_the_residual_is_the_slope_of_the_loss():
    outputs, shares = torch.randn(5, 3).double().requires_grad_(), torch.rand(5, 2).double()
    mixed = Mixed(CrossEntropy(), (0, 2))
    (slope,) = torch.autograd.grad(mixed(outputs, shares).sum(), outputs)
    assert torch.allclose(slope, mixed.residual(outputs, shares))


def test_labels_are_the_largest_shares_and_given_ones_are_placed():
    shares = torch.tensor([[0.1, 0.9], [0.7, 0.3], [0.6, 0.4]])
    soft = Soft(torch.arange(3.0)[:, None], shares, (4, 7), left=0.0)
    a, label = soft.labelled(None)
    assert a.tolist() == [1, 2, 0]
    assert label == (4, 4, 7)
    assert soft.ordered(torch.tensor([7, 4, 7])).tolist() == [0, 1, 2]
