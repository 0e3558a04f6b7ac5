"""Shadow models by linear response teach attacks as trained ones do, and are not used where they are wrong."""

import re
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.access import Layers, Logits, Sketch, Weights
from lostwax.games import Knowledge, Release
from lostwax.inits import LeCunNormal
from lostwax.learning.costs import Rate
from lostwax.learning.shadow_tables import shadow_cost, shadow_tables
from lostwax.nets import mlp
from lostwax.shadows import LinearResponse
from lostwax.shadows.linear_response import Check
from lostwax.trainers import DPSGD, GD, SGD, Adam, AdamW, Optimum, Paired
from lostwax.trainers.linear_response import BaseTrajectory
from lostwax.trainers.responses import Adjoints
from trainers.reference import tangents

TRAINER = GD(lr=0.05, momentum=0.9, steps=20, init=LeCunNormal())
ENGINE = LinearResponse(directions=48, checked=24)
KNOWN, PRIOR, SECRETS = lw.records.digits().split(500, 500, 60, seed=0)


def knowledge(trainer=TRAINER, access=None, net=None, known=KNOWN, **given):
    return Knowledge(net or mlp(64, 12, 10), trainer, lw.Informed(known, **given), access or Weights(), PRIOR)


@cache
def tables(engine=ENGINE, trainer=TRAINER, known=500):
    return shadow_tables(lw.KernelRidge(engine=engine), knowledge(trainer, known=KNOWN[:known]), 0)


@pytest.mark.parametrize(
    "trainer",
    [
        TRAINER,
        SGD(lr=0.05, batch_size=100, epochs=4, init=LeCunNormal()),
        Adam(lr=2e-3, epochs=15, eps=1e-3, init=LeCunNormal()),
    ],
    ids=lambda trainer: type(trainer).__name__,
)
def test_responses_predict_trained_models(trainer):
    _, shadows, unseen = tables(ENGINE, trainer)
    assert unseen.seen.shape == unseen.responses.shape == (24, shadows.seen.shape[1])
    effect = unseen.seen - unseen.seen.mean(0)
    assert (unseen.seen - unseen.responses).norm() <= 0.2 * effect.norm()


def test_adam_divides_by_gradients_of_next_to_nothing_and_is_trained():
    """Weights of pixels that few records light: one record turns the whole step around."""
    _, _, unseen = tables(ENGINE, Adam(lr=2e-3, epochs=15, init=LeCunNormal()))
    assert unseen.responses is None
    assert "shadow models were trained instead" in unseen.notes[0]


def test_where_the_linear_form_fails_the_semi_linear_one_is_tried():
    hard = replace(TRAINER, lr=0.2, steps=60)
    assert "trained instead" in tables(replace(ENGINE, rank=0), hard, 150)[2].notes[0]
    _, _, semi = tables(ENGINE, hard, 150)
    assert semi.notes[0].startswith("Semi-linear response")
    assert (semi.seen - semi.responses).norm() <= 0.3 * (semi.seen - semi.seen.mean(0)).norm()


def test_semi_linear_responses_are_nearer():
    hard = replace(TRAINER, lr=0.2)
    _, _, linear = tables(replace(ENGINE, rank=0), hard)
    _, _, semi = tables(replace(ENGINE, rank=64), hard)
    off = [(table.responses - table.seen).norm(dim=1).median() for table in (linear, semi)]
    assert off[1] < 0.9 * off[0]


@pytest.mark.parametrize(
    "access", [Weights(), Layers("3"), Logits(KNOWN.x[:8])], ids=lambda access: type(access).__name__
)
def test_an_attack_learns_as_much_as_from_trained_models_in_the_same_directions(access):
    """The secrets' models are trained; only what the attack learned from differs."""
    game = knowledge(access=access)
    attack = lw.KernelRidge(engine=ENGINE)
    ours, shadows, unseen = shadow_tables(attack, game, 0)
    _, trained, _ = shadow_tables(lw.KernelRidge(validation=attack.validation), game, 0)
    assert torch.equal(trained.records.x, shadows.records.x)
    sketched = trained._replace(seen=ours.access.reduced(trained.seen))
    cohort = game.threat.deal(SECRETS, len(SECRETS), seed=1)
    victims = TRAINER(game.net, cohort, seed=0)
    error = [
        float((attack.learn(ours, table, unseen)(victims).records.x - cohort.own.x).square().mean())
        for table in (shadows, sketched)
    ]
    blind = float((PRIOR.x.mean(0) - SECRETS.x).square().mean())
    assert error[0] < 0.7 * blind
    assert error[0] == pytest.approx(error[1], rel=0.05)


