"""EMNIST Letters: handwritten letters (Cohen et al. 2017)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from lostwax.records.named import Root, named
from lostwax.records.npz import Part
from lostwax.types import Records


def emnist(part: Part = "train", *, root: Root = None, download: bool = False) -> Records:
    """Letters A-Z as classes 0-25, upright, grey, 28 x 28: 124,800 to train and 20,800 to test.

    Upper and lower case are one class. Read from `emnist_letters.npz`, `emnist_letters_part.npz`
    (labels 1-26, as EMNIST numbers them) or torchvision's files in `root`, or else in LOSTWAX_DATA.
    """
    records = named(
        "records.emnist",
        ["emnist_letters.npz", "emnist_letters_part.npz"],
        lambda datasets: partial(datasets.EMNIST, split="letters"),
        part=part,
        root=root,
        download=download,
        transposed=True,
    )
    lowest, highest = int(records.y.min()), int(records.y.max())
    if lowest < 1 or highest > 26:
        raise ValueError(f"records.emnist: labels must be 1-26 for A-Z, got {lowest}-{highest}.")
    return replace(records, y=records.y - 1)
