"""The ceiling stands beside the success, and who is above it is stopped."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn

import lostwax as lw
from audits.game import KNOWN, PRIOR, SECRETS, Reads
from lostwax.audits.ceiling import ceiling_of, check_under
from lostwax.audits.scoring import Scoring
from lostwax.defences import Defended, Rounded
from lostwax.games import Guess, Release
from lostwax.games import nouns as sealed
from lostwax.games.judges import NearestOfClass, OneToOne
from lostwax.learning.candidates import choose

TRAINER = lw.DPSGD(lr=0.5, clip=0.1, noise_multiplier=4.0, steps=5)


def audit(**changes):
    game = {
        "trainer": TRAINER,
        "threat": lw.Informed(KNOWN[:20], candidates=4),
        "attack": lw.PriorAware(),
        "prior": PRIOR,
        "secrets": SECRETS,
        "games": 60,
    }
    return lw.audit(lw.nets.mlp(64, 5, 10), **{**game, **changes})


def test_an_audit_of_candidates_shows_the_ceiling_for_the_same_mechanism_and_prior():
    result = audit()
    assert result.ceiling == lw.bound(**TRAINER.mechanism(), baseline=0.25)
    assert f"ceiling for every attack on this training: {result.ceiling.sentence}" in str(result)
    assert all(f"it assumes: {one}" in str(result) for one in result.ceiling.assumptions)
    assert any("times the clipping norm" in one for one in result.ceiling.assumptions)
    assert result.findings[0].rebuilt.mean() < result.ceiling.upper + 3 * (0.25 / 60) ** 0.5


def test_later_defences_keep_it_and_other_trainers_have_none():
    defended = Defended(replace(TRAINER, publish_steps=False), by=Rounded(torch.bfloat16))
    refit = {"attack": lw.attacks.Refit(), "games": 4}
    assert audit(trainer=defended, **refit).ceiling == lw.bound(**TRAINER.mechanism(), baseline=0.25)
    assert audit(trainer=lw.GD(steps=2), **refit).ceiling is None
    assert audit(trainer=replace(TRAINER, noise_multiplier=0.0), **refit).ceiling is None


@dataclass(frozen=True)
class Blind:
    """Always the prior's first record."""

    def objection(self, knowledge):
        return None

    def prepare(self, knowledge, *, seed):
        reads = Reads(blind=1.0)
        x, y = SECRETS.x[:1], SECRETS.y[:1]
        return lambda release, hints=None: reads._guess(
            Release({"x": x.expand(len(release), *x.shape[1:]), "y": y.float().expand(len(release), 1)}),
            knowledge.prior,
        )


@pytest.mark.parametrize("label_known", [False, True])
def test_without_candidates_the_blind_guess_is_read_off_the_prior(label_known):
    result = audit(threat=lw.Informed(KNOWN[:20], label_known=label_known), attack=Blind(), games=10)
    records = len(PRIOR) if not label_known else int(torch.bincount(PRIOR.y).min())
    assert 1 / records < result.ceiling.baseline < 20 / records  # nearly all digits lie far from each other
    assert result.ceiling.upper > result.ceiling.baseline
    everything = audit(threat=lw.Informed(KNOWN[:20]), attack=Blind(), games=10, threshold=100.0)
    assert everything.ceiling is None  # whatever is guessed counts as rebuilt


def test_a_blind_guess_read_off_the_prior_certifies_nothing():
    ceiling = audit(threat=lw.Informed(KNOWN[:20]), attack=Blind(), games=10).ceiling
    assert not ceiling.certified
    assert "blind guess at most" in str(ceiling)
    assert f"a limit of 99.9 % confidence from {len(PRIOR):,} records of the prior" in ceiling.method
    assert audit(games=5).ceiling.certified  # among candidates it is known


def several(k, *, matched, trainer=TRAINER):
    judge, scoring = OneToOne() if matched else NearestOfClass(), Scoring.of(PRIOR.x.double(), 0.05)
    return ceiling_of(trainer.mechanism(), None, PRIOR, scoring, secrets=k, judge=judge)


def test_several_secrets_with_a_guess_each_are_several_guesses_for_each():
    one, two = (several(k, matched=True) for k in (1, 2))
    assert two.baseline == pytest.approx(2 * one.baseline)
    assert two.upper == lw.bound(**TRAINER.mechanism(), baseline=two.baseline).upper


