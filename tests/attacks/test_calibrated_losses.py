"""Calibrated losses: who was trained on, by reference models that serve all games."""

import pytest
import torch
from sklearn.datasets import load_wine
from torch import nn

import lostwax as lw
from lostwax.access import Layers, Logits, Weights
from lostwax.attacks.calibrated_losses import (
    CalibratedLosses,
    calibrated,
    lira,
    log_odds,
    membership_scores,
    record_losses,
)
from lostwax.games import Knowledge, Records
from lostwax.losses import CrossEntropy, SquaredError, Tweedie

PRIVATE = {"order_seed": None, "init": lw.inits.TorchDefault(seed=None)}


@pytest.fixture(scope="module")
def wine():
    """Labels are noise, so that a net has to remember them."""
    X, _ = load_wine(return_X_y=True)
    x = torch.from_numpy((X - X.mean(0)) / X.std(0)).float()
    return Records(x, torch.randint(3, (178,), generator=torch.Generator().manual_seed(0))).split(70, 40, 60, seed=1)


def audited(parts, attack, threat, **changes):
    _, prior, secrets = parts
    trainer = lw.SGD(lr=0.2, momentum=0.9, batch_size=16, epochs=40, **PRIVATE)
    game = {"trainer": trainer, "prior": prior, "secrets": secrets, "threat": threat, "attack": attack}
    return lw.audit(lw.nets.mlp(13, 24, 3), **{**game, **changes})


def test_it_names_candidates_that_refits_cannot(wine):
    threat = lw.Informed(wine[0], candidates=5)
    ours = audited(wine, CalibratedLosses(models=32), threat)
    refit = audited(wine, lw.attacks.Refit(), threat)
    right, by_refit = (int(audit.findings[0].rebuilt.sum()) for audit in (ours, refit))
    assert right >= 30 > by_refit  # of 60, 12 by chance
    assert ours.grade.leaks


def test_answers_are_enough(wine):
    """Of the weights it uses the candidates' losses only."""
    threat = lw.Informed(wine[0], candidates=5)
    one, other = (
        audited(wine, CalibratedLosses(models=16), threat, access=access, games=20)
        for access in (Weights(), Logits(wine[1].x[:5]))
    )
    assert (one.findings[0].rebuilt == other.findings[0].rebuilt).all()


def test_a_part_of_the_net_shows_no_loss(wine):
    threat = lw.Informed(wine[0], candidates=5)
    knowledge = Knowledge(lw.nets.mlp(13, 24, 3), lw.GD(), threat, Layers("1"), wine[1])
    assert "it takes the loss of each candidate" in CalibratedLosses().objection(knowledge)
    without = Knowledge(lw.nets.mlp(13, 24, 3), lw.GD(), lw.Informed(wine[0]), Weights(), wine[1])
    assert "it chooses among candidates" in CalibratedLosses().objection(without)


def test_losses_are_put_on_the_scale_of_log_odds():
    p = torch.tensor([0.1, 0.5, 0.999], dtype=torch.float64)
    torch.testing.assert_close(log_odds(-p.log()), p.logit())
    assert log_odds(torch.zeros(1, dtype=torch.float64)).isfinite().all()
    assert log_odds(torch.tensor([-3.0, 2.0])).tolist() == [3.0, -2.0]  # a likelihood without its constant


@pytest.mark.parametrize(
    ("outputs", "y", "loss"),
    [
        (torch.randn(4, 6, 3), torch.tensor([0, 1, 2, 0, 1, 2]), CrossEntropy()),
        (torch.randn(4, 6, 2), torch.randn(6, 2), SquaredError()),
    ],
)
def test_labels_say_which_loss_it_is(outputs, y, loss):
    targets = y.expand(4, *y.shape)
    torch.testing.assert_close(record_losses(None, outputs, y), loss(outputs, targets))
    if not y.is_floating_point():  # a net that ends with a softmax
        torch.testing.assert_close(record_losses(None, outputs.softmax(-1), y), loss(outputs, targets))
        with pytest.raises(ValueError, match="labels go to 2, and the net has 2 outputs"):
            record_losses(None, outputs[..., :2], y)


def test_a_stated_loss_is_used():
    outputs, y, stated = torch.randn(4, 6, 1).double(), torch.arange(6.0).double(), Tweedie(1.0)
    torch.testing.assert_close(record_losses(stated, outputs, y), stated(outputs, y.expand(4, 6)))


def test_one_label_of_two_is_a_log_odds():
    outputs, y = torch.tensor([[[2.0], [2.0]]]).double(), torch.tensor([1, 0])
    assert log_odds(record_losses(None, outputs, y)).flatten().tolist() == pytest.approx([2.0, -2.0])


def drawn(shift, seed, models=48, records=40, victims=40):
    """Reference models with one record each, and victims; every record has its own mean and deviation."""
    random = torch.Generator().manual_seed(seed)
    mean, deviation = (torch.randn(records, generator=random, dtype=torch.float64) for _ in range(2))
    member = torch.zeros(models, records, dtype=torch.bool)
    member[torch.arange(models), torch.arange(models) % records] = True
    own = torch.eye(victims, records, dtype=torch.bool)
    noise = torch.randn(models + victims, records, generator=random, dtype=torch.float64) + shift * torch.cat(
        [member, own]
    )
    seen = 3 * mean + noise * deviation.exp()
    return seen[:models], member, seen[models:]


