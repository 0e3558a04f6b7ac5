"""Values in words that outlive the process: no address in memory, and a fingerprint in place of every tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import PurePath
from types import BuiltinFunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lostwax.provenance import fingerprint

_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, PurePath, torch.dtype, torch.device)


def plain(value: object) -> str | None:
    """A value that has no parts; None for all others."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc":
        value = torch.from_numpy(value) if isinstance(value, np.ndarray) else value.item()
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)} #{fingerprint(value)}"
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, BuiltinFunctionType) and isinstance(value.__self__, ModuleType | type | None):
        return f"{value.__module__}.{value.__qualname__}"  # torch.relu
    return None


def parts(value: Any) -> dict[str, object] | None:
    """What a value is made of, by name; None for a kind of value that does not say."""
    if isinstance(value, partial):
        return {"func": value.func, "args": value.args, "keywords": value.keywords}
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): held for name, held in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return dict(value._asdict())
    if isinstance(value, tuple | list):
        return {str(place): held for place, held in enumerate(value)}
    return None
