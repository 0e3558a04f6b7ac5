"""What can be read is read, and nothing else is."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import lostwax as lw
from attacks.weak.game import (
    ATTACK,
    DIGITS,
    NET,
    PRIOR,
    QUICK,
    SECRETS,
    THREAT,
    TRAINER,
    Swapped,
    class_mean_errors,
    errors,
    knowledge,
    victims,
)
from lostwax.games import Records, Release
from lostwax.metrics import Null


@pytest.fixture(scope="module")
def trained():
    return ATTACK.prepare(knowledge(), seed=0)


@pytest.fixture(scope="module")
def audit():
    settings = {"trainer": TRAINER, "threat": THREAT, "prior": PRIOR, "secrets": SECRETS, "games": 100}
    return lw.audit(NET, attack=ATTACK, **settings)


def test_a_planted_leak_is_found(audit):
    """Nearer than the nearest record of the prior, told which, and far nearer than chance."""
    assert audit.errors.mean() < 0.7 * audit.oracle_error
    assert audit.beats_baselines(audit.findings[0]).mean() > 0.8
    for null in Null:
        assert audit.tpr(at_fpr=0.01, null=null).rate > 0.7
        assert audit.tpr(at_fpr=0.05, null=null).low > 0.5
        assert audit.fpr(null=null).high < 0.2 < 0.8 < audit.success().low
        assert str(null) in str(audit.tpr(null=null))
        assert audit.tpr_by_class(at_fpr=0.05, null=null).rate > 0.8
    assert audit.findings[0].labels_right.all()


def test_the_report_is_written(audit, tmp_path):
    page = lw.report(audit, tmp_path).read_text()
    assert "Weak adversary" in page
    assert "WeakRecoNN" in page
    for null in Null:
        assert "in each of 3 classes" in str(audit.tpr_by_class(null=null))


def test_the_releases_of_other_games_tell_nothing(trained):
    cohort, release = victims()
    turned = Release({name: value.roll(1, 0) for name, value in release.params.items()})
    own, other = (errors(trained(part), cohort.own).mean() for part in (release, turned))
    assert own < 0.3 * other
    assert other > class_mean_errors(cohort.own).mean()


def test_heads_of_other_records_teach_nothing():
    trained = replace(ATTACK, steps=60).prepare(knowledge(Swapped()), seed=0)
    cohort, release = victims(trainer=Swapped())
    assert errors(trained(release), cohort.own).mean() > 0.9 * class_mean_errors(cohort.own).mean()


def test_a_seed_decides_everything_and_the_victims_draws_are_not_the_adversarys(trained):
    _, release = victims(5)
    before = torch.random.get_rng_state()
    one, two, other = (QUICK.prepare(knowledge(), seed=seed)(release).records.x for seed in (3, 3, 4))
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("reader", [lw.attacks.weak.ConditionalReader(), lw.attacks.weak.FlatReader()], ids=repr)
def test_readers_of_flat_weights_learn_too(reader):
    """The unconditional one rebuilds whichever of the records is the easiest."""
    decoder = lw.decoders.MLPDecoder(width=128, depth=1, input_noise=0.0)
    trained = replace(ATTACK, reader=reader, decoder=decoder).prepare(knowledge(), seed=0)
    cohort, release = victims()
    guess = trained(release)
    wrong = (guess.records.x.unsqueeze(2) - cohort.own.x.unsqueeze(1)).square().flatten(3).mean(3)  # (m, g, k)
    if isinstance(reader, lw.attacks.weak.FlatReader):
        assert guess.records.y.eq(-1).all()
        own = wrong.amin(2)  # (m, 1)
    else:
        assert torch.equal(guess.records.y, cohort.own.y)
        own = wrong.diagonal(dim1=1, dim2=2)
    assert own.mean() < 0.8 * class_mean_errors(cohort.own).mean()


@pytest.mark.parametrize("hidden", [8, pytest.param(4, marks=pytest.mark.slow)])
def test_binary_heads_are_read_by_their_hidden_neurons(hidden):
    net, threat = lw.nets.mlp(64, hidden, 1, activation=nn.ReLU), lw.Weak(size=2)
    start, loss = lw.inits.Normal(0.05, seed=None), lw.losses.BinaryCrossEntropy()
    trainer = lw.GD(lr=0.5, steps=30, loss=loss, init=start)
    trained = replace(ATTACK, steps=100).prepare(knowledge(trainer, net, threat, PRIOR[PRIOR.y < 2]), seed=0)
    cohort = threat.deal(SECRETS[SECRETS.y < 2], 40, seed=1)
    release = trainer(net, cohort, seed=1)
    guess = trained(release)
    assert errors(guess, cohort.own).mean() < 0.92 * class_mean_errors(cohort.own).mean()
    order = torch.randperm(hidden, generator=torch.Generator().manual_seed(0))
    names = list(release.params)
    turned = dict(release.params)
    turned[names[0]], turned[names[1]] = turned[names[0]][:, order], turned[names[1]][:, order]
    turned[names[2]] = turned[names[2]][:, :, order]
    torch.testing.assert_close(trained(Release(turned)).records.x, guess.records.x, rtol=1e-4, atol=1e-5)


def test_a_reconstructor_is_tuned_to_heads_of_another_kind(trained):
    noisy = lw.DPSGD(lr=0.2, steps=10, noise_multiplier=0.05, clip=1.0, init=TRAINER.init)
    cohort, release = victims(trainer=noisy)
    before, tuned = trained, replace(ATTACK, steps=40).tune(trained, knowledge(noisy), seed=0)
    fresh = replace(ATTACK, steps=40).prepare(knowledge(noisy), seed=0)
    kept, learnt, new = (errors(one(release), cohort.own).mean() for one in (before, tuned, fresh))
    assert learnt < kept
    assert learnt < new
    assert tuned.validation_error < 2 * float(learnt)


def test_four_records_a_class_share_one_guess():
    threat = lw.Weak(size=12)
    trained = replace(ATTACK, steps=60).prepare(knowledge(threat=threat), seed=0)
    _, release = victims(10, threat=threat)
    guess = trained(release)
    assert guess.records.x.shape == (10, 3, 1, 8, 8)
    assert guess.records.y.tolist() == [[0, 1, 2]] * 10


def test_a_class_that_chance_comes_near_need_not_decide_the_bar():
    """Ones that look alike: with one bar for all classes their false positives leave little room for the others."""
    ones = DIGITS.y == 1
    x = DIGITS.x.clone()
    x[ones] = x[ones].mean(0) + 0.15 * (x[ones] - x[ones].mean(0))
    prior, secrets = Records(x, DIGITS.y)[DIGITS.y < 3].through(nn.Flatten()).split(400, 130, seed=0)
    settings = {"trainer": TRAINER, "threat": THREAT, "prior": prior, "secrets": secrets, "games": 100}
    aims = lw.attacks.weak.LogError(), lw.attacks.weak.BeatChance(within=0.05)
    plain, beating = (lw.audit(NET, attack=replace(ATTACK, aim=aim), **settings) for aim in aims)
    assert plain.tpr(at_fpr=0.05).rate < 0.4
    assert beating.tpr(at_fpr=0.05).rate > 0.55
    assert beating.errors.mean() > plain.errors.mean()  # it has its price


def test_only_the_rare_class_is_rebuilt_where_only_it_is_asked_for():
    threat = lw.Weak(size=6, per_class=(5, 0, 1))
    attack = replace(ATTACK, steps=60, classes=(2,))
    cohort, release = victims(20, threat=threat)
    guess = attack.prepare(knowledge(threat=threat), seed=0)(release)
    assert guess.records.y.tolist() == [[2]] * 20
    rare = Records(cohort.own.x[:, 5:], cohort.own.y[:, 5:])
    assert errors(guess, rare).mean() < 0.8 * class_mean_errors(rare).mean()
    assert "a training set has records of (0, 2)" in replace(attack, classes=(1,)).objection(knowledge(threat=threat))
    assert "makes one guess, of any class" in replace(attack, reader=lw.attacks.weak.FlatReader()).objection(
        knowledge(threat=threat)
    )


def test_a_fixed_set_of_shadows_is_seen_again_and_again():
    fixed = replace(ATTACK, shadows=32, batch_size=16, steps=20)
    _, release = victims(5)
    one, two = (fixed.prepare(knowledge(), seed=0)(release).records.x for _ in range(2))
    assert torch.equal(one, two)
    with pytest.raises(ValueError, match="WeakRecoNN: expected shadows >= batch_size=32, or None, got 31"):
        replace(ATTACK, shadows=31)


def test_minutes_end_it():
    trained = replace(ATTACK, steps=10**6, minutes=0.02).prepare(knowledge(), seed=0)  # 1.2 s
    assert trained.validation_error > 0


def test_terms_are_held_against_the_nearest_record():
    terms = (lw.learning.Adversarial(discriminator=lw.decoders.PatchDiscriminator(channels=(4,))),)
    _, release = victims(3)
    plain, with_terms = (replace(QUICK, terms=t).prepare(knowledge(), seed=0)(release).records.x for t in ((), terms))
    assert not torch.equal(plain, with_terms)
