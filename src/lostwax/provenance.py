"""Provenance of results: versions, machine, and fingerprints of the data."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

PACKAGES = ("torch", "numpy", "scikit-learn", "scipy")
BUILD = ("lostwax", "code", "torch", "numpy")  # what must be equal where models are trained together
NOT_STATED = "not stated"


def versions() -> dict[str, str]:
    """The versions of Python, of lostwax and of the installed packages that can change a result."""
    from lostwax import __version__  # of the code that runs, whatever an earlier installation says

    packages = {"python": platform.python_version(), "lostwax": __version__}
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            packages[package] = metadata.version(package)
    return packages


@cache
def build() -> dict[str, str]:
    """The versions that determine a shadow model, and a digest of the code of lostwax: an edited copy has it too."""
    digest, folder = hashlib.sha256(), Path(__file__).parent
    for file in sorted(folder.rglob("*.py")):
        digest.update(f"{file.relative_to(folder).as_posix()} {hashlib.sha256(file.read_bytes()).hexdigest()}".encode())
    return build_of({**versions(), "code": digest.hexdigest()[:16]})


def build_of(made_with: Mapping[str, str]) -> dict[str, str]:
    """The part of these versions that is compared; the same torch for other devices (2.8.0+cpu) is no difference."""
    return {name: made_with.get(name, NOT_STATED).partition("+")[0] for name in BUILD}


def differences(made_with: Mapping[str, str], owner: str) -> str:
    """How these versions differ from those of this process, in words."""
    theirs, ours = build_of(made_with), build()
    unlike = [f"{name}: {owner} has {theirs[name]}, this run has {ours[name]}" for name in BUILD]
    return "; ".join(text for name, text in zip(BUILD, unlike, strict=True) if theirs[name] != ours[name])


def machine() -> str:
    """A description of the CPU and the GPUs."""
    text = f"{os.cpu_count()} cores of {_processor()}"
    torch = sys.modules.get("torch")  # if a GPU was used, torch has been imported
    if torch is not None and torch.cuda.is_available():
        text += f", {torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
    return text


def fingerprint(*arrays: Tensor) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of the arrays' shapes, dtypes and bytes."""
    import torch

    digest = hashlib.sha256()
    for array in arrays:
        values = array.detach().cpu().contiguous()
        digest.update(f"{str(values.dtype).removeprefix('torch.')}{tuple(values.shape)}".encode())
        digest.update(values.flatten().view(torch.uint8).numpy().data)  # as bytes: numpy lacks some dtypes
    return digest.hexdigest()[:16]


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
