"""Settings, objections, augmentation, progress, and a real game."""

from dataclasses import replace

import pytest
import torch

import lostwax as lw
from attacks.reconn.game import PRIOR, Leaks, knowledge
from lostwax.access import Layers, Logits, Weights
from lostwax.attacks import RecoNN
from lostwax.games import Informed, Knowledge, Records
from lostwax.learning import Repeats, Shifts
from lostwax.learning.decoders import ConvDecoder, MLPDecoder
from lostwax.learning.shadow_tables import targets

GAME = knowledge(Leaks())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("shadows", 3),
        ("mae", -1.0),
        ("mse", -1.0),
        ("members", 0),
        ("epochs", 0),
        ("batch_size", 0),
        ("lr", 0.0),
        ("weight_decay", -1.0),
        ("validation", 1.0),
        ("patience", 0),
    ],
)
def test_settings_are_checked(field, value):
    with pytest.raises(ValueError, match=f"RecoNN: expected {field} .*, got {value}"):
        RecoNN(**{field: value})


def test_objections_say_why_and_what_to_do():
    assert RecoNN().objection(GAME) is None
    assert "the adversary is object. Use threat=Informed" in RecoNN().objection(replace(GAME, threat=object()))
    assert "at least 4 records in the prior, and there are 3" in RecoNN().objection(replace(GAME, prior=PRIOR[:3]))
    asked = RecoNN(shadows=1_000)
    assert "1000 shadow models need as many records, and the prior holds 400" in asked.objection(GAME)
    assert "bring 600 more" in asked.objection(GAME)
    with pytest.raises(ValueError, match="RecoNN is not applicable: 1000 shadow models"):
        asked.prepare(GAME, seed=0)
    whole = replace(GAME, prior=Records(PRIOR.x.long(), PRIOR.y))
    assert "floating-point" in RecoNN().objection(whole)
    flat = replace(GAME, prior=Records(PRIOR.x.flatten(1), PRIOR.y))
    assert "got records of shape (6,). Use MLPDecoder" in RecoNN(decoder=ConvDecoder()).objection(flat)


def test_augmentation_objects_where_it_has_no_meaning():
    shifted = RecoNN(shadows=1_000, augment=Shifts())
    assert shifted.objection(GAME) is None
    flat = Records(PRIOR.x.flatten(1), PRIOR.y)
    assert "images (n, channels, height, width), but the prior has shape (400, 6)." in shifted.objection(
        replace(GAME, prior=flat)
    )
    features = Records(PRIOR.x, PRIOR.y, features=PRIOR.x.flatten(1))
    assert "the net trains on features" in shifted.objection(replace(GAME, prior=features))
    assert RecoNN(shadows=1_000, augment=Repeats()).objection(replace(GAME, prior=flat)) is None


def test_shifts_move_and_begin_with_the_originals():
    images = Records(torch.arange(48.0).reshape(3, 1, 4, 4), torch.tensor([0, 1, 2]))
    more = Shifts(pixels=1)(images, 300, seed=0)
    assert torch.equal(more.x[:3], images.x)
    assert torch.equal(more.y, torch.tensor([0, 1, 2] * 100))
    padded = torch.nn.functional.pad(images.x, [1] * 4, mode="replicate")
    moved = {padded[0, :, a : a + 4, b : b + 4].numpy().tobytes() for a in range(3) for b in range(3)}
    assert {image.numpy().tobytes() for image in more.x[3::3]} == moved
    assert torch.equal(more.x, Shifts()(images, 300, seed=0).x)
    with pytest.raises(ValueError, match="expected pixels >= 1"):
        Shifts(pixels=0)


def test_what_is_held_out_is_never_learned_from_not_even_moved():
    for attack, sizes in (
        (RecoNN(), (360, 40)),
        (RecoNN(shadows=100), (90, 10)),
        (RecoNN(shadows=1_000, augment=Repeats()), (960, 40)),
        (RecoNN(shadows=4, validation=0.99), (2, 2)),
    ):
        learn_from, test_on = targets(attack, PRIOR, 0)
        assert (len(learn_from), len(test_on)) == sizes
        learned, tested = ({row.numpy().tobytes() for row in part.x} for part in (learn_from, test_on))
        assert not learned & tested


@pytest.fixture(scope="module")
def digits():
    known, prior, secrets = lw.records.digits().split(300, 1_000, 200, seed=0)
    trainer = lw.GD(lr=0.2, momentum=0.9, steps=100, init=lw.inits.LeCunNormal())
    threat = Informed(known)
    cohort = threat.deal(secrets, 200, seed=0)
    net = lw.nets.mlp(64, 10, 10)
    game = Knowledge(net, trainer, threat, Weights(), prior)
    return game, trainer(net, cohort, seed=0), cohort


def test_digits_are_rebuilt_better_than_by_the_nearest_record_at_hand(digits):
    """S1 section VI-A in small: 1,000 shadow models of a victim trained on 301 digits."""
    game, release, cohort = digits
    attack = RecoNN(decoder=MLPDecoder(width=300, input_noise=0.3), epochs=60, batch_size=64)
    guess = attack.prepare(game, seed=0)(release)
    error = (guess.records.x - cohort.own.x).square().flatten(1).mean(1)
    pool = torch.cat([game.prior.x, cohort.shared.x]).flatten(1)
    oracle = torch.cdist(cohort.own.x.flatten(1), pool).min(1).values.square() / 64
    blind = (game.prior.x.mean(0) - cohort.own.x).square().flatten(1).mean(1)
    print(f"error {error.mean():.4f}, oracle {oracle.mean():.4f}, blind {blind.mean():.4f}")
    assert error.mean() < 0.3 * blind.mean()
    assert error.mean() < oracle.mean()
    assert (error < oracle).float().mean() > 0.6
    assert (guess.records.y == cohort.own.y).float().mean() > 0.9


@pytest.mark.parametrize("access", [Layers("1"), Logits(torch.rand(20, 1, 8, 8))], ids=["layers", "logits"])
def test_less_access_and_another_decoder_play_too(digits, access):
    game, release, cohort = digits
    few = replace(game, prior=game.prior[:100], trainer=replace(game.trainer, steps=10), access=access)
    attack = RecoNN(decoder=ConvDecoder(channels=(8,)), epochs=3)
    guess = attack.prepare(few, seed=0)(release)
    assert guess.records.x.shape == cohort.own.x.shape
    assert guess.records.x.min() >= 0
    assert guess.records.x.max() <= 1
