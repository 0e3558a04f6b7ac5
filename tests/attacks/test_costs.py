"""What attacks predict about themselves: seconds, bytes, and how strong they are."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.access import Weights
from lostwax.attacks import ClosedForm, NearestCandidate, Refit
from lostwax.games import Informed, Knowledge, Records
from lostwax.learning.costs import Rate
from lostwax.trainers import GD

PARTS = Records(torch.rand(60, 4), torch.arange(60) % 3).split(20, 30, 10, seed=0)
KNOWN, PRIOR, _ = PARTS
TRAINER = GD(steps=3, lr=0.5, init=lw.inits.LeCunNormal())
KNOWLEDGE = Knowledge(nn.Linear(4, 3), TRAINER, Informed(KNOWN), Weights(), PRIOR)
RATE = Rate(0.01, 15, 15)


@pytest.mark.parametrize("decoder", [lw.decoders.MLPDecoder(width=8), lw.decoders.RowDecoder(width=8)])
def test_a_decoder_is_counted_as_it_is_built(decoder):
    attack = lw.RecoNN(decoder=decoder, epochs=1)
    before = torch.get_rng_state()
    counted = attack.decoder_parameters(KNOWLEDGE, 15)
    assert torch.equal(torch.get_rng_state(), before)
    built = attack.prepare(KNOWLEDGE, seed=0)
    assert len(built.standardise.kept) == 15
    assert counted == sum(value.numel() for value in built.decoder.parameters())


@pytest.mark.parametrize("attack", [lw.RecoNN(shadows=20), lw.KernelRidge(shadows=20)])
def test_more_shadow_models_cost_more(attack):
    few, many = (replace(attack, shadows=shadows).cost(KNOWLEDGE, 5, RATE) for shadows in (10, 1_000))
    assert 0.1 < few.seconds < many.seconds
    assert 0 < few.bytes < many.bytes


def test_without_a_rate_no_decoder_is_timed(monkeypatch):
    monkeypatch.setattr(torch.optim, "AdamW", None)
    cost = lw.RecoNN().cost(KNOWLEDGE, 5, Rate(0.0, 15, 15))
    assert cost.seconds == 0
    assert cost.bytes > 0


def test_refitting_trains_for_every_candidate():
    told = replace(KNOWLEDGE, threat=Informed(KNOWN, candidates=3))
    assert Refit(repeats=2).cost(told, 7, RATE).seconds == pytest.approx(2 * 3 * 7 * 0.01)


def test_the_attack_inside_tells():
    inside = lw.KernelRidge()
    assert NearestCandidate(inside).cost(KNOWLEDGE, 5, RATE) == inside.cost(KNOWLEDGE, 5, RATE)
    assert NearestCandidate(inside).facts().strength == inside.facts().strength
    order = [ClosedForm(), Refit(), lw.KernelRidge(), lw.WeakRecoNN(), lw.RecoNN()]
    strengths = [attack.facts().strength for attack in order]
    assert strengths == sorted(set(strengths), reverse=True)


def test_a_clock_that_is_set_is_only_ever_shortened():
    attack = lw.WeakRecoNN(minutes=10)
    assert attack.cost(KNOWLEDGE, 5, RATE).seconds == 600
    assert attack.within(float("inf")) == attack.within(1e6) == attack
    assert 0 < 60 * attack.within(100).minutes < 100
    assert replace(attack, minutes=None).within(100) == attack.within(100)
    assert replace(attack, minutes=None).cost(KNOWLEDGE, 5, RATE).seconds == float("inf")
