"""The cloud closes in: exactly where training is linear, far beyond its first round where it has kinks."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import lostwax as lw
from attacks.reconn.game import KNOWN as SMALL_KNOWN
from attacks.reconn.game import NET as SMALL_NET
from attacks.reconn.game import SECRETS as SMALL_SECRETS
from attacks.reconn.game import Leaks
from attacks.reconn.game import knowledge as small_game
from lostwax.attacks.ensemble import checked
from lostwax.games import Hints, Knowledge, Records, Release

DIGITS = lw.records.digits()
KNOWN, PRIOR, SECRETS = DIGITS[DIGITS.y < 3].split(40, 480, 4, seed=1)
NET = lw.nets.mlp(64, 6, 10, activation=nn.ReLU)
GD = lw.GD(lr=0.2, momentum=0.9, steps=30, init=lw.inits.LeCunNormal())
GAME = Knowledge(NET, GD, lw.Informed(KNOWN), lw.access.Weights(), PRIOR)
ATTACK = lw.Ensemble(members=120, rounds=6)


def squared(one, other):
    return (one - other).double().square().flatten(1).mean(1)


@pytest.fixture(scope="module")
def prepared():
    return ATTACK.prepare(GAME, seed=0)


@pytest.fixture(scope="module")
def victims():
    cohort = lw.Informed(KNOWN).deal(SECRETS, len(SECRETS), seed=5)
    return cohort, GD(NET, cohort, seed=5)


@pytest.fixture(scope="module")
def found(prepared, victims):
    return prepared.invert(victims[1])


def test_kinks_do_not_hide_the_record(found, victims):
    """S1's ReLU victim on digits. Ten times nearer a round: what a derivative cannot see, a smaller cloud can."""
    truth = victims[0].own.x[:, 0].flatten(1)
    first = squared(torch.stack([one.rounds[0].estimate for one in found]), truth)
    last = squared(torch.stack([one.estimate for one in found]), truth)
    assert first.median() > 1e-3
    assert last.median() < 1e-4 * first.median()
    assert [one.label for one in found] == victims[0].own.y[:, 0].tolist()


def test_a_victim_that_diverged_is_no_reason_to_stop(prepared, victims, found):
    params = {name: value[:2].clone() for name, value in victims[1].params.items()}
    params["1.weight"][0] = torch.nan
    guess = prepared(Release(params))
    assert guess.records.x.isfinite().all()
    assert guess.confidence[:, 0].tolist() == [-torch.inf, -found[1].predicted]
    quick = prepared._replace(attack=replace(ATTACK, rounds=1, restarts=0), polish=None)
    told = quick(Release(params), Hints(labels=torch.tensor([[2], [found[1].label]])))
    assert told.records.y[0] == 2


def test_it_knows_how_far_off_it_is(found, victims):
    """The expected error against the true one: in every round, without ever seeing the truth."""
    ratios = [
        float((one.estimate - truth).square().mean()) / one.predicted
        for game, truth in zip(found, victims[0].own.x[:, 0].flatten(1).double(), strict=True)
        for one in game.rounds
    ]
    assert 0.2 < np.median(ratios) < 5
    assert np.mean(np.log10(ratios) < 1) > 0.9
    assert all(one.certified or one.predicted >= min(turn.predicted for turn in one.rounds) for one in found)


def test_the_evidence_is_that_of_models_trained_on_the_guess(found):
    assert all(one.floor == 0 for one in found)  # deterministic
    exact = [one for one in found if one.predicted < 1e-7]
    assert exact
    assert all(one.residual < 1e-4 for one in exact)


def test_where_training_is_smooth_newton_has_the_last_word():
    """ELU: two rounds come near, and Newton's steps from there end with a certificate."""
    smooth = replace(GAME, net=lw.nets.mlp(64, 6, 10), trainer=replace(GD, steps=20))
    reconstruct = lw.Ensemble(members=80, rounds=2, restarts=0).prepare(smooth, seed=0)
    cohort = lw.Informed(KNOWN).deal(SECRETS, 2, seed=5)
    release = smooth.trainer(smooth.net, cohort, seed=5)
    guess, rough = reconstruct(release), reconstruct._replace(polish=None)(release)
    assert guess.certified.all()
    assert rough.certified is None
    wrong, before = (squared(one.records.x[:, 0], cohort.own.x[:, 0]) for one in (guess, rough))
    assert wrong.max() < 1e-11 < 1e-8 < before.min()
    assert (wrong < -30 * guess.confidence[:, 0]).all()


