"""Linear heads on frozen features: which features the weights hold (docs/weak.md)."""

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.games import Cohort, Hints, Knowledge, Records

CLASSES = 4


def features(width):
    """Digits of four classes, as a frozen layer sees them: those of nobody's and those of the secrets."""
    torch.manual_seed(0)
    digits = lw.records.digits()
    seen = digits[digits.y < CLASSES].through(nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU()))
    return Records(seen.features.double(), seen.y).split(400, 200, seed=0)


def head(size, width, seed=0):
    """S2's recipe, with a start that is public unless the seed is None; record i is of class i."""
    prior, pool = features(width)
    own = pool[torch.stack([(pool.y == label).nonzero()[seed or 0, 0] for label in range(size)])]
    init = lw.inits.Normal(0.002, seed=seed)
    trainer = lw.GD(lr=0.01, weight_decay=1e-5, steps=32, dtype=torch.float64, init=init)
    net = nn.Linear(width, CLASSES)
    cohort = Cohort(pool[:0], own[torch.arange(size)[None]], torch.arange(1))
    knowledge = Knowledge(net, trainer, lw.Weak(size), lw.access.Weights(), prior)
    return knowledge, trainer(net, cohort, seed=0), own


def moved(release, trainer, net):
    """(classes, d + 1) what training added to the head; c, what weight decay leaves of the start."""
    start = trainer.init(net, [0], seed=0)
    left = (1 - trainer.lr * trainer.weight_decay) ** trainer.steps
    parts = [(release.params[name][0] - left * start[name][0]).view(CLASSES, -1) for name in ("weight", "bias")]
    return torch.cat(parts, 1)


@pytest.mark.parametrize("size", [2, 3])
def test_fewer_records_than_classes_are_found_to_rounding_with_labels_that_nobody_told(size):
    knowledge, release, own = head(size, 96)
    (found,) = lw.Newton().prepare(knowledge, seed=0).invert(release)
    assert found.certified
    assert found.label.tolist() == own.y.tolist()
    assert (found.record.view(size, -1) - own.x).square().mean() < 1e-24


def test_one_record_of_each_class_leaves_what_all_have_in_common_to_the_prior():
    """Coefficients sum to 0 over the classes, so one combination of the records is lost: nearly their mean.

    Rounding in a float32 Jacobian would hide that.
    """
    knowledge, release, own = head(CLASSES, 24)
    hints = Hints(labels=own.y[None])
    (found,) = lw.Newton(jacobians=2).prepare(knowledge, seed=0).invert(release, hints)
    assert found.explained
    assert not found.certified
    wrong = found.record.view(CLASSES, -1) - own.x
    prior = knowledge.prior
    means = torch.stack([prior.x[prior.y == label].mean(0) for label in range(CLASSES)])
    blind = (means - own.x).square().mean()
    assert (wrong - wrong.mean(0)).square().mean() < 0.02 * blind
    assert wrong.square().mean() < 0.3 * blind  # 1 / classes of it, about
    assert wrong.square().mean() < 4 * found.predicted


@pytest.mark.parametrize("each", [1, 4])
def test_a_head_holds_class_means_less_their_mean(each):
    """To first order in the learning rate  W - c W_0 = g sum_i (y_i - p) [f_i, 1],  g = lr steps / n."""
    _, pool = features(96)
    rows = torch.cat([(pool.y == label).nonzero()[:each, 0] for label in range(CLASSES)])
    own = pool[rows]
    trainer = lw.GD(lr=1e-4, steps=32, dtype=torch.float64, init=lw.inits.Normal(0.002, seed=0))
    net = nn.Linear(96, CLASSES)
    cohort = Cohort(pool[:0], own[torch.arange(len(rows))[None]], torch.arange(1))
    found = moved(trainer(net, cohort, seed=0), trainer, net)
    extended = torch.cat([own.x, torch.ones(len(own), 1)], 1)
    means = extended.view(CLASSES, each, -1).mean(1)
    gain = trainer.lr * trainer.steps / CLASSES
    assert (found - gain * (means - means.mean(0))).norm() < 0.02 * found.norm()
    assert found.sum(0).norm() < 1e-12 * found.norm()  # softmax residuals sum to 0


def test_a_private_start_is_refused():
    knowledge, _, _ = head(3, 96, seed=None)
    assert "the initialisation is private" in lw.Newton().objection(knowledge)
