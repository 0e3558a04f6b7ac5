"""The embedded default: real handwritten digits that come with scikit-learn."""

from __future__ import annotations

import torch

from lostwax.types import Records


def digits() -> Records:
    """The 1,797 digits of 8 x 8 pixels (grey levels 0..16, here in [0, 1])."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x = torch.from_numpy(bunch.images).float().div_(16).unsqueeze(1)  # (n, 1, 8, 8)
    return Records(x=x, y=torch.from_numpy(bunch.target).long())