def test_what_is_told_is_kept(prepared, victims):
    cohort, release = victims
    one = Release({name: value[:1] for name, value in release.params.items()})
    top = torch.zeros(1, 8, 8, dtype=torch.bool)
    top[:, :4] = True
    parts = torch.where(top, cohort.own.x[:1], torch.nan)
    quick = prepared._replace(attack=replace(ATTACK, rounds=2, restarts=0))
    blind, told = quick(one), quick(one, Hints(labels=cohort.own.y[:1], parts=parts))
    assert torch.equal(told.records.x[..., :4, :], cohort.own.x[:1, ..., :4, :])
    assert torch.equal(told.records.y, cohort.own.y[:1])
    assert squared(told.records.x[:, 0], cohort.own.x[:1, 0]) < squared(blind.records.x[:, 0], cohort.own.x[:1, 0])
    assert told.confidence > blind.confidence
    with pytest.raises(ValueError, match="the hints give game 0 a label that no record of the prior has"):
        quick(one, Hints(labels=torch.tensor([[77]])))


def test_linear_training_is_inverted_exactly():
    """Tables and a number for a label: weights that are a linear function of both."""
    random = np.random.default_rng(0)
    x = torch.from_numpy(random.normal(5, 3, (90, 4)))
    mixing = torch.from_numpy(random.normal(0, 1, (5, 12)))
    records = Records(x, x.sum(1) + torch.from_numpy(random.normal(0, 1, 90)))

    def tell(net, cohort, *, seed):
        return Release({"weight": torch.cat([cohort.own.x[:, 0], cohort.own.y], 1) @ mixing})

    tell.tile_size = lambda net, cohort: 1_000
    threat = lw.Informed(records[:1])
    attack = lw.Ensemble(members=50, rounds=5, tolerance=1e-20)
    reconstruct = attack.prepare(Knowledge(NET, tell, threat, lw.access.Weights(), records[:80]), seed=0)
    cohort = threat.deal(records[80:], 5, seed=0)
    guess = reconstruct(tell(NET, cohort, seed=0))
    torch.testing.assert_close(guess.records.x, cohort.own.x, atol=1e-8, rtol=0)
    torch.testing.assert_close(guess.records.y, cohort.own.y, atol=1e-8, rtol=0)
    assert (guess.confidence > -1e-16).all()


@pytest.mark.parametrize("strength", [0.0, 0.02, 1.0])
def test_noise_is_not_taken_for_signal(strength):
    """Weights with noise of their own: later rounds do no harm, and expect about the errors that are made."""
    trainer = Leaks(strength=strength)
    reconstruct = lw.Ensemble(members=200, rounds=5).prepare(small_game(trainer), seed=0)
    cohort = lw.Informed(SMALL_KNOWN).deal(SMALL_SECRETS, 40, seed=0)
    found = reconstruct.invert(trainer(SMALL_NET, cohort, seed=0))
    truth = cohort.own.x[:, 0].flatten(1)
    first = squared(torch.stack([one.rounds[0].estimate for one in found]), truth).mean()
    last = squared(torch.stack([one.estimate for one in found]), truth).mean()
    assert last < 1.1 * first
    assert np.mean([one.predicted for one in found]) == pytest.approx(float(last), rel=0.5)
    assert all(one.floor > 0 for one in found)


def test_the_adversary_draws_none_of_the_victims_private_randomness():
    trainer = Leaks()
    reconstruct = lw.Ensemble(members=20, rounds=2).prepare(small_game(trainer), seed=7)
    victim = trainer(SMALL_NET, lw.Informed(SMALL_KNOWN).deal(SMALL_SECRETS, 1, seed=7), seed=7)
    reconstruct(victim)
    assert trainer.seeds.count(7) == 1


