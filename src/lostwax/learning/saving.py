"""A prepared reconstructor on disk: its tensors (safetensors) and its words (JSON), in one folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lostwax import files
from lostwax.files import as_bytes, read_tensors
from lostwax.provenance import fingerprint, versions

TENSORS, WORDS = "reconstructor.safetensors", "reconstructor.json"


class SavedFolder(NamedTuple):
    """What was saved."""

    words: dict[str, Any]
    tensors: dict[str, Tensor]

    @classmethod
    def read(cls, source: str, folder: str | Path, device: torch.device) -> SavedFolder:
        """The tensors on the device, and the words; `source` is who asks."""
        folder = files.named(source, folder)
        if not (folder / TENSORS).is_file() or not (folder / WORDS).is_file():
            raise FileNotFoundError(
                f"{source}: {folder} holds no {TENSORS} and {WORDS}. Name a folder that save wrote."
            )
        try:
            words = json.loads((folder / WORDS).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{source}: {folder / WORDS} is damaged ({error}). Save it again.") from error
        tensors = read_tensors(source, folder / TENSORS, str(device))
        if not isinstance(words, dict) or words.get("tensors", _mark(tensors)) != _mark(tensors):
            raise ValueError(
                f"{source}: {folder / WORDS} does not belong to the {TENSORS} beside it: saving was cut short, or one "
                "of them was replaced. Save it again."
            )
        return cls(words, tensors)

    def write(self, folder: str | Path) -> Path:
        """The folder, made where it is not there; the versions of all that had a part in it are added."""
        folder = files.named("save", folder)
        words = {**self.words, "versions": versions(), "tensors": _mark(self.tensors)}
        files.make_folder("save", folder)
        files.sweep(folder)
        with (
            files.Draft(folder / TENSORS, as_bytes(self.tensors), source="save", private=True) as tensors,
            files.Draft(folder / WORDS, json.dumps(words, indent=2) + "\n", source="save") as text,
        ):
            tensors.publish()  # both are whole by now
            text.publish()
        return folder

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin so, without the beginning."""
        return part(self.tensors, prefix)


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Those whose names begin so, without the beginning."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _mark(tensors: Mapping[str, Tensor]) -> str:
    """By which words and tensors of one save know each other."""
    return fingerprint(*(tensors[name] for name in sorted(tensors)))
