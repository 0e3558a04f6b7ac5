"""No certificate where another record explains the weights as well, or where the record has no effect."""

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.attacks.newton import Newton, inverter
from lostwax.attacks.newton.misfit import PLACES, AnswerCheck, mirrored, returning, varied
from lostwax.games import Knowledge, Records

D = 5


class Folded(nn.Module):
    """|x - centre| of some of the columns."""

    def __init__(self, columns, centre=0.0):
        super().__init__()
        self.columns, self.centre = columns, centre

    def forward(self, x):
        folded = (x - self.centre).abs()
        return torch.where(torch.isin(torch.arange(x.shape[-1]), torch.tensor(self.columns)), folded, x)


class Abs(nn.Module):
    def forward(self, x):
        return x.abs()


def head(width):
    return nn.Linear(width, 10), nn.Tanh(), nn.Linear(10, 3)


NETS = {
    "every column": nn.Sequential(Folded([0, 1, 2, 3, 4]), *head(D)),
    "one column": nn.Sequential(Folded([3]), *head(D)),
    "two columns, around another number": nn.Sequential(Folded([1, 4], 0.4), *head(D)),
    "an even activation": nn.Sequential(nn.Linear(D, 10, bias=False), Abs(), nn.Linear(10, 3)),
}


def invert(net, seed, units=1.0, dtype=torch.float64, lr=0.05):
    """The inversions, and whether each answer is right to 0.2 deviations in every column."""
    random = torch.Generator().manual_seed(seed)
    y = torch.randint(3, (110,), generator=random)
    x = torch.randn(3, D, generator=random)[y] + torch.randn(110, D, generator=random)
    records = Records((x * units).to(dtype), y)
    known, prior, hidden = records[:30], records[30:90], records[90:93]
    trainer, threat = lw.GD(lr=lr, momentum=0.9, steps=8, init=lw.inits.LeCunNormal(seed=seed)), lw.Informed(known)
    cohort = threat.deal(hidden, len(hidden), seed=0)
    knowledge = Knowledge(net.to(dtype), trainer, threat, lw.access.Weights(), prior)
    found = Newton(bank=60).prepare(knowledge, seed=0).invert(trainer(net, cohort, seed=0))
    off = torch.stack([one.record for one in found]) - cohort.own.x[:, 0]
    return found, (off.abs() <= 0.2 * records.x.double().std(0)).all(1).tolist()


@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
def test_a_record_with_a_double_is_not_certified(net):
    found, _ = invert(net, 1)
    assert not any(one.certified for one in found)
    assert sum(one.explained and one.double is not None for one in found) >= len(found) / 2


def test_records_without_a_double_are_certified():
    found, right = invert(nn.Sequential(*head(D)), 2)
    assert all(right)
    assert all(one.certified for one in found)


def test_columns_are_judged_in_their_own_units(monkeypatch):
    """In float32, with deviations from 0.002 to 300: by their mean, a record with a wrong cell would be certified."""
    units, net = torch.tensor([1.0, 300.0, 0.002, 5.0, 0.3]), nn.Sequential(*head(D))

    def certified(seed, lr):
        """How many right answers are certified, and how many wrong ones."""
        found, right = invert(net, seed, units, torch.float32, lr=lr)
        sure = [fine for one, fine in zip(found, right, strict=True) if one.certified]
        return sum(sure), len(sure) - sum(sure)

    assert certified(3, 1e-3)[1] == 0
    assert certified(8, 0.01)[1] == 0
    by_column = inverter.determined
    monkeypatch.setattr(inverter, "determined", lambda *parts, pictures: by_column(*parts, pictures=True))
    assert certified(3, 1e-3)[1] == 1


@pytest.mark.parametrize("seed", [44, 95])
def test_a_record_that_activates_no_neuron_is_not_certified(seed, monkeypatch):
    """Any such record leaves the weights as they are; so does one next to zero, where the Jacobian has full rank."""
    random = torch.Generator().manual_seed(seed)
    net = nn.Sequential(nn.Linear(3, 3, bias=False), nn.ReLU(), nn.Linear(3, 3, bias=False)).double()
    y = torch.randint(3, (400,), generator=random)
    x = torch.randn(3, 3, generator=random)[y] + torch.randn(400, 3, generator=random)
    records = Records(x.double(), y)
    trainer, threat = lw.GD(lr=0.05, steps=5, init=lw.inits.LeCunNormal(seed=seed)), lw.Informed(records[:30])
    cohort = threat.deal(records[80:], 320, seed=0)
    release, start = trainer(net, cohort, seed=0), trainer.init(net, [0], seed=0)["0.weight"]
    hidden = [
        (weight.double() @ cohort.own.x[:, 0].unsqueeze(2))[..., 0] for weight in (start, release.params["0.weight"])
    ]
    silent = ((hidden[0] < 0) & (hidden[1] < 0)).all(1).nonzero()[:2, 0]
    knowledge = Knowledge(net, trainer, threat, lw.access.Weights(), records[30:80])
    attack = Newton(bank=60).prepare(knowledge, seed=0)
    assert not any(one.certified for one in attack.invert(release.chosen(silent)))
    monkeypatch.setattr(AnswerCheck, "effect", lambda _: torch.inf)
    assert any(one.certified for one in attack.invert(release.chosen(silent)))


def test_mirror_images_and_what_returns():
    z, mean = torch.arange(1.0, 7.0).double(), torch.full((6,), 2.0).double()
    images = {tuple(row.tolist()) for row in mirrored(z, mean, 1, (2, 3))}
    assert {(-1, -2, -3, -4, -5, -6), (3, 2, 1, 0, -1, -2), (3, 1, 2, 6, 4, 5), (3, 2, 1, 6, 5, 4)} <= images
    assert {(1, 2, -3, 4, 5, 6), (1, 3, 2, 4, 5, 6)} <= images
    lines, which = varied(z, mean, torch.ones(6).double())
    assert lines.shape == (6, PLACES, 6)
    values = lines[torch.arange(6), :, which]
    assert not returning((values - z[:, None]).abs(), values, z).any()
    folded = (values.abs() - z[:, None].abs()).abs()
    back = returning(folded, values, z)
    assert back[0].any()
    assert (values[back] < 0).all()
