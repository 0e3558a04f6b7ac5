"""Guesses of several secrets, in whatever order they come."""

import itertools

import pytest
import torch

import lostwax as lw
from lostwax.audits.judging import one_by_one
from lostwax.games import Guess, Knowledge, Records
from lostwax.games.judges import OneToOne

RANDOM = torch.Generator().manual_seed(0)
TRUTH = Records(torch.rand(5, 3, 1, 2, 2, generator=RANDOM), torch.randint(9, (5, 3), generator=RANDOM))


def matched(guess, secrets):
    """The guesses in the order of the secrets that suits them best."""
    return one_by_one(guess, OneToOne().pairs(guess.records, secrets).guess)


def test_guesses_in_another_order_are_as_good():
    turned = Records(TRUTH.x.flip(1), TRUTH.y.flip(1))
    sure = torch.arange(15.0).view(5, 3)
    guess = matched(Guess(turned, sure.flip(1), certified=sure.flip(1) > 3), TRUTH)
    assert torch.equal(guess.records.x[:, 0], TRUTH.x.flatten(0, 1))
    assert torch.equal(guess.records.y[:, 0], TRUTH.y.flatten())
    assert torch.equal(guess.confidence[:, 0], sure.flatten())
    assert torch.equal(guess.certified[:, 0], sure.flatten() > 3)


def test_the_match_is_the_best_of_all_orders():
    found = torch.rand(TRUTH.x.shape, generator=RANDOM)
    guess = matched(Guess(Records(found, TRUTH.y), torch.zeros(5, 3)), TRUTH)
    reached = (guess.records.x[:, 0] - TRUTH.x.flatten(0, 1)).square().view(5, -1).sum(1)
    orders = itertools.permutations(range(3))
    errors = [(found[:, list(order)] - TRUTH.x).square().flatten(1).sum(1) for order in orders]
    torch.testing.assert_close(reached, torch.stack(errors).amin(0))


def test_one_secret_is_left_as_it_is():
    guess = Guess(Records(TRUTH.x[:, :1], TRUTH.y[:, :1]), torch.zeros(5, 1))
    assert matched(guess, Records(TRUTH.x[:, 1:2], TRUTH.y[:, 1:2])) is guess


def test_an_audit_of_two_secrets_scores_each():
    digits = lw.records.digits().to(torch.float64)
    known, prior, secrets = digits[digits.y < 3].split(40, 100, 8, seed=0)
    audit = lw.audit(
        lw.nets.mlp(64, 8, 3),
        trainer=lw.GD(lr=0.3, momentum=0.9, steps=10, dtype=torch.float64),
        threat=lw.Informed(known, secrets=2),
        attack=lw.Newton(bank=20),
        prior=prior,
        secrets=secrets,
        games=2,
    )
    assert audit.games.tolist() == [0, 0, 1, 1]
    assert audit.findings[0].rebuilt.all()
    assert audit.findings[0].labels_right.all()
    assert max(audit.findings[0].errors[audit.metric]) < 1e-10
    assert "knows 40 of 42 records" in audit.threat
    assert "4 of 4 guesses reproduce the released weights to rounding" in " ".join(map(str, audit.notes))


@pytest.mark.parametrize("attack", [lw.RecoNN(), lw.Ensemble(), lw.ClosedForm()])
def test_attacks_for_one_record_say_so(attack):
    known, prior = lw.records.digits().split(20, 50, seed=0)
    threat = lw.Informed(known, secrets=3)
    objection = attack.objection(Knowledge(lw.nets.mlp(64, 5, 10), lw.GD(), threat, lw.access.Weights(), prior))
    assert "it looks for one secret record, and every training set has 3. Use Newton" in objection
