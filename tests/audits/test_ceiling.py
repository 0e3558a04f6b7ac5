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
from lostwax.types import Release

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
    assert f"ceiling for every attack on this training: {result.ceiling}" in str(result)
    assert result.findings[0].rebuilt.mean() < result.ceiling.upper + 3 * (0.25 / 60) ** 0.5


def test_later_defences_keep_it_and_other_trainers_have_none():
    defended = Defended(replace(TRAINER, publish_steps=False), by=Rounded(torch.bfloat16))
    refit = {"attack": lw.Refit(), "games": 4}
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


def test_several_secrets_are_several_guesses_for_each():
    one, two = (ceiling_of(TRAINER, None, PRIOR, Scoring.of(PRIOR.x.double(), 0.05), secrets=k) for k in (1, 2))
    assert two.baseline == pytest.approx(2 * one.baseline)


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
            own = next(
                cell for cell in release.steps.__closure__ if hasattr(cell.cell_contents, "own")
            ).cell_contents.own
            return Reads(noise=0.0)._guess(Release({"x": own.x[:, 0], "y": own.y.float()}), knowledge.prior)

        return look


def test_an_attack_above_its_ceiling_stops_the_run():
    with pytest.raises(RuntimeError, match=r"60 of 60 games won, but no attack wins more than 0\.\d+ of them"):
        audit(attack=Cheats())


def test_unequal_chances_raise_the_blind_guess():
    @dataclass(frozen=True)
    class Weighted:
        inside: lw.Informed

        def deal(self, pool, m, *, seed, start=0):
            return self.inside.deal(pool, m, seed=seed, start=start)

        def hints(self, cohort, pool, *, seed):
            hints = self.inside.hints(cohort, pool, seed=seed)
            secret = (hints.candidates.x == cohort.own.x).flatten(2).all(2)
            return replace(hints, chances=torch.where(secret, 0.7, 0.1))

    result = audit(threat=Weighted(lw.Informed(KNOWN[:20], candidates=4)), attack=Blind(), games=5)
    assert result.ceiling.baseline == pytest.approx(0.7)


def test_a_known_label_leaves_fewer_candidates():
    threat = lw.Informed(KNOWN[:20], label_known=True, candidates=4)
    hints = threat.hints(threat.deal(SECRETS, 30, seed=0), SECRETS, seed=0)
    left = (hints.candidates.y == hints.labels).sum(1)  # (m,)
    assert left.max() > 1
    found = ceiling_of(TRAINER, hints, PRIOR, Scoring.of(PRIOR.x.double(), 0.05))
    assert found.baseline == pytest.approx(float((1 / left).mean()))


def test_the_blind_guess_does_not_depend_on_the_order_of_the_prior():
    """Of a long prior only some records are looked at: those at its front may be of one kind."""
    alike, others = torch.zeros(1_000, 5), torch.eye(5).repeat(800, 1) * torch.arange(1, 4_001).unsqueeze(1)
    sorted_prior = lw.Records(torch.cat([alike, others]), torch.zeros(5_000, dtype=torch.long))
    ceiling = ceiling_of(TRAINER, None, sorted_prior, Scoring.of(sorted_prior.x.double(), 1e-4))
    assert 0.2 < ceiling.baseline < 0.3  # a fifth of the records


def test_secrets_of_one_training_set_stand_or_fall_together():
    """Three training sets of twenty secrets, one broken into: that is no twenty successes."""
    scoring = Scoring.of(PRIOR.x.double(), 0.05)
    ceiling = lw.bound(noise_multiplier=1.0, sample_rate=1.0, steps=1, baseline=0.05)
    (finding,) = audit(games=60).findings
    finding = replace(finding, rebuilt=np.arange(60) < 20)
    check_under(ceiling, (finding,), None, scoring, secrets=20)
    with pytest.raises(RuntimeError, match="20 of 60 games won"):
        check_under(lw.bound(noise_multiplier=9.0, sample_rate=1.0, steps=1, baseline=0.05), (finding,), None, scoring)


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
