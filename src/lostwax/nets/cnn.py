"""Convolutional nets."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn


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
