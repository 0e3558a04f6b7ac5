"""An audit against the weak adversary: nobody's record is known, and every game has several to find."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.audits.choice import _shortened as shortened
from lostwax.audits.procedure import victims_seed
from lostwax.games import Guess, Records
from lostwax.metrics import Null, success_rate

NET, TRAINER, THREAT = nn.Linear(40, 10), lw.GD(steps=5, init=lw.inits.Normal(0.002, seed=None)), lw.Weak(size=20)


class ClassMeans(NamedTuple):
    """An attack that needs no release: the mean of each secret's class."""

    def objection(self, knowledge):
        return None

    def prepare(self, knowledge, *, seed):
        prior = knowledge.prior
        means = torch.stack([prior.x[prior.y == label].mean(0) for label in range(10)])
        return lambda release, hints: Guess(Records(means[hints.labels], hints.labels), torch.zeros(len(release), 20))


class Cheat(NamedTuple):
    """An attack that has the secrets, in another order."""

    cohort: object

    def objection(self, knowledge):
        return None

    def prepare(self, knowledge, *, seed):
        own = self.cohort.own
        turned = Records(own.x.roll(3, 1), own.y.roll(3, 1))
        return lambda release, hints: Guess(turned, torch.zeros(own.y.shape))


@pytest.fixture(scope="module")
def parts():
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(64, 40), nn.ReLU())
    digits = lw.records.digits().through(backbone)
    return digits.split(900, 600, seed=0)


def audited(parts, attack, **settings):
    prior, secrets = parts
    arguments = {"threat": THREAT, "prior": prior, "secrets": secrets, "games": 15} | settings
    return lw.audit(NET, trainer=TRAINER, attack=attack, **arguments)


def test_every_record_of_every_game_is_judged(parts):
    audit = audited(parts, ClassMeans())
    assert len(audit.truth) == 15 * 20
    assert "15 victims were trained, and each counts as 20 games" in str(audit)
    assert "Weak adversary, knows 0 of 20 records" in str(audit.threat)
    assert audit.findings[0].rebuilt.mean() < 0.1


def test_intervals_of_shares_go_by_victims(parts):
    audit = audited(parts, ClassMeans())
    assert (audit.victims, len(audit.games)) == (15, 300)
    none, third = success_rate(np.ones(15), 0.5), success_rate(np.arange(15) >= 5, 0.5)  # of as many games as victims
    assert audit.interval(0) == pytest.approx(none[1:3])
    assert audit.interval(100) == pytest.approx(third[1:3])
    assert audit.success(0.0)[1:3] == pytest.approx(none[1:3])
    assert audit.fpr(0.0)[1:3] == pytest.approx(none[1:3])


def test_guesses_are_taken_in_the_order_that_suits_them(parts):
    cohort = THREAT.deal(parts[1], 15, seed=victims_seed(0))
    assert audited(parts, Cheat(cohort)).findings[0].rebuilt.all()


def test_chance_is_matched_as_well(parts):
    """Who needs no release does as well on another game's secrets as on its own: nothing is left at a low FPR."""
    audit = audited(parts, ClassMeans(), games=25)
    for null in Null:
        nulls = audit.findings[0].null_errors[null]
        assert len(nulls) == 25 * 20
        assert np.median(nulls) == pytest.approx(np.median(audit.errors), rel=0.1)
        assert audit.tpr(at_fpr=0.05, null=null).low < 0.05


def test_attacks_on_the_one_missing_record_say_that_they_cannot_play(parts):
    with pytest.raises(ValueError, match=r"RecoNN is not applicable: .* the adversary is Weak"):
        audited(parts, lw.RecoNN())


def test_secrets_the_adversary_has_are_named(parts):
    prior, _ = parts
    with pytest.raises(ValueError, match="the adversary has all 900 secrets already"):
        audited((prior, prior), ClassMeans())


def test_a_prior_without_one_of_the_classes_is_refused(parts):
    prior, _ = parts
    with pytest.raises(ValueError, match="no record of class 3"):
        audited(parts, ClassMeans(), prior=prior[prior.y != 3])


def test_an_attack_that_goes_by_the_clock_takes_the_time_there_is(parts, monkeypatch):
    small = {
        "reader": lw.attacks.weak.SetReader(width=16, layers=1, heads=2),
        "decoder": lw.decoders.MLPDecoder(width=16),
    }
    endless = lw.WeakRecoNN(**small, steps=10**6, batch_size=8)
    monkeypatch.setattr("lostwax.audits.choice.all_attacks", lambda knowledge: (endless,))
    monkeypatch.setattr("lostwax.attacks.weak.attack.LEARNING", 0.02)  # a second or two, and most of the time to spare
    audit = audited(parts, None, max_minutes=1.5)
    (finding,) = audit.findings
    assert finding.name == "WeakRecoNN"
    (why,) = audit.unanswered  # ten minutes are what it asks for
    assert why.startswith("WeakRecoNN was cut short: it learned for 0.0")


def test_it_is_shortened_and_others_are_left_alone():
    assert shortened(lw.WeakRecoNN(minutes=10), 60).minutes == pytest.approx(0.6)
    assert shortened(lw.WeakRecoNN(minutes=None), 60).minutes == pytest.approx(0.6)
    assert shortened(lw.WeakRecoNN(minutes=0.1), 60).minutes == 0.1
    assert shortened(lw.RecoNN(), 60) == lw.RecoNN()
