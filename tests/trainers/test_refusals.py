"""What cannot be trained is refused with the reason and the cure."""

import random

import pytest
import torch
from torch import nn

from lostwax.games import Cohort, Records
from lostwax.losses import BinaryCrossEntropy, SquaredError
from lostwax.nets import mlp
from lostwax.trainers import GD
from trainers.game import cohort, net


class Mixes(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(16, 3)

    def forward(self, x):
        return self.net(x - x.mean(0))


class Draws(Mixes):
    def forward(self, x):
        return nn.functional.dropout(self.net(x), 1e-6)  # two passes come out alike, but for luck


class DrawsElsewhere(Mixes):
    def forward(self, x):
        return self.net(x) * random.random()


class Overwrites(Mixes):
    def forward(self, x):
        x *= 2
        return self.net(x)


class Decides(Mixes):
    def forward(self, x):
        return self.net(x) if self.net[1].bias[0] > 0 else -self.net(x)


class Pair(Mixes):
    def forward(self, x):
        return self.net(x), x


def images(*layers):
    return nn.Sequential(nn.Conv2d(1, 4, 3), *layers, nn.Flatten(), nn.Linear(16, 3))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (images(nn.BatchNorm2d(4)), r"'1' \(BatchNorm2d\) mixes .* Use nn.GroupNorm, .*OwnTraining"),
        (images(nn.InstanceNorm2d(4, track_running_stats=True)), "Use nn.GroupNorm"),
        (images(nn.Dropout2d(0.5)), r"'1' \(Dropout2d\) drops values at random with p=0.5. Set p=0 or remove it"),
        (nn.Sequential(nn.Flatten(), nn.LazyLinear(3)), "lazy module"),
        (nn.Flatten(), "expected at least one parameter"),
        (mlp(16, 3).requires_grad_(False), "expected at least one parameter"),
        (Mixes(), "it mixes records"),
        (Draws(), "it draws random numbers"),
        (DrawsElsewhere(), "it draws random numbers"),
        (Overwrites(), "it changes its input in place"),
        (Decides(), "vmap cannot run it for many models at once: vmap: It looks like you're attempting"),
        (Pair(), "expected outputs of shape .* got tuple"),
        (nn.Sequential(nn.Conv2d(1, 3, 3)), r"expected outputs of shape \(n, c\)"),
        (mlp(15, 3), r"cannot take records of shape \(1, 4, 4\)"),
        (mlp(16, 1), "CrossEntropy needs two outputs or more, got 1. Use BinaryCrossEntropy"),
        (
            mlp(16, 2),
            "expects labels from 0 to 1, but .* are not, the first in row .* Give the net one output per class",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else value[:30],
)
def test_nets(module, message):
    with pytest.raises(ValueError, match=message):
        GD()(module, cohort(4), seed=0)


@pytest.mark.parametrize("module", [images(nn.Dropout(0.0)), images(nn.GroupNorm(2, 4)), images(nn.InstanceNorm2d(4))])
def test_the_cures_train(module):
    assert len(GD(steps=1)(module, cohort(2), seed=0)) == 2


def changed(*, shared=lambda r: r, own=lambda r: r):
    games = cohort(4)
    return Cohort(shared(games.shared), own(games.own), games.index)


def with_value(value):
    def change(records):
        x = records.x.clone()
        x.view(-1)[3] = value
        return Records(x, records.y)

    return change


@pytest.mark.parametrize(
    ("games", "error", "message"),
    [
        (cohort(4)[:0], ValueError, "expected at least one model"),
        (cohort(2, shared=0, secrets=0), ValueError, "expected at least one record per model"),
        (changed(shared=with_value(float("nan"))), ValueError, "cohort.shared.x: 1 of 144 values are NaN or infinite"),
        (changed(own=with_value(float("inf"))), ValueError, "cohort.own.x: 1 of 128 values"),
        (changed(own=lambda r: r.to(torch.float32)), TypeError, "differ in dtype: x torch.float64 and torch.float32"),
        (changed(own=lambda r: Records(r.x, r.y.double())), TypeError, "y torch.int64 and torch.float64"),
        (
            changed(shared=lambda r: Records((r.x * 255).byte(), r.y), own=lambda r: Records((r.x * 255).byte(), r.y)),
            TypeError,
            "expected floating-point inputs, got torch.uint8. Scale pixels",
        ),
        (changed(own=lambda r: Records(r.x, r.y, r.x.flatten(2))), ValueError, "Give both features, or neither"),
        (changed(own=lambda r: Records(r.x, r.y - 1)), ValueError, "cohort.own.y: .* are not, the first in row"),
        (
            changed(shared=lambda r: Records(r.x, r.y.double()), own=lambda r: Records(r.x, r.y.double())),
            TypeError,
            "expects one class number per record, got torch.float32",
        ),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_data(games, error, message):
    with pytest.raises(error, match=message):
        GD()(net(), games, seed=0)


@pytest.mark.parametrize("kind", [torch.int32, torch.int16, torch.uint8])
def test_whole_labels_of_any_size_train_alike(kind):
    """Also side by side: they are class numbers all the same."""
    ours = GD(steps=2)(net(), cohort(4), seed=0).flat()
    other = GD(steps=2)(net(), changed(own=lambda r: Records(r.x, r.y.to(kind))), seed=0).flat()
    assert torch.equal(ours, other)


def test_labels_of_other_losses():
    with pytest.raises(ValueError, match=r"expects labels from 0 to 1, but .* are not"):
        GD(loss=BinaryCrossEntropy())(mlp(16, 1), cohort(4), seed=0)
    with pytest.raises(ValueError, match="expects one target for each of the net's 3 outputs, got shape"):
        GD(loss=SquaredError())(net(), cohort(4), seed=0)


def test_the_transcript_refuses_as_the_training_does():
    with pytest.raises(ValueError, match="GroupNorm"):
        next(GD().transcript(images(nn.BatchNorm2d(4)), cohort(2), seed=0))
