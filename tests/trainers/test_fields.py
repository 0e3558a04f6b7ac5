"""Trainers refuse settings that mean nothing, and losses and starts of every kind train."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from lostwax.games import Cohort, Records
from lostwax.inits import Glorot, He, LeCunNormal, Normal, TorchDefault
from lostwax.losses import BinaryCrossEntropy, CrossEntropy, SquaredError, SquaredHinge, Tweedie
from lostwax.nets import mlp
from lostwax.schedules import Cosine
from lostwax.trainers import DPSGD, GD, SGD, Adam, AdamW
from trainers.game import cohort, given, net
from trainers.reference import train_alone


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (GD, {"steps": 0}, "GD: expected steps >= 1, got 0."),
        (GD, {"steps": 10.5}, "GD: expected steps to be a whole number, got 10.5."),
        (GD, {"lr": [0.1]}, "GD: expected lr to be a number, got [0.1]."),
        (GD, {"lr": "0.1"}, "GD: expected lr to be a number, got '0.1'."),
        (GD, {"lr": torch.tensor(0.5)}, "GD: expected lr to be a number, got torch's Tensor."),
        (GD, {"lr": True}, "GD: expected lr to be a number, got True."),
        (GD, {"lr": float("inf")}, "GD: expected lr to be finite, got inf."),
        (GD, {"weight_decay": float("inf")}, "GD: expected weight_decay to be finite, got inf."),
        (GD, {"momentum": "0.9"}, "GD: expected momentum to be a number, got '0.9'."),
        (GD, {"steps": True}, "GD: expected steps to be a whole number, got True."),
        (GD, {"tile": 2.5}, "GD: expected tile to be a whole number, or None, got 2.5."),
        (DPSGD, {"noise_multiplier": "1"}, "DPSGD: expected noise_multiplier to be a number, got '1'."),
        (Adam, {"order_seed": 0.5}, "Adam: expected order_seed to be a whole number, or None, got 0.5."),
        (GD, {"lr": 0.0}, "GD: expected lr > 0, got 0.0."),
        (GD, {"lr": float("nan")}, "GD: expected lr > 0, got nan."),
        (GD, {"momentum": 1.0}, "GD: expected momentum in [0, 1), got 1.0."),
        (GD, {"weight_decay": -1.0}, "GD: expected weight_decay >= 0, got -1.0."),
        (GD, {"tile": 0}, "GD: expected tile >= 1, or None, got 0."),
        (
            GD,
            {"dtype": torch.float16},
            "GD: expected dtype torch.float32 or torch.float64, or None, got torch.float16.",
        ),
        (SGD, {"batch_size": 0}, "SGD: expected batch_size >= 1, got 0."),
        (SGD, {"epochs": 0}, "SGD: expected epochs >= 1, got 0."),
        (SGD, {"momentum": -0.1}, "SGD: expected momentum in [0, 1), got -0.1."),
        (Adam, {"betas": (0.9, 1.0)}, "Adam: expected each of betas in [0, 1), got (0.9, 1.0)."),
        (Adam, {"eps": 0.0}, "Adam: expected eps > 0, got 0.0."),
        (AdamW, {"batch_size": 0}, "AdamW: expected batch_size >= 1, or None, got 0."),
        (AdamW, {"epochs": 0}, "AdamW: expected epochs >= 1, got 0."),
    ],
)
def test_fields_are_checked(kind, fields, message):
    with pytest.raises(ValueError, match="expected") as error:
        kind(**fields)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"loss": nn.CrossEntropyLoss()}, r"loss to be a lostwax loss, such as .*, got torch's CrossEntropyLoss\."),
        ({"loss": nn.functional.cross_entropy}, "loss to be a lostwax loss, such as .*, got torch's cross_entropy"),
        ({"loss": CrossEntropy}, "loss to be a lostwax loss, such as .*, got the class CrossEntropy"),
        ({"loss": "mse"}, r"loss to be a lostwax loss, such as lw.losses.CrossEntropy\(\), got 'mse'"),
        ({"init": "xavier"}, r"init to be an initialisation, such as lw.inits.LeCunNormal\(\), got 'xavier'"),
        ({"init": nn.init.xavier_uniform_}, "init to be an initialisation, such as .*, got torch's xavier_uniform_"),
        ({"init": He}, "init to be an initialisation, such as .*, got the class He"),
        ({"schedule": "cosine"}, r"schedule to be a schedule, such as lw.schedules.Cosine\(\), got 'cosine'"),
        ({"schedule": lambda step: 1.0}, "schedule to be a schedule"),
        ({"schedule": Cosine}, "schedule to be a schedule, such as .*, got the class Cosine"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_parts_of_another_kind_are_named(fields, words):
    with pytest.raises(TypeError, match=f"^GD: expected {words}"):
        GD(**fields)


class Halved:
    """A loss of the user's own: no dataclass, and nothing but what training needs."""

    def __call__(self, outputs, y):
        return SquaredError()(outputs, y) / 2

    def residual(self, outputs, y):
        return SquaredError().residual(outputs, y) / 2


