"""Newton with Jacobians by linear response: one sweep for all games, residuals of trained models."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.attacks import Newton
from lostwax.games import Knowledge, Records
from lostwax.inits import LeCunNormal
from lostwax.losses import SquaredError
from lostwax.nets import mlp
from lostwax.shadows import LinearResponse
from lostwax.trainers import GD

TRAINER = GD(lr=0.05, momentum=0.9, steps=20, init=LeCunNormal())
KNOWN, PRIOR, SECRETS = lw.records.digits().split(400, 600, 6, seed=0)


def game(trainer=TRAINER, net=None, parts=(KNOWN, PRIOR, SECRETS)):
    known, prior, secrets = parts
    net = net or mlp(64, 12, 10)
    knowledge = Knowledge(net, trainer, lw.Informed(known), lw.access.Weights(), prior)
    cohort = knowledge.threat.deal(secrets, len(secrets), seed=0)
    return knowledge, cohort, trainer(net, cohort, seed=0)


def test_records_come_back_to_the_rounding_of_the_release():
    knowledge, cohort, release = game()
    attack = Newton(bank=200, coordinates=64, response=LinearResponse(directions=120, checked=16))
    inverter = attack.prepare(knowledge, seed=0)
    guess = inverter(release)
    assert guess.certified.all()
    assert torch.equal(guess.records.y, cohort.own.y)
    assert (guess.records.x - cohort.own.x).square().mean() < 1e-8
    assert inverter.problem.exact.in_units(release.flat()).shape[1] <= 120


def test_fewer_coordinates_give_an_approximation_that_is_not_certified():
    knowledge, cohort, release = game()
    attack = Newton(bank=100, coordinates=20, jacobians=2, response=LinearResponse(directions=60, checked=16))
    guess = attack.prepare(knowledge, seed=0)(release)
    assert not guess.certified.any()
    blind = (PRIOR.x.mean(0) - cohort.own.x[:, 0]).square().mean()
    assert (guess.records.x - cohort.own.x).square().mean() < 0.4 * blind


def test_without_polish_no_game_trains_a_model():
    knowledge, cohort, release = game()
    attack = Newton(bank=200, coordinates=64, response=LinearResponse(directions=120, checked=16), polish=False)
    inverter = attack.prepare(knowledge, seed=0)
    untrained = replace(inverter.problem, exact=replace(inverter.problem.exact, trainer=None))
    guess = replace(inverter, problem=untrained)(release)
    assert not guess.certified.any()
    assert torch.equal(guess.records.y, cohort.own.y)
    blind = (PRIOR.x.mean(0) - cohort.own.x[:, 0]).square().mean()
    assert (guess.records.x - cohort.own.x).square().mean() < 0.05 * blind


def test_labels_that_are_numbers_are_solved_for_too():
    torch.manual_seed(0)
    x = torch.rand(400, 6, dtype=torch.float64)
    y = torch.sin(x @ torch.randn(6, 1, dtype=torch.float64)) + 0.1 * torch.randn(400, 1, dtype=torch.float64)
    trainer = GD(lr=0.05, momentum=0.9, steps=20, loss=SquaredError(), init=LeCunNormal())
    net = mlp(6, 8, 1, activation=nn.Tanh).double()
    knowledge, cohort, release = game(trainer, net, Records(x, y).split(200, 195, 5, seed=0))
    attack = Newton(bank=80, coordinates=7, response=LinearResponse(directions=60, checked=16))
    guess = attack.prepare(knowledge, seed=0)(release)
    assert (guess.records.x - cohort.own.x).abs().max() < 1e-3
    assert (guess.records.y - cohort.own.y).abs().max() < 1e-3


def test_a_response_that_predicts_nothing_is_an_error():
    wild = GD(lr=1.0, momentum=0.9, steps=60, init=LeCunNormal())
    knowledge, _, _ = game(wild, mlp(64, 12, 10, activation=nn.ReLU), (KNOWN[:30], PRIOR, SECRETS))
    with pytest.raises(ValueError, match="too little for a Jacobian: leave response out"):
        Newton(bank=60, response=LinearResponse(directions=20, checked=16)).prepare(knowledge, seed=0)


@pytest.mark.parametrize(
    ("directions", "coordinates", "prior"), [(40, 40, PRIOR), (30, 50, PRIOR), (500, 60, PRIOR[:40])]
)
def test_as_many_coordinates_as_directions_would_explain_any_release(directions, coordinates, prior):
    """Said before any model is trained; few records span few directions, whatever is set."""
    knowledge = replace(game()[0], prior=prior, threat=lw.Informed(KNOWN[:30]))
    attack = Newton(coordinates=coordinates, response=LinearResponse(directions=directions, checked=16))
    objection = attack.objection(knowledge)
    assert "directions of the response do not determine" in objection
    assert replace(attack, coordinates=20).objection(knowledge) is None


def test_settings_that_contradict_each_other_are_refused():
    with pytest.raises(ValueError, match="None where products are given"):
        Newton(products=4, response=LinearResponse())


def test_several_secrets_are_refused():
    knowledge = Knowledge(mlp(64, 12, 10), TRAINER, lw.Informed(KNOWN, secrets=2), lw.access.Weights(), PRIOR)
    assert "one record among many known ones" in Newton(response=LinearResponse()).objection(knowledge)


def test_the_cheaper_form_finds_the_same_records():
    knowledge, cohort, release = game()
    (form,) = Newton(bank=250).cheaper(knowledge)
    assert (form.response.directions, form.coordinates) == (128, 64)
    guess = form.prepare(knowledge, seed=0)(release)
    assert (guess.records.x - cohort.own.x).square().mean() < 1e-8
    few = Knowledge(mlp(64, 12, 10), TRAINER, lw.Informed(KNOWN[:40]), lw.access.Weights(), PRIOR[:40])
    assert Newton().cheaper(few) == ()  # too few records
    assert form.cheaper(knowledge) == ()
    assert Newton(products=4).cheaper(knowledge) == ()
