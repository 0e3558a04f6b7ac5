"""A classifier of images, and the divergence of its answers for guess and truth."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lostwax.fields import between, check_fields
from lostwax.files import read_tensors, write_tensors
from lostwax.games import Records
from lostwax.provenance import fingerprint
from lostwax.seeds import generator, seed_torch

BATCH = 64
SMALLEST = 8  # pixels


def lenet(channels: int, height: int, width: int, classes: int, *, seed: int) -> nn.Sequential:
    """Two pooled 5 x 5 convolutions and two dense layers, with ReLU and dropout; torch's initialisation.

    The first convolution is padded, as in LeCun et al. (1998, section II-B); for images under 16 pixels the second too.
    """
    padding = 2 if min(height, width) < 16 else 0
    rows, columns = ((side // 2 + 2 * padding - 4) // 2 for side in (height, width))  # after both poolings
    with torch.random.fork_rng(devices=[]):
        seed_torch(int(generator(seed, "judge", "start").integers(2**63)))
        return nn.Sequential(
            *(nn.Conv2d(channels, 20, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(20, 50, 5, padding=padding), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(50 * rows * columns, 500), nn.ReLU(), nn.Dropout(0.5), nn.Linear(500, classes)),
        )


def train_lenet(net: nn.Module, records: Records, *, epochs: int, seed: int) -> None:
    """Adam with a one-cycle schedule; order and dropout depend on the seed alone."""
    optimiser = torch.optim.Adam(net.parameters())
    steps = epochs * -(-len(records) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=3e-3, total_steps=steps)
    net.train()
    with torch.random.fork_rng(devices=[records.x.device] if records.x.is_cuda else []):
        seed_torch(int(generator(seed, "judge", "dropout").integers(2**63)))
        for epoch in range(epochs):
            order = torch.from_numpy(generator(seed, "judge", "order", epoch).permutation(len(records)))
            for rows in torch.split(order.to(records.x.device), BATCH):
                optimiser.zero_grad()
                torch.autograd.backward(cross_entropy(net(records.x[rows]), records.y[rows]))
                optimiser.step()
                schedule.step()
    net.eval()


RECIPE = 1  # raise it with any change to the net or its training: part of the cache's file name
HELD_OUT = 0.1
RECORDS_AT_A_TIME = 1024


@dataclass(frozen=True, eq=False)
class Classifier:
    """A classifier in evaluation mode, as a function from records to log-probabilities.

    `Classifier(net)` keeps a frozen copy of any classifier that returns logits: for CIFAR-10, your own Wide ResNet.
    `Classifier.trained(records)` trains a LeNet for images like MNIST's.
    """

    net: nn.Module
    accuracy: float | None = None  # on held-out records, if known

    def __post_init__(self) -> None:
        check_fields(self, accuracy=between(0, 1, "[]"))
        object.__setattr__(self, "net", deepcopy(self.net).eval().requires_grad_(False))

    def __call__(self, x: Tensor) -> Tensor:
        """(games, ...) -> log-probabilities (games, classes), on the device and in the dtype of the net."""
        like = next(self.net.parameters(), x)
        parts = torch.split(x.to(like.device, like.dtype), RECORDS_AT_A_TIME)
        return torch.cat([self.net(part) for part in parts]).log_softmax(-1)

    @classmethod
    def trained(
        cls, records: Records, *, cache: str | PathLike[str] | None = None, epochs: int = 10, seed: int = 0
    ) -> Classifier:
        """A LeNet trained on nine tenths of the records, its accuracy measured on the rest.

        With a folder `cache` it is stored under a fingerprint of records and settings, and found again.
        """
        _check(records, epochs)
        x = (records.x.unsqueeze(1) if records.x.ndim == 3 else records.x).float()
        images = Records(x, records.y.long())
        net = _Reshaped(x.shape[1:], int(images.y.max()) + 1, seed=seed).to(x.device)
        file = None
        if cache is not None:
            name = f"judge-{RECIPE}-{fingerprint(records.x, records.y)}-{epochs}-{seed}.safetensors"
            file = Path(cache).expanduser() / name
            if file.is_file():
                tensors = read_tensors("Classifier.trained", file)
                accuracy = float(tensors.pop("accuracy"))
                net.load_state_dict(tensors)
                return cls(net, accuracy)
        tested = max(1, round(HELD_OUT * len(images)))
        test, train = images.split(tested, len(images) - tested, seed=seed)
        train_lenet(net, train, epochs=epochs, seed=seed)
        accuracy = float((cls(net)(test.x).argmax(1) == test.y).double().mean())
        if file is not None:
            write_tensors(file, {**net.state_dict(), "accuracy": torch.tensor(accuracy, dtype=torch.float64)})
        return cls(net, accuracy)


class _Reshaped(nn.Module):
    """LeNet that also takes flattened images, and grey ones without a channel axis."""

    def __init__(self, shape: torch.Size, classes: int, *, seed: int) -> None:
        super().__init__()
        self.shape = tuple(shape)
        channels, height, width = shape
        self.layers = lenet(channels, height, width, classes, seed=seed)

    def forward(self, x: Tensor) -> Tensor:
        if math.prod(x.shape[1:]) != math.prod(self.shape):
            raise ValueError(f"Classifier: expected images of shape {self.shape}, got {tuple(x.shape[1:])}.")
        logits: Tensor = self.layers(x.reshape(-1, *self.shape))
        return logits


def _check(records: Records, epochs: int) -> None:
    shape = tuple(records.x.shape)
    if len(shape) not in (3, 4) or min(shape[-2:]) < SMALLEST:
        raise ValueError(
            f"Classifier.trained: LeNet reads images of {SMALLEST} x {SMALLEST} pixels or more, shape (n, channels, "
            f"height, width), got {shape}. Reshape flattened images, or pass your own classifier: Classifier(net)."
        )
    if records.y.ndim != 1 or records.y.is_floating_point() or len(records) < 2 or int(records.y.min()) < 0:
        raise ValueError(
            f"Classifier.trained: expected two records or more with a class number 0, 1, ... each, got labels of shape "
            f"{tuple(records.y.shape)} and {records.y.dtype}."
        )
    if epochs < 1:
        raise ValueError(f"Classifier.trained: expected epochs >= 1, got {epochs}.")


@dataclass(frozen=True, eq=False)
class KL:
    """Kullback-Leibler divergence of a classifier's answers for truth and guess (Balle et al. 2022, section V-B)."""

    judge: Classifier
    better: Literal["lower", "higher"] = "lower"
    name: str = "KL under a judge (nats)"

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        """(games, ...) twice -> (games,)."""
        log_p, log_q = self.judge(truth), self.judge(guess)  # (games, classes)
        divergence = (log_p.exp() * (log_p - log_q)).sum(1)  # sum p log(p / q)
        return divergence.clamp_min(0).to(guess)  # rounding may fall below 0
