"""Images in .npz archives, and well-known data sets from these or torchvision's files in `root` (LOSTWAX_DATA)."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Literal
from zipfile import ZipFile, is_zipfile

import numpy as np
import torch
from numpy.typing import NDArray

from lostwax.games import Records
from lostwax.records.pictures import check_choice, from_pixels, optional, read_images

Part = Literal["train", "test", "all"]
DEFLATED = 1032  # the highest compression ratio of a zip file
PARTS = ("train", "test", "all")


def npz(path: str | PathLike[str], part: Part = "all") -> Records:
    """Images and labels of a .npz archive.

    It holds `images`, uint8 (n, h, w) or (n, h, w, 3), or these as `n_chunks` WebP strips `webp_000`, `webp_001`, ...
    and their `shape`; integer `labels` (n,); and optionally `split` (n,): 0 train, 1 test.
    """
    check_choice("records.npz: part", part, PARTS)
    source = f"records.npz: {path}"
    if not Path(path).is_file():
        raise FileNotFoundError(f"{source} is not a file.")
    if not is_zipfile(path):
        raise ValueError(f"{source} is not an .npz archive: write it with numpy.savez_compressed.")
    try:
        _check_sizes(path)
        with np.load(path) as archive:
            images, labels = _images(archive), archive["labels"]
            split = archive.get("split")
    except ImportError:
        raise
    except Exception as error:  # zipfile, numpy and Pillow raise many types for damaged archives
        raise ValueError(f"{source} cannot be read as an archive of images ({error!s:.150}).") from error
    if part == "all":
        return from_pixels(source, images, labels)
    if split is None:
        raise ValueError(f"{source} has no `split`, got part={part!r}: pass part='all'.")
    if not split.shape == labels.shape == images.shape[:1]:
        raise ValueError(
            f"{source}: split and labels must have one number per image: expected shape {images.shape[:1]}, "
            f"got {split.shape} and {labels.shape}."
        )
    chosen = split == PARTS.index(part)
    if not chosen.any():
        raise ValueError(f"{source} holds no {part!r} images: pass part='all' for all images.")
    return from_pixels(source, images[chosen], labels[chosen])


def _check_sizes(path: str | PathLike[str]) -> None:
    """Raise ValueError if an array declares more numbers than the file holds: numpy would allocate them."""
    with ZipFile(path) as archive:
        for info in archive.infolist():
            with archive.open(info) as member:
                form = np.lib.format
                first = form.read_magic(member) == (1, 0)
                shape, _, dtype = (form.read_array_header_1_0 if first else form.read_array_header_2_0)(member)
            packed = info.file_size > DEFLATED * (info.compress_size + 1)
            if packed or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > info.file_size:
                raise ValueError(
                    f"{info.filename} declares {dtype} of shape {shape}, more than its {info.compress_size} bytes hold"
                )


def _images(archive: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    if "n_chunks" not in archive:
        return archive["images"]
    pillow = optional("PIL.Image", "records.npz", "vision")
    shape = tuple(int(length) for length in archive["shape"])
    strips = []
    for i in range(int(archive["n_chunks"])):
        with pillow.open(io.BytesIO(archive[f"webp_{i:03d}"].tobytes())) as strip:
            strips.append(np.asarray(strip).reshape(-1, *shape[1:]))
    return np.concatenate(strips).reshape(shape)


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
    images = np.concatenate([np.asarray(half.data) for half in opened])
    labels = np.concatenate([np.asarray(half.targets) for half in opened])
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
