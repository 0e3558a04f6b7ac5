"""Kernel ridge regression on shadow models: a planted leak is found; where there is none, nothing is."""

from dataclasses import replace

import pytest
import torch

import lostwax as lw
from attacks.reconn.game import KNOWN, NET, PRIOR, SECRETS, Leaks, errors, knowledge
from lostwax.games import Hints, Informed, Knowledge, Records, Release
from lostwax.games.protocols import refusal
from lostwax.learning.shadow_tables import shadow_tables

ATTACK = lw.KernelRidge()


@pytest.fixture(scope="module")
def found():
    return ATTACK.prepare(knowledge(Leaks()), seed=0)


def test_a_planted_leak_is_found(found):
    (error, blind), guess, cohort = errors(found, Leaks())
    assert error.mean() < 0.05 * blind.mean()
    assert (guess.records.y == cohort.own.y).float().mean() > 0.95
    assert guess.records.x.shape == cohort.own.x.shape
    assert guess.confidence.shape == cohort.own.y.shape
    assert found.validation_error == pytest.approx(float(error.mean()), rel=0.6)
    assert -float(guess.confidence.double().mean()) == pytest.approx(float(error.mean()), rel=0.6)


def test_a_victim_that_ignores_its_record_gives_the_blind_guess():
    silent = Leaks(strength=0.0)
    (error, blind), _, _ = errors(ATTACK.prepare(knowledge(silent), seed=0), silent)
    assert error.mean() == pytest.approx(float(blind.mean()), rel=0.1)


def test_permuting_targets_destroys_success():
    (error, blind), _, _ = errors(ATTACK.prepare(knowledge(Leaks(turned=1)), seed=0), Leaks())
    assert error.mean() > 0.9 * blind.mean()


def test_it_rebuilds_digits_better_than_a_decoder_network():
    known, prior, secrets = lw.records.digits().split(100, 300, 50, seed=0)
    game = Knowledge(lw.nets.mlp(64, 8, 10), lw.GD(lr=0.2, steps=30), Informed(known), lw.access.Weights(), prior)
    cohort = Informed(known).deal(secrets, 50, seed=0)
    release = game.trainer(game.net, cohort, seed=0)
    attacks = ATTACK, lw.RecoNN(decoder=lw.decoders.MLPDecoder(width=128), epochs=20)
    ours, decoder = (attack.prepare(game, seed=0)(release).records.x for attack in attacks)
    blind = (prior.x.mean(0) - cohort.own.x).square().mean()
    assert (ours - cohort.own.x).square().mean() < 0.7 * (decoder - cohort.own.x).square().mean() < 0.7 * blind


def test_models_trained_before_serve_as_well(found):
    again = ATTACK.learn(*shadow_tables(ATTACK, knowledge(Leaks()), 0))
    assert again.validation_error == found.validation_error
    assert again.regression.kernel == found.regression.kernel


def test_what_is_told_is_not_guessed(found):
    cohort = Informed(KNOWN).deal(SECRETS, 4, seed=0)
    release, told = Leaks()(NET, cohort, seed=0), torch.full((4, 1), 2)
    assert torch.equal(found(release, Hints(labels=told)).records.y, told)

    mask = torch.tensor([[[True, True, False], [True, False, False]]])
    threat = Informed(KNOWN, parts=mask)
    parts = ATTACK.prepare(replace(knowledge(Leaks()), threat=threat), seed=0)
    guess = parts(release, threat.hints(cohort, SECRETS, seed=0)).records.x
    assert torch.equal(guess[:, 0, mask], cohort.own.x[:, 0, mask])
    assert (guess - cohort.own.x).square().mean() < 0.01


def test_tables_and_real_valued_labels():
    """Unbounded records in float64, a number for a label."""
    x = 5 + 3 * torch.randn(300, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    records = Records(x, x.sum(1))
    prior, secrets = records[:200], records[200:]

    def tell(net, cohort, *, seed):
        return Release({"weight": torch.cat([cohort.own.x[:, 0], cohort.own.y], 1)})

    tell.tile_size = lambda net, cohort: 1_000
    threat = Informed(records[:1])
    found = ATTACK.prepare(replace(knowledge(tell, prior), threat=threat), seed=0)
    cohort = threat.deal(secrets, len(secrets), seed=0)
    guess = found(tell(NET, cohort, seed=0)).records
    assert guess.x.dtype == torch.float64
    assert (guess.x - cohort.own.x).square().mean() < 1e-4 * x.var()
    assert (guess.y - cohort.own.y).square().mean() < 0.01 * records.y.var()


def test_a_record_may_move_the_last_digits_of_a_victim_in_float64():
    """Below the precision of the prior, which is in float32, but not below that of the release."""

    def whisper(net, cohort, *, seed):
        loud = Leaks()(net, cohort, seed=seed).params
        return Release({name: 1 + 1e-8 * value.double() for name, value in loud.items()})

    whisper.tile_size = Leaks().tile_size
    (error, blind), guess, _ = errors(ATTACK.prepare(knowledge(whisper), seed=0), whisper)
    assert error.mean() < 0.05 * blind.mean()
    assert guess.records.x.dtype == PRIOR.x.dtype == torch.float32


def test_a_class_of_one_record():
    """Its one model explains no other, and is explained by no other class."""
    rows = torch.cat([(PRIOR.y != 2).nonzero()[:, 0], (PRIOR.y == 2).nonzero()[:1, 0]])
    others = SECRETS[(SECRETS.y != 2).nonzero()[:, 0]]
    found = replace(ATTACK, validation=0.01).prepare(knowledge(Leaks(), prior=PRIOR[rows]), seed=0)
    assert len(found.regression.groups[2].rows) == 1
    (error, blind), guess, cohort = errors(found, Leaks(), others)
    assert error.mean() < 0.05 * blind.mean()
    assert (guess.records.y == cohort.own.y).float().mean() > 0.95


def test_a_class_that_no_shadow_had_is_read_as_the_likeliest_other(found):
    release = Leaks()(NET, Informed(KNOWN).deal(SECRETS, 3, seed=0), seed=0)
    told = found(release, Hints(labels=torch.full((3, 1), 9)))
    assert told.records.x.isfinite().all()
    assert (told.records.y == 9).all()


@pytest.mark.parametrize(("field", "value"), [("shadows", 3), ("validation", 0.0)])
def test_settings_without_meaning_are_refused(field, value):
    with pytest.raises(ValueError, match=f"KernelRidge: expected {field}"):
        lw.KernelRidge(**{field: value})


def test_it_says_why_it_cannot_play():
    sentence = refusal(lw.KernelRidge(shadows=401), knowledge(Leaks()))
    assert "KernelRidge is not applicable: 401 shadow models" in sentence
