import time
from dataclasses import dataclass, replace

import pytest
import torch

import lostwax as lw
from lostwax.games import Knowledge, Release, TrainerFacts
from lostwax.learning.costs import MIN_ROUNDS, Rate
from lostwax.schedules import Cosine
from lostwax.trainers import SGD, Adam, Optimum


def knowledge(trainer):
    known, prior = lw.records.digits().split(300, 100, seed=0)
    return Knowledge(lw.nets.mlp(64, 20, 10), trainer, lw.Informed(known), lw.access.Weights(), prior)


@dataclass(frozen=True)
class Sleeping:
    """A trainer that sleeps before the first step, and in every step."""

    steps: int

    def __call__(self, net, cohort, *, seed):
        time.sleep(0.1 + 0.05 * self.steps)
        return Release({"x": cohort.own.x.flatten(1)})

    def facts(self, net, n):
        return TrainerFacts(first_rounds=lambda count: (replace(self, steps=count), self.steps))

    def tile_size(self, net, cohort):
        return 2


def test_a_training_that_is_begun_tells_how_long_it_takes():
    """100 steps of 50 ms after 100 ms, for two models. A busy machine sleeps longer."""
    begun = Rate.begun(knowledge(Sleeping(100)))
    assert 2.5 < begun.training < 10
    assert begun[1:] == (64, 64)  # the sizes


@pytest.mark.parametrize(
    "trainer",
    [
        lw.GD(lr=0.1, steps=40, schedule=lambda step, steps: 1 - step / (steps - 1)),  # not for one step
        SGD(lr=0.1, epochs=20, schedule=Cosine(warmup=30)),
        Adam(epochs=30),
        lw.DPSGD(lr=0.1, noise_multiplier=1.0, steps=20),
    ],
    ids=lambda trainer: type(trainer).__name__,
)
def test_trainers_are_cut_short(trainer):
    assert trainer.first_rounds(3)[1] >= MIN_ROUNDS
    game = knowledge(trainer)
    begun = Rate.begun(game)
    assert begun.training > 0
    assert begun[1:] == Rate.unknown(game, trainer(game.net, game.threat.deal(game.prior, 1, seed=0), seed=0))[1:]


@dataclass(frozen=True)
class OfTheirOwn:
    """Steps may mean anything in other people's trainers."""

    steps: tuple = (10, 20)


@pytest.mark.parametrize(
    "trainer",
    [
        Optimum(),
        lw.GD(lr=0.1, steps=5),
        SGD(lr=0.1, epochs=2),
        lw.DPSGD(steps=100, batches=lw.bounds.BallsInBins(10)),  # a step has a tenth of the records, one step all
        OfTheirOwn(),
    ],
    ids=lambda trainer: type(trainer).__name__,
)
def test_short_trainings_and_those_that_cannot_be_cut_are_not_begun(trainer):
    assert Rate.begun(knowledge(trainer)) is None


def test_an_audit_of_models_that_train_for_hours_says_so_at_once():
    known, prior, secrets = lw.records.digits().split(300, 100, 5, seed=0)
    with pytest.raises(ValueError, match=r"training 5 victims takes about .* (hours|days) or more, and about"):
        lw.audit(
            lw.nets.mlp(64, 20, 10),
            trainer=lw.GD(lr=0.1, steps=100_000_000, dtype=torch.float64),
            threat=lw.Informed(known),
            prior=prior,
            secrets=secrets,
            max_minutes=5,
        )
