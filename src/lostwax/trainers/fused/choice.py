"""Which nets have a fused gradient."""

from __future__ import annotations

from importlib.util import find_spec

from lostwax.trainers.fused.cnn import FusedCNN
from lostwax.trainers.fused.mlp import FusedMLP
from lostwax.trainers.stacked import Architecture, Gradient, Params
from lostwax.types import Loss


def fused(net: Architecture, loss: Loss, params: Params) -> Gradient | None:
    """The fast gradient where there is one: on a GPU, with Triton, for a net that a kernel knows.

    It has no derivative: what differentiates through training uses `stacked.gradient`.
    """
    like = next(iter(params.values()))
    if like.device.type != "cuda" or find_spec("triton") is None:
        return None
    return FusedMLP.of(net, loss, like.dtype) or FusedCNN.of(net, loss, like.dtype)
