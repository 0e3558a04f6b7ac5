"""Well-known image sets: where to look for them, and what to say when they are not there."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from lostwax.records.choice import check_choice
from lostwax.records.images import from_pixels
from lostwax.records.npz import PARTS, Part, npz
from lostwax.records.optional import optional
from lostwax.types import Records

Root = str | PathLike[str] | None


def named(
    source: str,
    archives: Sequence[str],
    dataset: Callable[[ModuleType], Callable[..., Any]],
    *,
    part: Part,
    root: Root,
    download: bool,
    transposed: bool = False,
) -> Records:
    """The first of the .npz `archives` that is there, else torchvision's files.

    `dataset` picks the class from torchvision.datasets; `transposed` says that its images lie on their side.
    """
    check_choice(f"{source}: part", part, PARTS)
    directory = find_directory(source, archives, root)
    for archive in archives:
        if (directory / archive).is_file():
            return npz(directory / archive, part)
    make = dataset(optional("torchvision.datasets", source, "vision"))
    opened = [
        open_dataset(source, archives, directory, partial(make, directory, train=train, download=download))
        for train in ((True, False) if part == "all" else (part == "train",))
    ]
    images = np.concatenate([np.asarray(one.data) for one in opened])
    labels = np.concatenate([np.asarray(one.targets) for one in opened])
    return from_pixels(source, images.swapaxes(1, 2) if transposed else images, labels)


def find_directory(source: str, archives: Sequence[str], root: Root) -> Path:
    """`root`, else what LOSTWAX_DATA names."""
    place = os.environ.get("LOSTWAX_DATA") if root is None else root
    if not place:
        raise FileNotFoundError(
            f"{source} knows no directory to look in for {_files(archives)}: pass root=, or set the "
            "environment variable LOSTWAX_DATA. With download=True torchvision fetches its files there."
        )
    return Path(place).expanduser()


def open_dataset(source: str, archives: Sequence[str], directory: Path, make: Callable[[], Any]) -> Any:
    """What `make` opens through torchvision; its many kinds of failure as one error with the cures."""
    try:
        return make()
    except (RuntimeError, OSError, ValueError, AssertionError) as error:
        missing = "" if directory.is_dir() else " (no such directory)"
        raise FileNotFoundError(
            f"{source} looked in {directory}{missing} for {_files(archives)}, and found none that "
            f"can be read (torchvision: {error}). Set the environment variable LOSTWAX_DATA or pass root= to "
            "name the directory that holds them, or pass download=True to let torchvision fetch them there."
        ) from error


def _files(archives: Sequence[str]) -> str:
    return " or ".join([*archives, "torchvision's files"])