def test_a_sketch_is_its_gradient_to_first_order():
    torch.manual_seed(0)
    net, access = mlp(64, 12, 10).double(), Logits(KNOWN.x[:3].double())
    at = {name: value.detach().unsqueeze(0) for name, value in net.named_parameters()}
    sketch = Sketch(access, access(net, Release(at))[0], torch.randn(4, 30, dtype=torch.float64))
    towards = {name: 1e-6 * torch.randn_like(value) for name, value in at.items()}
    moved = sketch(net, Release({name: value + towards[name] for name, value in at.items()}))
    torch.testing.assert_close(moved[0], sketch.along(net, Release(at)) @ Release(towards).flat()[0], rtol=1e-4, atol=0)


def test_few_steps_are_enough_and_the_sum_is_the_same():
    base = BaseTrajectory.of(TRAINER, mlp(64, 12, 10), KNOWN[:200])
    torch.manual_seed(0)
    directions = torch.randn(6, 1042 - 132)
    whole, few = Adjoints.of(base, directions), Adjoints.at_few_steps(base, directions, PRIOR[:40])
    assert len(few.swept) < len(whole.swept) / 2
    other = SECRETS[:30]
    assert (few(other) - whole(other)).norm() <= 0.02 * whole(other).norm()


def test_directions_are_swept_in_parts_where_memory_is_short(monkeypatch):
    base = BaseTrajectory.of(TRAINER, mlp(64, 12, 10), KNOWN[:100])
    torch.manual_seed(0)
    directions, done = torch.randn(5, 1042 - 132), []
    whole = Adjoints.at_few_steps(base, directions, PRIOR[:20], done.append)
    monkeypatch.setitem(lw.trainers.responses.ADJOINT_NUMBERS, "cpu", 2 * 20 * directions.shape[1])
    parts = Adjoints.at_few_steps(base, directions, PRIOR[:20], done.append)
    assert done == [5, 2, 2, 1]
    assert (parts(SECRETS) - whole(SECRETS)).norm() <= 0.03 * whole(SECRETS).norm()


@pytest.mark.parametrize(
    "trainer",
    [TRAINER, SGD(lr=0.05, batch_size=100, epochs=4, place=400, init=LeCunNormal())],
    ids=lambda trainer: type(trainer).__name__,
)
def test_many_known_records_choose_directions_and_hessians_in_parts(monkeypatch, trainer):
    """60 of 500 at a time, in full batches. The check is on models trained with all."""
    covered = {}
    for part in (5_000, 60):
        monkeypatch.setattr(lw.shadows.linear_response, "HESSIAN_RECORDS", part)
        _, _, unseen = shadow_tables(lw.KernelRidge(engine=ENGINE), knowledge(trainer), 0)
        effect = unseen.seen - unseen.seen.mean(0)
        assert (unseen.seen - unseen.responses).norm() <= 0.1 * effect.norm()
        covered[part] = int(re.search(r"which hold (\d+)% of what", unseen.notes[0])[1])
    assert 0.8 * covered[5_000] <= covered[60]
    assert (covered[60] == covered[5_000]) == isinstance(trainer, SGD)  # in batches, fewer records are fewer steps


def test_directions_of_many_known_records_cost_less(monkeypatch):
    monkeypatch.setattr(lw.shadows.linear_response, "HESSIAN_RECORDS", 100)
    rate, game, newton = Rate(1.0, 910, 910), knowledge(), lw.Newton(response=ENGINE)
    few, all_known = 24 + 0.2 * 5 * 48, 24 + 5 * 48  # trainings: the check, models and sweep of 48 directions
    assert shadow_cost(ENGINE, game, 0, rate).seconds == pytest.approx(few)
    assert newton.cost(game, 0, rate).seconds == pytest.approx(few)
    in_batches = replace(game, trainer=SGD(lr=0.05, init=LeCunNormal()))
    assert shadow_cost(ENGINE, in_batches, 0, rate).seconds == pytest.approx(all_known)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_tolerance_is_that_of_sums_in_each_direction(decay):
    """With weight decay early gradients are large, and forgotten: they must not count as what is left of them does."""
    base = BaseTrajectory.of(replace(TRAINER, steps=100, weight_decay=decay), mlp(64, 12, 10), KNOWN[:200])
    torch.manual_seed(0)
    directions = torch.linalg.qr(tangents(base, PRIOR[:30]).mT).Q.mT
    whole, few = Adjoints.of(base, directions), Adjoints.at_few_steps(base, directions, PRIOR[40:72])
    exact, found = whole(SECRETS), few(SECRETS)
    off = ((found - exact).square().mean(0) / exact.square().mean(0)).sqrt()
    assert off.square().mean().sqrt() < 0.02
    assert len(few.swept) < 50


