from copy import deepcopy

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.trainers import GD, SGD

STEPS, LR = 20, 0.3


@pytest.fixture(scope="module")
def released():
    """A net that a plain torch loop trained from its own start, the start, and the training set."""
    digits = lw.records.digits()
    (table,) = digits[digits.y < 3].split(60, seed=0)
    torch.manual_seed(0)
    net = lw.nets.mlp(64, 6, 3)
    start = deepcopy(net.state_dict())
    optimiser = torch.optim.SGD(net.parameters(), lr=LR, momentum=0.9)
    for _ in range(STEPS):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(table.x), table.y).backward()
        optimiser.step()
    return net, start, table


def trainer(start, **changes):
    return GD(**{"lr": LR, "momentum": 0.9, "steps": STEPS, "init": lw.inits.Given(start), **changes})


def test_records_are_rebuilt_from_this_very_net(released):
    net, start, table = released
    audit = lw.audit(net, table, trainer=trainer(start), games=1)
    assert audit.kind == "this model"
    assert audit.findings[0].rebuilt.all()
    assert audit.guess.certified.all()
    assert "1 of 60 games" in str(audit)
    assert any("ends at the released weights, but for" in note for note in audit.notes)
    arrays = lw.audit(net, (table.x.numpy(), table.y.numpy()), trainer=trainer(start), games=1)
    assert arrays.errors == pytest.approx(audit.errors)


@pytest.mark.parametrize("change", ["other data", "other trainer", "no weights"])
def test_a_net_that_was_not_made_so_is_refused(released, change):
    net, start, table = released
    if change == "other data":
        table = lw.Records(table.x.flip(0), table.y)
    if change == "no weights":
        net = lw.nets.mlp(64, 6, 3)
    way = trainer(start, lr=0.1) if change == "other trainer" else trainer(start)
    with pytest.raises(
        ValueError, match=r"does not end at the weights of the net: it misses them by [0-9.]+ of the way"
    ):
        lw.audit(net, table, trainer=way, games=1)


def test_what_cannot_be_trained_again(released):
    net, start, table = released
    with pytest.raises(ValueError, match="SGD takes batches"):
        lw.audit(net, table, trainer=SGD(lr=0.1, batch_size=5, epochs=1, init=lw.inits.Given(start)), games=1)
    with pytest.raises(ValueError, match="initialisation is drawn anew"):
        lw.audit(net, table, trainer=GD(lr=0.1, steps=1, init=lw.inits.LeCunNormal(seed=None)), games=1)
    with pytest.raises(TypeError, match="threat has no meaning for a torch net"):
        lw.audit(net, table, trainer=trainer(start), threat=lw.Informed(table))
    with pytest.raises(TypeError, match="expected class numbers or targets in y"):
        lw.audit(net, (table.x, ["a"] * 60), trainer=trainer(start))
