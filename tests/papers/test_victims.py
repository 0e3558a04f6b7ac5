"""VGG."""

import torch
from torch import nn

from of_papers import paper_lib

vgg11 = paper_lib("victims").vgg11


def test_the_base_model_of_s2():
    net = vgg11()
    convolutions = [layer for layer in net if isinstance(layer, nn.Conv2d)]
    linear = [layer for layer in net if isinstance(layer, nn.Linear)]
    original = 64, 128, 256, 256, 512, 512, 512, 512  # Simonyan and Zisserman 2015, Table 1, A
    assert [layer.out_channels for layer in convolutions] == [channels // 16 for channels in original]
    assert [layer.out_features for layer in linear] == [256, 256, 26]  # S2, D.1
    assert net(torch.zeros(2, 1, 32, 32)).shape == (2, 26)


def test_a_head_on_its_features_has_the_numbers_of_s2():
    backbone = vgg11()[:-1]
    features = backbone(torch.rand(3, 1, 32, 32))
    assert features.shape == (3, 256)
    assert (features >= 0).all()  # behind the activation
    assert sum(value.numel() for value in nn.Linear(256, 10).parameters()) == 2_570  # S2, Table 2


def test_other_pictures():
    assert vgg11(10, channels=3, size=64)(torch.zeros(2, 3, 64, 64)).shape == (2, 10)
