"""Adapters of low rank."""

import pytest
import torch
from torch import nn

from lostwax.nets import lora, mlp
from of_papers import paper_lib

TextClassifier = paper_lib("sentences").TextClassifier


def test_an_adapted_net_starts_as_the_net_itself():
    net, x = mlp(6, 5, 4, 3), torch.rand(7, 6)
    assert torch.equal(lora(net, 2)(x), net(x))
    assert all(value.requires_grad for value in net.parameters())  # the user's net is not changed


def test_only_the_adapters_of_all_layers_but_the_last_are_trained():
    ours = lora(TextClassifier(20, 4, width=8, layers=1), 3)
    trained = {name: value for name, value in ours.named_parameters() if value.requires_grad}
    linear = [
        name for name, part in TextClassifier(20, 4, width=8, layers=1).named_modules() if type(part) is nn.Linear
    ]
    assert set(trained) == {f"{name}.{part}" for name in linear[:-1] for part in "ab"}
    assert trained["blocks.0.attention.b"].shape == (24, 3)
    assert not trained["blocks.0.attention.b"].any()


def test_the_start_is_public():
    net = mlp(6, 5, 3).double()
    one, again, other = (lora(net, 2, seed=seed).get_parameter("1.a") for seed in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert one.dtype == torch.float64


@pytest.mark.parametrize(("net", "rank"), [(mlp(6, 3), 2), (mlp(6, 5, 3), 0)])
def test_what_cannot_be_adapted_is_refused(net, rank):
    with pytest.raises(ValueError, match=r"lora: expected"):
        lora(net, rank)


def test_layers_of_another_kind_are_left_as_they_are():
    net = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Flatten(), nn.Linear(16, 3))
    assert lora(net, 2)(torch.zeros(1, 2, 8)).shape == (1, 3)
