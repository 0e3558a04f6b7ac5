"""Part of a model."""

import pytest
import torch

from instances import instances
from lostwax.access import Layers, Weights
from lostwax.games import Release
from lostwax.inits import LeCunNormal
from lostwax.nets import mlp

NET = mlp(4, 5, 3)
RELEASE = Release(LeCunNormal(seed=None)(NET, range(6), seed=0))


def test_a_module_is_all_of_its_parameters_and_nothing_else():
    seen = Layers("3")(NET, RELEASE)
    last = [torch.cat([RELEASE[i]["3.weight"].flatten(), RELEASE[i]["3.bias"]]) for i in range(6)]
    assert torch.equal(seen, torch.stack(last))
    assert torch.equal(Layers("1.weight")(NET, RELEASE), RELEASE.params["1.weight"].flatten(1))


def test_all_layers_are_the_weights_whatever_the_order_of_the_names():
    assert torch.equal(Layers("3", "1")(NET, RELEASE), Weights()(NET, RELEASE))
    assert all(access(NET, RELEASE).shape[0] == 6 for access in instances(Layers))


def test_a_prefix_of_a_number_is_not_a_module():
    release = Release({"1.weight": torch.zeros(2, 3), "10.weight": torch.ones(2, 3)})
    assert torch.equal(Layers("1")(NET, release), torch.zeros(2, 3))


def test_it_is_a_value():
    assert Layers("1", "3") == Layers("1", "3") != Layers("1")
    assert "names=('1', '3')" in repr(Layers("1", "3"))


def test_a_name_that_is_not_there():
    with pytest.raises(ValueError, match=r"the release has no parameter in 'head'. It publishes 1.weight, 1.bias"):
        Layers("1", "head")(NET, RELEASE)
    with pytest.raises(ValueError, match=r"Use Weights\(\)"):
        Layers()
