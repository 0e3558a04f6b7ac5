"""CIFAR-10: small photographs of ten kinds of things (Krizhevsky 2009)."""

from __future__ import annotations

from lostwax.records.named import Root, named
from lostwax.records.npz import Part
from lostwax.types import Records


def cifar10(part: Part = "train", *, root: Root = None, download: bool = False) -> Records:
    """Ten classes, RGB, 32 x 32: 50,000 to train and 10,000 to test.

    Read from `cifar10.npz` or torchvision's files in `root`, or else in LOSTWAX_DATA.
    """
    return named(
        "records.cifar10",
        ["cifar10.npz"],
        lambda datasets: datasets.CIFAR10,
        part=part,
        root=root,
        download=download,
    )