def test_the_audit_reports_the_check():
    attack = lw.KernelRidge(engine=ENGINE)
    audit = lw.audit(
        mlp(64, 12, 10), trainer=TRAINER, threat=lw.Informed(KNOWN), prior=PRIOR, secrets=SECRETS, attack=attack
    )
    said = [note for note in map(str, audit.notes) if note.startswith("KernelRidge: Linear response in 48 directions")]
    assert len(said) == 1
    assert "R² on 24 trained models is" in said[0]
    assert said[0].endswith("An attack that learns from trained models might find more.")  # 48 directions of 910
    assert any("on models that were trained" in note for note in map(str, audit.notes))
    assert audit.grade == "recognisable"


def nearer_than_without(attack):
    """Shares of guesses nearer than any made without the model: to their own secret, and to those of other games."""
    game = knowledge()
    cohort = game.threat.deal(SECRETS, len(SECRETS), seed=1)
    guess = attack.prepare(game, seed=0)(TRAINER(game.net, cohort, seed=0))
    rebuilt, truth = guess.records.x[:, 0].flatten(1), cohort.own.x[:, 0].flatten(1)
    pool = torch.cat([PRIOR.x, KNOWN.x, PRIOR.x.mean(0, keepdim=True)]).flatten(1)
    without = torch.cdist(truth, pool).min(1).values
    own, *others = (float(((rebuilt.roll(by, 0) - truth).norm(dim=1) < without).double().mean()) for by in range(20))
    return own, sum(others) / len(others)


def test_guesses_are_near_their_own_secret_alone():
    """Held against the secrets of other games, a guess is no nearer than what is guessed without the model."""
    own, others = nearer_than_without(lw.KernelRidge(engine=ENGINE))
    assert own > 0.8
    assert others < 0.03


def test_reconn_learns_from_responses():
    attack = lw.RecoNN(decoder=lw.decoders.MLPDecoder(width=64), epochs=20, engine=ENGINE)
    trained = attack.prepare(knowledge(), seed=0)
    assert len(trained.notes) == 2
    assert trained.validation_error < 0.6


def test_parts_of_a_record_can_be_given():
    halves = torch.zeros(1, 8, 8, dtype=torch.bool)
    halves[:, 4:] = True
    attack, game = lw.KernelRidge(engine=ENGINE), knowledge(parts=halves)
    cohort = game.threat.deal(SECRETS, 20, seed=1)
    hints = game.threat.hints(cohort, SECRETS, seed=1)
    guess = attack.prepare(game, seed=0)(TRAINER(game.net, cohort, seed=0), hints)
    assert torch.equal(guess.records.x[:, 0, :, 4:], cohort.own.x[:, 0, :, 4:])
    blind = (PRIOR.x.mean(0) - cohort.own.x[:, 0])[:, :, :4].square().mean()
    assert (guess.records.x - cohort.own.x)[:, 0, :, :4].square().mean() < 0.8 * blind


def test_where_it_is_wrong_models_are_trained_instead():
    """ReLU, a large learning rate and few known records: kinks decide, and no response predicts them."""
    wild = GD(lr=1.0, momentum=0.9, steps=60, init=LeCunNormal())
    game = knowledge(wild, net=mlp(64, 12, 10, activation=nn.ReLU), known=KNOWN[:30])
    attack = lw.KernelRidge(shadows=120, engine=LinearResponse(directions=20, checked=12))
    ours, shadows, unseen = shadow_tables(attack, game, 0)
    assert ours.access == Weights()
    assert unseen.responses is None
    assert "shadow models were trained instead" in unseen.notes[0]
    _, trained, _ = shadow_tables(replace(attack, engine=None), game, 0)
    assert torch.equal(shadows.seen, trained.seen)
    assert attack.learn(ours, shadows, unseen).notes == unseen.notes


