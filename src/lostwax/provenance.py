"""Where a number comes from: versions, machine, and hashes of what it was computed on."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

PACKAGES = ("lostwax", "torch", "numpy", "scikit-learn", "scipy")


def versions() -> dict[str, str]:
    """The version of Python and of each package that can change a number; absent packages are left out."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> str:
    """The processor and the accelerators, in words."""
    words = f"{os.cpu_count()} cores of {_processor()}"
    torch = sys.modules.get("torch")  # whoever has used a GPU has imported torch already
    if torch is not None and torch.cuda.is_available():
        words += f", {torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
    return words


def fingerprint(*arrays: Tensor) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of the arrays' shapes, dtypes and bytes."""
    import torch

    digest = hashlib.sha256()
    for array in arrays:
        values = array.detach().cpu().contiguous()
        digest.update(f"{str(values.dtype).removeprefix('torch.')}{tuple(values.shape)}".encode())
        digest.update(values.flatten().view(torch.uint8).numpy().data)  # bytes, for numpy does not know every dtype
    return digest.hexdigest()[:16]


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
