"""Gradients of stacked nets by fused Triton kernels on a GPU."""

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
    """A fused gradient, which is not differentiable, or None without a GPU, Triton or a kernel for the net."""
    if device.type != "cuda" or find_spec("triton") is None:
        return None
    return FusedMLP.of(net, loss, dtype) or _proven(FusedCNN.of(net, loss, dtype))


def _proven(cnn: FusedCNN | None) -> FusedCNN | None:
    """None unless all convolutions are of a kind verified on a GPU: channels a multiple of eight, no padding.

    Triton 3.6 miscompiles the loads of padded 3 x 3 windows of four channels on Hopper; its interpreter and other
    windows are correct.
    """
    modules = [] if cnn is None else [layer.module for layer in cnn.layers]
    convolutions = [part for part in modules if isinstance(part, nn.Conv2d)]
    return cnn if all(part.out_channels % 8 == 0 and part.padding == (0, 0) for part in convolutions) else None
