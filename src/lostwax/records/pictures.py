"""Images from arrays and files."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from difflib import get_close_matches
from importlib import import_module
from itertools import islice
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from lostwax.games import Records


def optional(module: str, source: str, extra: str) -> ModuleType:
    """Import an optional dependency; the error names the command that installs it."""
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise  # the package is installed but broken
        raise ModuleNotFoundError(f"{source} needs {package}: pip install 'lostwax[{extra}]'", name=package) from error


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
    images = [_read(source, path, "L" if channels == 1 else "RGB", size) for path in paths]
    for path, image in zip(paths, images, strict=True):
        if image.shape != images[0].shape:
            (height, width), (other_height, other_width) = image.shape[:2], images[0].shape[:2]
            raise ValueError(
                f"{source}: images must have the same size, but {path} is {width} x {height} and "
                f"{paths[0]} is {other_width} x {other_height}: pass size= to scale all of them."
            )
    return np.stack(images)  # (n, h, w) or (n, h, w, 3)


def _read(source: str, path: Path, mode: str, size: int | None) -> NDArray[np.uint8]:
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


def check_choice(what: str, got: Hashable, choices: Sequence[Hashable]) -> None:
    """Raise ValueError for a name that is not among the choices, and suggest the nearest."""
    if got in choices:
        return
    near = get_close_matches(str(got), [str(choice) for choice in choices], n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"{what}: expected one of {listing(map(repr, choices))}, got {got!r}.{hint}")


LISTED = 12  # names in an error message


def listing(items: Iterable[str]) -> str:
    """The first few items, then how many more there are."""
    remaining = iter(items)
    shown = ", ".join(islice(remaining, LISTED))
    more = sum(1 for _ in remaining)
    return f"{shown} and {more} more" if more else shown
