"""Does the guess show the same thing as the truth?"""

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
from lostwax.seeds import generator

# LeNet, the classifier that judges images like MNIST's (S1 section V-B).


BATCH = 64
SMALLEST = 8  # pixels


def lenet(channels: int, height: int, width: int, classes: int, *, seed: int) -> nn.Sequential:
    """Two convolutions of 5 x 5, each pooled, and two dense layers, with rectifiers and dropout; torch's own start.

    The first convolution is padded, as LeCun et al. (1998, section II-B) pad the image; images under 16 pixels
    need the second padded too.
    """
    padding = 2 if min(height, width) < 16 else 0
    rows, columns = ((side // 2 + 2 * padding - 4) // 2 for side in (height, width))  # after both poolings
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(generator(seed, "judge", "start").integers(2**63)))
        return nn.Sequential(
            nn.Conv2d(channels, 20, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(20, 50, 5, padding=padding),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(50 * rows * columns, 500),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(500, classes),
        )


def train_lenet(net: nn.Module, records: Records, *, epochs: int, seed: int) -> None:
    """Adam, its rate rising once and falling once; order and dropout are functions of the seed."""
    optimiser = torch.optim.Adam(net.parameters())
    steps = epochs * -(-len(records) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=3e-3, total_steps=steps)
    net.train()
    with torch.random.fork_rng(devices=[records.x.device] if records.x.is_cuda else []):
        torch.manual_seed(int(generator(seed, "judge", "dropout").integers(2**63)))
        for epoch in range(epochs):
            order = torch.from_numpy(generator(seed, "judge", "order", epoch).permutation(len(records)))
            for rows in torch.split(order.to(records.x.device), BATCH):
                optimiser.zero_grad()
                torch.autograd.backward(cross_entropy(net(records.x[rows]), records.y[rows]))
                optimiser.step()
                schedule.step()
    net.eval()


# A classifier that says what an image shows, to tell whether a guess shows the same.


RECIPE = 1  # changes with the net or its training, so that no cache outlives them
HELD_OUT = 0.1
RECORDS_AT_A_TIME = 1024


@dataclass(frozen=True, eq=False)
class Judge:
    """A classifier in evaluation mode, as a function from records to log-probabilities.

    `Judge(net)` keeps a frozen copy of any classifier that returns logits: for CIFAR-10, a Wide ResNet of one's own
    (S1 section V-B). `Judge.trained(records)` trains a LeNet for images like MNIST's.
    """

    net: nn.Module
    accuracy: float | None = None  # on records that it was not trained on, where that is known

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
    ) -> Judge:
        """A LeNet trained on nine tenths of the records, its accuracy measured on the last tenth.

        In the folder `cache` it is found again by a fingerprint of the records and the settings. Without one
        nothing is written: a net trained on private records is not left lying about unasked.
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
                tensors = read_tensors("Judge.trained", file)
                accuracy = float(tensors.pop("accuracy"))
                net.load_state_dict(tensors)
                return cls(net, accuracy)
        tested = max(1, round(HELD_OUT * len(images)))
        test, train = images.split(tested, len(images) - tested, seed=seed)
        train_lenet(net, train, epochs=epochs, seed=seed)
        judge = cls(net)
        accuracy = float((judge(test.x).argmax(1) == test.y).double().mean())
        if file is not None:
            number = torch.tensor(accuracy, dtype=torch.float64)
            write_tensors(file, {**net.state_dict(), "accuracy": number})
        return cls(net, accuracy)


class _Reshaped(nn.Module):
    """LeNet that takes flattened images, and grey ones without a channel axis, as well."""

    def __init__(self, shape: torch.Size, classes: int, *, seed: int) -> None:
        super().__init__()
        self.shape = tuple(shape)
        channels, height, width = shape
        self.layers = lenet(channels, height, width, classes, seed=seed)

    def forward(self, x: Tensor) -> Tensor:
        if math.prod(x.shape[1:]) != math.prod(self.shape):
            raise ValueError(f"Judge: expected images of shape {self.shape}, got {tuple(x.shape[1:])}.")
        logits: Tensor = self.layers(x.reshape(-1, *self.shape))
        return logits


def _check(records: Records, epochs: int) -> None:
    shape = tuple(records.x.shape)
    if len(shape) not in (3, 4) or min(shape[-2:]) < SMALLEST:
        raise ValueError(
            f"Judge.trained: LeNet reads images of {SMALLEST} x {SMALLEST} pixels or more, shape (n, channels, height, "
            f"width), got {shape}. Reshape flattened images, or bring your own classifier: Judge(net)."
        )
    if records.y.ndim != 1 or records.y.is_floating_point() or len(records) < 2 or int(records.y.min()) < 0:
        raise ValueError(
            f"Judge.trained: expected two records or more with a class number 0, 1, ... each, got labels of shape "
            f"{tuple(records.y.shape)} and {records.y.dtype}."
        )
    if epochs < 1:
        raise ValueError(f"Judge.trained: expected epochs >= 1, got {epochs}.")


@dataclass(frozen=True, eq=False)
class KL:
    """Kullback-Leibler divergence from what a judge sees in the truth to what it sees in the guess (S1 section V-B).

    A small mean squared error makes for a small divergence; the converse fails, for two different images may
    show the same (S1 Fig. 5b).
    """

    judge: Judge
    better: Literal["lower", "higher"] = "lower"
    name: str = "KL under a judge (nats)"

    def __post_init__(self) -> None:
        check_fields(self)

    def __call__(self, guess: Tensor, truth: Tensor) -> Tensor:
        """(games, ...) twice -> (games,)."""
        log_p, log_q = self.judge(truth), self.judge(guess)  # (games, classes)
        divergence = (log_p.exp() * (log_p - log_q)).sum(1)  # sum p log(p / q)
        return divergence.clamp_min(0).to(guess)  # rounding may fall below 0