def test_a_stuck_game_starts_anew(prepared, victims, monkeypatch):
    """With one round nothing closes in: every restart is played, from other records of the class."""
    starts = []
    first = type(prepared.simulator).first
    monkeypatch.setattr(
        type(prepared.simulator),
        "first",
        lambda self, label, *, attempt: starts.append((label, attempt)) or first(self, label, attempt=attempt),
    )
    one = Release({name: value[:1] for name, value in victims[1].params.items()})
    told = Hints(labels=victims[0].own.y[:1])
    prepared._replace(attack=replace(ATTACK, rounds=1, restarts=2)).invert(one, told)
    assert starts == [(int(told.labels[0, 0]), 1), (int(told.labels[0, 0]), 2)]


def test_the_class_is_told_by_doubt_and_classifier():
    """A net of one neuron: models of several classes explain a release as well as each other."""
    known, prior, secrets = DIGITS.split(300, 600, 100, seed=0)
    net, trainer = (
        lw.nets.mlp(64, 1, 10, activation=nn.ReLU),
        lw.GD(lr=0.2, momentum=0.9, steps=40, init=lw.inits.LeCunNormal()),
    )
    game = Knowledge(net, trainer, lw.Informed(known), lw.access.Weights(), prior)
    reconstruct = lw.Ensemble(members=60, rounds=1, restarts=0).prepare(game, seed=0)._replace(polish=None)
    cohort = game.threat.deal(secrets, 100, seed=1)
    seen = game.access(net, trainer(net, cohort, seed=1))

    def right(attack):
        likeliest = [attack._likely(one)[0] for one in seen.split(1)]
        return sum(label == truth for label, truth in zip(likeliest, cohort.own.y[:, 0].tolist(), strict=True))

    assert right(reconstruct) > 97
    assert right(reconstruct._replace(classifier=None)) < 95


def test_of_a_net_that_no_record_wakes_up_the_mean_is_all_there_is():
    """All models of a class are the same: no error, and no better a guess than the class's mean."""
    asleep = lw.inits.Given({name: -value.abs() for name, value in NET.state_dict().items()})
    game = replace(GAME, trainer=replace(GD, init=asleep))
    cohort = game.threat.deal(SECRETS, 2, seed=1)
    attack = lw.Ensemble(members=60, rounds=3, restarts=0)
    guess = attack.prepare(game, seed=0)(game.trainer(NET, cohort, seed=1))
    means = torch.stack([PRIOR.x[PRIOR.y == label].mean(0) for label in cohort.own.y[:, 0]])
    assert torch.equal(guess.records.y, cohort.own.y)
    assert float((guess.records.x[:, 0] - means).square().mean()) < 0.01
    assert bool((guess.confidence < -0.01).all())


def test_where_classes_cannot_be_told_apart_any_will_do():
    """A prior of one class; a net that sleeps and has no biases, so that not even the label moves it."""
    silent = nn.Sequential(nn.Flatten(), nn.Linear(64, 6, bias=False), nn.ReLU(), nn.Linear(6, 10, bias=False))
    asleep = lw.inits.Given({name: -value.abs() for name, value in silent.state_dict().items()})
    still = replace(GAME, net=silent, trainer=replace(GD, init=asleep))
    for game in (replace(GAME, prior=PRIOR[PRIOR.y == 1]), still):
        cohort = game.threat.deal(SECRETS[SECRETS.y == 1][:1], 1, seed=1)
        reconstruct = lw.Ensemble(members=60, rounds=2, restarts=0).prepare(game, seed=0)
        assert reconstruct.classes is None
        assert reconstruct(game.trainer(game.net, cohort, seed=1)).records.x.isfinite().all()


