"""Convolutional nets."""

import pytest
import torch
from torch import nn

from lostwax.nets import cnn


def test_the_cifar_victim_of_s1():
    net = cnn()
    kinds = [nn.Conv2d, nn.ELU, nn.Conv2d, nn.ELU, nn.Flatten, nn.Linear, nn.ELU, nn.Linear]
    assert [type(layer) for layer in net] == kinds
    assert sum(value.numel() for value in net.parameters()) == 55_208  # the "50K" of S1, section VI-B
    assert net(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_the_larger_victim_is_wider_in_the_first_linear_layer():
    assert sum(value.numel() for value in cnn(hidden=20).parameters()) == 101_398  # the "100K"


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 10, 11), (2, 17, 12)])
def test_other_pictures(shape):
    net = cnn(shape, 4, activation=nn.ReLU)
    assert net(torch.zeros(3, *shape)).shape == (3, 4)
    assert isinstance(net[1], nn.ReLU)


def test_pictures_that_are_too_small_are_refused():
    with pytest.raises(ValueError, match=r"cnn: expected images of at least 10 x 10, got 8 x 8\. Use nets\.mlp\."):
        cnn((1, 8, 8))
