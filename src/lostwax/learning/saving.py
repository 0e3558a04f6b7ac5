"""A prepared reconstructor on disk: a folder with its tensors (safetensors) and settings (JSON)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lostwax import files
from lostwax.files import as_bytes, read_tensors
from lostwax.learning.decoders import Span
from lostwax.learning.standardise import Standardise
from lostwax.learning.training import ErrorLine
from lostwax.provenance import fingerprint, versions

TENSORS, WORDS = "reconstructor.safetensors", "reconstructor.json"


class Calibration(NamedTuple):
    """What every saved reconstructor has besides its nets."""

    standardise: Standardise
    span: Span
    error_line: ErrorLine
    validation_error: float


class SavedFolder(NamedTuple):
    """The contents of the folder."""

    words: dict[str, Any]
    tensors: dict[str, Tensor]

    @classmethod
    def of(
        cls, words: dict[str, Any], tensors: dict[str, Tensor], calibration: Calibration, *, scale: str
    ) -> SavedFolder:
        """With the calibration's own words and tensors; `scale` is the prefix of those that standardise."""
        standardise, span, error_line, validation_error = calibration
        scales = {f"{scale}.{name}": getattr(standardise, name) for name in ("kept", "mean", "deviation")}
        spans = {f"span.{name}": getattr(span, name) for name in ("shift", "scale")}
        ours = {"features": standardise.features, "reach": standardise.reach, "bounded": span.bounded}
        errors = {"error_line": error_line, "validation_error": validation_error}
        return cls({**words, **ours, **errors}, {**tensors, **scales, **spans})

    @classmethod
    def read(cls, source: str, folder: str | Path, device: torch.device) -> SavedFolder:
        """Read a folder, with tensors on the device; errors name `source`."""
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
        if not isinstance(words, dict) or words.get("tensors") != _mark(tensors):
            raise ValueError(
                f"{source}: {folder / WORDS} does not belong to the {TENSORS} beside it: saving was cut short, or one "
                "of them was replaced. Save it again."
            )
        return cls(words, tensors)

    def write(self, folder: str | Path) -> Path:
        """Write the folder, with the versions of lostwax and its dependencies."""
        folder = files.named("save", folder)
        words = {**self.words, "versions": versions(), "tensors": _mark(self.tensors)}
        files.make_folder("save", folder)
        files.sweep(folder)
        with (
            files.Draft(folder / TENSORS, as_bytes(self.tensors), source="save", private=True) as tensors,
            files.Draft(folder / WORDS, json.dumps(words, indent=2) + "\n", source="save") as text,
        ):
            tensors.publish()  # both drafts are complete
            text.publish()
        return folder

    def calibration(self, *, scale: str) -> Calibration:
        """What `of` put in."""
        words, tensors = self
        feature_numbers, mean, deviation = (tensors[f"{scale}.{name}"] for name in ("kept", "mean", "deviation"))
        return Calibration(
            Standardise(feature_numbers, mean, deviation, words["features"], words["reach"]),
            Span(tensors["span.shift"], tensors["span.scale"], words["bounded"]),
            ErrorLine(*words["error_line"]),
            words["validation_error"],
        )


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names have this prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def check_same(subject: str, before: Mapping[str, Any], now: Mapping[str, Any], cure: str) -> None:
    """Raise a ValueError if a reconstructor made with other settings (`before`) is to be used with these."""
    for name, value in now.items():
        if before[name] != value:
            raise ValueError(f"{subject} with {name} {before[name]}, but this is {value}. {cure} the same {name}.")


def _mark(tensors: Mapping[str, Tensor]) -> str:
    """A fingerprint by which the settings refer to the tensors saved with them."""
    return fingerprint(*(tensors[name] for name in sorted(tensors)))
