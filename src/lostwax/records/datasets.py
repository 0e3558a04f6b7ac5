"""Well-known data sets, from .npz archives or torchvision's files in `root`, by default the folder LOSTWAX_DATA."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from lostwax.games import Records
from lostwax.records.npz import PARTS, Part, npz
from lostwax.records.pictures import check_choice, from_pixels, optional, read_images

Root = str | PathLike[str] | None


def _read(
    name: str, dataset: str, part: Part, root: Root, download: bool, archives: Sequence[str] = (), **options: str
) -> Records:
    """The first of the .npz `archives` that exists (default: `name`.npz), else torchvision's `dataset(**options)`."""
    source, archives = f"records.{name}", archives or [f"{name}.npz"]
    check_choice(f"{source}: part", part, PARTS)
    directory = find_directory(source, archives, root)
    for archive in archives:
        if (directory / archive).is_file():
            return npz(directory / archive, part)
    make = partial(getattr(optional("torchvision.datasets", source, "vision"), dataset), **options)
    opened = [
        open_dataset(source, archives, directory, partial(make, directory, train=train, download=download))
        for train in ((True, False) if part == "all" else (part == "train",))
    ]
    images = np.concatenate([np.asarray(one.data) for one in opened])
    labels = np.concatenate([np.asarray(one.targets) for one in opened])
    return from_pixels(source, images.swapaxes(1, 2) if dataset == "EMNIST" else images, labels)  # stored on its side


def find_directory(source: str, archives: Sequence[str], root: Root) -> Path:
    """`root`, else the directory LOSTWAX_DATA."""
    directory = os.environ.get("LOSTWAX_DATA") if root is None else root
    if not directory:
        raise FileNotFoundError(
            f"{source} has no directory in which to look for {_files(archives)}. Pass root=, or set the environment "
            "variable LOSTWAX_DATA. With download=True torchvision downloads its files there."
        )
    return Path(directory).expanduser()


def open_dataset(source: str, archives: Sequence[str], directory: Path, make: Callable[[], Any]) -> Any:
    """The dataset that `make` opens; all failures of torchvision become one error with the cures."""
    try:
        return make()
    except (RuntimeError, OSError, ValueError, AssertionError) as error:
        missing = "" if directory.is_dir() else " (no such directory)"
        raise FileNotFoundError(
            f"{source} looked in {directory}{missing} for {_files(archives)}, but found none that "
            f"can be read (torchvision: {error}). Set the environment variable LOSTWAX_DATA or root= to the directory "
            "that holds them, or pass download=True."
        ) from error


def _files(archives: Sequence[str]) -> str:
    return " or ".join([*archives, "torchvision's files"])


def digits() -> Records:
    """scikit-learn's 1,797 handwritten digits of 8 x 8 pixels, scaled to [0, 1]."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = torch.from_numpy(bunch.images).float().div_(16).unsqueeze(1)  # (n, 1, 8, 8)
    return Records(x=x, y=torch.from_numpy(bunch.target).long())


def mnist(part: Part = "train", *, root: Root = None, download: bool = False) -> Records:
    """MNIST: digits 0-9, grey, 28 x 28; 60,000 for training and 10,000 for testing. Archive: `mnist.npz`."""
    return _read("mnist", "MNIST", part, root, download)


def fashion_mnist(part: Part = "train", *, root: Root = None, download: bool = False) -> Records:
    """Fashion-MNIST (Xiao, Rasul and Vollgraf 2017): ten kinds of clothing, else as MNIST. `fashion_mnist.npz`."""
    return _read("fashion_mnist", "FashionMNIST", part, root, download)


def emnist(part: Part = "train", *, root: Root = None, download: bool = False) -> Records:
    """EMNIST Letters (Cohen et al. 2017): A-Z (and a-z) as classes 0-25, grey, 28 x 28; 124,800 and 20,800.

    Archives: `emnist_letters.npz`, `emnist_letters_part.npz` (labels 1-26, as in EMNIST).
    """
    archives = ["emnist_letters.npz", "emnist_letters_part.npz"]
    records = _read("emnist", "EMNIST", part, root, download, archives, split="letters")
    lowest, highest = int(records.y.min()), int(records.y.max())
    if lowest < 1 or highest > 26:
        raise ValueError(f"records.emnist: labels must be 1-26 for A-Z, got {lowest}-{highest}.")
    return replace(records, y=records.y - 1)


def cifar10(part: Part = "train", *, root: Root = None, download: bool = False) -> Records:
    """CIFAR-10 (Krizhevsky 2009): RGB, 32 x 32; 50,000 for training and 10,000 for testing. `cifar10.npz`."""
    return _read("cifar10", "CIFAR10", part, root, download)


def cifar100(part: Part = "train", *, root: Root = None, download: bool = False) -> Records:
    """CIFAR-100 with its 100 fine classes, else as CIFAR-10. Archive: `cifar100.npz`."""
    return _read("cifar100", "CIFAR100", part, root, download)


def celeba(
    part: Literal["train", "valid", "test", "all"] = "train",
    *,
    attribute: str = "Smiling",
    size: int = 64,
    count: int | None = None,
    root: Root = None,
    download: bool = False,
) -> Records:
    """CelebA: aligned faces, RGB, cropped to a central square (10 GB at 64 x 64); class 1: it has the attribute."""
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