def test_hessians_from_parts_do_not_make_a_wrong_response_pass(monkeypatch):
    """Where the response of all known records is wrong, that of parts is not called right either."""
    monkeypatch.setattr(lw.shadows.linear_response, "HESSIAN_RECORDS", 10)
    wild = GD(lr=1.0, momentum=0.9, steps=60, init=LeCunNormal())
    for activation in (nn.ReLU, nn.Tanh):
        game = knowledge(wild, net=mlp(64, 12, 10, activation=activation), known=KNOWN[:60])
        attack = lw.KernelRidge(shadows=120, engine=LinearResponse(directions=20, checked=12))
        ours, _, unseen = shadow_tables(attack, game, 0)
        assert ours.access == Weights()
        assert "shadow models were trained instead" in unseen.notes[0]


def test_by_parts_a_guess_is_near_its_own_secret_alone(monkeypatch):
    monkeypatch.setattr(lw.shadows.linear_response, "HESSIAN_RECORDS", 60)
    own, others = nearer_than_without(lw.KernelRidge(engine=ENGINE))
    assert own > 0.8
    assert others < 0.03


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"trainer": DPSGD(lr=0.1, noise_multiplier=1.0)}, "DPSGD has no linear response"),
        ({"trainer": Optimum()}, "Optimum has no linear response"),
        (
            {"trainer": replace(TRAINER, init=LeCunNormal(seed=None))},
            "initial weights, batch orders or dropout are private",
        ),
        ({"secrets": 2}, "one secret record"),
        ({"known": KNOWN[:0]}, "no records are known"),
    ],
)
def test_it_is_refused_by_name(changes, reason):
    attack = lw.KernelRidge(engine=ENGINE)
    assert reason in attack.objection(knowledge(**changes))
    with pytest.raises(ValueError, match=reason):
        attack.prepare(knowledge(**changes), seed=0)


def test_it_is_refused_where_nothing_is_known():
    game = Knowledge(mlp(64, 12, 10), TRAINER, lw.Weak(size=10), Weights(), PRIOR)
    assert "one record among many known ones is a small change" in ENGINE.objection(game)


def test_decoders_of_single_weights_do_not_take_it():
    attack = lw.RecoNN(decoder=lw.decoders.RowDecoder(), engine=ENGINE)
    assert "reads single weights" in attack.objection(knowledge())
    with pytest.raises(ValueError, match="trains its shadow models"):
        lw.attacks.mnemonist.MnemonistRecoNN(attack=lw.RecoNN(engine=ENGINE))


@pytest.mark.parametrize("wrong", [{"directions": 0}, {"checked": 3}, {"rank": -1}])
def test_settings_are_checked(wrong):
    with pytest.raises(ValueError, match="LinearResponse: expected"):
        LinearResponse(**wrong)


def test_as_many_models_are_checked_as_asked_for_though_few_are_held_out():
    """Of 20 records two are held out: R^2 on two models would be chance."""
    attack, game = (
        lw.KernelRidge(engine=LinearResponse(directions=8, checked=12)),
        replace(knowledge(), prior=PRIOR[:20]),
    )
    _, shadows, unseen = shadow_tables(attack, game, 0)
    assert (len(shadows.seen), len(unseen.seen)) == (18, 2)
    assert "R² on 12 trained models" in unseen.notes[0]
    assert "at least 8 trained models, and 7" in replace(attack, shadows=7).objection(game)


def test_two_good_directions_of_many_are_not_enough():
    """AdamW: two directions hold most of the variance, but an attack on these alone finds far less."""
    trainer = AdamW(lr=1e-3, epochs=5, eps=1e-3, init=LeCunNormal())
    game = knowledge(trainer, net=mlp(64, 8, 10), known=KNOWN[:200])
    attack = lw.KernelRidge(shadows=60, engine=LinearResponse(directions=16, checked=8))
    ours, _, unseen = shadow_tables(attack, game, 0)
    assert ours.access == Weights()
    assert "shadow models were trained instead" in unseen.notes[0]


