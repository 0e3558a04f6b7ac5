"""Neurons are a set."""

import pytest
import torch
from torch import nn

from lostwax.learning.decoders import Equivariant

SIZES = {"width": 16, "layers": 2, "heads": 2}
TOKENS = torch.randn(6, 5, 7, generator=torch.Generator().manual_seed(0))
ORDER = torch.tensor([3, 1, 4, 0, 2])


def built(**settings):
    torch.manual_seed(0)
    return Equivariant(5, 7, **SIZES, **settings).eval()


def close(one, other):
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_classes_that_change_places_change_the_places_of_their_answers():
    net, turned = (built(classes=range(5), of_class=True) for _ in range(2))
    turned.kinds = nn.Parameter(net.kinds[ORDER])  # the embeddings go with their neurons
    close(turned(TOKENS[:, ORDER]), net(TOKENS)[:, ORDER])
    with torch.no_grad():
        net.kinds.zero_()
    close(net(TOKENS[:, ORDER]), net(TOKENS)[:, ORDER])


def test_hidden_neurons_have_no_order():
    net = built(classes=(0, 2, 3), of_class=False)
    assert net(TOKENS).shape == (6, 3, 16)
    close(net(TOKENS[:, ORDER]), net(TOKENS))


def test_an_answer_depends_on_all_neurons():
    for of_class in (True, False):
        net = built(classes=range(5), of_class=of_class)
        tokens = TOKENS.clone().requires_grad_()
        net(tokens)[:, 2].sum().backward()
        assert (tokens.grad.flatten(2).abs().sum(2) > 0).all()


def test_only_the_classes_asked_for_are_answered():
    net = built(classes=(1, 4), of_class=True)
    every = built(classes=range(5), of_class=True)
    close(net(TOKENS), every(TOKENS)[:, [1, 4]])


def test_of_class_is_true_or_false():
    with pytest.raises(ValueError, match="Equivariant: expected of_class to be True or False, got torch's Tensor"):
        built(classes=range(5), of_class=torch.ones(3, 3))
