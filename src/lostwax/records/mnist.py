"""MNIST: handwritten digits (LeCun, Cortes and Burges)."""

from __future__ import annotations

from lostwax.records.named import Root, named
from lostwax.records.npz import Part
from lostwax.types import Records


def mnist(part: Part = "train", *, root: Root = None, download: bool = False) -> Records:
    """Digits 0-9, grey, 28 x 28: 60,000 to train and 10,000 to test.

    Read from `mnist.npz` or torchvision's files in `root`, or else in LOSTWAX_DATA.
    """
    return named(
        "records.mnist",
        ["mnist.npz"],
        lambda datasets: datasets.MNIST,
        part=part,
        root=root,
        download=download,
    )
