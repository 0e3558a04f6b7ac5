"""Two releases of a net: fine-tuned further, unlearned by gradient ascent, trained again without a record."""

from copy import deepcopy

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.games import Cohort
from lostwax.grades import Grade
from lostwax.losses import CrossEntropy
from lostwax.trainers import Negated, Unlearned

START = lw.inits.LeCunNormal()
TRAINER = lw.GD(lr=0.1, momentum=0.9, steps=40, init=START)


def trained(net, trainer, records):
    """The net with the weights that the trainer ends at."""
    everything = torch.arange(len(records))[None]
    release = trainer(net, Cohort(records[:0], records[everything], torch.zeros(1, dtype=torch.long)), seed=0)
    after = deepcopy(net)
    after.load_state_dict(release[0])
    return after


@pytest.fixture(scope="module")
def game():
    digits = lw.records.digits()
    digits = digits[torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))]
    net = lw.nets.mlp(64, 12, 10, activation=nn.Tanh)
    return net, digits[:350], digits[350:]


@pytest.mark.parametrize("count", [1, 3])
def test_new_records_come_back_from_the_earlier_weights(game, count):
    net, old, others = game
    before, new, further = trained(net, TRAINER, old), others[:count], lw.GD(lr=0.05, steps=8)
    after = trained(before, further, new)
    audit = lw.audit(after, new, before=(before, None), trainer=further, prior=others[count:])
    assert audit.errors.max() < 1e-6
    assert audit.grade is Grade.EXACT
    assert audit.guess.certified.all()
    assert audit.adversary.files == 2
    assert audit.adversary.knows_none


def test_a_record_that_moves_the_weights_little_is_seen_beside_nine_others(game):
    """The rounding is measured where the first layer has more neurons than there are records."""
    net, old, others = game
    others = others[torch.randperm(len(others), generator=torch.Generator().manual_seed(2))]
    before, new, further = trained(net, TRAINER, old), others[:10], lw.GD(lr=0.05, steps=8)
    moved = trained(before, further, new)[1].weight - before[1].weight
    assert torch.linalg.svdvals(moved.detach())[9] < 5e-4
    audit = lw.audit(trained(before, further, new), new, before=(before, None), trainer=further, prior=others[10:])
    assert audit.errors.max() < 1e-6
    assert audit.guess.certified.all()


def test_gradient_ascent_gives_the_erased_record_away(game):
    net, old, others = game
    before, erased = trained(net, TRAINER, old), old[:1]
    ascent = lw.GD(lr=0.01, steps=5, loss=Negated(CrossEntropy()))
    after = trained(before, ascent, erased)
    audit = lw.audit(after, erased, before=(before, None), trainer=ascent, prior=others)
    assert audit.errors.max() < 1e-6
    assert audit.grade is Grade.EXACT


def test_another_trainer_is_refused(game):
    net, old, others = game
    before = trained(net, TRAINER, old)
    after = trained(before, lw.GD(lr=0.05, steps=8), others[:2])
    with pytest.raises(ValueError, match="does not lead from the earlier weights to the later"):
        lw.audit(after, others[:2], before=(before, None), trainer=lw.GD(lr=0.5, steps=8), prior=others[2:])
    with pytest.raises(TypeError, match=r"needs trainer=\.\.\."):
        lw.audit(after, others[:2], before=(before, None))
    with pytest.raises(ValueError, match="audited for a single record"):
        lw.audit(before, old[2:], before=(before, old), trainer=TRAINER, prior=others)


@pytest.mark.slow
def test_trained_again_without_a_record_it_is_recognised(game):
    net, old, others = game
    left = old[1:]
    before, after = trained(net, TRAINER, old), trained(net, TRAINER, left)
    audit = lw.audit(after, left, before=(before, old), trainer=TRAINER, prior=others)
    assert audit.grade.severe
    assert audit.games.tolist() == [0]
    nearest = audit.baselines["nearest public record"][audit.metric]
    assert audit.errors[0] < nearest[0]


@pytest.mark.slow
def test_fine_tuning_on_the_others_is_audited_too(game):
    net, old, others = game
    unlearned = Unlearned(TRAINER, lw.GD(lr=0.02, steps=5), on="rest")
    before = trained(net, TRAINER, old)
    after = trained(before, lw.GD(lr=0.02, steps=5), old[1:])
    audit = lw.audit(after, old[1:], before=(before, old), trainer=unlearned, prior=others)
    assert audit.grade is not Grade.EXACT
    assert "unlearned by Unlearned" in audit.subject


def test_two_dp_releases_stay_below_the_composed_ceiling(game):
    """Which of two records was erased? The files before and after, each trained with its own noise."""
    net, old, others = game
    net, known, pool = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), old[:60], others[:40]
    settings = {"lr": 0.5, "clip": 0.5, "steps": 6, "init": START}
    private, quiet = (lw.DPSGD(noise_multiplier=noise, **settings) for noise in (3.0, 1e-6))
    games = torch.arange(400)
    secret, other = games % 40, (games + 7) % 40
    cohorts = [Cohort(known, pool[rows[:, None]], games) for rows in (secret, other)]
    alone = Cohort(known[:-1], known[torch.full((400, 1), len(known) - 1)], games)
    before, after = private(net, cohorts[0], seed=1).flat(), private(net, alone, seed=2).flat()
    base = quiet(net, alone, seed=3).flat()
    effects = [quiet(net, cohort, seed=3).flat() - base for cohort in cohorts]  # (m, p) of each candidate
    scores = [((before - after) * effect).sum(1) - effect.square().sum(1) / 2 for effect in effects]
    won = float((scores[0] > scores[1]).double().mean())
    composed = lw.bound(noise_multiplier=3.0, sample_rate=1.0, steps=2 * 6, baseline=0.5).upper
    assert 0.5 < won < composed + 3 * (0.25 / 400) ** 0.5
