"""The training set of a torch net, as it comes from a user, as records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from lostwax.adapters.sklearn import inputs
from lostwax.types import Records


def read_table(data: Any, dtype: torch.dtype) -> Records:
    """(X, y) in the trainer's dtype; whole numbers in y are classes."""
    if isinstance(data, Records):
        plain = data.detached().to(dtype)
        return replace(plain, x=plain.x.to(dtype)) if not plain.x.is_floating_point() else plain
    X, y = inputs.unpack(data)
    x = torch.from_numpy(inputs.features(X)).to(dtype)
    labels = inputs.targets(y, len(x))
    if labels.dtype.kind not in "iubf":
        raise TypeError(
            f"audit: expected class numbers or targets in y, got {labels.dtype}. Number the classes from 0."
        )
    target = torch.from_numpy(labels.astype("float64" if labels.dtype.kind == "f" else "int64"))
    return Records(x, target).to(dtype)
