"""VGG: three-by-three convolutions, pooled now and then, and three linear layers (Simonyan and Zisserman 2015)."""

from __future__ import annotations

from itertools import pairwise

from torch import nn

POOLED = (2, 6, 8)  # convolutions behind which the side is halved


def vgg11(classes: int = 26, *, channels: int = 1, size: int = 32) -> nn.Sequential:
    """VGG-11 with a sixteenth of its channels, for square pictures: the base model of S2's MNIST experiment.

    `vgg11()[:-1]` is the backbone that a new last layer is trained on: 256 features, so that a head for ten classes has
    S2's 2,570 numbers (its Table 2). S2 (D.1) names the channels and the linear layers alone. With the five poolings
    of the original a picture of 32 x 32 would shrink to one pixel of 32 channels, before 256 features; the authors'
    code pools three times, as is done here, which leaves 4 x 4 pixels.
    """
    halved = 1 << len(POOLED)
    if size < halved or size % halved:
        raise ValueError(
            f"vgg11: expected a size that is a multiple of {halved} pixels, got {size}. Scale the pictures."
        )
    layers: list[nn.Module] = []
    for number, (inputs, outputs) in enumerate(pairwise((channels, 4, 8, 16, 16, 32, 32, 32, 32)), 1):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
        if number in POOLED:
            layers.append(nn.MaxPool2d(2))
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        nn.Linear(32 * (size // halved) ** 2, 256),
        nn.ReLU(),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Linear(256, classes),
    )
