"""Weights on disk, without pickle."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor


def read_tensors(source: str, path: Path, device: str = "cpu") -> dict[str, Tensor]:
    """The tensors of a safetensors file, by name."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path, device=device)
    except (OSError, SafetensorError) as error:
        raise ValueError(
            f"{source}: {path} cannot be read as a safetensors file ({error}). Delete it or fetch it anew."
        ) from error


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write all or nothing: a reader never meets half a file."""
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, partial)
    partial.replace(path)
