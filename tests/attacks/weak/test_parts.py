"""The loss, the heads, the neurons and the copies, each against its definition."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import lostwax as lw
from attacks.weak.game import NET, PRIOR, QUICK, THREAT, TRAINER, knowledge
from lostwax.attacks.weak.objectives import GuessTargets, mean_errors, nearest, of_other_heads, softmin
from lostwax.attacks.weak.readers import Neurons
from lostwax.attacks.weak.training import Heads, TrainingData, loss_of, split, too_few, training_data
from lostwax.games import Records, Release
from lostwax.learning.decoders import Span
from lostwax.shadows import Game

RANDOM = torch.Generator().manual_seed(0)


def test_softmin_is_that_of_s2():
    errors = torch.rand(4, 3, 5, generator=RANDOM, dtype=torch.float64)
    counted = torch.tensor([[True] * 5, [True] * 2 + [False] * 3, [True] + [False] * 4])
    found = softmin(errors, counted, 100.0)
    for m in range(4):
        for g in range(3):
            ours = [float(error) for error, yes in zip(errors[m, g], counted[g], strict=True) if yes]
            shares = [math.exp(-100 * error) for error in ours]
            slow = sum(error * share for error, share in zip(ours, shares, strict=True)) / sum(shares)
            assert float(found[m, g]) == pytest.approx(slow)
    least, place = nearest(errors, counted)
    assert torch.equal(least[:, 2], errors[:, 2, 0])
    assert (place[:, 1] < 2).all()
    assert (found >= least).all()


def test_errors_are_mean_squares_and_mean_absolutes():
    answers, wanted = torch.rand(2, 3, 1, 4, 4, generator=RANDOM), torch.rand(2, 3, 2, 1, 4, 4, generator=RANDOM)
    squared, absolute = mean_errors(answers, wanted)
    assert float(squared[1, 2, 1]) == pytest.approx(float((answers[1, 2] - wanted[1, 2, 1]).square().mean()))
    assert float(absolute[0, 1, 0]) == pytest.approx(float((answers[0, 1] - wanted[0, 1, 0]).abs().mean()))


def test_the_loss_is_made_of_them_and_terms_see_the_nearest_record():
    targets, seen = GuessTargets.of(torch.tensor([0, 0, 1]), (0, 1)), []
    answers, secrets = torch.rand(4, 2, 1, 2, 2, generator=RANDOM), torch.rand(4, 3, 1, 2, 2, generator=RANDOM)
    attack = replace(QUICK, aim=lambda error, chance: (error - 3 * chance).mean(), mse=0.5, mae=0.25, softmin=30.0)

    def term(ours, truth):
        seen.append(truth)
        return 7.0

    found = loss_of(answers, secrets, TrainingData(None, None, targets, 2.0), [term], attack)

    def error(guess, records):
        wrong = 2 * (guess - records).flatten(1)  # pixels in [-1, 1]
        errors = 0.5 * wrong.square().mean(1) + 0.25 * wrong.abs().mean(1)
        shares = (-30 * errors).exp()
        return float((errors * shares).sum() / shares.sum())

    each = []
    for m in range(4):
        for g, rows in enumerate((slice(2), slice(2, 3))):
            guess, own, another = answers[m, g], secrets[m, rows], secrets[m - 1, rows]
            each.append(error(guess, own) - 3 * error(guess, another))
            assert torch.equal(seen[0][2 * m + g], own[(guess - own).flatten(1).square().mean(1).argmin()])
    assert float(found) == pytest.approx(7 + sum(each) / 8, rel=1e-5)


def test_a_guess_is_for_the_records_of_its_class():
    targets = GuessTargets.of(torch.tensor([0, 0, 0, 2, 2]), (2, 0))
    assert targets.places.tolist() == [[3, 4, 3], [0, 1, 2]]
    assert targets.counted.tolist() == [[True, True, False], [True, True, True]]
    anyone = GuessTargets.of(torch.tensor([0.1, 0.2]), ())
    assert anyone.places.tolist() == [[0, 1]]
    assert anyone.of_each(torch.arange(6).view(3, 2)).tolist() == [[[0, 1]], [[2, 3]], [[4, 5]]]


def test_a_token_holds_all_that_hangs_on_a_neuron():
    release = Release({name: value.unsqueeze(0) for name, value in NET.named_parameters()})
    (tokens,) = Neurons.of(NET).tokens(release)
    assert torch.equal(tokens, torch.cat([NET.weight, NET.bias[:, None]], 1))
    mlp = lw.nets.mlp(5, 4, 2)
    first, last = (layer for layer in mlp if isinstance(layer, nn.Linear))
    (tokens,) = Neurons.of(mlp).tokens(Release({name: value.unsqueeze(0) for name, value in mlp.named_parameters()}))
    own = torch.cat([first.weight[3], first.bias[3:4], last.weight[:, 3], last.bias])
    assert torch.equal(tokens[3], own)
    assert Neurons.of(lw.nets.cnn()) is None


def heads(models, trainer=TRAINER, alike=False):
    game = Game(NET, trainer, THREAT, Records(PRIOR.x, PRIOR.y, PRIOR.inputs), 7)
    return Heads.of(game, Neurons.of(NET).tokens, alike=alike, models=models)


def test_heads_have_mean_zero_and_deviation_one():
    tokens, _ = heads(512).trained(range(512))
    torch.testing.assert_close(tokens.mean(0), torch.zeros(3, 65), rtol=0, atol=1e-4)
    spread = tokens.std(0, correction=0)
    torch.testing.assert_close(spread, torch.ones(3, 65), rtol=1e-3, atol=0)
    pooled, _ = heads(512, alike=True).trained(range(512))
    assert float(pooled.mean((0, 1)).abs().max()) < 1e-4
    assert float(pooled.mean(0).abs().max()) > 0.1  # the mean of each neuron is kept


def test_numbers_that_do_not_move_are_read_as_their_mean():
    public = lw.GD(lr=0.2, steps=10, init=lw.inits.Normal(0.002, seed=0))
    tokens, _ = heads(64, public).trained(range(64))
    dark = PRIOR.inputs.amax(0) == 0  # pixels that are black in all records
    assert dark.any()
    assert torch.equal(tokens[:, :, :64][:, :, dark], torch.zeros(64, 3, int(dark.sum())))


def test_every_step_has_fresh_heads_and_a_fixed_set_comes_again():
    some = heads(64)
    torch.manual_seed(0)
    fresh = [tokens for tokens, _ in some.batches(range(12), 16, None)]
    assert len(torch.cat(fresh).flatten(1).unique(dim=0)) == 12 * 16
    again = [secrets for _, secrets in some.batches(range(15), 16, 40)]
    sets, times = torch.cat(again).flatten(1).unique(dim=0, return_counts=True)
    assert len(sets) == 40  # which is no multiple of 16
    assert times.eq(15 * 16 // 40).all()
    for batch in again:
        assert len(batch.flatten(1).unique(dim=0)) == 16
    whole = [tokens for tokens, _ in some.batches(range(12), 16, 32)]
    assert len(torch.cat(whole).flatten(1).unique(dim=0)) == 32


def test_tokens_stand_beside_their_own_secrets():
    some = heads(64)
    mean, deviation = (
        part.view(3, 65)[:, :64] for part in (some.scale.standardise.mean, some.scale.standardise.deviation)
    )
    torch.manual_seed(0)
    for tokens, secrets in some.batches(range(3), 16, None):
        row, own = tokens[:, :, :64] * deviation + mean, secrets.flatten(2).double()
        match = torch.einsum("mcd,ncd->mn", row - row.mean(1, keepdim=True), own - own.mean(1, keepdim=True))
        norm = (own - own.mean(1, keepdim=True)).flatten(1).norm(dim=1)
        assert torch.equal((match / norm).argmax(1), torch.arange(16))


def test_heads_that_diverge_are_named():
    with pytest.raises(ValueError, match=r"shadow models hold NaN or infinite numbers: .* Lower its learning rate"):
        heads(32, lw.GD(lr=1e38, steps=30, init=TRAINER.init))


def test_no_record_is_both_learnt_from_and_tested_on():
    learnt, tested = split(knowledge(), 0.1, 0)
    assert len(learnt) + len(tested) == len(PRIOR)
    assert (learnt.matches(tested) < 0).all()
    assert torch.bincount(tested.y).tolist() == [round(0.1 * int(n)) for n in torch.bincount(PRIOR.y)]
    few, many = split(knowledge(threat=lw.Weak(size=60)), 0.01, 0)
    assert torch.bincount(many.y).min() >= 20
    assert len(few) > len(many)
    few, _ = split(knowledge(threat=lw.Weak(size=6)), 0.999, 0)
    assert torch.bincount(few.y).tolist() == [4, 4, 4]  # two training sets can still be dealt


def test_a_threat_may_split_its_pool_itself():
    class Halves:
        """Records of three classes whose training sets are from one half of the pool."""

        deal = lw.Weak(size=3).deal

        def hold_out(self, pool, share, *, seed):
            cut = round((1 - share) * len(pool))
            return pool[:cut], pool[cut:]

    learnt, tested = split(knowledge(threat=Halves()), 0.1, 0)
    assert torch.equal(torch.cat([learnt.x, tested.x]), PRIOR.x)
    assert len(tested) == round(0.1 * len(PRIOR))
    assert too_few(knowledge(threat=Halves(), prior=PRIOR[:4])) is None  # its deal says so


@pytest.mark.parametrize(("each", "size", "tested"), [(20, 3, 8), (100, 30, 50), (4, 3, 2), (41, 6, 16), (400, 3, 20)])
def test_it_is_tested_on_several_sets(each, size, tested):
    """On eight at once, or half of the prior where that is less; a share of it where that is more."""
    prior = Records(torch.rand(3 * each, 1, 8, 8, generator=RANDOM), torch.arange(3 * each) % 3)
    _, held = split(knowledge(threat=lw.Weak(size=size), prior=prior), 0.05, 0)
    assert torch.bincount(held.y).tolist() == [tested] * 3


def test_the_sets_it_is_tested_on_differ_in_a_small_prior():
    """Or else its errors to its own set and to another's would be the same, and a good guess would count as chance."""
    small = PRIOR[torch.cat([(PRIOR.y == label).nonzero()[:4, 0] for label in range(3)])]
    game = knowledge(prior=small)
    assert QUICK.objection(game) is None
    assert "needs 4 in the prior" in QUICK.objection(knowledge(prior=small[1:]))
    data = training_data(QUICK, game, Span.of(small.x), (0, 1, 2), 0)
    wanted = data.targets.of_each(data.unseen[1])
    assert len(wanted.flatten(1).unique(dim=0)) == 2**3
    assert (wanted != of_other_heads(wanted)).flatten(2).any(2).all()


