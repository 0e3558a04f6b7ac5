"""Saved and read back."""

import json
from dataclasses import replace

import pytest
import torch

from attacks.reconn.game import ATTACK, KNOWN, NET, SECRETS, Leaks, knowledge
from lostwax.access import Layers
from lostwax.games import Informed, Records
from lostwax.learning.decoders import MLPDecoder

QUICK = replace(ATTACK, epochs=3)
GAME = knowledge(Leaks())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return QUICK.prepare(GAME, seed=0).save(tmp_path_factory.mktemp("saved") / "inner")


def test_they_agree_bit_for_bit(folder):
    release = Leaks()(NET, Informed(KNOWN).deal(SECRETS, 20, seed=0), seed=0)
    before = torch.random.get_rng_state()
    one, two = (found(release) for found in (QUICK.prepare(GAME, seed=0), QUICK.load(folder, GAME)))
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(one.records.x, two.records.x)
    assert torch.equal(one.records.y, two.records.y)
    assert torch.equal(one.confidence, two.confidence)
    assert QUICK.load(folder, GAME).validation_error == QUICK.prepare(GAME, seed=0).validation_error


def test_real_valued_labels_agree_too(tmp_path):
    prior = Records(GAME.prior.x, GAME.prior.x.flatten(1).sum(1))
    threat = Informed(Records(KNOWN.x, KNOWN.x.flatten(1).sum(1)))

    class Tells(Leaks):
        def __call__(self, net, cohort, *, seed):
            labelled = replace(cohort, own=Records(cohort.own.x, cohort.own.y.long().clamp(0, 2)))
            return super().__call__(net, labelled, seed=seed)

    game = replace(GAME, prior=prior, threat=threat, trainer=Tells())
    found = QUICK.prepare(game, seed=0)
    release = Tells()(NET, threat.deal(prior, 5, seed=0), seed=0)
    other = QUICK.load(found.save(tmp_path), game)
    assert torch.equal(found(release).records.y, other(release).records.y)
    assert found(release).records.y.is_floating_point()


def test_no_pickle_and_the_words_can_be_read(folder):
    assert sorted(path.name for path in folder.iterdir()) == ["reconstructor.json", "reconstructor.safetensors"]
    words = json.loads((folder / "reconstructor.json").read_text())
    assert words["attack"] == repr(QUICK)
    assert words["access"] == "Weights()"


def test_another_decoder_or_access_is_refused(folder, tmp_path):
    wider = replace(QUICK, decoder=MLPDecoder(width=65))
    with pytest.raises(ValueError, match=r"saved with decoder MLPDecoder\(width=64.*but this is MLPDecoder\(width=65"):
        wider.load(folder, GAME)
    with pytest.raises(ValueError, match=r"saved with access Weights\(\), but this is Layers"):
        QUICK.load(folder, replace(GAME, access=Layers("bias")))
    with pytest.raises(FileNotFoundError, match="Name one that save wrote"):
        QUICK.load(tmp_path, GAME)


def test_a_file_cut_short_is_named(folder):
    path = folder / "reconstructor.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"RecoNN\.load.*cannot be read"):
        QUICK.load(folder, GAME)
