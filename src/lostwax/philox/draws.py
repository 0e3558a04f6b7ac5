"""What is drawn with those bits.

Reals are made in float32: they are the same to rounding on every device, and in every dtype they are cast to. Whole
numbers are the same everywhere.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lostwax.philox.counter import BLOCK, bits

HIGHEST = 2**31 - 1  # all bits of an int32 but its sign


def normal(key: int, numbers: Tensor, count: int, *, turn: int = 0) -> Tensor:
    """N(0, 1), (m, count); draws of one count share no bits with those of another turn.

    Two from two uniforms (Box-Muller): sqrt(-2 ln u) cos(v), sqrt(-2 ln u) sin(v), u in (0, 1], v in [-pi, pi]. Which
    two depends on the count: a shorter draw is not the beginning of a longer one, nor independent of it.
    """
    blocks = -(-count // BLOCK)
    first, second = bits(key, numbers, blocks, before=turn * blocks).tensor_split(2, dim=1)  # (m, 4 blocks) each
    u = first.bitwise_and(HIGHEST).float().add_(0.5).mul_(2.0**-31)
    radius = u.log_().mul_(-2).sqrt_()
    angle = second.float().mul_(math.pi * 2.0**-31)
    return torch.cat([angle.cos().mul_(radius), angle.sin_().mul_(radius)], 1)[:, :count]


def uniform(key: int, numbers: Tensor, count: int) -> Tensor:
    """Uniform in [-1, 1], (m, count)."""
    return bits(key, numbers, -(-count // BLOCK))[:, :count].float().mul_(2.0**-31)


def orders(key: int, numbers: Tensor, count: int) -> Tensor:
    """int64 (m, count): 0 .. count - 1 in random order, as 64 random bits of each would sort them."""
    drawn = bits(key, numbers, -(-2 * count // BLOCK)).view(torch.int64)[:, :count]
    return drawn.argsort(dim=1, stable=True)


def happens(key: int, numbers: Tensor, count: int, chance: float, *, turn: int = 0, turns: int = 1) -> Tensor:
    """bool (m, turns, count): each with this chance, below 1, or less by no more than 2^-63; `turn` is the first.

    Turns of one count are the same whether they are drawn together or one by one.
    """
    blocks = -(-2 * count // BLOCK)
    words = bits(key, numbers, turns * blocks, before=turn * blocks).view(torch.int64)  # (m, 4 blocks turns)
    drawn = words.bitwise_and_(2**63 - 1).view(len(numbers), turns, 4 * blocks)[..., :count]
    return drawn < int(chance * 2**63)
