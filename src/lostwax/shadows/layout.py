"""How the models of one game are laid out in a store.

Each game has two zarr arrays: weights (models, p), and the secrets' rows in the prior (models, k).

Both are declared far longer than will ever be filled, so that no file has to be changed later: a chunk is stored if
and only if its file exists. zarr's crc32c codec detects damaged chunks; swapped ones are detected by two more columns
next to the rows, hashes of the game, the chunk's number, and its weights or its rows.
"""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.games import Release
from lostwax.trainers.stacked import shaped, shapes_of

if TYPE_CHECKING:
    import zarr
    from zarr.abc.store import Store as ZarrStore

MAX_MODELS = 2**40
NO_ROW = -1
HASH_COLUMNS = 2  # for the weights, and for the rows
_DTYPES = {torch.float16: "float16", torch.float32: "float32", torch.float64: "float64"}


class Layout(NamedTuple):
    """The shapes of one model, and the number of models per chunk. The field names are stored."""

    parameters: dict[str, list[int]]  # shapes, in the order of concatenation
    dtype: str
    secrets: int  # k
    chunk: int
    marks: int = HASH_COLUMNS  # next to the rows

    @classmethod
    def of(cls, release: Release, secrets: int) -> Layout:
        """The layout of one chunk of these models."""
        dtypes = {value.dtype for value in release.params.values()}
        if len(dtypes) != 1 or not dtypes <= set(_DTYPES):
            raise ValueError(
                f"Store: expected all parameters of a model in one dtype of {', '.join(_DTYPES.values())}, got "
                f"{', '.join(sorted(map(str, dtypes)))}. Cast the trainer's release, or leave store out."
            )
        shapes = {name: list(shape) for name, shape in shapes_of(release.params).items()}
        return cls(shapes, _DTYPES[dtypes.pop()], secrets, len(release))

    def split(self, flat: Tensor) -> Release:
        """The inverse of `Release.flat`."""
        return Release(shaped(flat, self.parameters))

    def declare(self, store: ZarrStore, folder: str, part: str) -> zarr.Array[Any]:
        """Declare the array of "weights", (models, p), or of "rows", (models, k + marks)."""
        import zarr
        from zarr.codecs import Crc32cCodec

        weights = part == "weights"
        width = sum(map(math.prod, self.parameters.values())) if weights else self.secrets + self.marks
        return zarr.create_array(
            store,
            name=f"{folder}/{part}",
            shape=(MAX_MODELS, width),
            chunks=(self.chunk, width),
            dtype=self.dtype if weights else "int64",
            fill_value=math.nan if weights else NO_ROW,
            compressors=[Crc32cCodec()],
            chunk_key_encoding={"name": "v2", "separator": "."},  # chunk 17 is the file 17.0
            config={"write_empty_chunks": True},  # a chunk is stored iff its file exists, whatever it holds
        )


def chunk_hash(folder: str, part: str, number: int, content: NDArray[Any]) -> int:
    """A hash of the game's folder, the array's name, the chunk's number and its bytes."""
    digest = blake2b(f"{folder}/{part}/{number}".encode(), digest_size=8)
    digest.update(np.ascontiguousarray(content).data.cast("B"))
    return int.from_bytes(digest.digest(), "little", signed=True)
