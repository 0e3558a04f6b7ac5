"""Images from arrays, folders and .npz archives, and well-known data sets.

These are read from archives or torchvision's files in `root` (default: the directory LOSTWAX_DATA).
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from itertools import islice
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any, Literal
from zipfile import ZipFile, is_zipfile

import numpy as np
import torch
from numpy.typing import NDArray

from lostwax.games import Records

Part = Literal["train", "test", "all"]
Root = str | PathLike[str] | None
PARTS = ("train", "test", "all")
MAX_RATIO, ANY_RATIO = 100, 1 << 26  # an archive grows at most so many times, or to so many bytes
MAX_LISTED = 12  # names in an error message


def optional(module: str, source: str, extra: str) -> ModuleType:
    """Import an optional dependency; the error names the command that installs it."""
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise  # the package is installed but broken
        raise ModuleNotFoundError(f"{source} needs {package}: pip install 'lostwax[{extra}]'", name=package) from error


def check_choice(what: str, got: Hashable, choices: Sequence[Hashable]) -> None:
    """Raise ValueError for a name that is not among the choices, and suggest the nearest."""
    if got in choices:
        return
    near = get_close_matches(str(got), [str(choice) for choice in choices], n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"{what}: expected one of {listing(map(repr, choices))}, got {got!r}.{hint}")


def listing(items: Iterable[str]) -> str:
    """The first few items, then how many more there are."""
    remaining = iter(items)
    shown = ", ".join(islice(remaining, MAX_LISTED))
    more = sum(1 for _ in remaining)
    return f"{shown} and {more} more" if more else shown


def from_pixels(source: str, images: NDArray[Any], labels: NDArray[Any]) -> Records:
    """Pixels 0..255 as float32 in [0, 1], channels first; labels as class numbers."""
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or images.shape[3:] not in ((), (1,), (3,)):
        raise ValueError(
            f"{source}: images must be uint8 of shape (n, height, width) or (n, height, width, 1 or 3), "
            f"got {images.dtype} of shape {images.shape}."
        )
    if labels.dtype.kind not in "iu" or labels.shape != images.shape[:1]:
        raise ValueError(
            f"{source}: labels must be integers, one per image: expected shape {images.shape[:1]}, "
            f"got {labels.dtype} of shape {labels.shape}."
        )
    if images.size == 0:
        raise ValueError(f"{source}: expected at least one image, got shape {images.shape}.")
    if labels.min() < 0:
        raise ValueError(f"{source}: labels must be 0 or more, but that of image {int((labels < 0).argmax())} is not.")
    pixels = np.moveaxis(images.reshape(*images.shape[:3], -1), -1, 1)  # (n, channels, h, w)
    x = torch.from_numpy(np.ascontiguousarray(pixels)).float().div_(255)
    return Records(x=x, y=torch.from_numpy(labels.astype(np.int64)))


def read_images(source: str, paths: Sequence[Path], *, channels: int, size: int | None) -> NDArray[np.uint8]:
    """Image files as one array; with `size`, each is scaled and cropped to a central square of that side."""
    if channels not in (1, 3):
        raise ValueError(f"{source}: channels must be 1 (grey) or 3 (RGB), got {channels!r}.")
    if size is not None and (not isinstance(size, int) or size < 1):
        raise ValueError(f"{source}: size must be a whole number of pixels of at least 1, got {size!r}.")
    images = [_read_image(source, path, "L" if channels == 1 else "RGB", size) for path in paths]
    for path, image in zip(paths, images, strict=True):
        if image.shape != images[0].shape:
            (height, width), (other_height, other_width) = image.shape[:2], images[0].shape[:2]
            raise ValueError(
                f"{source}: images must have the same size, but {path} is {width} x {height} and "
                f"{paths[0]} is {other_width} x {other_height}: pass size= to scale all of them."
            )
    return np.stack(images)  # (n, h, w) or (n, h, w, 3)


def _read_image(source: str, path: Path, mode: str, size: int | None) -> NDArray[np.uint8]:
    pillow, operations = optional("PIL.Image", source, "vision"), optional("PIL.ImageOps", source, "vision")
    try:
        with pillow.open(path) as image:
            depth = image.mode
            converted = image.convert(mode)
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(f"{source}: {path} cannot be read as an image ({error}).") from error
    if depth[0] in "IF":  # the conversion would clip at 255
        raise ValueError(f"{source}: {path} holds pixels of more than 8 bits (mode {depth}): scale it to 0..255 first.")
    return np.asarray(converted if size is None else operations.fit(converted, (size, size)))


def folder(path: str | PathLike[str], *, size: int | None = None, channels: Literal[1, 3] = 3) -> Records:
    """A folder of images with one sub-folder per class; sorted by name, these are classes 0, 1, ...

    Images must have the same size; with `size`, each is scaled and cropped to a central square of that side.
    """
    source, top = "records.folder", Path(path)
    if not top.is_dir():
        raise FileNotFoundError(f"{source}: {top} is not a directory.")
    classes = [entry for entry in _visible(top) if entry.is_dir()]
    if not classes:
        raise ValueError(f"{source}: {top} must hold one sub-folder per class, got none.")
    files = [_visible(entry) for entry in classes]
    for entry, class_files in zip(classes, files, strict=True):
        if not class_files:
            raise ValueError(f"{source}: {entry} is a class without images: add some or remove it.")
    labels = np.repeat(np.arange(len(classes)), [len(class_files) for class_files in files])
    images = read_images(source, [file for class_files in files for file in class_files], channels=channels, size=size)
    return from_pixels(source, images, labels)


def _visible(directory: Path) -> list[Path]:
    return sorted(entry for entry in directory.iterdir() if not entry.name.startswith("."))


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
    """Raise ValueError if an array declares more numbers than the file holds or can sensibly be packed into it."""
    with ZipFile(path) as archive:
        _check_growth(sum(info.file_size for info in archive.infolist()), Path(path).stat().st_size)
        for info in archive.infolist():
            with archive.open(info) as member:
                form = np.lib.format
                first = form.read_magic(member) == (1, 0)
                shape, _, dtype = (form.read_array_header_1_0 if first else form.read_array_header_2_0)(member)
            if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > info.file_size:
                raise ValueError(
                    f"{info.filename} declares {dtype} of shape {shape}, more than its {info.compress_size} bytes hold"
                )


def _check_growth(unpacked: int, packed: int) -> None:
    """Raise ValueError for a small file that would fill the memory."""
    if unpacked > max(ANY_RATIO, MAX_RATIO * packed):
        raise ValueError(
            f"its {packed:,} bytes unpack to {unpacked:,}, over {MAX_RATIO} times as many; if this is right, write "
            "them with numpy.savez, without compression"
        )


def _images(archive: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    if "n_chunks" not in archive:
        return archive["images"]
    pillow = optional("PIL.Image", "records.npz", "vision")
    shape = tuple(int(length) for length in archive["shape"])
    packed = [archive[f"webp_{i:03d}"].tobytes() for i in range(int(archive["n_chunks"]))]
    unpacked = 0
    for content in packed:
        with pillow.open(io.BytesIO(content)) as strip:  # reads only its size
            unpacked += strip.width * strip.height * len(strip.getbands())
    _check_growth(unpacked, sum(map(len, packed)))
    strips = []
    for content in packed:
        with pillow.open(io.BytesIO(content)) as strip:
            strips.append(np.asarray(strip).reshape(-1, *shape[1:]))
    return np.concatenate(strips).reshape(shape)


def _read(name: str, dataset: str, part: Part, root: Root, download: bool) -> Records:
    """The archive `name`.npz if it exists, else torchvision's data set; its failures are one error with the cures."""
    source, archive = f"records.{name}", f"{name}.npz"
    check_choice(f"{source}: part", part, PARTS)
    directory = find_directory(source, [archive], root)
    if (directory / archive).is_file():
        return npz(directory / archive, part)
    make = getattr(optional("torchvision.datasets", source, "vision"), dataset)
    halves = (True, False) if part == "all" else (part == "train",)
    try:
        opened = [make(directory, train=train, download=download) for train in halves]
    except (RuntimeError, OSError, ValueError, AssertionError) as error:
        missing = "" if directory.is_dir() else " (no such directory)"
        raise FileNotFoundError(
            f"{source} looked in {directory}{missing} for {_files([archive])}, but found none that "
            f"can be read (torchvision: {error}). Set the environment variable LOSTWAX_DATA or root= to the directory "
            "that holds them, or pass download=True."
        ) from error
    images, labels = (np.concatenate([np.asarray(getattr(half, of)) for half in opened]) for of in ("data", "targets"))
    return from_pixels(source, images, labels)


def find_directory(source: str, archives: Sequence[str], root: Root) -> Path:
    """`root`, else the directory LOSTWAX_DATA."""
    directory = os.environ.get("LOSTWAX_DATA") if root is None else root
    if not directory:
        raise FileNotFoundError(
            f"{source} has no directory in which to look for {_files(archives)}. Pass root=, or set the environment "
            "variable LOSTWAX_DATA. With download=True torchvision downloads its files there."
        )
    return Path(directory).expanduser()


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


def cifar10(part: Part = "train", *, root: Root = None, download: bool = False) -> Records:
    """CIFAR-10 (Krizhevsky 2009): RGB, 32 x 32; 50,000 for training and 10,000 for testing. `cifar10.npz`."""
    return _read("cifar10", "CIFAR10", part, root, download)


def cifar100(part: Part = "train", *, root: Root = None, download: bool = False) -> Records:
    """CIFAR-100 with its 100 fine classes, else as CIFAR-10. Archive: `cifar100.npz`."""
    return _read("cifar100", "CIFAR100", part, root, download)
