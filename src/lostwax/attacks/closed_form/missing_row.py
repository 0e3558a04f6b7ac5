"""All n games at once: for each, what the rows that the adversary knows leave unexplained of a published sum."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.linalg import vector_norm

from lostwax.equations import uncertain
from lostwax.types import Records, Stationary, Sums

BLOCK_NUMBERS = 4_000_000  # numbers held at a time: 32 MB in float64
SMALL_NUMBERS = 100_000  # so few are quicker summed than cut up


def missing_rows(
    equation: Stationary | Sums, table: Records, weight: Tensor, games: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (games, missing): which games, and for each total - sum_{j != i} row_j, a (c, d + 1) matrix.

    The sum of game i is put together from the rows before i and the rows after i. Row i is never added and
    subtracted again, so its value cannot reach the guess even by rounding: a NaN in row i leaves game i untouched.
    Rows are worked through in blocks, so memory does not grow with n.
    """
    total = equation.total()  # (c, d + 1)
    n = len(table)
    size = max(math.isqrt(n), SMALL_NUMBERS // total.numel())  # as many blocks as rows in each, or one small block
    size = max(1, min(size, BLOCK_NUMBERS // total.numel()))
    blocks = [slice(start, min(start + size, n)) for start in range(0, n, size)]

    def factors(block: slice) -> tuple[Tensor, Tensor]:
        return equation.factors(table[block], weight[block])

    sums = torch.stack([r.mT @ f for r, f in map(factors, blocks)])  # (blocks, c, d + 1)
    others = _exclusive(sums)  # what all other blocks sum to
    for block, outside in zip(blocks, others, strict=True):
        played = (games >= block.start) & (games < block.stop)
        if not played.any():
            continue
        r, f = factors(block)
        inside = _exclusive(r[:, :, None] * f[:, None, :])[games[played] - block.start]
        yield played.nonzero()[:, 0], total - (outside + inside)


def known_rounding(equation: Stationary | Sums, table: Records, weight: Tensor, games: Tensor) -> Tensor:
    """The rounding error in the missing residual r of each game: that of the known rows' residuals, (games,)."""
    known = _exclusive(uncertain(equation, table, weight))[games]  # (games, c)
    size: Tensor = vector_norm(known, dim=-1)
    return torch.finfo(known.dtype).eps * size


def _exclusive(terms: Tensor) -> Tensor:
    """Sum of all the other terms, for each term along the first axis: those before it plus those after it."""
    zero = torch.zeros_like(terms[:1])
    before = torch.cat([zero, terms[:-1].cumsum(0)])
    after = torch.cat([terms[1:].flip(0).cumsum(0).flip(0), zero])
    return before + after
