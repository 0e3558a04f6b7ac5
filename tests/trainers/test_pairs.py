"""Pairs of releases: with a record minus without it, against two trainings, one after the other."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.games import Cohort, Records
from lostwax.losses import CrossEntropy
from lostwax.trainers import Negated, Paired, Unlearned

TRAINER = lw.GD(lr=0.2, momentum=0.9, steps=5, dtype=torch.float64, init=lw.inits.LeCunNormal())
ASCENT = lw.GD(lr=0.05, steps=3, dtype=torch.float64, loss=Negated(CrossEntropy()))


@pytest.fixture
def records():
    random = torch.Generator().manual_seed(0)
    return Records(torch.rand(40, 6, generator=random).double(), torch.arange(40) % 3)


def trained(net, trainer, records):
    """One model, as `torch` would name its weights."""
    everything = torch.arange(len(records))[None]
    cohort = Cohort(records[:0], records[everything], torch.zeros(1, dtype=torch.long))
    return trainer(net, cohort, seed=0)[0]


def test_a_pair_is_two_trainings(records):
    net, pool, own = nn.Linear(6, 3), records[:30], records[30:]
    paired = Paired(TRAINER, size=12, bases=3, scale=0.5, block=2)
    numbers = torch.arange(10)
    differences = paired(net, Cohort(pool, own[numbers[:, None]], numbers), seed=0)
    for number in range(10):
        base = paired.base(pool, number // 2 % 3)
        joined = Records(
            torch.cat([base.x, own.x[number : number + 1]]), torch.cat([base.y, own.y[number : number + 1]])
        )
        first, second = trained(net, TRAINER, joined), trained(net, TRAINER, base)
        for name, value in differences[number].items():
            torch.testing.assert_close(value, 0.5 * (first[name] - second[name]), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("on", ["rest", "erased"])
def test_unlearning_goes_on_from_the_trained_weights(records, on):
    net, shared, own = nn.Linear(6, 3), records[:12], records[30:33]
    by = ASCENT if on == "erased" else replace(TRAINER, steps=2)
    unlearned, numbers = Unlearned(TRAINER, by, on=on), torch.arange(3)
    cohort = Cohort(shared, own[numbers[:, None]], numbers)
    after = unlearned(net, cohort, seed=0)
    differences = Paired(unlearned, size=12, bases=1)(net, cohort, seed=0)
    before = TRAINER(net, cohort, seed=0)
    for number in range(3):
        start = replace(by, init=lw.inits.Given(before[number]))
        expected = trained(net, start, own[number : number + 1] if on == "erased" else shared)
        for name, value in after[number].items():
            torch.testing.assert_close(value, expected[name], rtol=1e-9, atol=1e-11)
            # the base set is all shared records, in another order
            moved = before[number][name] - expected[name]
            torch.testing.assert_close(differences[number][name], moved, rtol=1e-6, atol=1e-9)


def test_a_trainer_without_a_start_cannot_unlearn():
    with pytest.raises(ValueError, match="by to be a trainer with an init"):
        Unlearned(TRAINER, lw.Optimum())
