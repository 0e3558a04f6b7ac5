"""Linear heads in Gram space on a GPU: every step of a head's training in one kernel.

Step by step, ten launches move arrays of n numbers an output through memory, which takes longer than the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec

import torch

from lostwax.losses import CrossEntropy
from lostwax.trainers.gram import ROWS, SCALE, Dual
from lostwax.trainers.stacked import Params
from lostwax.types import Loss

MOST = 1024  # records times classes, each rounded up, that the registers of a program hold
A_WARP = 128  # of them in a warp: so many that none is spilled to memory on Hopper


def knows(dual: Dual, loss: Loss) -> bool:
    """Is there a kernel for these heads here: on a GPU, with Triton, linear, under cross-entropy, in float32?"""
    if dual.head.rest is not None or type(loss) is not CrossEntropy or dual.gram.dtype != torch.float32:
        return False
    return math.prod(_tile(dual)) <= MOST and dual.gram.is_cuda and find_spec("triton") is not None


def _tile(dual: Dual) -> tuple[int, int]:
    """Records and classes, rounded up to what a product of tiles takes."""
    _, c, n = dual.outputs.shape
    return max(16, 1 << (n - 1).bit_length()), max(16, 1 << (c - 1).bit_length())


def descended(dual: Dual, rates: Sequence[float], *, momentum: float, weight_decay: float) -> Params:
    """The coordinates after heavy-ball descent at these rates: what `GD.update` makes of them, to rounding."""
    from lostwax.trainers.fused.heads_kernel import descend

    m, c, n = dual.outputs.shape
    scale, speed, scales = 1.0, 0.0, []
    for rate in rates:  # the same steps of s, whose gradient is 0
        scales.append(scale)
        speed = momentum * speed + weight_decay * scale
        scale -= rate * speed
    plan = torch.tensor([rates, scales], dtype=torch.float32).to(dual.gram.device, non_blocking=True)  # (2, t)
    rows = torch.empty_like(dual.outputs, memory_format=torch.contiguous_format)
    arrays = (rows, dual.outputs.contiguous(), dual.gram.contiguous(), dual.y.contiguous(), *plan.unbind())
    records, classes = _tile(dual)
    warps = records * classes // A_WARP
    with torch.cuda.device(rows.get_device()):  # where Triton launches
        descend[(m,)](*arrays, n, c, len(rates), momentum, weight_decay, N=records, C=classes, num_warps=warps)
    return {SCALE: torch.tensor(scale, dtype=torch.float64), ROWS: rows}
