"""Victim architectures; any other `nn.Module` works as well."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from torch import nn

__all__ = ["cnn", "mlp", "vgg11"]


# Nets that are one linear layer: what the closed form can solve.


def linear_layer(net: nn.Module) -> nn.Linear | None:
    """The net's linear layer, if the net is nothing else (an nn.Linear, perhaps after an nn.Flatten)."""
    layers = [net] if not isinstance(net, nn.Sequential) else [part for part in net if not isinstance(part, nn.Flatten)]
    return layers[0] if len(layers) == 1 and isinstance(layers[0], nn.Linear) else None


# Fully connected nets.


def mlp(*sizes: int, activation: Callable[[], nn.Module] = nn.ELU) -> nn.Sequential:
    """Layers of the given sizes, inputs first: `mlp(784, 10, 10)` is the released model of S1, Table V."""
    if len(sizes) < 2 or min(sizes) < 1:
        raise ValueError(f"mlp: expected two sizes or more, each at least 1, got {sizes}.")
    first, *later = (nn.Linear(wide, narrow) for wide, narrow in pairwise(sizes))
    layers: list[nn.Module] = [nn.Flatten(), first]
    for linear in later:
        layers += [activation(), linear]
    return nn.Sequential(*layers)


# Convolutional nets.


def cnn(
    shape: tuple[int, int, int] = (3, 32, 32),
    classes: int = 10,
    *,
    hidden: int = 10,
    activation: Callable[[], nn.Module] = nn.ELU,
) -> nn.Sequential:
    """For pictures of the given (channels, height, width): the CIFAR-10 model of S1, Table VI.

    S1 names no padding; without any, it has 55,208 parameters, the 50K of section VI-B. `hidden` is the width of the
    first linear layer, which the larger model of S1 widens.
    """
    channels, height, width = shape
    if min(height, width) < 10:  # 10 -> 4 -> 1
        raise ValueError(f"cnn: expected pictures of 10 x 10 or more, got {height} x {width}. Use nets.mlp.")
    rows, columns = ((side - 4) // 2 + 1 - 3 for side in (height, width))  # what the two convolutions leave
    return nn.Sequential(
        nn.Conv2d(channels, 16, 4, stride=2),
        activation(),
        nn.Conv2d(16, 32, 4),
        activation(),
        nn.Flatten(),
        nn.Linear(32 * rows * columns, hidden),
        activation(),
        nn.Linear(hidden, classes),
    )


# VGG: three-by-three convolutions, pooled now and then, and three linear layers (Simonyan and Zisserman 2015).


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
