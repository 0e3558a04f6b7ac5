"""Class numbers as indicator columns."""

from __future__ import annotations

import torch
from torch import Tensor


def indicators(y: Tensor, outputs: Tensor) -> Tensor:
    """One column an output: 1 in the column of the record's class, else 0; with a single output, y itself.

    Written as a comparison, not a scatter, so that it maps over any leading axes and under vmap.
    """
    if outputs.shape[-1] == 1:
        return y.unsqueeze(-1).to(outputs.dtype)  # (..., n, 1)
    classes = torch.arange(outputs.shape[-1], device=y.device).unsqueeze(-1)  # (c, 1)
    mine = (classes == y.unsqueeze(-2)).to(outputs.dtype)  # (..., c, n) records last in memory, as stacked outputs lie
    return mine.mT  # (..., n, c)
