"""Fully connected nets."""

import pytest
import torch
from torch import nn

from lostwax.nets import mlp


def test_the_victim_of_s1():
    net = mlp(784, 10, 10)
    assert [type(layer) for layer in net] == [nn.Flatten, nn.Linear, nn.ELU, nn.Linear]
    assert sum(value.numel() for value in net.parameters()) == 7_960
    assert net(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_one_layer_has_no_activation():
    assert [type(layer) for layer in mlp(4, 3, activation=nn.ReLU)] == [nn.Flatten, nn.Linear]


@pytest.mark.parametrize("sizes", [(), (4,), (4, 0)])
def test_sizes_are_checked(sizes):
    with pytest.raises(ValueError, match=r"mlp: expected (two sizes or more|size 2)"):
        mlp(*sizes)
