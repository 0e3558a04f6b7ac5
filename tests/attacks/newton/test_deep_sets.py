"""Whole training sets of small convolutional and residual nets, all layers trained: exact, or not certified."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.attacks.newton import whole_sets
from lostwax.games import Cohort, Hints, Knowledge, Records

DTYPE = torch.float64
START = lw.inits.TorchDefault()
TRAINERS = {
    "gd": lw.GD(lr=0.2, steps=5, dtype=DTYPE, init=START),
    "momentum": lw.GD(lr=0.1, momentum=0.9, weight_decay=0.01, steps=5, dtype=DTYPE, init=START),
    "order": lw.SGD(lr=0.2, batch_size=1, epochs=3, dtype=DTYPE, init=START),
    "adamw": lw.AdamW(lr=1e-3, epochs=4, dtype=DTYPE, init=START),
}


class Residual(nn.Module):
    """x + f(x)."""

    def __init__(self, *layers):
        super().__init__()
        self.inner = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.inner(x)


def convolutional(activation=nn.ELU):
    layers = nn.Conv2d(1, 6, 3, padding=1), activation(), nn.Conv2d(6, 6, 3, padding=1), activation()
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(96, 3))


def residual(norm):
    block = Residual(nn.Conv2d(6, 6, 3, padding=1), norm(), nn.Tanh(), nn.Conv2d(6, 6, 3, padding=1))
    return nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), norm(), nn.Tanh(), block, nn.Flatten(), nn.Linear(96, 3))


NETS = {
    "elu": convolutional,
    "relu": lambda: convolutional(nn.ReLU),
    "group norm": lambda: residual(lambda: nn.GroupNorm(2, 6)),
    "batch norm": lambda: residual(lambda: nn.BatchNorm2d(6, track_running_stats=False)),
}


def digits():
    """Zeros, ones and twos of 4 x 4 pixels: those of nobody's, and those of the secrets."""
    few = lw.records.digits().to(DTYPE)
    small = Records(nn.functional.avg_pool2d(few.x, 2), few.y)
    return small[few.y < 3].split(200, 100, seed=0)


def errors(net, trainer, rows, *, believed=None, given=True, attack=lw.Newton(jacobians=2)):  # noqa: B008
    """The answer, and the squared error of the guess nearest to each record."""
    prior, pool = digits()
    own = pool[torch.tensor(rows)]
    cohort = Cohort(pool[:0], own[torch.arange(len(rows))[None]], torch.arange(1))
    release = trainer(net, cohort, seed=0)
    knowledge = Knowledge(net, believed or trainer, lw.Weak(size=len(rows)), lw.access.Weights(), prior)
    hints = Hints(labels=cohort.own.y) if given else None
    (inversion,) = attack.prepare(knowledge, seed=1).invert(release, hints)
    guesses = inversion.record.view(len(rows), -1)
    return inversion, (guesses[:, None] - own.x.flatten(1)).square().mean(2).amin(0)


@pytest.mark.parametrize("trainer", TRAINERS.values(), ids=TRAINERS)
def test_two_digits_to_the_last_digits(trainer):
    torch.manual_seed(0)
    inversion, error = errors(convolutional(), trainer, [0, 1])
    assert inversion.certified
    assert error.max() < 1e-15


@pytest.mark.parametrize("kind", ["group norm", "batch norm"])
def test_a_norm_hides_how_bright_pictures_are(kind):
    """Without its eps, pictures times any factor would give the same weights: so the rest is found, and this hardly."""
    torch.manual_seed(0)
    inversion, error = errors(NETS[kind](), replace(TRAINERS["gd"], steps=2), [0])
    assert error.max() < 1e-3
    assert not inversion.certified or error.max() < 1e-10


def test_labels_that_nobody_told():
    inversion, error = errors(convolutional(), TRAINERS["gd"], [0, 1, 2], given=False)
    assert inversion.certified, (inversion.residual, inversion.rounding, error)
    assert error.max() < 1e-15


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_of_two_hundred_sets_no_certificate_is_wrong(part):
    """Nets, trainers, sizes and records at random; in a fifth of them the adversary is wrong about the training."""
    for number in range(20 * part, 20 * part + 20):
        random = np.random.default_rng(number)
        net = list(NETS.values())[number % 4]()
        trainer = TRAINERS[str(random.choice(list(TRAINERS)))]
        believed = replace(trainer, lr=1.1 * trainer.lr) if number % 5 == 0 else None
        rows = random.choice(100, random.integers(1, 4), replace=False).tolist()
        inversion, error = errors(net, trainer, rows, believed=believed, given=bool(number % 3))
        assert not inversion.certified or error.max() < 1e-6, number
        assert not inversion.certified or believed is None, number


def test_by_products_where_a_jacobian_would_be_too_large(monkeypatch):
    monkeypatch.setattr(whole_sets, "MOST_NUMBERS", 10)
    inversion, error = errors(convolutional(), replace(TRAINERS["gd"], steps=2), [0])
    assert inversion.certified, (inversion.residual, inversion.rounding, error)
    assert error.max() < 1e-15


def test_products_certify_nothing_that_the_weights_do_not_determine(monkeypatch):
    """Five units behind a frozen layer: many records give the same weights."""
    monkeypatch.setattr(whole_sets, "MOST_NUMBERS", 10)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.Tanh(), nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 3))
    net[1].requires_grad_(False)
    inversion, error = errors(net, replace(TRAINERS["gd"], steps=2), [0], attack=lw.Newton(jacobians=1))
    assert not inversion.certified
    assert error.max() > 1e-4


def test_a_learning_rate_and_a_number_of_steps_that_nobody_told():
    trainer = TRAINERS["gd"]
    attack = lw.Newton(jacobians=4, assumed=(replace(trainer, lr=0.05, steps=4), replace(trainer, lr=0.05)))
    net = convolutional()
    prior, pool = digits()
    cohort = Cohort(pool[:0], pool[torch.arange(2)[None]], torch.arange(1))
    knowledge = Knowledge(net, trainer, lw.Weak(size=2), lw.access.Weights(), prior)
    prepared = attack.prepare(knowledge, seed=0)
    (inversion,) = prepared.invert(trainer(net, cohort, seed=0), Hints(labels=cohort.own.y))
    assert inversion.certified
    assert (inversion.trainer.lr, inversion.trainer.steps) == (0.2, 5)
    assert (inversion.record.view(2, -1) - cohort.own[0].x.flatten(1)).square().mean() < 1e-15


def test_a_learning_rate_that_the_weights_cannot_tell_from_the_records_certifies_nothing():
    """A step of a linear layer without a bias, from zero, is lr (y - p) x: a larger rate is a darker record."""
    trainer = replace(TRAINERS["gd"], steps=1, init=lw.inits.FromNet())
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3, bias=False))
    nn.init.zeros_(net[1].weight)
    assert errors(net, trainer, [0])[0].certified
    assert not errors(net, trainer, [0], attack=lw.Newton(jacobians=2, assumed=(replace(trainer, lr=0.1),)))[
        0
    ].certified
