"""A reconstructor carried over to another fixed set (S1 appendix B, Fig. 12)."""

from dataclasses import replace

import pytest
import torch

import lostwax as lw
from lostwax.access import Weights
from lostwax.games import Knowledge

HERE, THERE, PRIOR, SECRETS = lw.records.digits().split(200, 200, 700, 100, seed=0)
NET, TRAINER = lw.nets.mlp(64, 10, 10), lw.GD(lr=0.2, momentum=0.9, steps=30, init=lw.inits.LeCunNormal())
MANY = lw.RecoNN(decoder=lw.decoders.MLPDecoder(width=128), epochs=25)
FEW = replace(MANY, shadows=50)


def knowledge(known, access=None):
    return Knowledge(NET, TRAINER, lw.Informed(known), access or Weights(), PRIOR)


def error(reconstruct, known):
    cohort = lw.Informed(known).deal(SECRETS, len(SECRETS), seed=9)
    return float((reconstruct(TRAINER(NET, cohort, seed=9)).records.x - cohort.own.x).square().mean())


@pytest.fixture(scope="module")
def trained():
    return MANY.prepare(knowledge(HERE), seed=0)


def test_tuning_beats_learning_from_the_same_few_shadows(trained):
    game = knowledge(THERE)
    scratch, unread, zero_shot, tuned = (
        error(reconstruct, THERE)
        for reconstruct in (
            FEW.prepare(game, seed=1),
            trained,
            FEW.zero_shot(trained, game, seed=1),
            FEW.tune(trained, game, seed=1),
        )
    )
    blind = float((SECRETS.x - PRIOR.x.mean(0)).square().mean())
    assert tuned < 0.8 * scratch
    assert zero_shot < 0.8 * scratch
    assert tuned < 1.1 * zero_shot
    assert unread > blind  # at the old fixed set's scale there is nothing to read


def test_tuning_leaves_the_old_reconstructor_as_it_is(trained):
    before = [value.clone() for value in (*trained.decoder.parameters(), *trained.label.parameters())]
    tuned = replace(FEW, epochs=2).tune(trained, knowledge(THERE), seed=1)
    after = [*trained.decoder.parameters(), *trained.label.parameters()]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert torch.equal(tuned.standardise.kept, trained.standardise.kept)
    assert tuned.attack.shadows == 50


def test_what_a_start_knows_is_kept_where_nothing_better_is_learnt(trained):
    wild = replace(FEW, epochs=1, lr=1e3)
    start, tuned = wild.zero_shot(trained, knowledge(HERE), seed=1), wild.tune(trained, knowledge(HERE), seed=1)
    assert tuned.validation_error == start.validation_error
    assert error(tuned, HERE) == error(start, HERE)


def test_a_tuned_reconstructor_is_saved_and_tuned_the_same_for_a_seed(trained, tmp_path):
    quick = replace(FEW, epochs=2)
    one, other = (quick.tune(trained, knowledge(THERE), seed=1) for _ in range(2))
    folder = one.save(tmp_path)
    assert error(one, THERE) == error(other, THERE) == error(quick.load(folder, knowledge(THERE)), THERE)


@pytest.mark.parametrize(
    ("attack", "access", "words"),
    [
        (replace(FEW, decoder=lw.decoders.MLPDecoder(width=9)), None, r"decoder MLPDecoder\(width=128.*but this is"),
        (replace(FEW, members=2), None, "trained with members 1, but this is 2"),
        (FEW, lw.access.Layers("3"), r"trained with access Weights\(\), but this is Layers"),
    ],
    ids=["decoder", "members", "access"],
)
def test_another_attack_is_refused(trained, attack, access, words):
    with pytest.raises(ValueError, match=words):
        attack.tune(trained, knowledge(THERE, access), seed=0)