def test_parts_of_one_s_own_train():
    module, games = mlp(16, 1), relabelled(cohort(2), torch.Tensor.double)
    mine = GD(lr=0.1, steps=2, loss=Halved(), schedule=lambda step, steps: 2.0, init=given(module))
    same = GD(lr=0.1, steps=2, loss=SquaredError(), init=given(module))
    torch.testing.assert_close(mine(module, games, seed=0).flat(), same(module, games, seed=0).flat())


def relabelled(games, label):
    """The same games with labels made from class numbers by `label`."""
    shared, own = (Records(part.x, label(part.y)) for part in (games.shared, games.own))
    return Cohort(shared, own, games.index)


@pytest.mark.parametrize(
    ("loss", "outputs", "label"),
    [
        (CrossEntropy(), 3, lambda y: y),
        (BinaryCrossEntropy(), 3, lambda y: y),
        (BinaryCrossEntropy(positive_weight=10.0), 1, lambda y: y % 2),
        (SquaredError(), 1, lambda y: y.double()),
        (SquaredError(), 2, lambda y: torch.stack([y.double(), -y.double() / 2], -1)),
        (SquaredHinge(), 3, lambda y: y),
        (Tweedie(1.0), 1, lambda y: y.double() + 0.5),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
@pytest.mark.parametrize("order", [None, 0], ids=["private order", "public order"])
def test_every_loss_trains_as_by_autograd(loss, outputs, label, order):
    module, games = mlp(16, 4, outputs), relabelled(cohort(3), label)
    trainer = SGD(lr=0.05, batch_size=4, epochs=2, order_seed=order, loss=loss, dtype=torch.float64)
    release = trainer(module, games, seed=0)
    for row in range(3):
        alone, _ = train_alone(trainer, module, games, row, seed=0)
        for name, value in alone.items():
            torch.testing.assert_close(release.params[name][row], value, rtol=0, atol=1e-10)


@pytest.mark.parametrize("seed", [0, None], ids=["public", "private"])
@pytest.mark.parametrize("init", [LeCunNormal(), Normal(0.1), Glorot(), He(), TorchDefault()], ids=str)
def test_every_start_trains_alike_in_both_dtypes(init, seed):
    trainer = GD(lr=0.1, steps=2, init=replace(init, seed=seed))
    single = trainer(net(), cohort(3), seed=0).flat()
    double = replace(trainer, dtype=torch.float64)(net(), cohort(3), seed=0).flat()
    torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-5)


def test_a_given_start_is_used():
    module = net()
    step = next(GD(steps=1, init=given(module)).transcript(module, cohort(2), seed=0))
    for name, value in module.named_parameters():
        torch.testing.assert_close(step.params[name][1], value.detach(), rtol=0, atol=0)


def test_tf32_leaves_the_processes_setting_alone():
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    GD(steps=1, tf32=True)(net(), cohort(2), seed=0)
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before
