"""CelebA: celebrity faces with forty yes-or-no attributes (Liu et al. 2015)."""

from __future__ import annotations

from typing import Literal

import numpy as np

from lostwax.records.choice import check_choice
from lostwax.records.images import from_pixels, read_images
from lostwax.records.named import Root, find_directory, open_dataset
from lostwax.records.optional import optional
from lostwax.types import Records


def celeba(
    part: Literal["train", "valid", "test", "all"] = "train",
    *,
    attribute: str = "Smiling",
    size: int = 64,
    count: int | None = None,
    root: Root = None,
    download: bool = False,
) -> Records:
    """Aligned faces, RGB, cut to the central square; class 1 where the face has the attribute.

    Read from torchvision's files in `root`, or else in LOSTWAX_DATA. All 202,599 faces at 64 x 64 take 10 GB:
    `count` takes only the first so many.
    """
    source = "records.celeba"
    check_choice(f"{source}: part", part, ("train", "valid", "test", "all"))
    if count is not None and count < 1:
        raise ValueError(f"{source}: count must be at least 1, or None for all, got {count}.")
    directory = find_directory(source, [], root)
    datasets = optional("torchvision.datasets", source, "vision")
    faces = open_dataset(source, [], directory, lambda: datasets.CelebA(directory, split=part, download=download))
    names = [name for name in faces.attr_names if name]
    check_choice(f"{source}: attribute", attribute, names)
    pictures = directory / faces.base_folder / "img_align_celeba"
    paths = [pictures / name for name in faces.filename[:count]]
    labels = np.asarray(faces.attr[:count, names.index(attribute)])
    return from_pixels(source, read_images(source, paths, channels=3, size=size), labels)