def test_chance_is_told_by_the_head_before_or_a_neighbour_without_its_records():
    secrets = torch.rand(6, 2, 1, 2, 2, generator=RANDOM)
    assert torch.equal(of_other_heads(secrets.unsqueeze(2)), secrets.unsqueeze(2).roll(1, 0))
    wanted = torch.stack([secrets, secrets.roll(1, 1)], 2)  # (m, g, r, ...)
    wanted[2, 0, 1] = wanted[1, 0, 0]  # these two share a record of the first guess
    others = of_other_heads(wanted)
    assert torch.equal(others[2, 0], wanted[3, 0])
    assert torch.equal(others[2, 1], wanted[1, 1])
    assert torch.equal(others[1], wanted[0])
    alone = secrets[:1].unsqueeze(2).expand(3, -1, -1, -1, -1, -1)
    assert torch.equal(of_other_heads(alone), alone)  # no other set at all


def test_copies_are_seen_through_the_backbone_and_never_tested_on():
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU())
    prior = Records(PRIOR.x, PRIOR.y).through(backbone)
    augmented = lw.attacks.weak.Augmented(backbone, lw.learning.Affine(), copies=3)
    more = augmented(prior, seed=0)
    assert len(more) == 3 * len(prior)
    assert torch.equal(more.x[: len(prior)], prior.x)
    assert torch.equal(more.y, prior.y.repeat(3))
    torch.testing.assert_close(more.features, backbone(more.x), rtol=1e-4, atol=1e-5)
    assert torch.equal(more.x, augmented(prior, seed=0).x)
    assert not torch.equal(more.x[len(prior) : 2 * len(prior)], more.x[2 * len(prior) :])
    attack = lw.WeakRecoNN(**{**vars(QUICK), "augment": augmented})
    game = knowledge(net=nn.Linear(32, 3), prior=prior)
    assert attack.objection(game) is None
    data = training_data(attack, game, Span.of(prior.x), (0, 1, 2), 0)
    _, tested = split(game, attack.validation, 0)
    assert (tested.matches(Records(data.heads.game.pool.x, data.heads.game.pool.y)) < 0).all()
    assert len(data.heads.game.pool) == 3 * (len(prior) - len(tested))
