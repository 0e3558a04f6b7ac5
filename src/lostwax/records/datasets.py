"""Well-known data sets: where to look for them, and what to say when they are not there."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
import torch

from lostwax.games import Records
from lostwax.records.npz import PARTS, Part, npz
from lostwax.records.pictures import check_choice, from_pixels, optional, read_images

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


# The embedded default: real handwritten digits that come with scikit-learn.


def digits() -> Records:
    """The 1,797 digits of 8 x 8 pixels (grey levels 0..16, here in [0, 1])."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = torch.from_numpy(bunch.images).float().div_(16).unsqueeze(1)  # (n, 1, 8, 8)
    return Records(x=x, y=torch.from_numpy(bunch.target).long())


# MNIST: handwritten digits (LeCun, Cortes and Burges).


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


# Fashion-MNIST: articles of clothing (Xiao, Rasul and Vollgraf 2017).


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


# EMNIST Letters: handwritten letters (Cohen et al. 2017).


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


# CIFAR-10: small photographs of ten kinds of things (Krizhevsky 2009).


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
