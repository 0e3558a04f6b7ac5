"""Fashion-MNIST: articles of clothing (Xiao, Rasul and Vollgraf 2017)."""

from __future__ import annotations

from lostwax.records.named import Root, named
from lostwax.records.npz import Part
from lostwax.types import Records


def fashion_mnist(part: Part = "train", *, root: Root = None, download: bool = False) -> Records:
    """Ten kinds of clothing, grey, 28 x 28: 60,000 to train and 10,000 to test.

    Read from `fashion_mnist.npz` or torchvision's files in `root`, or else in LOSTWAX_DATA.
    """
    return named(
        "records.fashion_mnist",
        ["fashion_mnist.npz"],
        lambda datasets: datasets.FashionMNIST,
        part=part,
        root=root,
        download=download,
    )
