"""A classifier of images, and the divergence of its answers for guess and truth (Balle et al. 2022, section V-B)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lostwax.games import Records
from lostwax.learning.training import fit, torch_seed
from lostwax.seeds import generator

BATCH = 64
SMALLEST_SIDE = 8  # pixels
HELD_OUT = 0.1
RECORDS_AT_A_TIME = 1024


class LeNet(nn.Module):
    """Two pooled 5 x 5 convolutions and two dense layers, with ReLU and dropout, for images of any layout of `shape`.

    The first convolution is padded, as in LeCun et al. (1998, section II-B); for images under 16 pixels the second too.
    """

    def __init__(self, shape: torch.Size, classes: int) -> None:
        super().__init__()
        self.shape = tuple(shape)
        channels, height, width = shape
        padding = 2 if min(height, width) < 16 else 0
        rows, columns = ((side // 2 + 2 * padding - 4) // 2 for side in (height, width))  # after both poolings
        self.layers = nn.Sequential(
            *(nn.Conv2d(channels, 20, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(20, 50, 5, padding=padding), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(50 * rows * columns, 500), nn.ReLU(), nn.Dropout(0.5), nn.Linear(500, classes)),
        )

    def forward(self, x: Tensor) -> Tensor:
        if math.prod(x.shape[1:]) != math.prod(self.shape):
            raise ValueError(f"Classifier: expected images of shape {self.shape}, got {tuple(x.shape[1:])}.")
        logits: Tensor = self.layers(x.reshape(-1, *self.shape))
        return logits


def train_lenet(net: nn.Module, records: Records, *, epochs: int, seed: int) -> None:
    """Adam with a one-cycle schedule; order and dropout depend on the seed alone."""
    optimiser = torch.optim.Adam(net.parameters())
    steps = epochs * -(-len(records) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=3e-3, total_steps=steps)

    def epoch_losses(epoch: int) -> Iterator[Tensor]:
        order = torch.from_numpy(generator(seed, "judge", "order", epoch).permutation(len(records)))
        for rows in torch.split(order.to(records.x.device), BATCH):
            yield cross_entropy(net(records.x[rows]), records.y[rows])
            schedule.step()

    with torch_seed(draw(seed, "dropout"), records.x.device):
        fit(net, optimiser, map(epoch_losses, range(epochs)))


def draw(seed: int, purpose: str) -> int:
    return int(generator(seed, "judge", purpose).integers(2**63))


@dataclass(frozen=True, eq=False)
class Classifier:
    """A classifier in evaluation mode, as a function from records to log-probabilities.

    `Classifier(net)` keeps a frozen copy of any classifier that returns logits: for CIFAR-10, a Wide ResNet.
    `Classifier.trained(records)` trains a LeNet for images like MNIST's.
    """

    net: nn.Module
    accuracy: float | None = None  # on held-out records, if known

    def __post_init__(self) -> None:
        object.__setattr__(self, "net", deepcopy(self.net).eval().requires_grad_(False))

    def __call__(self, x: Tensor) -> Tensor:
        """(games, ...) -> log-probabilities (games, classes), on the device and in the dtype of the net."""
        like = next(self.net.parameters(), x)
        parts = torch.split(x.to(like.device, like.dtype), RECORDS_AT_A_TIME)
        return torch.cat([self.net(part) for part in parts]).log_softmax(-1)

    @classmethod
    def trained(cls, records: Records, *, epochs: int = 10, seed: int = 0) -> Classifier:
        """A LeNet trained on nine tenths of the records, its accuracy measured on the others."""
        x = (records.x.unsqueeze(1) if records.x.ndim == 3 else records.x).float()
        if x.ndim != 4 or min(x.shape[-2:]) < SMALLEST_SIDE:
            raise ValueError(
                f"Classifier.trained: LeNet reads images of {SMALLEST_SIDE} x {SMALLEST_SIDE} pixels or more, shape "
                f"(n, channels, height, width), got {tuple(records.x.shape)}. Pass another classifier: Classifier(net)."
            )
        images = Records(x, records.y.long())
        with torch_seed(draw(seed, "start"), torch.device("cpu")):
            net = LeNet(x.shape[1:], int(images.y.max()) + 1).to(x.device)
        tested = max(1, round(HELD_OUT * len(images)))
        test, train = images.split(tested, len(images) - tested, seed=seed)
        train_lenet(net, train, epochs=epochs, seed=seed)
        return cls(net, float((cls(net)(test.x).argmax(1) == test.y).double().mean()))


@dataclass(frozen=True, eq=False)
class KL:
    """Kullback-Leibler divergence of a classifier's answers for truth and guess."""

    judge: Classifier
    better: Literal["lower", "higher"] = "lower"
    name: str = "KL under a judge (nats)"

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        """(games, ...) twice -> (games,)."""
        log_p, log_q = self.judge(truth), self.judge(guess)  # (games, classes)
        divergence = (log_p.exp() * (log_p - log_q)).sum(1)  # sum p log(p / q)
        return divergence.clamp_min(0).to(guess)  # rounding may fall below 0
