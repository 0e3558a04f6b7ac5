"""Parts that a user writes, each in one class: what they state about themselves is all that attacks ask for."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.access import Weights
from lostwax.attacks import NearestCandidate, Refit
from lostwax.games import Cohort, Guess, Hints, Informed, Knowledge, Records
from lostwax.games.facts import HintFacts, ThreatFacts
from lostwax.learning.costs import Rate
from lostwax.learning.decoders import MLPDecoder
from lostwax.trainers import GD


@dataclass(frozen=True)
class EveryOther:
    """A threat with Informed's deal that states its facts."""

    core: Records
    candidates: int | None = None

    def facts(self):
        return ThreatFacts(known=self.core, given=HintFacts(candidates=self.candidates))

    def deal(self, pool, m, *, seed, start=0):
        return Informed(self.core).deal(pool, m, seed=seed, start=start)

    def hints(self, cohort, pool, *, seed):
        return Informed(self.core, candidates=self.candidates).hints(cohort, pool, seed=seed)


class Bare:
    """The same threat, no dataclass."""

    def __init__(self, known):
        self.held = known

    def facts(self):
        return ThreatFacts(known=self.held)

    def deal(self, pool, m, *, seed, start=0):
        return Informed(self.held).deal(pool, m, seed=seed, start=start)

    def hints(self, cohort, pool, *, seed):
        return None


class Silent:
    """A threat that states nothing, and deals sets of two secrets."""

    def deal(self, pool, m, *, seed, start=0):
        rows = (torch.arange(start, start + m)[:, None] * 2 + torch.arange(2)) % len(pool)
        return Cohort(pool[:0], pool[rows], torch.arange(start, start + m))

    def hints(self, cohort, pool, *, seed):
        return None


class Sorted:
    """An access that states nothing: the weights by size."""

    def __call__(self, net, release):
        return release.flat().sort(1).values


@dataclass(frozen=True)
class FirstOfPrior:
    """An attack that answers the prior's first record."""

    def objection(self, knowledge):
        return None

    def prepare(self, knowledge, *, seed):
        first = knowledge.prior[:1]

        def reconstruct(release, hints=None):
            m = len(release)
            records = Records(first.x.expand(m, *first.x.shape).clone(), first.y.expand(m, 1).clone())
            return Guess(records, torch.zeros(m, 1))

        return reconstruct


@dataclass(frozen=True)
class Flat:
    """A decoder that states nothing: one linear layer."""

    def build(self, features, shape, *, bounded=True):
        return nn.Sequential(nn.Linear(features, shape[0]), nn.Unflatten(1, shape))


@pytest.fixture(scope="module")
def parts():
    x = torch.from_numpy(torch.randn(60, 4, generator=torch.Generator().manual_seed(0)).double().numpy())
    return Records(x, (x[:, 0] > 0).long()).split(20, 24, 16, seed=0)


NET, TRAINER = nn.Linear(4, 2).double(), GD(steps=5, lr=0.5, init=lw.inits.LeCunNormal())
ATTACKS = [lw.RecoNN(decoder=MLPDecoder(width=8), epochs=3), lw.RecoNN(decoder=Flat(), epochs=2), lw.KernelRidge()]


def knowledge(threat, prior, access=None):
    return Knowledge(NET, TRAINER, threat, access or Weights(), prior)


def released(threat, pool):
    cohort = threat.deal(pool, 3, seed=5)
    return TRAINER(NET, cohort, seed=5), threat.hints(cohort, pool, seed=5)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: type(attack).__name__)
@pytest.mark.parametrize("kind", [EveryOther, Bare])
def test_a_threat_with_informeds_deal_is_attacked_as_informed_is(attack, kind, parts):
    known, prior, pool = parts
    answers = []
    for threat in (kind(known), Informed(known)):
        told = knowledge(threat, prior)
        assert attack.objection(told) is None
        answers.append(attack.prepare(told, seed=0)(*released(threat, pool)))
    ours, theirs = answers
    assert torch.equal(ours.records.x, theirs.records.x)
    assert torch.equal(ours.records.y, theirs.records.y)
    assert torch.equal(ours.confidence, theirs.confidence)


@pytest.mark.parametrize("attack", [NearestCandidate(ATTACKS[0]), Refit()])
def test_candidates_are_a_fact_too(attack, parts):
    known, prior, pool = parts
    answers = []
    for threat in (EveryOther(known, candidates=2), Informed(known, candidates=2)):
        told = knowledge(threat, prior)
        assert attack.objection(told) is None
        answers.append(attack.prepare(told, seed=0)(*released(threat, pool)).records)
        assert attack.cost(told, 3, Rate(0.01, 10, 10)).seconds > 0
    assert torch.equal(answers[0].x, answers[1].x)
    assert "chooses among candidates" in attack.objection(knowledge(EveryOther(known), prior))


def test_a_threat_that_states_nothing_is_not_attacked_by_what_needs_the_other_records(parts):
    told = knowledge(Silent(), parts[1])
    for attack in ATTACKS:
        assert attack.objection(told).endswith("but the adversary is Silent. Use threat=Informed(known).")
    assert "the same labels, in the same order" in lw.WeakRecoNN(decoder=MLPDecoder(width=8)).objection(told)


def test_an_access_that_states_nothing_is_learnt_from_but_not_read_by_rows(parts):
    known, prior, pool = parts
    told = knowledge(Informed(known), prior, Sorted())
    for attack in ATTACKS:
        guess = attack.prepare(told, seed=0)(*released(told.threat, pool))
        assert guess.records.x.isfinite().all()
    assert "Use access=Weights()" in lw.RecoNN(decoder=lw.decoders.RowDecoder()).objection(told)
    assert "Use access=Weights()" in lw.attacks.MnemonistRecoNN(attack=lw.RecoNN()).objection(told)


def test_an_attack_of_two_methods_is_played_alone_and_inside_another(parts):
    known, prior, pool = parts
    threat = Informed(known, candidates=2)
    inside = NearestCandidate(FirstOfPrior())
    told = knowledge(threat, prior)
    assert inside.objection(told) is None
    assert inside.facts().strength == 0
    assert inside.cost(told, 3, Rate(0.01, 10, 10)).seconds == float("inf")
    release, hints = released(threat, pool)
    assert isinstance(hints, Hints)
    assert inside.prepare(told, seed=0)(release, hints).records.x.shape == (3, 1, 4)
    audit = lw.audit(NET, trainer=TRAINER, threat=Informed(known), prior=prior, secrets=pool, attack=FirstOfPrior())
    assert audit.guess.records.x.shape[1:] == (1, 4)
