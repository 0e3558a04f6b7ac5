"""Nets that begin with convolutions: the first linear layer's input, then the record."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.attacks.mnemonist import inputs_of

SMALL = lw.RecoNN(decoder=lw.decoders.MLPDecoder(width=100), epochs=15)
ATTACK = lw.attacks.EmbeddingRecoNN(attack=SMALL, picture=SMALL)
LINEAR = "3"


@pytest.fixture(scope="module")
def game():
    known, prior, secrets = lw.records.digits().split(100, 400, 100, seed=0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 8), nn.ReLU(), nn.Linear(8, 10))
    trainer = lw.GD(lr=0.1, momentum=0.9, steps=20, init=lw.inits.LeCunNormal())
    knowledge = lw.games.Knowledge(net, trainer, lw.Informed(known), lw.access.Weights(), prior)
    cohort = knowledge.threat.deal(secrets, len(secrets), seed=1)
    return knowledge, cohort, trainer(net, cohort, seed=1)


@pytest.fixture(scope="module")
def embedded(game):
    return ATTACK.prepare(game[0], seed=0)


def test_what_a_layer_is_shown(game):
    knowledge, cohort, release = game
    x, params = cohort.own.x[:, 0], release[0]
    convolved = nn.functional.conv2d(x, params["0.weight"], params["0.bias"]).relu().flatten(1)
    torch.testing.assert_close(inputs_of(LINEAR, knowledge.net, params, x), convolved)


def beats(guess, truth, blind):
    """By three standard errors of the gain over games."""
    errors, others = ((part - truth).square().flatten(1).mean(1) for part in (guess, blind))
    gain = others - errors
    return gain.mean() > 3 * gain.std() / len(gain) ** 0.5


def test_the_embedding_is_rebuilt_and_then_the_record(game, embedded):
    knowledge, cohort, release = game
    truth, prior = cohort.own.x[:, 0], knowledge.prior.x
    mean = {name: value.mean(0) for name, value in release.params.items()}
    shown, usual = (inputs_of(LINEAR, knowledge.net, mean, x) for x in (truth, prior))
    assert beats(embedded.embedding(release).records.x[:, 0], shown, usual.mean(0))
    guess = embedded(release)
    assert beats(guess.records.x[:, 0], truth, prior.mean(0))
    assert (guess.records.y == cohort.own.y).double().mean() > 0.5


def test_it_reads_the_first_linear_layer_and_no_other(game, embedded):
    _, _, release = game
    guess = embedded(release).records.x
    for name in release.params:
        changed = replace(release, params={**release.params, name: release.params[name] + 0.1})
        assert torch.equal(embedded(changed).records.x, guess) == (not name.startswith(LINEAR))


def test_the_error_of_validation_is_that_of_both(game, embedded):
    _, cohort, release = game
    error = (embedded(release).records.x - cohort.own.x).square().mean()
    assert embedded.picture.validation_error == pytest.approx(float(error), rel=0.4)


def test_refusals(game):
    knowledge, _, _ = game
    told = torch.arange(64).reshape(1, 8, 8) < 32
    images = lw.decoders.ConvDecoder()
    for attack, changed, sentence in (
        (ATTACK, replace(knowledge, access=lw.access.Layers("3")), "it needs all layers"),
        (
            ATTACK,
            replace(knowledge, prior=knowledge.prior[:3]),
            r"EmbeddingRecoNN\(RecoNN\) is not applicable: it needs at least 4",
        ),
        (ATTACK, replace(knowledge, net=nn.Conv2d(1, 10, 8)), "trains no linear layer"),
        (
            ATTACK,
            replace(knowledge, threat=replace(knowledge.threat, parts=told)),
            "cannot use the given parts of a record",
        ),
        (ATTACK, replace(knowledge, prior=replace(knowledge.prior, features=knowledge.prior.x)), "trains on features"),
        (replace(ATTACK, attack=replace(SMALL, decoder=images)), knowledge, "ConvDecoder: expected images"),
    ):
        with pytest.raises(ValueError, match=sentence):
            attack.prepare(changed, seed=0)
