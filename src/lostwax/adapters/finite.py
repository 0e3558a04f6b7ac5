"""Released weights that are not numbers: refused before anything is computed with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn


def check_finite(name: str, values: Any) -> None:
    """Raise where an array or tensor of a release holds NaN or infinity: nothing could be told from it."""
    array = values.detach().double().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
    bad = int((~np.isfinite(array)).sum())
    if bad:
        held = "1 value that is" if bad == 1 else f"{bad} values that are"
        raise ValueError(
            f"audit: {name} holds {held} NaN or infinite: training diverged, or the file is damaged. Train the model "
            "again, or load it anew."
        )


def check_finite_net(net: nn.Module) -> None:
    """The same of every weight and buffer of a net."""
    for name, value in net.state_dict().items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            check_finite(name, value)
