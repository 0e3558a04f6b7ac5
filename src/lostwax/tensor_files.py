"""Weights on disk, without pickle."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from lostwax import files


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


def write_tensors(path: Path, tensors: Mapping[str, Tensor], *, source: str = "write_tensors") -> None:
    """Write all or nothing, for the owner alone to read: a reader never meets half a file."""
    content = as_bytes(tensors)
    files.make_folder(source, path.parent)
    files.write(path, content, source=source, private=True)


def as_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """A safetensors file."""
    from safetensors.torch import save

    return save({name: value.detach().cpu().contiguous() for name, value in tensors.items()})
