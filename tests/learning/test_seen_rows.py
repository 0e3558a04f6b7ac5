"""Which row each number lies in that is seen of a model: against what `Superparameters` sees of the row."""

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.access import Neuron, neurons
from lostwax.games import Release
from lostwax.inits import trainable
from lostwax.learning.standardise import SeenRows, Standardise

NETS = {
    "mlp": lw.nets.mlp(5, 4, 3),
    "convolution": nn.Sequential(nn.Conv2d(2, 3, 2), nn.GroupNorm(1, 3), nn.Flatten(), nn.Linear(12, 2, bias=False)),
    "layer": nn.Linear(4, 3),
}


def models(net, m=50):
    random = torch.Generator().manual_seed(0)
    return Release({name: torch.randn(m, *value.shape, generator=random) for name, value in trainable(net).items()})


@pytest.mark.parametrize("name", NETS)
def test_rows_are_found_wherever_they_lie(name):
    """Each row's features, put together again, are what `Superparameters` sees of it."""
    net = NETS[name]
    release = models(net)
    seen = release.flat()
    standardise = Standardise.fit(seen)
    features, found = standardise(seen), SeenRows.of(net, lw.access.Weights(), standardise)
    rows = iter(neurons(net))
    for layer in found.layers:
        for place, unit in zip(layer.place, layer.unit, strict=True):
            row = lw.access.Superparameters((next(rows),))(net, release).double()
            moved = (features[:, place] * unit, row - row.mean(0))
            ours, theirs = (part / part.norm(dim=1, keepdim=True) for part in moved)
            torch.testing.assert_close(ours, theirs)
    assert next(rows, None) is None
    covered = sorted(torch.cat([found.others, *(layer.place.flatten() for layer in found.layers)]).tolist())
    assert covered == list(range(seen.shape[1]))
    assert (len(found.others) > 0) == (name == "convolution")  # the norm's scale and shift


@pytest.mark.parametrize(
    "access", [lw.access.Layers("3"), lw.access.Superparameters((Neuron("1", 2), Neuron("3", 0)))], ids=repr
)
def test_what_is_not_seen_has_no_row(access):
    net = NETS["mlp"]
    seen = access(net, models(net))
    found = SeenRows.of(net, access, Standardise.fit(seen))
    assert sum(layer.place.numel() for layer in found.layers) == seen.shape[1]
    assert len(found.others) == 0


def test_weights_that_never_move_are_columns_of_nothing():
    net = NETS["layer"]
    release = models(net)
    release.params["weight"][:, 1] = 0.5  # a row
    release.params["weight"][:, :, 2] = 0.5  # a column
    release.params["bias"][:, 1] = 0.5
    seen = release.flat()
    (layer,) = SeenRows.of(net, lw.access.Weights(), Standardise.fit(seen)).layers
    assert layer.place.shape == (2, 5)
    assert (layer.place[:, 2] == -1).all()
    assert (layer.unit[:, 2] == 0).all()
    torch.testing.assert_close(layer.unit.square().sum(1), torch.ones(2, dtype=torch.float64))


def test_told_numbers_stand_beside_the_rows():
    net = NETS["layer"]
    told = torch.rand(50, 2)
    found = SeenRows.of(net, lw.access.Weights(), Standardise.fit(torch.cat([models(net).flat(), told], 1), 2))
    assert found.others.tolist() == [15, 16]
