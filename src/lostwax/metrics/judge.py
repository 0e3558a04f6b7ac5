"""A classifier that says what an image shows, to tell whether a guess shows the same."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor, nn

from lostwax.metrics.lenet import SMALLEST, lenet, train_lenet
from lostwax.provenance import fingerprint
from lostwax.tensor_files import read_tensors, write_tensors
from lostwax.types import Records
from lostwax.types.fields import between, check_fields

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

    @classmethod
    def examples(cls) -> tuple[Judge, ...]:
        """None: a part of the metric KL, not a metric of its own."""
        return ()


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