@pytest.mark.parametrize(
    ("noise", "rate", "method"), [(4.0, 0.1, "summed over 5 secrets"), (1e-3, 1e-3, "5 secrets at once")]
)
def test_a_guess_for_any_secret_has_the_lower_of_two_ceilings(noise, rate, method):
    trainer = replace(TRAINER, noise_multiplier=noise, sample_rate=rate, steps=1)
    one, any_of_five = several(1, matched=True, trainer=trainer), several(5, matched=False, trainer=trainer)
    mechanism, kappa = trainer.mechanism(), 5 * one.baseline
    together = lw.bound(**mechanism, baseline=kappa, goal=lw.bounds.Records(5)).upper
    assert any_of_five.upper == pytest.approx(min(5 * one.upper, together))
    assert any_of_five.upper > several(5, matched=True, trainer=trainer).upper
    assert any_of_five.baseline == pytest.approx(kappa)
    assert method in any_of_five.method
    assert several(400, matched=False, trainer=trainer) is None  # a blind guess is always near one


@dataclass(frozen=True)
class OneRecord:
    """A net without hidden layers, one step: where one record alone was drawn, its gradient r (x, 1) tells x."""

    def objection(self, knowledge):
        return None

    def prepare(self, knowledge, *, seed):
        start = knowledge.trainer.init(knowledge.net, [0], seed=0)

        def reconstruct(release, hints=None):
            weight, bias = (release.params[name] - start[name].to(release.params[name]) for name in ("weight", "bias"))
            x = (weight[:, 0] / bias[:, :1]).unsqueeze(1)  # (m, 1, d)
            return Guess(lw.Records(x, torch.full((len(x), 1), -1)), torch.ones(len(x), 1))

        return reconstruct


