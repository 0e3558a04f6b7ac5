"""Large records, without a Jacobian: near in a few products, and nearer in more."""

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.attacks.newton import Newton
from lostwax.games import Hints, Knowledge, Records, Release

KNOWN, PRIOR, SECRETS = (
    Records(nn.functional.interpolate(part.x, size=12, mode="bilinear"), part.y)  # 144 numbers that 64 determine
    for part in lw.records.digits().split(30, 600, 3, seed=0)
)
NET = nn.Sequential(nn.Conv2d(1, 6, 4, stride=2), nn.ELU(), nn.Flatten(), nn.Linear(150, 6), nn.ELU(), nn.Linear(6, 10))
GD = lw.GD(lr=0.1, momentum=0.9, steps=5, init=lw.inits.LeCunNormal())
THREAT = lw.Informed(KNOWN)
GAME = Knowledge(NET, GD, THREAT, lw.access.Weights(), PRIOR)
COHORT = THREAT.deal(SECRETS, 3, seed=0)
RELEASE = GD(NET, COHORT, seed=0)
TRUTH = COHORT.own.x.flatten(1).double()


def errors(found):
    return (torch.stack([one.record for one in found]) - TRUTH).square().mean(1)


@pytest.fixture(scope="module")
def found():
    return Newton(bank=50, products=28).prepare(GAME, seed=0).invert(RELEASE)


def test_a_few_products_find_most_of_a_record(found):
    blind = (TRUTH - PRIOR.x.double().mean(0).flatten()).square().mean(1)
    assert (errors(found) < blind / 10).all()
    assert [int(one.label) for one in found] == COHORT.own.y[:, 0].tolist()
    assert [one.jacobians for one in found] == [3] * 3  # 4 + 8 + 16 products


def test_it_knows_that_it_is_only_near(found):
    assert not any(one.certified for one in found)
    foretold = torch.tensor([one.predicted for one in found])
    assert (foretold > errors(found)).all()
    assert (foretold < 30 * errors(found)).all()


def test_fewer_products_are_less_near_and_a_told_label_is_taken(found):
    hints = Hints(labels=COHORT.own.y)
    few = Newton(bank=0, products=4).prepare(GAME, seed=0)
    guess = few(RELEASE, hints)
    assert guess.records.x.shape == COHORT.own.x.shape
    assert torch.equal(guess.records.y, COHORT.own.y)
    assert not guess.certified.any()
    assert (errors(few.invert(RELEASE, hints)) > 2 * errors(found)).all()


def test_a_victim_that_diverged_is_no_reason_to_stop():
    broken = Release({name: value.clone() for name, value in RELEASE.params.items()})
    broken.params["0.weight"][1] = torch.nan
    found = Newton(bank=0, products=4).prepare(GAME, seed=0).invert(broken)
    assert [one.certified for one in found] == [False] * 3
    assert (errors(found)[[0, 2]] < 0.1).all()


def test_another_attack_has_no_say_where_no_jacobian_is():
    with pytest.raises(ValueError, match="expected start None where products are given"):
        Newton(products=4, start=lw.RecoNN())
    with pytest.raises(ValueError, match="expected products >= 1, or None, got 0"):
        Newton(products=0)


@pytest.mark.parametrize("bank", [60, 700])
def test_where_it_finds_nothing_it_is_better_than_blind_and_never_leaves_the_range(bank):
    """Training of a deep ReLU net jumps at kinks: most steps lead on by chance, if at all."""
    known, prior, secrets = lw.records.digits().split(100, 600, 4, seed=0)
    net, trainer = (
        lw.nets.mlp(64, 10, 10, 10, 10, activation=nn.ReLU),
        lw.GD(lr=0.05, momentum=0.9, steps=20, init=lw.inits.LeCunNormal()),
    )
    threat = lw.Informed(known)
    cohort = threat.deal(secrets, 4, seed=0)
    release, truth = trainer(net, cohort, seed=0), cohort.own.x.flatten(1).double()
    inverter = Newton(bank=bank, products=12).prepare(
        Knowledge(net, trainer, threat, lw.access.Weights(), prior), seed=0
    )
    records = torch.stack([one.record for one in inverter.invert(release)])
    assert ((records >= 0) & (records <= 1)).all()
    assert (records - truth).square().mean() < 0.8 * (prior.x.mean(0).flatten() - truth).square().mean()
