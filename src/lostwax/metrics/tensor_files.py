"""Weights on disk, without pickle."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from lostwax.records.optional import optional


def read_tensors(source: str, path: Path, device: str = "cpu") -> dict[str, Tensor]:
    """The tensors of a safetensors file, by name."""
    library = optional("safetensors", source, "vision")
    try:
        found: dict[str, Tensor] = optional("safetensors.torch", source, "vision").load_file(path, device=device)
    except (OSError, library.SafetensorError) as error:
        raise ValueError(
            f"{source}: {path} cannot be read as a safetensors file ({error}). Delete it or fetch it anew."
        ) from error
    return found


def write_tensors(source: str, path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write all or nothing: a reader never meets half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    kept = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    optional("safetensors.torch", source, "vision").save_file(kept, partial)
    partial.replace(path)
