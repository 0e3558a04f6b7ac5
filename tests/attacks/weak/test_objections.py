"""What it cannot do, it says before any work, with the cure."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import lostwax as lw
from attacks.weak.game import ATTACK, NET, PRIOR, QUICK, SECRETS, THREAT, TRAINER, knowledge
from lostwax.games import Records
from lostwax.games.protocols import refusal


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("softmin", 0.0),
        ("mse", -1.0),
        ("mae", -1.0),
        ("steps", 0),
        ("minutes", 0.0),
        ("batch_size", 1),
        ("lr", 0.0),
        ("shadows", 5),
        ("validation", 1.0),
    ],
)
def test_settings_are_checked(field, value):
    with pytest.raises(ValueError, match=f"WeakRecoNN: expected {field} .*, got {value}"):
        lw.WeakRecoNN(**{field: value})


def test_readers_and_copies_are_checked():
    with pytest.raises(ValueError, match="SetReader: expected layers >= 1, got 0"):
        lw.attacks.weak.SetReader(layers=0)
    with pytest.raises(ValueError, match="expected width to be a multiple of heads=3, got 64"):
        lw.attacks.weak.SetReader(width=64, heads=3)
    with pytest.raises(ValueError, match="Augmented: expected copies >= 2, got 1"):
        lw.attacks.weak.Augmented(None, copies=1)


def objection(attack=QUICK, **game):
    sentence = refusal(attack, knowledge(**game))
    assert sentence.startswith("WeakRecoNN is not applicable: ")
    assert sentence.endswith(".")
    assert not sentence.endswith("..")
    return sentence


def test_games_it_can_play():
    assert QUICK.objection(knowledge()) is None
    real = Records(PRIOR.x, PRIOR.x.flatten(1).mean(1), PRIOR.features)
    squares = lw.GD(loss=lw.losses.SquaredError(), init=TRAINER.init)
    game = knowledge(squares, nn.Linear(64, 1), lw.Weak(size=4), real)
    assert replace(QUICK, reader=lw.attacks.weak.FlatReader()).objection(game) is None
    assert "the labels are not class numbers" in QUICK.objection(game)
    guess = replace(QUICK, reader=lw.attacks.weak.FlatReader()).prepare(game, seed=0)(
        squares(game.net, game.threat.deal(real, 2, seed=0), seed=0)
    )
    assert guess.records.x.shape == (2, 1, 1, 8, 8)
    hidden = replace(QUICK, reader=lw.attacks.weak.ConditionalReader())
    assert hidden.objection(knowledge(access=lw.access.Logits(PRIOR.inputs[:4]))) is None


def test_another_adversary_is_another_game():
    assert "the adversary is Informed. Use threat=Weak(size), or RecoNN" in objection(threat=lw.Informed(PRIOR[:5]))


def test_classes_missing_from_the_prior():
    assert "no record of class 1" in objection(prior=PRIOR[PRIOR.y != 1])


def test_sets_that_classes_do_not_divide():
    assert "4 records cannot be divided equally among the 3 classes" in objection(threat=lw.Weak(size=4))


def test_too_few_records_of_a_class():
    sentence = objection(prior=PRIOR[:12], threat=lw.Weak(size=9))
    assert "a training set takes 3 records of class" in sentence
    assert "needs 12 in the prior" in sentence


def test_secrets_that_the_adversary_has():
    settings = {"trainer": TRAINER, "threat": THREAT, "attack": QUICK, "games": 3}
    with pytest.raises(ValueError, match="the adversary has all 400 secrets already"):
        lw.audit(NET, prior=PRIOR, secrets=PRIOR, **settings)
    few = lw.audit(
        NET,
        prior=PRIOR,
        secrets=Records(*(torch.cat([getattr(SECRETS, p), getattr(PRIOR, p)[:1]]) for p in ("x", "y", "features"))),
        **settings,
    )
    assert any("1 of 131 records are also in prior" in note for note in map(str, few.notes))


def test_a_backbone_whose_features_are_constant():
    dead = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Threshold(1e9, 0.0))
    with pytest.raises(ValueError, match="the backbone gives the same features for all 400 records"):
        PRIOR.through(dead)


def test_a_head_that_is_not_the_last_layer():
    """A net that takes images is not what features are fed to; and a whole network has no rows to read."""
    sentence = objection(net=nn.Linear(32, 3))
    assert "cannot take records of shape (64,)" in sentence
    assert "Pass as net only the layers that were trained behind the backbone" in sentence
    whole = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 3))
    sentence = objection(net=whole, prior=Records(PRIOR.x, PRIOR.y))
    assert "Pass the trained head alone as net" in sentence
    assert "records.through(backbone)" in sentence


def test_what_cannot_be_seen_or_drawn():
    assert "SetReader reads whole rows of weights, and the access is Layers" in objection(
        access=lw.access.Layers("weight")
    )
    conv = replace(QUICK, decoder=lw.decoders.ResidualDecoder(width=1))
    assert "Use MLPDecoder" in objection(conv, prior=Records(PRIOR.x.flatten(1), PRIOR.y, PRIOR.features))
    whole = Records(PRIOR.x.long(), PRIOR.y, PRIOR.features)
    assert "it needs records of floating-point numbers, but the prior is torch.int64" in objection(prior=whole)
    perceptual = replace(ATTACK, terms=(lw.learning.Perceptual(metric=lw.metrics.LPIPS("nowhere")),))
    assert "perceptual term" in objection(perceptual)


def test_copies_by_another_backbone():
    torch.manual_seed(0)
    other = nn.Sequential(nn.Flatten(), nn.Linear(64, 64))
    assert "gives other features" in objection(replace(QUICK, augment=lw.attacks.weak.Augmented(other)))
    assert "its augment has no backbone" in objection(replace(QUICK, augment=lw.attacks.weak.Augmented(None)))
    plain = Records(PRIOR.x, PRIOR.y)
    net = nn.Sequential(nn.Flatten(), NET)
    assert "Use Augmented(None, ...)" in objection(
        replace(QUICK, augment=lw.attacks.weak.Augmented(other)), prior=plain, net=net
    )
    assert replace(QUICK, augment=lw.attacks.weak.Augmented(None)).objection(knowledge(prior=plain, net=net)) is None
    flat = Records(PRIOR.x.flatten(1), PRIOR.y)
    assert "moves images" in objection(replace(QUICK, augment=lw.attacks.weak.Augmented(None)), prior=flat)