def test_objections_and_bad_settings():
    private = replace(GAME, trainer=replace(GD, init=lw.inits.LeCunNormal(seed=None)))
    with pytest.raises(ValueError, match=r"Ensemble is not applicable: the initialisation is private"):
        ATTACK.prepare(private, seed=0)
    for trainer in (
        lw.DPSGD(init=private.trainer.init),
        lw.defences.Defended(lw.DPSGD(init=private.trainer.init), by=lw.defences.Rounded(torch.bfloat16)),
    ):
        assert "the initialisation is private" in ATTACK.objection(replace(GAME, trainer=trainer))
    assert ATTACK.objection(replace(GAME, trainer=lw.DPSGD())) is None
    three = torch.stack([(PRIOR.y == label).nonzero()[0, 0] for label in range(3)])
    assert "needs at least 2 of one class in the prior" in ATTACK.objection(replace(GAME, prior=PRIOR[three]))
    four = torch.cat([three, (PRIOR.y == 1).nonzero()[1]])
    assert ATTACK.objection(replace(GAME, prior=PRIOR[four])) is None
    numbers = Records(PRIOR.x, PRIOR.y.double())
    assert ATTACK.objection(replace(GAME, prior=numbers[three])) is None
    assert "needs at least 2 of one class" in ATTACK.objection(replace(GAME, prior=numbers[:1]))
    whole = replace(GAME, prior=Records(PRIOR.x.long(), PRIOR.y))
    assert "floating-point numbers" in ATTACK.objection(whole)
    heads = replace(GAME, prior=Records(PRIOR.x, PRIOR.y, features=PRIOR.x))
    assert "Use RecoNN." in ATTACK.objection(heads)
    assert ATTACK.objection(replace(GAME, trainer=lw.SGD(order_seed=None))) is None
    with pytest.raises(ValueError, match="Ensemble: expected members >= 10, got 3"):
        lw.Ensemble(members=3)
    with pytest.raises(ValueError, match="simulated models hold NaN or infinite numbers"):
        ATTACK.prepare(replace(GAME, trainer=replace(GD, lr=1e30)), seed=0)


HARDER = (  # widths, known, training, members, seed: with few members or many kinks, clouds close beside the record
    ((6,), 40, replace(GD, steps=60), 40, 21),
    ((8, 8), 80, replace(GD, steps=80), 120, 23),
    ((10, 10), 100, replace(GD, steps=100), 90, 24),
)


@pytest.mark.parametrize(
    ("problems", "polish"),
    [(HARDER[:1], False), pytest.param(HARDER, True, marks=pytest.mark.slow)],
    ids=["one, clouds alone", "all"],
)
def test_errors_are_seldom_beyond_three_times_the_expected_one(problems, polish):
    """At most one in five, and none far: on problems with kinks that no constant of the attack was chosen on."""
    ratios = []
    for widths, known, trainer, members, seed in problems:
        ours, prior, secrets = DIGITS[DIGITS.y >= 6].split(known, 400, 8, seed=seed)
        net, threat = lw.nets.mlp(64, *widths, 10, activation=nn.ReLU), lw.Informed(ours)
        attack = lw.Ensemble(members=members, rounds=6, restarts=0)
        reconstruct = attack.prepare(Knowledge(net, trainer, threat, lw.access.Weights(), prior), seed=11)
        reconstruct = reconstruct if polish else reconstruct._replace(polish=None)
        cohort = threat.deal(secrets, len(secrets), seed=5)
        found = reconstruct.invert(trainer(net, cohort, seed=5), Hints(labels=cohort.own.y))
        truth = cohort.own.x[:, 0].flatten(1).double()
        for one, record in zip(found, truth, strict=True):
            ratios.append(float((one.estimate - record).square().mean()) / one.predicted)
    assert np.mean(np.array(ratios) > 3) <= 0.2
    assert max(ratios) < 10
    assert 0.3 < np.median(ratios) < 3


@pytest.mark.parametrize(
    ("reached", "expected"),
    [
        (lambda predicted: 16, 0.01),  # as far as the release: as expected
        (lambda predicted: 16 if predicted > 0.1 else 0, 0.16),
        (lambda predicted: 0, 1.0),  # nothing explains the release: the prior's
    ],
)
def test_an_expected_error_is_made_larger_until_it_explains_the_release(reached, expected):
    assert checked(0.01, 1.0, reached) == pytest.approx(expected)
    assert checked(2.0, 1.0, reached) == 2.0  # worse than the prior already
