"""Saved and read back; cut and taken up again."""

import json
from dataclasses import replace

import pytest
import torch

import lostwax as lw
from attacks.weak.game import NET, QUICK, TRAINER, knowledge, victims
from full_disk import no_file_over
from lostwax.attacks.weak import training
from lostwax.attacks.weak.training import Heads
from lostwax.shadows.checkpoints import KeptState

_, RELEASE = victims(5)


def same(one, other):
    left, right = one(RELEASE), other(RELEASE)
    return torch.equal(left.records.x, right.records.x) and torch.equal(left.confidence, right.confidence)


@pytest.mark.parametrize(
    "reader", [QUICK.reader, lw.attacks.weak.ConditionalReader(), lw.attacks.weak.FlatReader()], ids=repr
)
def test_it_is_read_back_bit_for_bit(reader, tmp_path):
    attack = replace(QUICK, reader=reader)
    trained = attack.prepare(knowledge(), seed=0)
    again = attack.load(trained.save(tmp_path / "inner"), knowledge())
    assert same(trained, again)
    assert again.validation_error == trained.validation_error
    assert json.loads((tmp_path / "inner" / "reconstructor.json").read_text())["attack"] == repr(attack)


def test_rounded_weights_take_half_the_room_and_answer_alike(tmp_path):
    attack = replace(QUICK, decoder=lw.decoders.ResidualDecoder(width=8))
    trained = attack.prepare(knowledge(), seed=0)
    whole, half = trained.save(tmp_path / "whole"), trained.save(tmp_path / "half", half=True)
    sizes = [(folder / "reconstructor.safetensors").stat().st_size for folder in (whole, half)]
    assert sizes[1] < 0.55 * sizes[0]
    again = attack.load(half, knowledge())
    assert next(again.reads.parameters()).dtype is torch.float32
    torch.testing.assert_close(again(RELEASE).records.x, trained(RELEASE).records.x, rtol=0, atol=0.02)


def test_another_architecture_is_refused(tmp_path):
    folder = QUICK.prepare(knowledge(), seed=0).save(tmp_path)
    other = replace(QUICK, reader=lw.attacks.weak.SetReader(width=8, layers=1, heads=1))
    with pytest.raises(ValueError, match=r"WeakRecoNN.load: .* was saved with reader SetReader\(width=64"):
        other.load(folder, knowledge())
    with pytest.raises(ValueError, match="was saved with net Linear"):
        QUICK.load(folder, knowledge(net=torch.nn.Linear(64, 4)))
    with pytest.raises(FileNotFoundError, match="Name one that save wrote"):
        QUICK.load(tmp_path / "nothing", knowledge())
    trained = QUICK.prepare(knowledge(), seed=0)
    with pytest.raises(ValueError, match=r"WeakRecoNN.tune: .* trained with reader"):
        other.tune(trained, knowledge(), seed=0)


class PowerCutError(Exception):
    """The power went off."""


def test_a_training_that_was_cut_goes_on_as_if_it_had_not_been(tmp_path, monkeypatch):
    attack = replace(QUICK, steps=30, decoder=lw.decoders.MLPDecoder(width=16, dropout=0.2))  # ten legs of three steps
    whole = attack.prepare(knowledge(), seed=0)
    monkeypatch.setattr(training, "SECONDS", 0)  # a checkpoint after every leg
    kept = replace(attack, checkpoint=tmp_path / "kept")
    legs, batches = [], Heads.batches

    def until_the_fifth(heads, steps, *settings):
        legs.append(steps.start)
        if len(legs) == 5:
            raise PowerCutError
        return batches(heads, steps, *settings)

    monkeypatch.setattr(Heads, "batches", until_the_fifth)
    with pytest.raises(PowerCutError):
        kept.prepare(knowledge(), seed=0)
    assert same(kept.prepare(knowledge(), seed=0), whole)
    assert legs == [0, 3, 6, 9, 12, 12, 15, 18, 21, 24, 27]
    assert same(kept.prepare(knowledge(), seed=0), whole)  # it is over, and nothing is trained again
    assert len(legs) == 11


