"""How the models of a game lie in zarr: weights (models, p), and the secrets' rows in the prior (models, k).

Both arrays are declared far longer than anybody will fill them, so that no file ever has to be changed: the chunks that
are there are the truth. crc32c, a codec of zarr's, tells a whole chunk from a damaged one, but not from another chunk:
so two columns beside the rows are marks, hashes of the shelf, the chunk's number, and its weights or its rows. Shelves
of stores of version 1 have no marks.
"""

from __future__ import annotations

import math
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lostwax.types import Release

if TYPE_CHECKING:
    import zarr
    from zarr.abc.store import Store as ZarrStore

MOST_MODELS = 2**40
NO_ROW = -1
MARKS = 2  # of the weights, and of the rows
_DTYPES = {torch.float16: "float16", torch.float32: "float32", torch.float64: "float64"}


class Layout(NamedTuple):
    """What one model is made of, and how many make a chunk."""

    parameters: dict[str, list[int]]  # shapes, in the order in which they lie side by side
    dtype: str
    secrets: int  # k
    chunk: int
    marks: int = 0

    @classmethod
    def of(cls, release: Release, secrets: int, marks: int = MARKS) -> Layout:
        """The layout of models like these, one chunk of them."""
        dtypes = {value.dtype for value in release.params.values()}
        if len(dtypes) != 1 or not dtypes <= set(_DTYPES):
            raise ValueError(
                f"Store: expected all parameters of a model in one dtype of {', '.join(_DTYPES.values())}, got "
                f"{', '.join(sorted(map(str, dtypes)))}. Cast what the trainer releases, or leave store out."
            )
        shapes = {name: list(value.shape[1:]) for name, value in release.params.items()}
        return cls(shapes, _DTYPES[dtypes.pop()], secrets, len(release), marks)

    def words(self) -> dict[str, Any]:
        """As it is stored; an older lostwax finds nothing that it does not know where there are no marks."""
        held = self._asdict()
        return held if self.marks else {name: value for name, value in held.items() if name != "marks"}

    def split(self, flat: Tensor) -> Release:
        """The inverse of `Release.flat`."""
        pieces = torch.split(flat, [math.prod(shape) for shape in self.parameters.values()], 1)  # (m, size) each
        named = zip(self.parameters.items(), pieces, strict=True)
        return Release({name: piece.reshape(-1, *shape) for (name, shape), piece in named})

    def weights(self, store: ZarrStore, folder: str) -> zarr.Array[Any]:
        """Declare the weights, (models, p)."""
        width = sum(math.prod(shape) for shape in self.parameters.values())
        return self._declare(store, f"{folder}/weights", width, self.dtype, math.nan)

    def rows(self, store: ZarrStore, folder: str) -> zarr.Array[Any]:
        """Declare the rows, (models, k + marks)."""
        return self._declare(store, f"{folder}/rows", self.secrets + self.marks, "int64", NO_ROW)

    def _declare(self, store: ZarrStore, name: str, width: int, dtype: str, empty: float) -> zarr.Array[Any]:
        import zarr
        from zarr.codecs import Crc32cCodec

        return zarr.create_array(
            store,
            name=name,
            shape=(MOST_MODELS, width),
            chunks=(self.chunk, width),
            dtype=dtype,
            fill_value=empty,
            compressors=[Crc32cCodec()],
            chunk_key_encoding={"name": "v2", "separator": "."},  # chunk 17 is the file 17.0
            config={"write_empty_chunks": True},  # presence is the truth, whatever a chunk holds
        )


def mark(folder: str, part: str, number: int, content: NDArray[Any]) -> int:
    """By which a chunk is known in its place: a hash of the shelf, the array, the number and the bytes."""
    digest = blake2b(f"{folder}/{part}/{number}".encode(), digest_size=8)
    digest.update(np.ascontiguousarray(content).data.cast("B"))
    return int.from_bytes(digest.digest(), "little", signed=True)
