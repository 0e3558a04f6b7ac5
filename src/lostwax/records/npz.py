"""Images in a pickle-free .npz: `images`, or lossless WebP strips if they would be too large."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Literal
from zipfile import ZipFile, is_zipfile

import numpy as np
from numpy.typing import NDArray

from lostwax.games import Records
from lostwax.records.pictures import check_choice, from_pixels, optional

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
