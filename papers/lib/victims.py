"""The base model and the letters of the MNIST experiment of Maciazek and Allison 2025."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from os import PathLike

from torch import nn

from lostwax.games import Records
from lostwax.records import npz
from lostwax.records.datasets import find_directory

POOLED = (2, 6, 8)  # the convolutions that are followed by pooling
LETTERS = ("emnist_letters.npz", "emnist_letters_part.npz")


def vgg11(classes: int = 26, *, channels: int = 1, size: int = 32) -> nn.Sequential:
    """VGG-11 with a sixteenth of the channels, for square images (Simonyan and Zisserman 2015).

    The base model of the MNIST experiment of Maciazek and Allison 2025. Like their code it pools three times, not five;
    their appendix D.1 does not say. `vgg11()[:-1]` is its backbone with 256 features.
    """
    halved = 1 << len(POOLED)
    layers: list[nn.Module] = []
    for number, (inputs, outputs) in enumerate(pairwise((channels, 4, 8, 16, 16, 32, 32, 32, 32)), 1):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
        if number in POOLED:
            layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), nn.Linear(32 * (size // halved) ** 2, 256), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, classes))


def letters(root: str | PathLike[str] | None) -> Records:
    """EMNIST Letters (Cohen et al. 2017): A-Z (and a-z) as classes 0-25, which the archives number from 1."""
    directory = find_directory("emnist", LETTERS, root)
    archive = next((directory / name for name in LETTERS if (directory / name).is_file()), directory / LETTERS[0])
    records = npz(archive)
    return replace(records, y=records.y - 1)
