"""Real files in the formats that the sources read, and where the real sets lie."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image


@pytest.fixture(autouse=True)
def _no_data_directory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "real_data" not in request.fixturenames:
        monkeypatch.delenv("LOSTWAX_DATA", raising=False)


@pytest.fixture
def real_data() -> Path:
    beside_the_repository = Path(__file__).resolve().parents[3] / "shared" / "data"
    directory = Path(os.environ.get("LOSTWAX_DATA") or beside_the_repository)
    if not (directory / "mnist.npz").is_file():
        pytest.skip(f"the real image sets are not in {directory}: set LOSTWAX_DATA")
    return directory


@pytest.fixture
def pixels() -> Callable[..., NDArray[np.uint8]]:
    """Random images that begin with the darkest and end with the brightest pixel."""

    def make(*shape: int) -> NDArray[np.uint8]:
        images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        images.flat[0], images.flat[-1] = 0, 255
        return images

    return make


@pytest.fixture
def write_idx() -> Callable[[Path, NDArray[np.uint8]], None]:
    """The format of MNIST's own files: type and number of axes, their lengths, then the bytes."""

    def write(path: Path, values: NDArray[np.uint8]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        lengths = b"".join(length.to_bytes(4, "big") for length in values.shape)
        path.write_bytes(bytes([0, 0, 8, values.ndim]) + lengths + values.tobytes())

    return write


@pytest.fixture
def strips() -> Callable[[NDArray[np.uint8], int], dict[str, NDArray[np.generic]]]:
    """RGB images as lossless WebP strips of `each` images, the second format of the .npz archives."""

    def encode(images: NDArray[np.uint8], each: int) -> dict[str, NDArray[np.generic]]:
        entries: dict[str, NDArray[np.generic]] = {"shape": np.array(images.shape)}
        for i, start in enumerate(range(0, len(images), each)):
            buffer, width = io.BytesIO(), images.shape[2]
            picture = Image.fromarray(images[start : start + each].reshape(-1, width, 3))
            picture.save(buffer, "WEBP", lossless=True, exact=True)
            entries[f"webp_{i:03d}"] = np.frombuffer(buffer.getvalue(), np.uint8)
            entries["n_chunks"] = np.array(i + 1)
        return entries

    return encode
