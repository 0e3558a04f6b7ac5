"""Was this person in it? Asked in every audit of a net for which no attack is named."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer

import lostwax as lw
from lostwax.access import Layers, Weights
from lostwax.audits import choice, membership, released
from lostwax.audits.ceiling import check_membership_under, privacy_of
from lostwax.audits.membership import MembershipFinding, _compared, was_in_it
from lostwax.audits.play import Settings
from lostwax.audits.released import _was_in_it
from lostwax.audits.text import facts
from lostwax.clock import Clock, TimeUp
from lostwax.games import Attacker, Knowledge, Records, Release
from lostwax.grades import Grade
from lostwax.learning.costs import Rate

PRIVATE = {"order_seed": None, "init": lw.inits.TorchDefault(seed=None)}
OVERFITTED = lw.SGD(lr=0.1, momentum=0.9, batch_size=16, epochs=60, **PRIVATE)
PEOPLE = 40


@pytest.fixture(scope="module")
def parts():
    """Labels are noise, so that a net has to remember them."""
    X, _ = load_breast_cancer(return_X_y=True)
    x = torch.from_numpy((X - X.mean(0)) / X.std(0)).float()
    y = torch.randint(2, (len(x),), generator=torch.Generator().manual_seed(3))
    return Records(x, y).split(60, 25, PEOPLE, seed=4)


def net():
    return lw.nets.mlp(30, 32, 2)


@pytest.fixture(scope="module")
def audit(parts):
    known, prior, secrets = parts
    game = {"threat": lw.Informed(known), "prior": prior, "secrets": secrets}
    with pytest.MonkeyPatch.context() as patch:  # one of the attacks that rebuild records is enough
        patch.setattr(choice, "all_attacks", lambda knowledge: (lw.KernelRidge(shadows=25),))
        return lw.audit(net(), trainer=OVERFITTED, **game)


def test_an_overfitted_net_does_not_pass(audit, tmp_path):
    """Nothing is rebuilt, and most people are recognised: it passed `max_grade = "not found"`."""
    assert audit.conclusion.line.grade is Grade.NOT_FOUND
    assert audit.grade is Grade.RECOGNISABLE
    assert audit.conclusion.by_membership
    assert audit.membership.share.value > 0.85
    assert lw.Policy(max_grade="not found").breaches(audit)
    assert audit.conclusion.headline == (
        "Whether a person was in the training set can be told from models trained this way by somebody who knows all "
        "other records."
    )
    assert any(sentence.startswith("Was this person in it? ") for sentence in audit.conclusion.sentences)
    assert "was this person in it?" in [fact.name for fact in facts(audit)]
    read = lw.Audit.from_json(audit.to_json(tmp_path / "audit.json"))
    assert (read.grade, read.membership.share) == (audit.grade, audit.membership.share)
    assert (read.membership.above == audit.membership.above).all()
    page = lw.report(audit, tmp_path / "report")
    assert "was this person in it?" in page.read_text()


def test_an_outsider_is_tried_where_an_insider_succeeds(audit, tmp_path):
    """Reference models of an outsider are trained on public records, and on none that is known to be in the set."""
    (outsider,) = audit.rungs
    assert outsider.attacker.kind is Attacker.OUTSIDER
    assert outsider.grade.leaks
    assert outsider.by_membership
    assert audit.attackers.by_missing == {1: audit.attackers.by_missing[1]}  # nothing was rebuilt, or tried to be
    assert any(sentence.startswith("Was this person in it? ") for sentence in audit.conclusion.sentences)
    read = lw.Audit.from_json(audit.to_json(tmp_path / "audit.json"))
    assert read.rungs == audit.rungs
    page = lw.report(audit, tmp_path / "report").read_text()
    assert "of pairs right" in page
    alone = replace(audit, membership=None)
    assert alone.conclusion.headline == (
        "Somebody with similar public records who gets the file can tell whether a person was in the training set"
        f"{'' if outsider.grade is Grade.RECOGNISABLE else ', more often than by guessing'}."
    )


def test_an_outsider_who_sees_noise_is_no_alarm(parts, monkeypatch):
    monkeypatch.setattr(membership, "INSIDER_LEVEL", 1.0)
    rungs = [asked(parts, Ignoring(), seed).rungs[0] for seed in range(60)]
    assert [rung.grade for rung in rungs] == [Grade.NOT_FOUND] * 60  # each with a probability of 0.1 %


def test_nobody_is_tried_without_a_public_sample(parts, monkeypatch):
    monkeypatch.setattr(membership, "INSIDER_LEVEL", 1.0)
    known, _, secrets = parts
    assert asked((known, known, secrets), Ignoring(), threat=lw.Informed(known)).rungs == ()
    assert asked(parts, Ignoring(), threat=lw.Weak(size=4)).rungs == ()  # these are an outsider's games


def test_more_people_than_games_are_read_back(audit, tmp_path):
    """An audit of this very net asks about up to 60 people, however few games it has."""
    people = np.linspace(0.2, 1, len(audit.games) + 20)
    asked = replace(audit, membership=MembershipFinding(64, people, people))
    read = lw.Audit.from_json(asked.to_json(tmp_path / "audit.json"))
    assert read.membership.share == asked.membership.share


def test_a_limit_on_membership(audit):
    high = audit.membership.share.high
    assert not lw.Policy(max_membership=min(high + 1e-6, 0.9999)).breaches(audit)
    (breach,) = lw.Policy(max_membership=0.6).breaches(audit)
    assert breach.found == high
    (breach,) = lw.Policy(max_membership=0.5).breaches(audit)
    assert "Guessing alone names 0.5" in breach.why
    (breach,) = lw.Policy(max_membership=0.9).breaches(replace(audit, membership=None))
    assert breach.found is None
    assert "did not ask who was trained on" in breach.why


@dataclass(frozen=True)
class Ignoring:
    """Random weights, whatever the records are: no record can be recognised."""

    spread: float = 1.0

    def __call__(self, net, cohort, *, seed):
        random = torch.Generator().manual_seed(seed % 2**62)
        drawn = {name: torch.randn(1000, *value.shape, generator=random) for name, value in net.named_parameters()}
        return Release({name: self.spread * value[cohort.index] for name, value in drawn.items()})

    def tile_size(self, net, cohort):
        return 64


def asked(parts, trainer, seed=0, threat=None, access=None, clock=None, rate=None):
    known, prior, secrets = parts
    threat = threat or lw.Informed(known)
    knowledge = Knowledge(net(), trainer, threat, access or Weights(), prior)
    cohort = threat.deal(secrets, 20, seed=seed)
    release = trainer(net(), cohort, seed=seed + 10**6)
    return was_in_it(knowledge, cohort, release, seed=seed, clock=clock or Clock(), rate=rate)


@pytest.mark.parametrize("spread", [1.0, 0.0])
def test_training_that_ignores_its_records_gives_no_alarm(parts, spread):
    """60 audits: at a level of 1 %, three alarms or more have a probability of 2 %."""
    chances = [asked(parts, Ignoring(spread), seed).membership.chance for seed in range(60 if spread else 3)]
    assert sum(chance <= 0.01 for chance in chances) <= 2
    assert sum(chance <= 0.2 for chance in chances) <= 22  # 12 by chance


def test_scores_that_only_tell_records_apart_tell_nothing():
    """As many own records score high as others, so the share of pairs is one half."""
    shares = np.arange(20) / 19
    assert MembershipFinding(8, shares, shares).chance == pytest.approx(0.5)
    assert MembershipFinding(8, np.ones(10), np.ones(10)).chance < 1e-6


@pytest.mark.filterwarnings("error")
def test_victims_with_the_same_secret_count_as_one():
    scores = torch.tensor([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0], [1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    finding = _compared(scores, torch.tensor([[0], [1], [0], [2]]), torch.tensor([0, 1, 0, 3]), 8)
    assert finding.pairs_right.tolist() == [0.5, 0.0, 1.0]  # right in the first game, wrong in the third


def test_sets_of_secrets_are_asked_about_too(parts):
    threat = lw.Weak(size=4)
    membership = asked(parts, replace(OVERFITTED, batch_size=4), threat=threat).membership
    assert membership.share.low > 0.6


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"access": Layers("1")}, "it takes the loss of a record"),
        ({"clock": Clock.started(1.0), "rate": Rate(10.0, 1, 1)}, "16 reference models take"),
    ],
)
def test_what_is_not_measured_is_said(parts, changes, words):
    result = asked(parts, Ignoring(), **changes)
    assert result.membership is None
    (sentence,) = (*result.unanswered, *result.left_out)
    assert words in sentence
    assert bool(result.unanswered) == ("rate" in changes)


def test_losses_that_are_not_finite_are_no_all_clear(parts):
    """They once counted as pairs of which half are right: not found."""
    result = asked(parts, Ignoring(spread=float("inf")))
    assert result.membership is None
    assert "are not finite" in result.unanswered[0]


def test_short_time_takes_fewer_models(parts):
    assert asked(parts, Ignoring(), clock=Clock.started(1.0), rate=Rate(0.5, 1, 1)).membership.models < 32
    assert asked(parts, Ignoring(), clock=Clock.started(1.0), rate=Rate(0.01, 1, 1)).membership.models == 64


@pytest.fixture
def large(parts):
    """A table with people enough to hold some out, and the overfitted trainer from a public start."""
    table = Records.together(parts)
    start = {name: value.clone() for name, value in net().state_dict().items()}
    table = Records(torch.cat([table.x, table.x.flip(1)]), torch.cat([table.y, table.y.flip(0)]))
    return table, replace(OVERFITTED, init=lw.inits.Given(start))


def test_this_very_net_is_asked_by_training_others(large):
    """All of its records were trained on, so other nets are."""
    table, trainer = large
    membership = _was_in_it(net(), table, trainer, Rate(1e-3, 1, 1), Clock.started(5.0), Settings()).membership
    assert (len(membership.above), membership.chance < 1e-6) == (50, True)
    (sentence,) = _was_in_it(net(), table, trainer, Rate(10.0, 1, 1), Clock.started(5.0), Settings()).unanswered
    assert "30 trainings take about 5.0 minutes, more than a quarter of the time left." in sentence
    (sentence,) = _was_in_it(net(), table[:100], trainer, Rate(1e-3, 1, 1), Clock.started(5.0), Settings()).unanswered
    assert "30 records that are a fifth of the data at most" in sentence


def test_more_pairs_told_apart_than_the_ceiling_allows_break_a_premise():
    privacy = privacy_of(lw.DPSGD(noise_multiplier=5.0, clip=1.0, steps=1).facts(net(), 50).mechanism)
    check_membership_under(privacy, MembershipFinding(8, np.full(100, 0.55), np.full(100, 0.0)))
    with pytest.raises(RuntimeError, match="was this person in it"):
        check_membership_under(privacy, MembershipFinding(8, np.full(100, 0.9), np.full(100, 0.0)))


def test_trainings_that_are_not_done_in_time_are_no_all_clear(large, monkeypatch):
    def too_slow(*_):
        raise TimeUp

    monkeypatch.setattr(released, "trained_victims", too_slow)
    (sentence,) = _was_in_it(net(), *large, Rate(1e-3, 1, 1), Clock.started(5.0), Settings()).unanswered
    assert "50 trainings were not done in time" in sentence


@pytest.mark.slow
def test_this_very_net_does_not_pass(large):
    """With private draws none was rebuilt, and the grade was "not found"."""
    (table, trainer), own = large, net()
    own.load_state_dict(trainer(own, lw.Informed(table[1:]).deal(table[:1], 1, seed=0), seed=5)[0])
    audit = lw.audit(own, table, trainer=trainer, games=2)
    assert (audit.kind, audit.grade.leaks) == ("this model", True)
    assert any("asked of other nets" in note for note in map(str, audit.notes))


def test_of_this_very_net_without_private_draws_a_guess_can_be_checked(parts):
    trainer, own = lw.GD(lr=0.1, steps=3), lw.nets.mlp(30, 4, 2)
    start = {name: value.clone() for name, value in own.state_dict().items()}
    trainer = replace(trainer, init=lw.inits.Given(start))
    cohort = lw.Informed(parts[0][1:]).deal(parts[0][:1], 1, seed=0)
    own.load_state_dict(trainer(own, cohort, seed=0)[0])
    audit = lw.audit(own, parts[0], trainer=trainer, games=1)
    assert audit.membership is None
    assert any("can check a guess by training on it" in why for why in audit.left_out)


def overfitted(number):
    """A net of random size with private draws, on random records whose labels are noise."""
    random = np.random.default_rng([41, number])
    width, classes, size = (int(random.integers(*ends)) for ends in ((5, 40), (2, 5), (30, 80)))
    x = torch.from_numpy(random.normal(size=(size + 25 + PEOPLE, width))).float()
    y = torch.from_numpy(random.integers(0, classes, len(x)))
    known, prior, secrets = Records(x, y).split(size, 25, PEOPLE, seed=number)
    trainer = random.choice([OVERFITTED, lw.Adam(lr=0.01, batch_size=16, epochs=60, **PRIVATE)])
    start = lw.nets.mlp(width, int(random.integers(16, 64)), classes)
    knowledge = Knowledge(start, trainer, lw.Informed(known), Weights(), prior)
    cohort = knowledge.threat.deal(secrets, PEOPLE, seed=number)
    return knowledge, cohort, trainer(start, cohort, seed=number + 10**6)


def memorised(knowledge, cohort, release):
    """The share of secrets whose label, which is noise, their victim gives, beyond that of chance."""
    right = []
    for index in range(len(cohort)):
        weights = {name: value[index] for name, value in release.params.items()}
        record = cohort.own[index]
        outputs = torch.func.functional_call(knowledge.net, weights, (record.x,))
        right.append(bool((outputs.argmax(-1) == record.y).all()))
    return np.mean(right)


@pytest.mark.slow
def test_overfitted_nets_are_never_passed():
    """100 fresh problems: wherever victims give nearly all of their own noise labels, membership is seen."""
    problems = [overfitted(number) for number in range(100)]
    leaks = [problem for problem in problems if memorised(*problem) > 0.9]
    chances = [
        was_in_it(knowledge, cohort, release, seed=0, clock=Clock(), rate=None).membership.chance
        for knowledge, cohort, release in leaks
    ]
    print(f"overfitted nets: {len(leaks)} of {len(problems)} memorise, seen: {sum(one <= 0.01 for one in chances)}")
    assert len(leaks) > 50
    assert max(chances) <= 0.01


@pytest.mark.slow
def test_three_hundred_trainings_that_ignore_their_records(parts):
    """At a level of 1 %, nine alarms or more have a probability of 0.4 %."""
    chances = [asked(parts, Ignoring(), seed + 1000).membership.chance for seed in range(300)]
    print(f"membership of noise: {sum(chance <= 0.01 for chance in chances)} alarms of 300")
    assert sum(chance <= 0.01 for chance in chances) <= 8
