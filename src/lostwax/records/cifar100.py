"""CIFAR-100: small photographs of a hundred kinds of things (Krizhevsky 2009)."""

from __future__ import annotations

from lostwax.records.named import Root, named
from lostwax.records.npz import Part
from lostwax.types import Records


def cifar100(part: Part = "train", *, root: Root = None, download: bool = False) -> Records:
    """The hundred fine classes, RGB, 32 x 32: 50,000 to train and 10,000 to test.

    Read from `cifar100.npz` or torchvision's files in `root`, or else in LOSTWAX_DATA.
    """
    return named(
        "records.cifar100",
        ["cifar100.npz"],
        lambda datasets: datasets.CIFAR100,
        part=part,
        root=root,
        download=download,
    )
