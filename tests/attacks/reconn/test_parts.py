"""Attribute inference: some numbers of the secret are known, the others are sought (S1 section II-C)."""

from dataclasses import replace

import pytest
import torch

import lostwax as lw
from attacks.reconn.game import Leaks
from lostwax.access import Weights
from lostwax.games import Knowledge, Release
from lostwax.learning.standardise import Standardise

KNOWN, PRIOR, SECRETS = lw.records.digits().split(200, 500, 100, seed=0)
NET = lw.nets.mlp(64, 10, 10)
ATTACK = lw.RecoNN(decoder=lw.decoders.MLPDecoder(width=128), epochs=25)
LEFT = torch.zeros(1, 8, 8, dtype=torch.bool)
LEFT[..., :4] = True
HALF = lw.Informed(KNOWN, parts=LEFT)


class Silent(Leaks):
    """Weights that are noise alone."""

    def __call__(self, net, cohort, *, seed):
        random = torch.Generator().manual_seed(seed % 2**31)
        return Release({"weight": torch.randn(len(cohort), 20, generator=random)})


def played(threat, trainer):
    reconstruct = ATTACK.prepare(Knowledge(NET, trainer, threat, Weights(), PRIOR), seed=0)
    cohort = threat.deal(SECRETS, len(SECRETS), seed=3)
    release = trainer(NET, cohort, seed=3)
    return reconstruct, release, cohort, reconstruct(release, threat.hints(cohort, SECRETS, seed=3))


def right_half(guess, cohort):
    return float((guess.records.x - cohort.own.x)[..., ~LEFT].square().mean())


@pytest.fixture(scope="module")
def game():
    return played(HALF, lw.GD(lr=0.2, momentum=0.9, steps=40))


def test_the_known_half_helps_to_read_the_other(game):
    reconstruct, _, cohort, guess = game
    *_, alone = played(lw.Informed(KNOWN), lw.GD(lr=0.2, momentum=0.9, steps=40))
    assert torch.equal(guess.records.x[..., LEFT], cohort.own.x[..., LEFT])
    assert right_half(guess, cohort) < 0.95 * right_half(alone, cohort)
    error = (guess.records.x - cohort.own.x).square().mean()  # over the whole record, half of it exact
    assert reconstruct.validation_error == pytest.approx(float(error), rel=0.5)


def test_what_is_told_is_used_where_the_model_tells_nothing():
    """A victim that ignores its secret: the known half alone foretells the other better than the mean does."""
    prior, secrets = PRIOR.x[..., ~LEFT], SECRETS.x[..., ~LEFT]
    blind = float((secrets - prior.mean(0)).square().mean())
    _, _, cohort, guess = played(HALF, Silent())
    assert right_half(guess, cohort) < 0.9 * blind


def test_a_reconstructor_that_was_told_more_asks_for_it(game, tmp_path):
    reconstruct, release, _, guess = game
    with pytest.raises(ValueError, match="give the adversary the same numbers"):
        reconstruct(release)
    knowledge = Knowledge(NET, lw.GD(), HALF, Weights(), PRIOR)
    again = ATTACK.load(reconstruct.save(tmp_path), knowledge)
    assert torch.equal(
        again(release, lw.games.Hints(parts=guess.records.x.where(LEFT, torch.nan))).records.x, guess.records.x
    )


def test_weights_are_not_still_beside_the_numbers_of_a_record():
    """Weights move by a thousandth of what pixels do: measured by these, they would all be dropped."""
    models, pixels = 1e-5 * torch.randn(50, 3), torch.randn(50, 9)
    pixels[:, 4:] = torch.nan  # sought
    assert Standardise.fit(torch.cat([models, pixels], 1), beside=9).kept.tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_in_an_audit_the_baselines_know_as_much():
    audit = lw.audit(
        NET,
        trainer=lw.GD(lr=0.2, steps=5),
        threat=HALF,
        attack=replace(ATTACK, epochs=1),
        prior=PRIOR,
        secrets=SECRETS[:30],
    )
    assert "and 32 of the 64 numbers of each secret" in audit.threat
    assert any("are given to the adversary: errors are over the others" in note for note in map(str, audit.notes))
    assert "predicted from the given numbers" in audit.baselines
    truth = audit.truth.x[..., ~LEFT]  # (games, 32)
    pool = torch.cat([PRIOR.x, KNOWN.x])[..., ~LEFT].double()
    for name, guess in (
        ("blind guess (mean of the prior)", PRIOR.x.double().mean(0)[~LEFT]),
        (audit.oracle, pool[torch.cdist(truth, pool).argmin(1)]),
    ):
        expected = (guess - truth).square().mean(1)
        torch.testing.assert_close(torch.from_numpy(audit.baselines[name][audit.metric]), expected)