@pytest.mark.parametrize(
    ("r2", "variance", "holds"),
    [
        ([0.95, 0.95, 0.1, 0.1], [1.0, 1.0, 1.0, 1.0], True),
        ([0.95, 0.1, 0.1, 0.1], [9.0, 1.0, 1.0, 1.0], False),  # one number rebuilds no record
        ([0.1, 0.1, 0.95, 0.95], [9.0, 1.0, 1.0, 1.0], False),
        ([-torch.inf, -torch.inf], [0.0, 0.0], False),  # no model differs from another
        ([0.95, 0.1, 0.1, 1.0, 1.0, 1.0], [9.0, 1.0, 1.0, 0.0, 0.0, 0.0], False),  # weights that never move
    ],
)
def test_reliable_directions_are_counted_and_weighed(r2, variance, holds):
    check = Check("Linear response", torch.tensor(r2), torch.tensor(variance), covered=1.0, checked=8)
    assert check.holds is holds
    assert not check.complete


def test_weights_that_never_move_are_predicted_and_hold_nothing():
    check = Check("Semi-linear response", torch.ones(3), torch.zeros(3), covered=0.0, checked=8)
    assert not check.holds


def test_without_any_effect_of_a_record_the_error_is_that_of_trained_models():
    """No unit is active, so no record has a gradient."""
    net = mlp(64, 8, 10, activation=nn.ReLU)
    with torch.no_grad():
        net[1].bias.fill_(-100.0)
    net[3].requires_grad_(False)
    game = knowledge(GD(lr=0.05, steps=5), net=net)
    for engine in (None, LinearResponse(directions=8, checked=8)):
        with pytest.raises(ValueError, match="models look the same"):
            lw.KernelRidge(shadows=40, engine=engine).prepare(game, seed=0)


def test_a_response_without_bound_is_reported_in_words_and_not_used():
    wild = GD(lr=8.0, momentum=0.9, steps=100, init=LeCunNormal())
    game = knowledge(wild, net=mlp(64, 8, 10, activation=nn.Tanh), known=KNOWN[:100])
    attack = lw.KernelRidge(shadows=40, engine=LinearResponse(directions=8, checked=8))
    note = shadow_tables(attack, game, 0)[2].notes[0]
    assert "R² on 8 trained models is below -10 in the median direction" in note


def test_an_attack_that_names_candidates_passes_the_check_on():
    game = knowledge(candidates=3)
    inside = lw.KernelRidge(shadows=60, engine=LinearResponse(directions=8, checked=8))
    prepared = lw.attacks.NearestCandidate(inside).prepare(game, seed=0)
    assert prepared.notes[0].startswith("Linear response in 8 directions")


def test_records_that_change_next_to_nothing_do_not_make_the_error():
    """Without a bias, black pixels have no gradient; the rest is rounding, many times the square of their effect."""
    net = mlp(64, 1, 10)
    *_, hidden, _, last = net
    for layer in (hidden, last):
        layer.register_parameter("bias", None)
    pixels = PRIOR.x.clone()
    pixels[::4] *= 1e-5
    game = Knowledge(net, TRAINER, lw.Informed(KNOWN), Weights(), replace(PRIOR, x=pixels))
    responses = lw.Newton(response=LinearResponse(checked=40, rank=74)).responses(game, seed=0)
    sizes = responses.errors.norm(dim=1)
    assert sizes.max() < 30 * sizes.median()


def test_pairs_by_response_are_those_that_are_trained():
    """Differences of models on public base sets, in turns: the same numbers as trained ones, in each direction."""
    digits = lw.records.digits()
    digits = digits[torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))]
    net, prior = mlp(64, 8, 10), digits[:700]
    trainer = GD(lr=0.05, momentum=0.9, steps=30, init=LeCunNormal())
    paired = Paired(trainer, 500, bases=2, block=8, scale=2.0)
    knowledge = Knowledge(net, paired, lw.Informed(prior), Weights(), prior)
    records, numbers = digits[700:732], torch.arange(32)
    trained = paired(net, lw.games.Cohort(prior, records[numbers[:, None]], numbers), seed=0).flat()
    responses = LinearResponse(directions=12, checked=32).prepare(knowledge, trained, trained, records)
    assert float(responses.check.r2.median()) > 0.95
    assert responses(records).shape == (32, int(responses.check.reliable.sum()))