def test_an_adversary_who_may_guess_whichever_record_was_drawn_stays_under_it():
    """Twenty records, each drawn with 5 %: one alone is in 38 % of games, and then it is seen."""
    net = nn.Linear(10, 2).double()
    for part in net.parameters():
        nn.init.zeros_(part)
    x = torch.randn(4_000, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    prior, secrets = lw.Records(x[:2_000], torch.arange(2_000) % 2), lw.Records(x[2_000:], torch.arange(2_000) % 2)
    step = {"lr": 1.0, "clip": 1.0, "noise_multiplier": 1e-3, "steps": 1, "sample_rate": 0.05}
    trainer = lw.DPSGD(**step, dtype=torch.float64, init=lw.inits.Given(net.state_dict()))
    game = {"trainer": trainer, "threat": lw.Weak(size=20), "attack": OneRecord(), "prior": prior, "secrets": secrets}
    result = lw.audit(net, **game, games=500)
    fixed_ahead = lw.bound(**trainer.mechanism(), baseline=result.ceiling.baseline)  # one secret, twenty guesses
    won = int(result.findings[0].rebuilt.sum())
    assert fixed_ahead.broken_by(won, 500)
    assert won / 500 < result.ceiling.upper
    # no noise: a blind guess, or any of the twenty drawn
    assert result.ceiling.upper == pytest.approx(1 - 0.95**20 * (1 - result.ceiling.baseline), rel=1e-6)


def test_parts_that_are_told_leave_no_ceiling():
    parts = torch.zeros(1, 8, 8, dtype=torch.bool)
    parts[0, 0, 3] = True
    assert audit(threat=lw.Informed(KNOWN[:20], parts=parts), attack=Blind(), games=5).ceiling is None


@dataclass(frozen=True)
class Cheats:
    """Reads the secret where it must not look."""

    def objection(self, knowledge):
        return None

    def prepare(self, knowledge, *, seed):
        def look(release, hints=None):
            cells = sealed._histories[release.steps._number].__closure__  # in a module, which nothing can hide
            own = next(cell for cell in cells if hasattr(cell.cell_contents, "own")).cell_contents.own
            return Reads(noise=0.0)._guess(Release({"x": own.x[:, 0], "y": own.y.float()}), knowledge.prior)

        return look


def test_an_attack_above_its_ceiling_stops_the_run():
    with pytest.raises(RuntimeError, match=r"60 of 60 games won, but no attack wins more than 0\.\d+ of them"):
        audit(attack=Cheats())


def test_unequal_chances_raise_the_blind_guess():
    @dataclass(frozen=True)
    class Weighted:
        inside: lw.Informed

        def facts(self):
            return self.inside.facts()

        def deal(self, pool, m, *, seed, start=0):
            return self.inside.deal(pool, m, seed=seed, start=start)

        def hints(self, cohort, pool, *, seed):
            hints = self.inside.hints(cohort, pool, seed=seed)
            secret = (hints.candidates.x == cohort.own.x).flatten(2).all(2)
            return replace(hints, chances=torch.where(secret, 0.7, 0.1))

    result = audit(threat=Weighted(lw.Informed(KNOWN[:20], candidates=4)), attack=Blind(), games=5)
    assert result.ceiling.baseline == pytest.approx(0.7)


@dataclass(frozen=True)
class MostFrequent:
    """A blind rule: name the candidate that occurs most often among `secrets`, whatever was released."""

    secrets: lw.Records

    def objection(self, knowledge):
        return None

    def prepare(self, knowledge, *, seed):
        def name(release, hints):
            copies = (hints.candidates.x.unsqueeze(2) == self.secrets.x).flatten(3).all(3).sum(2)  # (m, c)
            return choose(hints, copies.double())

        return name


@pytest.mark.parametrize("label_known", [False, True])
def test_copies_among_the_secrets_raise_the_stated_chance_and_the_ceiling(label_known):
    """One record stands there 60 times of 100. Noise hides everything: what is left is the blind rule."""
    rows = torch.tensor([0] * 60 + list(range(1, 41)))
    copied = lw.Records(SECRETS.x[rows], torch.where(rows == 0, torch.arange(100) % 3, SECRETS.y[rows] % 3))
    threat = lw.Informed(KNOWN[:20], candidates=4, label_known=label_known)
    game = {"threat": threat, "secrets": copied, "games": 60, "trainer": replace(TRAINER, noise_multiplier=1e6)}
    won, aware, stated, ceilings = [], [], [], []
    for seed in range(6):
        blind, best = (audit(**game, attack=one, seed=seed) for one in (MostFrequent(copied), lw.PriorAware()))
        won.append(blind.errors == 0)
        aware.append(best.errors == 0)
        stated.append(blind.chance)
        ceilings.append(blind.ceiling)
    error = 3 * (0.25 / (6 * 60)) ** 0.5
    assert np.mean(won) > 0.55  # far above one in four
    assert np.mean(won) < np.mean(stated) + error
    assert np.mean(won) < np.mean([ceiling.upper for ceiling in ceilings]) + error
    assert all(ceiling.certified for ceiling in ceilings)
    assert abs(np.mean(aware) - np.mean(stated)) < error  # who weighs by the chances reaches them


def test_a_known_label_leaves_fewer_candidates():
    threat = lw.Informed(KNOWN[:20], label_known=True, candidates=4)
    hints = threat.hints(threat.deal(SECRETS, 30, seed=0), SECRETS, seed=0)
    left = (hints.candidates.y == hints.labels).sum(1)  # (m,)
    assert left.max() > 1
    found = ceiling_of(TRAINER.mechanism(), hints, PRIOR, Scoring.of(PRIOR.x.double(), 0.05), judge=OneToOne())
    assert found.baseline == pytest.approx(float((1 / left).mean()))


def test_the_blind_guess_does_not_depend_on_the_order_of_the_prior():
    """Of a long prior only some records are looked at: those at its front may be of one kind."""
    alike, others = torch.zeros(1_000, 5), torch.eye(5).repeat(800, 1) * torch.arange(1, 4_001).unsqueeze(1)
    sorted_prior = lw.Records(torch.cat([alike, others]), torch.zeros(5_000, dtype=torch.long))
    ceiling = ceiling_of(
        TRAINER.mechanism(), None, sorted_prior, Scoring.of(sorted_prior.x.double(), 1e-4), judge=OneToOne()
    )
    assert 0.2 < ceiling.baseline < 0.3  # a fifth of the records


def test_secrets_of_one_training_set_stand_or_fall_together():
    """Three training sets of twenty secrets, one broken into: that is no twenty successes."""
    ceiling = lw.bound(noise_multiplier=1.0, sample_rate=1.0, steps=1, baseline=0.05)
    (finding,) = audit(games=60).findings
    finding = replace(finding, rebuilt=np.arange(60) < 20)
    check_under(ceiling, (finding,), secrets=20)
    with pytest.raises(RuntimeError, match="20 of 60 games won"):
        check_under(lw.bound(noise_multiplier=9.0, sample_rate=1.0, steps=1, baseline=0.05), (finding,))


def test_victims_in_several_chunks_publish_their_steps_together():
    net, threat = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), lw.Informed(KNOWN[:20])
    trainer = replace(TRAINER, sample_rate=0.5)
    whole = trainer(net, threat.deal(SECRETS, 6, seed=0), seed=0)
    parts = [trainer(net, threat.deal(SECRETS, 3, seed=0, start=start), seed=0) for start in (0, 3)]
    joined = Release.together(parts)
    torch.testing.assert_close(joined.flat(), whole.flat())
    for one, other in zip(joined.steps(), whole.steps(), strict=True):
        assert one.number == other.number
        assert torch.equal(one.sampled, other.sampled)
        for name in one.params:
            torch.testing.assert_close(one.gradient[name], other.gradient[name])
