import time

import pytest
import torch

import lostwax as lw
from lostwax.games import Knowledge
from lostwax.learning.costs import Rate
from lostwax.trainers import SGD, Adam, Optimum


def knowledge(trainer):
    known, prior = lw.records.digits().split(300, 100, seed=0)
    return Knowledge(lw.nets.mlp(64, 20, 10), trainer, lw.Informed(known), lw.access.Weights(), prior)


@pytest.mark.parametrize(
    "trainer",
    [
        lw.GD(lr=0.1, steps=40),
        SGD(lr=0.1, epochs=10),
        Adam(epochs=30),
        lw.DPSGD(lr=0.1, noise_multiplier=1.0, steps=20),
    ],
    ids=lambda trainer: type(trainer).__name__,
)
def test_a_training_that_is_begun_tells_how_long_it_takes(trainer):
    """To the factor by which timing varies on a busy machine."""
    told = knowledge(trainer)
    begun, measured = Rate.begun(told), Rate.measured(told)
    assert measured.training / 10 < begun.training < 10 * measured.training
    assert begun[1:] == measured[1:]  # the sizes


@pytest.mark.parametrize(
    "trainer",
    [
        Optimum(),
        lw.GD(lr=0.1, steps=5),
        SGD(lr=0.1, epochs=2),
        lw.DPSGD(steps=100, batches=lw.bounds.BallsInBins(10)),  # ten epochs do not fit into one step
    ],
    ids=lambda trainer: type(trainer).__name__,
)
def test_short_trainings_and_those_without_steps_are_not_begun(trainer):
    assert Rate.begun(knowledge(trainer)) is None


def test_an_audit_of_models_that_train_for_hours_says_so_at_once():
    known, prior, secrets = lw.records.digits().split(300, 100, 5, seed=0)
    start = time.monotonic()
    with pytest.raises(ValueError, match=r"training 5 victims takes about .* (hours|days) or more, and about"):
        lw.audit(
            lw.nets.mlp(64, 20, 10),
            trainer=lw.GD(lr=0.1, steps=100_000_000, dtype=torch.float64),
            threat=lw.Informed(known),
            prior=prior,
            secrets=secrets,
            max_minutes=5,
        )
    assert time.monotonic() - start < 30