def test_a_checkpoint_that_cannot_be_written_is_a_warning(tmp_path):
    whole = QUICK.prepare(knowledge(), seed=0)
    kept = replace(QUICK, checkpoint=tmp_path)
    with (
        no_file_over(20_000),
        pytest.warns(RuntimeWarning, match=r"safetensors could not be.*Training continues"),
    ):
        trained = kept.prepare(knowledge(), seed=0)
    assert same(trained, whole)
    assert not list(tmp_path.iterdir())
    assert same(kept.prepare(knowledge(), seed=0), whole)


def test_a_damaged_state_is_named_wherever_the_damage_is(tmp_path):
    kept = replace(QUICK, checkpoint=tmp_path)
    kept.prepare(knowledge(), seed=0)
    (path,) = tmp_path.iterdir()
    checkpoint, content = KeptState(path), path.read_bytes()
    assert checkpoint.read() is not None
    for place in (*range(0, 400, 7), *range(400, len(content), len(content) // 200), len(content) - 1):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(ValueError, match=r"safetensors (cannot be read|is damaged).*Delete"):
            checkpoint.read()
    with pytest.raises(ValueError, match=r"safetensors is damaged"):
        kept.prepare(knowledge(), seed=0)


def test_a_save_on_a_full_disk_leaves_the_earlier_one(tmp_path):
    trained = QUICK.prepare(knowledge(), seed=0)
    with no_file_over(5_000), pytest.raises(OSError, match=r"save: .*reconstructor\.safetensors could not be written"):
        trained.save(tmp_path / "none")
    assert list((tmp_path / "none").iterdir()) == []
    trained.save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with no_file_over(5_000), pytest.raises(OSError, match="could not be written"):
        QUICK.prepare(knowledge(), seed=1).save(tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_tensors_and_words_of_two_saves_are_noticed(tmp_path):
    for seed in (0, 1):
        QUICK.prepare(knowledge(), seed=seed).save(tmp_path / str(seed))
    (tmp_path / "0" / "reconstructor.json").replace(tmp_path / "1" / "reconstructor.json")
    with pytest.raises(ValueError, match=r"does not belong to the reconstructor\.safetensors beside it.*Save it again"):
        QUICK.load(tmp_path / "1", knowledge())
    (tmp_path / "1" / "reconstructor.json").write_text("{")
    with pytest.raises(ValueError, match=r"WeakRecoNN.load: .*reconstructor\.json is damaged"):
        QUICK.load(tmp_path / "1", knowledge())


def test_an_edited_number_is_noticed_and_saves_of_earlier_versions_are_read(tmp_path):
    trained = QUICK.prepare(knowledge(), seed=0)
    trained.save(tmp_path)
    path = tmp_path / "reconstructor.json"
    words = json.loads(path.read_text())
    path.write_text(json.dumps(words | {"validation_error": words["validation_error"] / 2}))
    with pytest.raises(ValueError, match=r"replaced or damaged\. Save it again"):
        QUICK.load(tmp_path, knowledge())
    path.write_text(json.dumps(words | {"tensors": words["tensors"].partition(":")[0]}))  # as up to 0.2.0
    assert same(QUICK.load(tmp_path, knowledge()), trained)


def test_each_training_has_a_checkpoint_of_its_own(tmp_path):
    kept = replace(QUICK, checkpoint=tmp_path)
    kept.prepare(knowledge(), seed=0)
    (first,) = tmp_path.iterdir()
    before = first.read_bytes()
    for number, (attack, game, seed) in enumerate(
        (
            (replace(kept, lr=1e-4), knowledge(), 0),
            (kept, knowledge(replace(TRAINER, steps=11)), 0),
            (kept, knowledge(), 1),
        ),
        2,
    ):
        assert same(attack.prepare(game, seed=seed), replace(attack, checkpoint=None).prepare(game, seed=seed))
        assert len(list(tmp_path.iterdir())) == number
    assert first.read_bytes() == before


def test_a_discriminator_is_not_in_a_checkpoint(tmp_path):
    with pytest.raises(ValueError, match="a checkpoint does not include the discriminator"):
        replace(QUICK, terms=(lw.learning.Adversarial(),), checkpoint=tmp_path)


def test_the_users_net_is_left_as_it_is():
    before = [value.clone() for value in NET.parameters()]
    QUICK.prepare(knowledge(), seed=0)
    assert all(torch.equal(one, two) for one, two in zip(before, NET.parameters(), strict=True))