def right(scores):
    return int((scores.argmax(1) == torch.arange(len(scores))).sum())


@pytest.mark.parametrize("outlier", [1e3, -1e9, float("inf"), float("nan")])
def test_one_reference_model_that_diverged_changes_little(outlier):
    reference, member, seen = drawn(3.0, 0)
    undisturbed = right(calibrated(reference, member, seen))
    reference[5] += outlier
    assert undisturbed >= 20
    assert right(calibrated(reference, member, seen)) >= undisturbed - 3


def test_noise_is_named_as_often_as_by_chance():
    found = [right(calibrated(*drawn(0.0, seed))) for seed in range(40)]
    assert 15 <= sum(found) <= 70  # of 1,600, 40 by chance


def test_models_that_owe_nothing_to_a_record_leave_a_tie():
    member, constant = torch.eye(10, dtype=torch.bool), torch.ones(10, 10, dtype=torch.float64)
    assert (calibrated(constant, member, constant[:3]) == 0).all()


def test_without_models_to_compare_with_there_is_no_score():
    member, constant = torch.eye(10, dtype=torch.bool), torch.ones(10, 10, dtype=torch.float64)
    assert calibrated(constant, ~member & member, constant[:3]).isnan().all()
    assert calibrated(constant / 0, member, constant[:3]).isnan().all()


def test_it_takes_own_training_functions(wine):
    def train(net, x, y, seed):
        torch.manual_seed(seed)
        optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
        for _ in range(60):
            optimiser.zero_grad()
            some = torch.randperm(len(x))[:40]
            nn.functional.cross_entropy(net(x[some]), y[some]).backward()
            optimiser.step()
        return net

    threat = lw.Informed(wine[0], candidates=5)
    audit = audited(wine, CalibratedLosses(models=16), threat, trainer=lw.OwnTraining(train), games=20)
    assert int(audit.findings[0].rebuilt.sum()) >= 9  # 4 by chance


def halves(shift, spread, seed, models=64, records=200, victims=20):
    """Models on random halves: a record that is trained on is shifted, and its deviation grows `spread` times."""
    random = torch.Generator().manual_seed(seed)
    member = torch.rand(models + victims, records, generator=random).argsort(1) < records // 2
    mean, deviation, noise = (
        torch.randn(size, generator=random, dtype=torch.float64) for size in (records, records, member.shape)
    )
    noise = torch.where(member, shift + spread * noise, noise)
    seen = 3 * mean + noise * (deviation / 2).exp()
    return seen[:models], member[:models], seen[models:], member[models:]


def auc(scores, member):
    shares = []
    for score, inside in zip(scores, member, strict=True):
        pairs = score[inside].unsqueeze(1) - score[~inside]
        shares.append((pairs > 0).double().mean() + (pairs == 0).double().mean() / 2)
    return float(torch.stack(shares).mean())


@pytest.mark.parametrize(("shift", "spread"), [(1.0, 1.0), (0.3, 3.0), (1.0, 0.4)])
def test_with_many_models_per_record_both_ratios_are_weighed(shift, spread):
    """As good as the better of the two, whether members differ by their mean or by their spread."""
    reference, member, seen, inside = halves(shift, spread, seed=0)
    alone = [auc(ratio(reference, member, seen), inside) for ratio in (calibrated, lira)]
    assert auc(membership_scores(reference, member, seen), inside) > max(alone) - 0.005
    reference[3] = torch.nan  # one that diverged
    assert auc(membership_scores(reference, member, seen), inside) > max(alone) - 0.01


def test_training_that_ignores_its_records_has_no_members():
    shares = []
    for seed in range(10):
        reference, member, seen, inside = halves(0.0, 1.0, seed)
        shares.append(auc(membership_scores(reference, member, seen), inside))
    assert abs(sum(shares) / 10 - 0.5) < 0.01  # 10 x 20 victims: a deviation of 0.003


def test_few_models_per_record_are_calibrated_alone():
    reference, member, seen = drawn(3.0, 0)
    torch.testing.assert_close(membership_scores(reference, member, seen), calibrated(reference, member, seen))


def test_a_fold_may_hold_all_models_with_a_record():
    """As if dealt in order: eight records, eight folds."""
    reference, member, seen = drawn(3.0, 0, models=64, records=8, victims=8)
    assert right(membership_scores(reference, member, seen)) >= right(calibrated(reference, member, seen)) - 1
    reference, member, seen = drawn(3.0, 0, models=64, records=4, victims=4)
    assert not membership_scores(reference, ~member, seen).isnan().any()


def test_an_infinite_loss_has_a_score():
    reference, member, seen = drawn(3.0, 0, models=64, records=8, victims=8)
    seen[0] = -torch.inf
    scores = membership_scores(reference, member, seen)
    assert not scores.isnan().any()
    assert scores[0].max() < scores[1:].max()
