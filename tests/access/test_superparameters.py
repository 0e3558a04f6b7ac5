"""A neuron's incoming weights and bias as one unit."""

import pytest
import torch
from torch import nn

from instances import instances
from lostwax.access import Layers, Neuron, Superparameters, Weights, neurons
from lostwax.games import Release
from lostwax.inits import LeCunNormal, TorchDefault
from lostwax.learning.standardise import Standardise
from lostwax.nets import mlp

NET = mlp(4, 5, 3)
RELEASE = Release(TorchDefault(seed=None)(NET, range(6), seed=0))


def test_a_row_is_what_the_neuron_computes_with():
    row = Superparameters((Neuron("1", 2),))(NET, RELEASE)
    x = torch.rand(4, dtype=torch.float64)
    for model in range(6):
        net = mlp(4, 5, 3).double()
        net.load_state_dict(RELEASE[model])
        torch.testing.assert_close(row[model, :4] @ x + row[model, 4], net[1](x)[2])


def test_a_channel_of_a_convolution_is_a_row():
    net = nn.Sequential(nn.Conv2d(2, 3, 2), nn.ReLU(), nn.GroupNorm(1, 3), nn.Flatten(), nn.Linear(12, 2, bias=False))
    release = Release(TorchDefault(seed=None)(net, range(2), seed=0))
    seen = Superparameters((Neuron("0", 1),))(net, release)
    patch = torch.rand(1, 2, 2, 2, dtype=torch.float64)
    net.double().load_state_dict(release[1], strict=False)
    torch.testing.assert_close(seen[1, :8] @ patch.flatten() + seen[1, 8], net[0](patch)[0, 1, 0, 0])
    assert [str(row) for row in neurons(net)] == ["0[0]", "0[1]", "0[2]", "4[0]", "4[1]"]  # and none of the norm
    assert Superparameters((Neuron("4", 0),))(net, release).shape == (2, 12)  # no bias


def test_all_rows_are_the_weights_whatever_their_order():
    rows = neurons(NET)
    seen = Superparameters(rows[::-1])(NET, RELEASE)
    assert torch.equal(seen.sort(1).values, Weights()(NET, RELEASE).sort(1).values)
    assert torch.equal(seen, Superparameters(rows)(NET, RELEASE))
    first = Superparameters(tuple(row for row in rows if row.module == "1"))(NET, RELEASE)
    assert torch.equal(first.sort(1).values, Layers("1")(NET, RELEASE).sort(1).values)
    assert Standardise.fit(seen)(seen).shape == seen.shape


def test_layers_that_are_not_trained_have_no_rows():
    net = mlp(4, 5, 3)
    net[1].requires_grad_(False)
    assert neurons(net) == tuple(Neuron("3", number) for number in range(3))
    assert neurons(nn.Linear(2, 2)) == (Neuron("", 0), Neuron("", 1))
    alone = Release(LeCunNormal(seed=None)(nn.Linear(2, 2), range(3), seed=0))
    assert Superparameters((Neuron("", 1),))(nn.Linear(2, 2), alone).shape == (3, 3)


def test_it_is_a_value():
    one, other = instances(Superparameters)
    assert one == Superparameters((Neuron("1", 0),)) != other
    assert repr(one) == "Superparameters(rows=(Neuron(module='1', number=0),))"
    assert other(NET, RELEASE).shape == (6, 5 + 6)


@pytest.mark.parametrize("row", [Neuron("1", 5), Neuron("1", -1), Neuron("2", 0)])
def test_a_row_that_is_not_there(row):
    with pytest.raises(ValueError, match=r"no row .*\. Its trainable rows are 1\[0\] to 1\[4\], 3\[0\] to 3\[2\]"):
        Superparameters((row,))(NET, RELEASE)


def test_no_row():
    with pytest.raises(ValueError, match="at least one neuron"):
        Superparameters(())
