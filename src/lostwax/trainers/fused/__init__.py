"""Gradients of stacked nets near the speed of their products, by Triton kernels on a GPU."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import nn

from lostwax.games import Loss
from lostwax.trainers.fused.cnn import FusedCNN
from lostwax.trainers.fused.mlp import FusedMLP
from lostwax.trainers.stacked import Architecture, Gradient

__all__ = ["fused"]


def fused(net: Architecture, loss: Loss, dtype: torch.dtype, device: torch.device) -> Gradient | None:
    """The fast gradient where there is one: on a GPU, with Triton, for a net that a kernel knows.

    It has no derivative: what differentiates through training uses `stacked.gradient`.
    """
    if device.type != "cuda" or find_spec("triton") is None:
        return None
    return FusedMLP.of(net, loss, dtype) or _proven(FusedCNN.of(net, loss, dtype))


def _proven(cnn: FusedCNN | None) -> FusedCNN | None:
    """Only convolutions of a kind that was seen to be right on a GPU: channels by the eight, and no padding.

    Triton 3.6 was seen to compile the loads of padded 3 x 3 windows of four channels wrongly for Hopper: the same code
    is right in its interpreter, and for other windows.
    """
    if cnn is None:
        return None
    convolutions = [layer.module for layer in cnn.layers if isinstance(layer.module, nn.Conv2d)]
    proven = all(part.out_channels % 8 == 0 and part.padding == (0, 0) for part in convolutions)
    return cnn if proven else None
