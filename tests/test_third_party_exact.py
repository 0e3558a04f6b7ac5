"""Exact attacks on trainers defined here: what these state decides, not their class."""

from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.access import Weights
from lostwax.games import Knowledge, Mechanism, TrainerFacts
from lostwax.inits import LeCunNormal
from lostwax.trainers import DPSGD, GD, Optimum

KNOWN, PRIOR, SECRETS = (part.to(torch.float64) for part in lw.records.digits().split(100, 50, 3, seed=0))
NET = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


@dataclass(frozen=True)
class Wrapped:
    """Another trainer's training, with facts of its own."""

    trainer: object
    stated: TrainerFacts = field(default_factory=TrainerFacts)

    def __call__(self, net, cohort, *, seed):
        return self.trainer(net, cohort, seed=seed)

    def tile_size(self, net, cohort):
        return self.trainer.tile_size(net, cohort)

    def facts(self, net, n):
        return self.stated


def knowledge(trainer):
    return Knowledge(NET, trainer, lw.Informed(KNOWN), Weights(), PRIOR)


SMOOTH = GD(steps=5, init=LeCunNormal())


def test_newton_does_not_start_where_training_is_not_differentiable():
    assert lw.Newton().objection(knowledge(SMOOTH)) is None
    kinks = knowledge(Wrapped(SMOOTH, TrainerFacts(deterministic=True, steps=5)))
    assert "but the trainer is Wrapped" in lw.Newton().objection(kinks)
    assert lw.attacks.Ensemble().objection(kinks) is None


def test_newton_says_what_a_differentiable_trainer_must_be():
    false = knowledge(Wrapped(SMOOTH, TrainerFacts(deterministic=True, differentiable=True)))
    assert "Wrapped: its facts say differentiable=True" in lw.Newton().objection(false)


def test_steps_are_read_from_dpsgd_alone():
    trainer = DPSGD(steps=2)
    stated = TrainerFacts(mechanism=Mechanism(trainer.mechanism()), publishes_steps=True)
    with pytest.raises(TypeError, match=r"Wrapped: its facts say publishes_steps=True"):
        lw.GradientInversion().prepare(knowledge(Wrapped(trainer, stated)), seed=0)


def test_an_objective_that_is_stated_is_solved():
    trainer = Optimum(ridge=0.5)
    ours = knowledge(Wrapped(trainer, TrainerFacts(deterministic=True, objective=trainer.objective)))
    cohort = ours.threat.deal(SECRETS, 3, seed=0)
    assert lw.ClosedForm().objection(ours) is None
    guess = lw.ClosedForm().prepare(ours, seed=0)(ours.trainer(NET, cohort, seed=0))
    torch.testing.assert_close(guess.records.x, cohort.own.x, rtol=0, atol=1e-6)
    assert torch.equal(guess.records.y, cohort.own.y)
    silent = replace(ours, trainer=Wrapped(trainer))
    assert "stops short" in lw.ClosedForm().objection(silent)
