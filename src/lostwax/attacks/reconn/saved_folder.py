"""A prepared reconstructor on disk: its tensors (safetensors) and its words (JSON), in one folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lostwax.provenance import versions
from lostwax.tensor_files import read_tensors, write_tensors

TENSORS, WORDS = "reconstructor.safetensors", "reconstructor.json"


class SavedFolder(NamedTuple):
    """What was saved."""

    words: dict[str, Any]
    tensors: dict[str, Tensor]

    @classmethod
    def read(cls, source: str, folder: str | Path, device: torch.device) -> SavedFolder:
        """The tensors on the device, and the words; `source` is who asks."""
        folder = Path(folder)
        if not (folder / TENSORS).is_file() or not (folder / WORDS).is_file():
            raise FileNotFoundError(
                f"{source}: {folder} holds no {TENSORS} and {WORDS}. Name a folder that save wrote."
            )
        words = json.loads((folder / WORDS).read_text())
        return cls(words, read_tensors(source, folder / TENSORS, str(device)))

    def write(self, folder: str | Path) -> Path:
        """The folder, made where it is not there; the versions of all that had a part in it are added."""
        folder = Path(folder)
        write_tensors(folder / TENSORS, self.tensors)
        (folder / WORDS).write_text(json.dumps({**self.words, "versions": versions()}, indent=2) + "\n")
        return folder

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin so, without the beginning."""
        return part(self.tensors, prefix)


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Those whose names begin so, without the beginning."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
