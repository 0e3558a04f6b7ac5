from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from sklearn.datasets import load_iris
from torch import nn

import lostwax as lw
from lostwax.games import Cohort
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
    assert any("reproduces the released weights to a relative error of" in note for note in audit.notes)
    assert audit.unanswered == ()
    arrays = lw.audit(net, (table.x.numpy(), table.y.numpy()), trainer=trainer(start), games=1)
    assert arrays.errors == pytest.approx(audit.errors)


@pytest.mark.parametrize("change", ["other data", "other trainer", "no weights"])
def test_a_net_that_was_not_made_so_is_refused(released, change):
    net, start, table = released
    if change == "other data":
        table = lw.Records(table.x.flip(0), table.y)
    if change == "no weights":
        torch.manual_seed(1)
        net = lw.nets.mlp(64, 6, 3)
    way = trainer(start, lr=0.1) if change == "other trainer" else trainer(start)
    with pytest.raises(
        ValueError, match=r"does not end at the weights of the net: it misses them by [0-9.]+ of what one record"
    ):
        lw.audit(net, table, trainer=way, games=1)


def test_what_cannot_be_trained_again(released):
    net, start, table = released
    with pytest.raises(ValueError, match="SGD takes batches"):
        lw.audit(net, table, trainer=SGD(lr=0.1, batch_size=5, epochs=1, init=lw.inits.Given(start)), games=1)
    with pytest.raises(ValueError, match="initialisation is private"):
        lw.audit(net, table, trainer=GD(lr=0.1, steps=1, init=lw.inits.LeCunNormal(seed=None)), games=1)
    with pytest.raises(TypeError, match="threat does not apply to a torch net"):
        lw.audit(net, table, trainer=trainer(start), threat=lw.Informed(table))
    with pytest.raises(TypeError, match="expected class numbers or targets in y"):
        lw.audit(net, (table.x, ["a"] * 60), trainer=trainer(start))


@pytest.fixture(scope="module")
def small():
    """A small net that was trained with weight decay, by the trainer that is returned, and its table."""
    X, y = load_iris(return_X_y=True)
    (table,) = lw.Records(torch.from_numpy((X - X.mean(0)) / X.std(0)), torch.from_numpy(y)).split(76, seed=0)
    torch.manual_seed(0)
    net = nn.Linear(4, 3).double()
    made = GD(lr=0.5, momentum=0.9, steps=15, init=lw.inits.Given(deepcopy(net.state_dict())), weight_decay=1e-4)
    own = lw.Records(table.x[None, -1:], table.y[None, -1:])
    net.load_state_dict(made(net, Cohort(table[:-1], own, torch.zeros(1, dtype=torch.long)), seed=0)[0])
    return net, made, table


def audited(net, trainer, table, **changes):
    return lw.audit(net, table, trainer=trainer, attack=lw.Newton(bank=5), games=2, **changes)


def test_a_forgotten_weight_decay_is_refused(small):
    """A miss of 1e-3 of the way is small beside the way, and not beside what one of 76 records changes."""
    net, made, table = small
    assert audited(net, made, table).findings[0].rebuilt.all()
    with pytest.raises(ValueError, match="of what one record changes in the weights, and"):
        audited(net, replace(made, weight_decay=0.0), table)


def test_a_miss_that_hides_records_leaves_the_audit_undecided(small):
    """Too small to be refused, and a record is hidden by it: it is rebuilt where the trainer itself ends."""
    net, made, table = small
    audit = audited(net, replace(made, weight_decay=0.9e-4), table, threshold=1e-3)
    hidden = 2 - audit.findings[0].rebuilt.sum()
    assert hidden > 0
    (sentence,) = audit.unanswered
    assert sentence.startswith(f"{hidden} of 2 records are not rebuilt from the released weights, but are from")
    assert audited(net, made, table, threshold=1e-3).unanswered == ()


def test_the_released_weights_are_not_the_start(released):
    net, _, table = released
    with pytest.raises(ValueError, match="GD starts from the released weights themselves"):
        lw.audit(net, table, trainer=GD(lr=LR, momentum=0.9, steps=STEPS), games=1)


def test_training_that_diverges_is_refused(released):
    net, start, table = released
    with pytest.raises(ValueError, match="GD on this data diverges"):
        lw.audit(net, table, trainer=trainer(start, lr=1e30), games=1)
