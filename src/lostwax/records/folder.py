"""A folder of images, one sub-folder a class."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Literal

import numpy as np

from lostwax.records.images import from_pixels, read_images
from lostwax.types import Records


def folder(path: str | PathLike[str], *, size: int | None = None, channels: Literal[1, 3] = 3) -> Records:
    """The images of each sub-folder; sub-folders in the order of their names are classes 0, 1, ...

    With `size`, each image is scaled and cut to its central square of that side; without, all must be of one
    size already. `channels` 1 reads them as grey, 3 as RGB. Every file counts but hidden ones.
    """
    source, top = "records.folder", Path(path)
    if not top.is_dir():
        raise FileNotFoundError(f"{source}: {top} is not a directory.")
    classes = [entry for entry in _visible(top) if entry.is_dir()]
    if not classes:
        raise ValueError(f"{source}: {top} must hold one sub-folder a class, got none.")
    files = [_visible(entry) for entry in classes]
    for entry, found in zip(classes, files, strict=True):
        if not found:
            raise ValueError(f"{source}: {entry} is a class without images: fill or remove it.")
    labels = np.repeat(np.arange(len(classes)), [len(found) for found in files])
    images = read_images(source, [file for found in files for file in found], channels=channels, size=size)
    return from_pixels(source, images, labels)


def _visible(directory: Path) -> list[Path]:
    return sorted(entry for entry in directory.iterdir() if not entry.name.startswith("."))
