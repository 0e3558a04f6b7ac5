"""Which nets have a fused gradient."""

from __future__ import annotations

from importlib.util import find_spec

import torch

from lostwax.trainers.fused.cnn import FusedCNN
from lostwax.trainers.fused.mlp import FusedMLP
from lostwax.trainers.stacked import Architecture, Gradient
from lostwax.types import Loss


def fused(net: Architecture, loss: Loss, dtype: torch.dtype, device: torch.device) -> Gradient | None:
    """The fast gradient where there is one: on a GPU, with Triton, for a net that a kernel knows.

    It has no derivative: what differentiates through training uses `stacked.gradient`.
    """
    if device.type != "cuda" or find_spec("triton") is None:
        return None
    return FusedMLP.of(net, loss, dtype) or FusedCNN.of(net, loss, dtype)
